//go:build linux

package integration

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"skillbox/helper"
)

// private makes a directory that only a user may look into, with a file that only the user may read.
func private(t *testing.T, uid int, secret string) string {
	t.Helper()
	dir := filepath.Join(asRoot.dir(t), "private")
	if err := errors.Join(os.Mkdir(dir, 0o700), os.WriteFile(filepath.Join(dir, "secret"), []byte(secret), 0o600)); err != nil {
		t.Fatal(err)
	}
	return owned(t, uid, dir)
}

func TestThreat234MountShadow(t *testing.T) {
	s := startSystem(t)
	const secret = "nobody else may read this"
	roots, alices := private(t, 0, secret), private(t, alice, secret)
	bundle := asRoot.bundleOf(t, map[string]string{"main.sh": "#!/bin/sh\ncat /shown/secret /shown 2>&1\n"})
	show := func(host string) []string {
		return []string{"--policy", asRoot.file(t, "policy.yaml", "version: 1\nfilesystem: {read: [{host: "+host+", path: /shown, dangerous: true}]}\n")}
	}
	if r := s.as(alice).run(t, show(alices), bundle, "/bin/sh", "-c", "cat /shown/secret"); r.Stdout != secret {
		t.Errorf("the owner's own: %+v", r)
	}
	for _, host := range []string{roots, filepath.Join(roots, "secret"), alices, filepath.Join(alices, "secret"), "/proc/1/root" + roots, "/proc/1/root"} {
		r, err := s.as(bob).ask(show(host), bundle, "./main.sh")
		if err != nil {
			t.Fatal(err)
		}
		if text := asJSON(t, r); strings.Contains(text, secret) {
			t.Errorf("%s is shown: %s", host, text)
		} else if r.Verdict == helper.Refused && !strings.Contains(text, "permission denied") && !strings.HasPrefix(host, "/proc") {
			t.Errorf("%s: %v", host, r.Error)
		} else if r.Success {
			t.Errorf("%s: %q", host, r.Stdout)
		}
	}
	// /etc/shadow can be named, for its directory is everybody's; it cannot be read.
	if r, err := s.as(bob).ask(show("/etc/shadow"), bundle, "/bin/cat", "/shown"); err != nil || r.Success || r.Stdout != "" {
		t.Errorf("/etc/shadow: %v, %+v", err, r)
	}
	// Nor is a bundle read whose files the caller may not read.
	hidden := asRoot.bundleOf(t, map[string]string{"main.sh": "#!/bin/sh\ncat secret\n"})
	if err := os.WriteFile(filepath.Join(hidden, "secret"), []byte(secret), 0o600); err != nil {
		t.Fatal(err)
	}
	s.as(bob).refused(t, "permission denied", nil, hidden, "./main.sh")
	s.as(bob).refused(t, "permission denied", nil, roots, "./main.sh")
}

func TestThreat235PathSwapAfterCheck(t *testing.T) {
	s := startSystem(t)
	const secret = "nobody else may read this"
	roots := private(t, 0, secret)
	dir := owned(t, bob, asRoot.dir(t))
	for name, target := range map[string]string{"shown": "", "other": roots} {
		path := filepath.Join(dir, name)
		if target != "" {
			if err := os.Symlink(target, path); err != nil {
				t.Fatal(err)
			}
			continue
		}
		if err := errors.Join(os.Mkdir(path, 0o755), os.WriteFile(filepath.Join(path, "secret"), []byte("mine"), 0o644)); err != nil {
			t.Fatal(err)
		}
	}
	owned(t, bob, dir)
	// All the time the one is put in the place of the other.
	var swaps atomic.Int64
	stop := make(chan struct{})
	var swapping sync.WaitGroup
	swapping.Go(func() {
		for {
			select {
			case <-stop:
				return
			default:
			}
			if err := unix.Renameat2(unix.AT_FDCWD, filepath.Join(dir, "shown"), unix.AT_FDCWD, filepath.Join(dir, "other"), unix.RENAME_EXCHANGE); err != nil {
				t.Error(err)
				return
			}
			swaps.Add(1)
			time.Sleep(time.Duration(swaps.Load()%7) * 300 * time.Microsecond)
		}
	})
	defer swapping.Wait()
	defer close(stop)
	policy := asRoot.file(t, "policy.yaml", "version: 1\nfilesystem: {read: [{host: "+filepath.Join(dir, "shown")+", path: /shown}]}\n")
	bundle := asRoot.bundleOf(t, map[string]string{"main.sh": "#!/bin/sh\ncat /shown/secret\n"})
	var granted, turned atomic.Int64
	var calls sync.WaitGroup
	for range 4 {
		calls.Go(func() {
			for range load(150) {
				r, err := s.as(bob).ask([]string{"--policy", policy}, bundle, "./main.sh")
				if err != nil {
					t.Error(err)
					return
				}
				switch {
				case r.Success && r.Stdout == "mine":
					granted.Add(1)
				case r.Stdout == "":
					turned.Add(1)
				default:
					t.Errorf("%s, %q, %v", r.Verdict, r.Stdout, r.Error)
				}
			}
		})
	}
	calls.Wait()
	if granted.Load() == 0 || turned.Load() == 0 || swaps.Load() < 1000 {
		t.Errorf("%d calls saw the directory, %d were refused, of %d swaps: nothing was raced", granted.Load(), turned.Load(), swaps.Load())
	}
}

