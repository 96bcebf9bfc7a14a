package client

import (
	"errors"
	"fmt"
	"net/netip"
	"os"
	"path/filepath"
	"strings"

	"golang.org/x/sys/unix"

	"skillbox/helper"
)

// Listener is a socket at which a port of a box is to be reached. It listens from the start; a connection that comes before the skill does
// waits.
type Listener struct {
	Port    string   // its number or its name, as the policy has it
	Address string   // where it can be connected to: the path of a unix socket, or "127.0.0.1:40123"
	Socket  *os.File // it listens

	dir      *os.File // of a unix socket; nil of TCP's
	dev, ino uint64
}

// backlog is how many connections may wait.
const backlog = 128

// Listen makes a socket, with the rights of the process: at a path, which nobody but its user may then connect to, or at a loopback address,
// where every process of the machine may; its port 0 is one that is free. A socket that a dead process has left at the path is replaced.
func Listen(port, at string) (*Listener, error) {
	if to, err := netip.ParseAddrPort(at); err == nil {
		return listenTCP(port, to)
	}
	if !strings.Contains(at, "/") {
		return nil, &helper.Error{Message: fmt.Sprintf("--publish %s=%s: %q is neither an address nor a path", port, at, at), Hint: "8080=127.0.0.1:0, or 8080=./socket"}
	}
	return listenUnix(port, at)
}

func listenTCP(port string, to netip.AddrPort) (*Listener, error) {
	host := to.Addr()
	if !host.IsLoopback() || host.Zone() != "" || host.Is4In6() {
		return nil, &helper.Error{Message: fmt.Sprintf("--publish %s=%s: a port is published at loopback only", port, to), Hint: "127.0.0.1:0, or the path of a unix socket; what others may reach belongs behind a server of your own"}
	}
	family, address := unix.AF_INET6, unix.Sockaddr(&unix.SockaddrInet6{Port: int(to.Port()), Addr: host.As16()})
	if host.Is4() {
		family, address = unix.AF_INET, &unix.SockaddrInet4{Port: int(to.Port()), Addr: host.As4()}
	}
	fd, err := listening(family, address, func(fd int) error { return unix.SetsockoptInt(fd, unix.SOL_SOCKET, unix.SO_REUSEADDR, 1) })
	if err != nil {
		return nil, fmt.Errorf("--publish %s=%s: %w", port, to, err)
	}
	bound, err := unix.Getsockname(fd)
	if err != nil {
		return nil, errors.Join(fmt.Errorf("--publish %s=%s: %w", port, to, err), unix.Close(fd))
	}
	number := 0
	switch bound := bound.(type) {
	case *unix.SockaddrInet4:
		number = bound.Port
	case *unix.SockaddrInet6:
		number = bound.Port
	}
	at := netip.AddrPortFrom(host, uint16(number)).String()
	return &Listener{Port: port, Address: at, Socket: os.NewFile(uintptr(fd), at)}, nil
}

// listening makes a socket that listens; before is what is done before it has an address.
func listening(family int, address unix.Sockaddr, before func(fd int) error) (int, error) {
	fd, err := unix.Socket(family, unix.SOCK_STREAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return -1, err
	}
	if err = before(fd); err == nil {
		err = unix.Bind(fd, address)
	}
	if err == nil {
		err = unix.Listen(fd, backlog)
	}
	if err != nil {
		return -1, errors.Join(err, unix.Close(fd))
	}
	return fd, nil
}

func listenUnix(port, at string) (_ *Listener, err error) {
	path, err := filepath.Abs(at)
	if err != nil {
		return nil, err
	}
	l := &Listener{Port: port, Address: path}
	defer func() {
		if err != nil {
			err = errors.Join(fmt.Errorf("--publish %s=%s: %w", port, at, err), l.Close())
		}
	}()
	dir, err := unix.Open(filepath.Dir(path), unix.O_RDONLY|unix.O_DIRECTORY|unix.O_CLOEXEC, 0)
	if err != nil {
		return nil, err
	}
	l.dir = os.NewFile(uintptr(dir), filepath.Dir(path))
	// By way of the directory: a path of a socket is 107 bytes at most, and should be in the directory that is passed on.
	address := &unix.SockaddrUnix{Name: fmt.Sprintf("/proc/self/fd/%d/%s", dir, filepath.Base(path))}
	if err := removeDead(dir, filepath.Base(path), address); err != nil {
		return nil, err
	}
	// A socket gets the mode that it has before it is bound: at no moment may others connect.
	fd, err := listening(unix.AF_UNIX, address, func(fd int) error { return unix.Fchmod(fd, 0o600) })
	if err != nil {
		return nil, err
	}
	l.Socket = os.NewFile(uintptr(fd), path)
	var st unix.Stat_t
	if err := unix.Fstatat(dir, filepath.Base(path), &st, unix.AT_SYMLINK_NOFOLLOW); err != nil {
		return nil, err
	}
	l.dev, l.ino = st.Dev, st.Ino
	return l, nil
}

// removeDead takes away a socket of ours at which nobody listens: who made it was killed.
func removeDead(dir int, name string, address *unix.SockaddrUnix) error {
	var st unix.Stat_t
	err := unix.Fstatat(dir, name, &st, unix.AT_SYMLINK_NOFOLLOW)
	switch {
	case err == unix.ENOENT:
		return nil
	case err != nil:
		return err
	case st.Mode&unix.S_IFMT != unix.S_IFSOCK || st.Uid != uint32(os.Geteuid()):
		return errors.New("there is something else at the path")
	}
	fd, err := unix.Socket(unix.AF_UNIX, unix.SOCK_STREAM|unix.SOCK_CLOEXEC|unix.SOCK_NONBLOCK, 0)
	if err != nil {
		return err
	}
	err = unix.Connect(fd, address)
	unix.Close(fd)
	if err != unix.ECONNREFUSED {
		return errors.New("somebody listens at the path already")
	}
	return unix.Unlinkat(dir, name, 0)
}

// Close ends the socket, and removes its file if it is still there.
func (l *Listener) Close() error {
	if l == nil {
		return nil
	}
	var errs []error
	if l.Socket != nil {
		errs = append(errs, l.Socket.Close())
	}
	if l.dir != nil {
		var st unix.Stat_t
		name := filepath.Base(l.Address)
		if unix.Fstatat(int(l.dir.Fd()), name, &st, unix.AT_SYMLINK_NOFOLLOW) == nil && l.ino != 0 && st.Dev == l.dev && st.Ino == l.ino {
			if err := unix.Unlinkat(int(l.dir.Fd()), name, 0); err != nil && err != unix.ENOENT {
				errs = append(errs, err)
			}
		}
		errs = append(errs, l.dir.Close())
	}
	return errors.Join(errs...)
}

// Leave closes what the process has of the socket, whose file stays: it is a session's now.
func (l *Listener) Leave() error {
	l.ino = 0
	return l.Close()
}

// Pass adds the socket to a request and its descriptors.
func (l *Listener) Pass(r *helper.Request, fds []int) []int {
	p := helper.Publish{Port: l.Port, Address: l.Address}
	r.Files, fds = append(r.Files, "listener"), append(fds, int(l.Socket.Fd()))
	if l.dir != nil {
		p.Socket = filepath.Base(l.Address)
		r.Files, fds = append(r.Files, "socket-dir"), append(fds, int(l.dir.Fd()))
	}
	r.Publish = append(r.Publish, p)
	return fds
}
