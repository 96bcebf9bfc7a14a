package netpolicy

import (
	"bytes"
	"errors"
	"fmt"
	"math/rand/v2"
	"net"
	"net/netip"
	"os"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"
)

// links connects boxes with the network namespace of the thread that opened it, skillboxd's, by a pair of interfaces each.
type links struct {
	route *netlink.Handle
	table *hostTable
	flows *flowTable
	swept int // links of dead processes that were removed
}

// openLinks sweeps nothing, see sweep. Close does not end the links.
func openLinks() (*links, error) {
	route, err := netlink.NewHandle(unix.NETLINK_ROUTE)
	if err != nil {
		return nil, fmt.Errorf("netpolicy: open rtnetlink: %w", err)
	}
	table, err := openHostTable()
	if err != nil {
		route.Close()
		return nil, err
	}
	flows, err := openFlowTable()
	if err != nil {
		route.Close()
		return nil, errors.Join(err, table.Close())
	}
	return &links{route: route, table: table, flows: flows}, nil
}

func (ls *links) Close() error {
	ls.route.Close()
	return errors.Join(ls.table.Close(), ls.flows.Close())
}

// link is a box's way out: the host's end of it and the rules there. What may be reached is decided in the box's namespace; here it is
// made sure that nothing of the host and no other box is reached, and that nobody speaks to the box first.
type link struct {
	Name         string // of the host's end
	Host4, Box4  netip.Addr
	Host6, Box6  netip.Addr // not valid without IPv6
	n            int
	hostMAC      net.HardwareAddr
	boxMAC       net.HardwareAddr
	links        *links
	name, number *os.File // locked
	ruled        bool     // there are rules
}

// attach connects a box's network namespace, where the interface is called eth0 and has the only default route. It must be called in
// the network namespace that openLinks was called in.
//
// The rules are in force before the first packet can pass.
func (ls *links) attach(box *os.File, d LinkDescription) (_ *link, err error) {
	l := &link{Name: linkPrefix + d.ID[:min(len(d.ID), 13)], links: ls}
	defer func() {
		if err != nil {
			err = errors.Join(err, l.Close())
		}
	}()
	if l.name, err = take("link/" + l.Name); err != nil {
		return nil, err
	}
	if l.name == nil {
		return nil, fmt.Errorf("netpolicy: another box's link is called %s", l.Name)
	}
	if err := l.choose(d.IPv6); err != nil {
		return nil, err
	}
	l.ruled = true
	if err := ls.table.add(l, d.Opened); err != nil {
		return nil, err
	}
	if err := l.create(box); err != nil {
		return nil, fmt.Errorf("netpolicy: make link %s: %w", l.Name, err)
	}
	return l, nil
}

// The ranges that links take two neighbouring addresses from, for as many links as there are. Benchmarks of network devices own the one
// (RFC 2544), so that neither a network nor Docker or Kubernetes has it; of the other, the global ID was drawn by lot (RFC 4193).
var (
	linkRange4 = netip.MustParsePrefix("198.18.0.0/15")
	linkRange6 = netip.MustParsePrefix("fd5b:c7e:91a4::/48")
)

const linkNumbers = 1 << 16

// What the hardware addresses of the two ends begin with: locally administered, "sb".
var hostMAC, boxMAC = net.HardwareAddr{2, 's', 'b', 0}, net.HardwareAddr{2, 's', 'b', 1}

// address gives the link the addresses that belong to a number. The even one is the host's.
func (l *link) address(n int, v6 bool) {
	l.n = n
	four, six := linkRange4.Addr().As4(), linkRange6.Addr().As16()
	four[1] += byte(n >> 15)
	four[2], four[3] = byte(n>>7), byte(n<<1)
	l.Host4 = netip.AddrFrom4(four)
	l.Box4 = l.Host4.Next()
	if v6 {
		six[6], six[7], six[15] = byte(n>>8), byte(n), 2
		l.Host6 = netip.AddrFrom16(six)
		l.Box6 = l.Host6.Next()
	}
	l.hostMAC = append(bytes.Clone(hostMAC), byte(n>>8), byte(n))
	l.boxMAC = append(bytes.Clone(boxMAC), byte(n>>8), byte(n))
}

// choose finds addresses that neither another link nor the host's routing table has.
func (l *link) choose(v6 bool) error {
	const tries = 32
	for range tries {
		n := rand.IntN(linkNumbers)
		lock, err := take(fmt.Sprintf("net/%d", n))
		if err != nil {
			return err
		}
		if lock == nil {
			continue
		}
		l.address(n, v6)
		if l.links.routed(l.Box4, 8) || v6 && l.links.routed(l.Box6, linkRange6.Bits()) {
			lock.Close()
			continue
		}
		l.number = lock
		return nil
	}
	return fmt.Errorf("netpolicy: no free addresses in %s and %s for a link", linkRange4, linkRange6)
}

// routed says that the host has a route to an address of at least so many bits. What is shorter speaks of everything, like a default
// route; what is unreachable by a route is nobody's either.
func (ls *links) routed(a netip.Addr, bits int) bool {
	routes, err := ls.route.RouteGetWithOptions(a.AsSlice(), &netlink.RouteGetOptions{FIBMatch: true})
	if err != nil || len(routes) == 0 || routes[0].Dst == nil {
		return false
	}
	ones, _ := routes[0].Dst.Mask.Size()
	return ones >= bits
}

// Close puts the host's end down and then removes the rules, so that there is no packet without them, and forgets the connections. The
// kernel removes both ends with the box's namespace: to wait for that here would take 20 ms. It may be called more than once, also
// when the namespace has gone; after an error, again.
func (l *link) Close() error {
	if l.ruled {
		if err := l.links.end(l.Name, l.Box4, l.Box6); err != nil {
			return err
		}
		l.ruled = false
	}
	var errs []error
	for _, lock := range []*os.File{l.number, l.name} {
		if lock != nil {
			errs = append(errs, lock.Close())
		}
	}
	l.number, l.name = nil, nil
	return errors.Join(errs...)
}

// end leaves nothing of a link but interfaces that are down. Addresses that are not valid are not its own any more, or never were.
func (ls *links) end(name string, box4, box6 netip.Addr) error {
	host, err := ls.find(name)
	if err == nil && host != nil {
		err = ls.route.LinkSetDown(host)
	}
	if err != nil && !errors.Is(err, unix.ENODEV) {
		return fmt.Errorf("netpolicy: put link %s down: %w", name, err)
	}
	four, six := ls.table.sent(name)
	if four && box4.IsValid() {
		ls.flows.forget(box4)
	}
	if six && box6.IsValid() {
		ls.flows.forget(box6)
	}
	return ls.table.remove(name)
}

// find is the host's end of a link, and nil if there is none, or something else that is called so.
func (ls *links) find(name string) (netlink.Link, error) {
	host, err := ls.route.LinkByName(name)
	var gone netlink.LinkNotFoundError
	if errors.As(err, &gone) || err == nil && (host.Type() != "veth" || !bytes.HasPrefix(host.Attrs().HardwareAddr, hostMAC)) {
		return nil, nil
	}
	return host, err
}
