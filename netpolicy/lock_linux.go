package netpolicy

import (
	"fmt"
	"os"
	"time"

	"golang.org/x/sys/unix"
)

// take locks a name among all processes of the calling thread's network namespace: an abstract socket, which the kernel frees whatever
// happens to us, and which pid and mount namespaces do not hide. The file is nil if somebody else has it.
func take(name string) (*os.File, error) {
	fd, err := unix.Socket(unix.AF_UNIX, unix.SOCK_DGRAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return nil, fmt.Errorf("netpolicy: lock %s: %w", name, err)
	}
	switch err := unix.Bind(fd, &unix.SockaddrUnix{Name: "@skillbox/" + name}); err {
	case nil:
		return os.NewFile(uintptr(fd), name), nil
	case unix.EADDRINUSE:
		return nil, unix.Close(fd)
	default:
		unix.Close(fd)
		return nil, fmt.Errorf("netpolicy: lock %s: %w", name, err)
	}
}

// takeTurn lets those who make links in the calling thread's network namespace do so one after the other, until the file is closed: they
// would all the same, for the kernel has one lock for it, but that does not care who came first, and of many some waited for half a
// minute. Nothing depends on it, so that nobody waits long for a process that is stopped, nor for one that has no business to hold it: every
// user may lock that file.
func takeTurn() (*os.File, error) {
	ns, err := os.Open("/proc/thread-self/ns/net")
	if err != nil {
		return nil, fmt.Errorf("netpolicy: %w", err)
	}
	for began := time.Now(); time.Since(began) < turnTime; time.Sleep(time.Millisecond) {
		if err := unix.Flock(int(ns.Fd()), unix.LOCK_EX|unix.LOCK_NB); err != unix.EWOULDBLOCK && err != unix.EINTR {
			return ns, nil // or the kernel has no such locks there
		}
	}
	return ns, nil
}

const turnTime = 2 * time.Second
