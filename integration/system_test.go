//go:build linux

package integration

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"skillbox/helper"
)

// system is a system service of a test's own.
type system struct {
	dir    string
	flags  []string
	env    []string
	within func(func() error) error // where it runs
	cmd    *exec.Cmd
	log    lockedBuffer
}

// lockedBuffer takes what a process writes while a test reads it.
type lockedBuffer struct {
	mu   sync.Mutex
	text bytes.Buffer
}

func (b *lockedBuffer) Write(p []byte) (int, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.text.Write(p)
}

func (b *lockedBuffer) String() string {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.text.String()
}

// theSystem prepares one, which begin starts. It ends, when the test does, before it is looked for what is left.
func theSystem(t *testing.T) *system {
	t.Helper()
	if os.Getuid() != 0 {
		needs(t, "root", errors.New("the system service is root's"))
	}
	leavesNothing(t)
	s := &system{dir: asRoot.dir(t), within: func(f func() error) error { return f() }}
	s.flags = []string{"--dir", s.dir, "--config", filepath.Join(s.dir, "service.yaml"), "--audit", filepath.Join(s.dir, "audit")}
	t.Cleanup(func() {
		s.stop(t)
		if t.Failed() {
			t.Logf("the log of the system service:\n%s", s.log.String())
		}
	})
	return s
}

// startSystem starts a system service with the defaults.
func startSystem(t *testing.T) *system {
	t.Helper()
	s := theSystem(t)
	s.begin(t)
	return s
}

func (s *system) socket() string { return filepath.Join(s.dir, "skillboxd.sock") }

func (s *system) begin(t *testing.T) {
	t.Helper()
	s.cmd = exec.Command(filepath.Join(binDir, "skillboxd"), append([]string{"system"}, s.flags...)...)
	s.cmd.Env, s.cmd.Stderr, s.cmd.Dir = s.env, &s.log, "/"
	if err := s.within(s.cmd.Start); err != nil {
		t.Fatal(err)
	}
	s.awaitSocket(t)
}

func (s *system) awaitSocket(t *testing.T) {
	t.Helper()
	if !soon(func() bool {
		fd, err := s.connectAs(0)
		if err == nil {
			unix.Close(fd)
		}
		return err == nil
	}) {
		t.Fatalf("the system service does not listen: %s", s.log.String())
	}
}

// stop is systemd's: SIGTERM.
func (s *system) stop(t *testing.T) {
	t.Helper()
	if s.cmd == nil {
		return
	}
	c := s.cmd
	s.cmd = nil
	if err := c.Process.Signal(unix.SIGTERM); err != nil && !errors.Is(err, os.ErrProcessDone) {
		t.Error(err)
	}
	late := time.AfterFunc(patience(30*time.Second), func() {
		t.Error("the system service had to be killed")
		_ = c.Process.Kill()
	})
	defer late.Stop()
	var exit *exec.ExitError
	if err := c.Wait(); err != nil && !(errors.As(err, &exit) && exit.Sys().(syscall.WaitStatus).Signaled()) {
		t.Errorf("the system service: %v", err)
	}
}

// kill is kill -9.
func (s *system) kill(t *testing.T) {
	t.Helper()
	if err := s.cmd.Process.Kill(); err != nil {
		t.Fatal(err)
	}
	_ = s.cmd.Wait() // which says that it was killed
	s.cmd = nil
}

// workers are the pids of a user's workers.
func (s *system) workers(uid int) (all []int) {
	found, _ := filepath.Glob("/proc/[0-9]*/cmdline") // the pattern is right
	for _, name := range found {
		words, _ := os.ReadFile(name) // none when it ended meanwhile
		if string(words) != fmt.Sprintf("skillboxd\x00worker\x00%d\x00", uid) {
			continue
		}
		status, _ := os.ReadFile(filepath.Join(filepath.Dir(name), "status"))
		_, ids, _ := strings.Cut(string(status), "\nNSpid:")
		ids, _, _ = strings.Cut(ids, "\n")
		if pid, err := strconv.Atoi(filepath.Base(filepath.Dir(name))); err == nil && strings.HasSuffix(ids, "\t1") && len(strings.Fields(ids)) == 2 {
			all = append(all, pid)
		}
	}
	return all
}

