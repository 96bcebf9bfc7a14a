//go:build linux

package integration

import (
	"bufio"
	"bytes"
	"crypto/rand"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"skillbox/doctor"
	"skillbox/helper"
)

// lines are those of a service's log that have this message.
func (s *service) lines(t *testing.T, message string) (all []map[string]any) {
	t.Helper()
	for line := range strings.Lines(s.log(t)) {
		var words map[string]any
		if err := json.Unmarshal([]byte(line), &words); err != nil {
			t.Fatalf("%v: %q", err, line)
		}
		if words["msg"] == message {
			all = append(all, words)
		}
	}
	return all
}

func TestEachCallHasALineInTheLogThatTellsNoSecret(t *testing.T) {
	inEachMode(t, func(t *testing.T, m mode) {
		s := m.service(t)
		policy := m.file(t, "policy.yaml", "version: 1\nname: a-policy\nenv: {secrets: [TOKEN], pass: [PASSED]}\n")
		bundle := m.bundleOf(t, map[string]string{
			"SKILL.md": "---\nname: a-skill\ndescription: d\n---\n",
			"main.sh":  "#!/bin/sh\necho said-$1; echo said-$1 >&2; echo '\"result-'$1'\"' > $SKILLBOX_RESULT_FILE; unshare -U true; exit 7\n",
		})
		nonce := rand.Text()
		for _, words := range [][]string{{"./main.sh", "word-" + nonce}, {"./no-such-" + nonce}} {
			c := s.command([]string{"--json", "--policy", policy, "--params", `{"param": "param-` + nonce + `"}`, "--env", "SET=set-" + nonce, "--input", m.file(t, "input-"+nonce, "content-"+nonce)}, bundle, words...)
			c.Env = append(c.Env, "TOKEN=secret-"+nonce, "PASSED=passed-"+nonce)
			r, err := envelope(c)
			if err != nil {
				t.Fatal(err)
			}
			if !soon(func() bool { return strings.Contains(s.log(t), r.ID) }) {
				t.Fatalf("%s has no line", r.ID)
			}
			all := s.lines(t, "call")
			line := all[len(all)-1]
			var denials float64
			for _, d := range r.Denials {
				denials += float64(d.Count)
			}
			for key, want := range map[string]any{
				"id": r.ID, "skill": "a-skill", "bundle": r.Skill.Digest, "policy": "a-policy", "policy_digest": r.Policy.Digest, "verdict": r.Verdict,
				"exit_code": float64(r.ExitCode), "start": r.Sandbox.Start, "denials": denials, "level": "INFO",
			} {
				if line[key] != want {
					t.Errorf("%s is %v, want %v", key, line[key], want)
				}
			}
			if ms, ok := line["duration_ms"].(float64); !ok || ms <= 0 || ms > r.DurationMS {
				t.Errorf("it took %v ms, the client says %v", line["duration_ms"], r.DurationMS)
			}
			if words[0] == "./main.sh" && (r.ExitCode != 7 || denials != 1 || r.Sandbox.Start == "") {
				t.Errorf("%+v", r)
			}
		}
		if log := s.log(t); strings.Contains(log, nonce) {
			t.Errorf("the log tells what is the caller's or the skill's:\n%s", log)
		}
		shown, code := output(t, s.skillbox("logs", "-n", "1"))
		if last := s.lines(t, "call"); code != 0 || strings.Count(shown, "\n") != 1 || !json.Valid([]byte(shown)) || len(last) != 2 {
			t.Errorf("exit code %d: %s", code, shown)
		}
	})
}

// fill makes the log as long as it may become.
func (s *service) fill(t *testing.T) {
	t.Helper()
	line := `{"msg":"filler"}` + "\n"
	f, err := os.OpenFile(filepath.Join(s.dir(), helper.ServiceLog), os.O_WRONLY|os.O_APPEND, 0)
	if err == nil {
		_, err = io.WriteString(f, strings.Repeat(line, helper.MaxLog/len(line)+1))
	}
	if err := errors.Join(err, f.Close()); err != nil {
		t.Fatal(err)
	}
}

