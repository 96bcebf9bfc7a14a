//go:build linux

package integration

import (
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"skillbox/helper"
)

// Group H: what skill and host share beside memory and processors: kernel objects, counts that the kernel keeps for each user, groups,
// the kernel's log and its choice of whom to end.

// seizing is how many milliseconds a seizure may take.
func seizing() string { return fmt.Sprint(max(2*time.Second, patience(time.Second)).Milliseconds()) }

// Of each kind of kernel object as many as one process gets, all at once, while the host goes on.
func TestThreat148KernelMemory(t *testing.T) {
	const files, watches, pending = 256, 4096, 1024
	inEachMode(t, func(t *testing.T, m mode) {
		l := limited(t, m)
		unreclaimable := meminfo(t, "SUnreclaim")
		got, lift := l.besiege(t, "pids: 512, memory: 1Gi, open_files: 256", "", "seize", seizing())
		if got == nil {
			t.Fatalf("the box did not live to tell: %+v", lift())
		}
		t.Logf("%v", got)
		hostIsWell(t, m, "during the siege")
		anotherBoxRuns(t, m, "during the siege")
		r := lift()
		wantVerdict(t, r, helper.Exited, 0)
		l.peak(t, "memory_peak", r.Usage.MemoryPeak, l.pick(1<<30, 2<<30), 5, 19)
		for kind, most := range map[string]int{
			"eventfd": files, "timerfd": files, "signalfd": files, "epoll": files, "netlink": files, "udp socket": files,
			"pipe": files / 2, "unix socket": files / 2, "tcp socket": files / 2, "pipe pages": files / 2,
			"timer": pending, "inotify watch": watches, "posix queue": 0, "locked memory": 1, "locked segment": 1, "key": 0,
		} {
			n, _ := bytesAnd(t, got[kind])
			if n > most {
				t.Errorf("%s: %s, want at most %d", kind, got[kind], most)
			}
			if n == 0 && most > 0 {
				t.Errorf("the attempt itself fails: %s: %s", kind, got[kind])
			}
		}
		freed(t, "SUnreclaim", unreclaimable)
		if l.cgroup {
			chargedToTheBox(t, l)
		}
	})
}

// chargedToTheBox takes, of what is large, more than the box may have.
func chargedToTheBox(t *testing.T, l limits) {
	t.Helper()
	for _, kind := range []string{"pipe", "unix socket", "udp socket", "sysv queue", "semaphores", "page table"} {
		used := meminfo(t, "MemTotal") - meminfo(t, "MemAvailable")
		kinds := []string{kind, kind + "#2", kind + "#3", kind + "#4"}
		got, lift := l.besiege(t, "memory: 24Mi, pids: 256", ", tmp: 256Mi", append([]string{"seize", seizing()}, kinds...)...)
		more := meminfo(t, "MemTotal") - meminfo(t, "MemAvailable") - used
		r := lift()
		t.Logf("%s: %v, %s, the machine has %d MiB less", kind, got, r.Verdict, more>>20)
		if r.Verdict != helper.OutOfMemory {
			t.Errorf("%s:", kind)
		}
		wantVerdict(t, r, helper.OutOfMemory, helper.CodeOutOfMemory)
		most := int64(24 << 20)
		if kind == "udp socket" {
			most += 2 * 4 * 256 << 12 // the kernel never refuses a socket its first page of either direction
		}
		l.peak(t, kind+": memory_peak", r.Usage.MemoryPeak, most, 5, 19)
	}
}

func TestThreat154InotifyInstances(t *testing.T) {
	inEachMode(t, func(t *testing.T, m mode) {
		l := limited(t, m)
		got, lift := l.besiege(t, "open_files: 1024", "", "inotify")
		if made := number(t, got["made"]); got["end"] != "EMFILE" || made < 1 || made > 16 {
			t.Errorf("%v", got)
		}
		hostIsWell(t, m, "during the siege")
		wantVerdict(t, lift(), helper.Exited, 0)
	})
}

// The kernel counts instances for the user that made the box, whatever the box's own limit: several boxes add up.
func TestFourBoxesLeaveTheHostItsInotifyInstances(t *testing.T) {
	inEachMode(t, func(t *testing.T, m mode) {
		l := limited(t, m)
		var lifts []func() *helper.Result
		for range 4 {
			_, lift := l.besiege(t, "open_files: 1024", "", "inotify")
			lifts = append(lifts, lift)
		}
		hostIsWell(t, m, "during the siege")
		for _, lift := range lifts {
			wantVerdict(t, lift(), helper.Exited, 0)
		}
	})
}

