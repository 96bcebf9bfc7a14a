// skillboxd does what needs privilege, or a user namespace of its own: it is started by skillbox with a socket as descriptor 3.
package main

import (
	"errors"
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
	var err error
	switch {
	case len(os.Args) == 2 && os.Args[1] == "oneshot":
		err = oneShot()
	case len(os.Args) == 5 && os.Args[1] == "user":
		err = user(os.Args[2], os.Args[3], os.Args[4])
	case len(os.Args) >= 2 && os.Args[1] == "system":
		err = system(os.Args[2:])
	case len(os.Args) == 3 && os.Args[1] == "worker":
		err = worker(os.Args[2])
	default:
		err = errors.New("started by skillbox, not by hand")
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, "skillboxd:", err)
		os.Exit(125)
	}
}

// oneShot serves the one connection that is descriptor 3.
func oneShot() error {
	// Its heap does not live long enough for a collection to pay; a skill that keeps it busy is bounded all the same.
	debug.SetGCPercent(-1)
	debug.SetMemoryLimit(64 << 20)
	if err := leanBoxes(); err != nil {
		return err
	}
	conn := wire.FromFD(3)
	host := make(chan *sandbox.Host, 1)
	var entering atomic.Bool
	var audit server.Audit
	go followClient(conn.FD(), &entering, host, &audit)
	err := server.Serve(conn, server.Options{OneShot: true, Audit: &audit, Enter: func() (*sandbox.Host, error) {
		entering.Store(true)
		h, err := enter(false)
		host <- h
		return h, err
	}})
	return errors.Join(err, audit.Close())
}

// leanBoxes sets what the first stage of a box inherits from us: one thread is enough for it.
func leanBoxes() error { return os.Setenv("GOMAXPROCS", "1") }

// enterTime is how long a dead client's skillboxd may take to get to where it can take away what it has made.
const enterTime = 10 * time.Second

// followClient ends this process, and with it as pid 1 everything below, when the client is gone: whatever else is being waited
// for, such as a policy from a FIFO that nobody writes or a file system that does not answer. Control groups would stay.
func followClient(socket int, entering *atomic.Bool, host <-chan *sandbox.Host, audit *server.Audit) {
	for {
		// POLLHUP and POLLERR are always reported (poll(2)).
		_, err := unix.Poll([]unix.PollFd{{Fd: int32(socket), Events: unix.POLLRDHUP}}, -1)
		if err != unix.EINTR {
			_ = audit.CloseNow() // nobody is left to be told; the next one signs what is not signed
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
func enter(lasts bool) (*sandbox.Host, error) {
	// EPERM: with a single id setgroups is denied for good (user_namespaces(7)); the box's report then shows them.
	if err := unix.Setgroups(nil); err != nil && err != unix.EPERM {
		return nil, fmt.Errorf("skillboxd: drop groups: %w", err)
	}
	return sandbox.Enter(lasts)
}
