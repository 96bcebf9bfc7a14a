//go:build linux

package integration

import (
	"encoding/json"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"skillbox/helper"
)

// Group H: memory, processes and processor time. Where a cgroup holds them the figures are the kernel's own and exact; where none does,
// resource limits and a watchdog hold, later and looser. The rest is in threats_h_files_test.go and threats_h_host_test.go.

// limits says what holds the boxes of a mode.
type limits struct {
	mode   mode
	cgroup bool // memory, pids and cpu
}

var foundLimits = struct {
	sync.Mutex
	of map[mode]limits
}{of: map[mode]limits{}}

// limited finds out, once for each mode, from what a box with the default policy says, and that the host is as it should be. A complete
// machine must have cgroups for whoever is logged in; a user that exists only in the tests is not.
func limited(t *testing.T, m mode) limits {
	t.Helper()
	foundLimits.Lock()
	defer foundLimits.Unlock()
	l, known := foundLimits.of[m]
	if !known {
		r := call{mode: m, words: []string{"true"}}.run(t)
		wantVerdict(t, r, helper.Exited, 0)
		l = limits{mode: m, cgroup: true}
		for _, resource := range []string{"memory", "pids", "cpu"} {
			l.cgroup = l.cgroup && strings.HasPrefix(r.Sandbox.Layers[resource], "cgroup")
		}
		foundLimits.of[m] = l
		hostIsWell(t, m, "before any attack")
	}
	if !l.cgroup && os.Getenv("SKILLBOX_COMPLETE") != "" && m.credential() == nil {
		t.Fatal("no cgroup holds the box, on a machine that has all that it takes")
	}
	return l
}

// policy names limits: strictly where the kernel can promise them.
func (l limits) policy(resources string, more ...string) string {
	enforcement := "best-effort"
	if l.cgroup {
		enforcement = "strict"
	}
	return "version: 1\nenforcement: " + enforcement + "\nresources: {" + resources + "}\n" + strings.Join(more, "\n") + "\n"
}

// pick is the exact figure where a cgroup holds, otherwise the loose one.
func (l limits) pick(exact, loose int64) int64 {
	if l.cgroup {
		return exact
	}
	return loose
}

// peak demands a figure of the envelope that is at most so high. Only a cgroup has one for certain, from the given kernel on.
func (l limits) peak(t *testing.T, what string, got *int64, most int64, major, minor int) {
	t.Helper()
	switch {
	case got != nil && (*got > most || *got <= 0):
		t.Errorf("%s is %d, want at most %d", what, *got, most)
	case got == nil && l.cgroup && kernel(t, major, minor):
		t.Errorf("%s is absent", what)
	}
}

// kernel tells whether this one is at least so new.
func kernel(t *testing.T, major, minor int) bool {
	t.Helper()
	var name unix.Utsname
	if err := unix.Uname(&name); err != nil {
		t.Fatal(err)
	}
	parts := regexp.MustCompile(`^(\d+)\.(\d+)`).FindStringSubmatch(unix.ByteSliceToString(name.Release[:]))
	if parts == nil {
		t.Fatalf("kernel release %q", name.Release)
	}
	has := number(t, parts[1])
	return has > major || (has == major && number(t, parts[2]) >= minor)
}

// started runs a box in the background.
func (c call) started(t *testing.T) <-chan *helper.Result {
	t.Helper()
	done := make(chan *helper.Result, 1)
	go func() {
		defer close(done)
		done <- c.run(t)
	}()
	return done
}

