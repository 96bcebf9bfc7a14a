//go:build linux

package integration

import (
	"errors"
	"fmt"
	"net"
	"os"
	"slices"
	"strings"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"
)

// The host has one cable, to a gateway that is the whole internet. Addresses that look public are from ranges that are given out, but
// not to us: nothing of them leaves the namespaces.
const (
	hostAddr, hostAddr6       = "11.22.33.2", "2a11:22:33::2"
	gatewayAddr, gatewayAddr6 = "11.22.33.1", "2a11:22:33::1"

	resolverAddr = "11.22.44.53"
	apiAddr      = "20.1.1.10" // api.allowed.example and its like
	apiAddr6     = "2a10:1::10"
	sharedAddr   = "20.1.1.20" // as of a content delivery network: many names, one server
	otherAddr    = "20.1.1.30" // no policy allows a name of it
	otherAddr6   = "2a10:1::30"
	wildAddr     = "20.1.1.40" // every name below wild.example
	aliasAddr    = "20.1.1.50" // the end of CNAME chains
	servicesAddr = "20.1.1.60" // services.example: what is neither TLS nor HTTP
	nextAddr     = "20.1.1.70" // where moved.example goes
)

// public are the internet's addresses that a policy may allow by name.
var public = []string{
	resolverAddr, apiAddr, sharedAddr, otherAddr, wildAddr, aliasAddr, servicesAddr, nextAddr, "8.8.8.8", "1.1.1.1",
	apiAddr6, otherAddr6, "2a10:1::60", "2001:4860:4860::8888",
}

// withheld are addresses that no name may stand for. They have servers too, so that a leak shows.
var withheld = []string{
	"169.254.169.254", "169.254.170.2", "100.100.100.200", "168.63.129.16", "100.96.0.96", "100.80.80.80", "fd00:ec2::254", "fd20:ce::254",
	"10.1.2.3", "172.16.5.5", "192.168.7.7", "100.64.0.9", "169.254.7.7", "192.0.2.7", "198.18.0.7", "240.0.0.7",
	"fc00::7", "fd12:3456::7", "fec0::7", "2001:db8::7", "64:ff9b::a9fe:a9fe", "64:ff9b::a01:203", "2002:a9fe:a9fe::1", "2002:7f00:1::1", "2002:a01:203::1",
	"::ffff:0:a01:203", "::a01:203",
}

// layCable joins this namespace with the internet's.
func layCable(internet *os.File) error {
	attrs := netlink.NewLinkAttrs()
	attrs.Name = "eth0"
	err := netlink.LinkAdd(&netlink.Veth{LinkAttrs: attrs, PeerName: "eth0", PeerNamespace: netlink.NsFd(internet.Fd())})
	if err != nil {
		return fmt.Errorf("add a veth pair: %w", err)
	}
	return nil
}

// settleHost gives the host its addresses and its way out.
func settleHost() error {
	if err := errors.Join(settleLink("lo"), settleLink("eth0", hostAddr+"/24", hostAddr6+"/64")); err != nil {
		return err
	}
	for _, via := range []string{gatewayAddr, gatewayAddr6} {
		link, err := netlink.LinkByName("eth0")
		if err == nil {
			err = netlink.RouteAdd(&netlink.Route{LinkIndex: link.Attrs().Index, Gw: net.ParseIP(via)})
		}
		if err != nil {
			return fmt.Errorf("route through %s: %w", via, err)
		}
	}
	return nil
}

func (w *world) settleInternet() error {
	lo := slices.Concat(public, withheld)
	for i, a := range lo {
		lo[i] = a + "/128"
		if !strings.Contains(a, ":") {
			lo[i] = a + "/32"
		}
	}
	if err := errors.Join(settleLink("lo", lo...), settleLink("eth0", gatewayAddr+"/24", gatewayAddr6+"/64")); err != nil {
		return err
	}
	return w.watch()
}

func settleLink(name string, addrs ...string) error {
	link, err := netlink.LinkByName(name)
	if err != nil {
		return err
	}
	for _, a := range addrs {
		addr, err := netlink.ParseAddr(a)
		if err == nil {
			addr.Flags = unix.IFA_F_NODAD
			err = netlink.AddrAdd(link, addr)
		}
		if err != nil {
			return fmt.Errorf("give %s to %s: %w", a, name, err)
		}
	}
	return netlink.LinkSetUp(link)
}

// join makes "address:port".
func join(addr string, port int) string {
	if strings.Contains(addr, ":") {
		addr = "[" + addr + "]"
	}
	return fmt.Sprintf("%s:%d", addr, port)
}
