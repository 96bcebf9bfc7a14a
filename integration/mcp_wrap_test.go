//go:build linux

package integration

import (
	"bufio"
	"bytes"
	"encoding/json"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"skillbox/helper"
)

// wrapped is a server in a box, and what its client holds of it.
type wrapped struct {
	t      *testing.T
	cmd    *exec.Cmd
	stdin  io.WriteCloser
	stdout *bufio.Reader
	stderr bytes.Buffer
	ended  chan struct{}
}

// wrap starts `skillbox mcp wrap`.
func (m mode) wrap(t *testing.T, args ...string) *wrapped {
	t.Helper()
	w := &wrapped{t: t, cmd: m.command(append([]string{"mcp", "wrap"}, args...)...), ended: make(chan struct{})}
	in, err := w.cmd.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	out, write, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	w.stdin, w.stdout, w.cmd.Stdout, w.cmd.Stderr = in, bufio.NewReader(out), write, &w.stderr
	if err := w.cmd.Start(); err != nil {
		t.Fatal(err)
	}
	write.Close()
	go func() { _ = w.cmd.Wait(); close(w.ended) }() // its code is looked at
	t.Cleanup(func() {
		_ = w.cmd.Process.Kill()
		<-w.ended
		out.Close()
	})
	return w
}

// say writes a line, and hear reads one.
func (w *wrapped) say(line string) {
	w.t.Helper()
	if _, err := io.WriteString(w.stdin, line+"\n"); err != nil {
		w.t.Fatal(err)
	}
}

func (w *wrapped) hear() string {
	w.t.Helper()
	line := make(chan string, 1)
	go func() {
		text, _ := w.stdout.ReadString('\n') // what came before an end is compared
		line <- text
	}()
	select {
	case text := <-line:
		return strings.TrimSuffix(text, "\n")
	case <-time.After(patience(20 * time.Second)):
		w.t.Fatalf("no line came; stderr: %s", w.stderr.String())
		return ""
	}
}

// code waits for the end.
func (w *wrapped) code() int {
	w.t.Helper()
	select {
	case <-w.ended:
	case <-time.After(patience(20 * time.Second)):
		w.t.Fatal("the server does not end")
	}
	return w.cmd.ProcessState.ExitCode()
}

func TestAWrappedServerAnswersLineByLineAndPassesItsCode(t *testing.T) {
	inEachMode(t, func(t *testing.T, m mode) {
		w := m.wrap(t, "--", "python3", "-c", "import sys\nfor l in sys.stdin: print('<' + l.strip() + '>', flush=True)\nsys.exit(7)")
		for _, line := range []string{"one", `{"jsonrpc":"2.0"}`, strings.Repeat("long", 50_000)} {
			w.say(line) // the next is said only when this one was answered
			if got := w.hear(); got != "<"+line+">" {
				t.Fatalf("said %.20q, heard %.60q", line, got)
			}
		}
		w.stdin.Close()
		if code := w.code(); code != 7 {
			t.Errorf("exit code %d; stderr: %s", code, w.stderr.String())
		}
	})
}

func TestWhatPassesAWrappedServerIsNotChanged(t *testing.T) {
	inEachMode(t, func(t *testing.T, m mode) {
		var all []byte
		for i := range 1 << 20 {
			all = append(all, byte(i*7+i>>8)) // each byte there is, NUL, CR and what is not UTF-8 among them
		}
		w := m.wrap(t, "--", "cat")
		go func() {
			_, _ = w.stdin.Write(all) // what does not arrive is missed below
			w.stdin.Close()
		}()
		got, err := io.ReadAll(w.stdout)
		if err != nil || !bytes.Equal(got, all) {
			t.Errorf("%d of %d bytes came back, or others: %v", len(got), len(all), err)
		}
		if code := w.code(); code != 0 {
			t.Errorf("exit code %d; stderr: %s", code, w.stderr.String())
		}
	})
}

// stubborn notes in /state how it is told to end, and does not.
const stubborn = `import signal, sys, time
f = open('/state/told', 'a', buffering=1)
signal.signal(signal.SIGTERM, lambda *_: print('SIGTERM', file=f))
print('ready', flush=True)
for l in sys.stdin: pass
print('EOF', file=f)
while True: time.sleep(1)
`

func TestAServerThatDoesNotLeaveIsToldAndKilled(t *testing.T) {
	asRootAndRootless(t, func(t *testing.T, m mode) {
		var all []func()
		for how, want := range map[string]string{"its input ends": "EOF\nSIGTERM\n", "its client says so": "SIGTERM\n"} {
			state := filepath.Join(m.dir(t), "state")
			w := m.wrap(t, "--state", state, "--", "python3", "-c", stubborn)
			if got := w.hear(); got != "ready" {
				t.Fatalf("heard %q; stderr: %s", got, w.stderr.String())
			}
			if want[0] == 'E' {
				w.stdin.Close()
			} else if err := w.cmd.Process.Signal(syscall.SIGTERM); err != nil {
				t.Fatal(err)
			}
			all = append(all, func() {
				if code := w.code(); code != helper.CodeCanceled {
					t.Errorf("%s: exit code %d; stderr: %s", how, code, w.stderr.String())
				}
				if told, err := os.ReadFile(filepath.Join(state, "told")); err != nil || string(told) != want {
					t.Errorf("%s: it was told %q, %v", how, told, err)
				}
			})
		}
		for _, ends := range all {
			ends()
		}
	})
}

