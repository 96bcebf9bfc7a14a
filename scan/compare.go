package scan

import (
	"fmt"
	"net/netip"
	"slices"
	"strings"

	"skillbox/audit"
	"skillbox/policy"
)

// compare lists what the declared policy grants and no run used, and what a run tried and it does not grant.
func (s *scanning) compare() []Difference {
	c := &comparison{scanning: s, all: []Difference{}}
	c.egress()
	c.paths()
	c.secrets()
	for i := range s.report.Runs {
		run := &s.report.Runs[i]
		undeclared, clouds := (&sight{subject: s.subject, run: run}).targets()
		for _, t := range together(append(undeclared, clouds...)) {
			c.add("network.egress", strings.TrimSuffix(t.what+" "+strings.Join(t.ports, ", "), " "), false)
		}
		for _, e := range run.Events {
			c.undeclared(&e)
		}
	}
	return c.all
}

type comparison struct {
	*scanning
	all []Difference
}

func (c *comparison) add(key, value string, declared bool) {
	if d := (Difference{key, value, declared}); !slices.Contains(c.all, d) {
		c.all = append(c.all, d)
	}
}

// any tells whether a record of some run fits.
func (c *comparison) any(fits func(audit.Detail) bool) bool {
	return slices.ContainsFunc(c.report.Runs, func(r Run) bool {
		return slices.ContainsFunc(r.Events, func(e audit.Record) bool { return fits(e.Detail) })
	})
}

func (c *comparison) egress() {
	for _, rule := range c.declared.Network.Egress {
		for _, pattern := range rule.Domains {
			if !c.any(func(d audit.Detail) bool { return pattern == "*" || matches(pattern, nameOf(d)) }) {
				c.add("network.egress", pattern, true)
			}
		}
		for _, cidr := range rule.CIDRs {
			only := rule
			only.CIDRs = []netip.Prefix{cidr}
			one := &sight{subject: &subject{declared: &policy.Policy{Network: policy.Network{Egress: []policy.Rule{only}}}}}
			if !c.any(func(d audit.Detail) bool {
				to, ok := d.(audit.Connection)
				return ok && one.allows("", to.Address, to.Port, to.Proto)
			}) {
				c.add("network.egress", cidr.String(), true)
			}
		}
	}
}

func matches(pattern, name string) bool {
	normal, err := policy.NormalizeName(name)
	return err == nil && policy.MatchName(pattern, normal)
}

func nameOf(d audit.Detail) string {
	switch d := d.(type) {
	case audit.DNS:
		return d.Name
	case audit.Connection:
		return d.Name
	}
	return ""
}

func (c *comparison) paths() {
	for key, binds := range map[string][]policy.Bind{"filesystem.read": c.declared.Filesystem.Read, "filesystem.write": c.declared.Filesystem.Write} {
		for _, b := range binds {
			if !c.any(func(d audit.Detail) bool {
				f, ok := d.(audit.File)
				return ok && (f.Path == b.Path || strings.HasPrefix(f.Path, b.Path+"/"))
			}) {
				c.add(key, b.Path, true)
			}
		}
	}
}

func (c *comparison) secrets() {
	for _, name := range c.declared.Env.Secrets {
		if !c.any(func(d audit.Detail) bool { f, ok := d.(audit.File); return ok && f.Path == "/run/secrets/"+name }) {
			c.add("env.secrets", name, true)
		}
	}
}

// undeclared notes what a record shows that the declared policy does not grant.
func (c *comparison) undeclared(e *audit.Record) {
	switch d := e.Detail.(type) {
	case audit.Syscall:
		if d.Verdict == audit.Denied && !slices.Contains(c.declared.Syscalls.Allow, d.Name) {
			c.add("syscalls.allow", d.Name, false)
		}
	case audit.Limit:
		if d.Limit != "timeout" {
			c.add(d.Limit, fmt.Sprintf("more than %d", d.Value), false)
		}
	case audit.File:
		if name, ok := strings.CutPrefix(d.Path, "/run/secrets/"); ok && name != "" && !slices.Contains(c.declared.Env.Secrets, name) {
			c.add("env.secrets", name, false)
		}
	}
}

// unobserved says what this scan could not see or do.
func (s *scanning) unobserved() []string {
	all := []string{
		"What the skill would do for other parameters, on another day or after more runs was not seen.",
		"Which of its environment variables the skill reads cannot be seen, only what becomes of their values.",
		"Of what a connection carries, the beginning was looked at, and nobody answered as the other side would have.",
	}
	if s.options.Clock == 0 {
		all = append(all, "The clock was not moved: what waits for a date was not seen (--clock +30d).")
	} else {
		all = append(all, "The clock was moved for programs that load shared libraries; static ones, such as most that are written in Go, and those that ask the kernel themselves saw today's date.")
	}
	if !s.text.whole {
		all = append(all, "The bundle has more text than was searched for places.")
	}
	if !s.stated {
		all = append(all, "Neither the bundle nor anybody else states a policy: behaviour was compared with the default, which allows no network.")
	}
	if len(s.declared.Filesystem.Read)+len(s.declared.Filesystem.Write) > 0 {
		all = append(all, "In the place of the host directories that the policy shows there were empty ones.")
	}
	slices.Sort(s.warned)
	return append(all, slices.Compact(s.warned)...)
}
