//go:build linux

package integration

import (
	"bytes"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"sort"
	"strings"
	"syscall"
	"testing"
	"time"
	"unicode/utf8"

	"golang.org/x/sys/unix"

	"skillbox/helper"
)

// shape of the envelope: every key with the JSON types that it may have.
var shape = map[string]string{
	"id": "string", "success": "bool", "verdict": "string", "exit_code": "number", "signal": "string",
	"stdout": "string", "stdout_truncated": "bool", "stderr": "string", "stderr_truncated": "bool", "result": "any",
	"duration_ms": "number", "phases": "object", "usage": "object", "error": "object or null", "denials": "array", "warnings": "array",
	"outputs": "array", "skill": "object", "policy": "object", "sandbox": "object",
}

var verdicts = []string{"exited", "signaled", "timed_out", "out_of_memory", "output_limit", "syscall_killed", "canceled", "refused", "failed"}

func typeOf(v any) string {
	switch v.(type) {
	case nil:
		return "null"
	case string:
		return "string"
	case bool:
		return "bool"
	case float64:
		return "number"
	case []any:
		return "array"
	}
	return "object"
}

// envelope runs `skillbox exec --json` and checks what must hold for every envelope, whatever happened.
func (m mode) envelope(t *testing.T, code int, args ...string) map[string]any {
	t.Helper()
	return checkEnvelope(t, args, plain(t, m.command(append([]string{"exec", "--json"}, args...)...), nil), code, shape)
}

func checkEnvelope(t *testing.T, args []string, r ran, code int, shape map[string]string) map[string]any {
	t.Helper()
	if r.code != code {
		t.Errorf("%q: exit code %d, want %d: %s", args, r.code, code, r.stderr)
	}
	if !utf8.ValidString(r.stdout) || strings.Count(r.stdout, "\n") != 1 || !strings.HasSuffix(r.stdout, "\n") {
		t.Errorf("%q: not one line of UTF-8: %.200q", args, r.stdout)
	}
	var e map[string]any
	if err := json.Unmarshal([]byte(r.stdout), &e); err != nil {
		t.Fatalf("%q: %v: %q", args, err, r.stdout)
	}
	var keys, want []string
	for key, value := range e {
		keys = append(keys, key)
		if kind := typeOf(value); shape[key] != "any" && !slices.Contains(strings.Split(shape[key], " or "), kind) {
			t.Errorf("%q: %s is %s, not %s", args, key, kind, shape[key])
		}
	}
	for key := range shape {
		want = append(want, key)
	}
	sort.Strings(keys)
	sort.Strings(want)
	if !slices.Equal(keys, want) {
		t.Errorf("%q: keys %v, want %v", args, keys, want)
	}
	if !slices.Contains(verdicts, fmt.Sprint(e["verdict"])) {
		t.Errorf("%q: verdict %v", args, e["verdict"])
	}
	if e["exit_code"] != float64(code) || e["success"] != (e["verdict"] == "exited" && code == 0) {
		t.Errorf("%q: exit_code %v, success %v", args, e["exit_code"], e["success"])
	}
	if ours := e["verdict"] != "exited" && e["verdict"] != "signaled"; ours != (e["error"] != nil) {
		t.Errorf("%q: verdict %v with error %v", args, e["verdict"], e["error"])
	}
	for key, fields := range map[string][]string{"skill": {"name", "digest"}, "policy": {"name", "digest"}, "sandbox": {"mode", "layers", "start"}} {
		object, _ := e[key].(map[string]any)
		for _, field := range fields {
			if _, ok := object[field]; !ok {
				t.Errorf("%q: %s has no %s: %v", args, key, field, object)
			}
		}
	}
	return e
}

func TestEveryOutcomeIsAnEnvelope(t *testing.T) {
	inEachMode(t, func(t *testing.T, m mode) {
		bundle := m.probeBundle(t)
		quiet := m.file(t, "quiet.yaml", "version: 1\nname: quiet\nresources: {output: 64Ki}\n")
		wrong := m.file(t, "wrong.yaml", "version: 1\nname: [\n")
		for _, c := range []struct {
			verdict, signal string
			code            int
			args            []string
		}{
			{"exited", "", 0, []string{bundle, "--", "true"}},
			{"exited", "", 3, []string{bundle, "--", "sh", "-c", "exit 3"}},
			{"signaled", "SIGTERM", 143, []string{bundle, "--", "sh", "-c", "kill -TERM $$"}},
			{"timed_out", "SIGTERM", 124, []string{"--timeout", "200ms", bundle, "--", "sleep", "60"}},
			{"out_of_memory", "SIGKILL", 137, []string{bundle, "--", "python3", "-c", "x = b'x' * (400 << 20)\nimport time; time.sleep(20)"}},
			{"output_limit", "SIGKILL", 153, []string{"--policy", quiet, bundle, "--", "yes"}},
			{"syscall_killed", "SIGSYS", 159, []string{bundle, "--", "/skill/probe", "foreign-call"}},
			{"refused", "", 125, []string{"--policy", wrong, bundle, "--", "true"}},
			{"refused", "", 125, []string{bundle}},
			{"failed", "", 125, []string{filepath.Join(bundle, "missing"), "--", "true"}},
			{"failed", "", 126, []string{bundle, "--", "/tmp"}},
			{"failed", "", 127, []string{bundle, "--", "no-such-program"}},
			{"failed", "", 125, []string{"--params", "{", bundle, "--", "true"}},
		} {
			e := m.envelope(t, c.code, c.args...)
			if e["verdict"] != c.verdict || e["signal"] != c.signal {
				t.Errorf("%q: verdict %v, signal %v, want %s, %s: %v", c.args, e["verdict"], e["signal"], c.verdict, c.signal, e["error"])
			}
		}
	})
}