// besiege starts a box that takes what it can get, and keeps it until lift is called, which returns its envelope. A box that did
// not live to tell what it got returns nil for that.
func (l limits) besiege(t *testing.T, resources, filesystem string, attempt ...string) (got map[string]string, lift func() *helper.Result) {
	t.Helper()
	shared := l.mode.dir(t)
	stop := func() { l.mode.write(t, filepath.Join(shared, "stop"), "", 0o644) }
	words := append([]string{"/skill/probe", attempt[0], "/shared"}, attempt[1:]...)
	done := call{
		mode: l.mode, policy: l.policy(resources, "timeout: 5m", "filesystem: {write: [{host: "+shared+", path: /shared}]"+filesystem+"}"), words: words,
	}.started(t)
	lift = func() *helper.Result {
		stop()
		r := <-done
		if r == nil {
			t.FailNow()
		}
		return r
	}
	deadline := time.After(patience(time.Minute))
	for {
		if text, err := os.ReadFile(filepath.Join(shared, "got")); err == nil {
			if err := json.Unmarshal(text, &got); err != nil {
				t.Fatal(err)
			}
			return got, lift
		}
		select {
		case r := <-done:
			return nil, func() *helper.Result { return r }
		case <-deadline:
			stop()
			t.Fatal("the attempt does not come to an end")
		case <-time.After(10 * time.Millisecond):
		}
	}
}

// hostIsWell demands that the mode's user can do outside what every program expects to work, and at once.
func hostIsWell(t *testing.T, m mode, when string) {
	t.Helper()
	dir := m.dir(t)
	within(t, patience(5*time.Second), func() {
		got := map[string]string{}
		m.unboxed(t, "/", &got, "host-user", dir)
		for what, a := range got {
			if a != "ok" {
				t.Errorf("%s, on the host: %s: %s", when, what, a)
			}
		}
	})
}

// anotherBoxRuns demands that the mode's user can have one.
func anotherBoxRuns(t *testing.T, m mode, when string) {
	t.Helper()
	within(t, patience(5*time.Second), func() {
		if r := (call{mode: m, words: []string{"true"}}).run(t); !r.Success {
			t.Errorf("%s, another box: %s, %v", when, r.Verdict, r.Error)
		}
	})
}

// processes counts those on this machine whose command line is, or starts with, the given words.
func processes(t *testing.T, words ...string) (n int) {
	t.Helper()
	want := strings.Join(words, "\x00") + "\x00"
	for _, path := range globbed(t, "/proc/[0-9]*/cmdline") {
		if line, err := os.ReadFile(path); err == nil && strings.HasPrefix(string(line), want) {
			n++
		}
	}
	return n
}

// either demands one of two endings by us.
func either(t *testing.T, r *helper.Result, verdicts ...string) {
	t.Helper()
	codes := map[string]int{helper.PidsLimit: helper.CodePidsLimit, helper.TimedOut: helper.CodeTimedOut, helper.OutOfMemory: helper.CodeOutOfMemory}
	if !slices.Contains(verdicts, r.Verdict) || r.ExitCode != codes[r.Verdict] || r.Error == nil {
		t.Errorf("verdict %s, exit code %d, error %v; want %v\nstdout: %.300s\nstderr: %.300s", r.Verdict, r.ExitCode, r.Error, verdicts, r.Stdout, r.Stderr)
	}
}

// initTasks are init's own threads, which RLIMIT_NPROC counts with the skill's processes.
const initTasks = 16

// The bomb goes on where the kernel refuses, in every process that came of it, and ends at 1000 forks if nobody stops it.
func TestThreat142ForkBomb(t *testing.T) {
	inEachMode(t, func(t *testing.T, m mode) {
		l := limited(t, m)
		began := time.Now()
		done := call{mode: m, policy: l.policy("pids: 32"), flags: []string{"--timeout", patience(3 * time.Second).String()}, words: []string{"/skill/probe", "fork-bomb", "1000"}}.started(t)
		most := 0
		var r *helper.Result
		for looked := false; r == nil; {
			select {
			case r = <-done:
				if r == nil {
					t.FailNow()
				}
			case <-time.After(5 * time.Millisecond):
				most = max(most, processes(t, "/skill/probe", "fork-bomb"))
				if most >= 20 && !looked {
					hostIsWell(t, m, "during the bomb")
					anotherBoxRuns(t, m, "during the bomb")
					looked = true
				}
			}
		}
		either(t, r, helper.PidsLimit, helper.TimedOut)
		if took, limit := time.Since(began), patience(3*time.Second)+graceTime+patience(slack); took > limit {
			t.Errorf("it took %v, longer than %v", took, limit)
		}
		if !strings.Contains(r.Stdout, "forking") {
			t.Errorf("it never forked: %q", r.Stdout)
		}
		held := l.pick(32, 32+initTasks)
		if int64(most) > held {
			t.Errorf("%d processes at a time", most)
		}
		l.peak(t, "pids_peak", r.Usage.PidsPeak, held, 6, 2)
		if l.cgroup && (r.Usage.PidsRefused == nil || *r.Usage.PidsRefused == 0) {
			t.Errorf("pids_refused: %v", r.Usage.PidsRefused)
		}
		t.Logf("%s after %v, at most %d processes seen", r.Verdict, time.Since(began).Round(time.Millisecond), most)
		hostIsWell(t, m, "after")
	})
}

