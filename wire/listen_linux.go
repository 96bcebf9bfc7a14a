package wire

import (
	"errors"
	"fmt"
	"os"
	"time"

	"golang.org/x/sys/unix"
)

// backlog is how many connections wait to be accepted, and backlogOfAll where every user may connect; who comes then waits in connect.
const backlog, backlogOfAll = 128, 4096

// Listen makes a socket that only its owner may connect with. The file is close-on-exec and the caller's to close; the socket's name stays.
func Listen(path string) (*os.File, error) { return listen(path, 0o600, backlog) }

// ListenToAll makes a socket that every user may connect with.
func ListenToAll(path string) (*os.File, error) {
	// Whoever makes it for everybody has no other files to make meanwhile.
	defer unix.Umask(unix.Umask(0))
	return listen(path, 0o666, backlogOfAll)
}

func listen(path string, mode uint32, backlog int) (*os.File, error) {
	fd, err := unix.Socket(unix.AF_UNIX, unix.SOCK_STREAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return nil, fmt.Errorf("wire: socket: %w", err)
	}
	l := os.NewFile(uintptr(fd), path)
	// Before the name is there: what bind makes has the socket's own mode, less the umask (unix(7)).
	err = unix.Fchmod(fd, mode)
	if err == nil {
		err = unix.Bind(fd, &unix.SockaddrUnix{Name: path})
	}
	if err == nil {
		err = unix.Listen(fd, backlog)
	}
	if err != nil {
		return nil, errors.Join(fmt.Errorf("wire: listen: %w", err), l.Close())
	}
	return l, nil
}

// Dial connects with a listening socket.
func Dial(path string) (*Conn, error) {
	fd, err := unix.Socket(unix.AF_UNIX, unix.SOCK_STREAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return nil, fmt.Errorf("wire: socket: %w", err)
	}
	for {
		if err = unix.Connect(fd, &unix.SockaddrUnix{Name: path}); err != unix.EINTR {
			break
		}
	}
	if err != nil {
		unix.Close(fd)
		return nil, fmt.Errorf("wire: connect: %w", err)
	}
	return polled(fd)
}

// Accept waits for a connection with a listening socket, for as long as wait says; nil without an error is that none came. Who
// connected is as it was then, and a pid of 0 is of a process that this pid namespace does not see (SO_PEERCRED of unix(7)).
func Accept(listening int, wait time.Duration) (c *Conn, who unix.Ucred, err error) {
	deadline := time.Now().Add(wait)
	for {
		left := max(time.Until(deadline), 0)
		n, err := unix.Poll([]unix.PollFd{{Fd: int32(listening), Events: unix.POLLIN}}, int((left+time.Millisecond-1)/time.Millisecond))
		if err == unix.EINTR {
			continue
		}
		if err != nil {
			return nil, who, fmt.Errorf("wire: wait for a connection: %w", err)
		}
		if n == 0 {
			return nil, who, nil
		}
		fd, _, err := unix.Accept4(listening, unix.SOCK_CLOEXEC)
		if err == unix.EINTR || err == unix.ECONNABORTED {
			continue
		}
		if err == unix.EINVAL { // Refuse was called, and who came before was accepted
			return nil, who, nil
		}
		if err != nil {
			return nil, who, fmt.Errorf("wire: accept: %w", err)
		}
		cred, err := unix.GetsockoptUcred(fd, unix.SOL_SOCKET, unix.SO_PEERCRED)
		if err != nil {
			unix.Close(fd)
			return nil, who, fmt.Errorf("wire: who connected: %w", err)
		}
		c, err := polled(fd)
		return c, *cred, err
	}
}

// Refuse lets every later connect fail with ECONNREFUSED. Who has connected before can still be accepted.
func Refuse(listening int) error {
	if err := unix.Shutdown(listening, unix.SHUT_RD); err != nil {
		return fmt.Errorf("wire: refuse connections: %w", err)
	}
	return nil
}

// Bound lets a Receive fail that takes longer, whatever the peer says meanwhile, and a Send to one who does not read; zero is for ever. It is
// for later calls. Where the thread waits, each system call has that time.
func (c *Conn) Bound(receive, send time.Duration) error {
	if c.file != nil {
		c.receive, c.send = receive, send
		return nil
	}
	for option, d := range map[int]time.Duration{unix.SO_RCVTIMEO: receive, unix.SO_SNDTIMEO: send} {
		tv := unix.NsecToTimeval(d.Nanoseconds())
		if err := unix.SetsockoptTimeval(c.fd, unix.SOL_SOCKET, option, &tv); err != nil {
			return fmt.Errorf("wire: time-out: %w", err)
		}
	}
	return nil
}
