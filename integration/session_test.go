//go:build linux

package integration

import (
	"bytes"
	"crypto/rand"
	"encoding/json"
	"errors"
	"fmt"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"skillbox/helper"
)

// session is one of a service's, with its id.
type session struct {
	*service
	id string
}

// sessionCommand is a client of the service.
func (s *service) sessionCommand(args ...string) *exec.Cmd {
	c := s.mode.command(append([]string{"session"}, args...)...)
	c.Path = filepath.Join(s.bin, "skillbox")
	c.Env = append(c.Env, s.env()...)
	return c
}

// tell runs a command that says what it does in words.
func tell(c *exec.Cmd) (stdout, stderr string, code int) {
	var out, errs bytes.Buffer
	c.Stdout, c.Stderr = &out, &errs
	var exit *exec.ExitError
	if err := c.Run(); err != nil && !errors.As(err, &exit) {
		return "", err.Error(), -1
	}
	return out.String(), errs.String(), c.ProcessState.ExitCode()
}

// session starts one.
func (s *service) session(t *testing.T, bundle string, flags ...string) *session {
	t.Helper()
	out, errs, code := tell(s.sessionCommand(append(append([]string{"start"}, flags...), bundle)...))
	id := strings.TrimSuffix(out, "\n")
	if code != 0 || len(id) != 16 {
		t.Fatalf("session start: %q, %q, exit code %d", out, errs, code)
	}
	return &session{s, id}
}

func (s *session) command(flags []string, words ...string) *exec.Cmd {
	args := append(append([]string{"exec"}, flags...), s.id, "--")
	return s.sessionCommand(append(args, words...)...)
}

// ask makes one call with --json; several goroutines may.
func (s *session) ask(flags []string, words ...string) (*helper.Result, error) {
	return envelope(s.command(append([]string{"--json"}, flags...), words...))
}

// call is ask for a call that is served, whatever it comes to.
func (s *session) call(t *testing.T, flags []string, words ...string) *helper.Result {
	t.Helper()
	r, err := s.ask(flags, words...)
	if err != nil {
		t.Fatal(err)
	}
	if r.Verdict == helper.Refused || r.Session != s.id {
		t.Fatalf("%s, session %q: %v", r.Verdict, r.Session, r.Error)
	}
	return r
}

// says is call for one that succeeds with this output.
func (s *session) says(t *testing.T, want string, words ...string) *helper.Result {
	t.Helper()
	r := s.call(t, nil, words...)
	if !r.Success || r.Stdout != want || r.Sandbox.Start != helper.InSession {
		t.Fatalf("%q: %s, %s, %d, %v: %q %q; want %q", words, r.Sandbox.Start, r.Verdict, r.ExitCode, r.Error, r.Stdout, r.Stderr, want)
	}
	return r
}

// isOver checks that a call is refused, and why.
func (s *session) isOver(t *testing.T, why string) {
	t.Helper()
	r, err := s.ask(nil, "true")
	if err != nil {
		t.Fatal(err)
	}
	if r.Verdict != helper.Refused || r.ExitCode != 125 || !strings.Contains(r.Error.Message, s.id+" is over: ") || !strings.Contains(r.Error.Message, why) || r.Error.Hint == "" {
		t.Errorf("%s, %d: %+v; want one that is over: %s", r.Verdict, r.ExitCode, r.Error, why)
	}
}

func (s *service) status(t *testing.T) *helper.Status {
	t.Helper()
	c := s.mode.command("ps", "--json")
	c.Path = filepath.Join(s.bin, "skillbox")
	c.Env = append(c.Env, s.env()...)
	out, err := c.Output()
	var status helper.Status
	if err == nil {
		err = json.Unmarshal(out, &status)
	}
	if err != nil {
		t.Fatal(err)
	}
	return &status
}

func (s *service) kill(ids ...string) (string, int) {
	c := s.mode.command(append([]string{"kill"}, ids...)...)
	c.Path = filepath.Join(s.bin, "skillbox")
	c.Env = append(c.Env, s.env()...)
	_, errs, code := tell(c)
	return errs, code
}

