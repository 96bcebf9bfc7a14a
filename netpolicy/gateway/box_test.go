package gateway

import (
	"fmt"
	"net"
	"net/netip"
	"os"
	"os/exec"
	"runtime"
	"slices"
	"sync"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"skillbox/netpolicy"
	"skillbox/policy"
)

// alone runs the rest of a test in a process whose network namespace leads nowhere: what a gateway dials must not leave this machine.
func alone(t *testing.T) bool {
	t.Helper()
	if os.Getenv("SKILLBOX_TEST_ALONE") != "" {
		return true
	}
	if os.Geteuid() != 0 {
		t.Skip("needs root: it makes network namespaces")
	}
	c := exec.Command("/proc/self/exe", "-test.run=^"+t.Name()+"$", "-test.v", fmt.Sprintf("-test.short=%v", testing.Short()))
	c.Env = append(os.Environ(), "SKILLBOX_TEST_ALONE=1")
	c.SysProcAttr = &syscall.SysProcAttr{Cloneflags: unix.CLONE_NEWNET, Pdeathsig: syscall.SIGKILL}
	if out, err := c.CombinedOutput(); err != nil {
		t.Errorf("%v\n%s", err, out)
	}
	return false
}

// box is a network with its gateway, as a box has them.
func box(t testing.TB, d netpolicy.Description) (*netpolicy.Handle, *Gateway) {
	t.Helper()
	h, err := netpolicy.Create(d)
	if err != nil {
		t.Fatal(err)
	}
	return h, Start(h, Options{Rules: d.Rules, Normalize: policy.NormalizeName, Budget: Budget{Bytes: 1 << 20, Connections: 10, Rate: 10}})
}

// inside runs f on a thread in the box's network namespace.
func inside(t testing.TB, h *netpolicy.Handle, f func()) {
	t.Helper()
	ns, err := os.Open(h.Path())
	if err != nil {
		t.Fatal(err)
	}
	defer ns.Close()
	done := make(chan error)
	go func() {
		runtime.LockOSThread() // never unlocked: the thread ends with the goroutine
		err := unix.Setns(int(ns.Fd()), unix.CLONE_NEWNET)
		defer func() { done <- err }() // also if f ends the goroutine
		if err == nil {
			f()
		}
	}()
	if err := <-done; err != nil {
		t.Fatal(err)
	}
}

// connect attempts a TCP connection, and waits until the other side ends it.
func connect(to netip.AddrPort) error {
	fd, err := unix.Socket(unix.AF_INET, unix.SOCK_STREAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return err
	}
	defer unix.Close(fd)
	if err := unix.Connect(fd, &unix.SockaddrInet4{Port: int(to.Port()), Addr: to.Addr().As4()}); err != nil {
		return err
	}
	_, err = unix.Read(fd, make([]byte, 1))
	return err
}

// Of a thousand boxes, 64 at a time, nothing is left in this process or in its network namespace. What is in theirs goes with these.
func TestManyBoxesLeaveNothing(t *testing.T) {
	if !alone(t) {
		return
	}
	n := 1000
	if testing.Short() {
		n = 50
	}
	for _, link := range []bool{false, true} {
		if link && os.Getenv("SKILLBOX_TEST_LINKS") == "" {
			n = min(n, 250) // links take 40 ms each at that rate
		}
		t.Run(fmt.Sprintf("link=%v", link), func(t *testing.T) { manyBoxes(t, n, link) })
	}
}

func manyBoxes(t *testing.T, n int, link bool) {
	rules := netpolicy.Compile([]netpolicy.Rule{{CIDRs: []netip.Prefix{netip.MustParsePrefix("93.0.0.0/16")}, Ports: []netpolicy.Ports{{From: 9, To: 9, Proto: "tcp"}}}}, nil)
	one := func(id int) {
		h, g := box(t, netpolicy.Description{
			Rules: rules, Link: link, ID: fmt.Sprintf("%013d", id), Limits: netpolicy.Limits{Bytes: 1 << 20, Connections: 10, Rate: 10},
		})
		inside(t, h, func() {
			// To nobody: this test's host has no way anywhere.
			if err := connect(netip.MustParseAddrPort("93.0.0.1:9")); err == nil || err == unix.ECONNREFUSED {
				t.Errorf("what a rule allows and nobody can reach: %v", err)
			}
			if err := connect(netip.MustParseAddrPort("93.1.0.1:9")); err != unix.ECONNREFUSED {
				t.Errorf("what no rule allows: %v", err)
			}
		})
		if err := g.Close(); err != nil {
			t.Error(err)
		}
		if err := h.Close(); err != nil {
			t.Error(err)
		}
		if r := g.Report(); len(r.Denials) != 1 || r.Totals.Connections != 1 {
			t.Errorf("report %+v", r)
		}
	}
	one(0)
	left := func() string {
		interfaces, err := net.Interfaces()
		if err != nil {
			t.Fatal(err)
		}
		return fmt.Sprint(runtime.NumGoroutine(), descriptors(t), len(interfaces))
	}
	await := func(want string) (now string) {
		for began := time.Now(); time.Since(began) < time.Minute; time.Sleep(20 * time.Millisecond) {
			if now = left(); now == want {
				break
			}
		}
		return now
	}
	time.Sleep(200 * time.Millisecond) // the first one's interfaces go when the kernel comes to it
	before := left()
	var wg sync.WaitGroup
	tokens := make(chan struct{}, 64)
	for id := range n {
		wg.Add(1)
		tokens <- struct{}{}
		go func() {
			defer wg.Done()
			defer func() { <-tokens }()
			one(id + 1)
		}()
	}
	wg.Wait()
	if now := await(before); now != before {
		stacks := make([]byte, 1<<16)
		t.Errorf("goroutines, descriptors and interfaces are %s, and were %s\n%s", now, before, stacks[:runtime.Stack(stacks, true)])
	}
}

func descriptors(t *testing.T) (open []string) {
	t.Helper()
	entries, err := os.ReadDir("/proc/self/fd")
	if err != nil {
		t.Fatal(err)
	}
	for _, e := range entries {
		target, _ := os.Readlink(fmt.Sprintf("/proc/self/fd/%s", e.Name()))
		open = append(open, target)
	}
	slices.Sort(open)
	return open
}
