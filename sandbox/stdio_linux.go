package sandbox

import (
	"errors"
	"fmt"
	"sync/atomic"
	"time"

	"golang.org/x/sys/unix"
)

// A skill gets pipes that we made, never the caller's own files: a regular file could be reopened for writing through
// /proc/self/fd, a terminal could be typed into, a socket could carry descriptors. What is read from or written to the caller's
// files goes through a relay; for /dev/null alone the skill gets the device, opened anew, which costs nothing. A pipe given as stdin is no exception: the
// skill, often its owner, could open it again through /proc/self/fd and write lines for whoever reads on, such as the loop of a shell.

// stdio is what connects one call with its caller.
type stdio struct {
	box     [3]int // what the skill gets, -1 once handed over
	relays  []*relay
	out     [3]*relay // those of stdout and stderr
	stop    int       // eventfd: relays that read from the caller end when it is written
	abandon int       // eventfd: relays that write to the caller end when it is written
	written atomic.Int64
	limit   int64  // bytes of stdout and stderr together
	onLimit func() // called when more comes; nil: what comes more is dropped
	dropped atomic.Int64
	stays   bool // see stay
}

// bytesOf says how much of descriptor n reached the caller, and whether something was cut off.
func (s *stdio) bytesOf(n int) (int64, bool) {
	if r := s.out[n]; r != nil {
		return r.bytes.Load(), r.truncated.Load()
	}
	return 0, false
}

// relay copies from one descriptor to another on a goroutine of its own.
type relay struct {
	src, dst  int
	fromSkill bool
	bytes     atomic.Int64
	truncated atomic.Bool
	done      chan error
}

// connect makes the skill's descriptors from the caller's. params, if not -1, becomes stdin instead of the caller's. Above limit
// onLimit is called and the relay ends; where it is nil the relay goes on and drops.
func connect(caller [3]int, params int, owner int, group int, limit int64, onLimit func()) (*stdio, error) {
	shape, err := ShapeOf(caller, params >= 0)
	if err != nil {
		return nil, err
	}
	ends, err := newEnds(shape, owner, group)
	if err != nil {
		return nil, err
	}
	return attach(ends, caller, params, limit, onLimit)
}

// attach connects ends with the caller's descriptors, whose shape they have, and takes them over.
func attach(e *ends, caller [3]int, params int, limit int64, onLimit func()) (*stdio, error) {
	s := &stdio{box: e.box, stop: -1, abandon: -1, limit: limit, onLimit: onLimit}
	if params >= 0 {
		caller[0] = params
	}
	for i, fd := range e.ours {
		switch {
		case fd < 0:
		case i == 0:
			s.relays = append(s.relays, &relay{src: caller[0], dst: fd, done: make(chan error, 1)})
		default:
			s.out[i] = &relay{src: fd, dst: caller[i], fromSkill: true, done: make(chan error, 1)}
			s.relays = append(s.relays, s.out[i])
		}
	}
	if err := s.events(); err != nil {
		s.close()
		return nil, err
	}
	return s, nil
}

// terminal connects a pty's master with the caller's terminal.
func terminal(master int, caller [3]int, limit int64, onLimit func()) (*stdio, error) {
	s := &stdio{box: [3]int{-1, -1, -1}, stop: -1, abandon: -1, limit: limit, onLimit: onLimit}
	if err := s.events(); err != nil {
		s.close()
		return nil, err
	}
	// Each relay closes its end of the pty when it is done.
	in, errIn := unix.FcntlInt(uintptr(master), unix.F_DUPFD_CLOEXEC, 3)
	out, errOut := unix.FcntlInt(uintptr(master), unix.F_DUPFD_CLOEXEC, 3)
	if err := errors.Join(errIn, errOut); err != nil {
		s.close()
		return nil, fmt.Errorf("sandbox: pty: %w", err)
	}
	s.out[1] = &relay{src: out, dst: caller[1], fromSkill: true, done: make(chan error, 1)}
	s.relays = []*relay{{src: caller[0], dst: in, done: make(chan error, 1)}, s.out[1]}
	return s, nil
}

func (s *stdio) events() (err error) {
	if s.stop, err = unix.Eventfd(0, unix.EFD_CLOEXEC); err == nil {
		s.abandon, err = unix.Eventfd(0, unix.EFD_CLOEXEC)
	}
	if err != nil {
		return fmt.Errorf("sandbox: eventfd: %w", err)
	}
	return nil
}

func isNull(st *unix.Stat_t) bool {
	return st.Mode&unix.S_IFMT == unix.S_IFCHR && st.Rdev == unix.Mkdev(1, 3)
}

