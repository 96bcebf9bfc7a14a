//go:build linux

// Package integration holds the tests that run the real programs: every refusal is tested by attempting the real thing inside a
// box, as root and rootless. As root the tests live in a mount namespace of their own, where /etc/passwd and /etc/subuid name a
// test user; nothing of the host's changes. As an ordinary user only the rootless modes run.
package integration

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
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

// testUID is an ordinary user that exists only in the tests' mount namespace.
const testUID = 61234

// binDir holds the three programs and the probe; it is readable by everybody.
var binDir string

func TestMain(m *testing.M) {
	if os.Getenv("SKILLBOX_TEST_NS") == "container" {
		os.Exit(asContainer())
	}
	if os.Getenv("SKILLBOX_BIN") == "" {
		// So that `go test ./...` stays under a minute: this ring takes several.
		fmt.Println("integration: skipped: SKILLBOX_BIN does not name the directory of the built programs; `make integration` does")
		os.Exit(0)
	}
	if os.Getuid() == 0 && os.Getenv("SKILLBOX_TEST_NS") == "" {
		os.Exit(inNamespace())
	}
	if os.Getenv("SKILLBOX_TEST_NS") == "init" {
		os.Exit(asInit())
	}
	code, err := setUp(m)
	if err != nil {
		fmt.Fprintln(os.Stderr, "integration:", err)
		code = 1
	}
	os.Exit(code)
}

// inNamespace runs this test binary again in a mount and a pid namespace of its own: what is left behind is then only ours.
func inNamespace() int {
	c := exec.Command("/proc/self/exe", os.Args[1:]...)
	c.Stdin, c.Stdout, c.Stderr = os.Stdin, os.Stdout, os.Stderr
	c.Env = append(os.Environ(), "SKILLBOX_TEST_NS=init")
	c.SysProcAttr = &syscall.SysProcAttr{Cloneflags: unix.CLONE_NEWNS | unix.CLONE_NEWPID, Pdeathsig: syscall.SIGKILL}
	err := c.Run()
	var exit *exec.ExitError
	if errors.As(err, &exit) {
		return exit.ExitCode()
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, "integration:", err)
		return 1
	}
	return 0
}

// asInit is pid 1 of the tests' pid namespace: it starts the tests and reaps what they orphan.
func asInit() int {
	if err := errors.Join(unix.Mount("", "/", "", unix.MS_REC|unix.MS_PRIVATE, ""), unix.Mount("proc", "/proc", "proc", 0, "")); err != nil {
		fmt.Fprintln(os.Stderr, "integration:", err)
		return 1
	}
	os.Setenv("SKILLBOX_TEST_NS", "1")
	tests, err := syscall.ForkExec("/proc/self/exe", os.Args, &syscall.ProcAttr{Env: os.Environ(), Files: []uintptr{0, 1, 2}})
	if err != nil {
		fmt.Fprintln(os.Stderr, "integration:", err)
		return 1
	}
	for {
		var status unix.WaitStatus
		pid, err := unix.Wait4(-1, &status, 0, nil)
		if err == nil && pid == tests {
			if status.Signaled() {
				return 128 + int(status.Signal())
			}
			return status.ExitStatus()
		}
		if err != nil && err != unix.EINTR {
			fmt.Fprintln(os.Stderr, "integration:", err)
			return 1
		}
	}
}

func setUp(m *testing.M) (int, error) {
	dir, err := os.MkdirTemp("", "skillbox-test-")
	if err != nil {
		return 1, err
	}
	defer os.RemoveAll(dir)
	if err := os.Chmod(dir, 0o755); err != nil {
		return 1, err
	}
	if os.Getuid() == 0 {
		if err := addTestUser(dir); err != nil {
			return 1, err
		}
	}
	if err := errors.Join(mountGroups(dir), buildPrograms(dir), makeStates(dir)); err != nil {
		return 1, err
	}
	code := m.Run()
	left, err := ourGroups()
	if len(left) > 0 {
		return 1, fmt.Errorf("control groups are left: %s", strings.Join(left, ", "))
	}
	fmt.Printf("integration: %d calls, no control group is left\n", runs.Load())
	return code, err
}

// runs counts the calls that tests made.
var runs atomic.Int64

