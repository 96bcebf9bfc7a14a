package netpolicy

import (
	"net/netip"

	"github.com/google/nftables"
	"github.com/google/nftables/expr"
	"golang.org/x/sys/unix"

	"skillbox/netpolicy/floor"
)

// fill adds to the batch what all boxes share.
func (t *hostTable) fill() error {
	closed := floorRanges()
	for _, s := range []struct {
		set      *nftables.Set
		elements []nftables.SetElement
	}{{hostLinks, nil}, {hostBoxes, nil}, {hostFloor4, intervals(closed[0])}, {hostFloor6, intervals(closed[1])}} {
		if err := t.conn.AddSet(s.set, s.elements); err != nil {
			return err
		}
	}
	t.conn.AddChain(hostFloor)
	t.rule(hostFloor, toSet(ipv4, hostFloor4), drop())
	t.rule(hostFloor, toSet(ipv6, hostFloor6), drop())

	arrive := t.base("arrive", nftables.ChainTypeFilter, nftables.ChainHookPrerouting, nftables.ChainPriorityMangle)
	t.rule(arrive, []expr.Any{
		&expr.Meta{Key: expr.MetaKeyIIFNAME, Register: reg1},
		&expr.Lookup{SourceRegister: reg1, IsDestRegSet: true, SetName: hostBoxes.Name, SetID: hostBoxes.ID},
	})

	// Before others' filters: what is dropped here need not be looked at there, and what is accepted here is still theirs to refuse.
	early := nftables.ChainPriorityRef(*nftables.ChainPriorityFilter - 10)
	deliver := t.base("deliver", nftables.ChainTypeFilter, nftables.ChainHookInput, early)
	t.rule(deliver, fromLink(), drop())

	out := t.conn.AddChain(&nftables.Chain{Table: hostOf, Name: "out"})
	t.rule(out, toLink(), drop())
	t.rule(out, state(expr.CtStateBitINVALID|expr.CtStateBitUNTRACKED), drop())
	in := t.conn.AddChain(&nftables.Chain{Table: hostOf, Name: "in"})
	t.rule(in, established(), accept())
	t.rule(in, drop())
	pass := t.base("pass", nftables.ChainTypeFilter, nftables.ChainHookForward, early)
	t.rule(pass, fromLink(), continueAt(out))
	t.rule(pass, toLink(), continueAt(in))

	t.answer(early)

	leave := t.base("leave", nftables.ChainTypeNAT, nftables.ChainHookPostrouting, nftables.ChainPriorityNATSource)
	t.rule(leave, fromLink(), []expr.Any{&expr.Masq{}})
	return nil
}

// answer adds the chains for what the host itself sends to a box: nothing but that a packet of the box's could not be passed on. For a
// connection's first packet conntrack does not know that the error belongs to it.
func (t *hostTable) answer(priority *nftables.ChainPriority) {
	answer := t.conn.AddChain(&nftables.Chain{Table: hostOf, Name: "answer"})
	t.rule(answer, established(), accept())
	for _, kind := range []struct{ proto, number byte }{
		{unix.IPPROTO_ICMP, 3}, {unix.IPPROTO_ICMP, 11}, {unix.IPPROTO_ICMP, 12}, // unreachable, time exceeded, parameter problem (RFC 792)
		{unix.IPPROTO_ICMPV6, 1}, {unix.IPPROTO_ICMPV6, 2}, {unix.IPPROTO_ICMPV6, 3}, {unix.IPPROTO_ICMPV6, 4}, // and too big (RFC 4443)
	} {
		t.rule(answer, transport(kind.proto), []expr.Any{
			&expr.Payload{DestRegister: reg1, Base: expr.PayloadBaseTransportHeader, Len: 1}, equals(kind.number),
		}, accept())
	}
	t.rule(answer, drop())
	send := t.base("send", nftables.ChainTypeFilter, nftables.ChainHookOutput, priority)
	t.rule(send, toLink(), continueAt(answer))
}

func continueAt(chain *nftables.Chain) []expr.Any {
	return []expr.Any{&expr.Verdict{Kind: expr.VerdictGoto, Chain: chain.Name}}
}

func (t *hostTable) base(name string, kind nftables.ChainType, hook *nftables.ChainHook, priority *nftables.ChainPriority) *nftables.Chain {
	return t.conn.AddChain(&nftables.Chain{Table: hostOf, Name: name, Type: kind, Hooknum: hook, Priority: priority})
}

