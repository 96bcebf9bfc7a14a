package wire

import (
	"errors"
	"fmt"
	"io"
	"os"
	"time"

	"golang.org/x/sys/unix"
)

// maxNote is the longest note that may go with a connection.
const maxNote = 16 << 10

// ErrFull says that whoever is to take connections has not taken those that were passed before.
var ErrFull = errors.New("wire: too many connections wait to be taken")

// Relay returns the two ends of a channel by which one process passes accepted connections on to another, each with a note. Both are
// close-on-exec and the caller's to close.
func Relay() (to, from *os.File, err error) {
	fds, err := unix.Socketpair(unix.AF_UNIX, unix.SOCK_SEQPACKET|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return nil, nil, fmt.Errorf("wire: socketpair: %w", err)
	}
	return os.NewFile(uintptr(fds[0]), "relay"), os.NewFile(uintptr(fds[1]), "relay"), nil
}

// Pass passes a connection on, and never waits: ErrFull. The connection stays the caller's to close.
func Pass(to int, c *Conn, note []byte) error {
	if len(note) > maxNote {
		return fmt.Errorf("%w: a note of %d bytes", ErrProtocol, len(note))
	}
	for {
		// The first byte is there so that an empty note is no end of the stream.
		_, err := unix.SendmsgN(to, append([]byte{0}, note...), unix.UnixRights(c.fd), nil, unix.MSG_NOSIGNAL|unix.MSG_DONTWAIT)
		switch err {
		case nil:
			return nil
		case unix.EINTR:
		case unix.EAGAIN, unix.ETOOMANYREFS:
			return ErrFull
		default:
			return fmt.Errorf("wire: pass a connection on: %w", err)
		}
	}
}

// Take waits for a connection that was passed, for as long as wait says; nil without an error is that none came. io.EOF means that none will.
func Take(from int, wait time.Duration) (*Conn, []byte, error) {
	deadline := time.Now().Add(wait)
	for {
		left := max(time.Until(deadline), 0)
		n, err := unix.Poll([]unix.PollFd{{Fd: int32(from), Events: unix.POLLIN}}, int((left+time.Millisecond-1)/time.Millisecond))
		if err == unix.EINTR {
			continue
		}
		if err != nil {
			return nil, nil, fmt.Errorf("wire: wait for a connection: %w", err)
		}
		if n == 0 {
			return nil, nil, nil
		}
		data, oob := make([]byte, 1+maxNote), make([]byte, unix.CmsgSpace(4))
		n, oobn, flags, _, err := unix.Recvmsg(from, data, oob, unix.MSG_CMSG_CLOEXEC|unix.MSG_DONTWAIT)
		switch {
		case err == unix.EINTR || err == unix.EAGAIN:
			continue
		case err == unix.ECONNRESET:
			return nil, nil, io.EOF
		case err != nil:
			return nil, nil, fmt.Errorf("wire: take a connection: %w", err)
		case n == 0:
			return nil, nil, io.EOF
		}
		files, err := parseRights(oob[:oobn])
		if err != nil || len(files) != 1 || flags&(unix.MSG_CTRUNC|unix.MSG_TRUNC) != 0 {
			CloseAll(files)
			return nil, nil, fmt.Errorf("%w: no connection was passed", ErrProtocol)
		}
		c, err := polled(files[0])
		return c, data[1:n], err
	}
}

// Owner is the user that the socket's other end was connected by, or listened for it, as it was then (SO_PEERCRED of unix(7)).
func (c *Conn) Owner() (unix.Ucred, error) {
	cred, err := unix.GetsockoptUcred(c.fd, unix.SOL_SOCKET, unix.SO_PEERCRED)
	if err != nil {
		return unix.Ucred{}, fmt.Errorf("wire: who is at the other end: %w", err)
	}
	return *cred, nil
}

// SendNow is Send that does not wait for a peer who does not read: what does not fit is an error, and the connection of no use afterwards.
func (c *Conn) SendNow(v any) error {
	frame, err := encode(v)
	if err != nil {
		return err
	}
	c.sendMu.Lock()
	defer c.sendMu.Unlock()
	n, err := unix.SendmsgN(c.fd, frame, nil, nil, unix.MSG_NOSIGNAL|unix.MSG_DONTWAIT)
	if err == nil && n < len(frame) {
		err = unix.EAGAIN
	}
	if err != nil {
		return fmt.Errorf("wire: send: %w", err)
	}
	return nil
}
