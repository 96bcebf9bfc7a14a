//go:build linux

package netpolicy

import (
	"errors"
	"fmt"
	"net"
	"net/netip"
	"os"
	"os/exec"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"
)

// hosted runs a test once more in a process whose network namespace, made for it, plays the host's. It is true there.
func hosted(t *testing.T) bool {
	t.Helper()
	if os.Getenv("SKILLBOX_VETH_TEST") == t.Name() {
		return true
	}
	if testing.Short() {
		t.Skip("makes network namespaces")
	}
	c := exec.Command("/proc/self/exe", "-test.run=^"+t.Name()+"$", "-test.v", "-test.count=1")
	c.Env = append(os.Environ(), "SKILLBOX_VETH_TEST="+t.Name())
	c.SysProcAttr = &syscall.SysProcAttr{Cloneflags: unix.CLONE_NEWNET, Pdeathsig: syscall.SIGKILL}
	if os.Getuid() != 0 {
		c.SysProcAttr.Cloneflags |= unix.CLONE_NEWUSER
		c.SysProcAttr.UidMappings = []syscall.SysProcIDMap{{HostID: os.Getuid(), Size: 1}}
		c.SysProcAttr.GidMappings = []syscall.SysProcIDMap{{HostID: os.Getgid(), Size: 1}}
	}
	out, err := c.CombinedOutput()
	var exit *exec.ExitError
	switch {
	case err != nil && !errors.As(err, &exit):
		t.Skipf("no network namespace for the test: %v", err)
	case err != nil:
		t.Errorf("%s", out)
	default:
		t.Logf("%s", out)
		if strings.Contains(string(out), "--- SKIP: "+t.Name()+" ") {
			t.SkipNow()
		}
	}
	return false
}

// world is a host, which is this process's own namespace, with the rest of the internet behind its interface up0.
type world struct {
	t        *testing.T
	internet *os.File
	links    *links
	boxes    int
}

const (
	hostAddr4, serverAddr4 = "203.0.113.1", "203.0.113.2"
	hostAddr6, serverAddr6 = "2001:db8:9::1", "2001:db8:9::2"
	metadata4, metadata6   = "169.254.169.254", "fd00:ec2::254"
)

func newWorld(t *testing.T) *world {
	t.Helper()
	w := &world{t: t, internet: namespace(t)}
	lo, err := netlink.LinkByName("lo")
	try(t, err)
	try(t, netlink.LinkSetUp(lo))
	up := &netlink.Veth{LinkAttrs: netlink.LinkAttrs{Name: "up0", TxQLen: -1}, PeerName: "up0", PeerNamespace: netlink.NsFd(w.internet.Fd()), PeerTxQLen: -1}
	try(t, netlink.LinkAdd(up))
	addresses(t, hostAddr4+"/24", hostAddr6+"/64")
	w.in(w.internet, func() {
		addresses(t, serverAddr4+"/24", serverAddr6+"/64", metadata4+"/32", metadata6+"/128")
		for _, back := range []struct{ to, via string }{{linkRange4.String(), hostAddr4}, {linkRange6.String(), hostAddr6}} {
			try(t, route(back.to, back.via))
		}
	})
	try(t, route("0.0.0.0/0", serverAddr4))
	try(t, route("::/0", serverAddr6))
	w.links, err = openLinks()
	try(t, err)
	t.Cleanup(func() { try(t, w.links.Close()) })
	try(t, errors.Join(w.links.forwarding(), w.links.forwarding6()))
	server := w.listen(w.internet)
	for start := time.Now(); time.Since(start) < 5*time.Second; { // neighbours are found after a second only
		if _, err := w.ask(nil, hurry, "udp", "", serverAddr6, server.port); err == nil {
			return w
		}
	}
	t.Fatal("the host does not reach the internet")
	return nil
}

func try(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// namespace makes a network namespace with loopback.
func namespace(t testing.TB) (ns *os.File) {
	t.Helper()
	try(t, onThread(func() error {
		if err := unix.Unshare(unix.CLONE_NEWNET); err != nil {
			return err
		}
		var err error
		if ns, err = os.Open("/proc/thread-self/ns/net"); err != nil {
			return err
		}
		lo, err := netlink.LinkByName("lo")
		if err != nil {
			return err
		}
		return netlink.LinkSetUp(lo)
	}))
	t.Cleanup(func() { ns.Close() })
	return ns
}

func addresses(t testing.TB, list ...string) {
	t.Helper()
	up, err := netlink.LinkByName("up0")
	try(t, err)
	for _, a := range list {
		try(t, netlink.AddrAdd(up, &netlink.Addr{IPNet: ipNet(netip.MustParsePrefix(a)), Flags: unix.IFA_F_NODAD}))
	}
	try(t, netlink.LinkSetUp(up))
}

func route(to, via string) error {
	return netlink.RouteAdd(&netlink.Route{Dst: ipNet(netip.MustParsePrefix(to)), Gw: net.ParseIP(via)})
}

// in calls f in a namespace, which may be nil for the host's.
func (w *world) in(ns *os.File, f func()) {
	w.t.Helper()
	if ns == nil {
		f()
		return
	}
	try(w.t, within(ns, func() error { f(); return nil }))
}

// box attaches a new box.
func (w *world) box(opened ...string) (*os.File, *link) {
	w.t.Helper()
	ns := namespace(w.t)
	w.boxes++
	l, err := w.links.attach(ns, LinkDescription{ID: fmt.Sprintf("%013d", w.boxes), IPv6: true, Opened: prefixes(opened...)})
	try(w.t, err)
	w.t.Cleanup(func() { try(w.t, l.Close()) })
	return ns, l
}

func (ls *links) forwarding() error { return afterwards(ls.forwardable(), forward4) }

func (ls *links) forwarding6() error { return afterwards(ls.forwardable6(), forward6) }

func afterwards(err error, name string) error {
	if err != nil {
		return err
	}
	return switchOn(name, true)
}