// addTestUser shows this namespace account files that hold one more user, with sub-ids.
func addTestUser(dir string) error {
	if err := unix.Mount("", "/", "", unix.MS_REC|unix.MS_PRIVATE, ""); err != nil {
		return err
	}
	for path, line := range map[string]string{
		"/etc/passwd": fmt.Sprintf("sbtest:x:%d:%d::/nonexistent:/bin/sh\n", testUID, testUID),
		"/etc/group":  fmt.Sprintf("sbtest:x:%d:\n", testUID),
		"/etc/subuid": "sbtest:1500000000:65536\n",
		"/etc/subgid": "sbtest:1500000000:65536\n",
	} {
		old, err := os.ReadFile(path)
		if err != nil && !errors.Is(err, os.ErrNotExist) {
			return err
		}
		if errors.Is(err, os.ErrNotExist) {
			return fmt.Errorf("%s does not exist: apt-get install uidmap", path)
		}
		copied := filepath.Join(dir, filepath.Base(path))
		if err := os.WriteFile(copied, append(old, line...), 0o644); err != nil {
			return err
		}
		if err := unix.Mount(copied, path, "", unix.MS_BIND, ""); err != nil {
			return err
		}
	}
	return nil
}

// makeStates makes the places of audit logs: root's is hidden with the machine's own, the others' are in dir.
func makeStates(dir string) error {
	stateDir = filepath.Join(dir, "state")
	if err := os.Mkdir(stateDir, 0o755); err != nil {
		return err
	}
	if os.Getuid() == 0 {
		if err := unix.Mount("tmpfs", "/var/log", "tmpfs", unix.MS_NOSUID|unix.MS_NODEV, "mode=755"); err != nil {
			return err
		}
	}
	others := filepath.Join(stateDir, "others") // each makes one's own
	if err := os.Mkdir(others, 0o755); err != nil {
		return err
	}
	if err := os.Chmod(others, 0o777|os.ModeSticky); err != nil {
		return err
	}
	for _, m := range modes() {
		if err := os.Mkdir(m.state(), 0o700); err != nil {
			return err
		}
		if cred := m.credential(); cred != nil {
			if err := os.Chown(m.state(), int(cred.Uid), int(cred.Gid)); err != nil {
				return err
			}
		}
	}
	return nil
}

var stateDir string

func (m mode) uid() int {
	if cred := m.credential(); cred != nil {
		return int(cred.Uid)
	}
	return os.Getuid()
}

// state is the XDG_STATE_HOME of the mode's user, and audit the directory of the user's audit log.
func (m mode) state() string { return filepath.Join(stateDir, string(m)) }

func (m mode) audit() string {
	if m.credential() == nil && os.Getuid() == 0 {
		return "/var/log/skillbox/audit"
	}
	return filepath.Join(m.state(), "skillbox", "audit")
}

// buildPrograms takes the programs that `make build` made, and builds those of the tests.
func buildPrograms(dir string) error {
	binDir = filepath.Join(dir, "bin")
	if err := os.Mkdir(binDir, 0o755); err != nil {
		return err
	}
	from := os.Getenv("SKILLBOX_BIN")
	for _, name := range []string{"skillbox", "skillboxd", "skillbox-init", "skillbox-scan", "skillbox-mcp", "skillbox-image"} {
		data, err := os.ReadFile(filepath.Join(from, name))
		if err != nil {
			return fmt.Errorf("%w: run make build first", err)
		}
		if err := os.WriteFile(filepath.Join(binDir, name), data, 0o755); err != nil {
			return err
		}
	}
	for name, source := range map[string]string{"probe": "./probe", "go-host": "../clients/go-host"} {
		if err := testProgram(name, source); err != nil {
			return err
		}
	}
	return nil
}

// testProgram builds a program of the tests' own, or takes it from beside SKILLBOX_PROBE where there is no compiler.
func testProgram(name, source string) error {
	at := filepath.Join(binDir, name)
	if probe := os.Getenv("SKILLBOX_PROBE"); probe != "" {
		data, err := os.ReadFile(filepath.Join(filepath.Dir(probe), name))
		if err != nil {
			return err
		}
		return os.WriteFile(at, data, 0o755)
	}
	c := exec.Command("go", "build", "-ldflags=-s -w", "-o", at, source)
	c.Env = append(os.Environ(), "CGO_ENABLED=0")
	if out, err := c.CombinedOutput(); err != nil {
		return fmt.Errorf("build %s: %w: %s", name, err, out)
	}
	return nil
}

// mode is who runs skillbox.
type mode string

const (
	asRoot   mode = "root"
	rootless mode = "rootless"  // an ordinary user with sub-ids
	singleID mode = "single-id" // an ordinary user without
)

