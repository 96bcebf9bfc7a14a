//go:build linux

package netpolicy

import (
	"net"
	"net/netip"
	"os"
	"strings"
	"sync"
	"testing"

	"github.com/google/nftables"
	"github.com/google/nftables/expr"
	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"
)

func TestALinkLeadsOutByTheHostsAddress(t *testing.T) {
	if !hosted(t) {
		return
	}
	w := newWorld(t)
	server := w.listen(w.internet)
	box, _ := w.box()
	for host, want := range map[string]string{serverAddr4: hostAddr4, serverAddr6: hostAddr6} {
		for _, network := range []string{"tcp", "udp"} {
			if got, err := w.ask(box, patience, network, "", host, server.port); err != nil || !strings.HasSuffix(got, want) {
				t.Errorf("%s to %s: seen as %q, want %q: %v", network, host, got, want, err)
			}
		}
	}
}

func TestNothingOfTheHostIsReachedByALink(t *testing.T) {
	if !hosted(t) {
		return
	}
	w := newWorld(t)
	host, server := w.listen(nil), w.listen(w.internet)
	addresses(t, "10.9.9.9/32", "fd99::9/128")
	published(t, host.port, server.port)
	box, l := w.box("10.0.0.0/8")
	if _, err := w.ask(w.internet, hurry, "tcp", "", hostAddr4, host.port); err == nil {
		t.Error("the port is not published, so that the test tests nothing")
	}
	for _, ns := range []*os.File{nil, w.internet} {
		if _, err := w.ask(ns, patience, "tcp", "", hostAddr6, host.port); err != nil {
			t.Errorf("the host's own listener: %v", err)
		}
	}
	w.refused(box, host, "the host", l.Host4.String(), l.Host6.String(), hostAddr4, hostAddr6, "10.9.9.9", "fd99::9", "203.0.113.255")
	w.refused(box, server, "a port of the host's that leads elsewhere", hostAddr4)
}

// published leads one port of the host's to nowhere and another to a server, as Docker does for containers.
func published(t *testing.T, nowhere, server string) {
	t.Helper()
	conn, err := nftables.New()
	try(t, err)
	table := conn.AddTable(&nftables.Table{Family: nftables.TableFamilyIPv4, Name: "published"})
	chain := conn.AddChain(&nftables.Chain{Table: table, Name: "dnat", Type: nftables.ChainTypeNAT, Hooknum: nftables.ChainHookPrerouting, Priority: nftables.ChainPriorityNATDest})
	for port, to := range map[string]string{nowhere: "203.0.113.99", server: serverAddr4} {
		n, err := net.LookupPort("tcp", port)
		try(t, err)
		conn.AddRule(&nftables.Rule{Table: table, Chain: chain, Exprs: rule(transport(6), []expr.Any{
			&expr.Payload{DestRegister: reg1, Base: expr.PayloadBaseNetworkHeader, Offset: 16, Len: 4}, equals(net.ParseIP(hostAddr4).To4()...),
			&expr.Payload{DestRegister: reg1, Base: expr.PayloadBaseTransportHeader, Offset: 2, Len: 2}, equals(byte(n>>8), byte(n)),
			&expr.Immediate{Register: reg1, Data: net.ParseIP(to).To4()},
			&expr.NAT{Type: expr.NATTypeDestNAT, Family: ipv4, RegAddrMin: reg1},
		})})
	}
	try(t, conn.Flush())
}

func TestLinksDoNotReachOneAnother(t *testing.T) {
	if !hosted(t) {
		return
	}
	w := newWorld(t)
	box, _ := w.box()
	sibling, l := w.box()
	w.refused(box, w.listen(sibling), "a sibling", l.Box4.String(), l.Box6.String())
}

func TestNobodySpeaksToALinksBoxFirst(t *testing.T) {
	if !hosted(t) {
		return
	}
	w := newWorld(t)
	box, l := w.box()
	s := w.listen(box)
	w.refused(w.internet, s, "from the internet", l.Box4.String(), l.Box6.String())
	w.refused(nil, s, "from the host", l.Box4.String(), l.Box6.String())
}

