package boxinit

import (
	"encoding/json"
	"fmt"
	"os"
	"runtime"
	"syscall"
	"time"
	"unsafe"

	"golang.org/x/sys/unix"

	"skillbox/seccomp"
	"skillbox/wire"
)

// Main is the whole life of init; it does not return. The exit code only matters when the socket is gone: nobody reads it otherwise.
// It must be called on the process's first thread, with the goroutine locked to it. That thread then sleeps for good, for it must
// never block a signal, as the Go runtime does for a moment around fork and clone: a signal that the first thread blocks is not
// dropped as one for pid 1, but queued, and then kills by way of any other thread (complete_signal in the kernel's signal.c).
func Main() {
	if unix.Gettid() != os.Getpid() {
		os.Exit(125)
	}
	// Not dumpable: /proc/1 then belongs to the host's root and the skill cannot read its environment, memory or descriptors.
	if err := unix.Prctl(unix.PR_SET_DUMPABLE, 0, 0, 0, 0); err != nil {
		os.Exit(125)
	}
	rename()
	dropSignals()
	spareThreads()
	// One thing at a time is all it does, and a second processor's worth of scheduler looks for work every 20 us whenever a system call blocks.
	runtime.GOMAXPROCS(1)
	go func() {
		conn := wire.FromFD(Socket)
		setup, err := prepare(conn)
		if err != nil {
			os.Exit(125)
		}
		if err := serve(conn, setup.OpenFiles); err != nil {
			os.Exit(125)
		}
		os.Exit(0)
	}()
	select {}
}

// rename gives init the words of any machine's pid 1. What os.Args holds are the very bytes that /proc/1/cmdline shows.
func rename() {
	shown := unsafe.Slice(unsafe.StringData(os.Args[0]), len(os.Args[0]))
	clear(shown)
	copy(shown, "/sbin/init")
}

// dropSignals gives every signal back to the kernel, which drops it: pid 1 of a namespace gets no signal from inside whose action
// is the default (pid_namespaces(7)). The Go runtime's own handlers would let the skill end init with kill(1, SIGTERM), and even
// a harmless one blocks all signals while it runs, see Main. Ignoring would be inherited by the skill, and signal.Notify costs
// 3 ms. What the runtime loses is preemption of goroutines that never call anything; init has none.
func dropSignals() {
	const last = 64
	for s := uintptr(1); s <= last; s++ {
		var byDefault [4]uint64 // struct sigaction: handler, flags, restorer, mask of 8 bytes
		// It fails for SIGKILL and SIGSTOP, whose action is the default anyway.
		_, _, _ = unix.RawSyscall6(unix.SYS_RT_SIGACTION, s, uintptr(unsafe.Pointer(&byDefault)), 0, 8, 0, 0)
	}
}

// spareThreads makes the Go runtime start the threads that it could ever want, which it then keeps: where the skill has taken all that
// resources.pids allows, it could start none, and would end init.
func spareThreads() {
	const spare = 3
	ready, done := make(chan struct{}, spare), make(chan struct{}, spare)
	for range spare {
		go func() {
			runtime.LockOSThread() // until all are there, each has a thread of its own
			defer runtime.UnlockOSThread()
			ready <- struct{}{}
			<-done
			done <- struct{}{}
		}()
	}
	for range spare {
		<-ready
	}
	done <- struct{}{}
}

// prepare installs the filters and reports what the box looks like from inside.
func prepare(conn *wire.Conn) (setup Setup, err error) {
	files, err := conn.Receive(&setup)
	wire.CloseAll(files)
	if err != nil {
		return setup, err
	}
	report := Report{Version: Version}
	if setup.Version != Version {
		report.Error = fmt.Sprintf("init speaks version %d, skillboxd %d", Version, setup.Version)
	} else if len(setup.Filters) > 0 {
		if err := install(conn, &setup); err != nil {
			report.Error = err.Error()
		}
	}
	if report.Error == "" {
		if err := look(&report); err != nil {
			report.Error = err.Error()
		}
		report.Refused = tryNetwork(setup.NeverReached)
	}
	return setup, conn.Send(report)
}

// install puts the filters on this process. A listener goes to skillboxd at once: already the report may need an answer of its own.
func install(conn *wire.Conn, setup *Setup) error {
	program := &seccomp.Program{Filters: setup.Filters, Listener: setup.Listener}
	var tell *seccomp.Tell
	if setup.Listener >= 0 {
		frame, err := wire.Frame(Report{Version: Version})
		if err != nil {
			return err
		}
		tell = &seccomp.Tell{Socket: conn.FD(), Message: frame}
	}
	listener, err := seccomp.Install(program, tell)
	if err != nil || listener < 0 {
		return err
	}
	return unix.Close(listener)
}