func TestTheLogIsBounded(t *testing.T) {
	inEachMode(t, func(t *testing.T, m mode) {
		s := m.service(t)
		size := func(name string) int64 {
			info, err := os.Stat(filepath.Join(s.dir(), name))
			if err != nil {
				return -1
			}
			return info.Size()
		}
		for i := range 3 {
			nonce := rand.Text()
			if r := s.run(t, nil, m.sharedBundle(t), "echo", nonce); r.Stdout != nonce+"\n" {
				t.Errorf("%+v", r)
			}
			s.fill(t)
			r := s.run(t, nil, m.sharedBundle(t), "true")
			if !soon(func() bool { return size(helper.ServiceLog) < 4096 }) {
				t.Fatalf("round %d: the log has %d bytes", i, size(helper.ServiceLog))
			}
			if !soon(func() bool { return strings.Contains(s.log(t), r.ID) }) {
				t.Error("the call that came then is not in the new one")
			}
			if old := size(helper.OldServiceLog); old < helper.MaxLog || old > helper.MaxLog+8192 {
				t.Errorf("the old log has %d bytes", old)
			}
		}
		// Both are shown as one.
		shown, code := output(t, s.skillbox("logs", "-n", "50"))
		if code != 0 || strings.Count(shown, "\n") != 50 || !strings.Contains(shown, "filler") || !strings.Contains(shown, `"call"`) {
			t.Errorf("exit code %d: %s", code, shown)
		}
		// So is what a service finds that starts.
		if err := unix.Kill(s.pid(t), unix.SIGTERM); err != nil {
			t.Fatal(err)
		}
		soon(func() bool { return len(s.pids()) == 0 })
		s.fill(t)
		s.run(t, nil, m.sharedBundle(t), "true")
		if n := size(helper.ServiceLog); n > 4096 {
			t.Errorf("the log of a service that has just started has %d bytes", n)
		}
	})
}

func TestALogIsFollowedUntilCtrlC(t *testing.T) {
	inEachMode(t, func(t *testing.T, m mode) {
		s := m.service(t)
		none := s.skillbox("logs")
		var stderr bytes.Buffer
		none.Stderr = &stderr
		if out, code := output(t, none); code != 125 || out != "" || !strings.Contains(stderr.String(), "skillbox: hint: ") {
			t.Errorf("without a service: exit code %d, %q, %q", code, out, stderr.String())
		}
		s.run(t, nil, m.sharedBundle(t), "true")
		b := m.prepared(t, s.skillbox("logs", "-n", "0", "-f"))
		lines := make(chan string, 100)
		go func() {
			scanner := bufio.NewScanner(b.stdout)
			for scanner.Scan() {
				lines <- scanner.Text()
			}
			close(lines)
		}()
		see := func(id string) {
			t.Helper()
			late := time.After(patience(10 * time.Second))
			for {
				select {
				case line, more := <-lines:
					if strings.Contains(line, id) {
						return
					}
					if !more {
						t.Fatalf("it ended: %s", b.stderr.String())
					}
				case <-late:
					t.Fatalf("%s is not shown", id)
				}
			}
		}
		time.Sleep(patience(300 * time.Millisecond)) // it has seen the end of the log
		see(s.run(t, nil, m.sharedBundle(t), "true").ID)
		s.fill(t)
		see(s.run(t, nil, m.sharedBundle(t), "true").ID) // in another file
		see(s.run(t, nil, m.sharedBundle(t), "true").ID)
		if err := b.cmd.Process.Signal(os.Interrupt); err != nil {
			t.Fatal(err)
		}
		for range lines { // until it ends
		}
		if _, code := b.wait(t); code != 130 {
			t.Errorf("exit code %d: %s", code, b.stderr.String())
		}
	})
}

