//go:build linux

package integration

import (
	"errors"
	"fmt"
	"os"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"skillbox/helper"
)

func TestThreat240FdTypeConfusion(t *testing.T) {
	s := startSystem(t)
	const secret = "nobody else may read this"
	roots := private(t, 0, secret)
	bundle := asRoot.bundleOf(t, map[string]string{"main.sh": "#!/bin/sh\ncat /skill/secret \"$SKILLBOX_PARAMS_FILE\" /input/* 2>&1\n"})
	open := func(path string, flags int) int {
		t.Helper()
		fd, err := unix.Open(path, flags|unix.O_CLOEXEC, 0)
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { unix.Close(fd) })
		return fd
	}
	socket, err := unix.Socket(unix.AF_UNIX, unix.SOCK_STREAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer unix.Close(socket)
	const bundleAt = 3
	for name, change := range map[string]func(r *request){
		"bundle: a file":                                 func(r *request) { r.fds[bundleAt] = open("/etc/passwd", unix.O_RDONLY) },
		"bundle: a network namespace":                    func(r *request) { r.fds[bundleAt] = open("/proc/1/ns/net", unix.O_RDONLY) },
		"bundle: a socket":                               func(r *request) { r.fds[bundleAt] = socket },
		"bundle: a directory nobody else may read":       func(r *request) { r.fds[bundleAt] = open(roots, unix.O_RDONLY|unix.O_DIRECTORY) },
		"bundle: the same, by O_PATH":                    func(r *request) { r.fds[bundleAt] = open(roots, unix.O_PATH|unix.O_DIRECTORY) },
		"bundle: /proc/1/root":                           func(r *request) { r.fds[bundleAt] = open("/proc/1/root"+roots, unix.O_PATH|unix.O_DIRECTORY) },
		"policy: a directory":                            func(r *request) { r.add("policy", open("/etc", unix.O_RDONLY)) },
		"policy: a network namespace":                    func(r *request) { r.add("policy", open("/proc/1/ns/net", unix.O_RDONLY)) },
		"policy: a file nobody else may read, by O_PATH": func(r *request) { r.add("policy", open(roots+"/secret", unix.O_PATH)) },
		"params: a file nobody else may read, by O_PATH": func(r *request) { r.add("params", open(roots+"/secret", unix.O_PATH)) },
		"params: a directory":                            func(r *request) { r.add("params", open("/etc", unix.O_RDONLY)) },
		"input: a device":                                func(r *request) { r.add("input", open("/dev/zero", unix.O_RDONLY)); r.Inputs = []string{"x"} },
		"input: a file nobody else may read, by O_PATH":  func(r *request) { r.add("input", open(roots+"/secret", unix.O_PATH)); r.Inputs = []string{"x"} },
		"stdout: what is only for reading":               func(r *request) { r.fds[1] = open("/etc/passwd", unix.O_RDONLY) },
		"stdout: a namespace":                            func(r *request) { r.fds[1] = open("/proc/1/ns/mnt", unix.O_RDONLY) },
		"two bundles":                                    func(r *request) { r.add("bundle", open("/etc", unix.O_RDONLY)) },
		"more roles than descriptors":                    func(r *request) { r.Files = append(r.Files, "policy") },
		"an unknown role":                                func(r *request) { r.add("socket", socket) },
	} {
		fd, err := s.connectAs(bob)
		if err != nil {
			t.Fatal(err)
		}
		r := execRequest(t, bundle, "./main.sh")
		change(r)
		reply, err := ask(fd, r)
		if err != nil || reply.Result == nil {
			t.Errorf("%s: %v, %+v", name, err, reply)
			continue
		}
		if reply.Result.Success || strings.Contains(reply.out+asJSON(t, reply.Result), secret) {
			t.Errorf("%s: %s, %v, %q", name, reply.Result.Verdict, reply.Result.Error, reply.out)
		}
	}
	if r := s.as(bob).run(t, nil, bundle, "/bin/echo", "still here"); r.Stdout != "still here\n" {
		t.Errorf("%+v", r)
	}
}

// descriptors is how many a process has.
func descriptors(pid int) int {
	all, _ := os.ReadDir(fmt.Sprintf("/proc/%d/fd", pid))
	return len(all)
}

