package seccomp

import (
	"errors"
	"fmt"
	"runtime"
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
// An error can leave a part installed, which only ever refuses more: the process should end.
func Install(p *Program) (listener int, err error) {
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
			listener, err = loadListener(code)
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

// loadListener asks for WAIT_KILLABLE_RECV (5.19) first: without it each signal, of which Go sends itself many, takes a
// waiting call back and makes it again, and it is counted twice.
func loadListener(code []byte) (int, error) {
	const flags = unix.SECCOMP_FILTER_FLAG_TSYNC | unix.SECCOMP_FILTER_FLAG_TSYNC_ESRCH | unix.SECCOMP_FILTER_FLAG_NEW_LISTENER
	fd, err := load(code, flags|unix.SECCOMP_FILTER_FLAG_WAIT_KILLABLE_RECV)
	if err == unix.EINVAL {
		fd, err = load(code, flags)
	}
	switch err {
	case nil:
		return fd, nil
	case unix.EBUSY:
		return -1, ErrListenerTaken
	}
	return -1, err
}

// load is seccomp(2), SET_MODE_FILTER. With TSYNC alone a positive result is a thread that could not be reached.
func load(code []byte, flags uintptr) (int, error) {
	if len(code) == 0 || len(code)%unix.SizeofSockFilter != 0 {
		return -1, fmt.Errorf("%d bytes are no array of sock_filter", len(code))
	}
	// A copy, for the alignment that the received bytes may not have.
	filter := make([]unix.SockFilter, len(code)/unix.SizeofSockFilter)
	copy(unsafe.Slice((*byte)(unsafe.Pointer(&filter[0])), len(code)), code)
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
