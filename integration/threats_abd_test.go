//go:build linux

package integration

import (
	"encoding/json"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"skillbox/helper"
)

// beside runs an attempt of the probe outside any box, as the mode's user: what is refused inside must be possible there, or the
// attempt proves nothing. Only for what does no harm.
func (m mode) beside(t *testing.T, got any, attempt ...string) {
	t.Helper()
	c := exec.Command(filepath.Join(binDir, "probe"), attempt...)
	c.Dir = "/"
	c.SysProcAttr = &syscall.SysProcAttr{Credential: m.credential()}
	decodeProbe(t, c, got)
}

// inNamespaces runs an attempt as root of namespaces of its own outside any box, under no other layer of one.
func inNamespaces(t *testing.T, got any, attempt ...string) {
	t.Helper()
	c := exec.Command(filepath.Join(binDir, "probe"), attempt...)
	c.SysProcAttr = &syscall.SysProcAttr{
		Cloneflags:  unix.CLONE_NEWUSER | unix.CLONE_NEWNS | unix.CLONE_NEWPID | unix.CLONE_NEWNET | unix.CLONE_NEWIPC | unix.CLONE_NEWUTS,
		UidMappings: []syscall.SysProcIDMap{{ContainerID: 0, HostID: os.Getuid(), Size: 1}},
		GidMappings: []syscall.SysProcIDMap{{ContainerID: 0, HostID: os.Getgid(), Size: 1}},
	}
	decodeProbe(t, c, got)
}

func decodeProbe(t *testing.T, c *exec.Cmd, got any) {
	t.Helper()
	var stderr strings.Builder
	c.Stderr = &stderr
	out, err := c.Output()
	if err != nil {
		t.Fatalf("probe %v outside: %v: %s", c.Args[1:], err, stderr.String())
	}
	if err := json.Unmarshal(out, got); err != nil {
		t.Fatalf("probe %v outside: %v: %q", c.Args[1:], err, out)
	}
}

// all demands that every try got one of the answers.
func all(t *testing.T, got map[string]string, answers ...string) {
	t.Helper()
	if len(got) == 0 {
		t.Error("nothing was tried")
	}
	for what, a := range got {
		if !slices.Contains(answers, a) {
			t.Errorf("%s: %s, want %s", what, a, strings.Join(answers, " or "))
		}
	}
}

// wantAnswers demands these answers of these tries.
func wantAnswers(t *testing.T, got map[string]string, want map[string]string) {
	t.Helper()
	for what, a := range want {
		if got[what] != a {
			t.Errorf("%s: %q, want %q", what, got[what], a)
		}
	}
}

// baseDir makes a small root file system of empty directories for rootfs.base dir:. The bundle's probe is static and needs no more.
func (m mode) baseDir(t *testing.T) string {
	t.Helper()
	dir := m.dir(t)
	for _, name := range []string{"usr", "usr/bin", "etc", "data"} {
		if err := os.Mkdir(filepath.Join(dir, name), 0o755); err != nil {
			t.Fatal(err)
		}
		m.own(t, filepath.Join(dir, name))
	}
	return dir
}

func basePolicy(dir, more string) string {
	return "version: 1\nrootfs: {base: \"dir:" + dir + "\"}\n" + more
}

// link makes a symbolic link, owned by the mode's user.
func (m mode) link(t *testing.T, target, path string) {
	t.Helper()
	if err := os.Symlink(target, path); err != nil {
		t.Fatal(err)
	}
	m.own(t, path)
}

// probeAt copies the probe.
func (m mode) probeAt(t *testing.T, path string) {
	t.Helper()
	data, err := os.ReadFile(filepath.Join(binDir, "probe"))
	if err != nil {
		t.Fatal(err)
	}
	m.write(t, path, string(data), 0o755)
}

