package seccomp

import (
	"fmt"
	"os"
	"sync"
	"syscall"
	"time"
	"unsafe"

	"golang.org/x/sys/unix"
)

// Supervisor answers the calls that a filter compiled with Report refuses: each gets the errno that Decide gives it, and is
// counted. It decides on register values only, never on the skill's memory: what was decided on memory that another thread can
// change would be decided on nothing (seccomp_unotify(2)). A call continues only where the rows allow it as a row that is watched.
//
// It speaks the kernel's three ioctls itself: libseccomp's receive blocks an OS thread per box and cannot be ended, whereas
// this one waits in Go's poller, so that a thousand parked boxes cost a thousand goroutines. It also builds without cgo.
type Supervisor struct {
	listener *os.File
	spec     Spec
	watcher  Watcher         // nil where the Spec watches nothing
	answers  func() *answers // made when the first call is refused: most boxes never need it
	pace     pace
	closing  chan struct{}
	once     sync.Once
	ended    chan struct{} // closed when serve has returned

	mu    sync.Mutex
	tally tally
	err   error
}

// answers are what a supervisor decides by.
type answers struct {
	rows  table
	names map[int32]string
}

func newAnswers(s Spec) *answers {
	k := &answers{rows: newTable(s), names: map[int32]string{}}
	for _, n := range names {
		k.names[n.nr] = n.name
	}
	return k
}

// Supervise takes the listener over and answers it until the last task under the filter is gone, or Close. While nobody
// answers, refused calls wait; after Close they get ENOSYS from the kernel.
func Supervise(listener *os.File, s Spec, w Watcher) *Supervisor {
	v := &Supervisor{
		spec: s, watcher: w, answers: sync.OnceValue(func() *answers { return newAnswers(s) }),
		closing: make(chan struct{}), ended: make(chan struct{}),
	}
	var err error
	if v.listener, err = pollable(listener); err != nil {
		v.err = fmt.Errorf("seccomp: supervise: %w", err)
		close(v.ended)
		return v
	}
	go v.serve()
	return v
}

// pollable duplicates the descriptor into a file that Go's poller waits for, and closes the original.
func pollable(f *os.File) (*os.File, error) {
	defer f.Close()
	raw, err := f.SyscallConn()
	if err != nil {
		return nil, err
	}
	fd := -1
	if ctlErr := raw.Control(func(old uintptr) { fd, err = unix.FcntlInt(old, unix.F_DUPFD_CLOEXEC, 3) }); ctlErr != nil {
		return nil, ctlErr
	}
	if err != nil {
		return nil, err
	}
	if err := unix.SetNonblock(fd, true); err != nil { // os.NewFile's sign that the descriptor is for the poller
		unix.Close(fd)
		return nil, err
	}
	return os.NewFile(uintptr(fd), "seccomp listener"), nil
}

// Done is closed when the supervisor has ended: every task under the filter is gone, or it was closed.
func (v *Supervisor) Done() <-chan struct{} { return v.ended }

// Denials lists what was refused so far, the most frequent first; also after the end.
func (v *Supervisor) Denials() []Denial {
	v.mu.Lock()
	defer v.mu.Unlock()
	return v.tally.denials(v.spec)
}

// Take lists what was refused since it was last called, and forgets it.
func (v *Supervisor) Take() []Denial {
	v.mu.Lock()
	defer v.mu.Unlock()
	all := v.tally.denials(v.spec)
	v.tally = tally{}
	return all
}

// Close ends the supervisor and returns why it ended early, if it did. Counts remain.
func (v *Supervisor) Close() error {
	v.once.Do(func() {
		close(v.closing)
		if v.listener != nil {
			v.listener.Close() // wakes serve
		}
	})
	<-v.ended
	v.mu.Lock()
	defer v.mu.Unlock()
	return v.err
}

// serve waits, answers all there is, and waits again. The poller is edge-triggered, so each wake-up drains.
func (v *Supervisor) serve() {
	defer close(v.ended)
	defer v.listener.Close()
	err := v.wait()
	select {
	case <-v.closing: // then the descriptor was closed under wait
		return
	default:
	}
	if err != nil {
		v.mu.Lock()
		v.err = fmt.Errorf("seccomp: supervise: %w", err)
		v.mu.Unlock()
	}
}

func (v *Supervisor) wait() error {
	raw, err := v.listener.SyscallConn()
	if err != nil {
		return err
	}
	var failed error
	err = raw.Read(func(fd uintptr) bool {
		over := false
		over, failed = v.drain(int(fd))
		return over || failed != nil
	})
	if err != nil {
		return err
	}
	return failed
}

