package boxinit

import (
	"errors"
	"net/netip"

	"golang.org/x/sys/unix"
)

// refusalTime is how long a refusal may take, in milliseconds. It comes in the same moment, unless the machine is so busy that its loopback
// drops the answer: then after the kernel has tried again, 1 s and 3 s later.
const refusalTime = 5000

// tryNetwork attempts to reach addresses by TCP and UDP.
func tryNetwork(addrs []netip.Addr) map[string]string {
	answers := map[string]string{}
	for _, a := range addrs {
		family, digit := unix.AF_INET6, "6"
		var to unix.Sockaddr = &unix.SockaddrInet6{Port: 1, Addr: a.As16()}
		if a.Is4() {
			family, digit, to = unix.AF_INET, "4", &unix.SockaddrInet4{Port: 1, Addr: a.As4()}
		}
		answers["tcp"+digit] = tryConnect(family, unix.SOCK_STREAM, to)
		answers["udp"+digit] = tryConnect(family, unix.SOCK_DGRAM, to)
	}
	return answers
}

// tryConnect answers with the errno's name, "reached" or "silence".
func tryConnect(family, kind int, to unix.Sockaddr) string {
	name := func(err error) string {
		var errno unix.Errno
		if errors.As(err, &errno) {
			return unix.ErrnoName(errno)
		}
		return err.Error()
	}
	fd, err := unix.Socket(family, kind|unix.SOCK_NONBLOCK|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return name(err)
	}
	defer unix.Close(fd)
	err = unix.Connect(fd, to)
	if kind == unix.SOCK_DGRAM && err == nil {
		_, err = unix.Write(fd, []byte{0})
	}
	if err == unix.EINPROGRESS {
		n, errPoll := unix.Poll([]unix.PollFd{{Fd: int32(fd), Events: unix.POLLOUT}}, refusalTime)
		for errPoll == unix.EINTR {
			n, errPoll = unix.Poll([]unix.PollFd{{Fd: int32(fd), Events: unix.POLLOUT}}, refusalTime)
		}
		if errPoll != nil {
			return name(errPoll)
		}
		if n == 0 {
			return "silence"
		}
		code, errOption := unix.GetsockoptInt(fd, unix.SOL_SOCKET, unix.SO_ERROR)
		if errOption != nil {
			return name(errOption)
		}
		if err = nil; code != 0 {
			err = unix.Errno(code)
		}
	}
	if err == nil {
		return "reached"
	}
	return name(err)
}
