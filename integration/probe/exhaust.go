package main

import (
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"runtime/debug"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"time"
	"unsafe"

	"golang.org/x/sys/unix"
)

// Group H: what a skill takes of what it shares with the host. Each attempt ends by itself at a cap that the host can bear, so that
// a box which does not hold it fails a test and harms nobody.
var _ = register(map[string]func([]string) (any, error){
	"fork-bomb":  forkBomb,
	"zombies":    zombies,
	"allocate":   allocate,
	"fill":       fill,
	"spin":       spin,
	"flood":      flood,
	"sync-storm": syncStorm,
	"crash":      crash,
	"cgroups":    cgroups,
	"inotify":    inotifyInstances,
	"ptys":       ptys,
	"inodes":     inodes,
})

// hold reports what was taken in dir, which the test sees, and keeps it until the test answers there.
func hold(dir string, got map[string]string) (any, error) {
	text, err := json.Marshal(got)
	if err != nil {
		return nil, err
	}
	if err := os.WriteFile(filepath.Join(dir, "got.tmp"), text, 0o644); err != nil {
		return nil, err
	}
	if err := os.Rename(filepath.Join(dir, "got.tmp"), filepath.Join(dir, "got")); err != nil {
		return nil, err
	}
	for {
		if _, err := os.Stat(filepath.Join(dir, "stop")); err == nil {
			return got, nil
		}
		time.Sleep(20 * time.Millisecond)
	}
}

// numbers reads an attempt's arguments.
func numbers(args []string, into ...*int) error {
	if len(args) < len(into) {
		return fmt.Errorf("%d arguments, want %d", len(args), len(into))
	}
	for i, n := range into {
		var err error
		if *n, err = strconv.Atoi(args[i]); err != nil {
			return err
		}
	}
	return nil
}

// fork copies the calling thread only. The child must do without the Go runtime: no calls but of this kind, no allocation.
//
//go:nosplit
func fork() (pid uintptr, errno syscall.Errno) {
	pid, _, errno = unix.RawSyscall6(unix.SYS_CLONE, uintptr(unix.SIGCHLD), 0, 0, 0, 0, 0)
	return pid, errno
}

// forkBomb forks in every process that comes of it, args[0] times in all, and never lets up where the kernel refuses.
func forkBomb(args []string) (any, error) {
	var most int
	if err := numbers(args, &most); err != nil {
		return nil, err
	}
	page, err := unix.Mmap(-1, 0, os.Getpagesize(), unix.PROT_READ|unix.PROT_WRITE, unix.MAP_SHARED|unix.MAP_ANONYMOUS)
	if err != nil {
		return nil, err
	}
	fmt.Println("forking")
	runtime.LockOSThread()
	debug.SetGCPercent(-1)
	bomb((*atomic.Int32)(unsafe.Pointer(&page[0])), int32(most))
	return nil, errors.New("the bomb ended")
}

//go:nosplit
func bomb(forks *atomic.Int32, most int32) {
	for {
		if forks.Add(1) > most {
			unix.RawSyscall6(unix.SYS_PPOLL, 0, 0, 0, 0, 0, 0) // for good
		}
		if _, errno := fork(); errno != 0 {
			forks.Add(-1)
		}
	}
}

// zombies forks children that exit at once and waits for none of them.
func zombies(args []string) (any, error) {
	var most int
	if err := numbers(args, &most); err != nil {
		return nil, err
	}
	runtime.LockOSThread()
	debug.SetGCPercent(-1)
	made := 0
	var errno syscall.Errno
	for ; made < most && errno == 0; made++ {
		var pid uintptr
		if pid, errno = fork(); pid == 0 && errno == 0 {
			for {
				unix.RawSyscall(unix.SYS_EXIT_GROUP, 0, 0, 0)
			}
		}
	}
	if errno != 0 {
		made--
		return map[string]string{"made": strconv.Itoa(made), "end": answer(errno)}, nil
	}
	return map[string]string{"made": strconv.Itoa(made), "end": "ok"}, nil
}

// allocate starts args[3] children that each touch args[0] MiB, in steps of args[1] MiB with args[2] ms between them, and say after
// each step how far they are. They keep it all; where the kernel gives no more they wait for what comes of it.
func allocate(args []string) (any, error) {
	var most, step, pause, children int
	if err := numbers(args, &most, &step, &pause, &children); err != nil {
		return nil, err
	}
	if children > 0 {
		return "outlived", inChildren(children, "allocate", args[0], args[1], args[2], "0")
	}
	for done := 0; done < most; done += step {
		block, err := unix.Mmap(-1, 0, step<<20, unix.PROT_READ|unix.PROT_WRITE, unix.MAP_PRIVATE|unix.MAP_ANONYMOUS)
		if err != nil {
			fmt.Println(answer(err))
			time.Sleep(time.Hour)
		}
		for i := 0; i < len(block); i += os.Getpagesize() {
			block[i] = 1
		}
		fmt.Println(done + step)
		time.Sleep(time.Duration(pause) * time.Millisecond)
	}
	time.Sleep(500 * time.Millisecond) // all of it at once
	return "all", nil
}

