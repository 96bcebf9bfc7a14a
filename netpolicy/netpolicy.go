// Package netpolicy makes the network of one box: a namespace of its own, owned by skillboxd's user namespace and not the box's,
// so that not even a capability gained inside could change it.
package netpolicy

import "net/netip"

// Description says what a box may reach. The zero value is nothing but its own loopback.
type Description struct {
	// Rules, if there are any for egress, decide; nil is loopback alone. TCP then ends at the Handle's listeners, and names are asked for
	// at its DNS sockets.
	Rules *Ruleset

	// Sinkhole leads every connection to the Handle's listeners and every lookup to its DNS sockets, whatever the rules say, and lets
	// nothing else come further. It has no link.
	Sinkhole bool

	// Link gives the box interfaces of its own to what rules name by address, and to UDP: the kernel carries that, and TCP to names goes
	// through the listeners all the same. It takes root in the machine's own user namespace, see Linkable. Link6 is for IPv6 too.
	Link, Link6 bool
	ID          string // of the box, names the link
	Limits      Limits // of what goes over the link
	Linker      Linker // nil is MakeLink
}

// Limits of one run. Zero is nothing.
type Limits struct{ Bytes, Connections, Rate int64 }

// NeverReached is refused before all else: what a box tries to see whether the rules are in force. The dummy address of RFC 7600, and
// one of the discard-only range of RFC 6666.
func NeverReached() []netip.Addr {
	return []netip.Addr{netip.MustParseAddr("192.0.0.8"), netip.MustParseAddr("100::8")}
}

// Any says that something may be reached at all.
func (s *Ruleset) Any() bool { return s != nil && len(s.egress.rules) > 0 }