// mustRefuse demands that nothing was started, and that the reason names what.
func mustRefuse(t *testing.T, r *helper.Result, what string) {
	t.Helper()
	if r.ExitCode != helper.CodeFailed || r.Error == nil || !strings.Contains(r.Error.Message, what) {
		t.Errorf("verdict %s, exit %d, error %+v; want a refusal that names %q\nstdout: %s", r.Verdict, r.ExitCode, r.Error, what, r.Stdout)
	}
}

// mustBeEmpty demands that nothing was made in a directory.
func mustBeEmpty(t *testing.T, dir string) {
	t.Helper()
	entries, err := os.ReadDir(dir)
	if err != nil {
		t.Fatal(err)
	}
	for _, e := range entries {
		t.Errorf("%s was made outside the box", filepath.Join(dir, e.Name()))
	}
}

// begin starts a box in the background; the returned function waits for its end and its envelope.
func (c call) begin(t *testing.T) (end func() *helper.Result) {
	t.Helper()
	done := make(chan *helper.Result, 1)
	go func() {
		defer close(done)
		done <- c.run(t)
	}()
	return func() *helper.Result {
		t.Helper()
		select {
		case r := <-done:
			if r == nil {
				t.FailNow()
			}
			return r
		case <-time.After(patience(20 * time.Second)):
			t.Fatal("the box does not end")
		}
		return nil
	}
}

// appears waits for a file.
func appears(t *testing.T, path string) {
	t.Helper()
	for began := time.Now(); time.Since(began) < patience(5*time.Second); time.Sleep(5 * time.Millisecond) {
		if _, err := os.Lstat(path); err == nil {
			return
		}
	}
	t.Fatalf("%s does not appear", path)
}

// pidOf finds the one process on this machine whose command line has the words.
func pidOf(t *testing.T, words ...string) int {
	t.Helper()
	want := strings.Join(words, "\x00") + "\x00"
	for range 400 {
		entries, err := filepath.Glob("/proc/[0-9]*/cmdline")
		if err != nil {
			t.Fatal(err)
		}
		for _, e := range entries {
			line, err := os.ReadFile(e)
			if err == nil && string(line) == want {
				pid := 0
				for _, digit := range filepath.Base(filepath.Dir(e)) {
					pid = pid*10 + int(digit-'0')
				}
				return pid
			}
		}
		time.Sleep(5 * time.Millisecond)
	}
	t.Fatalf("no process runs %v", words)
	return 0
}

// watched reports the files that anybody opened until the returned function is called, by whatever path or mount.
func watched(t *testing.T, paths ...string) (opened func() []string) {
	t.Helper()
	fd, err := unix.InotifyInit1(unix.IN_CLOEXEC | unix.IN_NONBLOCK)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { unix.Close(fd) })
	names := map[int32]string{}
	for _, p := range paths {
		wd, err := unix.InotifyAddWatch(fd, p, unix.IN_OPEN|unix.IN_ACCESS)
		if err != nil {
			t.Fatal(err)
		}
		names[int32(wd)] = p
	}
	return func() []string {
		var seen []string
		buffer := make([]byte, 4096)
		for {
			n, err := unix.Read(fd, buffer)
			if err != nil || n < unix.SizeofInotifyEvent {
				return seen
			}
			for at := 0; at+unix.SizeofInotifyEvent <= n; {
				wd := int32(buffer[at]) | int32(buffer[at+1])<<8 | int32(buffer[at+2])<<16 | int32(buffer[at+3])<<24
				length := int(buffer[at+12]) | int(buffer[at+13])<<8
				if !slices.Contains(seen, names[wd]) {
					seen = append(seen, names[wd])
				}
				at += unix.SizeofInotifyEvent + length
			}
		}
	}
}

