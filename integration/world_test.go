//go:build linux

package integration

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"

	"golang.org/x/sys/unix"

	"skillbox/integration/space"
)

// The world is two network namespaces: a host, on which skillbox runs, and the internet, which has every address that the tests name,
// also those that nobody may reach. Its servers are part of this process and write down what comes. Nothing leaves these namespaces.
type world struct {
	host, internet *space.Space
	ca             *authority
	book           *book
	zone           *zone
	conf           string // path of the host's resolv.conf
	repository     string // directory that is /git of every web server
}

var built struct {
	sync.Once
	world *world
	err   error
}

// theWorld is the same one for all tests of the process, and goes with it.
func theWorld(t *testing.T) *world {
	t.Helper()
	built.Do(func() { built.world, built.err = buildWorld() })
	needs(t, "a world of namespaces", built.err)
	built.world.forget()
	return built.world
}

func buildWorld() (w *world, err error) {
	w = &world{book: newBook(), zone: newZone(names)}
	if w.ca, err = newAuthority(); err != nil {
		return nil, err
	}
	if w.internet, err = space.New(0, nil); err != nil {
		return nil, fmt.Errorf("the internet: %w", err)
	}
	dir := filepath.Dir(binDir)
	w.conf = filepath.Join(dir, "resolv.conf")
	if err := os.WriteFile(w.conf, []byte("nameserver "+resolverAddr+"\noptions timeout:5 attempts:2\n"), 0o644); err != nil {
		return nil, err
	}
	if w.host, err = space.New(unix.CLONE_NEWNS, func() error { return settle(w.conf, filepath.Join(dir, "empty")) }); err != nil {
		return nil, fmt.Errorf("the host: %w", err)
	}
	for _, step := range []struct {
		at *space.Space
		f  func() error
	}{
		{w.host, func() error { return layCable(w.internet.NS) }},
		{w.internet, w.settleInternet},
		{w.host, settleHost},
		{w.internet, w.serveInternet},
		{w.host, w.serveHost},
	} {
		if err := step.at.Run(step.f); err != nil {
			return nil, err
		}
	}
	return w, nil
}

// settle makes the view of files that the host's programs have. Where the tests are an ordinary user's, that user has one id there, and
// skillbox gets none of the capabilities that the tests have over their namespaces.
func settle(conf, empty string) error {
	if err := unix.Mount("", "/", "", unix.MS_REC|unix.MS_PRIVATE, ""); err != nil {
		return err
	}
	at, err := filepath.EvalSymlinks("/etc/resolv.conf")
	if err == nil {
		err = unix.Mount(conf, at, "", unix.MS_BIND, "")
	}
	if err != nil || os.Getuid() == 0 {
		return err
	}
	if err := os.WriteFile(empty, nil, 0o644); err != nil {
		return err
	}
	for _, path := range []string{"/etc/subuid", "/etc/subgid"} {
		if err := unix.Mount(empty, path, "", unix.MS_BIND, ""); err != nil && !os.IsNotExist(err) {
			return err
		}
	}
	var sets [2]unix.CapUserData
	header := unix.CapUserHeader{Version: unix.LINUX_CAPABILITY_VERSION_3}
	if err := unix.Capget(&header, &sets[0]); err != nil {
		return err
	}
	sets[0].Inheritable, sets[1].Inheritable = 0, 0 // ambient ones go with them
	return unix.Capset(&header, &sets[0])
}

// way is who runs skillbox, and how a box's packets get out.
type way struct {
	mode mode
	path string // "capture" or "veth"
}

func (y way) String() string { return string(y.mode) + "-" + y.path }

// everyWay lists those that this test run can try.
func everyWay() (all []way) {
	for _, m := range modes() {
		all = append(all, way{m, "capture"})
		if m == asRoot {
			all = append(all, way{m, "veth"})
		}
	}
	// Where time is short, SKILLBOX_WAYS names those to try.
	if only := os.Getenv("SKILLBOX_WAYS"); only != "" {
		all = slices.DeleteFunc(all, func(y way) bool { return !slices.Contains(strings.Split(only, ","), y.String()) })
	}
	return all
}

