package engine

import (
	"bytes"
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strings"

	"skillbox/helper"
)

type object = map[string]any

// asked is the policy that a run asks for, and where in the manifest each of it stands.
type asked struct {
	file   string
	policy object
	places map[string][2]int
	egress bool
	source bool
	uses   map[string][]string // the caller's variables whose values come in, by what of the box they are part of
}

func newAsked(file, skill string) *asked {
	a := &asked{file: file, policy: object{"version": 1}, places: map[string][2]int{}, uses: map[string][]string{}}
	if label(skill) {
		a.policy["name"] = skill
	}
	return a
}

// label says that a skill's name can be a policy's, which is for people and logs.
func label(s string) bool {
	const letters = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789"
	return s != "" && len(s) <= 64 && strings.Trim(s, letters+"._-") == "" && strings.ContainsRune(letters, rune(s[0]))
}

func (a *asked) note(field string, t text) { a.places[field] = [2]int{t.line, t.column} }

func (a *asked) group(name string) object {
	group, ok := a.policy[name].(object)
	if !ok {
		group = object{}
		a.policy[name] = group
	}
	return group
}

// value asks for one value of a group.
func (a *asked) value(group, key string, v any, t text) {
	a.group(group)[key] = v
	a.note(group+"."+key, t)
}

func (a *asked) command(words []string, t text) {
	a.policy["command"] = words
	a.note("command", t)
}

// bundle says that the manifest names the directory that is shown as the bundle, which makes it a path of the host's like others.
func (a *asked) bundle(t text) {
	a.source = true
	a.note("bundle", t)
}

func (a *asked) bind(list, host, at string, t text) {
	fs := a.group("filesystem")
	binds, _ := fs[list].([]object)
	a.note(fmt.Sprintf("filesystem.%s[%d]", list, len(binds)), t)
	fs[list] = append(binds, object{"host": host, "path": at})
}

// set gives a variable a value, and pass has it come with the call; the last word on a name holds.
func (a *asked) set(name, value string, t text) {
	a.unpass(name)
	env := a.group("env")
	values, ok := env["set"].(object)
	if !ok {
		values = object{}
		env["set"] = values
	}
	values[name] = value
	a.note("env.set."+name, t)
}

func (a *asked) pass(name string, used []string, t text) {
	env := a.group("env")
	if values, ok := env["set"].(object); ok {
		delete(values, name)
	}
	a.unpass(name)
	names, _ := env["pass"].([]string)
	env["pass"] = append(names, name)
	a.note("env.pass."+name, t)
	a.use("env."+name, slices.DeleteFunc(used, func(u string) bool { return u == name }), t) // its own is passed, and judged as such
}

// use says that values of the caller's variables are part of something that the skill sees.
func (a *asked) use(of string, variables []string, t text) {
	a.uses[of] = variables
	for _, name := range variables {
		a.note("uses."+name, t)
	}
}

func (a *asked) unpass(name string) {
	delete(a.uses, "env."+name)
	env := a.group("env")
	if names, ok := env["pass"].([]string); ok {
		env["pass"] = slices.DeleteFunc(names, func(n string) bool { return n == name })
	}
}

// manifest is what goes to skillboxd. The policy is JSON, which is YAML, without any character that a policy may not hold as it is.
func (a *asked) manifest() (helper.Manifest, error) {
	names, _ := a.group("env")["pass"].([]string)
	for i, name := range names {
		a.places[fmt.Sprintf("env.pass[%d]", i)] = a.places["env.pass."+name]
	}
	uses := slices.Concat(slices.Collect(maps.Values(a.uses))...)
	slices.Sort(uses)
	if len(a.group("env")) == 0 {
		delete(a.policy, "env")
	}
	text, err := json.Marshal(a.policy)
	if err != nil {
		return helper.Manifest{}, fmt.Errorf("engine: %w", err)
	}
	var b bytes.Buffer
	for _, c := range string(text) {
		if c >= 0x7F && c < 0xA0 || c == 0xFEFF {
			fmt.Fprintf(&b, `\u%04x`, c)
			continue
		}
		b.WriteRune(c)
	}
	return helper.Manifest{File: a.file, Policy: b.Bytes(), Places: a.places, Egress: a.egress, Bundle: a.source, Uses: slices.Compact(uses)}, nil
}
