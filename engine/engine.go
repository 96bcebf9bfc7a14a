// Package engine reads the manifests of skill-engine (.skill-engine.toml) and says what a run of one of their skills asks for: a policy, a
// command line, variables. A manifest is the word of whoever runs it, as a line of `docker run` would be, and what would take the
// sandbox away is refused here, by its place in the file; whether the rest is granted is for package policy to say.
//
// It touches the machine only by Host, whose functions tests replace.
package engine

import (
	"cmp"
	"fmt"
	"maps"
	"path/filepath"
	"slices"
	"strings"

	"skillbox/helper"
)

// Host is what a manifest is read against.
type Host struct {
	Dir     string                           // where relative sources begin: the manifest's own directory, absolute
	WorkDir string                           // SKILL_WORKDIR where Env has none: where the caller is
	Home    string                           // the caller's home, "" is unknown
	Arch    string                           // as Go names it: amd64, arm64
	Env     func(name string) (string, bool) // the caller's environment
	// Real follows every link of a path, and says what is there.
	Real func(path string) (Found, error)
}

// Found is a path of the host's.
type Found struct {
	Path string // absolute, clean and without links
	Dir  bool
	File bool // a regular file
	// Socket is where below Path a container engine's socket lies, or Path itself if it is a socket; "" is neither.
	Socket string
}

// Run is what a call of a skill comes to.
type Run struct {
	Bundle   string // directory of the skill; "" is an empty one: all that runs is in the image
	Words    []string
	WorkDir  string // "" is the image's, or the bundle
	Manifest helper.Manifest
	Env      map[string]string // values of the variables that the manifest's policy passes
	Warnings []string
}

// Call names the skill to run.
type Call struct {
	Skill    string // SKILL or SKILL@INSTANCE
	Words    []string
	MaxBytes int64
}

// Resolve puts a run together. An error is a *helper.Error with its place in the manifest.
func (m *Manifest) Resolve(h Host, call Call) (*Run, error) {
	name, instance, chosen := strings.Cut(call.Skill, "@")
	if chosen && instance == "" {
		return nil, &helper.Error{Message: fmt.Sprintf("%s names no instance after @", call.Skill), File: m.file}
	}
	skill, ok := m.skills[name]
	if !ok {
		hint := "it has none"
		if len(m.skills) > 0 {
			hint = "it has " + strings.Join(slices.Sorted(maps.Keys(m.skills)), ", ")
		}
		return nil, &helper.Error{Message: fmt.Sprintf("no skill %q in this manifest", name), File: m.file, Hint: hint}
	}
	r := &resolving{Host: h, m: m, skill: skill, call: call, name: name, asked: newAsked(m.file, name)}
	r.Host.Env = r.lookup
	if err := r.chooseInstance(instance, chosen); err != nil {
		return nil, err
	}
	r.run.Warnings = slices.Clone(skill.warnings)
	steps := []func() error{r.capabilities, r.variables}
	switch skill.runtime.text {
	case "docker":
		steps = append(steps, r.docker)
	case "native":
		steps = append(steps, r.native)
	case "wasm", "":
		return nil, skill.runtime.or(skill.source).fail("runtime wasm is not run here: skillbox runs programs, not components", `give the skill runtime = "docker" or "native"`)
	default:
		return nil, skill.runtime.fail(fmt.Sprintf("%q is not a runtime", skill.runtime.text), "there are docker and native")
	}
	for _, step := range steps {
		if err := step(); err != nil {
			return nil, err
		}
	}
	var err error
	r.run.Manifest, err = r.asked.manifest()
	return &r.run, err
}

// resolving is one run in the making.
type resolving struct {
	Host
	m        *Manifest
	skill    *skill
	instance *instance // the zero one if the manifest has none by the default's name
	call     Call
	name     string
	asked    *asked
	run      Run

	network text // network_access as written for this instance, or by default; not there where nobody says
	// allowed are the paths that may be shown; nil where nobody says.
	allowed []allowed
}

// allowed is one of allowed_paths, as it is on the host.
type allowed struct {
	text
	found Found
}

func (r *resolving) warn(t text, format string, a ...any) {
	r.run.Warnings = append(r.run.Warnings, t.fail(fmt.Sprintf(format, a...), "").Error())
}

// lookup is the caller's environment, with the one variable that this format has of its own.
func (r *resolving) lookup(name string) (string, bool) {
	value, ok := r.m.env(name)
	if !ok && name == "SKILL_WORKDIR" && r.WorkDir != "" {
		return r.WorkDir, true
	}
	return value, ok
}

func (r *resolving) chooseInstance(name string, chosen bool) error {
	if !chosen {
		name = cmp.Or(r.skill.defaultInstance.text, "default")
	}
	found, ok := r.skill.instances[name]
	switch {
	case ok:
		r.instance = found
	case chosen || r.skill.defaultInstance.there:
		hint := "it has none"
		if len(r.skill.instances) > 0 {
			hint = "it has " + strings.Join(slices.Sorted(maps.Keys(r.skill.instances)), ", ")
		}
		return r.skill.defaultInstance.or(r.skill.source).fail(fmt.Sprintf("skill %s has no instance %q", r.name, name), hint)
	default:
		r.instance = &instance{}
	}
	return nil
}

// capabilities of the instance, and of the defaults where it says nothing.
func (r *resolving) capabilities() error {
	own, defaults := r.instance.capabilities, r.m.defaults.capabilities
	r.network = own.network.or(defaults.network)
	if !own.pathsNamed && !defaults.pathsNamed {
		return nil
	}
	r.allowed = []allowed{}
	for _, t := range slices.Concat(own.paths, defaults.paths) {
		path, err := r.path(t)
		if err != nil {
			return err
		}
		if !filepath.IsAbs(path) {
			path = filepath.Join(r.Dir, path)
		}
		found, err := r.real(t, path)
		if err != nil {
			return err
		}
		r.allowed = append(r.allowed, allowed{t, found})
	}
	return nil
}

// variables of the defaults and the instance, and the instance's configuration as the engine hands it on: SKILL_ and the key in capitals.
func (r *resolving) variables() error {
	for _, vars := range []map[string]text{r.m.defaults.env, r.instance.env} {
		for _, name := range slices.Sorted(maps.Keys(vars)) {
			if err := r.setVariable(name, vars[name]); err != nil {
				return err
			}
		}
	}
	for _, key := range slices.Sorted(maps.Keys(r.instance.config)) {
		if err := r.setVariable("SKILL_"+strings.ToUpper(key), r.instance.config[key]); err != nil {
			return err
		}
	}
	return nil
}

// setVariable gives the skill a variable. One whose value is the caller's travels with the call, as other values of the caller's do.
func (r *resolving) setVariable(name string, t text) error {
	value, used, err := r.expand(t)
	if err != nil {
		return err
	}
	if !variableName(name) {
		return t.fail(fmt.Sprintf("%q is not the name of a variable", name), "letters, digits and underscore, not a digit first")
	}
	if strings.ContainsRune(value, 0) {
		return t.fail("a NUL character cannot be passed to a program", "")
	}
	if len(used) > 0 {
		r.asked.pass(name, used, t)
		if r.run.Env == nil {
			r.run.Env = map[string]string{}
		}
		r.run.Env[name] = value
		return nil
	}
	delete(r.run.Env, name)
	r.asked.set(name, value, t)
	return nil
}

func variableName(s string) bool {
	return s != "" && strings.Trim(s, "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789_") == "" && (s[0] < '0' || s[0] > '9')
}
