//go:build linux

package integration

import (
	"bytes"
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"strconv"
	"strings"
	"testing"
	"time"

	"skillbox/helper"
)

// Where no cgroup holds memory, pids and cpu a watchdog does, if the policy says best-effort. Group H tests what a skill can do about
// limits, whatever holds them; these are the watchdog's own ways of seeing.

// heldByWatchdog is a policy under which the watchdog holds the given limits; it skips the test where a cgroup does.
func heldByWatchdog(t *testing.T, m mode, resources string, more ...string) string {
	t.Helper()
	policy := "version: 1\nenforcement: best-effort\nresources: {" + resources + "}\n" + strings.Join(more, "\n") + "\n"
	r := call{mode: m, policy: policy, words: []string{"true"}}.run(t)
	wantVerdict(t, r, helper.Exited, 0)
	for _, layer := range []string{"memory", "pids", "cpu"} {
		if !strings.HasPrefix(r.Sandbox.Layers[layer], "watchdog") {
			needs(t, "no cgroup v2", fmt.Errorf("%s is held by %s", layer, r.Sandbox.Layers[layer]))
		}
	}
	return policy
}

func TestTheWatchdogSeesMemoryThatNobodyHasMapped(t *testing.T) {
	inEachMode(t, func(t *testing.T, m mode) {
		policy := heldByWatchdog(t, m, "memory: 64Mi", "filesystem: {tmp: 1Gi}\nrootfs: {bundle: copy-on-write}")
		for _, way := range []string{"write /tmp", "deleted /tmp", "write /dev/shm", "write /skill", "memfd", "sysv"} {
			within(t, 5*time.Second+slack, func() {
				r := call{mode: m, policy: policy, words: []string{"/skill/probe", "fill", way}}.run(t)
				if r.Verdict != helper.OutOfMemory || r.ExitCode != helper.CodeOutOfMemory || !strings.Contains(r.Error.Message, "the limit is 67108864 (resources.memory)") {
					t.Errorf("%s: %s, %d, %v, %s", way, r.Verdict, r.ExitCode, r.Error, r.Stdout)
				}
			})
		}
		r := call{mode: m, policy: policy, words: []string{"/skill/probe", "allocate", "1024", "16", "0", "0"}}.run(t)
		wantVerdict(t, r, helper.OutOfMemory, helper.CodeOutOfMemory)
	})
}

// A file in memory that is mapped too is there once.
func TestMappingAFileInMemoryIsNotCountedTwice(t *testing.T) {
	const script = `
import mmap, time
with open("/tmp/data", "w+b") as f:
    f.truncate(40 << 20)
    held = mmap.mmap(f.fileno(), 40 << 20)
    for i in range(0, 40 << 20, 4096): held[i] = 1
    time.sleep(0.5)
`
	inEachMode(t, func(t *testing.T, m mode) {
		r := call{mode: m, policy: heldByWatchdog(t, m, "memory: 64Mi"), words: []string{"python3", "-c", script}}.run(t)
		wantVerdict(t, r, helper.Exited, 0)
	})
}

func TestTheWatchdogCountsProcessesAndThreads(t *testing.T) {
	inEachMode(t, func(t *testing.T, m mode) {
		policy := heldByWatchdog(t, m, "pids: 32")
		for name, attempt := range map[string][]string{"a fork bomb": {"fork-bomb", "1000"}, "threads": {"limit-threads", "36"}} {
			within(t, 5*time.Second, func() {
				done := make(chan *helper.Result)
				go func() {
					defer close(done)
					done <- call{mode: m, policy: policy, words: append([]string{"/skill/probe"}, attempt...)}.run(t)
				}()
				var r *helper.Result
				for forks := 0; r == nil; forks++ {
					select {
					case r = <-done:
					default:
						if err := exec.Command("true").Run(); err != nil {
							t.Errorf("%s: the host cannot fork after %d times: %v", name, forks, err)
						}
					}
				}
				if r.Verdict != helper.PidsLimit || r.ExitCode != helper.CodePidsLimit || !strings.Contains(r.Error.Message, "the limit is 32 (resources.pids)") {
					t.Errorf("%s: %s, %d, %v, %s", name, r.Verdict, r.ExitCode, r.Error, r.Stderr)
				}
			})
		}
		below := call{mode: m, policy: policy, flags: []string{"--timeout", "500ms"}, words: []string{"/skill/probe", "limit-threads", "16"}}.run(t)
		wantVerdict(t, below, helper.TimedOut, helper.CodeTimedOut)
	})
}

func TestTheWatchdogCountsProcessorTime(t *testing.T) {
	inEachMode(t, func(t *testing.T, m mode) {
		policy := heldByWatchdog(t, m, "cpu: 0.1", "timeout: 20s") // 2 s, of the 20 and more that would be there
		for name, attempt := range map[string][]string{
			"one thread":                {"limit-spin", "1"},
			"four threads":              {"limit-spin", "4"},
			"children, one after other": {"limit-unwaited", "300", "60000"},
		} {
			r := call{mode: m, policy: policy, words: append([]string{"/skill/probe"}, attempt...)}.run(t)
			if r.Verdict != helper.TimedOut || r.ExitCode != helper.CodeTimedOut || !strings.Contains(r.Error.Message, "resources.cpu allows within the timeout: 2s") {
				t.Errorf("%s: %s, %d, %v", name, r.Verdict, r.ExitCode, r.Error)
			}
			t.Logf("%s: %.0f ms", name, r.DurationMS)
			if lines := strings.Fields("0 " + r.Stdout); attempt[0] == "limit-spin" {
				if used := number(t, lines[len(lines)-1]); used < 1850 || used > 2600 {
					t.Errorf("%s: it used %d ms of processor time", name, used)
				}
			}
		}
	})
}

