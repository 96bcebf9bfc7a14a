//go:build linux

package integration

import (
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"skillbox/helper"
)

// slack is what a loaded machine may add to a bounded time.
const slack = 3 * time.Second

// graceTime is what a skill has between SIGTERM and SIGKILL.
const graceTime = 2 * time.Second

// script runs one shell script as the skill.
func (c call) script(t *testing.T, text string) *helper.Result {
	t.Helper()
	c.bundle = c.mode.bundleOf(t, map[string]string{"main.sh": "#!/bin/sh\n" + text})
	c.words = []string{"./main.sh"}
	return c.run(t)
}

// within fails the test if f takes longer than limit.
func within(t *testing.T, limit time.Duration, f func()) {
	t.Helper()
	began := time.Now()
	f()
	if took := time.Since(began); took > limit {
		t.Errorf("it took %v, longer than %v", took.Round(time.Millisecond), limit)
	}
}

func wantVerdict(t *testing.T, r *helper.Result, verdict string, code int) {
	t.Helper()
	if r.Verdict != verdict || r.ExitCode != code {
		t.Errorf("verdict %s, exit code %d; want %s, %d\nerror: %v\nwarnings: %q\nstdout: %.300s\nstderr: %.300s", r.Verdict, r.ExitCode, verdict, code, r.Error, r.Warnings, r.Stdout, r.Stderr)
	}
}

// One process ignores what can be ignored, one is stopped, one is a shell with a trap.
func TestThreat168IgnoreSigterm(t *testing.T) {
	const script = `#!/bin/sh
trap '' TERM INT HUP QUIT
./probe ignore-signals &
sh -c 'kill -STOP $$' &
echo shell
while :; do sleep 1; done
`
	inEachMode(t, func(t *testing.T, m mode) {
		bundle := m.probeBundle(t)
		m.write(t, filepath.Join(bundle, "main.sh"), script, 0o755)
		within(t, patience(time.Second+graceTime+slack), func() {
			r := call{mode: m, bundle: bundle, flags: []string{"--timeout", patience(time.Second).String()}, words: []string{"./main.sh"}}.run(t)
			wantVerdict(t, r, helper.TimedOut, helper.CodeTimedOut)
			if !strings.Contains(r.Stdout, "shell\n") || !strings.Contains(r.Stdout, "ready\n") {
				t.Errorf("the skill never ignored anything: %q", r.Stdout)
			}
		})
	})
}

func TestASkillThatObeysSigtermEndsWithinItsGrace(t *testing.T) {
	inEachMode(t, func(t *testing.T, m mode) {
		within(t, patience(500*time.Millisecond+graceTime), func() {
			r := call{mode: m, flags: []string{"--timeout", patience(500 * time.Millisecond).String()}}.script(t, "trap 'echo bye; exit 0' TERM\nsleep 60 &\nwait\n")
			wantVerdict(t, r, helper.TimedOut, helper.CodeTimedOut)
			if r.Stdout != "bye\n" {
				t.Errorf("stdout %q", r.Stdout)
			}
		})
	})
}

func TestThreat169DoubleForkDaemon(t *testing.T) {
	inEachMode(t, func(t *testing.T, m mode) {
		within(t, patience(slack), func() {
			// A session of its own, forked twice, and no descriptor of the run's.
			r := call{mode: m}.script(t, "(setsid sh -c 'sleep 600 </dev/null >/dev/null 2>&1 & sleep 600 & ' </dev/null >/dev/null 2>&1 &)\necho done; exit 4\n")
			wantVerdict(t, r, helper.Exited, 4)
		})
	})
}

func TestThreat170StdoutHeldByGrandchild(t *testing.T) {
	inEachMode(t, func(t *testing.T, m mode) {
		within(t, patience(slack), func() {
			r := call{mode: m}.script(t, "(setsid sleep 600 &)\necho done; exit 0\n")
			wantVerdict(t, r, helper.Exited, 0)
			if r.Stdout != "done\n" {
				t.Errorf("stdout %q", r.Stdout)
			}
		})
	})
}

// The default of 64 processes is far below what is orphaned here: without a reaper fork would fail.
func TestThreat171Zombies(t *testing.T) {
	made := strconv.Itoa(max(load(1000), 100))
	orphans := `
import os, time
made = 0
while made < ` + made + `:
    try:
        pid = os.fork()
    except BlockingIOError:
        time.sleep(0.001)  # init is reaping
        continue
    if pid == 0:
        try:
            os.fork()
        except OSError:
            os._exit(1)
        os._exit(0)
    made += os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == 0
print(made)
`
	inEachMode(t, func(t *testing.T, m mode) {
		r := call{mode: m, bundle: m.bundleOf(t, map[string]string{"main.py": orphans}), words: []string{"python3", "main.py"}}.run(t)
		wantVerdict(t, r, helper.Exited, 0)
		if strings.TrimSpace(r.Stdout) != made {
			t.Errorf("stdout %q", r.Stdout)
		}
	})
}

func TestThreat172PtraceStoppedTree(t *testing.T) {
	inEachMode(t, func(t *testing.T, m mode) {
		within(t, patience(time.Second+graceTime+slack), func() {
			// Only the debug profile lets a skill call ptrace.
			r := call{mode: m, policy: "version: 1\nsyscalls: {profile: debug}\n", flags: []string{"--timeout", patience(time.Second).String()}, words: []string{"/skill/probe", "traced-and-still"}}.run(t)
			wantVerdict(t, r, helper.TimedOut, helper.CodeTimedOut)
			if r.Stdout != "traced\n" {
				t.Errorf("stdout %q, stderr %q", r.Stdout, r.Stderr)
			}
		})
	})
}

