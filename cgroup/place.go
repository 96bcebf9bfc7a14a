package cgroup

import (
	"path"
	"slices"
	"strings"
)

// slice holds the boxes' groups wherever skillbox does not own the directory as a whole. No other user can open it.
const slice = "skillbox.slice"

// ownGroup finds our group in the text of /proc/PID/cgroup: the line of version 2, see cgroups(7).
func ownGroup(text string) (group string, v1, v2 bool) {
	for line := range strings.Lines(text) {
		line = strings.TrimSpace(line)
		if g, ok := strings.CutPrefix(line, "0::"); ok {
			// "/../x" is outside the namespace's view, and a removed group has a suffix.
			group, v2 = strings.TrimSuffix(g, " (deleted)"), true
		} else if line != "" {
			v1 = true
		}
	}
	return group, v1, v2
}

// ancestors are a group and all above it, the root first: "/a/b" gives "/", "/a", "/a/b".
func ancestors(group string) []string {
	all := []string{group}
	for group != "/" && group != "." {
		group = path.Dir(group)
		all = append(all, group)
	}
	slices.Reverse(all)
	return all
}

// usable are the controllers of available that limit something here.
func usable(available []string) []string {
	var found []string
	for _, c := range []string{CPU, IO, Memory, Pids} {
		if slices.Contains(available, c) {
			found = append(found, c)
		}
	}
	return found
}

// Lacks lists which of the wanted controllers a place does not have. A nil place has none.
func (p *Place) Lacks(wanted ...string) []string {
	var missing []string
	for _, c := range wanted {
		if p == nil || !slices.Contains(p.Controllers, c) {
			missing = append(missing, c)
		}
	}
	return missing
}