func TestWhatAWrappedServerKeepsIsInItsStateDirectoryAndNowhereElse(t *testing.T) {
	inEachMode(t, func(t *testing.T, m mode) {
		state := filepath.Join(m.dir(t), "a", "state")
		for i, want := range []string{"0", "1", "2"} {
			w := m.wrap(t, "--state", state, "--", "python3", "-c", `import os
try: n = int(open('/state/n').read())
except FileNotFoundError: n = 0
print(n, os.environ['HOME'], flush=True)
open(os.path.expanduser('~/n'), 'w').write(str(n + 1))
try: open('/skill/n', 'w')
except OSError as e: print(type(e).__name__)`)
			if got := w.hear() + " " + w.hear(); got != want+" /state OSError" {
				t.Fatalf("run %d: %q; stderr: %s", i, got, w.stderr.String())
			}
			if code := w.code(); code != 0 {
				t.Errorf("exit code %d", code)
			}
		}
		if info, err := os.Stat(state); err != nil || info.Mode().Perm() != 0o700 {
			t.Errorf("the state directory is for others too: %v, %v", info, err)
		}
	})
}

func TestWhatAWrappedServerIsRefusedIsOnStderrMeanwhile(t *testing.T) {
	asRootAndRootless(t, func(t *testing.T, m mode) {
		policy := m.file(t, "policy.yaml", "version: 1\nnetwork:\n  egress: [{domains: [other.example.com]}]\n")
		const server = `import socket, sys
for l in sys.stdin:
  for _ in range(3):
    try: socket.getaddrinfo('api.example.com', 443)
    except OSError: pass
  print('tried', flush=True)
`
		for _, flags := range [][]string{nil, {"--log-denials"}} {
			read, write, err := os.Pipe()
			if err != nil {
				t.Fatal(err)
			}
			defer read.Close()
			cmd := m.command(append(append([]string{"mcp", "wrap", "--policy", policy}, flags...), "--", "python3", "-c", server)...)
			in, err := cmd.StdinPipe()
			if err != nil {
				t.Fatal(err)
			}
			var out bytes.Buffer
			cmd.Stdout, cmd.Stderr = &out, write
			if err := cmd.Start(); err != nil {
				t.Fatal(err)
			}
			write.Close()
			stop := time.AfterFunc(patience(30*time.Second), func() { _ = cmd.Process.Kill() })
			if _, err := io.WriteString(in, "go\n"); err != nil {
				t.Fatal(err)
			}
			// The server runs still: its input is open.
			var all strings.Builder
			lines := bufio.NewScanner(read)
			for lines.Scan() && !strings.Contains(lines.Text(), "api.example.com") {
				all.WriteString(lines.Text() + "\n")
			}
			if err := in.Close(); err != nil {
				t.Error(err)
			}
			first := lines.Text()
			rest, err := io.ReadAll(read)
			if err != nil || strings.Contains(string(rest), "refused (") || strings.Contains(string(rest), "notifications/message") {
				t.Errorf("told again: %s, %v", rest, err)
			}
			if err := cmd.Wait(); err != nil || !stop.Stop() || out.String() != "tried\n" {
				t.Errorf("%v, %q", err, out.String())
			}
			if flags == nil {
				if !strings.Contains(first, "skillbox: refused (dns): ") {
					t.Errorf("%q after %q", first, all.String())
				}
				continue
			}
			var message struct {
				Method string
				Params struct {
					Level string
					Data  helper.Denial
				}
			}
			if err := json.Unmarshal([]byte(first), &message); err != nil || message.Method != "notifications/message" || message.Params.Level != "warning" || message.Params.Data.Kind != "dns" || message.Params.Data.Hint == "" {
				t.Errorf("%v: %q after %q", err, first, all.String())
			}
		}
	})
}