const serving = `/usr/bin/python3 -m http.server --bind 127.0.0.1 8080 --directory /tmp >/dev/null 2>&1 </dev/null &
for i in $(seq 100); do /usr/bin/python3 -c 'import socket; socket.create_connection(("127.0.0.1", 8080))' 2>/dev/null && exit 0; sleep 0.1; done
exit 1`

const fetching = `import sys, urllib.request; sys.stdout.write(urllib.request.urlopen("http://127.0.0.1:8080/state").read().decode())`

func TestASessionKeepsFilesAndProcesses(t *testing.T) {
	inEachMode(t, func(t *testing.T, m mode) {
		s := m.service(t)
		a, b := s.session(t, m.sharedBundle(t)), s.session(t, m.sharedBundle(t))
		nonce := rand.Text()
		a.says(t, "", "sh", "-c", "echo "+nonce+" | tee /tmp/state $HOME/state > /output/state")
		if r := a.call(t, nil, "sh", "-c", serving); !r.Success {
			t.Fatalf("the server does not start: %+v", r)
		}
		r := a.says(t, nonce+"\n"+nonce+"\n"+nonce+"\n", "sh", "-c", "cat /tmp/state $HOME/state /output/state")
		if r.Call != 3 || r.ID == a.id || r.Verdict != helper.Exited {
			t.Errorf("call %d, id %s: %s", r.Call, r.ID, r.Verdict)
		}
		for range 3 {
			a.says(t, nonce+"\n", "/usr/bin/python3", "-c", fetching)
		}
		// Another session has another box.
		if r := b.call(t, nil, "cat", "/tmp/state"); r.ExitCode != 1 || strings.Contains(r.Stdout, nonce) {
			t.Errorf("%d: %q", r.ExitCode, r.Stdout)
		}
		if r := b.call(t, nil, "/usr/bin/python3", "-c", fetching); r.ExitCode != 1 || !strings.Contains(r.Stderr, "refused") {
			t.Errorf("%d: %q", r.ExitCode, r.Stderr)
		}
		// Nor does a call of no session.
		if r, err := s.ask(nil, m.sharedBundle(t), "cat", "/tmp/state"); err != nil || r.ExitCode != 1 || r.Session != "" || r.Call != 0 {
			t.Errorf("%v, %+v", err, r)
		}
	})
}

