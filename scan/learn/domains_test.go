package learn

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"skillbox/policy"
)

// to is a destination that was reached in these runs.
func to(name string, port uint16, runs ...int) reached {
	r := reached{name: name, port: port, proto: "tcp", runs: map[int]bool{}}
	for _, i := range runs {
		r.runs[i] = true
	}
	return r
}

func TestNamesAreGroupedByTheirPorts(t *testing.T) {
	for name, c := range map[string]struct {
		reached []reached
		want    []string
	}{
		"one rule for the same ports": {
			[]reached{to("b.example.com", 443, 0), to("a.example.org", 443, 0)},
			[]string{"{domains: [a.example.org, b.example.com], ports: [443]}"},
		},
		"a rule for each set of ports": {
			[]reached{to("a.example", 443, 0), to("a.example", 80, 0), to("b.example", 443, 0)},
			[]string{"{domains: [a.example], ports: [80, 443]}", "{domains: [b.example], ports: [443]}"},
		},
		"siblings that are the same in every run are named": {
			[]reached{to("a.x.example", 443, 0, 1), to("b.x.example", 443, 0, 1), to("c.x.example", 443, 0, 1)},
			[]string{"{domains: [a.x.example, b.x.example, c.x.example], ports: [443]}"},
		},
		"two siblings are no evidence": {
			[]reached{to("a.x.example", 443, 0), to("b.x.example", 443, 1)},
			[]string{"{domains: [a.x.example, b.x.example], ports: [443]}"},
		},
		"three that vary are": {
			[]reached{to("a.x.example", 443, 0), to("b.x.example", 443, 1), to("c.x.example", 443, 0), to("api.example", 443, 0, 1)},
			[]string{`{domains: ["*.x.example"], ports: [443]}`, "{domains: [api.example], ports: [443]}"},
		},
		"not below a public suffix": {
			[]reached{to("a.github.io", 443, 0), to("b.github.io", 443, 1), to("c.github.io", 443, 2)},
			[]string{"{domains: [a.github.io, b.github.io, c.github.io], ports: [443]}"},
		},
		"runs that did not turn there at all are none that vary": {
			[]reached{to("a.x.example", 443, 2), to("b.x.example", 443, 2), to("c.x.example", 443, 2), to("api.example", 443, 0, 1, 2)},
			[]string{"{domains: [a.x.example, api.example, b.x.example, c.x.example], ports: [443]}"},
		},
		"a name of one label": {[]reached{to("intranet", 80, 0)}, []string{"{domains: [intranet], ports: [80]}"}},
	} {
		var got []string
		for _, r := range group(c.reached) {
			got = append(got, r.String())
			if strings.Contains(r.String(), "*") != strings.Contains(r.why, "3 names below") {
				t.Errorf("%s: %s: %q", name, r, r.why)
			}
		}
		if !slices.Equal(got, c.want) {
			t.Errorf("%s:\n%s\nnot\n%s", name, strings.Join(got, "\n"), strings.Join(c.want, "\n"))
		}
	}
}

// Whatever was reached, rules allow it, and without a wildcard nothing else.
func TestRulesAllowWhatWasReached(t *testing.T) {
	var all []reached
	for i := range 60 {
		all = append(all, to(fmt.Sprintf("h%d.d%d.example", i%7, i%5), uint16(80+i%3), i%4))
	}
	var list []policy.Rule
	for _, r := range group(all) {
		list = append(list, r.Rule)
	}
	for _, r := range all {
		one := policy.Rule{Domains: []string{r.name}, Ports: []policy.Port{{From: r.port, To: r.port, Proto: "tcp"}}}
		if !policy.Contains(list, one) {
			t.Errorf("%s is not in %v", one, list)
		}
	}
}