func TestForgedSourcesPassNoLink(t *testing.T) {
	if !hosted(t) {
		return
	}
	w := newWorld(t)
	server := w.listen(w.internet)
	box, l := w.box()
	_, sibling := w.box()
	forged := map[string][]string{
		serverAddr4: {sibling.Box4.String(), "198.18.0.9", "10.1.1.1", hostAddr4},
		serverAddr6: {sibling.Box6.String(), "fd5b:c7e:91a4::9", "2001:db8:9::1"},
	}
	w.in(box, func() {
		lo, err := netlink.LinkByName("lo")
		try(t, err)
		for _, list := range forged {
			for _, a := range list {
				ip, bits := net.ParseIP(a), 128
				if ip.To4() != nil {
					bits = 32
				}
				try(t, netlink.AddrAdd(lo, &netlink.Addr{IPNet: &net.IPNet{IP: ip, Mask: net.CIDRMask(bits, bits)}}))
			}
		}
	})
	heard := server.heard.Load()
	var wg sync.WaitGroup
	for host, list := range forged {
		for _, source := range list {
			for _, network := range []string{"tcp", "udp"} {
				wg.Go(func() {
					if _, err := w.ask(box, hurry, network, source, host, server.port); err == nil {
						t.Errorf("%s from %s is answered", network, source)
					}
				})
			}
		}
	}
	wg.Wait()
	w.rename(box, l, sibling.boxMAC)
	w.refused(box, server, "another hardware address", serverAddr4, serverAddr6)
	if n := server.heard.Load() - heard; n != 0 {
		t.Errorf("heard of %d times", n)
	}
	w.rename(box, l, l.boxMAC)
	for _, host := range []string{serverAddr4, serverAddr6} {
		if _, err := w.ask(box, patience, "udp", "", host, server.port); err != nil {
			t.Errorf("with its own addresses again: %v", err)
		}
	}
}

// rename gives a box's end another hardware address.
func (w *world) rename(box *os.File, l *link, mac net.HardwareAddr) {
	w.in(box, func() {
		eth0, err := netlink.LinkByName(boxInterface)
		try(w.t, err)
		try(w.t, netlink.LinkSetHardwareAddr(eth0, mac))
		for _, host := range []netip.Addr{l.Host4, l.Host6} { // which the kernel forgets with a change
			try(w.t, netlink.NeighSet(&netlink.Neigh{LinkIndex: eth0.Attrs().Index, IP: host.AsSlice(), HardwareAddr: l.hostMAC, State: netlink.NUD_PERMANENT}))
		}
	})
}

func TestTheFloorHoldsOnALinkUnlessOpened(t *testing.T) {
	if !hosted(t) {
		return
	}
	w := newWorld(t)
	server := w.listen(w.internet)
	box, _ := w.box()
	w.refused(box, server, "metadata", metadata4, metadata6)
	open, _ := w.box("169.254.169.254/32", "169.254.0.0/17", "fd00:ec2::/64")
	for _, host := range []string{metadata4, metadata6} {
		if _, err := w.ask(open, patience, "tcp", "", host, server.port); err != nil {
			t.Errorf("%s, which is opened: %v", host, err)
		}
	}
	w.refused(box, server, "metadata, opened for another", metadata4, metadata6)
}

func TestABoxIsToldThatItCannotBeReached(t *testing.T) {
	if !hosted(t) {
		return
	}
	w := newWorld(t)
	box, _ := w.box()
	try(t, netlink.RouteDel(&netlink.Route{Dst: ipNet(prefixes("0.0.0.0/0")[0])}))
	try(t, netlink.RouteDel(&netlink.Route{Dst: ipNet(prefixes("::/0")[0])}))
	for host, counter := range map[string]string{"192.0.2.7": "IcmpMsg: InType3", "2001:db8:77::7": "Icmp6InType1 "} {
		w.ask(box, hurry, "udp", "", host, "80")
		w.in(box, func() {
			for _, file := range []string{"snmp", "snmp6"} {
				text, err := os.ReadFile("/proc/thread-self/net/" + file)
				try(t, err)
				if strings.Contains(string(text), counter) { // only kinds that came are listed
					return
				}
			}
			t.Errorf("%s: not told", host)
		})
	}
}

// Without it the answer to a first datagram may come before the box takes it.
func TestANewLinkHearsAtItsIPv6Address(t *testing.T) {
	if !hosted(t) {
		return
	}
	w := newWorld(t)
	for range 20 {
		ns, l := w.box()
		w.in(ns, func() {
			routes, err := netlink.RouteGet(l.Box6.AsSlice())
			if err != nil || len(routes) == 0 || routes[0].Type != unix.RTN_LOCAL {
				t.Errorf("%s: %v, %v", l.Box6, routes, err)
			}
		})
		try(t, l.Close())
	}
}