func TestThreadsCountAsProcesses(t *testing.T) {
	const threads = `
import threading, time
made, stop = 0, threading.Event()
try:
    while made < 200:
        threading.Thread(target=stop.wait, daemon=True).start()
        made += 1
except RuntimeError:
    pass
print(made, flush=True)
`
	inEachMode(t, func(t *testing.T, m mode) {
		l := limited(t, m)
		r := call{mode: m, policy: l.policy("pids: 32"), bundle: m.bundleOf(t, map[string]string{"main.py": threads}), words: []string{"python3", "main.py"}}.run(t)
		wantVerdict(t, r, helper.Exited, 0)
		if made := number(t, strings.TrimSpace(r.Stdout)); made < 10 || int64(made) > l.pick(32, 32+initTasks) {
			t.Errorf("%d threads", made)
		}
		l.peak(t, "pids_peak", r.Usage.PidsPeak, l.pick(32, 32+initTasks), 6, 2)
	})
}

// A zombie takes a place until its parent waits for it, or ends.
func TestTenThousandZombiesTakeNoMoreThanTheBoxHas(t *testing.T) {
	inEachMode(t, func(t *testing.T, m mode) {
		l := limited(t, m)
		got := map[string]string{}
		r := call{mode: m, policy: l.policy("pids: 32")}.probe(t, &got, "zombies", "10000")
		if made := number(t, got["made"]); made < 10 || int64(made) > l.pick(32, 32+initTasks) || got["end"] != "EAGAIN" {
			t.Errorf("%v", got)
		}
		l.peak(t, "pids_peak", r.Usage.PidsPeak, l.pick(32, 32+initTasks), 6, 2)
		hostIsWell(t, m, "after")
	})
}

// The child that takes too much is not the one the run waits for: all of the box has to end, not the child alone.
func TestThreat144AnonMemory(t *testing.T) {
	inEachMode(t, func(t *testing.T, m mode) {
		l := limited(t, m)
		for name, how := range map[string][]string{ // MiB, at a time, pause, children
			"one process":  {"1024", "16", "0", "0"},
			"a child":      {"1024", "16", "0", "1"},
			"four at once": {"256", "4", "0", "4"},
		} {
			within(t, patience(2*time.Second), func() {
				r := call{mode: m, policy: l.policy("memory: 64Mi, pids: 256", "timeout: 2m"), words: append([]string{"/skill/probe", "allocate"}, how...)}.run(t)
				if r.Verdict != helper.OutOfMemory {
					t.Errorf("%s:", name)
				}
				wantVerdict(t, r, helper.OutOfMemory, helper.CodeOutOfMemory)
				if strings.Contains(r.Stdout, "outlived") || strings.Contains(r.Stdout, "all") {
					t.Errorf("%s: it got what it wanted: %q", name, r.Stdout)
				}
				l.peak(t, name+": memory_peak", r.Usage.MemoryPeak, l.pick(64<<20, 1<<30), 5, 19)
				if l.cgroup && (r.Usage.OOMKills == nil || *r.Usage.OOMKills == 0) {
					t.Errorf("%s: oom_kills: %v", name, r.Usage.OOMKills)
				}
			})
		}
		hostIsWell(t, m, "after")
	})
}