func TestEachCallOfASessionBringsItsOwn(t *testing.T) {
	const show = `cat; echo; cat "$SKILLBOX_PARAMS_FILE" /run/secrets/KEY 2>&1; ls /input; cat /input/* 2>/dev/null; echo $WORD; cat $SKILLBOX_RESULT_FILE 2>/dev/null`
	inEachMode(t, func(t *testing.T, m mode) {
		s := m.service(t)
		one := s.session(t, m.sharedBundle(t), "--policy", m.file(t, "policy.yaml", "version: 1\nenv: {pass: [WORD], secrets: [KEY]}\n"))
		var before []string
		for i := range 6 {
			nonce := rand.Text()
			c := one.command([]string{
				"--json", "--params", fmt.Sprintf(`{"nonce": %q}`, nonce), "--input", m.file(t, "in-"+nonce, "input "+nonce) + ":in-" + nonce,
			}, "sh", "-c", show+`; echo "{\"n\": $1}" > $SKILLBOX_RESULT_FILE`, "sh", fmt.Sprint(i))
			c.Env = append(c.Env, "WORD=word-"+nonce, "KEY=key-"+nonce)
			r, err := envelope(c)
			if err != nil {
				t.Fatal(err)
			}
			want := fmt.Sprintf("{\"nonce\": %q}\n{\"nonce\": %q}key-%sin-%s\ninput %sword-%s\n", nonce, nonce, nonce, nonce, nonce, nonce)
			if r.Stdout != want || r.Call != i+1 || string(r.Result) != fmt.Sprintf(`{"n":%d}`, i) {
				t.Errorf("call %d: %q, %s; want %q", r.Call, r.Stdout, r.Result, want)
			}
			for _, old := range before {
				if strings.Contains(asJSON(t, r), old) {
					t.Errorf("call %d shows %s of another", r.Call, old)
				}
			}
			before = append(before, nonce)
		}
		// A call that brings nothing finds nothing, and no result of another is taken for its own.
		c := one.command([]string{"--json"}, "sh", "-c", `ls -A /input /run/secrets/; echo "$SKILLBOX_PARAMS_FILE"; test -e /run/skillbox/params.json && echo there; true`)
		c.Env = append(c.Env, "KEY=")
		r, err := envelope(c)
		if err != nil || r.Stdout != "/input:\n\n/run/secrets/:\nKEY\n\n" || string(r.Result) != "null" {
			t.Errorf("%v: %q, %s", err, r.Stdout, r.Result)
		}
		// Parameters that are none, and values that are missing, cost the call and not the session.
		r, err = one.ask([]string{"--params", "@" + m.file(t, "bad", "{")}, "true")
		if err != nil || r.ExitCode != 125 || !strings.Contains(r.Error.Message, "KEY") {
			t.Errorf("%v: %+v", err, r.Error)
		}
		c = one.command([]string{"--json", "--params", "@" + m.file(t, "bad", "{")}, "true")
		c.Env = append(c.Env, "KEY=")
		if r, err = envelope(c); err != nil || r.ExitCode != 125 || !strings.Contains(r.Error.Message, "not JSON") {
			t.Errorf("%v: %+v", err, r.Error)
		}
		c = one.command([]string{"--env", "WORD=given"}, "sh", "-c", "echo $WORD")
		c.Env = append(c.Env, "KEY=", "WORD=other")
		if out, errs, code := tell(c); out != "given\n" || code != 0 {
			t.Errorf("%q, %q, %d", out, errs, code)
		}
		for flag, want := range map[string]string{"--env=OTHER=x": "--env OTHER: the session was not granted it", "--env=OTHER": "was not granted", "--timeout=31s": "longer than the session's 30s"} {
			if r, err := one.ask([]string{flag}, "true"); err != nil || r.Verdict != helper.Refused || !strings.Contains(r.Error.Message, want) {
				t.Errorf("%s: %v, %+v", flag, err, r.Error)
			}
		}
	})
}

func TestACallOfASessionIsToldAsIfItWereAlone(t *testing.T) {
	inEachMode(t, func(t *testing.T, m mode) {
		s := m.service(t)
		one := s.session(t, m.sharedBundle(t))
		none := func(r *helper.Result) {
			t.Helper()
			if len(r.Denials) != 0 || r.Usage.UserMS+r.Usage.SystemMS > 500 || r.StdoutTruncated {
				t.Errorf("call %d: %v, %+v", r.Call, r.Denials, r.Usage)
			}
		}
		none(one.says(t, "", "true"))
		for n := 1; n <= 3; n++ {
			r := one.call(t, nil, "sh", "-c", strings.Repeat("unshare -U true; ", n)+"true")
			if len(r.Denials) != 1 || r.Denials[0].Count != int64(n) || r.Denials[0].Kind != "syscall" {
				t.Errorf("%d attempts: %v", n, r.Denials)
			}
			none(one.says(t, "", "true"))
		}
		r := one.call(t, nil, "/usr/bin/python3", "-c", "import time\nx = bytearray(64 << 20)\nwhile time.process_time() < 1: pass\nprint('x' * 99999)")
		if r.Usage.UserMS+r.Usage.SystemMS < 900 || r.Usage.MaxRSS < 64<<20 || r.Usage.StdoutBytes != 100_000 {
			t.Errorf("%+v", r.Usage)
		}
		r = one.says(t, "a\n", "echo", "a")
		none(r)
		if r.Usage.MaxRSS > 32<<20 || r.Usage.StdoutBytes != 2 {
			t.Errorf("%+v", r.Usage)
		}
		// Verdicts that are the skill's own do not end it.
		for code, words := range map[int][]string{3: {"sh", "-c", "exit 3"}, 143: {"sh", "-c", "kill -TERM $$"}, 126: {"/tmp"}, 127: {"no-such-program"}, 1: {"false"}} {
			if r := one.call(t, nil, words...); r.ExitCode != code {
				t.Errorf("%q: %d, %+v", words, r.ExitCode, r.Error)
			}
		}
		one.says(t, "still\n", "echo", "still")
	})
}

