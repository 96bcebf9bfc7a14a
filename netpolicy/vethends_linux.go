package netpolicy

import (
	"errors"
	"fmt"
	"net"
	"net/netip"
	"os"
	"runtime"
	"time"

	"github.com/vishvananda/netlink"
	"github.com/vishvananda/netlink/nl"
	"golang.org/x/sys/unix"
)

// boxInterface is the name of a link's end in the box.
const boxInterface = "eth0"

// create makes the pair of interfaces and sets them up, the box's end last: before that no packet passes.
func (l *link) create(box *os.File) error {
	pair := &netlink.Veth{
		LinkAttrs: netlink.LinkAttrs{Name: l.Name, HardwareAddr: l.hostMAC, TxQLen: -1},
		PeerName:  boxInterface, PeerHardwareAddr: l.boxMAC, PeerNamespace: netlink.NsFd(box.Fd()), PeerTxQLen: -1,
	}
	if err := l.links.route.LinkAdd(pair); err != nil {
		return err
	}
	host := end{l.links.route, pair, []netip.Addr{l.Host4, l.Host6}, []netip.Addr{l.Box4, l.Box6}, l.boxMAC}
	if err := host.up(); err != nil {
		return err
	}
	err := within(box, func() error {
		route, err := netlink.NewHandle(unix.NETLINK_ROUTE)
		if err != nil {
			return err
		}
		defer route.Close()
		eth0, err := route.LinkByName(boxInterface)
		if err != nil {
			return err
		}
		// Nothing of the host's advertises routers on a link; should it ever, the box does not listen. Not every container may write here.
		for _, name := range []string{"accept_ra", "autoconf"} {
			_ = os.WriteFile("/proc/sys/net/ipv6/conf/"+boxInterface+"/"+name, []byte("0"), 0)
		}
		box := end{route, eth0, []netip.Addr{l.Box4, l.Box6}, []netip.Addr{l.Host4, l.Host6}, l.hostMAC}
		if err := errors.Join(box.up(), box.lead()); err != nil {
			return err
		}
		return box.hears()
	})
	if err != nil {
		return err
	}
	return host.ready()
}

// ready waits until packets can leave by an end that came up before the other: the kernel begins to send, and not to drop, only when work
// that it has queued finds the carrier (linkwatch). To ask it for the interface is to have that done at once since Linux 6.8.
func (e *end) ready() error {
	const longest = time.Second
	for start := time.Now(); time.Since(start) < longest; time.Sleep(200 * time.Microsecond) {
		now, err := e.route.LinkByName(e.link.Attrs().Name)
		if err != nil {
			return err
		}
		if now.Attrs().OperState == netlink.OperUp {
			return nil
		}
	}
	return fmt.Errorf("no carrier after %s", longest)
}

// hears waits until the end takes what is sent to its IPv6 address: the kernel makes the route to it in work that it has queued
// (addrconf_dad_work), and drops what comes before, such as the answer to a first datagram that is never sent again.
func (e *end) hears() error {
	own := e.own[1]
	if !own.IsValid() {
		return nil
	}
	const longest = time.Second
	for start := time.Now(); time.Since(start) < longest; time.Sleep(200 * time.Microsecond) {
		routes, err := e.route.RouteGet(own.AsSlice())
		if err != nil && !errors.Is(err, unix.ENETUNREACH) && !errors.Is(err, unix.EHOSTUNREACH) {
			return err
		}
		if len(routes) > 0 && routes[0].Type == unix.RTN_LOCAL {
			return nil
		}
	}
	return fmt.Errorf("%s is not heard at after %s", own, longest)
}

// end is one of a link's two.
type end struct {
	route *netlink.Handle
	link  netlink.Link
	own   []netip.Addr // one for each family; not valid without
	other []netip.Addr
	mac   net.HardwareAddr // the other's
}

// up gives the end its addresses. Who is at the other end is known, so that nobody asks by ARP or neighbour discovery: that table is one
// for all namespaces, and only permanent entries are had for certain when it is full.
func (e *end) up() error {
	index := e.link.Attrs().Index
	if err := e.quiet(); err != nil {
		return err
	}
	for i, own := range e.own {
		if !own.IsValid() {
			continue
		}
		neighbours := netip.PrefixFrom(own, own.BitLen()-1)
		if err := e.route.AddrAdd(e.link, &netlink.Addr{IPNet: ipNet(neighbours), Flags: unix.IFA_F_NODAD}); err != nil {
			return err
		}
		err := e.route.NeighAdd(&netlink.Neigh{LinkIndex: index, IP: e.other[i].AsSlice(), HardwareAddr: e.mac, State: netlink.NUD_PERMANENT})
		if err != nil {
			return err
		}
	}
	return e.route.LinkSetUp(e.link)
}

// quiet switches ARP off, and the link-local address from which routers would be asked for.
func (e *end) quiet() error {
	if err := e.route.LinkSetARPOff(e.link); err != nil {
		return err
	}
	err := e.route.LinkSetIP6AddrGenMode(e.link, nl.IN6_ADDR_GEN_MODE_NONE)
	if err != nil && !e.own[1].IsValid() {
		return nil // there may be no IPv6 at all
	}
	return err
}

// lead sends everything to the other end.
func (e *end) lead() error {
	for i, own := range e.own {
		if !own.IsValid() {
			continue
		}
		everything := netip.PrefixFrom(own, 0).Masked()
		err := e.route.RouteAdd(&netlink.Route{LinkIndex: e.link.Attrs().Index, Dst: ipNet(everything), Gw: e.other[i].AsSlice()})
		if err != nil {
			return err
		}
	}
	return nil
}

// within calls f in a network namespace.
func within(ns *os.File, f func() error) error {
	return onThread(func() error {
		if err := unix.Setns(int(ns.Fd()), unix.CLONE_NEWNET); err != nil {
			return err
		}
		return f()
	})
}

// onThread calls f on a thread that ends with it, whatever namespaces it is in by then. That cannot be the process's first thread, which Go
// parks instead: it would hold the namespace for good, and be what /proc/self shows.
func onThread(f func() error) error {
	done := make(chan error)
	go func() {
		runtime.LockOSThread()
		if unix.Gettid() == os.Getpid() {
			defer runtime.UnlockOSThread()
			done <- onThread(f) // while this one is taken
			return
		}
		done <- f()
	}()
	return <-done
}
