package main

import (
	"fmt"
	"os"
	"os/signal"
	"runtime"
	"strconv"
	"syscall"
	"time"
	"unsafe"

	"golang.org/x/sys/unix"
)

var _ = register(map[string]func([]string) (any, error){
	"ignore-signals":        ignoreSignals,
	"traced-and-still":      tracedAndStill,
	"signal-init-every-way": signalInitEveryWay,
	"stdio":                 describeStdio,
	"reopen-stdio":          reopenStdio,
	"terminal-size":         describeTerminal,
	"foreign-call":          foreignCall,
})

// ignoreSignals says it is ready and outlives everything that can be ignored.
func ignoreSignals([]string) (any, error) {
	signal.Ignore() // all of them
	fmt.Println("ready")
	for {
		time.Sleep(time.Hour)
	}
}

// tracedAndStill asks to be traced by its parent, which is init, and stops.
func tracedAndStill([]string) (any, error) {
	runtime.LockOSThread()
	if _, _, errno := unix.RawSyscall(unix.SYS_PTRACE, unix.PTRACE_TRACEME, 0, 0); errno != 0 {
		return nil, errno
	}
	// At once and without the Go runtime: the signal that it preempts goroutines with would stop us from here on.
	said := []byte("traced\n")
	if _, _, errno := unix.RawSyscall(unix.SYS_WRITE, 1, uintptr(unsafe.Pointer(&said[0])), uintptr(len(said))); errno != 0 {
		return nil, errno
	}
	if err := unix.Tgkill(os.Getpid(), unix.Gettid(), unix.SIGUSR1); err != nil {
		return nil, err
	}
	return "resumed", nil
}

// signalInitEveryWay sends every signal to pid 1, by kill and with a forged origin by rt_sigqueueinfo, and says what each came to.
func signalInitEveryWay([]string) (any, error) {
	got := map[string]string{}
	for s := 1; s <= 64; s++ {
		got["kill "+strconv.Itoa(s)] = answer(unix.Kill(1, syscall.Signal(s)))
		for _, code := range []int32{-1 /* SI_QUEUE */, -60 /* SI_ASYNCNL */, 1 /* as for a fault */, 0x80 /* SI_KERNEL */} {
			info := [128]byte{}
			*(*int32)(unsafe.Pointer(&info[0])) = int32(s)
			*(*int32)(unsafe.Pointer(&info[8])) = code
			_, _, errno := unix.RawSyscall(unix.SYS_RT_SIGQUEUEINFO, 1, uintptr(s), uintptr(unsafe.Pointer(&info[0])))
			key := fmt.Sprintf("sigqueue %d %d", s, code)
			if got[key] = "ok"; errno != 0 {
				got[key] = answer(errno)
			}
		}
	}
	time.Sleep(100 * time.Millisecond) // so that an init that dies of it does so now
	return got, nil
}

// describeStdio says what descriptors 0, 1 and 2 are and which others there are.
func describeStdio([]string) (any, error) {
	got := map[string]string{}
	for fd := range 256 {
		var st unix.Stat_t
		if unix.Fstat(fd, &st) != nil {
			continue
		}
		target, err := os.Readlink("/proc/self/fd/" + strconv.Itoa(fd))
		if err != nil {
			return nil, err
		}
		if target == "anon_inode:[eventpoll]" || target == "anon_inode:[eventfd]" {
			continue // our own Go runtime's
		}
		got[strconv.Itoa(fd)] = kindOf(st.Mode)
	}
	return got, nil
}

func kindOf(mode uint32) string {
	switch mode & unix.S_IFMT {
	case unix.S_IFIFO:
		return "pipe"
	case unix.S_IFCHR:
		return "character device"
	case unix.S_IFREG:
		return "file"
	case unix.S_IFSOCK:
		return "socket"
	}
	return fmt.Sprintf("%o", mode)
}

// reopenStdio tries what descriptors and their names in /proc could be abused for. Its report goes to /dev/stderr, because the
// attempts are made on stdout.
func reopenStdio([]string) (any, error) {
	got := map[string]string{}
	try := func(name string, err error) { got[name] = answer(err) }
	open := func(path string, flags int) error {
		fd, err := unix.Open(path, flags|unix.O_CLOEXEC|unix.O_NONBLOCK, 0)
		if err == nil {
			err = os.NewFile(uintptr(fd), path).Close()
		}
		return err
	}
	try("open /dev/stdin", open("/dev/stdin", unix.O_RDONLY))
	try("open /dev/stdout", open("/dev/stdout", unix.O_WRONLY))
	try("open /dev/stderr", open("/dev/stderr", unix.O_WRONLY))
	try("append to /dev/stdout", open("/dev/stdout", unix.O_WRONLY|unix.O_APPEND|unix.O_CREAT))
	try("truncate stdout", unix.Ftruncate(1, 0))
	_, err := unix.Seek(1, 0, 0)
	try("seek stdout", err)
	buffer := make([]byte, 64)
	n, err := unix.Pread(1, buffer, 0)
	try("pread stdout", err)
	if n > 0 {
		got["pread stdout"] = "read " + string(buffer[:n])
	}
	if fd, err := unix.Open("/proc/self/fd/1", unix.O_RDONLY|unix.O_NONBLOCK|unix.O_CLOEXEC, 0); err == nil {
		n, err := unix.Read(fd, buffer)
		got["read stdout"] = answer(err)
		if n > 0 {
			got["read stdout"] = "read " + string(buffer[:n])
		}
	} else {
		got["read stdout"] = answer(err)
	}
	return got, nil
}

// describeTerminal says of each of the three whether it is a terminal, and of what size.
func describeTerminal([]string) (any, error) {
	got := map[string]any{"term": os.Getenv("TERM")}
	for fd := range 3 {
		_, err := unix.IoctlGetTermios(fd, unix.TCGETS)
		got[strconv.Itoa(fd)] = err == nil
	}
	if size, err := unix.IoctlGetWinsize(0, unix.TIOCGWINSZ); err == nil {
		got["size"] = []uint16{size.Row, size.Col}
	}
	return got, nil
}
