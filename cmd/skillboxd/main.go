// skillboxd does what needs privilege, or a user namespace of its own: it is started by skillbox with a socket as descriptor 3.
package main

import (
	"fmt"
	"os"
	"runtime/debug"
	"sync/atomic"
	"time"

	"golang.org/x/sys/unix"

	"skillbox/helper/server"
	"skillbox/nsjail"
	"skillbox/sandbox"
	"skillbox/wire"
)

// version is set by the linker.
var version = "dev"

func main() {
	nsjail.Init()
	if len(os.Args) == 2 && os.Args[1] == "version" {
		fmt.Println(version)
		return
	}
	if len(os.Args) != 2 || os.Args[1] != "oneshot" {
		fmt.Fprintln(os.Stderr, "skillboxd: started by skillbox, not by hand")
		os.Exit(125)
	}
	// A one-shot's heap does not live long enough for a collection to pay; a skill that keeps it busy is bounded all the same.
	debug.SetGCPercent(-1)
	debug.SetMemoryLimit(64 << 20)
	// For the first stage of the box, which runs on one thread anyway.
	if err := os.Setenv("GOMAXPROCS", "1"); err != nil {
		fmt.Fprintln(os.Stderr, "skillboxd:", err)
		os.Exit(125)
	}
	conn := wire.FromFD(3)
	host := make(chan *sandbox.Host, 1)
	var entering atomic.Bool
	go followClient(conn.FD(), &entering, host)
	enter := func() (*sandbox.Host, error) {
		entering.Store(true)
		h, err := enter()
		host <- h
		return h, err
	}
	if err := server.Serve(conn, server.Options{Enter: enter, OneShot: true}); err != nil {
		fmt.Fprintln(os.Stderr, "skillboxd:", err)
		os.Exit(125)
	}
}

// enterTime is how long a dead client's skillboxd may take to get to where it can take away what it has made.
const enterTime = 10 * time.Second

// followClient ends this process, and with it as pid 1 everything below, when the client is gone: whatever else is being waited
// for, such as a policy from a FIFO that nobody writes or a file system that does not answer. Control groups would stay.
func followClient(socket int, entering *atomic.Bool, host <-chan *sandbox.Host) {
	for {
		// POLLHUP and POLLERR are always reported (poll(2)).
		_, err := unix.Poll([]unix.PollFd{{Fd: int32(socket), Events: unix.POLLRDHUP}}, -1)
		if err != unix.EINTR {
			if entering.Load() {
				select {
				case h := <-host:
					if h != nil {
						_ = h.Close() // nobody is left to be told; the next skillboxd sweeps
					}
				case <-time.After(enterTime):
				}
			}
			os.Exit(125)
		}
	}
}

// enter gives up the caller's groups, where the kernel lets us, before the namespace is made ours.
func enter() (*sandbox.Host, error) {
	// EPERM: with a single id setgroups is denied for good (user_namespaces(7)); the box's report then shows them.
	if err := unix.Setgroups(nil); err != nil && err != unix.EPERM {
		return nil, fmt.Errorf("skillboxd: drop groups: %w", err)
	}
	return sandbox.Enter()
}
