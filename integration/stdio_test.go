//go:build linux

package integration

import (
	"bytes"
	"crypto/sha256"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"skillbox/helper"
)

// ran is one finished client without --json.
type ran struct {
	stdout, stderr string
	code           int
}

// plain runs a command of the client to its end; set changes it before it starts.
func plain(t *testing.T, c *exec.Cmd, set func(*exec.Cmd)) ran {
	t.Helper()
	var stdout, stderr bytes.Buffer
	c.Stdout, c.Stderr = &stdout, &stderr
	if set != nil {
		set(c)
	}
	var exit *exec.ExitError
	if err := c.Run(); err != nil && !errors.As(err, &exit) {
		t.Fatal(err)
	}
	return ran{stdout.String(), stderr.String(), c.ProcessState.ExitCode()}
}

func random(n int) []byte {
	data := make([]byte, n)
	source := rand.NewChaCha8([32]byte{1})
	_, _ = source.Read(data) // it cannot fail
	return data
}

func TestStdinIsByteExact(t *testing.T) {
	data := random(load(64) << 20)
	want := fmt.Sprintf("%x  -\n", sha256.Sum256(data))
	inEachMode(t, func(t *testing.T, m mode) {
		bundle := m.dir(t)
		file := m.file(t, "in", string(data))
		for name, set := range map[string]func(*exec.Cmd){
			"a pipe": func(c *exec.Cmd) { c.Stdin = bytes.NewReader(data) },
			"a file": func(c *exec.Cmd) {
				f, err := os.Open(file)
				if err != nil {
					t.Fatal(err)
				}
				t.Cleanup(func() { f.Close() })
				c.Stdin = f
			},
		} {
			if r := plain(t, m.command("exec", bundle, "--", "sha256sum"), set); r.stdout != want || r.code != 0 {
				t.Errorf("%s: %+v, want %s", name, r, want)
			}
		}
	})
}

func TestStdoutIsByteExact(t *testing.T) {
	data := random(load(24) << 20)
	inEachMode(t, func(t *testing.T, m mode) {
		bundle := m.bundleOf(t, map[string]string{"data": string(data)})
		policy := m.file(t, "policy.yaml", "version: 1\nresources: {output: 48Mi}\n")
		r := plain(t, m.command("exec", "--policy", policy, bundle, "--", "sh", "-c", "cat data; cat data >&2"), nil)
		if r.stdout != string(data) || r.stderr != string(data) || r.code != 0 {
			t.Errorf("exit code %d, %d and %d bytes, want %d twice, the same: %v, %v", r.code, len(r.stdout), len(r.stderr), len(data), r.stdout == string(data), r.stderr == string(data))
		}
	})
}

func TestOnlyThreeDescriptorsAreOpenAndNoneIsTheCallersFile(t *testing.T) {
	inEachMode(t, func(t *testing.T, m mode) {
		bundle := m.probeBundle(t)
		in := m.file(t, "in", "input")
		secret := m.file(t, "secret", "secret")
		c := m.command("exec", bundle, "--", "/skill/probe", "stdio")
		r := plain(t, c, func(c *exec.Cmd) {
			stdin, err := os.Open(in)
			if err != nil {
				t.Fatal(err)
			}
			defer func() { t.Cleanup(func() { stdin.Close() }) }()
			inherited, err := os.Open(secret)
			if err != nil {
				t.Fatal(err)
			}
			t.Cleanup(func() { inherited.Close() })
			c.Stdin = stdin
			c.ExtraFiles = []*os.File{inherited, inherited, inherited}
		})
		var got map[string]string
		if err := json.Unmarshal([]byte(r.stdout), &got); err != nil {
			t.Fatalf("%v: %+v", err, r)
		}
		if len(got) != 3 || got["0"] != "pipe" || got["1"] != "pipe" || got["2"] != "pipe" {
			t.Errorf("got %v", got)
		}
	})
}

