package netpolicy

import (
	"errors"
	"fmt"
	"io/fs"
	"net/netip"
	"os"
	"strings"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"
)

// forwardable says whether the forwarding of IPv4, net.ipv4.ip_forward, is on or could be switched on. It then stays on: whoever came to
// rely on it meanwhile would suffer. A *NoForwarding says that it cannot be, or that a filter of the host's would drop what links carry.
func (ls *links) forwardable() error {
	if err := ls.unfiltered(ipv4); err != nil {
		return err
	}
	return switchOn(forward4, false)
}

const forward4, forward6 = "net/ipv4/ip_forward", "net/ipv6/conf/all/forwarding"

// forwardable6 is the same for IPv6, net.ipv6.conf.all.forwarding. That makes a router of the machine, which forgets what it has learned
// from others by their advertisements, and its default route with it (accept_ra in the kernel's ip-sysctl.rst): where there is such a
// route, boxes get no IPv6 unless the administrator has seen to it.
func (ls *links) forwardable6() error {
	for _, of := range []string{"all", "default"} {
		if off, err := setting("net/ipv6/conf/" + of + "/disable_ipv6"); err != nil || off != "0" {
			return &NoForwarding{Message: "this machine has no IPv6"}
		}
	}
	if err := ls.global6(); err != nil {
		return err
	}
	if err := ls.unfiltered(ipv6); err != nil {
		return err
	}
	if on, err := setting(forward6); err != nil || on == "0" {
		if err := ls.advertised(); err != nil {
			return err
		}
	}
	return switchOn(forward6, false)
}

// global6 says that the host has an IPv6 address that others know.
func (ls *links) global6() error {
	addresses, err := ls.route.AddrList(nil, netlink.FAMILY_V6)
	if err != nil && !errors.Is(err, netlink.ErrDumpInterrupted) {
		return fmt.Errorf("netpolicy: list addresses: %w", err)
	}
	for _, a := range addresses {
		if a.Scope == int(netlink.SCOPE_UNIVERSE) && !linkRange6.Contains(netip.AddrFrom16([16]byte(a.IP.To16()))) && !a.IP.IsLoopback() {
			return nil
		}
	}
	return &NoForwarding{Message: "this machine has no IPv6 address but its own links'"}
}

// advertised says that no default route would be lost.
func (ls *links) advertised() error {
	routes, err := ls.route.RouteListFiltered(netlink.FAMILY_V6, &netlink.Route{Protocol: unix.RTPROT_RA}, netlink.RT_FILTER_PROTOCOL)
	if err != nil && !errors.Is(err, netlink.ErrDumpInterrupted) {
		return fmt.Errorf("netpolicy: list routes: %w", err)
	}
	for _, r := range routes {
		if r.Dst != nil && !r.Dst.IP.IsUnspecified() {
			continue
		}
		by, err := ls.route.LinkByIndex(r.LinkIndex)
		if err != nil {
			continue // gone meanwhile
		}
		name := by.Attrs().Name
		// With 0, a program has made the route, and keeps it; with 2, the kernel does.
		if accept, err := setting("net/ipv6/conf/" + name + "/accept_ra"); err != nil || accept == "1" {
			return &NoForwarding{
				Message: fmt.Sprintf("the IPv6 default route comes by router advertisements on %s, which a router does not heed", name),
				Hint:    fmt.Sprintf("sysctl -w net.ipv6.conf.%s.accept_ra=2\nsysctl -w net.ipv6.conf.all.forwarding=1", strings.ReplaceAll(name, ".", "/")),
			}
		}
	}
	return nil
}

// setting reads a sysctl of the calling thread's network namespace.
func setting(name string) (string, error) {
	text, err := os.ReadFile("/proc/sys/" + name)
	return strings.TrimSpace(string(text)), err
}

// switchOn sets a sysctl to 1, or finds out whether that could be done.
func switchOn(name string, now bool) error {
	value, err := setting(name)
	if err == nil && value != "0" {
		return nil
	}
	if err == nil && now {
		err = os.WriteFile("/proc/sys/"+name, []byte("1"), 0)
	} else if err == nil {
		err = unix.Access("/proc/sys/"+name, unix.W_OK)
	}
	if err != nil {
		var path *fs.PathError
		if errors.As(err, &path) {
			err = path.Err
		}
		dotted := strings.ReplaceAll(name, "/", ".")
		return &NoForwarding{fmt.Sprintf("%s is 0 and cannot be set: %v", dotted, err), "sysctl -w " + dotted + "=1"}
	}
	return nil
}
