package main

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"time"
	"unsafe"

	"golang.org/x/sys/unix"
)

// Group H: kernel objects, which cost memory that no resident set shows, and counts that the kernel keeps for each user.
var _ = register(map[string]func([]string) (any, error){
	"seize":     seize,
	"seize-one": seizeOne,
	"host-user": hostUser,
})

// shmLock of shmctl(2) keeps a segment in memory.
const shmLock = 11

// A seizure takes one more object of a kind each time it is called, until the kernel refuses; most is the probe's own cap.
type seizure struct {
	most int
	take func(i int) error
}

// seizures are what a process can make the kernel keep. What they open stays open.
func seizures() map[string]seizure {
	var kept [][2]int
	lockable := -1
	return map[string]seizure{
		"eventfd": {1 << 17, func(int) error { _, err := unix.Eventfd(0, unix.EFD_CLOEXEC); return err }},
		"timerfd": {1 << 17, func(int) error { _, err := unix.TimerfdCreate(unix.CLOCK_MONOTONIC, unix.TFD_CLOEXEC); return err }},
		"signalfd": {1 << 17, func(int) error {
			_, err := unix.Signalfd(-1, &unix.Sigset_t{}, unix.SFD_CLOEXEC)
			return err
		}},
		"epoll": {1 << 17, func(int) error {
			fd, err := unix.EpollCreate1(unix.EPOLL_CLOEXEC)
			for _, pair := range kept {
				err = errors.Join(err, unix.EpollCtl(fd, unix.EPOLL_CTL_ADD, pair[0], &unix.EpollEvent{}))
			}
			if err == nil && len(kept) < 64 {
				var pair [2]int
				err = unix.Pipe2(pair[:], unix.O_CLOEXEC)
				kept = append(kept, pair)
			}
			return err
		}},
		"pipe": {1 << 17, func(int) error {
			var pair [2]int
			if err := unix.Pipe2(pair[:], unix.O_CLOEXEC|unix.O_NONBLOCK); err != nil {
				return err
			}
			_, _ = unix.FcntlInt(uintptr(pair[1]), unix.F_SETPIPE_SZ, 1<<20) // at some point only small ones are left
			return filled(func(b []byte) error { _, err := unix.Write(pair[1], b); return err })
		}},
		"unix socket": {1 << 17, func(int) error {
			pair, err := unix.Socketpair(unix.AF_UNIX, unix.SOCK_STREAM|unix.SOCK_CLOEXEC|unix.SOCK_NONBLOCK, 0)
			if err != nil {
				return err
			}
			return filled(func(b []byte) error { _, err := unix.Write(pair[0], b); return err })
		}},
		"udp socket": {1 << 17, func(int) error {
			fd, err := bound(unix.SOCK_DGRAM)
			if err != nil {
				return err
			}
			self, err := unix.Getsockname(fd)
			if err != nil {
				return err
			}
			block := make([]byte, 16<<10)
			for range 32 { // what has no room is dropped
				if err := unix.Sendto(fd, block, unix.MSG_DONTWAIT, self); err != nil && err != unix.EAGAIN {
					return err
				}
			}
			return nil
		}},
		"tcp socket": {1 << 17, func(int) error {
			fd, err := bound(unix.SOCK_STREAM)
			if err != nil {
				return err
			}
			self, err := unix.Getsockname(fd)
			if err = errors.Join(err, unix.Listen(fd, 1)); err != nil {
				return err
			}
			client, err := unix.Socket(unix.AF_INET, unix.SOCK_STREAM|unix.SOCK_CLOEXEC, 0)
			if err != nil {
				return err
			}
			if err := errors.Join(unix.Connect(client, self), unix.SetNonblock(client, true)); err != nil {
				return err
			}
			return filled(func(b []byte) error { _, err := unix.Write(client, b); return err })
		}},
		// Answers that nobody reads.
		"netlink": {1 << 17, func(int) error {
			fd, err := unix.Socket(unix.AF_NETLINK, unix.SOCK_RAW|unix.SOCK_CLOEXEC, unix.NETLINK_ROUTE)
			if err != nil {
				return err
			}
			request := make([]byte, unix.SizeofNlMsghdr+unix.SizeofIfInfomsg)
			header := (*unix.NlMsghdr)(unsafe.Pointer(&request[0]))
			*header = unix.NlMsghdr{Len: uint32(len(request)), Type: unix.RTM_GETLINK, Flags: unix.NLM_F_REQUEST | unix.NLM_F_DUMP}
			for range 100 {
				if err := unix.Sendto(fd, request, unix.MSG_DONTWAIT, &unix.SockaddrNetlink{Family: unix.AF_NETLINK}); err != nil {
					return nil // it is full, or still busy with the first
				}
			}
			return nil
		}},
		"timer": {1 << 17, func(int) error {
			var id int32
			_, _, errno := unix.Syscall(unix.SYS_TIMER_CREATE, unix.CLOCK_MONOTONIC, 0, uintptr(unsafe.Pointer(&id)))
			return orNil(errno)
		}},
		// Descriptors that are nowhere but in a socket's queue.
		"in flight": {1 << 17, func(i int) error {
			if i%200 == 0 || len(kept) == 0 {
				pair, err := unix.Socketpair(unix.AF_UNIX, unix.SOCK_DGRAM|unix.SOCK_CLOEXEC|unix.SOCK_NONBLOCK, 0)
				if err != nil {
					return err
				}
				kept = append(kept, pair)
			}
			to := kept[len(kept)-1]
			err := unix.Sendmsg(to[0], []byte("x"), unix.UnixRights(0, 1, 2, to[0]), nil, 0)
			if err == unix.EAGAIN { // this queue is full
				pair, err := unix.Socketpair(unix.AF_UNIX, unix.SOCK_DGRAM|unix.SOCK_CLOEXEC|unix.SOCK_NONBLOCK, 0)
				kept = append(kept, pair)
				return err
			}
			return err
		}},
		// Every second byte, so that none can be merged; many files, as the kernel searches a file's list.
		"file lock": {48_000, func(i int) error {
			if i%200 == 0 {
				var err error
				if lockable, err = unix.Open("/tmp/locked"+strconv.Itoa(os.Getpid()), unix.O_CREAT|unix.O_RDWR|unix.O_CLOEXEC, 0o600); err != nil {
					return err
				}
				if err := unix.Unlink("/tmp/locked" + strconv.Itoa(os.Getpid())); err != nil {
					return err
				}
			}
			return unix.FcntlFlock(uintptr(lockable), unix.F_SETLK, &unix.Flock_t{Type: unix.F_WRLCK, Start: int64(i % 200 * 2), Len: 1})
		}},
		"name that is not there": {1 << 14, func(i int) error {
			_, err := os.Lstat(fmt.Sprintf("/usr/lib/%s%d", strings.Repeat("n", 200), i))
			if errors.Is(err, os.ErrNotExist) {
				return nil
			}
			return err
		}},
		"inotify watch": {1 << 16, func(i int) error {
			if len(kept) == 0 {
				fd, err := unix.InotifyInit1(unix.IN_CLOEXEC)
				if err != nil {
					return err
				}
				kept = append(kept, [2]int{fd})
			}
			name := fmt.Sprintf("/tmp/watched%d-%d", os.Getpid(), i)
			if err := os.Mkdir(name, 0o700); err != nil {
				return err
			}
			_, err := unix.InotifyAddWatch(kept[0][0], name, unix.IN_CREATE)
			return err
		}},
		"posix queue": {1 << 10, func(i int) error {
			name := []byte(fmt.Sprintf("taken%d-%d\x00", os.Getpid(), i))
			attr := [8]int64{1: 10, 2: 8192} // struct mq_attr
			fd, _, errno := unix.Syscall6(unix.SYS_MQ_OPEN, uintptr(unsafe.Pointer(&name[0])), unix.O_CREAT|unix.O_RDWR|unix.O_NONBLOCK, 0o600, uintptr(unsafe.Pointer(&attr[0])), 0, 0)
			if errno != 0 {
				// Smaller ones take what is left.
				attr = [8]int64{1: 1, 2: 1}
				if fd, _, errno = unix.Syscall6(unix.SYS_MQ_OPEN, uintptr(unsafe.Pointer(&name[0])), unix.O_CREAT|unix.O_RDWR|unix.O_NONBLOCK, 0o600, uintptr(unsafe.Pointer(&attr[0])), 0, 0); errno != 0 {
					return errno
				}
			}
			message := make([]byte, attr[2])
			return filled(func([]byte) error {
				_, _, errno := unix.Syscall6(unix.SYS_MQ_TIMEDSEND, fd, uintptr(unsafe.Pointer(&message[0])), uintptr(len(message)), 0, 0, 0)
				return orNil(errno)
			})
		}},
		"sysv queue": {1 << 10, func(int) error {
			id, _, errno := unix.Syscall(unix.SYS_MSGGET, unix.IPC_PRIVATE, 0o600, 0)
			if errno != 0 {
				return errno
			}
			message := make([]byte, 8+8192)
			message[0] = 1
			return filled(func([]byte) error {
				_, _, errno := unix.Syscall6(unix.SYS_MSGSND, id, uintptr(unsafe.Pointer(&message[0])), 8192, unix.IPC_NOWAIT, 0, 0)
				return orNil(errno)
			})
		}},
		"semaphores": {64, func(int) error {
			_, _, errno := unix.Syscall(unix.SYS_SEMGET, unix.IPC_PRIVATE, 32000, 0o600)
			return orNil(errno)
		}},
		// The table for two mebibytes of zeros, of which the page itself costs nothing.
		"page table": {4 << 10, func(int) error {
			block, err := unix.Mmap(-1, 0, 4<<20, unix.PROT_READ, unix.MAP_PRIVATE|unix.MAP_ANONYMOUS|unix.MAP_NORESERVE)
			if err != nil {
				return err
			}
			_ = unix.Madvise(block, unix.MADV_NOHUGEPAGE) // a kernel without huge pages does not know it
			runtime.KeepAlive(block[len(block)/2])
			return nil
		}},
		"locked memory": {1 << 10, func(int) error {
			block, err := unix.Mmap(-1, 0, 1<<16, unix.PROT_READ|unix.PROT_WRITE, unix.MAP_PRIVATE|unix.MAP_ANONYMOUS)
			if err != nil {
				return err
			}
			return unix.Mlock(block)
		}},
		"locked segment": {1 << 10, func(int) error {
			id, err := unix.SysvShmGet(unix.IPC_PRIVATE, 1<<16, unix.IPC_CREAT|0o600)
			if err != nil {
				return err
			}
			_, err = unix.SysvShmCtl(id, shmLock, nil)
			return err
		}},
		"key": {1 << 10, func(i int) error {
			_, err := unix.AddKey("user", fmt.Sprintf("skillbox-%d-%d", os.Getpid(), i), make([]byte, 64), unix.KEY_SPEC_PROCESS_KEYRING)
			return err
		}},
		"pipe pages": {1 << 17, func(int) error {
			var pair [2]int
			if err := unix.Pipe2(pair[:], unix.O_CLOEXEC); err != nil {
				return err
			}
			_, err := unix.FcntlInt(uintptr(pair[1]), unix.F_SETPIPE_SZ, 1<<20)
			if err == unix.EPERM {
				return nil // go on with small ones
			}
			return err
		}},
	}
}

