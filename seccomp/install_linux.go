package seccomp

import (
	"errors"
	"fmt"
	"runtime"
	"syscall"
	"unsafe"

	"golang.org/x/sys/unix"
)

// ErrListenerTaken says that the process already lives under a filter with a listener, as in some container engines. The
// kernel allows one per chain (EBUSY): compile again without Report.
var ErrListenerTaken = errors.New("another filter of this process already has a listener")

// Install puts the program on all threads of the process, present and future, for good (seccomp(2), TSYNC). The caller has
// set no_new_privs. The listener, close-on-exec, is for Supervise in another process, since this one is under the filter
// too; it is -1 when the program has none.
//
// With tell, which is nil without a listener, Install has sent it as well: see Tell.
//
// An error can leave a part installed, which only ever refuses more: the process should end.
func Install(p *Program, tell *Tell) (listener int, err error) {
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	// The kernel asks root only for CAP_SYS_ADMIN, and a set-id program would then run under a filter it does not expect.
	if set, err := unix.PrctlRetInt(unix.PR_GET_NO_NEW_PRIVS, 0, 0, 0, 0); err != nil || set != 1 {
		return -1, fmt.Errorf("seccomp: install: no_new_privs is not set")
	}
	if len(p.Filters) == 0 {
		return -1, fmt.Errorf("seccomp: install: an empty program")
	}
	listener = -1
	for i, code := range p.Filters {
		if i != p.Listener {
			_, err = load(code, unix.SECCOMP_FILTER_FLAG_TSYNC)
		} else {
			listener, err = loadListener(code, tell)
		}
		if err != nil {
			if listener >= 0 {
				unix.Close(listener)
			}
			return -1, fmt.Errorf("seccomp: install filter %d of %d: %w", i+1, len(p.Filters), err)
		}
	}
	return listener, nil
}

// Tell is a message to whoever is to answer, which carries the listener. A program may watch calls that Go's runtime makes whenever it likes,
// such as to start a thread: one that waits for an answer while nobody has the listener yet may be the one that Go waits for. So nothing
// of Go's comes between the filter and the message.
type Tell struct {
	Socket  int    // a unix stream socket with room for Message
	Message []byte // not empty
}

// loadListener asks for WAIT_KILLABLE_RECV (5.19) first: without it each signal, of which Go sends itself many, takes a
// waiting call back and makes it again, and it is counted twice.
func loadListener(code []byte, tell *Tell) (int, error) {
	const flags = unix.SECCOMP_FILTER_FLAG_TSYNC | unix.SECCOMP_FILTER_FLAG_TSYNC_ESRCH | unix.SECCOMP_FILTER_FLAG_NEW_LISTENER
	try := func(flags uintptr) (int, error) {
		if tell == nil {
			return load(code, flags)
		}
		return loadAndTell(code, flags, tell)
	}
	fd, err := try(flags | unix.SECCOMP_FILTER_FLAG_WAIT_KILLABLE_RECV)
	if err == unix.EINVAL {
		fd, err = try(flags)
	}
	switch err {
	case nil:
		return fd, nil
	case unix.EBUSY:
		return -1, ErrListenerTaken
	}
	return -1, err
}

// loadAndTell is load with the message right behind it.
func loadAndTell(code []byte, flags uintptr, tell *Tell) (int, error) {
	filter, err := instructions(code)
	if err != nil {
		return -1, err
	}
	rights := unix.UnixRights(-1)
	part := unix.Iovec{Base: &tell.Message[0]}
	part.SetLen(len(tell.Message))
	message := unix.Msghdr{Iov: &part, Control: &rights[0]}
	message.SetIovlen(1)
	message.SetControllen(len(rights))
	prog := unix.SockFprog{Len: uint16(len(filter)), Filter: &filter[0]}
	fd, errno, sent, unsent := inOneGo(&prog, flags, tell.Socket, &message, (*int32)(unsafe.Pointer(&rights[unix.CmsgLen(0)])))
	runtime.KeepAlive(filter)
	runtime.KeepAlive(rights)
	runtime.KeepAlive(tell)
	switch {
	case errno != 0:
		return -1, errno
	case unsent != 0:
		return -1, fmt.Errorf("send the listener: %w", errors.Join(unsent, unix.Close(fd)))
	case sent != len(tell.Message):
		return -1, errors.Join(fmt.Errorf("send the listener: %d of %d bytes", sent, len(tell.Message)), unix.Close(fd))
	}
	return fd, nil
}

// inOneGo makes two system calls of which Go's runtime knows nothing. Without a check of the stack it cannot stop in between either.
//
//go:nosplit
func inOneGo(prog *unix.SockFprog, flags uintptr, socket int, message *unix.Msghdr, right *int32) (fd int, errno unix.Errno, sent int, unsent unix.Errno) {
	r, _, errno := syscall.RawSyscall(unix.SYS_SECCOMP, unix.SECCOMP_SET_MODE_FILTER, flags, uintptr(unsafe.Pointer(prog)))
	if errno != 0 {
		return -1, errno, 0, 0
	}
	*right = int32(r)
	n, _, unsent := syscall.RawSyscall(unix.SYS_SENDMSG, uintptr(socket), uintptr(unsafe.Pointer(message)), unix.MSG_NOSIGNAL)
	return int(r), 0, int(n), unsent
}

// CanWatch says whether this kernel lets a Watcher make calls in a skill's place: a signal must not take a call back that was made already
// (WAIT_KILLABLE_RECV, Linux 5.19), or it would be made twice.
func CanWatch() bool {
	const flags = unix.SECCOMP_FILTER_FLAG_NEW_LISTENER | unix.SECCOMP_FILTER_FLAG_WAIT_KILLABLE_RECV
	// Without a program it always fails: with EFAULT where the flags are known.
	_, _, errno := unix.Syscall(unix.SYS_SECCOMP, unix.SECCOMP_SET_MODE_FILTER, flags, 0)
	return errno == unix.EFAULT
}

// load is seccomp(2), SET_MODE_FILTER. With TSYNC alone a positive result is a thread that could not be reached.
func load(code []byte, flags uintptr) (int, error) {
	filter, err := instructions(code)
	if err != nil {
		return -1, err
	}
	prog := unix.SockFprog{Len: uint16(len(filter)), Filter: &filter[0]}
	r, _, errno := unix.Syscall(unix.SYS_SECCOMP, unix.SECCOMP_SET_MODE_FILTER, flags, uintptr(unsafe.Pointer(&prog)))
	runtime.KeepAlive(filter)
	if errno != 0 {
		return -1, errno
	}
	if flags&unix.SECCOMP_FILTER_FLAG_NEW_LISTENER == 0 && r != 0 {
		return -1, fmt.Errorf("thread %d lives under another filter", r)
	}
	return int(r), nil
}

// instructions are a copy of a program, for the alignment that received bytes may not have.
func instructions(code []byte) ([]unix.SockFilter, error) {
	if len(code) == 0 || len(code)%unix.SizeofSockFilter != 0 {
		return nil, fmt.Errorf("%d bytes are no array of sock_filter", len(code))
	}
	filter := make([]unix.SockFilter, len(code)/unix.SizeofSockFilter)
	copy(unsafe.Slice((*byte)(unsafe.Pointer(&filter[0])), len(code)), code)
	return filter, nil
}