func TestASessionServesOneCallAtATime(t *testing.T) {
	inEachMode(t, func(t *testing.T, m mode) {
		s := m.service(t)
		one := s.session(t, m.sharedBundle(t))
		first := m.prepared(t, one.command(nil, "sh", "-c", "echo ready; read line; echo $line"))
		first.expect(t, "ready\n")
		within(t, patience(3*time.Second), func() {
			if r, err := one.ask(nil, "true"); err != nil || r.Verdict != helper.Refused || r.ExitCode != 125 || !strings.Contains(r.Error.Message, "busy") {
				t.Errorf("%v, %+v", err, r)
			}
		})
		status := s.status(t)
		if len(status.Sessions) != 1 || status.Sessions[0].State != "busy" || status.Sessions[0].Calls != 1 || len(status.Running) != 1 || status.Running[0].ID == one.id {
			t.Errorf("%+v", status)
		}
		if _, err := first.stdin.Write([]byte("a line\n")); err != nil {
			t.Error(err)
		}
		if out, code := first.wait(t); out != "a line\n" || code != 0 {
			t.Errorf("%q, %d: %s", out, code, first.stderr.String())
		}
		// Whoever has the answer may ask again at once.
		for i := range 20 {
			one.says(t, fmt.Sprintln(i), "echo", fmt.Sprint(i))
		}
		if status := s.status(t).Sessions; len(status) != 1 || status[0].State != "idle" || status[0].Calls != 21 {
			t.Errorf("%+v", status)
		}
	})
}

func TestACallStartsInItsWorkingDirectory(t *testing.T) {
	inEachMode(t, func(t *testing.T, m mode) {
		s := m.service(t)
		a := s.session(t, m.sharedBundle(t))
		a.says(t, "", "mkdir", "-p", "/tmp/work/deep")
		for _, dir := range []string{"/tmp/work/deep", "/output", "/skill"} {
			if r := a.call(t, []string{"--workdir", dir}, "pwd"); r.Stdout != dir+"\n" {
				t.Errorf("--workdir %s: %s, %q, %v", dir, r.Verdict, r.Stdout, r.Error)
			}
		}
		a.says(t, "/skill\n", "pwd")
		a.says(t, "", "sh", "-c", "mkdir -m 0 /tmp/closed; echo >/tmp/file; ln -s gone /tmp/dangling")
		for dir, why := range map[string]string{
			"/tmp/gone": "no such file or directory", "/tmp/file": "not a directory", "/tmp/closed": "permission denied", "/tmp/dangling": "no such file or directory",
		} {
			r := a.call(t, []string{"--workdir", dir}, "echo", "ran")
			if want := "working directory " + dir + ": " + why + " in the sandbox"; r.ExitCode != helper.CodeFailed || r.Stdout != "" || r.Error == nil || r.Error.Message != want {
				t.Errorf("--workdir %s: %d, %q, %+v; want %s", dir, r.ExitCode, r.Stdout, r.Error, want)
			}
		}
		a.says(t, "still\n", "echo", "still") // such a call costs the session nothing
		if r, err := a.ask([]string{"--workdir", "tmp"}, "echo", "ran"); err != nil || r.ExitCode != helper.CodeFailed || !strings.Contains(r.Error.Message, `--workdir "tmp"`) {
			t.Errorf("a relative one: %v, %+v", err, r)
		}
	})
}
