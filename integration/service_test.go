//go:build linux

package integration

import (
	"bytes"
	"crypto/rand"
	"encoding/json"
	"errors"
	"fmt"
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

// service is a runtime directory of a test's own: whoever calls with it is served by the one skillboxd that has its socket there.
type service struct {
	mode mode
	at   string   // XDG_RUNTIME_DIR
	bin  string   // where the programs are
	idle string   // SKILLBOX_IDLE
	also []string // more of the environment
	// within runs what is asked of the service where its network namespace is another than the test's; nil is here.
	within func(func() error) error
}

// service ends, when the test does, before it is looked for what is left.
func (m mode) service(t *testing.T) *service {
	t.Helper()
	s := &service{mode: m, at: m.dir(t), bin: binDir, idle: "1m"}
	if err := os.Chmod(s.at, 0o700); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		for _, pid := range s.pids() {
			if err := unix.Kill(pid, unix.SIGTERM); err != nil && err != unix.ESRCH {
				t.Errorf("end the service: %v", err)
			}
		}
		if !soon(func() bool { return len(s.pids()) == 0 }) {
			t.Errorf("the service does not end")
		}
		if t.Failed() {
			t.Logf("the service's log:\n%s", s.log(t))
		}
	})
	return s
}

// soon waits until something is so.
func soon(is func() bool) bool {
	for began := time.Now(); ; time.Sleep(10 * time.Millisecond) {
		if is() {
			return true
		}
		if time.Since(began) > patience(20*time.Second) {
			return false
		}
	}
}

// pids are those of the skillboxd that serve in this directory, which is one of their files: pid 1 of their namespace, for before it
// becomes a box what they start looks as they do.
func (s *service) pids() (all []int) {
	names, _ := filepath.Glob("/proc/[0-9]*/cmdline") // the pattern is right
	for _, name := range names {
		process := filepath.Dir(name)
		words, _ := os.ReadFile(name) // none when it ended meanwhile
		at, _ := os.Readlink(process + "/fd/4")
		status, _ := os.ReadFile(process + "/status")
		_, ids, _ := strings.Cut(string(status), "\nNSpid:")
		ids, _, _ = strings.Cut(ids, "\n")
		if !bytes.HasPrefix(words, []byte("skillboxd\x00user\x00")) || at != s.dir() || !strings.HasSuffix(ids, "\t1") {
			continue
		}
		if pid, err := strconv.Atoi(filepath.Base(process)); err == nil {
			all = append(all, pid)
		}
	}
	return all
}

// pid is the only one's.
func (s *service) pid(t *testing.T) int {
	t.Helper()
	all := s.pids()
	if len(all) != 1 {
		t.Fatalf("%d services: %d", len(all), all)
	}
	return all[0]
}

func (s *service) dir() string { return filepath.Join(s.at, "skillbox") }

// socket is the path of its one socket, or of none.
func (s *service) socket() string {
	found, err := filepath.Glob(filepath.Join(s.dir(), "skillboxd-*.sock"))
	if err != nil || len(found) != 1 {
		return filepath.Join(s.dir(), "no.sock")
	}
	return found[0]
}

func (s *service) log(t *testing.T) string {
	t.Helper()
	text, err := os.ReadFile(filepath.Join(s.dir(), "skillboxd.log"))
	if err != nil && !errors.Is(err, os.ErrNotExist) {
		t.Error(err)
	}
	return string(text)
}

func (s *service) env() []string {
	return append([]string{"SKILLBOX_NO_DAEMON=", "XDG_RUNTIME_DIR=" + s.at, "SKILLBOX_IDLE=" + s.idle}, s.also...)
}

// skillbox is another of the client's commands.
func (s *service) skillbox(args ...string) *exec.Cmd {
	c := s.mode.command(args...)
	c.Path = filepath.Join(s.bin, "skillbox")
	c.Env = append(c.Env, s.env()...)
	return c
}

// command is a client of the service.
func (s *service) command(flags []string, bundle string, words ...string) *exec.Cmd {
	args := append(append([]string{"exec", "--mode", "user"}, flags...), bundle, "--")
	c := s.mode.command(append(args, words...)...)
	c.Path = filepath.Join(s.bin, "skillbox")
	c.Env = append(c.Env, s.env()...)
	return c
}

// background is a client that runs on pipes.
func (s *service) background(t *testing.T, flags []string, bundle string, words ...string) *background {
	t.Helper()
	return s.mode.prepared(t, s.command(flags, bundle, words...))
}

// ask makes one call with --json; several goroutines may.
func (s *service) ask(flags []string, bundle string, words ...string) (*helper.Result, error) {
	return envelope(s.command(append([]string{"--json"}, flags...), bundle, words...))
}

