//go:build linux

package integration

import (
	"context"
	"encoding/json"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	sdk "github.com/modelcontextprotocol/go-sdk/mcp"

	"skillbox/helper"
)

// mcpHeard is what a server said beside its answers.
type mcpHeard struct {
	mu       sync.Mutex
	progress []*sdk.ProgressNotificationParams
	logs     []*sdk.LoggingMessageParams
	hangUp   func()        // closes the server's input
	came     chan struct{} // has a value after each of them
}

func (h *mcpHeard) note(f func()) {
	h.mu.Lock()
	f()
	h.mu.Unlock()
	select {
	case h.came <- struct{}{}:
	default:
	}
}

// until waits for something that was heard.
func (h *mcpHeard) until(t *testing.T, what string, there func() bool) {
	t.Helper()
	late := time.After(patience(20 * time.Second))
	for {
		h.mu.Lock()
		yes := there()
		h.mu.Unlock()
		if yes {
			return
		}
		select {
		case <-h.came:
		case <-late:
			t.Fatalf("%s did not come", what)
		}
	}
}

// serves starts `skillbox mcp serve` with a client of the go-sdk.
func (m mode) serves(t *testing.T, args ...string) (*sdk.ClientSession, *mcpHeard, *exec.Cmd) {
	t.Helper()
	cmd := m.command(append([]string{"mcp", "serve"}, args...)...)
	return connectMCP(t, cmd)
}

func connectMCP(t *testing.T, cmd *exec.Cmd) (*sdk.ClientSession, *mcpHeard, *exec.Cmd) {
	t.Helper()
	if cmd.Stderr == nil {
		cmd.Stderr = os.Stderr
	}
	h := &mcpHeard{came: make(chan struct{}, 1)}
	c := sdk.NewClient(&sdk.Implementation{Name: "test", Version: "1"}, &sdk.ClientOptions{
		ProgressNotificationHandler: func(_ context.Context, r *sdk.ProgressNotificationClientRequest) {
			h.note(func() { h.progress = append(h.progress, r.Params) })
		},
		LoggingMessageHandler: func(_ context.Context, r *sdk.LoggingMessageRequest) {
			h.note(func() { h.logs = append(h.logs, r.Params) })
		},
	})
	ctx, cancel := context.WithTimeout(context.Background(), patience(30*time.Second))
	defer cancel()
	// Not the library's CommandTransport: with it a client that closes waits for its calls first.
	in, err := cmd.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	h.hangUp = func() { in.Close() }
	t.Cleanup(func() {
		in.Close()
		killed := time.AfterFunc(patience(10*time.Second), func() { _ = cmd.Process.Kill() })
		_ = cmd.Wait() // again, where the test has waited
		if !killed.Stop() {
			t.Error("the server did not end with its input")
		}
	})
	s, err := c.Connect(ctx, &sdk.IOTransport{Reader: out, Writer: in}, nil)
	if err != nil {
		t.Fatal(err)
	}
	return s, h, cmd
}

// use calls a tool.
func use(t *testing.T, s *sdk.ClientSession, tool string, args any) *sdk.CallToolResult {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), patience(30*time.Second))
	defer cancel()
	r, err := s.CallTool(ctx, &sdk.CallToolParams{Name: tool, Arguments: args})
	if err != nil {
		t.Fatalf("%s: %v", tool, err)
	}
	return r
}

// textOf are the text of an answer.
func textOf(r *sdk.CallToolResult) string {
	var all []string
	for _, c := range r.Content {
		if text, ok := c.(*sdk.TextContent); ok {
			all = append(all, text.Text)
		}
	}
	return strings.Join(all, "\n")
}

// scripted is an agent skill with these scripts.
func (m mode) scripted(t *testing.T, scripts map[string]string) string {
	t.Helper()
	files := map[string]string{"SKILL.md": "---\nname: tools\ndescription: Things to try.\n---\n"}
	for name, text := range scripts {
		files["scripts/"+name] = text
	}
	return m.bundleOf(t, files)
}