func TestThreat156PtyExhaustion(t *testing.T) {
	inEachMode(t, func(t *testing.T, m mode) {
		l := limited(t, m)
		got, lift := l.besiege(t, "open_files: 1024", "", "ptys")
		if made := number(t, got["made"]); made > 16 || got["end"] != "ENOSPC" {
			t.Errorf("%v", got)
		}
		hostIsWell(t, m, "during the siege")
		wantVerdict(t, lift(), helper.Exited, 0)
	})
}

// Counts that the kernel keeps for a user and not for a process: queued signals, message queues, locked memory, keys, pages in pipes,
// descriptors in flight. An ordinary user's box runs as that user.
func TestThreat157UidSharedRlimits(t *testing.T) {
	inEachMode(t, func(t *testing.T, m mode) {
		l := limited(t, m)
		kinds := []string{"timer", "timer#2", "posix queue", "posix queue#2", "locked memory", "locked segment", "locked segment#2", "key", "in flight", "in flight#2"}
		for i := range 8 {
			kinds = append(kinds, fmt.Sprintf("pipe pages#%d", i))
		}
		got, lift := l.besiege(t, "pids: 512", "", append([]string{"seize", seizing()}, kinds...)...)
		t.Logf("%v", got)
		if got == nil {
			t.Fatalf("the box did not live to tell: %+v", lift())
		}
		hostIsWell(t, m, "during the siege")
		anotherBoxRuns(t, m, "during the siege")
		wantVerdict(t, lift(), helper.Exited, 0)
	})
}

// The kernel reports such a crash in a line or two, by its own rule not more than ten of each kind in five seconds.
func TestThreat163KernelLogFlood(t *testing.T) {
	const crashes = 1000
	withCoreHandler(t)
	inEachMode(t, func(t *testing.T, m mode) {
		before, err := logged("sbcrash")
		if errors.Is(err, unix.EPERM) {
			t.Log("the kernel's log may not be read here: only that the crashes are survived is seen")
		} else if err != nil {
			t.Fatal(err)
		}
		began := time.Now()
		got := call{mode: m, policy: "version: 1\ntimeout: 2m\n"}.attempts(t, "crash", fmt.Sprint(crashes))
		if got["SIGSEGV"] != fmt.Sprint(crashes) {
			t.Errorf("%v", got)
		}
		if err != nil {
			return
		}
		after, err := logged("sbcrash")
		if err != nil {
			t.Fatal(err)
		}
		took := time.Since(began)
		t.Logf("%d crashes in %v: %d lines", crashes, took.Round(time.Millisecond), after-before)
		if bound := 40 * (1 + int(took/(5*time.Second))); after-before > bound {
			t.Errorf("%d lines, want at most %d", after-before, bound)
		}
	})
}

// withCoreHandler gives a complete machine, which is thrown away, what most machines have: a program that takes core files. With a
// core limit of 1 the kernel says each time that it does not call it.
func withCoreHandler(t *testing.T) {
	t.Helper()
	const file = "/proc/sys/kernel/core_pattern"
	if os.Getenv("SKILLBOX_COMPLETE") == "" || os.Getuid() != 0 {
		return
	}
	before, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(file, []byte("|/bin/false"), 0); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := os.WriteFile(file, before, 0); err != nil {
			t.Error(err)
		}
	})
}

// logged counts the lines of the kernel's log that name a word.
func logged(word string) (n int, err error) {
	buffer := make([]byte, 16<<20)
	read, err := unix.Klogctl(unix.SYSLOG_ACTION_READ_ALL, buffer)
	if err != nil {
		return 0, err
	}
	for line := range strings.Lines(string(buffer[:read])) {
		if strings.Contains(line, word) {
			n++
		}
	}
	return n, nil
}

// tooMuch is a writer that takes no more than a bounded client could send.
type tooMuch struct {
	strings.Builder
}

func (w *tooMuch) Write(b []byte) (int, error) {
	if w.Len()+len(b) > 64<<20 {
		return 0, io.ErrShortWrite
	}
	return w.Builder.Write(b)
}

func TestAStdoutFloodEndsAtItsLimit(t *testing.T) {
	inEachMode(t, func(t *testing.T, m mode) {
		policy := m.file(t, "policy.yaml", "version: 1\nresources: {output: 1Mi}\n")
		for _, flags := range [][]string{{"--json"}, nil} {
			within(t, patience(3*time.Second), func() {
				c := m.command(append(append([]string{"exec"}, flags...), "--policy", policy, m.sharedBundle(t), "--", "/skill/probe", "flood", "10240")...)
				out := &tooMuch{}
				c.Stdout = out
				var exit *exec.ExitError
				if err := c.Start(); err != nil {
					t.Fatal(err)
				}
				peak := peakOf(c.Process.Pid) // ru_maxrss would count our own memory, from before the exec
				if err := c.Wait(); !errors.As(err, &exit) || exit.ExitCode() != helper.CodeOutputLimit {
					t.Errorf("%v: %v", flags, err)
				}
				if out.Len() > 8<<20 {
					t.Errorf("%v: %d bytes came out", flags, out.Len())
				}
				if took := <-peak; took > 64<<10 {
					t.Errorf("%v: skillbox took %d KiB", flags, took)
				}
			})
		}
		hostIsWell(t, m, "after")
	})
}