// drain answers until nothing waits. over is true when no task under the filter is left (POLLHUP, since 5.9), or Close came.
func (v *Supervisor) drain(fd int) (over bool, err error) {
	for {
		events, err := ready(fd)
		switch {
		case err != nil:
			return false, err
		case events&unix.POLLIN != 0:
			if err := v.answer(fd); err != nil {
				return false, err
			}
		case events&(unix.POLLHUP|unix.POLLERR) != 0:
			return true, nil
		default:
			return false, nil
		}
		select {
		case <-v.closing:
			return true, nil
		default:
		}
	}
}

// ready asks without waiting. Receiving without asking first would block: the listener knows no O_NONBLOCK.
func ready(fd int) (int16, error) {
	p := []unix.PollFd{{Fd: int32(fd), Events: unix.POLLIN}}
	for {
		_, err := unix.Poll(p, 0)
		if err != unix.EINTR {
			return p[0].Revents, err
		}
	}
}

// The kernel's structures, of linux/seccomp.h. The kernel may know longer ones; it fills what the ioctl's size says.
type notification struct {
	id    uint64
	pid   uint32
	flags uint32
	nr    int32
	arch  uint32
	ip    uint64
	args  [6]uint64
}

type response struct {
	id    uint64
	val   int64
	err   int32
	flags uint32
}

// answer takes one call and refuses it. A call that is gone meanwhile, because its thread died or took a signal, is counted
// where it was seen: it was tried.
func (v *Supervisor) answer(fd int) error {
	var n notification
	if err := ioctl(fd, unix.SECCOMP_IOCTL_NOTIF_RECV, unsafe.Pointer(&n)); err != nil {
		if err == unix.ENOENT {
			return nil
		}
		return fmt.Errorf("receive: %w", err)
	}
	c := Call{Arch: n.arch, Nr: n.nr, Args: n.args}
	known := v.answers()
	verdict := known.rows.decide(c)
	var r response
	if verdict.Action == Allow && verdict.Row.Watch && v.watcher != nil {
		answer := v.watcher.Watch(&Notification{ID: n.id, PID: int(n.pid), Name: verdict.Row.Name, Args: n.args, supervisor: v})
		if answer.later {
			return nil
		}
		r = answer.response(n.id)
	} else {
		r = response{id: n.id, err: -int32(v.count(c, verdict))}
		v.throttle()
	}
	return v.send(fd, &r)
}

// send gives an answer. That the call is gone meanwhile is no error.
func (v *Supervisor) send(fd int, r *response) error {
	if err := ioctl(fd, unix.SECCOMP_IOCTL_NOTIF_SEND, unsafe.Pointer(r)); err != nil && err != unix.ENOENT && err != unix.EINPROGRESS {
		return fmt.Errorf("answer: %w", err)
	}
	return nil
}

// count remembers a refusal. A call that the filter sent here although the rows allow it can only be a mistake of ours;
// it is refused.
func (v *Supervisor) count(c Call, verdict Verdict) syscall.Errno {
	errno := verdict.Errno
	if verdict.Action != Refuse || errno == 0 {
		errno = syscall.EPERM
	}
	name := v.answers().names[c.Nr]
	if name == "" {
		name = fmt.Sprintf("syscall %d", c.Nr)
	}
	v.mu.Lock()
	defer v.mu.Unlock()
	v.tally.add(denialKey{name, detail(name, c.Args), unix.ErrnoName(errno)}, c)
	return errno
}

// throttle delays the answer, not the counting, when denials come in a flood: an answer costs some microseconds of the
// helper's time, and a skill must not buy more of it than a few hundredths of a core.
func (v *Supervisor) throttle() {
	wait := v.pace.next(time.Now())
	if wait == 0 {
		return
	}
	select {
	case <-time.After(wait):
	case <-v.closing:
	}
}

// pace lets the first perSecond events of a second through and holds up the rest: a bucket that refills at that rate.
type pace struct {
	full time.Time // when the bucket will be full again
}

const (
	perSecond = 1000
	// pause is how long an empty bucket is left to fill. Fifty answers then go out at once: a timer for each would cost
	// ten times what the answers do (measured: 25% of a core instead of 3%).
	pause = 50 * time.Millisecond
)

// next takes one event and returns how long it must wait.
func (p *pace) next(now time.Time) time.Duration {
	if p.full.Before(now) {
		p.full = now
	}
	p.full = p.full.Add(time.Second / perSecond)
	if p.full.Sub(now) <= time.Second {
		return 0
	}
	return pause
}

func ioctl(fd int, request uint, p unsafe.Pointer) error {
	_, err := ioctlValue(fd, request, p)
	return err
}

func ioctlValue(fd int, request uint, p unsafe.Pointer) (int, error) {
	for {
		value, _, errno := unix.Syscall(unix.SYS_IOCTL, uintptr(fd), uintptr(request), uintptr(p))
		switch errno {
		case 0:
			return int(value), nil
		case unix.EINTR:
		default:
			return -1, errno
		}
	}
}