// The report comes on stderr, because what is attempted on stdout would disturb it.
func TestStdioCanBeOpenedByName(t *testing.T) {
	inEachMode(t, func(t *testing.T, m mode) {
		bundle := m.bundleOf(t, map[string]string{"main.sh": "#!/bin/sh\necho a > /dev/stdout\necho b > /dev/stderr\ncat /dev/stdin\ncat < /proc/self/fd/0\necho c >> /dev/stdout\n"})
		file := func(name string) *os.File {
			f, err := os.OpenFile(m.file(t, name, ""), os.O_RDWR|os.O_APPEND, 0)
			if err != nil {
				t.Fatal(err)
			}
			t.Cleanup(func() { f.Close() })
			return f
		}
		run := func(set func(*exec.Cmd)) ran { return plain(t, m.command("exec", bundle, "--", "./main.sh"), set) }
		if r := run(func(c *exec.Cmd) { c.Stdin = strings.NewReader("in\n") }); r.stdout != "a\nin\nc\n" || r.stderr != "b\n" || r.code != 0 {
			t.Errorf("pipes: %+v", r)
		}
		stdin, stdout, stderr := m.file(t, "in", "in\n"), file("out"), file("err")
		r := run(func(c *exec.Cmd) {
			f, err := os.Open(stdin)
			if err != nil {
				t.Fatal(err)
			}
			t.Cleanup(func() { f.Close() })
			c.Stdin, c.Stdout, c.Stderr = f, stdout, stderr
		})
		out, _ := os.ReadFile(stdout.Name())
		errs, _ := os.ReadFile(stderr.Name())
		if r.code != 0 || string(out) != "a\nin\nc\n" || string(errs) != "b\n" {
			t.Errorf("files: exit code %d, %q, %q", r.code, out, errs)
		}
		null, err := os.OpenFile(os.DevNull, os.O_RDWR, 0)
		if err != nil {
			t.Fatal(err)
		}
		defer null.Close()
		if r := run(func(c *exec.Cmd) { c.Stdin, c.Stdout, c.Stderr = null, null, null }); r.code != 0 {
			t.Errorf("/dev/null: exit code %d", r.code)
		}
	})
}

func TestACallersFileAsStdoutCannotBeTouchedOtherwise(t *testing.T) {
	inEachMode(t, func(t *testing.T, m mode) {
		bundle := m.probeBundle(t)
		for name, flags := range map[string]int{"> file": os.O_RDWR, ">> file": os.O_RDWR | os.O_APPEND} {
			path := m.file(t, "out", "earlier words\n")
			f, err := os.OpenFile(path, flags, 0)
			if err != nil {
				t.Fatal(err)
			}
			if _, err := f.Seek(0, io.SeekEnd); err != nil {
				t.Fatal(err)
			}
			r := plain(t, m.command("exec", bundle, "--", "sh", "-c", "./probe reopen-stdio"), func(c *exec.Cmd) { c.Stdout = f })
			f.Close()
			text, err := os.ReadFile(path)
			if err != nil {
				t.Fatal(err)
			}
			report, ok := strings.CutPrefix(string(text), "earlier words\n")
			var got map[string]string
			if err := json.Unmarshal([]byte(report), &got); !ok || err != nil || r.code != 0 {
				t.Fatalf("%s: the file holds %q, %v, %+v", name, text, err, r)
			}
			want := map[string]string{"truncate stdout": "EINVAL", "seek stdout": "ESPIPE", "pread stdout": "ESPIPE", "read stdout": "EAGAIN"}
			for what, answer := range want {
				if got[what] != answer {
					t.Errorf("%s: %s answered %s, not %s", name, what, got[what], answer)
				}
			}
		}
	})
}

