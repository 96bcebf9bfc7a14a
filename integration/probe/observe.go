package main

import (
	"fmt"
	"os"
	"runtime"
	"strconv"
	"sync/atomic"
	"syscall"
	"time"
	"unsafe"

	"golang.org/x/sys/unix"
)

var _ = register(map[string]func([]string) (any, error){
	"race-open":    raceOpen,
	"hide-path":    hidePath,
	"open-flood":   openFlood,
	"fifo-meets":   fifoMeets,
	"many-threads": manyThreads,
})

// raceOpen opens a path that another thread changes all the time, and says how often each of the two files came of it.
func raceOpen(args []string) (any, error) {
	n, err := strconv.Atoi(args[0])
	if err != nil {
		return nil, err
	}
	for _, name := range []string{"a", "b"} {
		if err := os.WriteFile("/tmp/"+name, []byte(name), 0o600); err != nil {
			return nil, err
		}
	}
	path := []byte("/tmp/a\x00\x00")
	word := (*uint32)(unsafe.Pointer(&path[4])) // "/a\0\0"
	a := *word
	b := a ^ (a^uint32('b')<<8)&0xff00
	stop := make(chan struct{})
	go func() {
		runtime.LockOSThread()
		for {
			select {
			case <-stop:
				return
			default:
				for _, now := range []uint32{b, a} { // each for a while, also where there is one processor for all
					for range 1000 {
						atomic.StoreUint32(word, now)
					}
				}
			}
		}
	}()
	defer close(stop)
	counts := map[string]int{}
	for range n {
		fd, _, errno := unix.Syscall6(unix.SYS_OPENAT, ^uintptr(99), uintptr(unsafe.Pointer(&path[0])), unix.O_RDONLY, 0, 0, 0) // AT_FDCWD
		if errno != 0 {
			return nil, errno
		}
		var content [1]byte
		if _, err := unix.Read(int(fd), content[:]); err != nil {
			return nil, err
		}
		unix.Close(int(fd))
		counts[string(content[:])]++
	}
	return counts, nil
}

// hidePath opens a path whose memory another thread takes away and gives back all the time, and says how often that succeeded.
func hidePath(args []string) (any, error) {
	n, err := strconv.Atoi(args[0])
	if err != nil {
		return nil, err
	}
	if err := os.WriteFile("/tmp/hidden", []byte("x"), 0o600); err != nil {
		return nil, err
	}
	page, err := unix.Mmap(-1, 0, os.Getpagesize(), unix.PROT_READ|unix.PROT_WRITE, unix.MAP_PRIVATE|unix.MAP_ANONYMOUS)
	if err != nil {
		return nil, err
	}
	copy(page, "/tmp/hidden\x00")
	var stop atomic.Bool
	go func() {
		runtime.LockOSThread()
		for !stop.Load() {
			_ = unix.Mprotect(page, unix.PROT_NONE)
			_ = unix.Mprotect(page, unix.PROT_READ)
		}
	}()
	defer stop.Store(true)
	opened := 0
	for range n {
		fd, _, errno := unix.Syscall6(unix.SYS_OPENAT, ^uintptr(99), uintptr(unsafe.Pointer(&page[0])), unix.O_RDONLY, 0, 0, 0)
		if errno == 0 {
			opened++
			unix.Close(int(fd))
		} else if errno != unix.EFAULT {
			return nil, errno
		}
	}
	return opened, nil
}

// openFlood opens files of ever other names for so many milliseconds, and says how many.
func openFlood(args []string) (any, error) {
	ms, err := strconv.Atoi(args[0])
	if err != nil {
		return nil, err
	}
	opened := 0
	for end := time.Now().Add(time.Duration(ms) * time.Millisecond); time.Now().Before(end); opened++ {
		path := fmt.Sprintf("/tmp/f%d", opened)
		f, err := os.Create(path)
		if err != nil {
			return nil, err
		}
		f.Close()
		if err := os.Remove(path); err != nil {
			return nil, err
		}
	}
	return opened, nil
}

// fifoMeets opens both ends of a FIFO in two threads: each open waits for the other, and a third thread goes on meanwhile.
func fifoMeets([]string) (any, error) {
	if err := unix.Mkfifo("/tmp/fifo", 0o600); err != nil {
		return nil, err
	}
	read := make(chan string, 1)
	go func() {
		data, err := os.ReadFile("/tmp/fifo")
		read <- fmt.Sprint(string(data), err)
	}()
	time.Sleep(50 * time.Millisecond)
	for range 100 { // while the reader waits
		if _, err := os.ReadFile("/proc/self/status"); err != nil {
			return nil, err
		}
	}
	return func() (string, error) {
		if err := os.WriteFile("/tmp/fifo", []byte("through"), 0); err != nil {
			return "", err
		}
		return <-read, nil
	}()
}

// manyThreads has eight threads open, rename and remove so many files of their own at once, with the umask that is theirs all.
func manyThreads(args []string) (any, error) {
	n, err := strconv.Atoi(args[0])
	if err != nil {
		return nil, err
	}
	unix.Umask(0o027)
	failed := make(chan error, 8)
	for worker := range cap(failed) {
		go func() {
			failed <- func() error {
				for i := range n {
					path := fmt.Sprintf("/tmp/w%d-%d", worker, i)
					if err := os.WriteFile(path, []byte(path), 0o666); err != nil {
						return err
					}
					if err := os.Rename(path, path+"x"); err != nil {
						return err
					}
					st, err := os.Stat(path + "x")
					if err != nil {
						return err
					}
					if st.Mode().Perm() != 0o640 || st.Sys().(*syscall.Stat_t).Uid != uint32(os.Getuid()) {
						return fmt.Errorf("%v, owner %d", st.Mode(), st.Sys().(*syscall.Stat_t).Uid)
					}
					if data, err := os.ReadFile(path + "x"); err != nil || string(data) != path {
						return fmt.Errorf("%q, %w", data, err)
					}
					if err := os.Remove(path + "x"); err != nil {
						return err
					}
				}
				return nil
			}()
		}()
	}
	for range cap(failed) {
		if err := <-failed; err != nil {
			return nil, err
		}
	}
	return "done", nil
}