// filled calls write until it is refused because there is no more room.
func filled(write func([]byte) error) error {
	block := make([]byte, 16<<10)
	for range 4096 {
		if err := write(block); err == unix.EAGAIN {
			return nil
		} else if err != nil {
			return err
		}
	}
	return nil
}

// bound makes a loopback socket with as large a buffer as one gets.
func bound(kind int) (int, error) {
	fd, err := unix.Socket(unix.AF_INET, kind|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return -1, err
	}
	return fd, errors.Join(
		unix.SetsockoptInt(fd, unix.SOL_SOCKET, unix.SO_RCVBUF, 1<<20),
		unix.Bind(fd, &unix.SockaddrInet4{Addr: [4]byte{127, 0, 0, 1}}))
}

func orNil(errno syscall.Errno) error {
	if errno != 0 {
		return errno
	}
	return nil
}

// seize starts a process for each kind, args[2:] or all of them, lets them take what they get in args[1] milliseconds, and holds.
func seize(args []string) (any, error) {
	kinds := args[2:]
	if len(kinds) == 0 {
		for kind := range seizures() {
			kinds = append(kinds, kind)
		}
		slices.Sort(kinds)
	}
	got := map[string]string{}
	answers := map[string]io.Reader{}
	for _, kind := range kinds { // all of them at once
		name, _, _ := strings.Cut(kind, "#") // "pipe#2": once more
		c := exec.Command("/proc/self/exe", "seize-one", name, args[1])
		c.Env = append(os.Environ(), "GOMAXPROCS=1")
		_, err := c.StdinPipe() // open for as long as we live
		if err != nil {
			return nil, err
		}
		if answers[kind], err = c.StdoutPipe(); err != nil {
			return nil, err
		}
		if err := c.Start(); err != nil {
			got[kind] = "0 start: " + answer(err)
			delete(answers, kind)
		}
	}
	for kind, out := range answers {
		line, err := bufio.NewReader(out).ReadString('\n')
		if got[kind] = strings.TrimSpace(line); err != nil {
			got[kind] = "0 ended: " + answer(err)
		}
	}
	return hold(args[0], got)
}