func TestStdoutAndStderrInOnePipeKeepTheirOrder(t *testing.T) {
	var want strings.Builder
	for i := range 200 {
		fmt.Fprintf(&want, "out %d\nerr %d\n", i, i)
	}
	inEachMode(t, func(t *testing.T, m mode) {
		bundle := m.bundleOf(t, map[string]string{"main.sh": "#!/bin/sh\ni=0\nwhile [ $i -lt 200 ]; do echo out $i; echo err $i >&2; i=$((i+1)); done\n"})
		r := plain(t, m.command("exec", bundle, "--", "./main.sh"), func(c *exec.Cmd) { c.Stderr = c.Stdout })
		if r.stdout != want.String() {
			t.Errorf("got %q", r.stdout)
		}
	})
}

// As a shell's `<&-` does; the numbers must not be taken by something of ours.
func TestClosedStdioIsDevNull(t *testing.T) {
	inEachMode(t, func(t *testing.T, m mode) {
		bundle := m.bundleOf(t, map[string]string{"main.sh": "#!/bin/sh\ncat; echo out; echo err >&2; exit 5\n"})
		for _, c := range []struct{ closed, stdout, stderr string }{
			{"<&-", "out\n", "err\n"},
			{">&-", "", "err\n"},
			{"2>&-", "inout\n", ""},
			{"<&- >&- 2>&-", "", ""},
		} {
			client := m.command("exec", bundle, "--", "./main.sh")
			shell := exec.Command("/bin/sh", append([]string{"-c", `exec "$@" ` + c.closed, "sh"}, client.Args...)...)
			shell.Env, shell.Dir, shell.SysProcAttr = client.Env, client.Dir, client.SysProcAttr
			r := plain(t, shell, func(c *exec.Cmd) { c.Stdin = strings.NewReader("in") })
			if r != (ran{c.stdout, c.stderr, 5}) {
				t.Errorf("%s: %+v", c.closed, r)
			}
		}
	})
}

// What is written to a pipe that nobody reads ends the writer, as without a sandbox.
func TestAClosedStdoutEndsTheRun(t *testing.T) {
	inEachMode(t, func(t *testing.T, m mode) {
		within(t, patience(slack), func() {
			r := m.background(t, nil, m.dir(t), "yes")
			r.expect(t, "y\ny\n")
			r.stdout.Close()
			err := r.cmd.Wait()
			if code := r.cmd.ProcessState.ExitCode(); code != 128+int(unix.SIGPIPE) {
				t.Errorf("exit code %d, %v, stderr %s", code, err, r.stderr.String())
			}
		})
	})
}

func TestACallerWhoNeverReadsCannotHoldTheRun(t *testing.T) {
	inEachMode(t, func(t *testing.T, m mode) {
		bundle := m.dir(t)
		for name, command := range map[string]string{"a skill that writes on": "yes", "a skill that ends": "head -c 100000 /dev/zero"} {
			within(t, patience(time.Second+graceTime+graceTime+slack), func() {
				r, w, err := os.Pipe()
				if err != nil {
					t.Fatal(err)
				}
				defer r.Close()
				c := m.command(append([]string{"exec", "--timeout", "1s", bundle, "--"}, strings.Fields(command)...)...)
				got := plain(t, c, func(c *exec.Cmd) { c.Stdout = w })
				w.Close()
				if got.code != helper.CodeTimedOut {
					t.Errorf("%s: %+v", name, got)
				}
			})
		}
	})
}

func TestOutputThatCannotBeWrittenIsNoSuccess(t *testing.T) {
	inEachMode(t, func(t *testing.T, m mode) {
		full, err := os.OpenFile("/dev/full", os.O_WRONLY, 0)
		if err != nil {
			t.Fatal(err)
		}
		defer full.Close()
		r := plain(t, m.command("exec", m.dir(t), "--", "echo", "hello"), func(c *exec.Cmd) { c.Stdout = full })
		if r.code != helper.CodeFailed || !strings.Contains(r.stderr, "no space left on device") {
			t.Errorf("%+v", r)
		}
	})
}

