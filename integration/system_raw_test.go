//go:build linux

package integration

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"skillbox/helper"
	"skillbox/wire"
)

// connectAs connects as a user, without a client. A read gives up after a while.
func (s *system) connectAs(uid int) (int, error) {
	dir, err := os.Open(s.dir)
	if err != nil {
		return -1, err
	}
	defer dir.Close()
	fd, err := unix.Socket(unix.AF_UNIX, unix.SOCK_STREAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return -1, err
	}
	tv := unix.NsecToTimeval(int64(patience(20 * time.Second)))
	if err := unix.SetsockoptTimeval(fd, unix.SOL_SOCKET, unix.SO_RCVTIMEO, &tv); err != nil {
		unix.Close(fd)
		return -1, err
	}
	done := make(chan error, 1)
	// The service asks for the ids of the thread that connected, which ends with the goroutine.
	go func() {
		runtime.LockOSThread()
		if uid != 0 {
			if _, _, errno := unix.RawSyscall(unix.SYS_SETRESGID, uintptr(uid), uintptr(uid), uintptr(uid)); errno != 0 {
				done <- errno
				return
			}
			if _, _, errno := unix.RawSyscall(unix.SYS_SETRESUID, uintptr(uid), uintptr(uid), uintptr(uid)); errno != 0 {
				done <- errno
				return
			}
		}
		done <- unix.Connect(fd, &unix.SockaddrUnix{Name: fmt.Sprintf("/proc/self/fd/%d/%s", dir.Fd(), filepath.Base(s.socket()))})
	}()
	if err := <-done; err != nil {
		unix.Close(fd)
		return -1, err
	}
	return fd, nil
}

// heard is what the service answers, and what the skill wrote.
type heard struct {
	helper.Reply
	out string
}

// request is one that is sent without a client.
type request struct {
	helper.Request
	fds []int
	out *os.File
}

func execRequest(t *testing.T, bundle string, words ...string) *request {
	t.Helper()
	open := func(path string, flags int) int {
		fd, err := unix.Open(path, flags|unix.O_CLOEXEC, 0)
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { unix.Close(fd) })
		return fd
	}
	fd, err := unix.MemfdCreate("out", unix.MFD_CLOEXEC)
	if err != nil {
		t.Fatal(err)
	}
	out := os.NewFile(uintptr(fd), "out")
	t.Cleanup(func() { out.Close() })
	null := open(os.DevNull, unix.O_RDWR)
	return &request{
		helper.Request{Version: helper.Version, Op: helper.OpExec, Files: []string{"stdin", "stdout", "stderr", "bundle"}, Words: words, Capture: true},
		[]int{null, fd, null, open(bundle, unix.O_RDONLY|unix.O_DIRECTORY)},
		out,
	}
}

// ask sends a request on a connection, which it closes.
func ask(fd int, r *request) (heard, error) {
	conn := wire.FromFD(fd)
	defer conn.Close()
	var s heard
	if err := conn.Send(r.Request, r.fds...); err != nil && !errors.Is(err, unix.EPIPE) {
		return s, err
	}
	files, err := conn.Receive(&s.Reply)
	wire.CloseAll(files)
	if err != nil {
		return s, err
	}
	text := make([]byte, 1<<16)
	n, _ := r.out.ReadAt(text, 0) // less than that
	s.out = string(text[:n])
	return s, nil
}

func (r *request) add(role string, fd int) {
	r.Files, r.fds = append(r.Files, role), append(r.fds, fd)
}