func same(a, b int) bool {
	var x, y unix.Stat_t
	return unix.Fstat(a, &x) == nil && unix.Fstat(b, &y) == nil && x.Dev == y.Dev && x.Ino == y.Ino && !isNull(&x)
}

// pipe makes one whose ends belong to the skill, which can then open /dev/stdin, /dev/stdout and /dev/stderr.
func pipe(owner, group int) (r, w int, err error) {
	var fds [2]int
	if err := unix.Pipe2(fds[:], unix.O_CLOEXEC); err != nil {
		return -1, -1, fmt.Errorf("sandbox: pipe: %w", err)
	}
	if err := unix.Fchown(fds[0], owner, group); err != nil {
		unix.Close(fds[0])
		unix.Close(fds[1])
		return -1, -1, fmt.Errorf("sandbox: pipe: %w", err)
	}
	return fds[0], fds[1], nil
}

// given are the skill's ends; none where it has them already.
func (s *stdio) given() []int {
	if s.box[0] < 0 {
		return nil
	}
	return s.box[:]
}

// start runs the relays; the skill's ends must have been handed over and closed here by then.
func (s *stdio) start() {
	for _, r := range s.relays {
		go func() { r.done <- s.copy(r) }()
	}
}

// handOver closes our copies of the skill's ends.
func (s *stdio) handOver() {
	for i, fd := range s.box {
		if fd >= 0 {
			unix.Close(fd)
		}
		s.box[i] = -1
	}
}

// finish is called when every process of the box is gone or about to be: what they wrote is still in the pipes and is copied to
// the end. A caller who reads slowly has the given time; a cancel, as in Call, shortens it. After that the relays let go of the
// caller: taken is then false, and what was lost counts as truncated.
func (s *stdio) finish(within time.Duration, cancel <-chan struct{}) (taken bool, err error) {
	taken = true
	err = signalEvent(s.stop)
	giveUp := time.After(within)
	for _, r := range s.relays {
		for waiting := true; waiting; {
			select {
			case relayErr := <-r.done:
				err, waiting = errors.Join(err, relayErr), false
			case <-giveUp:
				taken, giveUp, cancel = false, nil, nil
				err = errors.Join(err, signalEvent(s.abandon))
			case _, more := <-cancel:
				giveUp = time.After(min(within, grace))
				if !more {
					giveUp, cancel = time.After(min(within, moment)), nil
				}
			}
		}
	}
	s.close()
	return taken, err
}

// moment is enough for a caller who does read to take what a pipe holds.
const moment = 200 * time.Millisecond

func signalEvent(fd int) error {
	one := [8]byte{1}
	_, err := unix.Write(fd, one[:])
	return err
}

// close releases everything; relays that were started must have ended.
func (s *stdio) close() {
	s.handOver()
	for _, r := range s.relays {
		r.close()
	}
	for _, fd := range []*int{&s.stop, &s.abandon} {
		if *fd >= 0 {
			unix.Close(*fd)
		}
		*fd = -1
	}
}

// close closes our end of the skill's pipe or terminal, once. That is what tells the other side: end of input for the skill,
// EPIPE for a skill that still writes.
func (r *relay) close() {
	end := &r.dst
	if r.fromSkill {
		end = &r.src
	}
	if *end >= 0 {
		unix.Close(*end)
	}
	*end = -1
}

const chunk = 64 << 10

// errAbandoned ends a relay whose caller does not read.
var errAbandoned = errors.New("sandbox: the caller does not read")