func TestTheEnvelopeOfASuccessIsComplete(t *testing.T) {
	inEachMode(t, func(t *testing.T, m mode) {
		bundle := m.bundleOf(t, map[string]string{
			"skillbox.yaml": "version: 1\nname: complete\ncommand: [sh, main.sh]\n",
			"main.sh":       "cat >/dev/null; echo '{\"words\": 3}'; echo note >&2; echo data >/output/file; unshare -U true; unshare -U true; true\n",
		})
		policy := m.file(t, "policy.yaml", "version: 1\nname: tight\n")
		e := m.envelope(t, 0, "--policy", policy, "--params", "{}", "--output", filepath.Join(m.dir(t), "out"), bundle)
		if text, _ := json.Marshal(e["result"]); string(text) != `{"words":3}` || e["stdout"] != "{\"words\": 3}\n" || !strings.HasPrefix(fmt.Sprint(e["stderr"]), "note\n") {
			t.Errorf("result %v, stdout %q, stderr %q", e["result"], e["stdout"], e["stderr"])
		}
		if len(fmt.Sprint(e["id"])) != 16 {
			t.Errorf("id %v", e["id"])
		}
		for _, number := range []string{"prepare_ms", "run_ms"} {
			if n, _ := e["phases"].(map[string]any)[number].(float64); n <= 0 {
				t.Errorf("phases: %s is %v", number, n)
			}
		}
		usage := e["usage"].(map[string]any)
		if usage["max_rss_bytes"].(float64) < 1<<20 || usage["stdout_bytes"] != float64(13) || usage["stderr_bytes"].(float64) < 5 {
			t.Errorf("usage %v", usage)
		}
		outputs, _ := json.Marshal(e["outputs"])
		if string(outputs) != `[{"bytes":5,"name":"file","sha256":"6667b2d1aab6a00caa5aee5af8ad9f1465e567abf1c209d15727d57b3e8f6e5f"}]` {
			t.Errorf("outputs %s", outputs)
		}
		for key, name := range map[string]string{"skill": "complete", "policy": "tight"} {
			got := e[key].(map[string]any)
			if got["name"] != name || len(fmt.Sprint(got["digest"])) < 64 {
				t.Errorf("%s is %v", key, got)
			}
		}
		found := false
		for _, d := range e["denials"].([]any) {
			denial := d.(map[string]any)
			found = found || (denial["kind"] == "syscall" && strings.HasPrefix(fmt.Sprint(denial["what"]), "unshare") && denial["count"] == float64(2) && denial["rule"] != "")
		}
		if !found {
			t.Errorf("two refused unshare calls are not among the denials: %v", e["denials"])
		}
	})
}

func TestTheResultIsTheSkillsJSON(t *testing.T) {
	file := func(text string) string { return "printf '" + text + "' > $SKILLBOX_RESULT_FILE; " }
	inEachMode(t, func(t *testing.T, m mode) {
		for _, c := range []struct{ script, want, warning string }{
			{"echo '[1, 2]'", `[1,2]`, ""},
			{"echo not JSON", `null`, ""},
			{"echo 1; echo 2", `null`, ""},
			{"true", `null`, ""},
			{file(`{"a": 1}`) + "echo 2", `{"a":1}`, ""},
			{file("") + "echo 2", `2`, ""},
			{file("{") + "echo 2", `2`, "does not hold one JSON value"},
			{file(`"\377"`), `null`, "does not hold one JSON value"},
			{`printf '"\377"'`, `null`, ""},
			{"mkfifo $SKILLBOX_RESULT_FILE", `null`, "result file"},
			{"ln -s /etc/passwd $SKILLBOX_RESULT_FILE", `null`, "result file"},
			{"mkdir $SKILLBOX_RESULT_FILE", `null`, "result file"},
		} {
			e := m.envelope(t, 0, m.dir(t), "--", "sh", "-c", c.script)
			if text, _ := json.Marshal(e["result"]); string(text) != c.want {
				t.Errorf("%s: result %s, want %s", c.script, text, c.want)
			}
			if warnings := fmt.Sprint(e["warnings"]); !strings.Contains(warnings, c.warning) {
				t.Errorf("%s: warnings %s", c.script, warnings)
			}
		}
	})
}