// connecting is a program that connects, says so, and then does what its words say.
const connecting = `
import os, socket, sys
s = socket.socket(fileno=3)
s.connect(sys.argv[1])
os.write(1, b"connected\n")
os.read(0, 1)
if len(sys.argv) > 2:
    os.set_inheritable(3, True)
    os.execv(sys.argv[2], sys.argv[2:])
`

// connectedBy is a socket that a process of a user's connected, which then waits.
func (s *system) connectedBy(t *testing.T, uid int, words ...string) (fd int, c *exec.Cmd, proceed func()) {
	t.Helper()
	fd, err := unix.Socket(unix.AF_UNIX, unix.SOCK_STREAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		t.Fatal(err)
	}
	copied, err := unix.FcntlInt(uintptr(fd), unix.F_DUPFD_CLOEXEC, 0)
	if err != nil {
		t.Fatal(err)
	}
	file := os.NewFile(uintptr(copied), "socket")
	defer file.Close()
	c = exec.Command("/usr/bin/python3", append([]string{"-c", connecting, s.socket()}, words...)...)
	c.ExtraFiles, c.Dir = []*os.File{file}, "/"
	c.SysProcAttr = &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: uint32(uid), Gid: uint32(uid)}}
	in, err1 := c.StdinPipe()
	out, err2 := c.StdoutPipe()
	if err := errors.Join(err1, err2, c.Start()); err != nil {
		t.Fatal(err)
	}
	said := make([]byte, 10)
	if n, err := out.Read(said); err != nil || string(said[:n]) != "connected\n" {
		t.Fatalf("%v, %q", err, said[:n])
	}
	return fd, c, func() { in.Close() }
}

func TestThreat237PeercredRace(t *testing.T) {
	s := startSystem(t)
	// A process that has become root after it connected is still who it was.
	program := filepath.Join(asRoot.dir(t), "setuid")
	sleep, err := os.ReadFile("/usr/bin/sleep")
	if err != nil {
		t.Fatal(err)
	}
	if err := errors.Join(os.WriteFile(program, sleep, 0o755), os.Chmod(program, 0o755|os.ModeSetuid)); err != nil {
		t.Fatal(err)
	}
	pause := func(sig syscall.Signal) {
		t.Helper()
		if err := s.cmd.Process.Signal(sig); err != nil {
			t.Fatal(err)
		}
	}
	pause(unix.SIGSTOP)
	fd, c, proceed := s.connectedBy(t, bob, program, "60")
	proceed()
	isRoot := func() bool {
		status, _ := os.ReadFile(fmt.Sprintf("/proc/%d/status", c.Process.Pid))
		return strings.Contains(string(status), "\t0\t0\t0\nGid")
	}
	if !soon(isRoot) {
		needs(t, "setuid", errors.New("the program did not become root: "+program+" lies on a file system that is mounted nosuid"))
	}
	pause(unix.SIGCONT)
	reply, err := ask(fd, execRequest(t, asRoot.bundleOf(t, map[string]string{"main.sh": identity}), "./main.sh", "x"))
	if err != nil || reply.Result == nil || !reply.Result.Success {
		t.Errorf("%v, %+v", err, reply)
	}
	if root, own := s.workers(0), s.workers(bob); len(root) > 0 || len(own) != 1 {
		t.Errorf("workers of root: %d, of who connected: %d", root, own)
	}
	_ = c.Process.Kill()
	_ = c.Wait()

	// One that has gone is nobody, also where its number is another's by now: a process of root's.
	for _, reuse := range []bool{false, true} {
		pause(unix.SIGSTOP)
		fd, c, proceed := s.connectedBy(t, carol)
		proceed()
		if err := c.Wait(); err != nil {
			t.Fatal(err)
		}
		var next *exec.Cmd
		if reuse {
			next = withPid(t, c.Process.Pid)
		}
		pause(unix.SIGCONT)
		reply, err := ask(fd, execRequest(t, asRoot.sharedBundle(t), "true"))
		if err != nil || reply.Declined == nil {
			t.Errorf("%v, %+v", err, reply)
		}
		if next != nil {
			_ = next.Process.Kill()
			_ = next.Wait()
		}
	}
	if n := s.workers(carol); len(n) > 0 {
		t.Error("a worker was started for a process that had gone")
	}
}

