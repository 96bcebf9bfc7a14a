//go:build linux

package integration

import (
	"bytes"
	"crypto/rand"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"skillbox/helper"
)

// clingingOn lets go of nothing: it holds the pipes of its call, ignores what can be ignored, and does what its argument says.
const clingingOn = `
import os, signal, sys, time
if os.fork():
    os._exit(0)
os.setsid()
if os.fork():
    os._exit(0)
for s in (signal.SIGTERM, signal.SIGHUP, signal.SIGPIPE, signal.SIGINT):
    signal.signal(s, signal.SIG_IGN)
def go_on(f):
    while True:
        try:
            f()
        except OSError:
            pass
def steal():
    fd = os.open("/proc/self/fd/1", os.O_RDONLY | os.O_NONBLOCK)
    go_on(lambda: os.read(fd, 1 << 16))
{"hold": lambda: time.sleep(600), "write": lambda: go_on(lambda: os.write(1, b"x" * 4096)), "steal": steal,
 "fill": lambda: go_on(lambda: os.write(os.open("/proc/self/fd/0", os.O_WRONLY), b"x" * 4096))}[sys.argv[1]]()
`

func TestACallOfASessionWaitsForNobodyWhoHoldsItsPipes(t *testing.T) {
	inEachMode(t, func(t *testing.T, m mode) {
		s := m.service(t)
		bundle := m.bundleOf(t, map[string]string{"cling.py": clingingOn})
		for _, how := range []string{"hold", "write", "steal", "fill"} {
			one := s.session(t, bundle, "--policy", m.file(t, "policy.yaml", "version: 1\nresources: {output: 1Mi, output_overflow: truncate}\n"))
			for range 3 {
				b := m.prepared(t, one.command(nil, "sh", "-c", "echo out; echo err >&2; exec /usr/bin/python3 cling.py "+how))
				within(t, patience(5*time.Second), func() {
					// It reads on from a caller who does not stop.
					go func() { _, _ = io.Copy(b.stdin, neverEnding{}) }()
					out, code := b.wait(t)
					// Both streams share one limit, which a flood on the one may reach before the other is read.
					heard := strings.Contains(b.stderr.String(), "err\n") || how == "write" && strings.Contains(b.stderr.String(), "were dropped")
					if code != 0 || !strings.HasPrefix(out, "out\n") && how != "steal" || !heard {
						t.Errorf("%s: %d, %.100q, %.100q", how, code, out, b.stderr.String())
					}
				})
			}
			if how == "write" { // which the processor's limit may end
				continue
			}
			one.says(t, "quiet\n", "echo", "quiet")
		}
	})
}

type neverEnding struct{}

func (neverEnding) Read(p []byte) (int, error) { return len(p), nil }

// By design what a call leaves behind sees the calls after it, as any process of one user sees others: docs/sessions.md says so. What it may
// not do is to change what the call was, or what its caller is told of it.
const spying = `#!/usr/bin/python3
import glob, os, signal, sys, time
if os.fork():
    sys.exit(0)
os.setsid()
null = os.open("/dev/null", os.O_RDWR)
for fd in (0, 1, 2):
    os.dup2(null, fd)
log = open("/tmp/log", "w", buffering=1)
def attempt(name, f):
    try:
        f()
        log.write(name + " ok\n")
    except OSError as e:
        log.write(name + " " + os.strerror(e.errno) + "\n")
def write(path):
    with open(path, "r+") as f:
        f.write("changed")
while not os.path.exists("/run/skillbox/params.json"):
    time.sleep(0.001)
attempt("params", lambda: write("/run/skillbox/params.json"))
attempt("chmod", lambda: os.chmod("/run/skillbox/params.json", 0o666))
attempt("unlink", lambda: os.unlink("/run/skillbox/params.json"))
attempt("rename", lambda: os.rename("/run/skillbox", "/run/other"))
attempt("create", lambda: open("/run/skillbox/new", "w"))
attempt("input", lambda: write("/input/in"))
attempt("secret", lambda: write("/run/secrets/KEY"))
attempt("chmod secret", lambda: (os.chmod("/run/secrets/KEY", 0o600)))
attempt("init", lambda: os.open("/proc/1/fd/3", os.O_RDWR))
attempt("init's memory", lambda: os.open("/proc/1/mem", os.O_RDWR))
for s in (signal.SIGKILL, signal.SIGTERM, signal.SIGSTOP, signal.SIGSEGV, signal.SIGCHLD, signal.SIGURG, 40):
    attempt("kill %d" % s, lambda: os.kill(1, s))
log.write("done\n")
time.sleep(600)
`