// systemCaller is an ordinary user who calls.
type systemCaller struct {
	*system
	uid, gid int
	groups   []uint32
}

func (s *system) as(uid int, groups ...uint32) *systemCaller {
	return &systemCaller{s, uid, uid, groups}
}

// command is a client of this user's.
func (c *systemCaller) command(args ...string) *exec.Cmd {
	cmd := asRoot.command(args...)
	// Where the service does not serve, a helper of the user's own records the call where that user may write.
	cmd.Env = append(cmd.Env, "SKILLBOX_SOCKET="+c.socket(), "XDG_STATE_HOME="+filepath.Join(stateDir, "others", fmt.Sprint(c.uid)))
	cmd.SysProcAttr = &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: uint32(c.uid), Gid: uint32(c.gid), Groups: c.groups}}
	return cmd
}

func (c *systemCaller) call(flags []string, bundle string, words ...string) *exec.Cmd {
	args := append(append([]string{"exec", "--mode", "system"}, flags...), bundle, "--")
	return c.command(append(args, words...)...)
}

// ask makes one call with --json; several goroutines may.
func (c *systemCaller) ask(flags []string, bundle string, words ...string) (r *helper.Result, err error) {
	cmd := c.call(append([]string{"--json"}, flags...), bundle, words...)
	err = c.within(func() error {
		r, err = envelope(cmd)
		return err
	})
	return r, err
}

// run is ask for a call that succeeds.
func (c *systemCaller) run(t *testing.T, flags []string, bundle string, words ...string) *helper.Result {
	t.Helper()
	r, err := c.ask(flags, bundle, words...)
	if err != nil {
		t.Fatal(err)
	}
	if !r.Success {
		t.Fatalf("user %d: %s, %d: %v: %s", c.uid, r.Verdict, r.ExitCode, r.Error, r.Stderr)
	}
	return r
}

// refused is ask for a call that is refused with a message.
func (c *systemCaller) refused(t *testing.T, want string, flags []string, bundle string, words ...string) *helper.Result {
	t.Helper()
	r, err := c.ask(flags, bundle, words...)
	if err != nil {
		t.Fatal(err)
	}
	if r.Success || r.ExitCode != 125 || r.Error == nil || !strings.Contains(r.Error.Error(), want) {
		t.Errorf("user %d: %s, %d, %v: want %q; stdout %q", c.uid, r.Verdict, r.ExitCode, r.Error, want, r.Stdout)
	}
	return r
}

// owned gives a path, and all below it, to a user.
func owned(t *testing.T, uid int, path string) string {
	t.Helper()
	err := filepath.WalkDir(path, func(p string, _ os.DirEntry, err error) error {
		return errors.Join(err, os.Lchown(p, uid, uid))
	})
	if err != nil {
		t.Fatal(err)
	}
	return path
}

// Ordinary users, of whom only the first has an account.
const alice, bob, carol = testUID, testUID + 10, testUID + 11

const identity = `#!/bin/sh
id -u
cat /proc/self/uid_map
echo "$1"
`

func TestTheSystemServiceServesEachUserWithTheirOwnRights(t *testing.T) {
	s := startSystem(t)
	bundle := asRoot.bundleOf(t, map[string]string{"main.sh": identity})
	ids := map[string]int{}
	for _, uid := range []int{alice, bob, carol} {
		c := s.as(uid)
		for i := range 3 {
			nonce := fmt.Sprintf("nonce %d of %d", i, uid)
			r := c.run(t, nil, bundle, "./main.sh", nonce)
			lines := strings.Split(strings.TrimSpace(r.Stdout), "\n")
			if len(lines) < 3 || lines[0] != "1000" || lines[len(lines)-1] != nonce {
				t.Fatalf("%q", r.Stdout)
			}
			ids[lines[1]+lines[2]] = uid
		}
		if n := s.workers(uid); len(n) != 1 {
			t.Errorf("user %d has %d workers", uid, len(n))
		}
	}
	// What a skill creates in a directory of its user's is the user's.
	dir := owned(t, bob, asRoot.dir(t))
	policy := asRoot.file(t, "policy.yaml", "version: 1\nfilesystem: {write: [{host: "+dir+", path: /w}]}\n")
	s.as(bob).run(t, []string{"--policy", policy}, bundle, "/bin/sh", "-c", "echo x > /w/made")
	var st unix.Stat_t
	if err := unix.Stat(filepath.Join(dir, "made"), &st); err != nil || st.Uid != bob || st.Gid != bob {
		t.Errorf("%v, of %d:%d", err, st.Uid, st.Gid)
	}
}