// withPid starts a process of root's with a number.
func withPid(t *testing.T, pid int) *exec.Cmd {
	t.Helper()
	for range 100 {
		if err := os.WriteFile("/proc/sys/kernel/ns_last_pid", []byte(strconv.Itoa(pid-1)), 0); err != nil {
			needs(t, "ns_last_pid", err)
		}
		c := exec.Command("/usr/bin/sleep", "60")
		if err := c.Start(); err != nil {
			t.Fatal(err)
		}
		if c.Process.Pid == pid {
			return c
		}
		_ = c.Process.Kill()
		_ = c.Wait()
	}
	t.Fatalf("no process gets the number %d", pid)
	return nil
}

func TestThreat238SocketPerms(t *testing.T) {
	s := startSystem(t)
	var dir, socket unix.Stat_t
	if err := errors.Join(unix.Stat(s.dir, &dir), unix.Lstat(s.socket(), &socket)); err != nil {
		t.Fatal(err)
	}
	if dir.Uid != 0 || dir.Mode&0o7777 != 0o755 || socket.Uid != 0 || socket.Mode&0o777 != 0o666 {
		t.Errorf("directory %o of %d, socket %o of %d", dir.Mode, dir.Uid, socket.Mode, socket.Uid)
	}
	try := func(dir string) string {
		t.Helper()
		c := exec.Command(filepath.Join(binDir, "skillboxd"), "system", "--dir", dir, "--audit", filepath.Join(dir, "audit"))
		out, err := c.CombinedOutput()
		if err == nil {
			t.Errorf("%s: it starts", dir)
		}
		return string(out)
	}
	if out := try(s.dir); !strings.Contains(out, "another skillboxd system") {
		t.Errorf("a second one: %s", out)
	}
	if names, err := os.ReadFile("/proc/net/unix"); err != nil || strings.Contains(string(names), "@skillboxd") {
		t.Errorf("%v: there is an abstract socket: %s", err, names)
	}
	bundle := asRoot.sharedBundle(t)
	s.kill(t)
	if _, err := os.Lstat(s.socket()); err != nil {
		t.Fatal(err)
	}
	s.as(bob).refused(t, "does not run", nil, bundle, "true") // it is stale
	s.begin(t)
	s.as(bob).run(t, nil, bundle, "true")
	s.stop(t)
	if _, err := os.Lstat(s.socket()); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("the socket is left: %v", err)
	}
	// What is no socket stays, and what it leads to is nobody's business.
	victim := asRoot.file(t, "victim", "victim")
	if err := os.Symlink(victim, s.socket()); err != nil {
		t.Fatal(err)
	}
	if out := try(s.dir); !strings.Contains(out, "is no socket") {
		t.Errorf("a link: %s", out)
	}
	if text, err := os.ReadFile(victim); err != nil || string(text) != "victim" {
		t.Errorf("%v, %s", err, text)
	}
	theirs := owned(t, bob, asRoot.dir(t))
	open := asRoot.dir(t)
	if err := os.Chmod(open, 0o777); err != nil {
		t.Fatal(err)
	}
	link := filepath.Join(asRoot.dir(t), "link")
	if err := os.Symlink(open, link); err != nil {
		t.Fatal(err)
	}
	for dir, want := range map[string]string{theirs: "others than root", open: "others than root", link: "open "} {
		if out := try(dir); !strings.Contains(out, want) {
			t.Errorf("%s: %s", dir, out)
		}
	}
	// A client does not take another user's socket for root's.
	impostor, err := unix.Socket(unix.AF_UNIX, unix.SOCK_STREAM|unix.SOCK_CLOEXEC, 0)
	if err == nil {
		err = errors.Join(unix.Bind(impostor, &unix.SockaddrUnix{Name: filepath.Join(theirs, "skillboxd.sock")}), unix.Listen(impostor, 1))
	}
	if err != nil {
		t.Fatal(err)
	}
	defer unix.Close(impostor)
	s.dir = theirs
	s.as(alice).refused(t, "not root's", nil, bundle, "true")
	c := s.as(alice).command("exec", "--json", bundle, "--", "true") // in mode auto, without it
	if r, err := envelope(c); err != nil || !r.Success {
		t.Errorf("%v, %+v", err, r)
	}
}

