package netpolicy

import (
	"fmt"
	"os"
	"runtime"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"
)

// Handle is a box's network.
type Handle struct{ ns *os.File }

// Path is how another process of our pid namespace joins the network namespace.
func (h *Handle) Path() string { return fmt.Sprintf("/proc/%d/fd/%d", os.Getpid(), h.ns.Fd()) }

// Close gives the namespace up; the kernel frees it with the last process in it.
func (h *Handle) Close() error { return h.ns.Close() }

// Create makes the namespace on a thread that ends with it, and brings loopback up.
func Create(Description) (*Handle, error) {
	type answer struct {
		h   *Handle
		err error
	}
	done := make(chan answer)
	go func() {
		runtime.LockOSThread() // never unlocked: a thread that left the process's namespace must not run anything else
		h, err := create()
		done <- answer{h, err}
	}()
	a := <-done
	return a.h, a.err
}

func create() (*Handle, error) {
	if err := unix.Unshare(unix.CLONE_NEWNET); err != nil {
		return nil, fmt.Errorf("netpolicy: new network namespace: %w", err)
	}
	ns, err := os.Open("/proc/thread-self/ns/net")
	if err != nil {
		return nil, fmt.Errorf("netpolicy: %w", err)
	}
	lo, err := netlink.LinkByName("lo")
	if err == nil {
		err = netlink.LinkSetUp(lo)
	}
	if err != nil {
		ns.Close()
		return nil, fmt.Errorf("netpolicy: bring loopback up: %w", err)
	}
	return &Handle{ns}, nil
}
