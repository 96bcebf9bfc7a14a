package netpolicy

import (
	"net/netip"
	"slices"
	"strings"

	"skillbox/netpolicy/floor"
)

// Wildcard is the rule text by which an allowed name is allowed: "*.example.com" or "*"; "" for a name that a rule spells out, and
// for one that no rule allows. Of several it is the most specific.
func (s *Ruleset) Wildcard(name string) string {
	if len(s.egress.names[name]) > 0 {
		return ""
	}
	for rest := name; rest != ""; {
		_, rest, _ = strings.Cut(rest, ".")
		if len(s.egress.below[rest]) > 0 {
			return strings.TrimSuffix("*."+rest, ".")
		}
	}
	return ""
}

// Open are the ports of PortsOf on which Answer allows an address for a name; without any, the verdict is the first refusal.
func (s *Ruleset) Open(name string, a netip.Addr) (open []Ports, refusal Verdict) {
	edges := s.edges(name, a)
	for _, p := range s.PortsOf(name) {
		for from := int(p.From); from <= int(p.To); {
			next := int(p.To) + 1
			if i, _ := slices.BinarySearch(edges, from+1); i < len(edges) {
				next = min(next, edges[i])
			}
			v := s.Answer(name, a, uint16(from), p.Proto)
			switch n := len(open); {
			case !v.Allowed && refusal == Verdict{}:
				refusal = v
			case v.Allowed && n > 0 && open[n-1].Proto == p.Proto && int(open[n-1].To)+1 == from:
				open[n-1].To = uint16(next - 1)
			case v.Allowed:
				open = append(open, Ports{uint16(from), uint16(next - 1), p.Proto})
			}
			from = next
		}
	}
	if len(open) > 0 {
		return open, Verdict{}
	}
	if refusal == (Verdict{}) {
		refusal = Verdict{Why: noRule}
	}
	return nil, refusal
}

// edges are the ports at which a decision of Answer may change, in order: those of every rule that it looks at.
func (s *Ruleset) edges(name string, a netip.Addr) (edges []int) {
	add := func(r *Rule) bool {
		for _, p := range r.Ports {
			edges = append(edges, int(p.From), int(p.To)+1)
		}
		return true
	}
	s.deny.named(name)(add)
	s.egress.named(name)(add)
	a = a.Unmap().WithZone("")
	s.egress.within(a)(add)
	for _, form := range floor.Forms(a) {
		s.deny.within(form)(add)
	}
	slices.Sort(edges)
	return slices.Compact(edges)
}