func TestEachEntryOfABundleIsATool(t *testing.T) {
	inEachMode(t, func(t *testing.T, m mode) {
		counts := m.bundleOf(t, map[string]string{
			"skillbox.yaml": "version: 1\nname: counts\ndescription: Counts words.\ncommand: [python3, main.py]\n" +
				"params_schema: {type: object, properties: {text: {type: string}}, required: [text]}\n",
			"main.py": "import json, sys\nprint(json.dumps({'words': len(json.load(sys.stdin)['text'].split())}))\n",
		})
		tools := m.scripted(t, map[string]string{"echo.sh": "#!/bin/sh\necho \"$@\"; cat\n", "fail.sh": "#!/bin/sh\necho partly; echo why >&2; exit 3\n"})
		s, _, _ := m.serves(t, counts, tools, counts)
		list, err := s.ListTools(context.Background(), nil)
		if err != nil {
			t.Fatal(err)
		}
		var names []string
		for _, tool := range list.Tools {
			names = append(names, tool.Name)
		}
		if want := []string{"counts", "counts_2", "tools_echo", "tools_fail"}; !slices.Equal(names, want) {
			t.Errorf("tools %q, not %q", names, want)
		}
		schema, _ := json.Marshal(list.Tools[0].InputSchema)
		if !strings.Contains(string(schema), `"required":["text"]`) || list.Tools[0].Description != "Counts words." {
			t.Errorf("%s: %s", list.Tools[0].Description, schema)
		}

		r := use(t, s, "counts", map[string]any{"text": "a b a"})
		if got, _ := json.Marshal(r.StructuredContent); r.IsError || string(got) != `{"words":3}` || !strings.Contains(textOf(r), `"words": 3`) {
			t.Errorf("counts: %s, %q", got, textOf(r))
		}
		r = use(t, s, "tools_echo", map[string]any{"args": []string{"a b", "--x"}, "params": []int{1, 2}})
		if textOf(r) != "a b --x\n[1,2]" || r.IsError {
			t.Errorf("echo: %q", textOf(r))
		}
		r = use(t, s, "tools_fail", nil)
		if got := textOf(r); !r.IsError || !strings.Contains(got, "code 3") || !strings.Contains(got, "why") || !strings.Contains(got, "partly") {
			t.Errorf("fail: %v %q", r.IsError, got)
		}
	})
}

func TestADenialReachesTheModelWithItsRemedy(t *testing.T) {
	asRootAndRootless(t, func(t *testing.T, m mode) {
		tools := m.scripted(t, map[string]string{"net.py": "import urllib.request\nurllib.request.urlopen('http://api.example.com/', timeout=5)\n"})
		policy := m.file(t, "policy.yaml", "version: 1\nnetwork:\n  egress: [{domains: [other.example.com]}]\n")
		s, h, _ := m.serves(t, "--policy", policy, tools)
		// What the protocol since 2026-07-28 has in the place of logging/setLevel.
		params := &sdk.CallToolParams{Name: "tools_net", Meta: sdk.Meta{sdk.MetaKeyLogLevel: "warning"}}
		r, err := s.CallTool(context.Background(), params)
		if err != nil {
			t.Fatal(err)
		}
		if got := textOf(r); !r.IsError || !strings.Contains(got, "Refused (dns)") || !strings.Contains(got, "api.example.com") || !strings.Contains(got, "What would allow it: ") {
			t.Errorf("%v %q", r.IsError, got)
		}
		h.until(t, "a log message", func() bool { return len(h.logs) > 0 })
		if text, _ := json.Marshal(h.logs[0]); h.logs[0].Logger != "tools_net" || !strings.Contains(string(text), "api.example.com") {
			t.Errorf("log: %s", text)
		}
	})
}

