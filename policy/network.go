package policy

import (
	"fmt"
	"net/netip"
	"slices"
	"strconv"

	"go.yaml.in/yaml/v4"
)

// Network says what a skill may reach. The order of decision is: deny, then
// cidrs of egress, then the floor of private and special ranges, then domains
// of egress; what nothing allows is refused.
type Network struct {
	Egress, Deny []Rule
	Path         string    // "auto", "veth" or "capture"
	Sinkhole     bool      // nothing gets out: names and connections end in skillboxd, which records them
	Ingress      []Ingress // at which the caller may reach the skill; whoever starts it asks for that too
	Limits       NetLimits
}

// NetLimits bound one run.
type NetLimits struct{ Bytes, Connections, Rate int64 }

// Rule names destinations: domains or cidrs, never both.
type Rule struct {
	Domains        []string // normal names, "*.name" or "*"
	CIDRs          []netip.Prefix
	Except         []netip.Prefix // each within one of CIDRs
	Ports          []Port         // empty only in a deny rule: every port of tcp and udp
	UnsafeWildcard bool
	At             Position // where the rule is written; not part of its meaning
}

// Port is a range of ports of one protocol.
type Port struct {
	From, To uint16
	Proto    string // "tcp" or "udp"
}

// String returns "443", "8000-8100" or "53/udp".
func (p Port) String() string {
	s := strconv.Itoa(int(p.From))
	if p.To != p.From {
		s += "-" + strconv.Itoa(int(p.To))
	}
	if p.Proto == "udp" {
		s += "/udp"
	}
	return s
}

// String returns the rule as one YAML flow mapping.
func (r Rule) String() string { return flow(egressKeys, &r) }

var portForm = lazily(`^([0-9]{1,5})(?:-([0-9]{1,5}))?(?:/(tcp|udp))?$`)

func parsePort(s string) (Port, error) {
	m := portForm.FindStringSubmatch(s)
	if m == nil {
		return Port{}, bad(`write 443, "8000-8100" or "53/udp"`, "%s is not a port", show(s))
	}
	if m[2] == "" {
		m[2] = m[1]
	}
	for _, digits := range m[1:3] {
		n, err := strconv.ParseUint(digits, 10, 16)
		switch {
		case err != nil:
			return Port{}, bad("ports are 1 to 65535", "%s is not a port", show(s))
		case n == 0:
			return Port{}, bad("the first port is 1", "port 0 does not exist")
		case digits[0] == '0':
			return Port{}, bad("no leading zeros", "%s is not a port", show(s))
		}
	}
	from, _ := strconv.ParseUint(m[1], 10, 16)
	to, _ := strconv.ParseUint(m[2], 10, 16)
	if from > to {
		return Port{}, bad("the lower port comes first", "%s is not a range of ports", show(s))
	}
	return Port{uint16(from), uint16(to), max(m[3], "tcp")}, nil
}

func parseCIDR(s string) (netip.Prefix, error) {
	p, err := netip.ParsePrefix(s)
	if err != nil {
		if a, err := netip.ParseAddr(s); err == nil && a.Zone() == "" {
			return p, bad("write "+netip.PrefixFrom(a, a.BitLen()).String(), "%s has no prefix length", s)
		}
		return p, bad("write 10.20.0.0/16 or 2001:db8::/32", "%s is not an address range", show(s))
	}
	if p.Addr().Is4In6() {
		return p, bad("write the IPv4 range itself", "%s is an IPv4-mapped range", s)
	}
	if p != p.Masked() {
		return p, bad("write "+p.Masked().String(), "%s has bits set beyond its prefix", s)
	}
	return p, nil
}

// egress completes and checks one rule of network.egress.
func (r *reader) egress(at string, n *yaml.Node, rule *Rule) {
	if !r.rule(at, n, rule) {
		return
	}
	if len(rule.Ports) == 0 {
		if len(rule.CIDRs) > 0 {
			r.fail(n, at, bad("add ports: [443], for example", "cidrs need ports"))
			return
		}
		rule.Ports = []Port{{443, 443, "tcp"}}
	}
	if wide := wildcard(*rule); wide != "" && !rule.UnsafeWildcard {
		r.fail(n, at, bad("if it is meant, add unsafe_wildcard: true to the rule", "%s", wide))
	}
}

// deny checks one rule of network.deny, where a wildcard is never unsafe.
func (r *reader) deny(at string, n *yaml.Node, rule *Rule) { r.rule(at, n, rule) }

// sinkhole refuses a way out beside the word that there is none.
func (r *reader) sinkhole(p *Policy) {
	const path = "network.path"
	if p.Network.Sinkhole && p.Network.Path == "veth" {
		r.failAt(r.positions[path], path, bad("leave it out: a sinkhole has no path", "veth is a way out, and network.sinkhole lets nothing out"))
	}
}

func (r *reader) rule(at string, n *yaml.Node, rule *Rule) bool {
	rule.At = Position{r.file, n.Line, n.Column}
	before := len(r.errs)
	switch {
	case len(rule.Domains) > 0 && len(rule.CIDRs) > 0:
		r.fail(n, at, bad("make two rules of it", "a rule has domains or cidrs, not both"))
	case len(rule.Domains) == 0 && len(rule.CIDRs) == 0:
		r.fail(n, at, bad("", "a rule needs domains or cidrs"))
	case len(rule.Except) > 0 && len(rule.CIDRs) == 0:
		r.fail(n, at, bad("use network.deny for names", "except belongs to cidrs"))
	}
	for i, e := range rule.Except {
		if len(rule.CIDRs) > 0 && !slices.ContainsFunc(rule.CIDRs, func(p netip.Prefix) bool { return within(e, p) }) {
			path := fmt.Sprintf("%s.except[%d]", at, i)
			r.failAt(r.positions[path], path, bad("except subtracts from its own rule only", "%s lies in none of the rule's cidrs", e))
		}
	}
	return len(r.errs) == before
}

// wildcard says why a rule needs unsafe_wildcard, or nothing.
func wildcard(r Rule) string {
	for _, d := range r.Domains {
		if public(d) {
			return fmt.Sprintf("%q reaches names of unrelated owners", d)
		}
	}
	for _, p := range r.CIDRs {
		if p.Addr().Is4() && p.Bits() < 8 || p.Addr().Is6() && p.Bits() < 16 {
			return p.String() + " is a large part of all addresses"
		}
	}
	for _, proto := range []string{"tcp", "udp"} {
		if allPorts(r.Ports, proto) {
			return "the ports are all ports of " + proto
		}
	}
	return ""
}

// ports returns the ports a rule names, all of them if it names none.
func (r Rule) ports() []Port {
	if len(r.Ports) > 0 {
		return r.Ports
	}
	return []Port{{1, 65535, "tcp"}, {1, 65535, "udp"}}
}

func cloneRules(rules []Rule) []Rule {
	out := slices.Clone(rules)
	for i, r := range out {
		out[i].Domains, out[i].CIDRs = slices.Clone(r.Domains), slices.Clone(r.CIDRs)
		out[i].Except, out[i].Ports = slices.Clone(r.Except), slices.Clone(r.Ports)
	}
	return out
}

func within(inner, outer netip.Prefix) bool {
	return inner.Bits() >= outer.Bits() && outer.Contains(inner.Addr())
}