// floorRanges are the addresses, of IPv4 and of IPv6, that no box reaches unless a cidrs rule opens them: what is never another
// machine's, in any of its forms. Private ranges are not among them, for the box's own namespace knows better whether they are meant.
func floorRanges() (both [2][]addrRange) {
	var all []addrRange
	for _, kind := range floor.Kinds() {
		switch kind.What {
		case "metadata", "loopback", "this network", "link-local", "multicast":
		default:
			continue
		}
		for _, p := range kind.Ranges {
			all = append(all, rangeOf(p))
			if !p.Addr().Is4() {
				continue
			}
			for _, e := range floor.Embeddings() {
				if e.Inverted {
					continue // what stands between the range's first bits and the address makes it no range
				}
				bytes, first := e.In.Addr().As16(), p.Addr().As4()
				copy(bytes[e.At:], first[:])
				all = append(all, rangeOf(netip.PrefixFrom(netip.AddrFrom16(bytes), 8*e.At+p.Bits())))
			}
		}
	}
	all = append(all, rangeOf(netip.MustParsePrefix("::ffff:0:0/96"))) // IPv4-mapped, which no packet's address is
	for _, r := range union(all) {
		of := 0
		if r.from.Is6() {
			of = 1
		}
		both[of] = append(both[of], r)
	}
	return both
}

// intervals are ranges as an interval set takes them: the first address in it, and the first one after.
func intervals(ranges []addrRange) (elements []nftables.SetElement) {
	for _, r := range ranges {
		elements = append(elements, nftables.SetElement{Key: r.from.AsSlice()})
		if next := r.to.Next(); next.IsValid() {
			elements = append(elements, nftables.SetElement{Key: next.AsSlice(), IntervalEnd: true})
		}
	}
	return elements
}

func drop() []expr.Any { return []expr.Any{&expr.Verdict{Kind: expr.VerdictDrop}} }

// fromLink matches what comes from a box: iifname @links.
func fromLink() []expr.Any {
	return []expr.Any{&expr.Meta{Key: expr.MetaKeyIIFNAME, Register: reg1}, &expr.Lookup{SourceRegister: reg1, SetName: hostLinks.Name, SetID: hostLinks.ID}}
}

// toLink matches what goes to a box: oifname @links.
func toLink() []expr.Any {
	return []expr.Any{&expr.Meta{Key: expr.MetaKeyOIFNAME, Register: reg1}, &expr.Lookup{SourceRegister: reg1, SetName: hostLinks.Name, SetID: hostLinks.ID}}
}

// notFrom matches where another source address stands in a header.
func notFrom(header expr.PayloadBase, offset uint32, address []byte) []expr.Any {
	return []expr.Any{
		&expr.Payload{DestRegister: reg1, Base: header, Offset: offset, Len: uint32(len(address))},
		&expr.Cmp{Op: expr.CmpOpNeq, Register: reg1, Data: address},
	}
}

// toSet matches destinations in a set of addresses of one family.
func toSet(of byte, set *nftables.Set) []expr.Any {
	offset, length := addressAt(of)
	return rule(family(of), []expr.Any{
		&expr.Payload{DestRegister: reg1, Base: expr.PayloadBaseNetworkHeader, Offset: offset, Len: length},
		&expr.Lookup{SourceRegister: reg1, SetName: set.Name, SetID: set.ID},
	})
}

// toLocal matches destinations that are the host's own: fib daddr type local.
func toLocal() []expr.Any {
	return []expr.Any{
		&expr.Fib{Register: reg1, FlagDADDR: true, ResultADDRTYPE: true},
		&expr.Cmp{Op: expr.CmpOpEq, Register: reg1, Data: native32(unix.RTN_LOCAL)},
	}
}

// state matches packets in one of the states that conntrack tells apart.
func state(any uint32) []expr.Any {
	return []expr.Any{
		&expr.Ct{Key: expr.CtKeySTATE, Register: reg1},
		&expr.Bitwise{SourceRegister: reg1, DestRegister: reg1, Len: 4, Mask: native32(any), Xor: native32(0)},
		&expr.Cmp{Op: expr.CmpOpNeq, Register: reg1, Data: native32(0)},
	}
}

// ifname is an interface's name as a set's key.
func ifname(name string) []byte {
	key := make([]byte, unix.IFNAMSIZ)
	copy(key, name)
	return key
}