// modes are those that this test run can try; SKILLBOX_MODES names fewer of them, separated by commas.
func modes() []mode {
	all := []mode{rootless}
	if os.Getuid() == 0 {
		all = []mode{asRoot, rootless, singleID}
	}
	if only := os.Getenv("SKILLBOX_MODES"); only != "" {
		all = slices.DeleteFunc(all, func(m mode) bool { return !slices.Contains(strings.Split(only, ","), string(m)) })
	}
	return all
}

// load is a number of repetitions or of boxes. An emulated machine divides it by SKILLBOX_LOAD_DIVISOR: what it proves is that
// another kernel does the same, not that it does so under load.
func load(n int) int {
	return max(n/emulation("SKILLBOX_LOAD_DIVISOR"), 2)
}

// patience is an upper bound of time. An emulated machine multiplies it by SKILLBOX_PATIENCE.
func patience(d time.Duration) time.Duration {
	return d * time.Duration(emulation("SKILLBOX_PATIENCE"))
}

// emulation is a factor from the environment, 1 when it is not there.
func emulation(name string) int {
	if n, err := strconv.Atoi(os.Getenv(name)); err == nil && n > 0 {
		return n
	}
	return 1
}

// needs skips a test if what it needs is missing here, which err tells. Where SKILLBOX_COMPLETE is set, nothing may be missing but
// the features that SKILLBOX_WITHOUT lists, separated by commas.
func needs(t *testing.T, feature string, err error) {
	t.Helper()
	if err == nil {
		return
	}
	if os.Getenv("SKILLBOX_COMPLETE") != "" && !slices.Contains(strings.Split(os.Getenv("SKILLBOX_WITHOUT"), ","), feature) {
		t.Fatalf("needs %s, which must be here: %v", feature, err)
	}
	t.Skipf("needs %s: %v", feature, err)
}

// inEachMode runs a test in every mode, and checks afterwards that nothing was left behind.
func inEachMode(t *testing.T, f func(t *testing.T, m mode)) {
	t.Helper()
	for _, m := range modes() {
		t.Run(string(m), func(t *testing.T) {
			leavesNothing(t)
			f(t, m)
		})
	}
}

// asRootAndRootless is inEachMode for programs that only use boxes, where the third mode would try the boxes again.
func asRootAndRootless(t *testing.T, f func(t *testing.T, m mode)) {
	t.Helper()
	inEachMode(t, func(t *testing.T, m mode) {
		if m == singleID {
			t.Skip("the same as rootless for who only uses boxes")
		}
		f(t, m)
	})
}

// credential is the user of a mode; nil is our own. Without sub-ids the user is one that /etc/subuid does not know.
func (m mode) credential() *syscall.Credential {
	if os.Getuid() != 0 || m == asRoot {
		return nil
	}
	id := uint32(testUID)
	if m == singleID {
		id++
	}
	return &syscall.Credential{Uid: id, Gid: id}
}

// command is the skillbox client, run by the mode's user with a small environment.
func (m mode) command(args ...string) *exec.Cmd {
	runs.Add(1)
	c := exec.Command(filepath.Join(binDir, "skillbox"), args...)
	// A service is a test's own business: see service.env.
	c.Env = []string{"PATH=/usr/bin:/bin:/usr/sbin", "HOME=/nonexistent", "XDG_STATE_HOME=" + m.state(), "SKILLBOX_NO_DAEMON=1"}
	c.Dir = "/"
	c.SysProcAttr = &syscall.SysProcAttr{Credential: m.credential()}
	return c
}

// call is one `skillbox exec --json`.
type call struct {
	mode   mode
	policy string   // text of a policy file, "" for none
	bundle string   // directory; "" is an empty bundle with the probe
	flags  []string // before the bundle
	words  []string // after --
	env    []string // the caller's environment, beside PATH and HOME
	stdin  string
}