// openTerminal makes a pseudo-terminal of the host, as a user's window is one.
func openTerminal(t *testing.T) (master, slave *os.File) {
	t.Helper()
	m, err := unix.Open("/dev/ptmx", unix.O_RDWR|unix.O_NOCTTY|unix.O_CLOEXEC, 0)
	if err != nil {
		t.Fatal(err)
	}
	master = os.NewFile(uintptr(m), "master")
	t.Cleanup(func() { master.Close() })
	if err := unix.IoctlSetPointerInt(m, unix.TIOCSPTLCK, 0); err != nil {
		t.Fatal(err)
	}
	s, _, errno := unix.Syscall(unix.SYS_IOCTL, uintptr(m), unix.TIOCGPTPEER, unix.O_RDWR|unix.O_NOCTTY|unix.O_CLOEXEC)
	if errno != 0 {
		t.Fatal(errno)
	}
	slave = os.NewFile(s, "slave")
	t.Cleanup(func() { slave.Close() })
	return master, slave
}

// shown is what a terminal's window would show by now.
func shown(t *testing.T, master *os.File) string {
	t.Helper()
	fd := int(master.Fd())
	if err := unix.SetNonblock(fd, true); err != nil {
		t.Fatal(err)
	}
	buffer := make([]byte, 64<<10)
	n, err := unix.Read(fd, buffer)
	if err != nil {
		return ""
	}
	return string(buffer[:n])
}

// reported reads what the probe wrote with its report function.
func reported(t *testing.T, path string) map[string]string {
	t.Helper()
	text, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	got := map[string]string{}
	for line := range strings.Lines(string(text)) {
		if what, a, ok := strings.Cut(strings.TrimSuffix(line, "\n"), "\t"); ok {
			got[what] = a
		}
	}
	return got
}

// program starts one of our programs outside a box, as the mode's user; it is killed at the end of the test at the latest.
func (m mode) program(t *testing.T, name string, args ...string) *exec.Cmd {
	t.Helper()
	c := exec.Command(filepath.Join(binDir, name), args...)
	c.SysProcAttr = &syscall.SysProcAttr{Credential: m.credential()}
	stdin, err := c.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := c.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		stdin.Close()
		_ = c.Process.Kill() // it may have ended
		_ = c.Wait()
	})
	return c
}

// statusOf reads fields of a host process's status, see proc_pid_status(5).
func statusOf(t *testing.T, pid int, field string) []string {
	t.Helper()
	text, err := os.ReadFile("/proc/" + strconv.Itoa(pid) + "/status")
	if err != nil {
		t.Fatal(err)
	}
	for line := range strings.Lines(string(text)) {
		if value, ok := strings.CutPrefix(line, field+":"); ok {
			return strings.Fields(value)
		}
	}
	t.Fatalf("process %d has no %s", pid, field)
	return nil
}

func number(t *testing.T, text string) int {
	t.Helper()
	n, err := strconv.Atoi(text)
	if err != nil {
		t.Fatal(err)
	}
	return n
}

func parentOf(t *testing.T, pid int) int { return number(t, statusOf(t, pid, "PPid")[0]) }
func ownerOf(t *testing.T, pid int) int  { return number(t, statusOf(t, pid, "Uid")[0]) }

func globbed(t *testing.T, pattern string) []string {
	t.Helper()
	paths, err := filepath.Glob(pattern)
	if err != nil {
		t.Fatal(err)
	}
	return paths
}

// controlled runs skillbox exec, without --json, under a terminal that controls the session of skillbox and is its stdin, stdout and stderr.
func (m mode) controlled(t *testing.T, terminal *os.File, args ...string) int {
	t.Helper()
	c := m.command(append([]string{"exec"}, args...)...)
	c.Stdin, c.Stdout, c.Stderr = terminal, terminal, terminal
	c.SysProcAttr.Setsid, c.SysProcAttr.Setctty = true, true
	err := c.Run()
	if c.ProcessState == nil {
		t.Fatal(err)
	}
	return c.ProcessState.ExitCode()
}

// oneID tells whether the mode's user has a single id, which is then uid 0 of the box's user namespace.
func (m mode) oneID(t *testing.T) bool {
	t.Helper()
	if os.Getuid() == 0 {
		return m == singleID
	}
	var status map[string]string
	call{mode: m}.probe(t, &status, "status")
	return strings.HasPrefix(status["Uid"], "0\t")
}
