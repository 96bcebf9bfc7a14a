package policy

import (
	"cmp"
	"fmt"
	"net/netip"
	"slices"

	"skillbox/netpolicy/floor"
)

// Contains tells whether every destination that rule names, by name or by
// address, on every one of its ports, is named by the ceiling's rules too. A
// name is contained only in names and an address only in cidrs, what rule opens
// of the floor only in what the ceiling opens of it: 10.0.0.0/8 is not contained
// in 0.0.0.0/0. A rule without ports names all of them.
func Contains(ceiling []Rule, rule Rule) bool { return bound(ceiling, rule) == "" }

const elsewhere = "no destination outside its own egress"

// bound says how a ceiling ends where rule goes beyond it, or nothing if it
// contains rule.
func bound(ceiling []Rule, rule Rule) string {
	for _, part := range segments(ceiling, rule) {
		var there []Rule
		for _, c := range ceiling {
			if c.reaches(part) {
				there = append(there, c)
			}
		}
		for _, d := range rule.Domains {
			if !slices.ContainsFunc(there, func(c Rule) bool {
				return slices.ContainsFunc(c.Domains, func(p string) bool { return covers(p, d) })
			}) {
				return elsewhere
			}
		}
		var named, opened []span
		for _, c := range there {
			named, opened = append(named, spans(c)...), append(opened, opens(c)...)
		}
		if len(subtract(spans(rule), named)) > 0 {
			return elsewhere
		}
		for _, p := range rule.CIDRs {
			kind, one := floor.Opens(p), Rule{CIDRs: []netip.Prefix{p}, Except: rule.Except}
			if kind != "" && len(subtract(opens(one), opened)) > 0 {
				return fmt.Sprintf("of the floor only what it names, and %s is %s", p, kind)
			}
		}
	}
	return ""
}

// intersect returns the rule that names what a and b both name; false if that
// is nothing. It stands where a stands.
func intersect(a, b Rule) (Rule, bool) {
	out := Rule{UnsafeWildcard: a.UnsafeWildcard && b.UnsafeWildcard, At: a.At}
	for _, p := range a.ports() {
		for _, q := range b.ports() {
			from, to := max(p.From, q.From), min(p.To, q.To)
			if both := (Port{from, to, p.Proto}); p.Proto == q.Proto && from <= to && !slices.Contains(out.Ports, both) {
				out.Ports = append(out.Ports, both)
			}
		}
	}
	for _, d := range slices.Concat(a.Domains, b.Domains) {
		meets := func(p string) bool { return covers(p, d) }
		if slices.ContainsFunc(a.Domains, meets) && slices.ContainsFunc(b.Domains, meets) && !slices.Contains(out.Domains, d) {
			out.Domains = append(out.Domains, d)
		}
	}
	except := slices.Concat(a.Except, b.Except)
	for _, c := range slices.Concat(a.CIDRs, b.CIDRs) {
		in := func(p netip.Prefix) bool { return within(c, p) }
		// If the floor has a range between the two, only c opens what c names.
		meets := func(p netip.Prefix) bool { return in(p) && !slices.ContainsFunc(floor.Held(p), in) }
		if slices.ContainsFunc(a.CIDRs, meets) && slices.ContainsFunc(b.CIDRs, meets) &&
			!slices.ContainsFunc(except, in) && !slices.Contains(out.CIDRs, c) {
			out.CIDRs = append(out.CIDRs, c)
		}
	}
	for _, e := range except {
		if slices.ContainsFunc(out.CIDRs, func(p netip.Prefix) bool { return within(e, p) }) && !slices.Contains(out.Except, e) {
			out.Except = append(out.Except, e)
		}
	}
	return out, len(out.Ports) > 0 && len(out.Domains)+len(out.CIDRs) > 0
}

// segments cuts the ports of rule wherever a port range of ceiling begins or
// ends, so that each ceiling rule reaches all of a segment or none of it.
func segments(ceiling []Rule, rule Rule) []Port {
	var out []Port
	for _, p := range rule.ports() {
		starts := []int{int(p.From), int(p.To) + 1}
		for _, c := range ceiling {
			for _, q := range c.ports() {
				for _, cut := range []int{int(q.From), int(q.To) + 1} {
					if q.Proto == p.Proto && cut > int(p.From) && cut <= int(p.To) {
						starts = append(starts, cut)
					}
				}
			}
		}
		slices.Sort(starts)
		starts = slices.Compact(starts)
		for i := range len(starts) - 1 {
			out = append(out, Port{uint16(starts[i]), uint16(starts[i+1] - 1), p.Proto})
		}
	}
	return out
}

// reaches tells whether one port range of the rule holds all of part.
func (r Rule) reaches(part Port) bool {
	return slices.ContainsFunc(r.ports(), func(p Port) bool {
		return p.Proto == part.Proto && p.From <= part.From && part.To <= p.To
	})
}

// allPorts tells whether the ranges of ports together are every port of proto.
func allPorts(ports []Port, proto string) bool {
	sorted := slices.SortedFunc(slices.Values(ports), func(a, b Port) int { return cmp.Compare(a.From, b.From) })
	next := 1
	for _, p := range sorted {
		if p.Proto == proto && int(p.From) <= next {
			next = max(next, int(p.To)+1)
		}
	}
	return next > 65535
}

// span is every address from one to another of the same family, both included.
type span struct{ from, to netip.Addr }

// spans returns the addresses of a rule, its exceptions taken out.
func spans(r Rule) []span {
	return subtract(ranges(r.CIDRs), ranges(r.Except))
}

// opens returns what of the floor a rule opens.
func opens(r Rule) (out []span) {
	for _, p := range r.CIDRs {
		if floor.Opens(p) != "" {
			out = append(out, subtract(ranges([]netip.Prefix{p}), ranges(floor.Held(p)))...)
		}
	}
	return subtract(out, ranges(r.Except))
}

func ranges(prefixes []netip.Prefix) []span {
	out := make([]span, len(prefixes))
	for i, p := range prefixes {
		out[i] = span{p.Addr(), last(p)}
	}
	return out
}

func last(p netip.Prefix) netip.Addr {
	b := p.Addr().AsSlice()
	for i := p.Bits(); i < len(b)*8; i++ {
		b[i/8] |= 1 << (7 - i%8)
	}
	a, _ := netip.AddrFromSlice(b)
	return a
}

// subtract returns what of a is not in b.
func subtract(a, b []span) []span {
	left := slices.Clone(a)
	for _, cut := range b {
		var next []span
		for _, s := range left {
			if s.from.BitLen() != cut.from.BitLen() || s.to.Less(cut.from) || cut.to.Less(s.from) {
				next = append(next, s)
				continue
			}
			if s.from.Less(cut.from) {
				next = append(next, span{s.from, cut.from.Prev()})
			}
			if cut.to.Less(s.to) {
				next = append(next, span{cut.to.Next(), s.to})
			}
		}
		left = next
	}
	return left
}