// serve starts the skill when told to, and reports its end.
func serve(conn *wire.Conn, openFiles uint64) error {
	if left, err := unix.Poll([]unix.PollFd{{Fd: int32(conn.FD()), Events: unix.POLLIN}}, int(warmAfter/time.Millisecond)); left == 0 && err == nil {
		warm()
	}
	for {
		var m Message
		files, err := conn.Receive(&m)
		if err != nil {
			return err
		}
		if m.Preload != nil {
			return servePreloaded(conn, m.Preload, files, openFiles)
		}
		if m.Call == nil {
			wire.CloseAll(files)
			continue // nothing runs yet that a signal could be meant for
		}
		if m.Call.Stay {
			return reside(conn, m.Call, files, openFiles)
		}
		started, master, pid := start(m.Call, files, openFiles)
		wire.CloseAll(files)
		err = conn.Send(Reply{Started: &started}, master...)
		for _, fd := range master {
			unix.Close(fd)
		}
		if err != nil {
			return err
		}
		if started.Error != "" {
			return nil
		}
		go forward(conn)
		return reap(conn, pid)
	}
}

// warmAfter is how long no call has to come before init takes its time to be quicker with it.
const warmAfter = 10 * time.Millisecond

// warm does once what a call needs, to no effect: memory that a program touches for the first time costs a fault for every page, and Go
// learns the form of a message when it first meets one.
func warm() {
	var m Message
	// What cannot be done now is found out, and told, when it has to be.
	_ = json.Unmarshal([]byte(`{"Call":{"Argv":[""],"Env":["="],"Cwd":"/","Rows":1}}`), &m)
	_, _ = json.Marshal(Reply{Started: &Started{}, Exit: &Exit{}})
	const nothing = Path + "/nothing" // init is no directory
	_, _, _ = resolve([]string{nothing}, nil, "/")
	_, _ = syscall.ForkExec(nothing, []string{nothing}, &syscall.ProcAttr{Dir: "/", Files: []uintptr{Socket, Socket, Socket}, Sys: &syscall.SysProcAttr{Setsid: true}})
}

// forward passes on signals until the socket closes; a second Call is refused by being dropped.
func forward(conn *wire.Conn) {
	for {
		var m Message
		files, err := conn.Receive(&m)
		wire.CloseAll(files)
		if err != nil {
			os.Exit(125) // skillboxd is gone: end the box
		}
		if m.Signal != nil {
			// ESRCH says that nobody is left, which reap is about to find out.
			_ = unix.Kill(-1, syscall.Signal(m.Signal.Signal))
		}
	}
}

// reap reports the end of the skill's first process.
func reap(conn *wire.Conn, main int) error {
	exit, err := await(main)
	if err != nil {
		return err
	}
	return report(conn, exit)
}

func report(conn *wire.Conn, exit *Exit) error {
	err := conn.Send(Reply{Exit: exit})
	if err == nil && exit.Alone {
		select {} // forward ends it with the socket: to take the box's namespaces down would keep a processor from whoever answers
	}
	return err
}

// await waits for all children, the adopted ones included, until the skill's first process has ended.
func await(main int) (*Exit, error) {
	var total unix.Rusage
	for {
		var status unix.WaitStatus
		var usage unix.Rusage
		pid, err := unix.Wait4(-1, &status, 0, &usage)
		if err == unix.EINTR {
			continue
		}
		if err != nil {
			return nil, err
		}
		if !status.Exited() && !status.Signaled() {
			continue // stopped: a child that asked to be traced reports that to us (ptrace(2)), and stays so
		}
		add(&total, &usage)
		if pid == main {
			return exitOf(status, &total), nil
		}
	}
}

// reapRest takes what has ended already, and says whether that was all: whatever runs in a pid namespace is a descendant of its init's,
// and becomes its child before it is nobody's.
func reapRest(total *unix.Rusage) (alone bool) {
	for {
		var status unix.WaitStatus
		var usage unix.Rusage
		pid, err := unix.Wait4(-1, &status, unix.WNOHANG, &usage)
		switch {
		case err == unix.EINTR:
		case err != nil:
			return err == unix.ECHILD
		case pid == 0:
			return false
		case status.Exited() || status.Signaled():
			add(total, &usage)
		}
	}
}

// exitOf is what the first process came to that ended with this status; total has its usage, and gets that of what else has ended.
func exitOf(status unix.WaitStatus, total *unix.Rusage) *Exit {
	alone := reapRest(total)
	return &Exit{
		Alone:    alone,
		Status:   uint32(status),
		UserUS:   total.Utime.Nano() / 1000,
		SystemUS: total.Stime.Nano() / 1000,
		MaxRSS:   total.Maxrss << 10,
	}
}

func add(total, one *unix.Rusage) {
	total.Utime = unix.NsecToTimeval(total.Utime.Nano() + one.Utime.Nano())
	total.Stime = unix.NsecToTimeval(total.Stime.Nano() + one.Stime.Nano())
	total.Maxrss = max(total.Maxrss, one.Maxrss)
}