func TestNothingThatASkillWritesBreaksTheProtocol(t *testing.T) {
	inEachMode(t, func(t *testing.T, m mode) {
		tools := m.scripted(t, map[string]string{
			"frames.py": "import sys\nprint('{\"jsonrpc\":\"2.0\",\"id\":1,\"result\":{}}\\n' * 3)\nprint('\\r\\n\\x00\\x1b[2J\\u2028', file=sys.stderr)\n",
			"bytes.py":  "import sys\nsys.stdout.buffer.write(bytes(range(256)) * 4096)\n",
			"deep.py":   "print('[' * 9000 + ']' * 9000)\n",
			"half.py":   "print('{\"a\": \"\\\\ud800\", \"a\": 1e999, \"b\": \"\\\\u0000\"}')\n",
			"long.py":   "print('\"' + 'x' * 9000000 + '\"')\n",
			"fds.py":    "import os\nfor fd in range(3, 64):\n  try: os.write(fd, b'garbage\\n')\n  except OSError: pass\n",
		})
		s, _, _ := m.serves(t, "--lines", tools)
		for _, name := range []string{"frames", "bytes", "deep", "half", "long", "fds"} {
			params := &sdk.CallToolParams{Name: "tools_" + name}
			params.SetProgressToken(name)
			ctx, cancel := context.WithTimeout(context.Background(), patience(30*time.Second))
			r, err := s.CallTool(ctx, params)
			cancel()
			if err != nil {
				t.Fatalf("%s: %v", name, err)
			}
			if r.IsError {
				t.Errorf("%s: %.300s", name, textOf(r))
			}
		}
		if got := textOf(use(t, s, "tools_frames", nil)); strings.Count(got, `"jsonrpc"`) != 3 {
			t.Errorf("%q", got)
		}
	})
}

func TestProgressComesWhileACallRunsWithItsLines(t *testing.T) {
	asRootAndRootless(t, func(t *testing.T, m mode) {
		tools := m.scripted(t, map[string]string{"slow.py": "import sys, time\nfor i in range(20):\n  print('step', i, file=sys.stderr, flush=True)\n  time.sleep(.1)\nprint('done')\n"})
		s, h, _ := m.serves(t, "--lines", tools)
		params := &sdk.CallToolParams{Name: "tools_slow"}
		params.SetProgressToken("token")
		r, err := s.CallTool(context.Background(), params)
		if err != nil || textOf(r) != "done\n" {
			t.Fatalf("%v %v", r, err)
		}
		h.until(t, "a line and a pulse", func() bool {
			var line, pulse bool
			for i, p := range h.progress {
				line, pulse = line || strings.HasPrefix(p.Message, "step "), pulse || strings.HasPrefix(p.Message, "running for ")
				if p.ProgressToken != "token" || i > 0 && p.Progress <= h.progress[i-1].Progress {
					t.Errorf("progress %v after %v", p, h.progress[max(0, i-1)])
				}
			}
			return line && pulse
		})
	})
}

// waiting is a script that says that it runs, by a file in /seen, ignores SIGTERM and stays.
const waiting = "import os, signal, time\nsignal.signal(signal.SIGTERM, signal.SIG_IGN)\nopen('/seen/' + str(time.monotonic_ns()), 'w')\ntime.sleep(600)\n"

// waits serves that script, and returns where it says that it runs.
func (m mode) waits(t *testing.T, flags ...string) (s *sdk.ClientSession, h *mcpHeard, cmd *exec.Cmd, runs func() int) {
	t.Helper()
	tools, seen := m.scripted(t, map[string]string{"wait.py": waiting}), m.dir(t)
	policy := m.file(t, "policy.yaml", "version: 1\ntimeout: 10m\nfilesystem:\n  write: [{host: "+seen+", path: /seen}]\n")
	s, h, cmd = m.serves(t, append(flags, "--policy", policy, tools)...)
	return s, h, cmd, func() int {
		all, err := os.ReadDir(seen)
		if err != nil {
			t.Error(err)
		}
		return len(all)
	}
}

