package seccomp

import (
	"fmt"
	"runtime"
	"syscall"
	"unsafe"

	"golang.org/x/sys/unix"
)

// Watcher sees the allowed calls that a Spec watches, one after the other, before the kernel runs them: the caller waits meanwhile.
type Watcher interface {
	Watch(*Notification) Answer
}

// Notification is a call that waits for its answer.
type Notification struct {
	ID   uint64
	PID  int // the thread, in the supervisor's pid namespace
	Name string
	Args [6]uint64

	supervisor *Supervisor
}

// Answer is what a watched call gets. The zero value lets the kernel run it.
type Answer struct {
	errno  syscall.Errno
	result int64
	given  bool
	later  bool
}

// Continue lets the kernel run the call. What it reads from the caller's memory then may be other than what was there a moment ago.
func Continue() Answer { return Answer{} }

// Fail has the call return an error that somebody else got who made it.
func Fail(errno syscall.Errno) Answer { return Answer{given: true, errno: errno} }

// Return has the call return a value.
func Return(result int64) Answer { return Answer{given: true, result: result} }

// Later says that the answer is given by Notification.Answer, or was by AddFD.
func Later() Answer { return Answer{later: true} }

func (a Answer) response(id uint64) response {
	if !a.given {
		return response{id: id, flags: unix.SECCOMP_USER_NOTIF_FLAG_CONTINUE}
	}
	return response{id: id, val: a.result, err: -int32(a.errno)}
}

// Answer ends the wait of a call for which Watch has returned Later. It does nothing where the call or the supervisor is gone.
func (n *Notification) Answer(a Answer) {
	r := a.response(n.ID)
	// An error can only be told to who waits, and nobody does.
	_ = n.onListener(func(fd int) error { return n.supervisor.send(fd, &r) })
}

// Valid tells whether the call still waits. What was read of its process before, by its number, was then of that process.
func (n *Notification) Valid() bool {
	return n.onListener(func(fd int) error { return ioctl(fd, unix.SECCOMP_IOCTL_NOTIF_ID_VALID, unsafe.Pointer(&n.ID)) }) == nil
}

// AddFD gives the caller a descriptor of its own for an open file, and has its call return that number (Linux 5.14). An error such as
// EMFILE is what the call should fail with; ENOENT says that it is gone.
func (n *Notification) AddFD(file int, closeOnExec bool) error {
	_, err := n.addFD(file, closeOnExec, unix.SECCOMP_ADDFD_FLAG_SEND)
	return err
}

// Install is AddFD without the answer, which is to be the number: the caller waits until whoever has the file besides has closed it.
func (n *Notification) Install(file int, closeOnExec bool) (number int, err error) {
	return n.addFD(file, closeOnExec, 0)
}

func (n *Notification) addFD(file int, closeOnExec bool, flags uint32) (number int, err error) {
	add := struct {
		id                              uint64
		flags, source, target, newFlags uint32
	}{id: n.ID, flags: flags, source: uint32(file)}
	if closeOnExec {
		add.newFlags = unix.O_CLOEXEC
	}
	err = n.onListener(func(fd int) error {
		return quietly(func() error {
			number, err = ioctlValue(fd, unix.SECCOMP_IOCTL_NOTIF_ADDFD, unsafe.Pointer(&add))
			return err
		})
	})
	return number, err
}

// quietly holds back signals that may be. One that comes while the kernel hands a descriptor over, such as those by which Go's scheduler preempts,
// interrupts that after the call was marked as answered: it then returns 0, which is the caller's standard input (seen on Linux 6.18;
// seccomp_notify_addfd in kernel/seccomp.c).
func quietly(f func() error) error {
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	var all, before unix.Sigset_t
	for i := range all.Val {
		all.Val[i] = ^all.Val[i]
	}
	if err := unix.PthreadSigmask(unix.SIG_SETMASK, &all, &before); err != nil {
		return err
	}
	err := f()
	if err2 := unix.PthreadSigmask(unix.SIG_SETMASK, &before, nil); err == nil {
		err = err2 // an errno stays one that can be compared
	}
	return err
}

// onListener uses the descriptor, which stays open as long.
func (n *Notification) onListener(use func(fd int) error) error {
	raw, err := n.supervisor.listener.SyscallConn()
	if err != nil {
		return fmt.Errorf("seccomp: %w", err)
	}
	failed := err
	if err := raw.Control(func(fd uintptr) { failed = use(int(fd)) }); err != nil {
		return fmt.Errorf("seccomp: %w", err)
	}
	return failed
}