// run calls skillbox and returns the envelope. The command itself must not fail.
func (c call) run(t *testing.T) *helper.Result {
	t.Helper()
	args := append([]string{"exec", "--json"}, c.flags...)
	if c.policy != "" {
		args = append(args, "--policy", c.mode.file(t, "policy.yaml", c.policy))
	}
	bundle := c.bundle
	if bundle == "" {
		bundle = c.mode.sharedBundle(t)
	}
	args = append(args, bundle)
	if len(c.words) > 0 {
		args = append(append(args, "--"), c.words...)
	}
	cmd := c.mode.command(args...)
	cmd.Env = append(cmd.Env, c.env...)
	cmd.Stdin = strings.NewReader(c.stdin)
	var stdout, stderr bytes.Buffer
	cmd.Stdout, cmd.Stderr = &stdout, &stderr
	err := cmd.Run()
	var exit *exec.ExitError
	if err != nil && !errors.As(err, &exit) {
		t.Fatal(err)
	}
	var r helper.Result
	if err := json.Unmarshal(stdout.Bytes(), &r); err != nil {
		t.Fatalf("no envelope: %v\nstdout: %s\nstderr: %s", err, stdout.String(), stderr.String())
	}
	if code := cmd.ProcessState.ExitCode(); code != r.ExitCode {
		t.Errorf("skillbox exited with %d, the envelope says %d", code, r.ExitCode)
	}
	return &r
}

// probe runs one attempt of the probe inside a box and decodes what it reports into got.
func (c call) probe(t *testing.T, got any, attempt ...string) *helper.Result {
	t.Helper()
	c.words = append([]string{"/skill/probe"}, attempt...)
	r := c.run(t)
	if r.Verdict != helper.Exited || r.ExitCode != 0 {
		t.Fatalf("probe %v: verdict %s, exit %d, error %v\nstderr: %s\nstdout: %s", attempt, r.Verdict, r.ExitCode, r.Error, r.Stderr, r.Stdout)
	}
	if err := json.Unmarshal([]byte(r.Stdout), got); err != nil {
		t.Fatalf("probe %v: %v: %q", attempt, err, r.Stdout)
	}
	return r
}

// attempts runs a probe that reports what each of several tries answered: "ok", an errno name, or "killed:SIGSYS".
func (c call) attempts(t *testing.T, attempt ...string) map[string]string {
	t.Helper()
	got := map[string]string{}
	c.probe(t, &got, attempt...)
	if len(got) == 0 {
		t.Fatalf("probe %v tried nothing", attempt)
	}
	return got
}

// dir makes a directory that the mode's user owns.
func (m mode) dir(t *testing.T) string {
	t.Helper()
	dir := t.TempDir()
	// t.TempDir's parents are 0700-free only for us.
	for p := dir; strings.Contains(p, "Test"); p = filepath.Dir(p) {
		if err := os.Chmod(p, 0o755); err != nil {
			t.Fatal(err)
		}
	}
	m.own(t, dir)
	return dir
}

// own gives a path to the mode's user.
func (m mode) own(t *testing.T, path string) {
	t.Helper()
	if cred := m.credential(); cred != nil {
		if err := os.Lchown(path, int(cred.Uid), int(cred.Gid)); err != nil {
			t.Fatal(err)
		}
	}
}

// file writes a file that the mode's user owns, in a directory of its own.
func (m mode) file(t *testing.T, name, content string) string {
	t.Helper()
	path := filepath.Join(m.dir(t), name)
	m.write(t, path, content, 0o644)
	return path
}

// write writes one file owned by the mode's user.
func (m mode) write(t *testing.T, path, content string, perm os.FileMode) {
	t.Helper()
	if err := os.WriteFile(path, []byte(content), perm); err != nil {
		t.Fatal(err)
	}
	if err := os.Chmod(path, perm); err != nil {
		t.Fatal(err)
	}
	m.own(t, path)
}

// bundleOf makes a bundle of the given files; names may hold directories, and files starting with #! are executable.
func (m mode) bundleOf(t *testing.T, files map[string]string) string {
	t.Helper()
	dir := m.dir(t)
	for name, content := range files {
		path := filepath.Join(dir, name)
		for p := filepath.Dir(path); p != dir; p = filepath.Dir(p) {
			if err := os.MkdirAll(p, 0o755); err != nil {
				t.Fatal(err)
			}
			m.own(t, p)
		}
		perm := os.FileMode(0o644)
		if strings.HasPrefix(content, "#!") {
			perm = 0o755
		}
		m.write(t, path, content, perm)
	}
	return dir
}

// probeBundle is a bundle with nothing but the probe.
func (m mode) probeBundle(t *testing.T) string {
	t.Helper()
	dir := m.dir(t)
	data, err := os.ReadFile(filepath.Join(binDir, "probe"))
	if err != nil {
		t.Fatal(err)
	}
	m.write(t, filepath.Join(dir, "probe"), string(data), 0o755)
	return dir
}

