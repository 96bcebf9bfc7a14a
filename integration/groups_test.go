//go:build linux

package integration

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"sync"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"skillbox/helper"
)

// groupRoot is where the tests see control groups of version 2: at /sys/fs/cgroup, or in a mount of their own beside version 1.
var groupRoot = "/sys/fs/cgroup"

// unified says that version 2 is where skillbox looks for it.
func unified() bool {
	var fs unix.Statfs_t
	return unix.Statfs("/sys/fs/cgroup", &fs) == nil && fs.Type == unix.CGROUP2_SUPER_MAGIC
}

// mountGroups lets root see version 2 on a machine that has it elsewhere or nowhere.
func mountGroups(dir string) error {
	if unified() || os.Getuid() != 0 {
		return nil
	}
	groupRoot = filepath.Join(dir, "cgroup2")
	if err := os.Mkdir(groupRoot, 0o755); err != nil {
		return err
	}
	return unix.Mount("cgroup2", groupRoot, "cgroup2", 0, "")
}

// ourGroups lists what skillbox has made below the root of all groups, by path.
func ourGroups() (found []string, err error) {
	err = filepath.WalkDir(groupRoot, func(path string, entry fs.DirEntry, err error) error {
		if errors.Is(err, fs.ErrNotExist) || errors.Is(err, unix.ENODEV) {
			return nil // it went while we looked
		}
		if err != nil && !errors.Is(err, fs.ErrPermission) {
			return err
		}
		if entry.IsDir() && strings.Contains(path, "/skillbox") && path != groupRoot && !strings.Contains(groupRoot, path) {
			if rest := strings.TrimPrefix(path, groupRoot); strings.Contains(rest, "/skillbox") {
				found = append(found, rest)
			}
		}
		return nil
	})
	return found, err
}

// boxGroups are those of boxes.
func boxGroups(t *testing.T) map[string]bool {
	t.Helper()
	groups, err := ourGroups()
	if err != nil {
		t.Fatal(err)
	}
	found := map[string]bool{}
	for _, g := range groups {
		if filepath.Base(filepath.Dir(g)) == "skillbox.slice" {
			found[g] = true
		}
	}
	return found
}

// grouped is a command in a view where version 2 is mounted, which a box's group needs.
func grouped(t *testing.T, m mode, c *exec.Cmd) *exec.Cmd {
	t.Helper()
	if unified() {
		return c
	}
	if m != asRoot {
		needs(t, "cgroup v2", errors.New("an ordinary user's groups are a systemd's to give"))
	}
	c.Args = append([]string{"unshare", "--mount", "sh", "-c", `mount -t cgroup2 cgroup2 /sys/fs/cgroup && exec "$0" "$@"`, c.Path}, c.Args[1:]...)
	c.Path = "/usr/bin/unshare"
	return c
}

// sweep is the next start after a crash.
func (m mode) sweep(t *testing.T) {
	t.Helper()
	if !unified() {
		return
	}
	if out, err := m.command("exec", m.sharedBundle(t), "--", "true").CombinedOutput(); err != nil {
		t.Errorf("the next start: %v: %s", err, out)
	}
}

func TestNoGroupIsLeftAfterAThousandRuns(t *testing.T) {
	if unified() {
		needs(t, "load", errors.New("here every run of every test makes a group, and all are looked for at the end"))
	}
	m := asRoot
	if os.Getuid() != 0 {
		needs(t, "root", errors.New("a cgroup2 mount of its own"))
	}
	before := boxGroups(t)
	const workers = 4
	each := load(1000) / workers
	bundle := m.sharedBundle(t)
	var all sync.WaitGroup
	for range workers {
		all.Go(func() {
			c := m.command()
			c.Args = []string{"sh", "-c", fmt.Sprintf(`i=0; while [ $i -lt %d ]; do "$0" exec "$1" -- true || exit; i=$((i+1)); done`, each), c.Path, bundle}
			c.Path = "/bin/sh"
			if out, err := grouped(t, m, c).CombinedOutput(); err != nil {
				t.Errorf("%v: %s", err, out)
			}
		})
	}
	seen := 0
	done := make(chan struct{})
	go func() { all.Wait(); close(done) }()
	for running := true; running; {
		select {
		case <-done:
			running = false
		case <-time.After(20 * time.Millisecond):
			seen += len(boxGroups(t))
		}
	}
	if seen == 0 {
		t.Error("no group was ever there")
	}
	for g := range boxGroups(t) {
		if !before[g] {
			t.Errorf("left: %s", g)
		}
	}
}