func TestThreat250HelperEnv(t *testing.T) {
	s := theSystem(t)
	hostile := owned(t, bob, asRoot.dir(t))
	marker := filepath.Join(hostile, "ran")
	for _, name := range []string{"id", "newuidmap", "nft", "ip", "sh"} {
		if err := os.WriteFile(filepath.Join(hostile, name), []byte("#!/bin/sh\ntouch "+marker+"\n"), 0o755); err != nil {
			t.Fatal(err)
		}
	}
	bad := []string{
		"LD_PRELOAD=" + hostile + "/evil.so", "LD_LIBRARY_PATH=" + hostile, "PATH=" + hostile, "TMPDIR=" + hostile, "HOME=" + hostile, "GODEBUG=netdns=cgo,invalid=1",
		"XDG_RUNTIME_DIR=" + hostile, "LISTEN_PID=1", "LISTEN_FDS=7", "SKILLBOX_CANARY=canary", "IFS=/",
	}
	s.env = bad
	s.begin(t)
	bundle := asRoot.bundleOf(t, map[string]string{"main.sh": "#!/bin/sh\n/usr/bin/env\n"})
	c := s.as(bob).call([]string{"--json"}, bundle, "./main.sh")
	c.Env = append(append(c.Env, bad...), "PATH=/usr/bin:/bin")
	c.Dir = hostile
	r, err := envelope(c)
	if err != nil || !r.Success || strings.Contains(r.Stdout, hostile) || strings.Contains(r.Stdout, "CANARY") {
		t.Errorf("%v, %+v", err, r)
	}
	pid := s.workers(bob)[0]
	env, err1 := os.ReadFile(fmt.Sprintf("/proc/%d/environ", pid))
	cwd, err2 := os.Readlink(fmt.Sprintf("/proc/%d/cwd", pid))
	if err := errors.Join(err1, err2); err != nil || len(env) > 0 || cwd != "/" {
		t.Errorf("the worker: %v, environment %q, directory %s", err, env, cwd)
	}
	if _, err := os.Lstat(marker); err == nil {
		t.Error("a program of the hostile directory ran")
	}
}

func TestThreat252TmpRaces(t *testing.T) {
	s := startSystem(t)
	look := func() map[string]bool {
		found := map[string]bool{}
		for _, pattern := range []string{"/tmp/*", "/run/*", "/run/skillboxd/*", "/var/tmp/*", "/dev/shm/*", s.dir + "/*"} {
			paths, err := filepath.Glob(pattern)
			if err != nil {
				t.Fatal(err)
			}
			for _, p := range paths {
				found[p] = true
			}
		}
		return found
	}
	bundle := asRoot.bundleOf(t, map[string]string{"main.sh": lasting})
	before := look()
	b := asRoot.prepared(t, s.as(bob).call(nil, bundle, "./main.sh", "a"))
	b.expect(t, "ready\n")
	for path := range look() {
		if !before[path] && (strings.Contains(path, "skillbox") || strings.HasPrefix(path, s.dir)) && !strings.HasPrefix(path, "/tmp/skillbox-") {
			t.Errorf("a call makes %s", path)
		}
	}
	b.end(t)
	var lock unix.Stat_t
	if err := unix.Stat(filepath.Join(s.dir, "lock"), &lock); err != nil || lock.Uid != 0 || lock.Mode&0o777 != 0o600 {
		t.Errorf("%v, %o", err, lock.Mode)
	}
}

func TestThreat253NoHelperMode(t *testing.T) {
	s := theSystem(t)
	bundle := asRoot.bundleOf(t, map[string]string{"main.sh": "#!/bin/sh\ntouch /tmp/ran\n"})
	r := s.as(bob).refused(t, "the system service does not run here", nil, bundle, "./main.sh")
	if !strings.Contains(r.Error.Hint, "mode user or oneshot") || r.Stdout != "" {
		t.Errorf("%+v", r.Error)
	}
	// What is asked for without a mode has another helper, and all of the isolation.
	c := s.as(bob).command("exec", "--json", bundle, "--", "/bin/sh", "-c", "id -u; ls /root /home 2>&1; cat /proc/self/status")
	r, err := envelope(c)
	if err != nil || r.Sandbox.Layers["seccomp"] == "" || !strings.Contains(r.Stdout, "NoNewPrivs:\t1") || !strings.Contains(r.Stdout, "Seccomp:\t2") {
		t.Errorf("%v, %+v", err, r)
	}
}