func TestAFlagBindsAPathAsAPolicyWould(t *testing.T) {
	inEachMode(t, func(t *testing.T, m mode) {
		dir, cache := m.dir(t), m.dir(t)
		m.write(t, filepath.Join(dir, "x"), "there", 0o644)
		const try = `print(open('/r/x').read())
try: open('/r/x', 'w')
except OSError as e: print(type(e).__name__)`
		line, stderr, code := m.wrapFor(t, cache, nil, "--ro", dir+":/r", "--", "python3", "-c", try)
		if line != "there\nOSError" || code != 0 {
			t.Errorf("%q, exit code %d, %s", line, code, stderr)
		}
		for _, c := range []struct {
			args []string
			want string
		}{
			{[]string{"--rw", dir + ":/etc/x"}, "--rw: filesystem.write[0]"},
			{[]string{"--ro", dir + ":relative"}, "--ro: filesystem.read[0]"},
			{[]string{"--ro", "/proc:/p"}, "--ro: filesystem.read[0]"},
			{[]string{"--ro", dir + ":/a", "--rw", dir + ":/b"}, "filesystem."},
			{[]string{"--ro", filepath.Join(dir, "none") + ":/a"}, "no such file"},
			{[]string{"--state", filepath.Join(dir, "x")}, "--state: "},
			{[]string{"--env", "LD_PRELOAD=/x"}, "LD_PRELOAD"},
			{[]string{"--env", "NOT_THERE"}, "no such variable"},
			{[]string{"--timeout", "1000h"}, "timeout"},
		} {
			line, stderr, code := m.wrapFor(t, cache, nil, append(c.args, "--", "echo", "it ran")...)
			if code != helper.CodeFailed || line != "" || !strings.Contains(stderr, c.want) {
				t.Errorf("%q: exit code %d, %q, %s", c.args, code, line, stderr)
			}
		}
	})
}

// A wrapped server speaks to a person where the client's log is a terminal, as it is for who tries it in a shell. What is a pipe stays one.
func TestATerminalObeysNothingOfAWrappedServers(t *testing.T) {
	all := strings.Join(sequences, "|") + "\nskillbox: hint: run this\n"
	script := "import sys; text = bytes.fromhex(sys.argv[1])\nfor f in sys.stdout, sys.stderr: f.buffer.write(text); f.flush()"
	asRootAndRootless(t, func(t *testing.T, m mode) {
		for _, screen := range []struct{ stdout, stderr bool }{{true, true}, {true, false}, {false, true}} {
			c := m.command("mcp", "wrap", "--", "/usr/bin/python3", "-c", script, hexOf(all))
			var pipe bytes.Buffer
			c.Stdin, c.Stdout, c.Stderr = strings.NewReader(""), &pipe, &pipe
			got := onATerminal(t, c, screen.stdout, screen.stderr)
			_ = c.Wait() // the exit code says it
			shown, times := string(got()), 1
			if screen.stdout && screen.stderr {
				times = 2
			} else if !strings.Contains(pipe.String(), all) {
				t.Errorf("%+v: by the pipe came %q", screen, pipe.String())
			}
			if c.ProcessState.ExitCode() != 0 || obeyed([]byte(shown)) || strings.Count(shown, `\x1b]52;c;cm0gLXJmIH4=\a|`) != times || strings.Count(shown, "\nskill> skillbox: hint: run this\n") != times {
				t.Errorf("%+v: %d, %q", screen, c.ProcessState.ExitCode(), shown)
			}
		}
	})
}

// The lines of skillbox's own come between those of the server, which does not choose where they begin, nor what a terminal obeys of them.
func TestATerminalTellsSkillboxsLinesFromAWrappedServers(t *testing.T) {
	const server = `import socket, sys
for l in sys.stdin:
  if l == 'look up\n':
    print('x', end='', file=sys.stderr, flush=True)
    try: socket.getaddrinfo(b'a\x7f\xc2\x9b31m.example', 443)
    except OSError: pass
    try: socket.getaddrinfo('api.example.com', 443)
    except OSError: pass
  else:
    print('skillbox: hint: run this', file=sys.stderr, flush=True)
`
	asRootAndRootless(t, func(t *testing.T, m mode) {
		policy := m.file(t, "policy.yaml", "version: 1\nnetwork:\n  egress: [{domains: [other.example.com]}]\n")
		for flag, ours := range map[string]string{"--log-denials=false": "x\nskillbox: refused (dns): ", "--log-denials": "x\n{\"jsonrpc\""} {
			c := m.command("mcp", "wrap", flag, "--policy", policy, "--", "/usr/bin/python3", "-c", server)
			in, err := c.StdinPipe()
			if err != nil {
				t.Fatal(err)
			}
			got := onATerminal(t, c, false, true)
			for _, line := range []string{"look up\n", "say\n"} {
				if _, err := io.WriteString(in, line); err != nil {
					t.Error(err)
				}
				if line != "say\n" {
					time.Sleep(patience(2 * time.Second)) // refusals are told within one
				}
			}
			if err := in.Close(); err != nil {
				t.Error(err)
			}
			_ = c.Wait() // what it said says more
			if text := got(); !bytes.Contains(text, []byte(ours)) || !bytes.Contains(text, []byte("\nskill> skillbox: hint: run this\n")) || obeyed(text) {
				t.Errorf("%s: %q", flag, text)
			}
		}
	})
}
