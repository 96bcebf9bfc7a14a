package netpolicy

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"os"
	"sync"
	"syscall"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"
)

// Handle is a box's network. Who gets one with rules serves its sockets; without anybody who does, nothing is reached.
type Handle struct {
	ns *os.File
	lo netlink.Link

	// Nil without rules.
	TCP  []net.Listener // of every connection that the rules may allow, see Original; one for IPv4, one for IPv6 if the kernel has it
	DNS  net.PacketConn // 127.0.0.1:53
	DNS2 net.Listener   // the same for TCP
	DNS6 net.PacketConn // [::1]:53, of a sinkhole if the kernel has IPv6

	table   *table
	refused *monitor
	flows   *monitor // with a link
	link    Link     // nil without one

	linking  sync.Mutex
	unlinked bool // and will have no link any more

	flowTable *flowTable
	live      map[string]byte // flows that have begun and not ended: families, by tuple
	told      map[string]Flow // what was told of those that had not ended then
}

// Path is how another process of our pid namespace joins the network namespace.
func (h *Handle) Path() string { return fmt.Sprintf("/proc/%d/fd/%d", os.Getpid(), h.ns.Fd()) }

// Close gives the namespace and its sockets up; the kernel frees it with the last process in it.
func (h *Handle) Close() error {
	var errs []error
	for _, l := range h.TCP {
		errs = append(errs, l.Close())
	}
	if h.DNS != nil {
		errs = append(errs, h.DNS.Close())
	}
	if h.DNS2 != nil {
		errs = append(errs, h.DNS2.Close())
	}
	if h.DNS6 != nil {
		errs = append(errs, h.DNS6.Close())
	}
	if h.refused != nil {
		errs = append(errs, h.refused.Close())
	}
	if h.table != nil {
		errs = append(errs, h.table.Close())
	}
	errs = append(errs, h.closeFlows())
	errs = append(errs, h.Unlink(), h.ns.Close())
	for i, err := range errs {
		if errors.Is(err, net.ErrClosed) {
			errs[i] = nil // whoever served it closed it
		}
	}
	return errors.Join(errs...)
}

// Unlink ends the box's link, if it has one, and takes away what of it lies outside of the namespace.
func (h *Handle) Unlink() error {
	h.linking.Lock()
	defer h.linking.Unlock()
	h.unlinked = true
	var errs []error
	if h.link != nil {
		errs = append(errs, h.link.Close())
		h.abandon()
	}
	h.link = nil
	return errors.Join(errs...)
}

// abandon lets the kernel give up soon on what programs that have ended did not get sent: a socket of theirs holds the namespace, and with it
// the link's interfaces, for 100 s of tries to send its end (tcp_orphan_retries in the kernel's ip-sysctl.rst). Where it cannot be set, it
// takes that long.
func (h *Handle) abandon() {
	_ = within(h.ns, func() error { return os.WriteFile("/proc/sys/net/ipv4/tcp_orphan_retries", []byte("1"), 0) })
}

// Create is New and Open: the rules are in force when it returns.
func Create(d Description) (*Handle, error) {
	h, err := New()
	if err != nil {
		return nil, err
	}
	if err := h.Open(d); err != nil {
		return nil, errors.Join(err, h.Close())
	}
	return h, nil
}

// New makes the namespace, which has nothing but loopback, on a thread that ends with it. Programs may enter it already, but none that is
// not trusted before Open has returned.
func New() (h *Handle, err error) {
	err = onThread(func() error {
		if err := unix.Unshare(unix.CLONE_NEWNET); err != nil {
			return fmt.Errorf("netpolicy: new network namespace: %w", err)
		}
		ns, err := os.Open("/proc/thread-self/ns/net")
		if err != nil {
			return fmt.Errorf("netpolicy: %w", err)
		}
		lo, err := netlink.LinkByName("lo")
		if err == nil {
			err = netlink.LinkSetUp(lo)
		}
		if err != nil {
			return errors.Join(fmt.Errorf("netpolicy: bring loopback up: %w", err), ns.Close())
		}
		h = &Handle{ns: ns, lo: lo}
		return nil
	})
	return h, err
}

// Open puts the rules in force and makes the ways out that they allow, once. After an error there is only Close.
func (h *Handle) Open(d Description) error {
	if !d.Rules.Any() && !d.Sinkhole {
		return nil
	}
	linked := make(chan error, 1)
	go func() {
		var err error
		if d.Link {
			err = h.attach(d)
		}
		linked <- err
	}()
	err := within(h.ns, func() error { return h.open(d) })
	return errors.Join(err, <-linked)
}

// attach gives the namespace its link. Whether the host passes on what it carries was asked before, see Linkable.
func (h *Handle) attach(d Description) (err error) {
	h.linking.Lock()
	defer h.linking.Unlock()
	if h.unlinked {
		return errors.New("netpolicy: the box has ended")
	}
	linker := d.Linker
	if linker == nil {
		linker = MakeLink
	}
	h.link, err = linker(h.ns, LinkDescription{ID: d.ID, IPv6: d.Link6, Opened: d.Rules.opened()})
	return err
}

// open does what is done within the namespace.
func (h *Handle) open(d Description) (err error) {
	told := refusedBytes
	if d.Sinkhole {
		h.table, err = newSinkhole()
		told = heardBytes
	} else {
		h.table, err = newTable(d.Rules, [2]bool{d.Link, d.Link && d.Link6}, d.Limits)
	}
	if err != nil {
		return err
	}
	if err := h.lead(); err != nil {
		return err
	}
	err = errors.Join(h.listen(d.Sinkhole), h.watchRefusals(told))
	if err == nil && d.Link {
		err = h.watchFlows()
	}
	return err
}