// ways are those that differ in what carries a box's packets: with a single id, that is what it is for other ordinary users.
func ways() []way {
	all := everyWay()
	if slices.ContainsFunc(all, func(y way) bool { return y.mode == rootless }) {
		all = slices.DeleteFunc(all, func(y way) bool { return y.mode == singleID })
	}
	return all
}

// policy is the text of one with these lines below network. Only root has a choice of ways.
func (y way) policy(network string, more ...string) string {
	text := "version: 1\n"
	if !strings.Contains(strings.Join(more, "\n"), "timeout:") {
		text += "timeout: 5m\n"
	}
	text += "network:\n"
	if y.mode == asRoot {
		text += "  path: " + y.path + "\n"
	}
	for line := range strings.Lines(strings.Trim(network, "\n")) {
		text += "  " + strings.TrimRight(line, "\n") + "\n"
	}
	return text + strings.Join(more, "\n") + "\n"
}

// inEachWay runs a test in each of ways, inEveryWay in every one, in a world that has forgotten what was before, and checks afterwards that nothing is left.
func inEachWay(t *testing.T, f func(t *testing.T, w *world, y way)) {
	t.Helper()
	inWays(t, ways(), f)
}

func inEveryWay(t *testing.T, f func(t *testing.T, w *world, y way)) {
	t.Helper()
	inWays(t, everyWay(), f)
}

func inWays(t *testing.T, all []way, f func(t *testing.T, w *world, y way)) {
	t.Helper()
	inTheWorld(t, func(t *testing.T, w *world) {
		for _, y := range all {
			t.Run(y.String(), func(t *testing.T) {
				leavesNothing(t)
				w.leavesNothing(t)
				w.forget()
				f(t, w, y)
			})
		}
	})
}

// inTheWorld runs a test where there is a world.
func inTheWorld(t *testing.T, f func(t *testing.T, w *world)) {
	t.Helper()
	if os.Getuid() != 0 && os.Getenv("SKILLBOX_TEST_WORLD") == "" {
		again(t)
		return
	}
	f(t, theWorld(t))
}

// again runs the test once more in namespaces in which an ordinary user may build a world: the same user, and that one id alone.
func again(t *testing.T) {
	t.Helper()
	runtime.LockOSThread() // the parent-death signal is about the thread
	defer runtime.UnlockOSThread()
	c := exec.Command("/proc/self/exe", "-test.run=^"+t.Name()+"$", "-test.v", "-test.timeout=20m")
	c.Env = append(os.Environ(), "SKILLBOX_TEST_WORLD=1", "SKILLBOX_BIN="+binDir, "SKILLBOX_PROBE="+filepath.Join(binDir, "probe"))
	c.SysProcAttr = &syscall.SysProcAttr{
		Cloneflags:  unix.CLONE_NEWUSER | unix.CLONE_NEWNS | unix.CLONE_NEWNET,
		UidMappings: []syscall.SysProcIDMap{{ContainerID: os.Getuid(), HostID: os.Getuid(), Size: 1}},
		GidMappings: []syscall.SysProcIDMap{{ContainerID: os.Getgid(), HostID: os.Getgid(), Size: 1}},
		AmbientCaps: []uintptr{unix.CAP_SYS_ADMIN, unix.CAP_NET_ADMIN, unix.CAP_NET_RAW, unix.CAP_NET_BIND_SERVICE},
		Pdeathsig:   syscall.SIGKILL,
	}
	out, err := c.CombinedOutput()
	text := string(out)
	switch _, why, skipped := strings.Cut(text, "_test.go:"); {
	case c.ProcessState == nil:
		needs(t, "user namespaces", err)
	case err != nil:
		t.Fatalf("in namespaces of its own: %v\n%s", err, text)
	case skipped && strings.Contains(text, "--- SKIP"):
		_, why, _ = strings.Cut(why, ": ")
		t.Skip(strings.SplitN(why, "\n", 2)[0])
	default:
		t.Log(text)
	}
}
