package netpolicy

import (
	"net/netip"
	"slices"
)

// Span is a range of addresses on a range of ports: an element of a set in the kernel.
type Span struct {
	From, To         netip.Addr
	FromPort, ToPort uint16
}

// spans turns the address rules of a list into spans of one protocol that do not overlap, for the kernel refuses those that do.
func spans(rules []Rule, proto string) []Span {
	// Between two neighbouring edges the same rules cover every port.
	edges := []int{}
	for _, r := range rules {
		for _, p := range portsOf(r, proto) {
			edges = append(edges, int(p.From), int(p.To)+1)
		}
	}
	slices.Sort(edges)
	edges = slices.Compact(edges)
	var all []Span
	var last []addrRange
	for i := 0; i+1 < len(edges); i++ {
		from, to := uint16(edges[i]), uint16(edges[i+1]-1)
		var ranges []addrRange
		for _, r := range rules {
			if len(r.CIDRs) > 0 && slices.ContainsFunc(portsOf(r, proto), func(p Ports) bool { return p.From <= from && to <= p.To }) {
				ranges = append(ranges, r.ranges()...)
			}
		}
		ranges = union(ranges)
		if n := len(ranges); n > 0 && slices.Equal(ranges, last) && all[len(all)-1].ToPort+1 == from {
			for j := len(all) - n; j < len(all); j++ {
				all[j].ToPort = to
			}
			continue
		}
		for _, a := range ranges {
			all = append(all, Span{a.from, a.to, from, to})
		}
		last = ranges
	}
	return all
}

func portsOf(r Rule, proto string) []Ports {
	if len(r.Ports) == 0 {
		return []Ports{{1, 65535, proto}}
	}
	return slices.DeleteFunc(slices.Clone(r.Ports), func(p Ports) bool { return p.Proto != proto })
}

type addrRange struct{ from, to netip.Addr }

// ranges are the rule's addresses without its exceptions.
func (r *Rule) ranges() []addrRange {
	var all []addrRange
	for i, p := range r.CIDRs {
		part := []addrRange{rangeOf(p)}
		if r.held != nil {
			for _, h := range r.held[i] {
				part = subtract(part, rangeOf(h))
			}
		}
		all = append(all, part...)
	}
	for _, e := range r.Except {
		all = subtract(all, rangeOf(e))
	}
	return all
}

func rangeOf(p netip.Prefix) addrRange {
	p = p.Masked()
	bytes := p.Addr().AsSlice()
	for i := p.Bits(); i < len(bytes)*8; i++ {
		bytes[i/8] |= 0x80 >> (i % 8)
	}
	last, _ := netip.AddrFromSlice(bytes)
	return addrRange{p.Addr(), last}
}

func subtract(all []addrRange, hole addrRange) (left []addrRange) {
	for _, a := range all {
		if a.from.Is4() != hole.from.Is4() || hole.to.Less(a.from) || a.to.Less(hole.from) {
			left = append(left, a)
			continue
		}
		if a.from.Less(hole.from) {
			left = append(left, addrRange{a.from, hole.from.Prev()})
		}
		if hole.to.Less(a.to) {
			left = append(left, addrRange{hole.to.Next(), a.to})
		}
	}
	return left
}

// union merges ranges that overlap or touch; IPv4 comes before IPv6.
func union(all []addrRange) (merged []addrRange) {
	slices.SortFunc(all, func(a, b addrRange) int { return a.from.Compare(b.from) })
	for _, a := range all {
		if n := len(merged); n > 0 && merged[n-1].to.Is4() == a.from.Is4() && (!merged[n-1].to.Less(a.from) || merged[n-1].to.Next() == a.from) {
			if merged[n-1].to.Less(a.to) {
				merged[n-1].to = a.to
			}
			continue
		}
		merged = append(merged, a)
	}
	return merged
}