func TestAServiceThatIsStoppedTellsAndRecordsEveryCall(t *testing.T) {
	inEachMode(t, func(t *testing.T, m mode) {
		s := m.service(t)
		bundle := m.bundleOf(t, map[string]string{"main.sh": lasting, "echo.sh": repeating})
		s.warm(t, 1, func() *helper.Result { return s.run(t, nil, bundle, "./echo.sh", "a") })
		s.awaitReady(t)
		var clients []*background
		for range 3 {
			b := s.background(t, nil, bundle, "./main.sh", rand.Text())
			b.expect(t, "ready\n")
			clients = append(clients, b)
		}
		captured := make(chan *helper.Result, 1)
		word := rand.Text()
		go func() {
			r, err := s.ask(nil, bundle, "./main.sh", word)
			if err != nil {
				t.Error(err)
			}
			captured <- r
		}()
		if !soon(func() bool { return running(word) }) {
			t.Fatal("the skill does not run")
		}
		s.awaitReady(t)
		pid := s.pid(t)
		if err := unix.Kill(pid, unix.SIGTERM); err != nil {
			t.Fatal(err)
		}
		const why = "the service was stopped"
		for _, b := range clients {
			if out, code := b.wait(t); code != 130 || out != "" || !strings.Contains(b.stderr.String(), why) {
				t.Errorf("exit code %d, %q, %q", code, out, b.stderr.String())
			}
		}
		if r := <-captured; r == nil || r.Verdict != helper.Canceled || r.Error == nil || r.Error.Message != why {
			t.Errorf("%+v", r)
		}
		if !soon(func() bool { return len(s.pids()) == 0 }) {
			t.Fatal("the service stays")
		}
		canceled := 0
		for _, line := range s.lines(t, "call") {
			if line["verdict"] == helper.Canceled {
				canceled++
			}
		}
		leaving, left := s.lines(t, "leaving"), s.lines(t, "left")
		if canceled != 4 || len(leaving) != 1 || len(left) != 1 || left[0]["error"] != nil {
			t.Fatalf("%d calls of 4 have a line", canceled)
		}
		if ready := len(s.lines(t, "box discarded")); ready == 0 || float64(ready) < leaving[0]["ready"].(float64) {
			t.Errorf("%v boxes were ready, %d have a line", leaving[0]["ready"], ready)
		}
		if _, err := os.Lstat(s.socket()); !os.IsNotExist(err) {
			t.Errorf("its socket: %v", err)
		}
	})
}

// The client of a large result does not read it, so that the service waits.
func TestASecondSignalEndsAServiceAtOnce(t *testing.T) {
	inEachMode(t, func(t *testing.T, m mode) {
		s := m.service(t)
		const large = "#!/bin/sh\n(printf '\"'; head -c 1500000 /dev/zero | tr '\\0' x; printf '\"') > $SKILLBOX_RESULT_FILE\necho ready\nexec sleep 600 $1\n"
		bundle := m.bundleOf(t, map[string]string{"main.sh": large})
		b := s.background(t, nil, bundle, "./main.sh", "0")
		b.expect(t, "ready\n")
		if err := b.cmd.Process.Signal(syscall.SIGSTOP); err != nil {
			t.Fatal(err)
		}
		pid := s.pid(t)
		if err := unix.Kill(pid, unix.SIGTERM); err != nil {
			t.Fatal(err)
		}
		if !soon(func() bool { return len(s.lines(t, "leaving")) == 1 }) {
			t.Fatal("it does not leave")
		}
		time.Sleep(patience(time.Second))
		if len(s.pids()) != 1 {
			t.Fatal("it has left without its client")
		}
		began := time.Now()
		if err := unix.Kill(pid, unix.SIGTERM); err != nil {
			t.Fatal(err)
		}
		if !soon(func() bool { return len(s.pids()) == 0 }) || time.Since(began) > patience(5*time.Second) {
			t.Errorf("it left after %v", time.Since(began))
		}
		if n := len(s.lines(t, "stopping at once")); n != 1 {
			t.Errorf("%d lines say so", n)
		}
		if err := b.cmd.Process.Signal(syscall.SIGCONT); err != nil {
			t.Fatal(err)
		}
		if _, code := b.wait(t); code != 125 {
			t.Errorf("the client's exit code is %d: %s", code, b.stderr.String())
		}
		m.sweep(t) // its groups, as after a crash
	})
}

