package boxinit

import (
	"os"
	"sync"

	"golang.org/x/sys/unix"

	"skillbox/wire"
)

// resident is init in the box of a session: it serves one call after the other until its socket is gone. What a call leaves running stays,
// and is reaped when it ends.
type resident struct {
	conn      *wire.Conn
	openFiles uint64
	begun     chan struct{} // there may be children again

	mu    sync.Mutex  // no child is reaped while a call starts: its first process might be gone before its number is known
	main  int         // the first process of the call that runs, 0 between calls
	total unix.Rusage // of what was reaped since the last Exit
}

// reside serves the first call of a session, and those after it.
func reside(conn *wire.Conn, call *Call, files []int, openFiles uint64) error {
	r := &resident{conn: conn, openFiles: openFiles, begun: make(chan struct{}, 1)}
	go func() {
		r.reap()
		os.Exit(125)
	}()
	for {
		if err := r.begin(call, files); err != nil {
			return err
		}
		var err error
		if call, files, err = r.next(); err != nil {
			return err
		}
	}
}

// begin starts a call. One that comes while another runs is dropped.
func (r *resident) begin(call *Call, files []int) error {
	defer wire.CloseAll(files)
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.main != 0 {
		return nil
	}
	started, master, pid := start(call, files, r.openFiles)
	err := r.conn.Send(Reply{Started: &started}, master...)
	wire.CloseAll(master)
	if started.Error == "" {
		r.main = pid
		select {
		case r.begun <- struct{}{}:
		default: // reap has yet to see the last one
		}
	}
	return err
}

// next waits for a call, and passes signals on meanwhile.
func (r *resident) next() (*Call, []int, error) {
	for {
		var m Message
		files, err := r.conn.Receive(&m)
		if err == nil && m.Call != nil {
			return m.Call, files, nil
		}
		wire.CloseAll(files)
		if err != nil {
			return nil, nil, err
		}
		if m.Signal != nil {
			// ESRCH says that nobody is left.
			_ = unix.Kill(-1, unix.Signal(m.Signal.Signal))
		}
	}
}

// reap waits for all children, the adopted ones included, and reports the end of each call's first process, as long as somebody listens.
func (r *resident) reap() {
	for {
		// The child is looked at and not yet taken: its number is nobody else's before it is known whose it is.
		switch err := unix.Waitid(unix.P_ALL, 0, nil, unix.WEXITED|unix.WNOWAIT, nil); err {
		case nil:
			if r.take() != nil {
				return
			}
		case unix.EINTR:
		case unix.ECHILD:
			<-r.begun
		default:
			return
		}
	}
}

// take reaps one child, if one has ended.
func (r *resident) take() error {
	r.mu.Lock()
	defer r.mu.Unlock()
	var status unix.WaitStatus
	var usage unix.Rusage
	pid, err := unix.Wait4(-1, &status, unix.WNOHANG, &usage)
	switch {
	case err == unix.EINTR || err == unix.ECHILD:
		return nil // a program that could not be executed: start waits for it
	case err != nil:
		return err
	case pid == 0 || !status.Exited() && !status.Signaled():
		return nil // stopped, see reap of the one call
	}
	add(&r.total, &usage)
	if pid != r.main {
		return nil
	}
	exit := exitOf(status, &r.total)
	r.main, r.total = 0, unix.Rusage{}
	return r.conn.Send(Reply{Exit: exit})
}