func TestTheOutputLimitEndsTheRun(t *testing.T) {
	const policy = "version: 1\nresources: {output: 1Mi}\n"
	inEachMode(t, func(t *testing.T, m mode) {
		exact := call{mode: m, policy: policy, words: []string{"head", "-c", "1048576", "/dev/zero"}}.run(t)
		wantVerdict(t, exact, helper.Exited, 0)
		if len(exact.Stdout) != 1<<20 || exact.StdoutTruncated {
			t.Errorf("exactly the limit: %d bytes, truncated %v", len(exact.Stdout), exact.StdoutTruncated)
		}
		for name, script := range map[string]string{
			"for ever": "yes", "by itself": "head -c 1048577 /dev/zero", "both together": "head -c 600000 /dev/zero; head -c 600000 /dev/zero >&2",
			"from a grandchild": "(setsid yes &) ; sleep 20",
		} {
			within(t, patience(slack), func() {
				r := call{mode: m, policy: policy, words: []string{"sh", "-c", script}}.run(t)
				wantVerdict(t, r, helper.OutputLimit, helper.CodeOutputLimit)
				if total := len(r.Stdout) + len(r.Stderr); total != 1<<20 || (!r.StdoutTruncated && !r.StderrTruncated) {
					t.Errorf("%s: %d bytes, truncated %v and %v", name, total, r.StdoutTruncated, r.StderrTruncated)
				}
			})
		}
	})
}

// terminalPair makes a pty; the slave becomes the client's terminal.
func terminalPair(t *testing.T, rows, cols uint16) (master, slave *os.File) {
	t.Helper()
	master, err := os.OpenFile("/dev/ptmx", os.O_RDWR|unix.O_NOCTTY, 0)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { master.Close() })
	fd := int(master.Fd())
	number, err := unix.IoctlGetInt(fd, unix.TIOCGPTN)
	if err == nil {
		err = unix.IoctlSetPointerInt(fd, unix.TIOCSPTLCK, 0)
	}
	if err == nil {
		err = unix.IoctlSetWinsize(fd, unix.TIOCSWINSZ, &unix.Winsize{Row: rows, Col: cols})
	}
	if err == nil {
		slave, err = os.OpenFile(fmt.Sprintf("/dev/pts/%d", number), os.O_RDWR|unix.O_NOCTTY, 0)
	}
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { slave.Close() })
	return master, slave
}

// onTerminal starts the client with a terminal as its stdio and its controlling terminal.
func (m mode) onTerminal(t *testing.T, words ...string) (c *exec.Cmd, master *os.File) {
	t.Helper()
	master, slave := terminalPair(t, 33, 77)
	c = m.command(append([]string{"exec", "--tty", m.probeBundle(t), "--"}, words...)...)
	c.Env = append(c.Env, "TERM=vt220")
	c.Stdin, c.Stdout, c.Stderr = slave, slave, slave
	c.SysProcAttr.Setsid, c.SysProcAttr.Setctty = true, true
	if err := c.Start(); err != nil {
		t.Fatal(err)
	}
	slave.Close()
	t.Cleanup(func() {
		_ = c.Process.Kill()
		_ = c.Wait() // an error says that the test has waited
	})
	return c, master
}

// until reads from a terminal until text comes.
func until(t *testing.T, master *os.File, text string) string {
	t.Helper()
	got, ok := readTerminal(master, text, patience(10*time.Second))
	if !ok {
		t.Fatalf("waiting for %q, got %q", text, got)
	}
	return got
}

// readTerminal reads from a terminal, whose descriptor blocks, until text comes or the time is over.
func readTerminal(master *os.File, text string, limit time.Duration) (got string, ok bool) {
	fd := int(master.Fd())
	deadline := time.Now().Add(limit)
	var all []byte
	one := make([]byte, 1) // not a byte more than up to the text
	for !bytes.HasSuffix(all, []byte(text)) {
		left := time.Until(deadline).Milliseconds()
		if left <= 0 {
			return string(all), false
		}
		n, err := unix.Poll([]unix.PollFd{{Fd: int32(fd), Events: unix.POLLIN}}, int(left))
		if n <= 0 {
			if err == unix.EINTR || err == nil {
				continue
			}
			return string(all), false
		}
		if n, err = unix.Read(fd, one); n != 1 {
			return fmt.Sprint(string(all), err), false
		}
		all = append(all, one...)
	}
	return string(all), true
}

