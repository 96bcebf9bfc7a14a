package netpolicy

import (
	"fmt"
	"net/netip"
	"slices"
	"strings"

	"skillbox/netpolicy/floor"
)

// Rule names destinations in normal form: domains or cidrs, never both.
type Rule struct {
	Domains []string // normal names, "*.name" for every name below it, "*" for every name
	CIDRs   []netip.Prefix
	Except  []netip.Prefix // taken out of CIDRs
	Ports   []Ports        // none, which only a deny rule may have, is every port
	Line    string         // where it is written, "policy.yaml:12"

	held [][]netip.Prefix // what the floor keeps of each of CIDRs
}

// Ports is a range of ports of one protocol, "tcp" or "udp".
type Ports struct {
	From, To uint16
	Proto    string
}

// String returns "443", "8000-8100" or "53/udp".
func (p Ports) String() string {
	s := fmt.Sprint(p.From)
	if p.To != p.From {
		s += fmt.Sprintf("-%d", p.To)
	}
	if p.Proto == "udp" {
		s += "/udp"
	}
	return s
}

func (r *Rule) covers(port uint16, proto string) bool {
	return len(r.Ports) == 0 || slices.ContainsFunc(r.Ports, func(p Ports) bool { return p.Proto == proto && p.From <= port && port <= p.To })
}

// holds says that an address is in one of the rule's ranges, and neither an exception nor the floor's.
func (r *Rule) holds(a netip.Addr) bool {
	in := func(p netip.Prefix) bool { return p.Contains(a) }
	for i, p := range r.CIDRs {
		if in(p) && (r.held == nil || !slices.ContainsFunc(r.held[i], in)) {
			return !slices.ContainsFunc(r.Except, in)
		}
	}
	return false
}

// Verdict is a decision and its reason.
type Verdict struct {
	Allowed bool
	Rule    string // the line that decided, or "" where the floor or the absence of a rule did
	Why     string // "network.egress", "network.deny", "the floor: loopback", "no rule of network.egress"
}

const noRule = "no rule of network.egress"

// Ruleset is a compiled policy. It is immutable, and its decisions are pure: what the kernel enforces is made from it.
type Ruleset struct {
	egress, deny index
	own          map[netip.Addr]bool
}

// index finds the rules for a name or an address without looking at all of them.
type index struct {
	rules  []Rule
	names  map[string][]int // exact names
	below  map[string][]int // "*.name", by name; "" is "*"
	ranges map[netip.Prefix][]int
	bits   [2][]int // prefix lengths in use, longest first: of IPv4, of IPv6
}

// Compile makes a Ruleset. The rules are taken to be in normal form. A range of egress opens what the floor holds only if it lies within:
// 0.0.0.0/0 does not open 10.0.0.0/8, and 169.254.0.0/16 not the metadata service.
func Compile(egress, deny []Rule) *Ruleset {
	egress = slices.Clone(egress)
	for i := range egress {
		r := &egress[i]
		r.held = make([][]netip.Prefix, len(r.CIDRs))
		for j, p := range r.CIDRs {
			r.held[j] = floor.Held(p)
		}
	}
	return &Ruleset{egress: newIndex(egress), deny: newIndex(deny)}
}

// OnHost is the Ruleset on a host with these addresses. They belong to the floor: only a range of that one address opens it.
func (s *Ruleset) OnHost(own []netip.Addr) *Ruleset {
	on := &Ruleset{egress: s.egress, deny: s.deny, own: map[netip.Addr]bool{}}
	on.egress.rules = slices.Clone(s.egress.rules)
	for _, a := range own {
		a = a.Unmap().WithZone("")
		on.own[a] = true
		for i := range on.egress.rules {
			r := &on.egress.rules[i]
			for j, p := range r.CIDRs {
				if p.Contains(a) && !p.IsSingleIP() {
					r.held = slices.Clone(r.held)
					r.held[j] = append(slices.Clip(r.held[j]), netip.PrefixFrom(a, a.BitLen()))
				}
			}
		}
	}
	return on
}

func newIndex(rules []Rule) index {
	x := index{rules: rules, names: map[string][]int{}, below: map[string][]int{}, ranges: map[netip.Prefix][]int{}}
	for i, r := range rules {
		for _, d := range r.Domains {
			if rest, ok := strings.CutPrefix(d, "*"); ok {
				rest = strings.TrimPrefix(rest, ".")
				x.below[rest] = append(x.below[rest], i)
			} else {
				x.names[d] = append(x.names[d], i)
			}
		}
		for _, p := range r.CIDRs {
			x.ranges[p] = append(x.ranges[p], i)
			family := 0
			if p.Addr().Is6() {
				family = 1
			}
			if !slices.Contains(x.bits[family], p.Bits()) {
				x.bits[family] = append(x.bits[family], p.Bits())
			}
		}
	}
	for f := range x.bits {
		slices.Sort(x.bits[f])
		slices.Reverse(x.bits[f])
	}
	return x
}