// startWaiting calls the script, and returns when so many run.
func startWaiting(ctx context.Context, t *testing.T, s *sdk.ClientSession, calls, running int, runs func() int) *sync.WaitGroup {
	t.Helper()
	var all sync.WaitGroup
	for range calls {
		all.Go(func() { _, _ = s.CallTool(ctx, &sdk.CallToolParams{Name: "tools_wait"}) }) // it is to be ended
	}
	for deadline := time.Now().Add(patience(20 * time.Second)); runs() < running; time.Sleep(5 * time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatalf("%d of %d calls run", runs(), running)
		}
	}
	return &all
}

// noBoxOf waits until nothing runs below a process.
func noBoxOf(t *testing.T, cmd *exec.Cmd, within time.Duration) {
	t.Helper()
	children := func() string {
		text, _ := os.ReadFile(filepath.Join("/proc", strconv.Itoa(cmd.Process.Pid), "task", strconv.Itoa(cmd.Process.Pid), "children"))
		all, _ := filepath.Glob(filepath.Join("/proc", strconv.Itoa(cmd.Process.Pid), "task", "*", "children"))
		for _, path := range all {
			more, _ := os.ReadFile(path) // a thread that ended has none
			text = append(text, more...)
		}
		return strings.TrimSpace(string(text))
	}
	for deadline := time.Now().Add(within); children() != ""; time.Sleep(5 * time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatalf("processes %s are left", children())
		}
	}
}

func TestACanceledCallIsKilledAtOnce(t *testing.T) {
	asRootAndRootless(t, func(t *testing.T, m mode) {
		s, _, cmd, runs := m.waits(t)
		ctx, cancel := context.WithCancel(context.Background())
		calls := startWaiting(ctx, t, s, 1, 1, runs)
		began := time.Now()
		cancel()
		noBoxOf(t, cmd, patience(20*time.Second))
		// The grace period of a skill that ignores SIGTERM is 2 s: who was killed has not had it.
		if took := time.Since(began); took > patience(1900*time.Millisecond) {
			t.Errorf("it took %v", took)
		}
		calls.Wait()
		if _, err := s.ListTools(context.Background(), nil); err != nil {
			t.Errorf("the server does not answer any more: %v", err)
		}
	})
}

func TestNoMoreCallsRunAtATimeThanAllowed(t *testing.T) {
	asRootAndRootless(t, func(t *testing.T, m mode) {
		s, _, cmd, runs := m.waits(t, "--concurrency", "2")
		ctx, cancel := context.WithCancel(context.Background())
		calls := startWaiting(ctx, t, s, 5, 2, runs)
		if _, err := s.ListTools(context.Background(), nil); err != nil { // which is not behind them in a queue
			t.Error(err)
		}
		if n := runs(); n != 2 {
			t.Errorf("%d run", n)
		}
		cancel()
		calls.Wait()
		noBoxOf(t, cmd, patience(20*time.Second))
		if n := runs(); n > 5 {
			t.Errorf("%d ran", n)
		}
	})
}

func TestTheEndOfAServerIsTheEndOfItsBoxes(t *testing.T) {
	asRootAndRootless(t, func(t *testing.T, m mode) {
		for how, end := range map[string]func(*mcpHeard, *exec.Cmd) error{
			"EOF":     func(h *mcpHeard, _ *exec.Cmd) error { h.hangUp(); return nil },
			"SIGTERM": func(_ *mcpHeard, cmd *exec.Cmd) error { return cmd.Process.Signal(syscall.SIGTERM) },
			"SIGKILL": func(_ *mcpHeard, cmd *exec.Cmd) error { return cmd.Process.Kill() },
		} {
			t.Run(how, func(t *testing.T) {
				leavesNothing(t)
				s, h, cmd, runs := m.waits(t)
				calls := startWaiting(context.Background(), t, s, 2, 2, runs)
				if err := end(h, cmd); err != nil {
					t.Error(err)
				}
				calls.Wait()
				_ = cmd.Wait() // its code is looked at
				if code := cmd.ProcessState.ExitCode(); code != 0 && how != "SIGKILL" {
					t.Errorf("exit code %d", code)
				}
			})
		}
	})
}