// A skill may write what it likes: its result must not get lost because the messages about it grow too long for a frame.
func TestALongAnswerDoesNotLoseTheResult(t *testing.T) {
	const names = `
import os
deep = "/output/" + "/".join(['"' * 200] * 18)
os.makedirs(deep)
os.chdir(deep)
for i in range(900):
    open("f" * 200 + str(i), "w").close()
`
	inEachMode(t, func(t *testing.T, m mode) {
		for script, large := range map[string]string{
			`open("/run/skillbox/result/result.json", "w").write('"' + "<" * (2097152 - 2) + '"')`: "result",
			names: "outputs",
		} {
			bundle := m.bundleOf(t, map[string]string{"main.py": script + "\nprint('done')\n"})
			e := m.envelope(t, 0, "--output", filepath.Join(m.dir(t), "out"), bundle, "--", "python3", "main.py")
			if e["verdict"] != "exited" || e["stdout"] != "done\n" {
				t.Errorf("%s: verdict %v, stdout %q, error %v", large, e["verdict"], e["stdout"], e["error"])
			}
			if result, _ := e["result"].(string); large == "result" && result != strings.Repeat("<", 2<<20-2) {
				t.Errorf("the result is %d bytes long", len(result))
			}
			if warnings := fmt.Sprint(e["warnings"]); large == "outputs" && !strings.Contains(warnings, "nothing after this one was taken") {
				t.Errorf("warnings %.300s", warnings)
			}
		}
	})
}

func TestCancel(t *testing.T) {
	inEachMode(t, func(t *testing.T, m mode) {
		obedient := m.bundleOf(t, map[string]string{"main.sh": "#!/bin/sh\ntrap 'echo bye; exit 0' TERM\necho ready\nsleep 60 &\nwait\n"})
		stubborn := m.bundleOf(t, map[string]string{"main.sh": "#!/bin/sh\ntrap '' TERM\necho ready\nwhile :; do sleep 1; done\n"})
		for _, c := range []struct {
			name    string
			bundle  string
			signals []os.Signal
			out     string
			within  time.Duration
		}{
			{"SIGINT", obedient, []os.Signal{syscall.SIGINT}, "bye\n", graceTime},
			{"SIGTERM", obedient, []os.Signal{syscall.SIGTERM}, "bye\n", graceTime},
			{"SIGTERM ignored", stubborn, []os.Signal{syscall.SIGTERM}, "", graceTime + slack},
			{"twice", stubborn, []os.Signal{syscall.SIGINT, syscall.SIGINT}, "", graceTime * 3 / 4},
		} {
			r := m.background(t, nil, c.bundle, "./main.sh")
			r.expect(t, "ready\n")
			within(t, patience(c.within), func() {
				for _, s := range c.signals {
					if err := r.cmd.Process.Signal(s); err != nil {
						t.Fatal(err)
					}
					time.Sleep(50 * time.Millisecond) // two at once would be one
				}
				if out, code := r.wait(t); out != c.out || code != helper.CodeCanceled {
					t.Errorf("%s: %q, exit code %d, %s", c.name, out, code, r.stderr.String())
				}
			})
		}
	})
}

// What the client hands over may never end: a FIFO as policy, parameters from a pipe.
func TestCancelBeforeTheSkillStarts(t *testing.T) {
	inEachMode(t, func(t *testing.T, m mode) {
		fifo := filepath.Join(m.dir(t), "fifo")
		if err := unix.Mkfifo(fifo, 0o644); err != nil {
			t.Fatal(err)
		}
		m.own(t, fifo)
		writer, err := os.OpenFile(fifo, os.O_RDWR, 0) // so that the client's open does not wait
		if err != nil {
			t.Fatal(err)
		}
		defer writer.Close()
		for name, flags := range map[string][]string{"policy": {"--policy", fifo}, "params": {"--params", "-"}} {
			for _, s := range []os.Signal{syscall.SIGINT, syscall.SIGKILL} {
				before := traces(t)
				r := m.background(t, flags, m.dir(t), "echo", "started")
				time.Sleep(min(patience(300*time.Millisecond), 1500*time.Millisecond)) // before, SIGINT just ends the client
				within(t, patience(slack), func() {
					if err := r.cmd.Process.Signal(s); err != nil {
						t.Fatal(err)
					}
					out, code := r.wait(t)
					if out != "" || (s == syscall.SIGINT && code != helper.CodeCanceled) {
						t.Errorf("%s, %v: %q, exit code %d, %s", name, s, out, code, r.stderr.String())
					}
					nothingLeft(t, before)
				})
			}
		}
	})
}

