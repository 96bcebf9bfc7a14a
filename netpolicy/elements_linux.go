package netpolicy

import (
	"encoding/binary"
	"errors"
	"fmt"
	"net/netip"
	"slices"

	"github.com/google/nftables"
	"github.com/google/nftables/expr"
	"golang.org/x/sys/unix"
)

// perMessage is how many elements go into one message, whose list is an attribute of at most 64 KiB; perBatch how many into one write,
// which must fit into the send buffer that an ordinary user gets (net.core.wmem_max).
const perMessage, perBatch = 400, 1200

var protoNumbers = map[string]byte{"tcp": unix.IPPROTO_TCP, "udp": unix.IPPROTO_UDP}

// many is how many ranges of addresses with the same ports get a set of their own. A set of protocol, address and port together takes
// 0.1 ms for each range (pipapo, Linux 6.18), one of addresses a tenth of it; but each costs every new connection a look.
const many = 64

// span sets are one list of rules in the kernel.
type spanSets struct {
	mixed [2]*nftables.Set // protocol . address . port, of IPv4 and of IPv6
	large []largeSet
}

// largeSet holds addresses that have their ports in common.
type largeSet struct {
	set   *nftables.Set
	ports Ports
}

// newSpanSets makes sets with these names and loads them.
func (t *table) newSpanSets(name string, rules []Rule) (s spanSets, err error) {
	for i, key := range []nftables.SetDatatype{key4, key6} {
		s.mixed[i] = &nftables.Set{Table: t.of, Name: name + []string{"4", "6"}[i], KeyType: key, Interval: true, Concatenation: true}
		if err := t.addSet(s.mixed[i]); err != nil {
			return s, err
		}
	}
	for _, proto := range []string{"tcp", "udp"} {
		groups := map[Span][]Span{} // by family and ports
		order := []Span{}
		for _, p := range spans(rules, proto) {
			g := Span{From: netip.IPv4Unspecified(), FromPort: p.FromPort, ToPort: p.ToPort}
			if p.From.Is6() {
				g.From = netip.IPv6Unspecified()
			}
			if groups[g] == nil {
				order = append(order, g)
			}
			groups[g] = append(groups[g], p)
		}
		for _, g := range order {
			if proto == "udp" && !t.linked[familyOf(g.From)] {
				continue // it is refused altogether
			}
			if err := t.loadGroup(&s, name, proto, g, groups[g]); err != nil {
				return s, err
			}
		}
	}
	return s, nil
}

func (t *table) loadGroup(s *spanSets, name, proto string, g Span, all []Span) error {
	of, kind := familyOf(g.From), nftables.TypeIPAddr
	if g.From.Is6() {
		kind = nftables.TypeIP6Addr
	}
	elements := make([]nftables.SetElement, 0, 2*len(all))
	if len(all) <= many {
		for _, p := range all {
			elements = append(elements, element(proto, p))
		}
		return t.load(s.mixed[of], elements)
	}
	set := &nftables.Set{Table: t.of, Name: fmt.Sprintf("%s_%d", name, len(s.large)), KeyType: kind, Interval: true}
	if err := t.addSet(set); err != nil {
		return err
	}
	s.large = append(s.large, largeSet{set, Ports{g.FromPort, g.ToPort, proto}})
	for _, p := range all {
		elements = append(elements, nftables.SetElement{Key: p.From.AsSlice()})
		if end := p.To.Next(); end.IsValid() {
			elements = append(elements, nftables.SetElement{Key: end.AsSlice(), IntervalEnd: true})
		}
	}
	return t.load(set, elements)
}

// matches are the beginnings of rules for what is in the sets, of packets of one family. With at, see destination.
func (s *spanSets) matches(of byte, at uint32, inverted bool) (all [][]expr.Any) {
	inner := of
	if at != 0 {
		inner = ipv4
	}
	i := 0
	if inner == ipv6 {
		i = 1
	}
	all = append(all, destination(of, s.mixed[i], at, inverted))
	for _, l := range s.large {
		if (l.set.KeyType == nftables.TypeIP6Addr) == (inner == ipv6) {
			all = append(all, addressIn(of, l, at, inverted))
		}
	}
	return all
}

// load puts elements into a set, in as many steps as it takes. Nothing of it is in force before the rules are.
func (t *table) load(set *nftables.Set, list []nftables.SetElement) error {
	for len(list) > 0 {
		n := min(len(list), perMessage)
		if err := t.conn.SetAddElements(set, list[:n]); err != nil {
			return err
		}
		list = list[n:]
		if t.waiting += n; t.waiting >= perBatch {
			if err := t.conn.Flush(); err != nil {
				return err
			}
			t.waiting = 0
		}
	}
	return nil
}

// familyOf is an address's place in inetFamilies.
func familyOf(a netip.Addr) int {
	if a.Is6() {
		return 1
	}
	return 0
}

func element(proto string, s Span) nftables.SetElement {
	key := func(address []byte, port uint16) []byte {
		k := append([]byte{protoNumbers[proto], 0, 0, 0}, address...)
		return append(binary.BigEndian.AppendUint16(k, port), 0, 0)
	}
	return nftables.SetElement{Key: key(s.From.AsSlice(), s.FromPort), KeyEnd: key(s.To.AsSlice(), s.ToPort)}
}

// Pin opens an address on ports, in normal form: sorted, none overlapping another. Those that were open before and are not among them
// are closed, in one step.
func (h *Handle) Pin(addr netip.Addr, before, after []Ports) error {
	t := h.table
	t.mu.Lock() // a batch is one writer's
	defer t.mu.Unlock()
	set := t.pins[familyOf(addr)]
	change := func(f func(*nftables.Set, []nftables.SetElement) error, list, except []Ports) error {
		for _, p := range list {
			if p.Proto == "udp" && !t.linked[familyOf(addr)] || slices.Contains(except, p) {
				continue
			}
			if err := f(set, []nftables.SetElement{element(p.Proto, Span{addr, addr, p.From, p.To})}); err != nil {
				return err
			}
		}
		return nil
	}
	err := errors.Join(change(t.conn.SetDeleteElements, before, after), change(t.conn.SetAddElements, after, before), t.conn.Flush())
	if err != nil {
		return fmt.Errorf("netpolicy: open %s: %w", addr, err)
	}
	return nil
}