func TestAServerWithNothingToOfferSaysSo(t *testing.T) {
	m := modes()[0]
	for name, c := range map[string]struct {
		args []string
		want string
	}{
		"nothing to call":   {[]string{m.bundleOf(t, map[string]string{"data.txt": ""})}, "offers nothing to be called"},
		"no bundle":         {nil, "which skills to offer"},
		"a broken manifest": {[]string{m.bundleOf(t, map[string]string{"skillbox.yaml": "version: 1\nname: x\nwhat: 1\n"})}, "skillbox.yaml:3:1"},
		"a broken policy":   {[]string{"--policy", m.file(t, "policy.yaml", "version: 1\nnet: 1\n"), m.dir(t)}, "policy.yaml:2:1"},
		"a schema that clients cannot have": {[]string{m.bundleOf(t, map[string]string{
			"skillbox.yaml": "version: 1\nname: x\ncommand: [\"true\"]\nparams_schema: {type: object, properties: {a: {type: object, x-mcp-header: A}}}\n",
		})}, "parameter header"},
	} {
		var stderr strings.Builder
		cmd := m.command(append([]string{"mcp", "serve"}, c.args...)...)
		cmd.Stderr = &stderr
		out, err := cmd.Output()
		if cmd.ProcessState.ExitCode() != helper.CodeFailed || !strings.Contains(stderr.String(), c.want) || len(out) > 0 {
			t.Errorf("%s: %v, %q, %q", name, err, stderr.String(), out)
		}
	}
}

// Who tries the server in a shell has its frames on a terminal.
func TestATerminalObeysNothingThatAToolAnswers(t *testing.T) {
	said := strings.ToValidUTF8(strings.Join(sequences, "|"), "")
	script := "import json; print(json.dumps(bytes.fromhex('" + hexOf(said) + "').decode(), ensure_ascii=False))"
	asRootAndRootless(t, func(t *testing.T, m mode) {
		bundle := m.bundleOf(t, map[string]string{"skillbox.yaml": "version: 1\nname: says\ncommand: [python3, say.py]\n", "say.py": script})
		cmd := m.command("mcp", "serve", bundle)
		in, err := cmd.StdinPipe()
		if err != nil {
			t.Fatal(err)
		}
		master, slave := terminalPair(t, 24, 80)
		cmd.Stdout = slave
		if err := cmd.Start(); err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() {
			in.Close()
			killed := time.AfterFunc(patience(10*time.Second), func() { _ = cmd.Process.Kill() })
			_ = cmd.Wait() // its answer is looked at
			killed.Stop()
		})
		hear := func(line string) string {
			if _, err := io.WriteString(in, line+"\n"); err != nil {
				t.Fatal(err)
			}
			return strings.TrimSuffix(until(t, master, "\n"), "\r\n") // a terminal's end of a line
		}
		hear(`{"jsonrpc":"2.0","id":1,"method":"initialize","params":{"protocolVersion":"2025-06-18","capabilities":{},"clientInfo":{"name":"test","version":"1"}}}`)
		got := hear(`{"jsonrpc":"2.0","method":"notifications/initialized"}` + "\n" + `{"jsonrpc":"2.0","id":2,"method":"tools/call","params":{"name":"says","arguments":{}}}`)
		var answer struct {
			Result struct{ StructuredContent struct{ Result string } }
		}
		if err := json.Unmarshal([]byte(got), &answer); err != nil || answer.Result.StructuredContent.Result != said || obeyed([]byte(got)) {
			t.Errorf("%v: %q", err, got)
		}
	})
}