// What the last step was is the skill's own word, beside the kernel's figure.
func TestThreat147SwapEscape(t *testing.T) {
	swap(t)
	inEachMode(t, func(t *testing.T, m mode) {
		l := limited(t, m)
		r := call{mode: m, policy: l.policy("memory: 64Mi", "timeout: 5m"), words: []string{"/skill/probe", "allocate", "256", "1", "10", "0"}}.run(t)
		wantVerdict(t, r, helper.OutOfMemory, helper.CodeOutOfMemory)
		steps := strings.Fields(r.Stdout)
		if len(steps) == 0 {
			t.Fatal("it took nothing")
		}
		if last := number(t, steps[len(steps)-1]); last < 32 || int64(last) > l.pick(64, 96) {
			t.Errorf("it had %d MiB", last)
		}
		l.peak(t, "memory_peak", r.Usage.MemoryPeak, l.pick(64<<20, 96<<20), 5, 19)
	})
}

// swap sees to it that a complete machine, which is thrown away, has some.
func swap(t *testing.T) {
	t.Helper()
	inUse, err := os.ReadFile("/proc/swaps")
	if err != nil {
		t.Fatal(err)
	}
	if strings.Count(string(inUse), "\n") > 1 {
		return
	}
	if os.Getenv("SKILLBOX_COMPLETE") == "" || os.Getuid() != 0 {
		t.Log("this machine has no swap to escape to")
		return
	}
	file := filepath.Join(t.TempDir(), "swap")
	if err := os.WriteFile(file, make([]byte, 192<<20), 0o600); err != nil {
		t.Fatal(err)
	}
	for _, words := range [][]string{{"mkswap", file}, {"swapon", file}} {
		if out, err := exec.Command("/sbin/"+words[0], words[1]).CombinedOutput(); err != nil {
			t.Fatalf("%v: %v: %s", words, err, out)
		}
	}
	t.Cleanup(func() {
		if out, err := exec.Command("/sbin/swapoff", file).CombinedOutput(); err != nil {
			t.Errorf("swapoff: %v: %s", err, out)
		}
	})
}

// Others on the host are busy too. Without a cgroup a share is not held, only the time-out.
func TestThreat153CPUSpin(t *testing.T) {
	inEachMode(t, func(t *testing.T, m mode) {
		l := limited(t, m)
		m.program(t, "probe", "spin", "4", "600000")
		limit := max(2*time.Second, patience(500*time.Millisecond))
		within(t, limit+graceTime+patience(slack), func() {
			done := call{mode: m, policy: l.policy("cpu: 1"), flags: []string{"--timeout", limit.String()}, words: []string{"/skill/probe", "spin", "32", "600000"}}.started(t)
			hostIsWell(t, m, "beside it")
			r := <-done
			if r == nil {
				t.FailNow()
			}
			wantVerdict(t, r, helper.TimedOut, helper.CodeTimedOut)
			if used := usedCPU(r); l.cgroup && used > limit+limit/5 {
				t.Errorf("32 threads had %v of one processor in %v", used, limit)
			}
		})
	})
}

func usedCPU(r *helper.Result) time.Duration {
	return time.Duration((r.Usage.UserMS + r.Usage.SystemMS) * float64(time.Millisecond))
}

func TestHalfAProcessorIsHalfAProcessor(t *testing.T) {
	inEachMode(t, func(t *testing.T, m mode) {
		l := limited(t, m)
		got := map[string]string{}
		r := call{mode: m, policy: l.policy("cpu: 0.5")}.probe(t, &got, "spin", "4", "4000")
		used, wall := usedCPU(r), number(t, got["ms"])
		t.Logf("%v in %d ms", used, wall)
		if !l.cgroup {
			if !said(r, "resources.cpu") {
				t.Errorf("nothing says that the share is not held: %q", r.Warnings)
			}
			return
		}
		if wall < 3900 || wall > 4600 || used < 1800*time.Millisecond || used > 2200*time.Millisecond {
			t.Errorf("%v in %d ms of a half", used, wall)
		}
		if r.Usage.Throttled == nil || *r.Usage.Throttled == 0 {
			t.Errorf("throttled_ms: %v", r.Usage.Throttled)
		}
	})
}