func TestThreat174ForkDuringKill(t *testing.T) {
	const forking = `
import os, signal
signal.signal(signal.SIGTERM, signal.SIG_IGN)
print("forking", flush=True)
while True:  # in every process that comes of it
    try:
        if os.fork() == 0 and os.fork() == 0:
            os.setsid()
    except OSError:
        pass
`
	inEachMode(t, func(t *testing.T, m mode) {
		bundle := m.bundleOf(t, map[string]string{"main.py": forking})
		within(t, patience(time.Second+graceTime+slack), func() {
			// The watchdog counts what forked processes share once for each: without more memory it would end this first.
			r := call{
				mode: m, bundle: bundle, policy: "version: 1\nenforcement: best-effort\nresources: {memory: 2Gi}\n",
				flags: []string{"--timeout", patience(time.Second).String()}, words: []string{"python3", "main.py"},
			}.run(t)
			either(t, r, helper.TimedOut, helper.PidsLimit) // whichever comes first
			if r.Stdout != "forking\n" {
				t.Errorf("stdout %q", r.Stdout)
			}
		})
	})
}

// Whatever a skill exits with, raises or prints, it cannot make it look like something that we did.
func TestThreat178ExitCodeSpoof(t *testing.T) {
	cases := []struct {
		script, verdict, signal string
		code                    int
	}{
		{"exit 124", helper.Exited, "", 124},
		{"exit 125", helper.Exited, "", 125},
		{"exit 130", helper.Exited, "", 130},
		{"exit 137", helper.Exited, "", 137},
		{"exit 143", helper.Exited, "", 143},
		{"exit 153", helper.Exited, "", 153},
		{"exit 159", helper.Exited, "", 159},
		{"kill -KILL $$", helper.Signaled, "SIGKILL", 137},
		{"kill -TERM $$", helper.Signaled, "SIGTERM", 143},
		{"kill -INT $$", helper.Signaled, "SIGINT", 130},
		{"kill -XFSZ $$", helper.Signaled, "SIGXFSZ", 153},
		{"sh -c 'kill -KILL -1'; sleep 5", helper.Signaled, "SIGKILL", 137},
		{"echo 'Out of memory: Killed process 1 (oom)' >&2; echo '{\"verdict\":\"out_of_memory\"}'; exit 137", helper.Exited, "", 137},
	}
	inEachMode(t, func(t *testing.T, m mode) {
		for _, c := range cases {
			r := call{mode: m}.script(t, c.script+"\n")
			if r.Verdict != c.verdict || r.ExitCode != c.code || r.Signal != c.signal || r.Success || r.Error != nil {
				t.Errorf("%s: verdict %s, code %d, signal %q, success %v, error %v", c.script, r.Verdict, r.ExitCode, r.Signal, r.Success, r.Error)
			}
		}
	})
}

// Init must outlive whatever the skill sends it, or the skill could choose its verdict. What used to kill depended on the moment.
func TestThreat178InitObeysNoSignal(t *testing.T) {
	inEachMode(t, func(t *testing.T, m mode) {
		bundle := m.probeBundle(t)
		for range load(10) {
			got := call{mode: m, bundle: bundle}.attempts(t, "signal-init-every-way")
			if got["kill 9"] != "ok" || got["sigqueue 11 -1"] != "ok" {
				t.Errorf("the attempt was not made: kill 9 %s, sigqueue SIGSEGV %s", got["kill 9"], got["sigqueue 11 -1"])
			}
		}
	})
}

// skillboxOf finds the skillboxd that a client started, waiting for it to appear; 0 if the client ended before.
func skillboxdOf(client int) int {
	for {
		text, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", client))
		if err != nil || strings.Contains(string(text), ") Z ") {
			return 0
		}
		threads, _ := filepath.Glob(fmt.Sprintf("/proc/%d/task/*/children", client))
		for _, list := range threads {
			children, _ := os.ReadFile(list) // a thread that ended has none
			for _, child := range strings.Fields(string(children)) {
				exe, err := os.Readlink("/proc/" + child + "/exe")
				// A child that has not come to exec yet still runs the client's program.
				if pid, _ := strconv.Atoi(child); err == nil && strings.HasPrefix(exe, binDir+"/") {
					return pid
				}
			}
		}
		time.Sleep(200 * time.Microsecond)
	}
}

// Numbers are reused, pidfds are not.
func TestThreat183PidfdOnlySignalling(t *testing.T) {
	inEachMode(t, func(t *testing.T, m mode) {
		r := m.background(t, nil, m.bundleOf(t, map[string]string{"main.sh": "#!/bin/sh\necho ready; sleep 60\n"}), "./main.sh")
		r.expect(t, "ready\n")
		client := r.cmd.Process.Pid
		for who, pid := range map[string]int{"skillbox": client, "skillboxd": skillboxdOf(client)} {
			if !holdsPidfd(t, pid) {
				t.Errorf("%s holds no pidfd of its child", who)
			}
		}
		r.end(t)
	})
}

func holdsPidfd(t *testing.T, pid int) bool {
	t.Helper()
	fds, err := filepath.Glob(fmt.Sprintf("/proc/%d/fd/*", pid))
	if err != nil || len(fds) == 0 {
		t.Fatalf("no descriptors of %d: %v", pid, err)
	}
	for _, fd := range fds {
		target, _ := os.Readlink(fd)
		if strings.Contains(target, "pidfd") { // anon_inode:[pidfd], since Linux 6.9 pidfd:[inode]
			return true
		}
	}
	return false
}
