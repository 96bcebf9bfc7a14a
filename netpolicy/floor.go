package netpolicy

import "net/netip"

// reserved is what no name may stand for and no skill may reach unless a cidrs rule names it. From the IANA special-purpose address
// registries (RFC 6890), and the metadata services that clouds keep elsewhere.
var reserved = []struct {
	what   string
	ranges []netip.Prefix
}{
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

// Floor says which kind of reserved address this is, in any of the forms that an IPv4 address takes within an IPv6 one; "" is none.
func Floor(a netip.Addr) string {
	for _, form := range forms(a.Unmap().WithZone("")) {
		for _, kind := range reserved {
			for _, p := range kind.ranges {
				if p.Contains(form) {
					return kind.what
				}
			}
		}
	}
	return ""
}

// heldOf are the floor's ranges that lie within a wider one: it does not open them. Ranges that hold addresses of IPv4 are among them,
// for what they lead to cannot be told by a prefix.
func heldOf(p netip.Prefix) (held []netip.Prefix) {
	add := func(q netip.Prefix) {
		if p.Bits() < q.Bits() && p.Contains(q.Addr()) {
			held = append(held, q)
		}
	}
	for _, kind := range reserved {
		for _, q := range kind.ranges {
			add(q)
		}
	}
	for _, e := range embedding {
		add(e.in)
	}
	return held
}

// opened are the ranges by which rules open some of the floor.
func (s *Ruleset) opened() (all []netip.Prefix) {
	for _, r := range s.egress.rules {
		for _, p := range r.CIDRs {
			if Floor(p.Addr()) != "" {
				all = append(all, p)
			}
		}
	}
	return all
}

// Ranges of IPv6 with an IPv4 address inside: where it begins, in bytes, and whether it is inverted.
var embedding = []struct {
	in       netip.Prefix
	at       int
	inverted bool
}{
	{netip.MustParsePrefix("64:ff9b::/96"), 12, false},   // NAT64 (RFC 6052)
	{netip.MustParsePrefix("64:ff9b:1::/48"), 12, false}, // its local-use range (RFC 8215), with the usual /96
	{netip.MustParsePrefix("2002::/16"), 2, false},       // 6to4 (RFC 3056)
	{netip.MustParsePrefix("::/96"), 12, false},          // IPv4-compatible (RFC 4291, deprecated)
	{netip.MustParsePrefix("::ffff:0:0:0/96"), 12, false},
	{netip.MustParsePrefix("2001::/32"), 12, true}, // Teredo (RFC 4380): the client's address
}

// forms are an address and the IPv4 addresses that a translator could make of it.
func forms(a netip.Addr) []netip.Addr {
	all := []netip.Addr{a}
	if !a.Is6() {
		return all
	}
	bytes := a.As16()
	for _, e := range embedding {
		if !e.in.Contains(a) || a.IsLoopback() || a.IsUnspecified() {
			continue
		}
		inner := [4]byte(bytes[e.at : e.at+4])
		if e.inverted {
			for i := range inner {
				inner[i] = ^inner[i]
			}
		}
		all = append(all, netip.AddrFrom4(inner))
	}
	return all
}