func TestWhatASessionsCallsCannotDoToOneAnother(t *testing.T) {
	inEachMode(t, func(t *testing.T, m mode) {
		s := m.service(t)
		bundle := m.bundleOf(t, map[string]string{"spy": spying})
		one := s.session(t, bundle, "--policy", m.file(t, "policy.yaml", "version: 1\nenv: {secrets: [KEY]}\n"))
		call := func(params string, words ...string) *helper.Result {
			t.Helper()
			flags := []string{"--json", "--input", m.file(t, "in", "input")}
			if params != "" {
				flags = append(flags, "--params", params)
			}
			c := one.command(flags, words...)
			c.Env = append(c.Env, "KEY=secret")
			r, err := envelope(c)
			if err != nil {
				t.Fatal(err)
			}
			return r
		}
		if r := call("", "./spy"); !r.Success {
			t.Fatalf("%+v", r)
		}
		r := call(`{"a":1}`, "sh", "-c", "while ! grep -q done /tmp/log; do sleep 0.01; done; cat; cat $SKILLBOX_PARAMS_FILE /input/in /run/secrets/KEY; exit 9")
		if r.Stdout != `{"a":1}{"a":1}inputsecret` || r.ExitCode != 9 || r.Verdict != helper.Exited {
			t.Errorf("%s, %d: %q, %q", r.Verdict, r.ExitCode, r.Stdout, r.Stderr)
		}
		log := call("", "cat", "/tmp/log").Stdout
		for line := range strings.Lines(log) {
			name, answer, _ := strings.Cut(strings.TrimSpace(line), " ")
			if strings.HasSuffix(answer, "ok") && name != "kill" { // which is dropped
				t.Errorf("a process of an earlier call: %s", line)
			}
		}
		if strings.Count(log, "\n") != 18 {
			t.Errorf("it tried: %s", log)
		}
		// The result file is the skill's own directory: nothing in its place is taken for a result, and none of a call before.
		for _, make := range []string{"echo 1 >%s", "mkdir -p %s/a/b/c", "mkfifo %s", "ln -s /proc/self/environ %s", "ln -s /run/secrets/KEY %s", "ln -sf x %s; chmod 0 ${SKILLBOX_RESULT_FILE%%/*}"} {
			r := call("", "sh", "-c", fmt.Sprintf(make, "$SKILLBOX_RESULT_FILE"))
			if !r.Success || strings.Contains(string(r.Result), "KEY") {
				t.Fatalf("%s: %+v", make, r)
			}
			r = call("", "sh", "-c", "test -e $SKILLBOX_RESULT_FILE || test -L $SKILLBOX_RESULT_FILE; echo $?")
			if strings.TrimSpace(r.Stdout) != "1" || string(r.Result) != "1" { // stdout, as there is no file
				t.Errorf("%s: the next call finds %q, its result is %s, %v", make, r.Stdout, r.Result, r.Warnings)
			}
		}
	})
}

// The first process of a call cannot be another's: numbers that were given out again, ends that come in a crowd, programs that cannot be
// executed.
func TestTheEndOfACallIsThatOfItsFirstProcess(t *testing.T) {
	inEachMode(t, func(t *testing.T, m mode) {
		s := m.service(t)
		one := s.session(t, m.sharedBundle(t))
		one.call(t, nil, "sh", "-c", "(while :; do (exit 7) & (exit 8) & wait; done) >/dev/null 2>&1 </dev/null &")
		for i := range load(30) {
			code := 20 + i%10
			if r := one.call(t, nil, "sh", "-c", fmt.Sprintf("exit %d", code)); r.ExitCode != code {
				t.Errorf("call %d: %d, %v", i, r.ExitCode, r.Error)
			}
			if r := one.call(t, nil, "/tmp"); r.ExitCode != 126 {
				t.Errorf("call %d: %d, %v", i, r.ExitCode, r.Error)
			}
		}
	})
}

func TestASessionOf200CallsHoldsNoMoreThanOneOfOne(t *testing.T) {
	calls := load(200)
	inEachMode(t, func(t *testing.T, m mode) {
		s := m.service(t)
		one := s.session(t, m.sharedBundle(t))
		words := []string{"sh", "-c", "cat; sleep 1000 >/dev/null 2>&1 </dev/null & kill $!; echo $1", "sh"}
		held := func() (files, threads, inits int) {
			t.Helper()
			pid := s.pid(t)
			count := func(path string) int {
				names, err := os.ReadDir(path)
				if err != nil {
					t.Fatal(err)
				}
				return len(names)
			}
			for _, init := range children(pid) {
				if name, _ := os.ReadFile("/proc/" + init + "/cmdline"); bytes.Contains(name, []byte("init")) {
					inits += count("/proc/"+init+"/fd") + count("/proc/"+init+"/task")
				}
			}
			return count(fmt.Sprintf("/proc/%d/fd", pid)), count(fmt.Sprintf("/proc/%d/task", pid)), inits
		}
		for range 5 {
			one.says(t, "a\n", append(words, "a")...)
		}
		files, threads, inits := held()
		for range calls {
			nonce := rand.Text()
			r := one.call(t, []string{"--params", `"` + nonce + `"`, "--input", filepath.Join("/etc", "hostname") + ":" + nonce}, append(words, nonce)...)
			if want := `"` + nonce + `"` + nonce + "\n"; r.Stdout != want {
				t.Fatalf("%q, want %q: %+v", r.Stdout, want, r)
			}
		}
		if !soon(func() bool {
			nowFiles, nowThreads, nowInits := held()
			return nowFiles <= files+2 && nowThreads <= threads+8 && nowInits <= inits+2
		}) {
			now, nowThreads, nowInits := held()
			t.Errorf("descriptors %d and then %d, threads %d and %d, of init's %d and %d", files, now, threads, nowThreads, inits, nowInits)
		}
		if r := one.call(t, nil, "sh", "-c", "ls /proc | grep -c '^[0-9]'"); r.Stdout > "5" {
			t.Errorf("%q processes", r.Stdout)
		}
	})
}