func TestThreat246RequestFlood(t *testing.T) {
	s := startSystem(t)
	bundle := asRoot.bundleOf(t, map[string]string{"main.sh": repeating})
	s.as(bob).run(t, nil, bundle, "./main.sh", "a")
	s.as(carol).run(t, nil, bundle, "./main.sh", "a")
	worker := s.workers(carol)
	pid := s.cmd.Process.Pid
	before := descriptors(pid)
	stop := make(chan struct{})
	var flood sync.WaitGroup
	var mu sync.Mutex
	var made, held int
	for range 4 {
		flood.Go(func() {
			var open []int
			defer func() {
				for _, fd := range open {
					unix.Close(fd)
				}
			}()
			for {
				select {
				case <-stop:
					return
				default:
				}
				fd, err := s.connectAs(bob)
				if errors.Is(err, unix.EMFILE) {
					return
				}
				if err != nil {
					continue
				}
				mu.Lock()
				made++
				mu.Unlock()
				if len(open) < 1000 { // some are held and say nothing
					open = append(open, fd)
					mu.Lock()
					held++
					mu.Unlock()
				} else {
					unix.Close(fd)
				}
			}
		})
	}
	var took []time.Duration
	for range load(40) {
		began := time.Now()
		if r := s.as(carol).run(t, nil, bundle, "./main.sh", "a"); r.Stdout != "a\n" {
			t.Errorf("%+v", r)
		}
		took = append(took, time.Since(began))
	}
	peak := descriptors(pid)
	close(stop)
	flood.Wait()
	slices.Sort(took)
	t.Logf("%d connections of one user, %d held at a time; calls of another's: median %s, longest %s; descriptors of the broker %d to %d",
		made, held, took[len(took)/2], took[len(took)-1], before, peak)
	if made < load(3000) {
		t.Errorf("only %d connections: that is no flood", made)
	}
	if longest := took[len(took)-1]; longest > patience(10*time.Second) {
		t.Errorf("another user waited %s", longest)
	}
	if peak > before+50 {
		t.Errorf("the broker has %d descriptors, and had %d", peak, before)
	}
	if now := s.workers(carol); !slices.Equal(now, worker) {
		t.Errorf("another user's worker was %d and is %d", worker, now)
	}
	// When it is over, the one who did it is served again.
	if !soon(func() bool {
		r, err := s.as(bob).ask(nil, bundle, "./main.sh", "a")
		return err == nil && r.Success
	}) {
		t.Error("after the flood its user is served no more")
	}
}

func TestThreat247SlowClient(t *testing.T) {
	s := startSystem(t)
	bundle := asRoot.bundleOf(t, map[string]string{"main.sh": repeating, "much.sh": "#!/bin/sh\nhead -c 1000000 /dev/zero | tr '\\0' x\n"})
	s.as(bob).run(t, nil, bundle, "./main.sh", "a")
	pid := s.cmd.Process.Pid
	before := descriptors(pid)
	var fds []int
	for _, says := range []string{"", "S", "SKB1", "SKB1\x00\x00\x01\x00{", "SKB1\x00\x3f\x00\x00{\"version\":1"} {
		for _, half := range []bool{false, true} {
			fd, err := s.connectAs(bob)
			if err == nil && says != "" {
				_, err = unix.Write(fd, []byte(says))
			}
			if err == nil && half {
				err = unix.Shutdown(fd, unix.SHUT_WR)
			}
			if err != nil {
				t.Fatal(err)
			}
			fds = append(fds, fd)
		}
	}
	// One byte after the other, and never an end.
	slow, err := s.connectAs(bob)
	if err != nil {
		t.Fatal(err)
	}
	fds = append(fds, slow)
	stop := make(chan struct{})
	var writing sync.WaitGroup
	writing.Go(func() {
		for _, b := range append([]byte("SKB1\x00\x00\x40\x00{"), make([]byte, 1<<12)...) {
			if _, err := unix.SendmsgN(slow, []byte{b}, nil, nil, unix.MSG_NOSIGNAL); err != nil {
				return
			}
			select {
			case <-stop:
				return
			case <-time.After(300 * time.Millisecond):
			}
		}
	})
	for _, uid := range []int{bob, carol} {
		if r := s.as(uid).run(t, nil, bundle, "./main.sh", "a"); r.Stdout != "a\n" {
			t.Errorf("%+v", r)
		}
	}
	if now := descriptors(pid); now > before+20 {
		t.Errorf("the broker had %d descriptors and has %d: it keeps what it has passed on", before, now)
	}
	began := time.Now()
	for i, fd := range fds {
		if err := closes(fd); err != nil {
			t.Errorf("client %d: %v", i, err)
		}
		unix.Close(fd)
	}
	if took := time.Since(began); took > patience(15*time.Second) {
		t.Errorf("slow clients are held for %s", took)
	}
	close(stop)
	writing.Wait()
	// A user who stops the own worker stops nobody else.
	if err := unix.Kill(s.workers(bob)[0], unix.SIGSTOP); err != nil {
		t.Fatal(err)
	}
	for range 600 {
		fd, err := s.connectAs(bob)
		if err != nil {
			t.Fatal(err)
		}
		defer unix.Close(fd)
	}
	if r := s.as(carol).run(t, nil, bundle, "./main.sh", "b"); r.Stdout != "b\n" {
		t.Errorf("%+v", r)
	}
	s.as(bob).refused(t, "quota", nil, bundle, "./main.sh", "a")
	s.stop(t) // in spite of it
}