// Nobody else would end a skillboxd that waits for a policy.
func TestSkillboxdFollowsItsClient(t *testing.T) {
	inEachMode(t, func(t *testing.T, m mode) {
		fifo := filepath.Join(m.dir(t), "fifo")
		if err := unix.Mkfifo(fifo, 0o644); err != nil {
			t.Fatal(err)
		}
		m.own(t, fifo)
		writer, err := os.OpenFile(fifo, os.O_RDWR, 0)
		if err != nil {
			t.Fatal(err)
		}
		defer writer.Close()
		for _, args := range [][]string{{"plan", "--policy", fifo, m.dir(t), "--", "true"}, {"policy", "check", fifo}} {
			before := traces(t)
			c := m.command(args...)
			if err := c.Start(); err != nil {
				t.Fatal(err)
			}
			skillboxd := startedSkillboxdOf(t, c.Process.Pid)
			time.Sleep(200 * time.Millisecond)
			if err := unix.Kill(skillboxd, 0); err != nil {
				t.Fatalf("%q: skillboxd did not wait for the policy: %v", args, err)
			}
			_ = c.Process.Kill()
			_ = c.Wait() // killed
			nothingLeft(t, before)
		}
	})
}

// startedSkillboxdOf waits for the child that runs skillboxd: the first child of a Go program may be one that only tries pidfds.
func startedSkillboxdOf(t *testing.T, client int) int {
	t.Helper()
	for deadline := time.Now().Add(patience(5 * time.Second)); time.Now().Before(deadline); time.Sleep(time.Millisecond) {
		pid := skillboxdOf(client)
		if exe, err := os.Readlink(fmt.Sprintf("/proc/%d/exe", pid)); err == nil && filepath.Base(exe) == "skillboxd" {
			return pid
		}
	}
	t.Fatal("skillboxd was not started")
	return 0
}

func TestParametersThatNeverEndTimeOut(t *testing.T) {
	inEachMode(t, func(t *testing.T, m mode) {
		within(t, patience(slack), func() {
			r := m.background(t, []string{"--timeout", "500ms", "--params", "-"}, m.dir(t), "echo", "started")
			if out, code := r.wait(t); out != "" || code != helper.CodeTimedOut {
				t.Errorf("%q, exit code %d, %s", out, code, r.stderr.String())
			}
		})
	})
}

func TestTheWatchdogEndsWhatUsesTooMuchMemory(t *testing.T) {
	inEachMode(t, func(t *testing.T, m mode) {
		for name, script := range map[string]string{
			"one process":      "held = bytearray(b'x') * (400 << 20)\nimport time; time.sleep(20)",
			"several together": "import os, time\nfor i in range(4): os.fork() if i < 2 else None\nheld = bytearray(b'x') * (100 << 20)\ntime.sleep(20)",
			"a shared mapping": "import mmap, time\nheld = mmap.mmap(-1, 400 << 20)\nfor i in range(0, 400 << 20, 4096): held[i] = 1\ntime.sleep(20)",
		} {
			within(t, patience(5*time.Second+slack), func() {
				r := call{mode: m, words: []string{"python3", "-c", script}}.run(t)
				if r.Verdict != helper.OutOfMemory || r.ExitCode != helper.CodeOutOfMemory {
					t.Errorf("%s: %s, %d, %s", name, r.Verdict, r.ExitCode, r.Stderr)
				}
			})
		}
		below := call{mode: m, words: []string{"python3", "-c", "held = bytearray(b'x') * (200 << 20)\nimport time; time.sleep(0.3)"}}.run(t)
		wantVerdict(t, below, helper.Exited, 0)
	})
}

func TestTheClientSpeaksOfASkillboxdThatDied(t *testing.T) {
	inEachMode(t, func(t *testing.T, m mode) {
		out := filepath.Join(m.dir(t), "out")
		r := m.background(t, []string{"--output", out}, m.bundleOf(t, map[string]string{"main.sh": "#!/bin/sh\necho ready; sleep 60\n"}), "./main.sh")
		r.expect(t, "ready\n")
		if err := unix.Kill(skillboxdOf(r.cmd.Process.Pid), unix.SIGKILL); err != nil {
			t.Fatal(err)
		}
		within(t, patience(slack), func() {
			if _, code := r.wait(t); code != helper.CodeFailed || !bytes.HasPrefix(r.stderr.Bytes(), []byte("skillbox: ")) {
				t.Errorf("exit code %d, stderr %q", code, r.stderr.String())
			}
		})
		m.sweep(t) // its group is the next one's to remove
	})
}