func TestDoctorLooksAtTheService(t *testing.T) {
	inEachMode(t, func(t *testing.T, m mode) {
		s := m.service(t)
		check := func(name, status string, want ...string) {
			t.Helper()
			r, code := examine(t, s.skillbox("doctor", "--json"))
			f := finding(t, r, "service")
			for _, word := range want {
				if f.Status != status || !strings.Contains(f.Detail+" "+f.Remedy, word) || code != 0 {
					t.Errorf("%s: exit code %d, %+v; want %s, %q", name, code, f, status, word)
				}
			}
		}
		check("no service", doctor.OK, "none runs", s.dir())
		if _, err := os.Lstat(s.dir()); !os.IsNotExist(err) {
			t.Errorf("doctor made something: %v", err)
		}
		s.run(t, nil, m.sharedBundle(t), "true")
		s.awaitReady(t)
		uid := os.Getuid()
		if cred := m.credential(); cred != nil {
			uid = int(cred.Uid)
		}
		check("running", doctor.OK, "answers in ", "1 ready", fmt.Sprintf("%s (uid %d, mode 0700)", s.dir(), uid))
		// To be looked at by another build is no reason to leave.
		pid := s.pid(t)
		s.bin = m.ownPrograms(t)
		check("another build", doctor.OK, "answers in ", "of another build")
		s.bin = binDir
		if now := s.pid(t); now != pid {
			t.Errorf("the service was %d and is %d", pid, now)
		}
		if err := unix.Kill(pid, unix.SIGSTOP); err != nil {
			t.Fatal(err)
		}
		remedy := "kill -KILL "
		if m == asRoot || os.Getuid() != 0 { // the tests' user may not see more of an ordinary user's processes than that user does
			remedy += fmt.Sprint(pid)
		}
		check("stopped", doctor.Warn, "does not answer within 1s", remedy)
		if err := unix.Kill(pid, unix.SIGKILL); err != nil {
			t.Fatal(err)
		}
		soon(func() bool { return len(s.pids()) == 0 })
		check("died", doctor.OK, "has died and left its socket")
		s.run(t, nil, m.sharedBundle(t), "true") // nothing had to be done
	})
}

func TestTheServiceIsAskedOnlyWhereThereIsOne(t *testing.T) {
	inEachMode(t, func(t *testing.T, m mode) {
		s := m.service(t)
		for _, args := range [][]string{{"ps"}, {"stats"}, {"stats", "--prometheus"}, {"kill", "0"}} {
			c := s.skillbox(args...)
			var stderr bytes.Buffer
			c.Stderr = &stderr
			if out, code := output(t, c); code != 125 || out != "" || !strings.Contains(stderr.String(), "your service does not run\nskillbox: hint: ") {
				t.Errorf("%v: exit code %d, %q, %q", args, code, out, stderr.String())
			}
		}
		if _, err := os.Lstat(s.dir()); !os.IsNotExist(err) {
			t.Errorf("something was made: %v", err)
		}
	})
}

func TestACallThatIsKilledSaysSo(t *testing.T) {
	inEachMode(t, func(t *testing.T, m mode) {
		s := m.service(t)
		bundle := m.bundleOf(t, map[string]string{"main.sh": lasting})
		word := rand.Text()
		killed := s.background(t, nil, bundle, "./main.sh", word)
		killed.expect(t, "ready\n")
		other := s.background(t, nil, bundle, "./main.sh", rand.Text())
		other.expect(t, "ready\n")
		text, _ := output(t, s.skillbox("ps", "--json"))
		var status helper.Status
		if err := json.Unmarshal([]byte(text), &status); err != nil || len(status.Running) != 2 {
			t.Fatalf("%v: %s", err, text)
		}
		if n := s.stats(t).Boxes.Running; n != 2 {
			t.Errorf("%d boxes run", n)
		}
		first := status.Running[0]
		if first.Command[len(first.Command)-1] != word {
			t.Fatalf("the first is %v", first.Command)
		}
		if _, code := output(t, s.skillbox("kill", first.ID, "0000000000000000")); code != 125 || !running(word) {
			t.Errorf("with an id that nobody has: exit code %d", code)
		}
		if _, code := output(t, s.skillbox("kill", first.ID)); code != 0 {
			t.Errorf("exit code %d", code)
		}
		if _, code := killed.wait(t); code != 130 || !strings.Contains(killed.stderr.String(), "killed by `skillbox kill`") || running(word) {
			t.Errorf("the killed one's exit code is %d: %s", code, killed.stderr.String())
		}
		if n := s.stats(t).Boxes.Running; n != 1 {
			t.Errorf("%d boxes run", n)
		}
		other.end(t)
		if n := len(s.lines(t, "kill")); n != 2 {
			t.Errorf("%d of 2 attempts are logged", n)
		}
	})
}
