// Package floor knows the addresses that no name may stand for and no skill may reach unless a rule names them as addresses: private,
// loopback, metadata and the like. It is pure.
package floor

import (
	"net/netip"
	"slices"
)

// Kind is the ranges that are reserved for one thing.
type Kind struct {
	What   string // "private", "loopback"
	Ranges []netip.Prefix
}

// From the IANA special-purpose address registries (RFC 6890), and the metadata services that clouds keep elsewhere.
var kinds = []Kind{
	{"metadata", prefixes("169.254.169.254/32", "169.254.170.2/32", "100.100.100.200/32", "168.63.129.16/32", "fd00:ec2::/32", "fd20:ce::254/128")},
	{"loopback", prefixes("127.0.0.0/8", "::1/128")},
	{"this network", prefixes("0.0.0.0/8", "::/128")},
	{"private", prefixes("10.0.0.0/8", "172.16.0.0/12", "192.168.0.0/16", "fc00::/7", "fec0::/10")},
	{"carrier-grade NAT", prefixes("100.64.0.0/10")},
	{"link-local", prefixes("169.254.0.0/16", "fe80::/10")},
	{"multicast", prefixes("224.0.0.0/4", "ff00::/8")},
	{"reserved", prefixes("192.0.0.0/24", "192.0.2.0/24", "192.88.99.0/24", "198.18.0.0/15", "198.51.100.0/24", "203.0.113.0/24", "240.0.0.0/4",
		"100::/64", "2001:2::/48", "2001:10::/28", "2001:db8::/32", "3fff::/20", "5f00::/16")},
}

func prefixes(list ...string) []netip.Prefix {
	all := make([]netip.Prefix, len(list))
	for i, s := range list {
		all[i] = netip.MustParsePrefix(s)
	}
	return all
}

// Kinds are all that is reserved, but for ranges that it is in by the IPv4 addresses inside, see Embeddings. Kinds may overlap.
func Kinds() []Kind { return slices.Clone(kinds) }

// Embedding is a range of IPv6 whose addresses have an IPv4 address inside.
type Embedding struct {
	In       netip.Prefix
	At       int  // where it begins, in bytes
	Inverted bool // each of its bits
}

var embeddings = []Embedding{
	{netip.MustParsePrefix("64:ff9b::/96"), 12, false},   // NAT64 (RFC 6052)
	{netip.MustParsePrefix("64:ff9b:1::/48"), 12, false}, // its local-use range (RFC 8215), with the usual /96
	{netip.MustParsePrefix("2002::/16"), 2, false},       // 6to4 (RFC 3056)
	{netip.MustParsePrefix("::/96"), 12, false},          // IPv4-compatible (RFC 4291, deprecated)
	{netip.MustParsePrefix("::ffff:0:0:0/96"), 12, false},
	{netip.MustParsePrefix("2001::/32"), 12, true}, // Teredo (RFC 4380): the client's address
}

// Embeddings are all of them but IPv4-mapped, which is no packet's address: an IPv4-mapped address is taken for the IPv4 one.
func Embeddings() []Embedding { return slices.Clone(embeddings) }

// Forms are an address and the IPv4 addresses that a translator could make of it.
func Forms(a netip.Addr) []netip.Addr {
	all := []netip.Addr{a}
	if !a.Is6() {
		return all
	}
	bytes := a.As16()
	for _, e := range embeddings {
		if !e.In.Contains(a) || a.IsLoopback() || a.IsUnspecified() {
			continue
		}
		inner := [4]byte(bytes[e.At : e.At+4])
		if e.Inverted {
			for i := range inner {
				inner[i] = ^inner[i]
			}
		}
		all = append(all, netip.AddrFrom4(inner))
	}
	return all
}

// Of says which kind of reserved address this is, in any of the forms that an IPv4 address takes within an IPv6 one; "" is none.
func Of(a netip.Addr) string {
	for _, form := range Forms(a.Unmap().WithZone("")) {
		for _, kind := range kinds {
			for _, p := range kind.Ranges {
				if p.Contains(form) {
					return kind.What
				}
			}
		}
	}
	return ""
}

// Opens says of which kind a range is that lies within one of the floor's, and so opens it to who is allowed that range; "" is for one
// that opens nothing of the floor, however much of it the range may hold: 0.0.0.0/0 leaves 10.0.0.0/8 closed. Ranges that hold addresses
// of IPv4 are the floor's too, for what they lead to cannot be told by a prefix.
func Opens(p netip.Prefix) string {
	for kind, q := range ranges {
		if q.Bits() <= p.Bits() && q.Contains(p.Addr()) {
			return kind
		}
	}
	return ""
}

// Held are the floor's ranges that lie within a wider one, which it does not open: 169.254.0.0/16 opens what is link-local, and not the
// metadata service. A range does not hold itself.
func Held(p netip.Prefix) (held []netip.Prefix) {
	for _, q := range ranges {
		if p.Bits() < q.Bits() && p.Contains(q.Addr()) {
			held = append(held, q)
		}
	}
	return held
}

// ranges are all of the floor's, each with its kind.
func ranges(yield func(kind string, q netip.Prefix) bool) {
	for _, k := range kinds {
		for _, q := range k.Ranges {
			if !yield(k.What, q) {
				return
			}
		}
	}
	for _, e := range embeddings {
		if !yield("IPv4 within IPv6", e.In) {
			return
		}
	}
}