func TestATerminalOfItsOwn(t *testing.T) {
	inEachMode(t, func(t *testing.T, m mode) {
		c, master := m.onTerminal(t, "/skill/probe", "terminal-size")
		text := until(t, master, "}")
		var got map[string]any
		if err := json.Unmarshal([]byte(text), &got); err != nil {
			t.Fatalf("%v: %q", err, text)
		}
		if fmt.Sprint(got) != "map[0:true 1:true 2:true size:[33 77] term:vt220]" {
			t.Errorf("got %v", got)
		}
		if err := c.Wait(); err != nil {
			t.Error(err)
		}
	})
}

func TestKeysAndSizesReachASkillOnATerminal(t *testing.T) {
	const script = `trap 'echo interrupted' INT; echo ready; while read -r line; do echo "read:$line"; stty size; done; echo end; exit 9`
	inEachMode(t, func(t *testing.T, m mode) {
		c, master := m.onTerminal(t, "bash", "-c", script)
		typed := func(keys string) {
			if _, err := master.WriteString(keys); err != nil {
				t.Fatal(err)
			}
		}
		until(t, master, "ready")
		typed("words\r")
		until(t, master, "read:words")
		until(t, master, "33 77")
		if err := unix.IoctlSetWinsize(int(master.Fd()), unix.TIOCSWINSZ, &unix.Winsize{Row: 10, Col: 20}); err != nil {
			t.Fatal(err)
		}
		var got string
		for range 50 { // a size and a key take different ways
			typed("\r")
			text, ok := readTerminal(master, "10 20", patience(100*time.Millisecond))
			if got += text; ok {
				break
			}
		}
		if !strings.Contains(got, "10 20") {
			t.Errorf("the new size never came: %q", got)
		}
		got = ""
		for range 50 { // a shell that has just forked may miss one
			typed("\x03")
			text, ok := readTerminal(master, "interrupted", patience(200*time.Millisecond))
			if got += text; ok {
				break
			}
		}
		if !strings.Contains(got, "interrupted") {
			t.Errorf("Ctrl-C never came: %q", got)
		}
		typed("\x04")
		until(t, master, "end")
		if err := c.Wait(); c.ProcessState.ExitCode() != 9 {
			t.Error(err)
		}
	})
}

func TestJSONRPCOverPipesIsInterleaved(t *testing.T) {
	example, err := filepath.Abs("../examples/jsonrpc-echo")
	if err != nil {
		t.Fatal(err)
	}
	files := map[string]string{}
	for _, name := range []string{"server.py", "skillbox.yaml"} {
		data, err := os.ReadFile(filepath.Join(example, name))
		if err != nil {
			t.Fatal(err)
		}
		files[name] = string(data)
	}
	inEachMode(t, func(t *testing.T, m mode) {
		r := m.background(t, nil, m.bundleOf(t, files))
		for i := range 5 {
			if _, err := fmt.Fprintf(r.stdin, `{"jsonrpc":"2.0","id":%d,"method":"echo","params":["%d"]}`+"\n", i, i); err != nil {
				t.Fatal(err)
			}
			r.expect(t, fmt.Sprintf(`{"jsonrpc": "2.0", "id": %d, "result": ["%d"]}`+"\n", i, i))
			time.Sleep(20 * time.Millisecond)
		}
		r.stdin.Close()
		if out, code := r.wait(t); out != "" || code != 0 {
			t.Errorf("%q, exit code %d, %s", out, code, r.stderr.String())
		}
	})
}