// inChildren runs n copies of this program at once, with few threads each, and waits for them.
func inChildren(n int, args ...string) error {
	var children []*exec.Cmd
	for range n {
		c := exec.Command("/proc/self/exe", args...)
		c.Env = append(os.Environ(), "GOMAXPROCS=1")
		c.Stdout, c.Stderr = os.Stdout, os.Stderr
		if err := c.Start(); err != nil {
			return err
		}
		children = append(children, c)
	}
	var err error
	for _, c := range children {
		err = errors.Join(err, c.Wait())
	}
	return err
}

// maxFill is what fill takes in all.
const maxFill = 1 << 30

// fill takes memory in each of the given ways, one after the other, and keeps it: "way path". It says how many bytes each way gave,
// and how it ended.
func fill(ways []string) (any, error) {
	got := map[string]string{}
	left := int64(maxFill)
	for _, w := range ways {
		way, path, _ := strings.Cut(w, " ")
		if fills[way] == nil {
			return nil, fmt.Errorf("no such way: %s", way)
		}
		n, err := fills[way](path, left)
		if left -= n; left <= 0 && err == nil {
			err = errors.New("cap")
		}
		got[w] = fmt.Sprintf("%d %s", n, answer(err))
	}
	return got, nil
}

var fills = map[string]func(path string, most int64) (int64, error){
	"write": func(path string, most int64) (int64, error) {
		return written(path+"/fill", unix.O_CREAT|unix.O_RDWR, most)
	},
	"tmpfile": func(path string, most int64) (int64, error) { return written(path, unix.O_TMPFILE|unix.O_RDWR, most) },
	"deleted": func(path string, most int64) (n int64, err error) {
		for i := 0; n < most && err == nil; i++ {
			name := fmt.Sprintf("%s/deleted%d", path, i)
			var more int64
			var fd int
			if fd, err = unix.Open(name, unix.O_CREAT|unix.O_RDWR|unix.O_CLOEXEC, 0o600); err != nil {
				return n, err
			}
			if err = unix.Unlink(name); err != nil {
				return n, err
			}
			more, err = append1(fd, min(most-n, 1<<20))
			n += more
		}
		return n, err
	},
	"fallocate": func(path string, most int64) (n int64, err error) {
		fd, err := unix.Open(path+"/fallocated", unix.O_CREAT|unix.O_RDWR|unix.O_CLOEXEC, 0o600)
		for err == nil && n < most {
			if err = unix.Fallocate(fd, 0, n, 1<<20); err == nil {
				n += 1 << 20
			}
		}
		return n, err
	},
	"memfd": func(_ string, most int64) (int64, error) {
		fd, err := unix.MemfdCreate("fill", unix.MFD_CLOEXEC)
		if err != nil {
			return 0, err
		}
		return append1(fd, most)
	},
	"shared": func(_ string, most int64) (n int64, err error) {
		for n < most {
			block, err := unix.Mmap(-1, 0, 1<<20, unix.PROT_READ|unix.PROT_WRITE, unix.MAP_SHARED|unix.MAP_ANONYMOUS)
			if err != nil {
				return n, err
			}
			touch(block)
			n += 1 << 20
		}
		return n, nil
	},
	// Segments that nobody has attached: no process's resident set shows them.
	"sysv": func(_ string, most int64) (n int64, err error) {
		for n < most {
			id, err := unix.SysvShmGet(unix.IPC_PRIVATE, 1<<20, unix.IPC_CREAT|0o600)
			if err != nil {
				return n, err
			}
			block, err := unix.SysvShmAttach(id, 0, 0)
			if err != nil {
				return n, err
			}
			touch(block)
			if err := unix.SysvShmDetach(block); err != nil {
				return n, err
			}
			n += 1 << 20
		}
		return n, nil
	},
}

func touch(block []byte) {
	for i := 0; i < len(block); i += os.Getpagesize() {
		block[i] = 1
	}
}

func written(path string, flags int, most int64) (int64, error) {
	fd, err := unix.Open(path, flags|unix.O_CLOEXEC, 0o600)
	if err != nil {
		return 0, err
	}
	return append1(fd, most)
}