func TestThreat165NestedCgroups(t *testing.T) {
	inEachMode(t, func(t *testing.T, m mode) {
		l := limited(t, m)
		got := call{mode: m, policy: l.policy("memory: 64Mi")}.attempts(t, "cgroups")
		if n := got["cgroup file systems"]; n != "0" {
			t.Errorf("%s cgroup file systems", n)
		}
		for _, line := range strings.Split(got["own group"], "\n") {
			if parts := strings.SplitN(line, ":", 3); len(parts) != 3 || parts[2] != "/" {
				t.Errorf("it sees its group as %q", line)
			}
		}
		delete(got, "cgroup file systems")
		delete(got, "own group")
		all(t, got, "ENOENT", "EROFS", "EACCES", "EPERM", "ENOSYS")

		// From outside: whoever comes of the skill is in the group of the box, and nobody else of ours is.
		seconds := strconv.Itoa(100000 + os.Getpid() + len(m))
		b := m.background(t, []string{"--policy", m.file(t, "policy.yaml", l.policy("memory: 64Mi"))}, m.bundleOf(t, map[string]string{
			"main.sh": "#!/bin/sh\n(setsid sleep " + seconds + " &)\necho ready\nread line\n",
		}), "./main.sh")
		defer b.end(t)
		b.expect(t, "ready\n")
		daemon, ours := groupsOf(t, pidOf(t, "sleep", seconds)), groupsOf(t, skillboxdOf(b.cmd.Process.Pid))
		if init := groupsOf(t, parentOf(t, pidOf(t, "sleep", seconds))); init != daemon {
			t.Errorf("init is in %q, a daemon in %q", init, daemon)
		}
		if l.cgroup && ours == daemon {
			t.Errorf("skillboxd is in the box's group, %q", ours)
		}
	})
}

func groupsOf(t *testing.T, pid int) string {
	t.Helper()
	text, err := os.ReadFile(fmt.Sprintf("/proc/%d/cgroup", pid))
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}

// skillboxd passes on what the skill writes while the kernel runs out of the box's memory. It, the client and another box live on.
func TestThreat166OomVictimChoice(t *testing.T) {
	inEachMode(t, func(t *testing.T, m mode) {
		l := limited(t, m)
		seconds := strconv.Itoa(200000 + os.Getpid() + len(m))
		other := m.background(t, []string{"--timeout", "10m"}, m.bundleOf(t, map[string]string{"main.sh": "#!/bin/sh\nsleep " + seconds + " &\necho ready\nread line\necho \"$line\"\n"}), "./main.sh")
		t.Cleanup(func() { _ = other.cmd.Process.Kill() }) // it has ended, or the test has
		other.expect(t, "ready\n")
		skillboxd := skillboxdOf(other.cmd.Process.Pid)
		r := call{
			mode: m, policy: l.policy("memory: 64Mi, output: 64Mi", "timeout: 2m"), bundle: m.withScript(t, "./probe flood 4 &\n./probe allocate 16 16 0 0\nexec ./probe allocate 1024 4 0 0\n"),
			words: []string{"./main.sh"},
		}.run(t)
		wantVerdict(t, r, helper.OutOfMemory, helper.CodeOutOfMemory)
		if r.Usage.StdoutBytes < 1<<20 {
			t.Errorf("skillboxd had %d bytes to pass on", r.Usage.StdoutBytes)
		}
		if ours, theirs := oomScoreOf(t, skillboxd), oomScoreOf(t, pidOf(t, "sleep", seconds)); theirs < ours {
			t.Errorf("oom_score_adj: skillboxd has %d, the skill %d", ours, theirs)
		}
		if _, err := other.stdin.Write([]byte("alive\n")); err != nil {
			t.Error(err)
		}
		if out, code := other.wait(t); out != "alive\n" || code != 0 {
			t.Errorf("the other box: %q, %d, %s", out, code, other.stderr.String())
		}
	})
}

// withScript is a bundle of the probe and a shell script.
func (m mode) withScript(t *testing.T, script string) string {
	t.Helper()
	bundle := m.probeBundle(t)
	m.write(t, filepath.Join(bundle, "main.sh"), "#!/bin/sh\n"+script, 0o755)
	return bundle
}

func oomScoreOf(t *testing.T, pid int) int {
	t.Helper()
	text, err := os.ReadFile(fmt.Sprintf("/proc/%d/oom_score_adj", pid))
	if err != nil {
		t.Fatal(err)
	}
	return number(t, strings.TrimSpace(string(text)))
}
