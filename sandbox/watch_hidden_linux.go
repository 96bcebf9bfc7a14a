package sandbox

import (
	"fmt"
	"os"
	"runtime"
	"strconv"
	"time"
	"unsafe"

	"golang.org/x/sys/unix"
)

const (
	// hiddenInterval is how often memory is looked for that no process need have mapped: that takes a call for each open file.
	hiddenInterval = 4 * watchInterval
	// hiddenShare bounds what that costs where very many files are open: one part in this many of a processor.
	hiddenShare = 20
)

// hidden finds memory that belongs to a box but to no file system of the tree, and perhaps to no address space: open files of
// memfd_create(2), and System V IPC.
type hidden struct {
	next time.Time
	last int64
}

// newHidden moves the calling thread into the ipc namespace of the box, for the kernel tells of System V IPC only from within. The
// thread is locked to the goroutine and ends with it.
func newHidden(init int) (*hidden, error) {
	ns, err := os.Open("/proc/" + strconv.Itoa(init) + "/ns/ipc")
	if err != nil {
		return nil, err
	}
	defer ns.Close()
	runtime.LockOSThread()
	if err := unix.Setns(int(ns.Fd()), unix.CLONE_NEWIPC); err != nil {
		return nil, fmt.Errorf("join ipc namespace: %w", err)
	}
	return &hidden{}, nil
}

// bytes looks, or returns what it saw last if it is too early for that.
func (h *hidden) bytes(proc int, pids []string) int64 {
	began := time.Now()
	if began.Before(h.next) {
		return h.last
	}
	h.last = systemV() + openMemfds(proc, pids)
	now := time.Now()
	h.next = now.Add(max(hiddenInterval, hiddenShare*now.Sub(began)))
	return h.last
}

// openMemfds adds up the files of memfd_create(2) that processes have open. One that is only mapped, or on its way in a message, is
// not among them: of it counts what was touched through the mapping.
func openMemfds(proc int, pids []string) (total int64) {
	seen := map[uint64]bool{}
	for _, pid := range pids {
		if pid == "1" {
			continue // init has none
		}
		fd, err := unix.Openat(proc, pid+"/fd", unix.O_RDONLY|unix.O_DIRECTORY|unix.O_CLOEXEC, 0)
		if err != nil {
			continue // it ended meanwhile
		}
		dir := os.NewFile(uintptr(fd), "fd")
		names, _ := dir.Readdirnames(-1) // an error says that it ended meanwhile
		for _, name := range names {
			if ino, bytes := memfd(fd, name); !seen[ino] {
				seen[ino] = true
				total += bytes
			}
		}
		dir.Close()
	}
	return total
}

// memfd gives the inode and the size in memory of a descriptor in a directory of /proc/PID/fd, or zeros for what is no memfd. The
// name of its target decides, which is no question to a file system that may hang; nor is the other, should it be another file by then.
func memfd(fds int, name string) (ino uint64, bytes int64) {
	const prefix = "/memfd:"
	var target [len(prefix)]byte
	if n, err := unix.Readlinkat(fds, name, target[:]); err != nil || string(target[:n]) != prefix {
		return 0, 0
	}
	var st unix.Statx_t
	if err := unix.Statx(fds, name, unix.AT_STATX_DONT_SYNC, unix.STATX_BLOCKS|unix.STATX_INO, &st); err != nil {
		return 0, 0
	}
	return st.Ino, int64(st.Blocks) * 512
}

// systemV adds up what the calling thread's ipc namespace holds: pages of shared memory, bytes in message queues, semaphores.
// See shmctl(2), msgctl(2) and semctl(2) for the calls; they need no right.
func systemV() int64 {
	const shmInfo, msgInfo, semInfo = 14, 12, 19
	const semaphore = 64 // bytes: struct sem of the kernel fills a cache line
	var shm struct {
		used                        int32
		total, resident, swapped    uintptr // pages
		swapAttempts, swapSuccesses uintptr
	}
	var msg struct {
		pool, messages, max, mnb, mni, ssz, bytes int32
		seg                                       uint16
	}
	var sem struct{ m, mni, mns, mnu, msl, opm, ume, sets, vmx, semaphores int32 }
	// They fail on a kernel that was built without them, and then leave zeros.
	_, _, _ = unix.Syscall(unix.SYS_SHMCTL, 0, shmInfo, uintptr(unsafe.Pointer(&shm)))
	_, _, _ = unix.Syscall(unix.SYS_MSGCTL, 0, msgInfo, uintptr(unsafe.Pointer(&msg)))
	_, _, _ = unix.Syscall6(unix.SYS_SEMCTL, 0, 0, semInfo, uintptr(unsafe.Pointer(&sem)), 0, 0)
	return int64(shm.resident+shm.swapped)*int64(os.Getpagesize()) + int64(msg.bytes) + int64(sem.semaphores)*semaphore
}