// append1 writes to a descriptor that stays open.
func append1(fd int, most int64) (n int64, err error) {
	block := make([]byte, 256<<10)
	for i := range block {
		block[i] = byte(i)
	}
	for n < most && err == nil {
		var more int
		if more, err = unix.Write(fd, block); more > 0 {
			n += int64(more)
		}
	}
	return n, err
}

// spin keeps args[0] threads busy for args[1] milliseconds and says for how long it really was.
func spin(args []string) (any, error) {
	var threads, ms int
	if err := numbers(args, &threads, &ms); err != nil {
		return nil, err
	}
	runtime.GOMAXPROCS(threads + 1)
	began := time.Now()
	end := began.Add(time.Duration(ms) * time.Millisecond)
	var all sync.WaitGroup
	for range threads {
		all.Go(func() {
			runtime.LockOSThread()
			for time.Now().Before(end) {
			}
		})
	}
	all.Wait()
	return map[string]string{"ms": strconv.FormatInt(time.Since(began).Milliseconds(), 10)}, nil
}

// flood writes args[0] MiB to stdout.
func flood(args []string) (any, error) {
	var most int
	if err := numbers(args, &most); err != nil {
		return nil, err
	}
	block := []byte(strings.Repeat("flood\n", 1<<20/6))
	for range most {
		if _, err := os.Stdout.Write(block); err != nil {
			return nil, err
		}
	}
	return "all", nil
}

// syncStorm asks for everything to be written, in every way there is, from many threads for args[1] milliseconds; args[0] is a
// directory on one of the host's disks.
func syncStorm(args []string) (any, error) {
	var ms int
	if err := numbers(args[1:], &ms); err != nil {
		return nil, err
	}
	disk, err := os.Create(filepath.Join(args[0], "storm"))
	if err != nil {
		return nil, err
	}
	block := make([]byte, 64<<10)
	end := time.Now().Add(time.Duration(ms) * time.Millisecond)
	var calls [4]atomic.Int64
	var all sync.WaitGroup
	storm := func(kind int, f func() error) {
		for range 2 {
			all.Go(func() {
				for time.Now().Before(end) && f() == nil {
					calls[kind].Add(1)
				}
			})
		}
	}
	storm(0, func() error { unix.Sync(); return nil })
	storm(1, func() error { return unix.Syncfs(int(disk.Fd())) })
	storm(2, func() error {
		_, err := disk.WriteAt(block, 0)
		return errors.Join(err, unix.Fsync(int(disk.Fd())))
	})
	storm(3, func() error {
		_, err := disk.WriteAt(block, 1<<20)
		return errors.Join(err, unix.Fdatasync(int(disk.Fd())))
	})
	all.Wait()
	got := map[string]string{}
	for i, name := range []string{"sync", "syncfs", "fsync", "fdatasync"} {
		got[name] = strconv.FormatInt(calls[i].Load(), 10)
	}
	return got, nil
}

// crash makes args[0] children one after the other that die of a real fault, without any handler, and counts what they died of.
func crash(args []string) (any, error) {
	var most int
	if err := numbers(args, &most); err != nil {
		return nil, err
	}
	if err := unix.Prctl(unix.PR_SET_NAME, uintptr(unsafe.Pointer(&[]byte("sbcrash\x00")[0])), 0, 0, 0); err != nil {
		return nil, err
	}
	nothing, err := unix.Mmap(-1, 0, os.Getpagesize(), unix.PROT_NONE, unix.MAP_PRIVATE|unix.MAP_ANONYMOUS)
	if err != nil {
		return nil, err
	}
	runtime.LockOSThread()
	debug.SetGCPercent(-1)
	var byDefault [64]byte
	died := map[string]int{}
	for range most {
		pid, errno := fork()
		if errno != 0 {
			return nil, errno
		}
		if pid == 0 {
			unix.RawSyscall6(unix.SYS_RT_SIGACTION, uintptr(unix.SIGSEGV), uintptr(unsafe.Pointer(&byDefault[0])), 0, 8, 0, 0)
			runtime.KeepAlive(nothing[0])
			for {
				unix.RawSyscall(unix.SYS_EXIT_GROUP, 1, 0, 0)
			}
		}
		var status unix.WaitStatus
		if _, err := unix.Wait4(int(pid), &status, 0, nil); err != nil {
			return nil, err
		}
		died[unix.SignalName(status.Signal())]++
	}
	got := map[string]string{}
	for signal, n := range died {
		got[signal] = strconv.Itoa(n)
	}
	return got, nil
}

