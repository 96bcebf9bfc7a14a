package netpolicy

import (
	"fmt"
	"os"

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