func TestThreat249HelperCrash(t *testing.T) {
	s := startSystem(t)
	bundle := asRoot.bundleOf(t, map[string]string{"main.sh": lasting, "echo.sh": repeating})
	for _, how := range []syscall.Signal{unix.SIGKILL, unix.SIGTERM} {
		var clients []*background
		for i, uid := range []int{alice, bob, bob} {
			clients = append(clients, asRoot.prepared(t, s.as(uid).call(nil, bundle, "./main.sh", fmt.Sprint(i))))
			clients[i].expect(t, "ready\n")
		}
		if how == unix.SIGKILL {
			s.kill(t)
		} else {
			s.stop(t)
		}
		for _, c := range clients {
			_, code := c.wait(t)
			want, text := 125, "ended without an answer"
			// A worker may see its broker gone before it is killed for that, and tell its callers.
			if how == unix.SIGTERM || code == helper.CodeCanceled {
				want, text = helper.CodeCanceled, ""
			}
			if code != want || !strings.Contains(c.stderr.String(), text) {
				t.Errorf("%s: exit code %d: %s", how, code, c.stderr.String())
			}
		}
		if !soon(func() bool { return len(s.workers(alice))+len(s.workers(bob)) == 0 }) {
			t.Errorf("%s: workers outlive the broker", how)
		}
		s.begin(t)
		for _, uid := range []int{alice, bob} {
			if r := s.as(uid).run(t, nil, bundle, "./echo.sh", "again"); r.Stdout != "again\n" {
				t.Errorf("%+v", r)
			}
		}
	}
	// A worker's death ends its own calls and nobody else's; the next call finds another.
	own := asRoot.prepared(t, s.as(bob).call(nil, bundle, "./main.sh", "x"))
	own.expect(t, "ready\n")
	other := asRoot.prepared(t, s.as(alice).call(nil, bundle, "./main.sh", "y"))
	other.expect(t, "ready\n")
	if err := unix.Kill(s.workers(bob)[0], unix.SIGKILL); err != nil {
		t.Fatal(err)
	}
	if _, code := own.wait(t); code != 125 {
		t.Errorf("exit code %d: %s", code, own.stderr.String())
	}
	if r := s.as(bob).run(t, nil, bundle, "./echo.sh", "again"); r.Stdout != "again\n" {
		t.Errorf("%+v", r)
	}
	if len(s.workers(alice)) != 1 {
		t.Error("another user's worker is gone")
	}
	other.end(t)
}

func TestTheUserCannotEnterOrTraceTheWorker(t *testing.T) {
	s := startSystem(t)
	s.as(bob).run(t, nil, asRoot.sharedBundle(t), "true")
	pid := s.workers(bob)[0]
	const attempts = `
import ctypes, os, sys
libc = ctypes.CDLL(None, use_errno=True)
pid = int(sys.argv[1])
def tried(f):
    try:
        f()
        return "done"
    except OSError as e:
        return os.strerror(e.errno)
print("trace:", "done" if libc.ptrace(16, pid, 0, 0) == 0 else os.strerror(ctypes.get_errno()))
for name in ["environ", "mem", "maps", "root", "cwd", "fd", "ns/user"]:
    path = "/proc/%d/%s" % (pid, name)
    print(name + ":", tried(lambda: os.stat(path + "/") if name in ("root", "cwd") else os.readlink(path + "/3") if name == "fd" else os.close(os.open(path, os.O_RDONLY))))
pidfd = os.pidfd_open(pid)
print("enter:", "done" if libc.setns(pidfd, 0x10000000) == 0 else os.strerror(ctypes.get_errno()))
print("descriptor:", "done" if libc.syscall(438, pidfd, 3, 0) >= 0 else os.strerror(ctypes.get_errno()))
`
	c := s.as(bob).command()
	c.Path, c.Args = "/usr/bin/python3", []string{"python3", "-c", attempts, fmt.Sprint(pid)}
	out, err := c.CombinedOutput()
	if err != nil || strings.Contains(string(out), "done") || strings.Count(string(out), "ermi") < 8 {
		t.Errorf("%v:\n%s", err, out)
	}
}