func envelope(c *exec.Cmd) (*helper.Result, error) {
	var stdout, stderr bytes.Buffer
	c.Stdout, c.Stderr = &stdout, &stderr
	var exit *exec.ExitError
	if err := c.Run(); err != nil && !errors.As(err, &exit) {
		return nil, err
	}
	r := &helper.Result{}
	if err := json.Unmarshal(stdout.Bytes(), r); err != nil {
		return nil, fmt.Errorf("no envelope: %w\nstdout: %s\nstderr: %s", err, stdout.String(), stderr.String())
	}
	if code := c.ProcessState.ExitCode(); code != r.ExitCode {
		return nil, fmt.Errorf("skillbox exited with %d, the envelope says %d", code, r.ExitCode)
	}
	return r, nil
}

// run is ask for a call that succeeds.
func (s *service) run(t *testing.T, flags []string, bundle string, words ...string) *helper.Result {
	t.Helper()
	r, err := s.ask(flags, bundle, words...)
	if err != nil {
		t.Fatal(err)
	}
	if !r.Success {
		t.Fatalf("%s, %d: %v: %s", r.Verdict, r.ExitCode, r.Error, r.Stderr)
	}
	return r
}

// wasReady says that a call was served by a box that was there before it came.
func wasReady(r *helper.Result) bool {
	took, told := r.Phases["prepare_ms"]
	return told && took == 0
}

// warm makes calls until as many in a row were served by ready boxes.
func (s *service) warm(t *testing.T, inARow int, call func() *helper.Result) {
	t.Helper()
	n, calls := 0, 0
	if !soon(func() bool {
		if calls++; calls > 1 {
			s.awaitReady(t)
		}
		if r := call(); wasReady(r) {
			n++
		} else {
			n = 0
		}
		return n == inARow
	}) {
		t.Fatalf("none of %d calls found %d boxes in a row", calls, inARow)
	}
}

// awaitReady gives the service time to prepare a box.
func (s *service) awaitReady(t *testing.T) {
	t.Helper()
	for began := time.Now(); time.Since(began) < patience(2*time.Second); time.Sleep(20 * time.Millisecond) {
		c := s.skillbox("ps", "--json")
		var out []byte
		ask := func() (err error) {
			out, err = c.Output()
			return err
		}
		within := s.within
		if within == nil {
			within = func(f func() error) error { return f() }
		}
		var status helper.Status
		if err := within(ask); err != nil {
			t.Fatalf("skillbox ps: %v", err)
		}
		if err := json.Unmarshal(out, &status); err != nil {
			t.Fatal(err)
		}
		for _, r := range status.Ready {
			if r.Boxes > 0 {
				return
			}
		}
	}
}

const repeating = "#!/bin/sh\necho \"$1\"\n"

func TestAServiceHasABoxReadyForTheNextCall(t *testing.T) {
	inEachMode(t, func(t *testing.T, m mode) {
		s := m.service(t)
		bundle := m.bundleOf(t, map[string]string{"main.sh": repeating})
		n := 0
		s.warm(t, 5, func() *helper.Result {
			n++
			word := fmt.Sprintf("word %d", n)
			r := s.run(t, nil, bundle, "./main.sh", word)
			if r.Stdout != word+"\n" {
				t.Errorf("%q came to %q", word, r.Stdout)
			}
			if n == 1 && wasReady(r) {
				t.Errorf("the first call: %v", r.Phases)
			}
			return r
		})
	})
}

// leaving lists what earlier calls left, and leaves the same itself.
const leaving = `#!/bin/sh
ls -A /tmp "$HOME" /output /dev/shm 2>/dev/null
cat /proc/[0-9]*/cmdline 2>/dev/null | tr '\0' '\n'
cat "$SKILLBOX_PARAMS_FILE" /input/* /run/secrets/* 2>/dev/null
env
for dir in /tmp "$HOME" /output /dev/shm; do : 2>/dev/null > "$dir/$1"; done
setsid sh -c "while :; do sleep 1; done # $1" >/dev/null 2>&1 </dev/null &
echo "this is $1"
`

func TestABoxServesOneCall(t *testing.T) {
	inEachMode(t, func(t *testing.T, m mode) {
		s := m.service(t)
		bundle := m.bundleOf(t, map[string]string{"main.sh": leaving})
		var before []string
		found := 0
		for range load(20) + 1 {
			nonce := rand.Text()
			c := s.command([]string{"--json", "--env", "NONCE", "--params", `{"nonce": "` + nonce + `"}`, "--input", m.file(t, "in", nonce)}, bundle, "./main.sh", nonce)
			c.Env = append(c.Env, "NONCE="+nonce)
			r, err := envelope(c)
			if err != nil {
				t.Fatal(err)
			}
			for _, want := range []string{"this is " + nonce, `{"nonce": "` + nonce + `"}` + nonce, "NONCE=" + nonce} {
				if !strings.Contains(r.Stdout, want) || !r.Success {
					t.Fatalf("%s, %v, no %q: %s%s", r.Verdict, r.Error, want, r.Stdout, r.Stderr)
				}
			}
			text := asJSON(t, r)
			for _, old := range before {
				if strings.Contains(text, old) {
					t.Fatalf("the call of %s shows %s of one before: %s", nonce, old, text)
				}
			}
			if wasReady(r) {
				found++
			}
			before = append(before, nonce)
		}
		if found == 0 {
			t.Error("no call found a box ready")
		}
	})
}