func TestOutputAboveTheLimitIsDropped(t *testing.T) {
	const policy = "version: 1\nresources: {output: 1Mi, output_overflow: truncate}\n"
	flood := load(256) // MiB to each of stdout and stderr
	inEachMode(t, func(t *testing.T, m mode) {
		c := m.command("exec", "--json", "--policy", m.file(t, "policy.yaml", policy), m.sharedBundle(t), "--", "/skill/probe", "limit-flood", strconv.Itoa(flood), "7")
		var stdout bytes.Buffer
		c.Stdout = &stdout
		if err := c.Start(); err != nil {
			t.Fatal(err)
		}
		peak := peakOf(startedSkillboxdOf(t, c.Process.Pid))
		_ = c.Wait() // the skill's exit code
		var r helper.Result
		if err := json.Unmarshal(stdout.Bytes(), &r); err != nil {
			t.Fatal(err)
		}
		if r.Verdict != helper.Exited || r.ExitCode != 7 || c.ProcessState.ExitCode() != 7 {
			t.Errorf("%s, %d, %v", r.Verdict, r.ExitCode, r.Error)
		}
		if total := len(r.Stdout) + len(r.Stderr); total != 1<<20 || !r.StdoutTruncated || !r.StderrTruncated || r.Usage.StdoutBytes != int64(len(r.Stdout)) {
			t.Errorf("%d bytes, truncated %v and %v", total, r.StdoutTruncated, r.StderrTruncated)
		}
		if !said(&r, fmt.Sprintf("%d bytes of stdout and stderr above the limit of 1048576 were dropped", 2*flood<<20-1<<20)) {
			t.Errorf("warnings %q", r.Warnings)
		}
		if most := <-peak; most == 0 || most > 48<<10 { // 16 MiB, as without a flood
			t.Errorf("skillboxd took %d KiB", most)
		}

		exact := call{mode: m, policy: policy, words: []string{"head", "-c", "1048576", "/dev/zero"}}.run(t)
		wantVerdict(t, exact, helper.Exited, 0)
		if len(exact.Stdout) != 1<<20 || exact.StdoutTruncated || said(exact, "dropped") {
			t.Errorf("exactly the limit: %d bytes, truncated %v, warnings %q", len(exact.Stdout), exact.StdoutTruncated, exact.Warnings)
		}
		endless := call{mode: m, policy: policy, flags: []string{"--timeout", "500ms"}, words: []string{"yes"}}.run(t)
		wantVerdict(t, endless, helper.TimedOut, helper.CodeTimedOut)
		if len(endless.Stdout) != 1<<20 || !endless.StdoutTruncated {
			t.Errorf("%d bytes, truncated %v", len(endless.Stdout), endless.StdoutTruncated)
		}
	})
}

// peakOf follows a process to its end and says how much memory it had at most, in KiB.
func peakOf(pid int) <-chan int {
	peak := make(chan int, 1)
	go func() {
		most := 0
		for ; ; time.Sleep(5 * time.Millisecond) {
			status, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", pid))
			_, rest, ok := strings.Cut(string(status), "VmHWM:")
			if err != nil || !ok {
				peak <- most
				return
			}
			if n, err := strconv.Atoi(strings.Fields(rest)[0]); err == nil {
				most = n
			}
		}
	}()
	return peak
}

func TestOutputOfATerminalAboveTheLimitIsDropped(t *testing.T) {
	written := load(5_000_000)
	inEachMode(t, func(t *testing.T, m mode) {
		master, slave := terminalPair(t, 24, 80)
		policy := m.file(t, "policy.yaml", "version: 1\nresources: {output: 64Ki, output_overflow: truncate}\n")
		c := m.command("exec", "--tty", "--policy", policy, m.dir(t), "--", "sh", "-c", "head -c "+strconv.Itoa(written)+" /dev/zero | tr '\\0' x; exit 5")
		c.Env = append(c.Env, "TERM=vt220")
		c.Stdin, c.Stdout, c.Stderr = slave, slave, slave
		c.SysProcAttr.Setsid, c.SysProcAttr.Setctty = true, true
		if err := c.Start(); err != nil {
			t.Fatal(err)
		}
		slave.Close()
		text := until(t, master, "dropped (resources.output)")
		_ = c.Wait() // the skill's exit code
		if n := strings.Count(text, "x"); n < 64<<10 || n > 64<<10+8 || c.ProcessState.ExitCode() != 5 {
			t.Errorf("%d bytes, exit code %d", n, c.ProcessState.ExitCode())
		}
		if !strings.Contains(text, fmt.Sprintf("%d bytes of stdout and stderr above the limit of 65536 were dropped", written-64<<10)) {
			t.Errorf("%q", text[max(0, len(text)-300):])
		}
	})
}
