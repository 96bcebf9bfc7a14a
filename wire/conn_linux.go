package wire

import (
	"bytes"
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"sync"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

// Conn is one end of a unix stream socket. Send may be used by several goroutines, Receive by one.
type Conn struct {
	fd     int
	sendMu sync.Mutex

	// Nil where a wait blocks the thread. Otherwise the Go runtime waits: while threads block in system calls it looks every 20 us whether
	// others have work, for milliseconds, which costs short programs and calls more than all the rest.
	file          *os.File
	raw           syscall.RawConn
	receive, send time.Duration // see Bound
}

// polled takes over a socket whose open file description nobody else has.
func polled(fd int) (*Conn, error) {
	err := unix.SetNonblock(fd, true)
	if err != nil {
		unix.Close(fd)
		return nil, fmt.Errorf("wire: %w", err)
	}
	c := &Conn{fd: fd, file: os.NewFile(uintptr(fd), "wire")}
	if c.raw, err = c.file.SyscallConn(); err != nil {
		return nil, errors.Join(fmt.Errorf("wire: %w", err), c.file.Close())
	}
	return c, nil
}

// Pair returns two connected sockets, both close-on-exec: one for us, one to hand to a child.
func Pair() (*Conn, *os.File, error) {
	fds, err := unix.Socketpair(unix.AF_UNIX, unix.SOCK_STREAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return nil, nil, fmt.Errorf("wire: socketpair: %w", err)
	}
	theirs := os.NewFile(uintptr(fds[1]), "wire")
	ours, err := polled(fds[0])
	if err != nil {
		return nil, nil, errors.Join(err, theirs.Close())
	}
	return ours, theirs, nil
}

// FromFD takes over an inherited blocking socket, and leaves it so.
func FromFD(fd int) *Conn {
	unix.CloseOnExec(fd)
	return &Conn{fd: fd}
}

// Close closes the socket; the peer sees the end of the stream. It does not wake a Receive in progress: Shutdown does.
func (c *Conn) Close() error {
	if c.file != nil {
		return c.file.Close()
	}
	return unix.Close(c.fd)
}

// Shutdown ends both directions, which makes a Receive in progress, here or at the peer, return io.EOF.
func (c *Conn) Shutdown() error { return unix.Shutdown(c.fd, unix.SHUT_RDWR) }

// StopReading makes a Receive in progress return io.EOF. What is sent still arrives.
func (c *Conn) StopReading() error { return unix.Shutdown(c.fd, unix.SHUT_RD) }

// FD is the socket's number, for polling.
func (c *Conn) FD() int { return c.fd }

// Send writes one message. The descriptors stay the caller's.
func (c *Conn) Send(v any, files ...int) error {
	frame, err := encode(v)
	if err != nil {
		return err
	}
	if len(files) > MaxFiles {
		return fmt.Errorf("%w: message with %d descriptors is above the limit of %d", ErrProtocol, len(files), MaxFiles)
	}
	var rights []byte
	if len(files) > 0 {
		rights = unix.UnixRights(files...)
	}
	c.sendMu.Lock()
	defer c.sendMu.Unlock()
	if c.file != nil {
		if err := c.file.SetWriteDeadline(deadline(c.send)); err != nil {
			return fmt.Errorf("wire: send: %w", err)
		}
	}
	for len(frame) > 0 {
		var n int
		err := c.ready(syscall.RawConn.Write, func() (err error) {
			n, err = unix.SendmsgN(c.fd, frame, rights, nil, unix.MSG_NOSIGNAL)
			return err
		})
		if err != nil {
			return fmt.Errorf("wire: send: %w", err)
		}
		frame, rights = frame[n:], nil
	}
	return nil
}

// deadline of something that may take so long; 0 is for ever.
func deadline(d time.Duration) time.Time {
	if d == 0 {
		return time.Time{}
	}
	return time.Now().Add(d)
}

// ready makes a system call, in one direction, as soon as it would not wait.
func (c *Conn) ready(direction func(syscall.RawConn, func(uintptr) bool) error, call func() error) (err error) {
	uninterrupted := func() error {
		for {
			if err := call(); err != unix.EINTR {
				return err
			}
		}
	}
	if c.raw == nil {
		return uninterrupted()
	}
	if waited := direction(c.raw, func(uintptr) bool { err = uninterrupted(); return err != unix.EAGAIN }); waited != nil {
		return waited
	}
	return err
}

// encode puts a message into a frame.
// Frame is a message as Send would send it, for who has to make the system call itself.
func Frame(v any) ([]byte, error) { return encode(v) }

func encode(v any) ([]byte, error) {
	// Not json.Marshal: for HTML's sake it writes each < as six bytes, so that a skill could make its result outgrow a frame.
	var encoded bytes.Buffer
	encoder := json.NewEncoder(&encoded)
	encoder.SetEscapeHTML(false)
	if err := encoder.Encode(v); err != nil {
		return nil, fmt.Errorf("wire: encode: %w", err)
	}
	body := bytes.TrimSuffix(encoded.Bytes(), []byte("\n"))
	if len(body) > MaxFrame {
		return nil, fmt.Errorf("%w: message of %d bytes is above the limit of %d", ErrProtocol, len(body), MaxFrame)
	}
	frame := make([]byte, headerSize, headerSize+len(body))
	copy(frame, magic)
	binary.BigEndian.PutUint32(frame[4:], uint32(len(body)))
	return append(frame, body...), nil
}

// Receive reads one message into v and returns the descriptors that came with it, close-on-exec and the caller's to close. They are
// plain numbers because an os.File may change O_NONBLOCK, which the descriptor shares with whoever sent it.
// io.EOF means that the peer closed between messages.
func (c *Conn) Receive(v any) ([]int, error) {
	if c.file != nil {
		if err := c.file.SetReadDeadline(deadline(c.receive)); err != nil {
			return nil, fmt.Errorf("wire: receive: %w", err)
		}
	}
	var header [headerSize]byte
	files, err := c.readHeader(header[:])
	if err != nil {
		return nil, err
	}
	length := binary.BigEndian.Uint32(header[4:])
	if string(header[:4]) != magic || length > MaxFrame {
		CloseAll(files)
		return nil, fmt.Errorf("%w: bad header %q", ErrProtocol, header[:])
	}
	body := make([]byte, length)
	if _, err := io.ReadFull(reader{c}, body); err != nil {
		CloseAll(files)
		return nil, fmt.Errorf("%w: message cut short: %w", ErrProtocol, err)
	}
	if err := json.Unmarshal(body, v); err != nil {
		CloseAll(files)
		return nil, fmt.Errorf("%w: %w", ErrProtocol, err)
	}
	return files, nil
}

// readHeader reads the eight header bytes; descriptors may only come with the first of them.
func (c *Conn) readHeader(header []byte) ([]int, error) {
	oob := make([]byte, unix.CmsgSpace(MaxFiles*4))
	n, oobn, flags, err := c.recvmsg(header, oob)
	if err != nil {
		return nil, fmt.Errorf("wire: receive: %w", err)
	}
	files, err := parseRights(oob[:oobn])
	if err != nil || flags&unix.MSG_CTRUNC != 0 {
		CloseAll(files)
		return nil, fmt.Errorf("%w: descriptors truncated or malformed", ErrProtocol)
	}
	if n == 0 {
		CloseAll(files)
		return nil, io.EOF
	}
	if _, err := io.ReadFull(reader{c}, header[n:]); err != nil {
		CloseAll(files)
		return nil, fmt.Errorf("%w: header cut short: %w", ErrProtocol, err)
	}
	return files, nil
}

func (c *Conn) recvmsg(p, oob []byte) (n, oobn, flags int, err error) {
	err = c.ready(syscall.RawConn.Read, func() (err error) {
		n, oobn, flags, _, err = unix.Recvmsg(c.fd, p, oob, unix.MSG_CMSG_CLOEXEC)
		return err
	})
	return n, oobn, flags, err
}

// reader reads a frame's body; descriptors are not accepted there (the kernel drops what no buffer was given for).
type reader struct{ c *Conn }

func (r reader) Read(p []byte) (n int, err error) {
	err = r.c.ready(syscall.RawConn.Read, func() (err error) {
		n, err = unix.Read(r.c.fd, p)
		return err
	})
	switch {
	case err != nil:
		return 0, err
	case n == 0:
		return 0, io.EOF
	}
	return n, nil
}

func parseRights(oob []byte) ([]int, error) {
	if len(oob) == 0 {
		return nil, nil
	}
	messages, err := unix.ParseSocketControlMessage(oob)
	if err != nil {
		return nil, err
	}
	var files []int
	for i := range messages {
		fds, err := unix.ParseUnixRights(&messages[i])
		if err != nil {
			return files, err
		}
		files = append(files, fds...)
	}
	return files, nil
}

// CloseAll closes received descriptors that nobody wants.
func CloseAll(files []int) {
	for _, fd := range files {
		unix.Close(fd)
	}
}