// The addresses of a box without a link. Programs look for one that is not loopback before they ask for names (AI_ADDRCONFIG of
// getaddrinfo(3)), and sort answers by what fits it (RFC 6724): hence ones of no private range. No packet with them leaves the box.
var (
	ownAddress4 = netip.MustParsePrefix("192.0.0.2/32")    // RFC 7335, for hosts that reach IPv4 by other means
	ownAddress6 = netip.MustParsePrefix("2001:db8::2/128") // RFC 3849, documentation
)

// lead makes every address of a family without a link one of the namespace's own: packets to it are sent, which the rules in force refuse
// or divert, and should both fail they end here.
func (h *Handle) lead() error {
	for i, p := range []netip.Prefix{ownAddress4, ownAddress6} {
		if h.table.linked[i] {
			continue
		}
		everything := netip.PrefixFrom(p.Addr(), 0).Masked()
		add := &netlink.Addr{IPNet: ipNet(p), Flags: unix.IFA_F_NODAD}
		err := netlink.AddrAdd(h.lo, add)
		if err == nil {
			err = netlink.RouteAdd(&netlink.Route{LinkIndex: h.lo.Attrs().Index, Dst: ipNet(everything), Type: unix.RTN_LOCAL, Src: add.IP, Scope: netlink.SCOPE_HOST, Congctl: congestion})
		}
		if err != nil && !(p.Addr().Is6() && noIPv6(err)) {
			return fmt.Errorf("netpolicy: lead %s to loopback: %w", everything, err)
		}
	}
	return nil
}

// noIPv6 says that the machine runs without IPv6 (ipv6.disable=1, or disable_ipv6).
func noIPv6(err error) bool {
	for _, e := range []error{unix.EOPNOTSUPP, unix.EAFNOSUPPORT, unix.EACCES, unix.EPERM, unix.ENOTSUP, unix.EADDRNOTAVAIL} {
		if errors.Is(err, e) {
			return true
		}
	}
	return false
}

func ipNet(p netip.Prefix) *net.IPNet {
	return &net.IPNet{IP: p.Addr().AsSlice(), Mask: net.CIDRMask(p.Bits(), p.Addr().BitLen())}
}

// congestion is the control for what goes by loopback, where nothing is lost. A host's may be one that paces by timers, as bbr does, which
// halves the throughput of a capture; reno may be used by everybody.
const congestion = "reno"

var listenTCP = net.ListenConfig{Control: func(_, _ string, c syscall.RawConn) error {
	var err error
	if errControl := c.Control(func(fd uintptr) {
		err = unix.SetsockoptString(int(fd), unix.IPPROTO_TCP, unix.TCP_CONGESTION, congestion)
	}); errControl != nil {
		return errControl
	}
	return err
}}

// listen makes the sockets that the rules lead to. They belong to the namespace of this thread, wherever they are served.
func (h *Handle) listen(sinkhole bool) error {
	for _, at := range []struct{ network, host string }{{"tcp4", "127.0.0.1"}, {"tcp6", "::1"}} {
		l, err := listenTCP.Listen(context.Background(), at.network, netip.AddrPortFrom(netip.MustParseAddr(at.host), proxyPort).String())
		if err != nil && at.network == "tcp6" && noIPv6(err) {
			continue
		}
		if err != nil {
			return fmt.Errorf("netpolicy: %w", err)
		}
		h.TCP = append(h.TCP, l)
	}
	dns := netip.AddrPortFrom(netip.AddrFrom4([4]byte{127, 0, 0, 1}), dnsPort).String()
	var err, err2 error
	h.DNS, err = net.ListenPacket("udp4", dns)
	h.DNS2, err2 = net.Listen("tcp4", dns)
	if sinkhole && len(h.TCP) > 1 {
		// A program may ask any server, and what it sends to one of IPv6 arrives here.
		var err6 error
		h.DNS6, err6 = net.ListenPacket("udp6", netip.AddrPortFrom(netip.IPv6Loopback(), dnsPort).String())
		err = errors.Join(err, err6)
	}
	if err := errors.Join(err, err2); err != nil {
		return fmt.Errorf("netpolicy: %w", err)
	}
	return nil
}

// Original is where a redirected connection was meant to go: SO_ORIGINAL_DST, of conntrack. A program that connects to a listener itself
// gets the listener's own address.
func Original(c *net.TCPConn) (netip.AddrPort, error) {
	raw, err := c.SyscallConn()
	if err != nil {
		return netip.AddrPort{}, fmt.Errorf("netpolicy: %w", err)
	}
	var to netip.AddrPort
	var errOption error
	local := c.LocalAddr().(*net.TCPAddr).AddrPort().Addr()
	err = raw.Control(func(fd uintptr) {
		if local.Unmap().Is4() {
			// A sockaddr_in, which is as long as the structure of this call (linux/netfilter_ipv4.h).
			in, err := unix.GetsockoptIPv6Mreq(int(fd), unix.SOL_IP, unix.SO_ORIGINAL_DST)
			if errOption = err; err == nil {
				a := in.Multiaddr
				to = netip.AddrPortFrom(netip.AddrFrom4([4]byte(a[4:8])), uint16(a[2])<<8|uint16(a[3]))
			}
			return
		}
		in, err := unix.GetsockoptIPv6MTUInfo(int(fd), unix.SOL_IPV6, unix.SO_ORIGINAL_DST)
		if errOption = err; err == nil {
			port := in.Addr.Port // in network order, whatever this machine's is
			to = netip.AddrPortFrom(netip.AddrFrom16(in.Addr.Addr), port<<8|port>>8)
		}
	})
	if err = errors.Join(err, errOption); err != nil {
		return netip.AddrPort{}, fmt.Errorf("netpolicy: where a connection was meant to go: %w", err)
	}
	return to, nil
}