// copy moves bytes until the source ends, the reader is gone, or the limit is reached and nothing is to be dropped.
func (s *stdio) copy(r *relay) error {
	defer r.close()
	buffer := make([]byte, chunk)
	rest := -1 // what is still to come when the call has ended and the box stays; -1 before
	for rest != 0 {
		if !r.fromSkill || s.stays && rest < 0 {
			stopped, err := await(r.src, unix.POLLIN, s.stop)
			if err != nil || stopped && !r.fromSkill {
				return err
			}
			if stopped {
				rest = pending(r.src)
				continue
			}
		}
		n, err := read(r.src, buffer)
		switch {
		case err == unix.EINTR:
			continue
		case err == unix.EAGAIN && s.stays && r.fromSkill:
			if rest > 0 {
				return nil // somebody else has read it
			}
			continue
		case err == unix.EAGAIN:
			if stopped, err := await(r.src, unix.POLLIN, s.stop); stopped || err != nil {
				return err
			}
			continue
		case err == unix.EIO:
			return nil // a terminal whose other side is gone
		case err != nil:
			return fmt.Errorf("sandbox: relay: %w", err)
		case n == 0:
			return nil
		}
		if rest > 0 {
			rest -= min(n, rest)
		}
		data := buffer[:n]
		over := false
		if r.fromSkill {
			if room := s.limit - (s.written.Add(int64(n)) - int64(n)); room < int64(n) {
				data, over = data[:max(room, 0)], true
			}
		}
		if err := s.write(r, data); err != nil {
			switch {
			case errors.Is(err, unix.EPIPE), errors.Is(err, unix.EIO), errors.Is(err, unix.ECONNRESET):
				return nil // nobody reads: closing our end tells the skill
			case errors.Is(err, errAbandoned):
				r.truncated.Store(true)
				return nil
			}
			r.truncated.Store(true)
			return fmt.Errorf("sandbox: relay: %w", err)
		}
		if over {
			r.truncated.Store(true)
			if s.onLimit == nil {
				s.dropped.Add(int64(n - len(data)))
				return s.drop(r, buffer)
			}
			s.onLimit()
			return nil
		}
	}
	return nil
}

// read is read(2), with a second try at the end of a terminal: the kernel looks for data first and for a closed other side afterwards, so that
// what was written in between is still there when it says EIO (n_tty_read, Linux 6.18).
func read(fd int, b []byte) (int, error) {
	n, err := unix.Read(fd, b)
	if err == unix.EIO {
		return unix.Read(fd, b)
	}
	return n, err
}

// drop takes what the skill still writes, so that it never waits, and keeps none of it: the kernel moves a pipe's pages to /dev/null
// without their coming here.
func (s *stdio) drop(r *relay, buffer []byte) error {
	null, err := unix.Open("/dev/null", unix.O_WRONLY|unix.O_CLOEXEC, 0)
	if err != nil {
		return fmt.Errorf("sandbox: /dev/null: %w", err)
	}
	defer unix.Close(null)
	flags := 0
	if s.stays {
		flags = unix.SPLICE_F_NONBLOCK
	}
	take := func() (int, error) {
		n, err := unix.Splice(r.src, nil, null, nil, 1<<20, flags)
		return int(n), err
	}
	for {
		if s.stays {
			if stopped, err := await(r.src, unix.POLLIN, s.stop); stopped || err != nil {
				s.dropped.Add(int64(pending(r.src)))
				return err
			}
		}
		n, err := take()
		switch {
		case err == unix.EINVAL: // a terminal, which splice(2) reads only into a pipe
			take = func() (int, error) { return read(r.src, buffer) }
		case err == unix.EAGAIN:
			if stopped, err := await(r.src, unix.POLLIN, s.stop); stopped || err != nil {
				return err
			}
		case err == unix.EINTR:
		case err == unix.EIO:
			return nil // a terminal whose other side is gone
		case err != nil:
			return fmt.Errorf("sandbox: relay: %w", err)
		case n == 0:
			return nil
		}
		s.dropped.Add(int64(max(n, 0)))
	}
}

// write delivers data to r's destination. A pipe or terminal that can be written takes PIPE_BUF bytes without blocking (pipe(7)),
// so that a caller who never reads holds nobody who has better things to do.
func (s *stdio) write(r *relay, data []byte) error {
	wake := s.stop
	if r.fromSkill {
		wake = s.abandon
	}
	for len(data) > 0 {
		if abandoned, err := await(r.dst, unix.POLLOUT, wake); err != nil {
			return err
		} else if abandoned {
			return errAbandoned
		}
		n, err := unix.Write(r.dst, data[:min(len(data), pipeBuf)])
		if err == unix.EINTR || err == unix.EAGAIN {
			continue
		}
		if err != nil {
			return err
		}
		if r.fromSkill {
			r.bytes.Add(int64(n))
		}
		data = data[n:]
	}
	return nil
}

const pipeBuf = 4096

// await blocks until fd is ready for the given events. It says true when wake was written, whether or not fd is ready: a terminal
// whose other side is gone takes everything for ever.
func await(fd int, events int16, wake int) (woken bool, err error) {
	fds := []unix.PollFd{{Fd: int32(fd), Events: events}, {Fd: int32(wake), Events: unix.POLLIN}}
	for {
		_, err := unix.Poll(fds, -1)
		if err == unix.EINTR {
			continue
		}
		if err != nil {
			return true, fmt.Errorf("sandbox: poll: %w", err)
		}
		return fds[1].Revents != 0, nil
	}
}
