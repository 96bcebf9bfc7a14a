package engine

import (
	"path"
	"path/filepath"
	"slices"
	"strings"
)

// programs are the skills whose program has another name than they.
var programs = map[string]string{"kubernetes": "kubectl", "postgres-native": "psql"}

// native runs a program of the system's, named as the skill is, with the tool as its first word. Its bundle is the skill's directory.
func (r *resolving) native() error {
	source := r.skill.source
	dir := source.text
	switch {
	case strings.HasPrefix(dir, "docker:"):
		return source.fail("is an image, and the runtime is native", `write runtime = "docker"`)
	case strings.Contains(dir, ":"):
		return source.fail("nothing is fetched here", "fetch it, and name its directory")
	case !filepath.IsAbs(dir):
		dir = filepath.Join(r.Dir, dir)
	}
	found, err := r.real(source, dir)
	if err != nil {
		return err
	}
	if !found.Dir {
		return source.fail(found.Path+" is not a directory", "")
	}
	r.run.Bundle = found.Path
	r.asked.bundle(source)
	if len(r.call.Words) == 0 {
		return source.fail("no tool is named", "name it after --: skillbox exec --manifest FILE SKILL -- TOOL ARGUMENTS")
	}
	program := programs[r.name]
	if program == "" {
		program = r.name
	}
	r.asked.command([]string{program}, source)
	r.run.Words = append([]string{r.call.Words[0]}, flags(r.call.Words[1:])...)
	if r.network.text == "true" {
		r.wantEgress(r.network)
	}
	return r.allowedPaths()
}

// flags turns key=value into the flags of a command line: one letter is -k value, more are --key value; true is the flag alone, false is
// none. What has no key, and the key resource, is an argument as it is.
func flags(words []string) (out []string) {
	for _, word := range words {
		key, value, ok := strings.Cut(word, "=")
		dash := "--"
		if len([]byte(key)) == 1 {
			dash = "-"
		}
		switch {
		case !ok:
			out = append(out, word)
		case key == "" || key == "arg" || key == "resource":
			out = append(out, value)
		case value == "true":
			out = append(out, dash+key)
		case value == "false":
		default:
			out = append(out, dash+key, value)
		}
	}
	return out
}

// scratch are paths that every box has as its own.
var scratch = []string{"/tmp", "/var/tmp"}

// allowedPaths shows the paths that the instance names, and no others, where a box has room for them: below /home and the like it shows
// its own.
func (r *resolving) allowedPaths() error {
	for _, a := range r.allowed {
		p := a.found.Path
		if slices.Contains(scratch, p) {
			r.warn(a.text, "%s is the sandbox's own, empty and thrown away", p)
			continue
		}
		if system(p) {
			return a.fail(p+ofSystem, "name a directory of the skill's own; programs of the host's /usr are there anyway")
		}
		at := p
		if slices.ContainsFunc(taken, func(place string) bool { return beneath(place, p) }) {
			at = path.Join("/data", path.Base(p))
			r.warn(a.text, "%s is shown at %s: the sandbox has a place of its own there", p, at)
		}
		r.asked.bind("write", p, at, a.text)
	}
	return nil
}

// taken are the places of a box below which nothing of the host's is shown by its own name.
var taken = []string{"/home", "/root", "/tmp", "/var/tmp", "/run"}
