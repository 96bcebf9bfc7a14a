package gateway

import (
	"crypto/sha256"
	"encoding/binary"
	"net/netip"
	"sync"
)

// maxSunk bounds the names that one box has addresses of their own for. Names beyond have one address in common, by which no connection can
// be told.
const maxSunk = 4096

// Addresses that a sinkhole gives out. Programs that look for private ranges must take them for public ones, and no machine of anybody's
// shall stand in a record by chance: hence those that IANA's registries of special addresses call globally reachable and nobody is behind
// (RFC 7534 and 7535, 7450, 7526), and beyond a thousand names the range for benchmarks (RFC 2544). Of IPv6, ORCHIDs (RFC 7343).
var (
	sunk4 = []netip.Prefix{
		netip.MustParsePrefix("192.31.196.0/24"), netip.MustParsePrefix("192.175.48.0/24"), netip.MustParsePrefix("192.52.193.0/24"), netip.MustParsePrefix("192.88.99.0/24"),
	}
	moreSunk4 = netip.MustParsePrefix("198.18.0.0/16")
	sunk6     = netip.MustParsePrefix("2001:20::/28")
	common4   = netip.MustParseAddr("198.19.255.254")
	common6   = netip.MustParseAddr("2001:2f:ffff::ffff")
)

// sunkNames are the addresses that stand for names in one box. A name has the same ones in every box, unless others were before it in the
// places that its hash leads to.
type sunkNames struct {
	six bool // the box has IPv6

	mu     sync.Mutex
	addrs  map[string][2]netip.Addr
	byAddr map[netip.Addr]string
}

// address is the one that stands for a name; none of IPv6 where the box has none.
func (n *sunkNames) address(name string, six bool) netip.Addr {
	if six && !n.six {
		return netip.Addr{}
	}
	n.mu.Lock()
	defer n.mu.Unlock()
	both, known := n.addrs[name]
	if !known {
		both = n.add(name)
	}
	if six {
		return both[1]
	}
	return both[0]
}

func (n *sunkNames) add(name string) [2]netip.Addr {
	if len(n.addrs) >= maxSunk {
		return [2]netip.Addr{common4, common6}
	}
	if n.addrs == nil {
		n.addrs, n.byAddr = map[string][2]netip.Addr{}, map[netip.Addr]string{}
	}
	hash := sha256.Sum256([]byte(name))
	both := [2]netip.Addr{n.free4(binary.BigEndian.Uint32(hash[:])), address6(hash)}
	n.addrs[name] = both
	n.byAddr[both[0]], n.byAddr[both[1]] = name, name
	return both
}

// free4 is the first address that nobody has from the place on that a hash leads to. Neither .0 nor .255 is one.
func (n *sunkNames) free4(hash uint32) netip.Addr {
	for i := range uint32(len(sunk4) * 254) {
		at := (hash + i) % uint32(len(sunk4)*254)
		a := sunk4[at/254].Addr().As4()
		a[3] = byte(1 + at%254)
		if addr := netip.AddrFrom4(a); n.byAddr[addr] == "" {
			return addr
		}
	}
	for i := uint32(0); ; i++ {
		a := moreSunk4.Addr().As4()
		at := (hash + i) % (256 * 254)
		a[2], a[3] = byte(at/254), byte(1+at%254)
		if addr := netip.AddrFrom4(a); n.byAddr[addr] == "" {
			return addr
		}
	}
}

// address6 has 100 bits of the hash: no two names have the same one.
func address6(hash [sha256.Size]byte) netip.Addr {
	a := sunk6.Addr().As16()
	copy(a[4:], hash[4:16])
	a[3] |= hash[3] & 15
	return netip.AddrFrom16(a)
}

// of is the name that an address stands for, "" for one that was given out for none.
func (n *sunkNames) of(addr netip.Addr) string {
	n.mu.Lock()
	defer n.mu.Unlock()
	return n.byAddr[addr]
}
