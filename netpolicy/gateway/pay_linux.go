package gateway

import (
	"errors"
	"fmt"
	"io"
	"net"
	"sync"
	"syscall"

	"golang.org/x/sys/unix"
)

// socket is an end of a connection: of TCP or a unix one.
type socket interface {
	net.Conn
	syscall.Conn
	CloseWrite() error
}

// payer writes to one end of a connection, and takes what it writes from the box's budget.
type payer struct {
	to    socket
	left  *budget
	pipes *pipePool
	count *int64
}

func (p *payer) Write(data []byte) (n int, err error) {
	if p.left.bytes.Add(-int64(len(data))) < 0 && len(data) > 0 {
		return 0, refuse("%w", p.left.overBytes())
	}
	n, err = p.to.Write(data)
	*p.count += int64(n)
	return n, err
}

// pipeSize is what a pipe between two sockets is asked to hold, and pipes how many of them a box has. The kernel counts them for the user,
// whose other programs get small ones above fs.pipe-user-pages-soft (64 MiB): so a connection has one only as long as something is in it,
// and where all are taken, bytes are copied.
const pipeSize, pipes, copySize = 1 << 20, 4, 16 << 10

type pipe struct{ r, w, size int }

func newPipe() (*pipe, error) {
	var ends [2]int
	if err := unix.Pipe2(ends[:], unix.O_CLOEXEC|unix.O_NONBLOCK); err != nil {
		return nil, fmt.Errorf("make a pipe for a connection: %w", err)
	}
	size, err := unix.FcntlInt(uintptr(ends[1]), unix.F_SETPIPE_SZ, pipeSize)
	if err != nil {
		size = 64 << 10
	}
	return &pipe{ends[0], ends[1], size}, nil
}

func (p *pipe) Close() error { return errors.Join(unix.Close(p.r), unix.Close(p.w)) }

// pipePool lends empty pipes.
type pipePool struct {
	mu   sync.Mutex
	free []*pipe
	lent int
}

// take returns nil where none is left.
func (l *pipePool) take() (*pipe, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.lent >= pipes {
		return nil, nil
	}
	l.lent++
	if n := len(l.free); n > 0 {
		p := l.free[n-1]
		l.free = l.free[:n-1]
		return p, nil
	}
	p, err := newPipe()
	if err != nil {
		l.lent--
	}
	return p, err
}

// give takes a pipe back, which is closed unless it is empty.
func (l *pipePool) give(p *pipe, empty bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.lent--
	if empty {
		l.free = append(l.free, p)
	} else {
		p.Close()
	}
}

func (l *pipePool) Close() error {
	l.mu.Lock()
	defer l.mu.Unlock()
	var errs []error
	for _, p := range l.free {
		errs = append(errs, p.Close())
	}
	l.free = nil
	return errors.Join(errs...)
}

// splice passes on what another end sends, to its end, without copying it into this process (splice(2)) while there are pipes.
func (p *payer) splice(from socket) error {
	source, err := from.SyscallConn()
	if err != nil {
		return err
	}
	sink, err := p.to.SyscallConn()
	if err != nil {
		return err
	}
	for {
		if err := awaitBytes(source); err != nil {
			return err
		}
		pipe, err := p.pipes.take()
		if err != nil {
			return err
		}
		if pipe == nil {
			err = p.copySome(from)
		} else {
			var empty bool
			empty, err = p.moveAll(source, sink, pipe)
			p.pipes.give(pipe, empty)
		}
		if err == io.EOF {
			return nil
		}
		if err != nil {
			return err
		}
	}
}

// awaitBytes waits until there is something to read, or the end.
func awaitBytes(source rawConn) error {
	var errPeek error
	err := source.Read(func(fd uintptr) bool {
		_, _, errPeek = unix.Recvfrom(int(fd), make([]byte, 1), unix.MSG_PEEK|unix.MSG_DONTWAIT)
		return errPeek != unix.EAGAIN && errPeek != unix.EINTR
	})
	if err != nil {
		return err
	}
	return errPeek
}

// moveAll moves through a pipe what there is, until there is no more for the moment; io.EOF is the end.
func (p *payer) moveAll(source, sink rawConn, through *pipe) (empty bool, err error) {
	for {
		var n int
		errRead := source.Read(func(fd uintptr) bool {
			n, err = moveN(int(fd), through.w, through.size)
			return true
		})
		switch {
		case errRead != nil:
			return true, errRead
		case err == unix.EAGAIN:
			return true, nil
		case err == nil && n == 0:
			return true, io.EOF
		case err != nil:
			return true, err
		case p.left.bytes.Add(-int64(n)) < 0:
			return false, refuse("%w", p.left.overBytes())
		}
		if err := p.drain(sink, through.r, n); err != nil {
			return false, err
		}
	}
}

// copySome passes on a little by way of this process.
func (p *payer) copySome(from io.Reader) error {
	buffer := make([]byte, copySize)
	n, err := from.Read(buffer)
	if n > 0 {
		if _, err := p.Write(buffer[:n]); err != nil {
			return err
		}
	}
	return err
}

func (p *payer) drain(sink rawConn, pipe, n int) (err error) {
	for n > 0 {
		moved := 0
		errWrite := sink.Write(func(fd uintptr) bool {
			moved, err = moveN(pipe, int(fd), n)
			return err != unix.EAGAIN
		})
		if errWrite != nil {
			return errWrite
		}
		if err != nil {
			return err
		}
		n -= moved
		*p.count += int64(moved)
	}
	return nil
}

func moveN(from, to, n int) (int, error) {
	for {
		// Raw: it does not block, but moving takes so long that the runtime would give the processor's place to another thread each time.
		moved, _, errno := unix.RawSyscall6(unix.SYS_SPLICE, uintptr(from), 0, uintptr(to), 0, uintptr(n), unix.SPLICE_F_MOVE|unix.SPLICE_F_NONBLOCK)
		switch errno {
		case 0:
			return int(moved), nil
		case unix.EINTR:
		default:
			return 0, errno
		}
	}
}

type rawConn interface {
	Read(func(fd uintptr) bool) error
	Write(func(fd uintptr) bool) error
}

// wasReset tells an end by a reset from one that the server meant, where both read as an end: the kernel tells of a reset once, to
// whoever asks first.
func wasReset(c *net.TCPConn) (reset bool) {
	raw, err := c.SyscallConn()
	if err != nil {
		return false
	}
	const closed = 7 // TCP_CLOSE of net/tcp_states.h
	// An error says that the connection was closed by us.
	_ = raw.Control(func(fd uintptr) {
		info, err := unix.GetsockoptTCPInfo(int(fd), unix.IPPROTO_TCP, unix.TCP_INFO)
		reset = err == nil && info.State == closed
	})
	return reset
}
