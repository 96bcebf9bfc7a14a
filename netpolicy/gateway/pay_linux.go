package gateway

import (
	"fmt"
	"net"

	"golang.org/x/sys/unix"
)

// payer writes to one end of a connection, and takes what it writes from the box's budget.
type payer struct {
	to    *net.TCPConn
	left  *budget
	count *int64
}

func (p *payer) Write(data []byte) (n int, err error) {
	if p.left.bytes.Add(-int64(len(data))) < 0 && len(data) > 0 {
		return 0, refuse("%v", p.left.overBytes())
	}
	n, err = p.to.Write(data)
	*p.count += int64(n)
	return n, err
}

// pipeSize is what a pipe between two sockets is asked to hold. The kernel gives less to users who have many.
const pipeSize = 256 << 10

// splice passes on what another end sends, to its end, without copying it into this process (splice(2)).
func (p *payer) splice(from *net.TCPConn) error {
	var pipe [2]int
	if err := unix.Pipe2(pipe[:], unix.O_CLOEXEC|unix.O_NONBLOCK); err != nil {
		return fmt.Errorf("make a pipe for a connection: %w", err)
	}
	defer unix.Close(pipe[0])
	defer unix.Close(pipe[1])
	size, err := unix.FcntlInt(uintptr(pipe[1]), unix.F_SETPIPE_SZ, pipeSize)
	if err != nil {
		size = 64 << 10
	}
	source, err := from.SyscallConn()
	if err != nil {
		return err
	}
	sink, err := p.to.SyscallConn()
	if err != nil {
		return err
	}
	for {
		n, err := p.fill(source, pipe[1], size)
		if n == 0 || err != nil {
			return err
		}
		if err := p.drain(sink, pipe[0], n); err != nil {
			return err
		}
	}
}

// fill waits for bytes and moves some into the pipe, which is empty; none are at the end.
func (p *payer) fill(source rawConn, pipe, size int) (n int, err error) {
	errRead := source.Read(func(fd uintptr) bool {
		n, err = moveN(int(fd), pipe, size)
		return err != unix.EAGAIN
	})
	if errRead != nil {
		return 0, errRead
	}
	if err == nil && n > 0 && p.left.bytes.Add(-int64(n)) < 0 {
		return 0, refuse("%v", p.left.overBytes())
	}
	return n, err
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
		moved, err := unix.Splice(from, nil, to, nil, n, unix.SPLICE_F_MOVE|unix.SPLICE_F_NONBLOCK)
		if err != unix.EINTR {
			return int(max(moved, 0)), err
		}
	}
}

type rawConn interface {
	Read(func(fd uintptr) bool) error
	Write(func(fd uintptr) bool) error
}