// sharedBundle is a probeBundle that all calls of a mode share which name no bundle; tests cannot get at it to change it.
func (m mode) sharedBundle(t *testing.T) string {
	t.Helper()
	sharing.Lock()
	defer sharing.Unlock()
	dir := filepath.Join(filepath.Dir(binDir), "bundle-"+string(m))
	if _, err := os.Stat(dir); err == nil {
		return dir
	}
	if err := os.Mkdir(dir, 0o755); err != nil {
		t.Fatal(err)
	}
	m.own(t, dir)
	data, err := os.ReadFile(filepath.Join(binDir, "probe"))
	if err != nil {
		t.Fatal(err)
	}
	m.write(t, filepath.Join(dir, "probe"), string(data), 0o755)
	return dir
}

// sharing is held while a bundle for all tests is looked for and made.
var sharing sync.Mutex

// leavesNothing checks, when the test ends, that no process, mount, interface, cgroup or file of ours is left.
func leavesNothing(t *testing.T) {
	t.Helper()
	before := traces(t)
	t.Cleanup(func() {
		deadline := time.Now().Add(patience(5 * time.Second))
		var left []string
		for {
			left = left[:0]
			for trace := range traces(t) {
				if !before[trace] {
					left = append(left, trace)
				}
			}
			if len(left) == 0 || time.Now().After(deadline) {
				break
			}
			time.Sleep(20 * time.Millisecond)
		}
		for _, trace := range left {
			t.Errorf("left behind: %s", trace)
		}
	})
}

// ofOthers are directories of programs of ours beside skillbox.
var ofOthers = regexp.MustCompile("/skillbox-(test|fuzz|vm|bench|package)-")

// traces lists what skillbox could leave on a machine.
func traces(t *testing.T) map[string]bool {
	t.Helper()
	found := map[string]bool{}
	procs, err := os.ReadDir("/proc")
	if err != nil {
		t.Fatal(err)
	}
	for _, p := range procs {
		if _, err := strconv.Atoi(p.Name()); err != nil {
			continue
		}
		exe, err := os.Readlink("/proc/" + p.Name() + "/exe")
		comm, _ := os.ReadFile("/proc/" + p.Name() + "/comm")
		if strings.HasPrefix(string(comm), "skillbox") || (err == nil && strings.HasPrefix(exe, binDir+"/")) || strings.HasPrefix(exe, "/skill/") {
			found["process "+p.Name()+" "+strings.TrimSpace(string(comm))] = true
		}
		namespaces, _ := filepath.Glob("/proc/" + p.Name() + "/ns/*") // none for a process that ended meanwhile
		for _, ns := range namespaces {
			if id, err := os.Readlink(ns); err == nil {
				found["namespace "+id] = true
			}
		}
	}
	for _, list := range []struct{ kind, path string }{{"mount", "/proc/self/mountinfo"}, {"interface", "/proc/net/dev"}} {
		text, err := os.ReadFile(list.path)
		if err != nil {
			t.Fatal(err)
		}
		for line := range strings.Lines(string(text)) {
			if list.kind == "interface" {
				line, _, _ = strings.Cut(line, ":")
			}
			found[list.kind+" "+strings.TrimSpace(line)] = true
		}
	}
	groups, err := ourGroups()
	if err != nil {
		t.Fatal(err)
	}
	for _, g := range groups {
		found["group "+g] = true
	}
	for _, pattern := range []string{"/tmp/*", "/run/*", "/dev/shm/*"} {
		paths, err := filepath.Glob(pattern)
		if err != nil {
			t.Fatal(err)
		}
		for _, p := range paths {
			// Other runs of these tests have directories of their own.
			if strings.Contains(p, "skillbox") && !ofOthers.MatchString(p) || strings.HasPrefix(filepath.Base(p), "runc") {
				found["file "+p] = true
			}
		}
	}
	return found
}

// listenAt makes a socket that somebody listens at, whatever the length of its path: an address has room for 107 bytes.
func listenAt(t *testing.T, path string) {
	t.Helper()
	dir, err := os.Open(filepath.Dir(path))
	if err != nil {
		t.Fatal(err)
	}
	defer dir.Close()
	l, err := net.Listen("unix", fmt.Sprintf("/proc/self/fd/%d/%s", dir.Fd(), filepath.Base(path)))
	if err != nil {
		t.Fatal(err)
	}
	l.(*net.UnixListener).SetUnlinkOnClose(false) // the directory goes with the test
	t.Cleanup(func() { l.Close() })
}