func TestTheNextStartSweepsWhatAKilledOneOwnedAndNothingElse(t *testing.T) {
	inEachMode(t, func(t *testing.T, m mode) {
		script := m.bundleOf(t, map[string]string{"main.sh": "#!/bin/sh\necho ready\nread line\necho \"$line\"\n"})
		start := func() (*background, string) {
			before := boxGroups(t)
			b := m.prepared(t, grouped(t, m, m.command("exec", script, "--", "./main.sh")))
			b.expect(t, "ready\n")
			for g := range boxGroups(t) {
				if !before[g] {
					return b, g
				}
			}
			t.Fatal("the box has no group")
			return nil, ""
		}
		alive, living := start()
		t.Cleanup(func() { _ = alive.cmd.Process.Kill() }) // it has ended, or the test has
		dead, orphan := start()
		foreign := filepath.Join(groupRoot, filepath.Dir(orphan), "..", "notours.slice")
		if m == asRoot {
			if err := os.Mkdir(foreign, 0o755); err != nil {
				t.Fatal(err)
			}
			defer os.Remove(foreign)
		}
		if err := unix.Kill(skillboxdOf(dead.cmd.Process.Pid), unix.SIGKILL); err != nil {
			t.Fatal(err)
		}
		dead.wait(t)
		if out, err := grouped(t, m, m.command("exec", script, "--", "true")).CombinedOutput(); err != nil {
			t.Fatalf("the next start: %v: %s", err, out)
		}
		left := boxGroups(t)
		if left[orphan] {
			t.Errorf("%s is still there", orphan)
		}
		if !left[living] {
			t.Errorf("%s is gone, and its box is alive", living)
		}
		if _, err := os.Stat(foreign); m == asRoot && err != nil {
			t.Errorf("swept what is not ours: %v", err)
		}
		if _, err := alive.stdin.Write([]byte("alive\n")); err != nil {
			t.Error(err)
		}
		if out, code := alive.wait(t); out != "alive\n" || code != 0 {
			t.Errorf("the other box: %q, %d, %s", out, code, alive.stderr.String())
		}
	})
}

// spinners starts boxes that wait for each other and then spin on every processor for a while; it returns their envelopes.
func (l limits) spinners(t *testing.T, cpu []string, spin time.Duration) []*helper.Result {
	t.Helper()
	shared := l.mode.dir(t)
	bundle := l.mode.probeBundle(t)
	script := fmt.Sprintf("#!/bin/sh\n: > /shared/$1\nwhile [ ! -e /shared/go ]; do sleep 0.2; done\nexec ./probe spin %d %d\n", runtime.NumCPU(), spin.Milliseconds())
	l.mode.write(t, filepath.Join(bundle, "main.sh"), script, 0o755)
	done := make([]<-chan *helper.Result, len(cpu))
	for i, share := range cpu {
		done[i] = call{
			mode: l.mode, bundle: bundle, words: []string{"./main.sh", fmt.Sprint(i)},
			policy: l.policy("cpu: "+share, "timeout: 5m", "filesystem: {write: [{host: "+shared+", path: /shared}]}"),
		}.started(t)
	}
	for i := range cpu {
		awaitFile(t, filepath.Join(shared, fmt.Sprint(i)))
	}
	l.mode.write(t, filepath.Join(shared, "go"), "", 0o644)
	results := make([]*helper.Result, len(cpu))
	for i := range done {
		if results[i] = <-done[i]; results[i] == nil {
			t.FailNow()
		}
	}
	return results
}

func awaitFile(t *testing.T, path string) {
	t.Helper()
	deadline := time.Now().Add(patience(30 * time.Second))
	for {
		if _, err := os.Stat(path); err == nil {
			return
		}
		if time.Now().After(deadline) {
			t.Fatalf("%s does not come", path)
		}
		time.Sleep(20 * time.Millisecond)
	}
}

