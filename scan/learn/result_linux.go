package learn

import (
	"fmt"
	"maps"
	"path/filepath"
	"slices"
	"strings"

	"skillbox/audit"
	"skillbox/policy"
	"skillbox/scan"
)

// maxListed bounds the lines of a list in a comment.
const maxListed = 12

// document is the policy as it is printed.
func (l *learning) document() *document {
	d := &document{policy: l.draft, wishes: l.wishes, notes: map[string]string{}, shown: map[string]bool{
		"filesystem.tmp": true, "filesystem.home": true, "filesystem.output": true, "timeout": true, "syscalls.profile": true, "resources.output": true,
	}}
	for _, key := range l.measured {
		d.shown[key] = true
		d.notes[key] = "half as much again as was used"
	}
	connected, _, _ := l.seen.destinations()
	for _, r := range group(connected) {
		d.notes["network.egress "+r.String()] = r.why
	}
	if l.draft.Rootfs.Bundle == "copy-on-write" {
		d.notes["rootfs.bundle"] = "it changes its own files, and does something else when it cannot; what it changed is thrown away"
	}
	for _, b := range slices.Concat(l.draft.Filesystem.Read, l.draft.Filesystem.Write) {
		if b.Dangerous {
			for _, key := range []string{"filesystem.read ", "filesystem.write "} {
				d.notes[key+binds([]policy.Bind{b})[0]] = "a sensitive path, which the policy that was given names too"
			}
		}
	}
	if l.draft.Syscalls.Profile == "default" && l.notStrict != "" {
		d.notes["syscalls.profile"] = "strict is not enough: " + l.notStrict
	}
	for _, name := range l.draft.Syscalls.Allow {
		d.notes["syscalls.allow "+name] = "without it the runs are not the same"
	}
	for _, name := range slices.Concat(l.draft.Env.Pass, l.draft.Env.Secrets) {
		for _, key := range []string{"env.pass ", "env.secrets "} {
			d.notes[key+quote(name)] = "without it the runs are not the same"
		}
	}
	l.comments(d)
	return d
}

// comments say how the policy came to be.
func (l *learning) comments(d *document) {
	runs := l.options.Runs * len(l.attempts)
	d.head = append(d.head, fmt.Sprintf("What %d runs of this skill needed (%d of each of %d ways to start it), by `skillbox policy learn`.", runs, l.options.Runs, len(l.attempts)))
	if len(l.options.Network) == 0 {
		d.head = append(d.head, "Nothing could be reached: names and connections ended in a sinkhole, so answers may lead a skill to more.")
	} else {
		d.head = append(d.head, "Really reached could be only: "+strings.Join(l.options.Network, ", ")+".")
	}
	if len(l.ends) > 0 {
		d.head = append(d.head, fmt.Sprintf("%d of the runs ended with %s. A skill that fails early shows little of what it needs.", len(l.ends), strings.Join(compact(l.ends), ", ")))
	}
	if !slices.Contains(l.measured, "resources.memory") {
		what := "have their defaults"
		if l.current != nil {
			what = "are as in the policy that was given"
		}
		d.foot = append(d.foot, "resources.memory and resources.pids "+what+": without a cgroup on this host their use cannot be measured.")
	}
	if len(l.draft.Network.Egress) > 0 && len(l.options.Network) == 0 {
		d.foot = append(d.foot, "network.limits are not learned: a sinkhole answers little.")
	}
	if varies := l.varies(); len(varies) > 0 {
		d.foot = append(d.foot, "The skill is not deterministic. Not compared, because it varies by itself: "+strings.Join(varies[:min(len(varies), maxListed)], ", "))
	}
	d.foot = append(d.foot, l.notes...)
	l.refusals(d)
}

// leftToAPerson is why something is refused that stands in the policy commented out.
const leftToAPerson = "left to a person"

// refusals lists what is refused under the policy too, by why it may be.
func (l *learning) refusals(d *document) {
	by := map[string][]string{}
	for what, why := range l.excused {
		if why != leftToAPerson {
			by[why] = append(by[why], what)
		}
	}
	for _, why := range slices.Sorted(maps.Keys(by)) {
		all := by[why]
		slices.Sort(all)
		d.foot = append(d.foot, "Refused in these runs, which do without ("+why+"):")
		for _, what := range all[:min(len(all), maxListed)] {
			d.foot = append(d.foot, "  "+what)
		}
		if len(all) > maxListed {
			d.foot = append(d.foot, fmt.Sprintf("  and %d more", len(all)-maxListed))
		}
	}
}

func compact(list []string) []string { return slices.Compact(slices.Sorted(slices.Values(list))) }

func (l *learning) varies() (all []string) {
	for i := range l.expected {
		for at := range l.expected[i].varies {
			all = append(all, audit.Clean(strings.TrimSuffix(at, "."), 200))
		}
	}
	return compact(all)
}

func (l *learning) result() (*Result, error) {
	d := l.document()
	r := &Result{
		Skill: l.skill, Converged: len(l.failing) == 0, Failing: append([]string{}, l.failing...), Attempts: len(l.attempts), Runs: l.runs,
		Wishes: append([]Wish{}, l.wishes...), Varies: append([]string{}, l.varies()...), Compared: []scan.Difference{}, Evidence: []audit.Record{},
	}
	r.Policy = d.String()
	for _, w := range l.wishes {
		if e, ok := l.records[cite{w.Run, w.Seq}]; ok {
			r.Evidence = append(r.Evidence, e)
		}
	}
	if l.current != nil {
		learned, err := policy.Parse("", []byte(r.Policy))
		if err != nil {
			return nil, err
		}
		r.Diff = unified(canonical(l.current), canonical(learned), filepath.Base(l.options.Current), "learned")
		r.Compared = compare(l.current, learned, l.wishes)
	}
	return r, nil
}

// canonical are the lines of a policy without what is only a default's mark.
func canonical(p *policy.Policy) []string {
	lines := strings.Split(strings.TrimSuffix(string(p.YAML()), "\n"), "\n")
	for i := range lines {
		lines[i] = strings.TrimSuffix(lines[i], " # default")
	}
	return lines
}