// named are the rules whose domains match a normal name, the most specific first.
func (x *index) named(name string) func(func(*Rule) bool) {
	return func(yield func(*Rule) bool) {
		for _, i := range x.names[name] {
			if !yield(&x.rules[i]) {
				return
			}
		}
		for rest := name; rest != ""; {
			_, rest, _ = strings.Cut(rest, ".")
			for _, i := range x.below[rest] {
				if !yield(&x.rules[i]) {
					return
				}
			}
		}
	}
}

// within are the rules with a range that an address is in.
func (x *index) within(a netip.Addr) func(func(*Rule) bool) {
	return func(yield func(*Rule) bool) {
		family := 0
		if a.Is6() {
			family = 1
		}
		for _, bits := range x.bits[family] {
			p, err := a.Prefix(bits)
			if err != nil {
				continue // it has a zone, which no rule has
			}
			for _, i := range x.ranges[p] {
				if r := &x.rules[i]; r.holds(a) && !yield(r) {
					return
				}
			}
		}
	}
}

// Name decides on a normal name and a port. An address is not part of it, see Answer.
func (s *Ruleset) Name(name string, port uint16, proto string) Verdict {
	for r := range s.deny.named(name) {
		if r.covers(port, proto) {
			return Verdict{Rule: r.Line, Why: "network.deny"}
		}
	}
	for r := range s.egress.named(name) {
		if r.covers(port, proto) {
			return Verdict{Allowed: true, Rule: r.Line, Why: "network.egress"}
		}
	}
	return Verdict{Why: noRule}
}

// Lookup decides whether a name may be asked for at all: whether any port of it may be reached.
func (s *Ruleset) Lookup(name string) Verdict {
	for r := range s.deny.named(name) {
		if len(r.Ports) == 0 {
			return Verdict{Rule: r.Line, Why: "network.deny"}
		}
	}
	for r := range s.egress.named(name) {
		return Verdict{Allowed: true, Rule: r.Line, Why: "network.egress"}
	}
	return Verdict{Why: noRule}
}

// PortsOf are the ports of a name's egress rules: what an address that is pinned for it is opened on. Deny rules are not taken out.
func (s *Ruleset) PortsOf(name string) (ports []Ports) {
	for r := range s.egress.named(name) {
		for _, p := range r.Ports {
			if !slices.Contains(ports, p) {
				ports = append(ports, p)
			}
		}
	}
	return ports
}

// Address decides on an address that no name led to.
func (s *Ruleset) Address(a netip.Addr, port uint16, proto string) Verdict {
	if v, decided := s.ranges(a, port, proto); decided {
		return v
	}
	return Verdict{Why: noRule}
}

// Answer decides whether an address may be what a name stands for, on a port of the name's: rebinding to what the floor or a deny
// rule holds back fails here.
func (s *Ruleset) Answer(name string, a netip.Addr, port uint16, proto string) Verdict {
	if v, decided := s.ranges(a, port, proto); decided {
		return v
	}
	return s.Name(name, port, proto)
}

// ranges decides by addresses alone: deny, then cidrs of egress, then the floor.
func (s *Ruleset) ranges(a netip.Addr, port uint16, proto string) (v Verdict, decided bool) {
	a = a.Unmap().WithZone("")
	for _, form := range floor.Forms(a) {
		for r := range s.deny.within(form) {
			if r.covers(port, proto) {
				return Verdict{Rule: r.Line, Why: "network.deny"}, true
			}
		}
	}
	for r := range s.egress.within(a) {
		if r.covers(port, proto) {
			return Verdict{Allowed: true, Rule: r.Line, Why: "network.egress"}, true
		}
	}
	if what := floor.Of(a); what != "" {
		return Verdict{Why: "the floor: " + what}, true
	}
	if s.own[a] {
		return Verdict{Why: "the floor: this host's own address"}, true
	}
	return Verdict{}, false
}

// String is the table of who may reach what, a line for each destination, by which line of which file.
func (s *Ruleset) String() string {
	var b strings.Builder
	for _, list := range []struct {
		word string
		x    *index
	}{{"deny ", &s.deny}, {"allow", &s.egress}} {
		for _, r := range list.x.rules {
			ports := make([]string, len(r.Ports))
			for i, p := range r.Ports {
				ports[i] = p.String()
			}
			if len(ports) == 0 {
				ports = []string{"every port"}
			}
			for _, d := range r.Domains {
				fmt.Fprintf(&b, "%s %-40s %-20s %s\n", list.word, d, strings.Join(ports, " "), r.Line)
			}
			for i, p := range r.CIDRs {
				fmt.Fprintf(&b, "%s %-40s %-20s %s\n", list.word, p, strings.Join(ports, " "), r.Line)
				if r.held != nil {
					for _, h := range r.held[i] {
						fmt.Fprintf(&b, "      but not %s\n", h)
					}
				}
				for _, e := range r.Except {
					if p.Overlaps(e) {
						fmt.Fprintf(&b, "      but not %s\n", e)
					}
				}
			}
		}
	}
	b.WriteString("deny  everything else\n")
	return b.String()
}