// Limits and shares are given for one processor; where there are more, all boxes ask for as many times as much.
func TestBoxesShareAProcessorByTheirLimits(t *testing.T) {
	inEachMode(t, func(t *testing.T, m mode) {
		l := limited(t, m)
		if !l.cgroup {
			needs(t, "cgroup v2", errors.New("a watchdog gives nobody a share"))
		}
		half, whole := fmt.Sprint(0.5*float64(runtime.NumCPU())), fmt.Sprint(runtime.NumCPU())
		results := l.spinners(t, []string{half, half, whole}, 8*time.Second)
		var total time.Duration
		for _, r := range results {
			wantVerdict(t, r, helper.Exited, 0)
			total += usedCPU(r)
		}
		for i, want := range []float64{25, 25, 50} {
			got := 100 * float64(usedCPU(results[i])) / float64(total)
			t.Logf("box %d: %.1f %%", i, got)
			if got < want-5 || got > want+5 {
				t.Errorf("box %d had %.1f %% of the processor, want %.0f", i, got, want)
			}
		}
	})
}

func TestABoxStartsBesideTwentyThatTakeAllTheyMay(t *testing.T) {
	inEachMode(t, func(t *testing.T, m mode) {
		l := limited(t, m)
		if !l.cgroup {
			needs(t, "cgroup v2", errors.New("a watchdog gives nobody a share"))
		}
		quiet := m.fastestStart(t)
		shared := m.dir(t)
		bundle := m.probeBundle(t)
		m.write(t, filepath.Join(bundle, "main.sh"), "#!/bin/sh\n: > /shared/$1\nexec ./probe spin 2 600000\n", 0o755)
		boxes := max(load(20), 4) // together they may take more than one processor
		busy := make([]*background, boxes)
		policy := m.file(t, "policy.yaml", l.policy("cpu: 0.5", "timeout: 10m", "filesystem: {write: [{host: "+shared+", path: /shared}]}"))
		for i := range busy {
			busy[i] = m.background(t, []string{"--policy", policy}, bundle, "./main.sh", fmt.Sprint(i))
			defer busy[i].end(t)
			if i%2 == 1 { // two at a time: a start is what takes long
				awaitFile(t, filepath.Join(shared, fmt.Sprint(i)))
			}
		}
		loaded := m.fastestStart(t)
		t.Logf("quiet %v, beside %d boxes at their limits %v", quiet, boxes, loaded)
		if loaded > 3*quiet {
			t.Errorf("a start takes %v beside %d boxes at their limits, %v without them", loaded, boxes, quiet)
		}
	})
}

// fastestStart is how long it takes at best until a skill is started. What it then does has the box's share of the processor.
func (m mode) fastestStart(t *testing.T) time.Duration {
	t.Helper()
	best := time.Hour
	for range 3 {
		r := call{mode: m, words: []string{"true"}}.run(t)
		wantVerdict(t, r, helper.Exited, 0)
		best = min(best, time.Duration((r.DurationMS-r.Phases["run_ms"])*float64(time.Millisecond)))
	}
	return best
}

// Who is in the delegated subtree already needs no scope.
func TestAUsersOwnUnitNeedsNoScope(t *testing.T) {
	if os.Getuid() == 0 {
		needs(t, "user", errors.New("this is root"))
	}
	if !unified() {
		needs(t, "cgroup v2", errors.New("it is not mounted"))
	}
	leavesNothing(t)
	m := rootless
	c := m.command("exec", m.bundleOf(t, map[string]string{"main.sh": "#!/bin/sh\necho ready\nread line\n"}), "--", "./main.sh")
	c.Args = append([]string{"systemd-run", "--user", "--scope", "-q", "--unit", "apart-from-skill"}, c.Args...)
	c.Path = "/usr/bin/systemd-run"
	c.Env = append(os.Environ(), "SKILLBOX_NO_DAEMON=1")
	b := m.prepared(t, c)
	b.expect(t, "ready\n")
	defer b.end(t)
	groups, err := ourGroups()
	if err != nil {
		t.Fatal(err)
	}
	for _, g := range groups {
		if strings.HasSuffix(g, ".scope") {
			t.Errorf("a scope was made: %s", g)
		}
	}
	if len(boxGroups(t)) == 0 {
		t.Error("the box has no group")
	}
}