// cgroups tries to make groups, to leave its own, and to have somebody outside do either. Nothing may answer "ok".
func cgroups([]string) (any, error) {
	got := map[string]string{}
	try := func(what string, err error) { got[what] = answer(err) }
	mounts, err := os.ReadFile("/proc/self/mountinfo")
	if err != nil {
		return nil, err
	}
	got["cgroup file systems"] = strconv.Itoa(strings.Count(string(mounts), " - cgroup"))
	own, err := os.ReadFile("/proc/self/cgroup")
	if err != nil {
		return nil, err
	}
	got["own group"] = strings.TrimSpace(string(own))
	dir := "/sys/fs/cgroup"
	for range 8 { // a deep tree
		dir += "/deep"
		try("mkdir "+dir, os.MkdirAll(dir, 0o755))
	}
	for _, file := range []string{"cgroup.procs", "cgroup.threads", "cgroup.type", "cgroup.subtree_control", "cgroup.kill", "memory.max", "pids.max", "cpu.max"} {
		for _, at := range []string{"/sys/fs/cgroup/", "/sys/fs/cgroup/../", "/proc/1/root/sys/fs/cgroup/", "/run/cgroup/"} {
			try("write "+at+file, appendTo(at+file))
		}
	}
	for _, kind := range []string{"cgroup2", "cgroup"} {
		try("mount "+kind, unix.Mount("none", "/tmp", kind, 0, ""))
		got["fsopen "+kind] = sys("fsopen", kind, 0)
	}
	// struct clone_args up to cgroup, with CLONE_INTO_CGROUP. A child, if there is one after all, ends at once.
	args := [11]uint64{0: 0x200000000, 4: uint64(unix.SIGCHLD)}
	runtime.LockOSThread()
	pid, _, errno := unix.RawSyscall(unix.SYS_CLONE3, uintptr(unsafe.Pointer(&args[0])), unsafe.Sizeof(args), 0)
	if pid == 0 && errno == 0 {
		for {
			unix.RawSyscall(unix.SYS_EXIT_GROUP, 0, 0, 0)
		}
	}
	if got["clone into a group"] = "ok"; errno != 0 {
		got["clone into a group"] = answer(errno)
	}
	for _, socket := range []string{"/run/systemd/private", "/run/dbus/system_bus_socket", "/run/user/" + strconv.Itoa(os.Getuid()) + "/bus", "/run/user/1000/systemd/private"} {
		fd, err := unix.Socket(unix.AF_UNIX, unix.SOCK_STREAM|unix.SOCK_CLOEXEC, 0)
		if err != nil {
			return nil, err
		}
		try("connect "+socket, unix.Connect(fd, &unix.SockaddrUnix{Name: socket}))
		unix.Close(fd)
	}
	return got, nil
}

// inotifyInstances takes up to 200, with a watch each, and keeps them.
func inotifyInstances(args []string) (any, error) {
	made := 0
	var err error
	for ; made < 200; made++ {
		var fd int
		if fd, err = unix.InotifyInit1(unix.IN_CLOEXEC); err != nil {
			break
		}
		if _, err = unix.InotifyAddWatch(fd, "/tmp", unix.IN_CREATE); err != nil {
			break
		}
	}
	return hold(args[0], map[string]string{"made": strconv.Itoa(made), "end": answer(err)})
}

// ptys opens up to 300 terminals, master and slave, and keeps them: far fewer than the host has.
func ptys(args []string) (any, error) {
	made := 0
	var err error
	for ; made < 300; made++ {
		var master int
		if master, err = unix.Open("/dev/ptmx", unix.O_RDWR|unix.O_NOCTTY|unix.O_CLOEXEC, 0); err != nil {
			break
		}
		if err = unix.IoctlSetPointerInt(master, unix.TIOCSPTLCK, 0); err != nil {
			break
		}
		if _, _, errno := unix.Syscall(unix.SYS_IOCTL, uintptr(master), unix.TIOCGPTPEER, unix.O_RDWR|unix.O_NOCTTY|unix.O_CLOEXEC); errno != 0 {
			err = errno
			break
		}
	}
	return hold(args[0], map[string]string{"made": strconv.Itoa(made), "end": answer(err)})
}

// inodes makes empty files in each directory until there is no room, and keeps them.
func inodes(dirs []string) (any, error) {
	got := map[string]string{}
	for _, dir := range dirs {
		made := 0
		var err error
		for ; made < 200_000; made++ {
			var fd int
			if fd, err = unix.Open(dir+"/inode"+strconv.Itoa(made), unix.O_CREAT|unix.O_WRONLY|unix.O_CLOEXEC, 0o600); err != nil {
				break
			}
			unix.Close(fd)
		}
		got[dir] = fmt.Sprintf("%d %s", made, answer(err))
	}
	return got, nil
}