func TestWorkersShareNoIds(t *testing.T) {
	s := startSystem(t)
	bundle := asRoot.bundleOf(t, map[string]string{"main.sh": "#!/bin/sh\n"})
	type block struct{ first, size int }
	seen := map[block]int{}
	for _, uid := range []int{alice, bob, carol} {
		s.as(uid).run(t, nil, bundle, "./main.sh")
		for _, file := range []string{"uid_map", "gid_map"} {
			text, err := os.ReadFile(fmt.Sprintf("/proc/%d/%s", s.workers(uid)[0], file))
			if err != nil {
				t.Fatal(err)
			}
			var a, outside, one, from int
			var b block
			if _, err := fmt.Sscan(string(text), &a, &outside, &one, &from, &b.first, &b.size); err != nil || a != 0 || outside != uid || one != 1 || from != 1 || b.first < 0x71000000 {
				t.Errorf("%v: %s of user %d: %s", err, file, uid, text)
			}
			if other, taken := seen[b]; taken && other != uid {
				t.Errorf("users %d and %d share %v", other, uid, b)
			}
			seen[b] = uid
		}
	}
}

func TestPsAndKillAreAboutTheCallersOwnCalls(t *testing.T) {
	s := startSystem(t)
	bundle := asRoot.bundleOf(t, map[string]string{"main.sh": lasting})
	b := asRoot.prepared(t, s.as(alice).call(nil, bundle, "./main.sh", "a"))
	b.expect(t, "ready\n")
	list := func(uid int) string {
		out, err := s.as(uid).command("ps").Output()
		if err != nil {
			t.Fatal(err)
		}
		return string(out)
	}
	own := list(alice)
	if !strings.Contains(own, "./main.sh") {
		t.Errorf("%s", own)
	}
	if others := list(bob); strings.Contains(others, "./main.sh") {
		t.Errorf("%s", others)
	}
	id := strings.Fields(strings.Split(own, "\n")[1])[0]
	if out, err := s.as(bob).command("kill", id).CombinedOutput(); err == nil || !strings.Contains(string(out), "no call or session "+id) {
		t.Errorf("another user's kill: %v: %s", err, out)
	}
	if out, err := s.as(alice).command("kill", id).CombinedOutput(); err != nil {
		t.Errorf("%v: %s", err, out)
	}
	if _, code := b.wait(t); code != helper.CodeCanceled {
		t.Errorf("exit code %d", code)
	}
}

func TestAWorkerLeavesWhenItIsIdle(t *testing.T) {
	s := theSystem(t)
	s.flags = append(s.flags, "--idle", "300ms")
	s.begin(t)
	bundle := asRoot.bundleOf(t, map[string]string{"main.sh": repeating})
	var before []int
	for i := range 3 {
		if r := s.as(alice).run(t, nil, bundle, "./main.sh", "a"); r.Stdout != "a\n" {
			t.Errorf("%+v", r)
		}
		if now := s.workers(alice); i > 0 && len(now) > 0 && now[0] == before[0] {
			t.Error("the worker stayed")
		} else {
			before = now
		}
		if !soon(func() bool { return len(s.workers(alice)) == 0 }) {
			t.Fatal("the worker does not leave")
		}
	}
	// Calls that come while a worker leaves are served all the same.
	var wait sync.WaitGroup
	for range 4 {
		wait.Go(func() {
			for n := range load(40) {
				if n%4 == 0 {
					time.Sleep(time.Duration(290+n) * time.Millisecond)
				}
				if r, err := s.as(bob).ask(nil, bundle, "./main.sh", "a"); err != nil || r.Stdout != "a\n" {
					t.Errorf("%v, %+v", err, r)
				}
			}
		})
	}
	wait.Wait()
}
