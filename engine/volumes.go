package engine

import (
	"fmt"
	"path"
	"slices"
	"strings"
)

// kept are directories of the host's system, which may be looked at and not written.
var kept = []string{"/usr", "/bin", "/sbin", "/lib", "/lib32", "/lib64", "/libx32", "/boot", "/opt", "/srv", "/mnt", "/media", "/snap", "/nix"}

// system says of a path of the host's that it may not be shown to be written.
func system(p string) bool {
	return slices.Contains(kept, p) || beneath("/usr", p) && !beneath("/usr/local", p)
}

const ofSystem = " is the host's system, which a skill may not change"

// volumes are paths of the host's, each shown at a path of the box. What a variable brings cannot begin another part of a volume.
func (r *resolving) volumes(c *docker) error {
	for _, t := range c.volumes {
		if err := r.volume(t); err != nil {
			return err
		}
	}
	return nil
}

func (r *resolving) volume(t text) error {
	parts := split(t.text)
	if len(parts) < 2 || len(parts) > 3 {
		return t.fail(fmt.Sprintf("%q is not host:container or host:container:ro", t.text), "a volume without a path of the host's is not kept here: /tmp and /output are there to be written")
	}
	list := "write"
	if len(parts) == 3 {
		for option := range strings.SplitSeq(parts[2], ",") {
			switch option {
			case "ro":
				list = "read"
			case "rw", "cached", "delegated", "consistent":
			default:
				return t.fail(fmt.Sprintf("volume option %q is not available: labels of host files are not changed, and mounts do not travel", option), "there are ro and rw")
			}
		}
	}
	of := t
	of.text = parts[0]
	host, err := r.path(of)
	if err != nil {
		return err
	}
	if !path.IsAbs(host) {
		return t.fail(fmt.Sprintf("%q is relative, or the name of a volume, of which there are none", host), "write an absolute path, or one below ${SKILL_WORKDIR}")
	}
	of.text = parts[1]
	at, err := r.path(of)
	if err != nil {
		return err
	}
	if !path.IsAbs(at) {
		return t.fail(fmt.Sprintf("%q is not an absolute path", at), "")
	}
	if path.Clean(at) != path.Clean(host) { // by its own path a volume tells no more than that it is there
		_, used, err := r.expand(of)
		if err != nil {
			return err
		}
		r.asked.use("path."+at, used, t)
	}
	found, err := r.real(t, host)
	if err != nil {
		return err
	}
	if err := r.mayShow(t, found); err != nil {
		return err
	}
	if list == "write" && system(found.Path) {
		return t.fail(found.Path+ofSystem, "add :ro, or name a directory of the skill's own")
	}
	r.asked.bind(list, found.Path, path.Clean(at), t)
	return nil
}

// mayShow holds a volume to the instance's allowed_paths, where it has any say.
func (r *resolving) mayShow(t text, found Found) error {
	if r.allowed == nil || slices.ContainsFunc(r.allowed, func(a allowed) bool { return beneath(a.found.Path, found.Path) }) {
		return nil
	}
	return t.fail(found.Path+" is not within the instance's allowed_paths", "add it there, or show another path")
}

// split cuts a volume at its colons, but for those within ${…}.
func split(s string) (parts []string) {
	begin, within := 0, false
	for i := 0; i < len(s); i++ {
		switch {
		case strings.HasPrefix(s[i:], "${"):
			within = true
		case s[i] == '}':
			within = false
		case s[i] == ':' && !within:
			parts, begin = append(parts, s[begin:i]), i+1
		}
	}
	return append(parts, s[begin:])
}