// seizeOne takes one kind, says how many there were and what ended it, and keeps them until its stdin ends.
func seizeOne(args []string) (any, error) {
	s, known := seizures()[args[0]]
	if !known {
		return nil, fmt.Errorf("no such kind: %s", args[0])
	}
	var ms int
	if err := numbers(args[1:], &ms); err != nil {
		return nil, err
	}
	var err error
	made := 0
	for end := time.Now().Add(time.Duration(ms) * time.Millisecond); made < s.most && time.Now().Before(end); made++ {
		if err = s.take(made); err != nil {
			break
		}
	}
	fmt.Println(made, answer(err))
	_, err = io.Copy(io.Discard, os.Stdin)
	return "released", err
}

// hostUser does, outside any box, what its user must still be able to do: each is "ok" or says what is missing. args[0] is a
// directory on a disk.
func hostUser(args []string) (any, error) {
	got := map[string]string{}
	for what, f := range map[string]func() error{
		"fork": func() error {
			for range 4 {
				if err := exec.Command("/bin/true").Run(); err != nil {
					return err
				}
			}
			return nil
		},
		"memory": func() error {
			block, err := unix.Mmap(-1, 0, 16<<20, unix.PROT_READ|unix.PROT_WRITE, unix.MAP_PRIVATE|unix.MAP_ANONYMOUS)
			if err == nil {
				touch(block)
			}
			return err
		},
		"disk": func() error {
			f, err := os.Create(filepath.Join(args[0], fmt.Sprintf("host-user%d", os.Getpid())))
			if err != nil {
				return err
			}
			_, err = f.Write(make([]byte, 1<<20))
			return errors.Join(err, f.Sync(), f.Close(), os.Remove(f.Name()))
		},
		"terminal": func() error {
			for range 4 {
				fd, err := unix.Open("/dev/ptmx", unix.O_RDWR|unix.O_NOCTTY|unix.O_CLOEXEC, 0)
				if err != nil {
					return err
				}
				if _, err := unix.IoctlGetInt(fd, unix.TIOCGPTN); err != nil {
					return err
				}
			}
			return nil
		},
		"inotify": func() error {
			for range 8 {
				fd, err := unix.InotifyInit1(unix.IN_CLOEXEC)
				if err != nil {
					return err
				}
				if _, err := unix.InotifyAddWatch(fd, "/", unix.IN_CREATE); err != nil {
					return err
				}
			}
			return nil
		},
		"listen": func() error {
			fd, err := bound(unix.SOCK_STREAM)
			return errors.Join(err, unix.Listen(fd, 16))
		},
		"udp": func() error {
			fd, err := bound(unix.SOCK_DGRAM)
			if err != nil {
				return err
			}
			self, err := unix.Getsockname(fd)
			if err != nil {
				return err
			}
			if err := unix.Sendto(fd, []byte("x"), 0, self); err != nil {
				return err
			}
			_, _, err = unix.Recvfrom(fd, make([]byte, 1), unix.MSG_DONTWAIT)
			return err
		},
		"file lock": func() error {
			fd, err := unix.MemfdCreate("locked", unix.MFD_CLOEXEC)
			if err != nil {
				return err
			}
			return unix.FcntlFlock(uintptr(fd), unix.F_SETLK, &unix.Flock_t{Type: unix.F_WRLCK, Len: 1})
		},
		"sysv segment": func() error {
			id, err := unix.SysvShmGet(unix.IPC_PRIVATE, 1<<16, unix.IPC_CREAT|0o600)
			if err != nil {
				return err
			}
			_, lock := unix.SysvShmCtl(id, shmLock, nil)
			_, err = unix.SysvShmCtl(id, unix.IPC_RMID, nil)
			return errors.Join(lock, err)
		},
	} {
		got[what] = answer(f())
	}
	for what, n := range map[string]int{"eventfd": 16, "epoll": 4, "pipe": 16, "timer": 32, "in flight": 8, "unix socket": 2, "locked memory": 2, "key": 1} {
		s := seizures()[what]
		got[what] = "ok"
		for i := range n {
			if err := s.take(i); err != nil {
				got[what] = fmt.Sprintf("%s after %d", answer(err), i)
				break
			}
		}
	}
	got["posix queue"] = answer(posixQueue())
	return got, nil
}

// posixQueue makes one queue of the usual size, and removes it.
func posixQueue() error {
	name := []byte(fmt.Sprintf("skillbox-host-user-%d\x00", os.Getpid()))
	fd, _, errno := unix.Syscall6(unix.SYS_MQ_OPEN, uintptr(unsafe.Pointer(&name[0])), unix.O_CREAT|unix.O_RDWR, 0o600, 0, 0, 0)
	if errno != 0 {
		return errno
	}
	_, _, errno = unix.Syscall(unix.SYS_MQ_UNLINK, uintptr(unsafe.Pointer(&name[0])), 0, 0)
	return errors.Join(unix.Close(int(fd)), orNil(errno))
}
