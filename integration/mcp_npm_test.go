//go:build linux

package integration

import (
	"context"
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	sdk "github.com/modelcontextprotocol/go-sdk/mcp"
	"golang.org/x/sys/unix"

	"skillbox/helper"
)

// needsNpmServers returns the directory that `make mcp-servers` fills, where everybody can read it. It skips a test where that is not done; in CI
// it must be.
func needsNpmServers(t *testing.T) string {
	t.Helper()
	dir, err := filepath.Abs("../.cache/mcp")
	if err == nil {
		_, err = os.Stat(filepath.Join(dir, "node_modules"))
	}
	if err != nil && os.Getenv("CI") == "" {
		t.Skipf("needs the MCP servers of integration/mcp (make mcp-servers): %v", err)
	}
	if err != nil {
		t.Fatalf("needs the MCP servers of integration/mcp: %v", err)
	}
	if os.Getuid() != 0 {
		return dir
	}
	// Directories above may be the user's own. Read-only, for who removes this directory must not remove what is bound there.
	at := asRoot.dir(t)
	err = unix.Mount(dir, at, "", unix.MS_BIND, "")
	if err == nil {
		t.Cleanup(func() {
			if err := unix.Unmount(at, unix.MNT_DETACH); err != nil {
				t.Error(err)
			}
		})
		err = unix.Mount("", at, "", unix.MS_REMOUNT|unix.MS_BIND|unix.MS_RDONLY, "")
	}
	if err != nil {
		t.Fatal(err)
	}
	return at
}

func TestServersOfTheRegistryAnswerFromABox(t *testing.T) {
	servers := needsNpmServers(t)
	inEachMode(t, func(t *testing.T, m mode) {
		files := m.dir(t)
		m.write(t, filepath.Join(files, "note.txt"), "inside\n", 0o644)
		state := filepath.Join(m.dir(t), "state")
		for _, c := range []struct {
			name, tool string
			flags      []string
			words      []string
			arguments  map[string]any
			want       string
		}{
			{name: "everything", tool: "echo", arguments: map[string]any{"message": "hello"}, want: "hello"},
			{name: "sequential-thinking", tool: "sequentialthinking", arguments: map[string]any{"thought": "one", "nextThoughtNeeded": false, "thoughtNumber": 1, "totalThoughts": 1}, want: `"thoughtNumber": 1`},
			{name: "filesystem", tool: "read_text_file", flags: []string{"--rw", files + ":/files"}, words: []string{"/files"}, arguments: map[string]any{"path": "/files/note.txt"}, want: "inside"},
			{
				name: "memory", tool: "create_entities", flags: []string{"--state", state, "--env", "MEMORY_FILE_PATH=/state/memory.jsonl"},
				arguments: map[string]any{"entities": []any{map[string]any{"name": "box", "entityType": "thing", "observations": []string{"closed"}}}}, want: `"box"`,
			},
		} {
			args := append([]string{"mcp", "wrap", "--bundle", servers}, c.flags...)
			cmd := m.command(append(append(args, "--", "npx", "-y", "@modelcontextprotocol/server-"+c.name), c.words...)...)
			cmd.Stderr = &strings.Builder{}
			s, _, _ := connectMCP(t, cmd)
			list, err := s.ListTools(context.Background(), nil)
			if err != nil || !slices.ContainsFunc(list.Tools, func(tool *sdk.Tool) bool { return tool.Name == c.tool }) {
				t.Fatalf("%s: %v, %v; stderr: %s", c.name, list, err, cmd.Stderr)
			}
			if r := use(t, s, c.tool, c.arguments); r.IsError || !strings.Contains(textOf(r), c.want) {
				t.Errorf("%s: %q; stderr: %s", c.name, textOf(r), cmd.Stderr)
			}
			if c.name == "filesystem" {
				if r := use(t, s, "write_file", map[string]any{"path": "/files/new.txt", "content": "new"}); r.IsError {
					t.Errorf("write: %q", textOf(r))
				}
				if r := use(t, s, c.tool, map[string]any{"path": "/etc/passwd"}); !r.IsError {
					t.Errorf("/etc/passwd: %q", textOf(r))
				}
			}
		}
		if text, err := os.ReadFile(filepath.Join(files, "new.txt")); err != nil || string(text) != "new" {
			t.Errorf("what the server wrote: %q, %v", text, err)
		}
		if text, err := os.ReadFile(filepath.Join(state, "memory.jsonl")); err != nil || !strings.Contains(string(text), "closed") {
			t.Errorf("what the server remembers: %q, %v", text, err)
		}
	})
}

func TestAServerThatIsNotInstalledIsNamedWithItsRemedy(t *testing.T) {
	m := modes()[0]
	dir := m.dir(t)
	var stderr strings.Builder
	cmd := m.command("mcp", "wrap", "--bundle", dir, "--", "npx", "-y", "@modelcontextprotocol/server-nothing")
	cmd.Stderr = &stderr
	out, _ := cmd.Output()
	if code := cmd.ProcessState.ExitCode(); code != helper.CodeFailed || len(out) > 0 || !strings.Contains(stderr.String(), "npm install --prefix "+dir+" @modelcontextprotocol/server-nothing") {
		t.Errorf("exit code %d, %q, %q", code, stderr.String(), out)
	}
}

func TestTheNodeClientHasASession(t *testing.T) {
	dir := needsNpmServers(t)
	asRootAndRootless(t, func(t *testing.T, m mode) {
		bundle := m.bundleOf(t, map[string]string{
			"skillbox.yaml": "version: 1\nname: counts\ndescription: Counts words.\ncommand: [python3, main.py]\n" +
				"params_schema: {type: object, properties: {text: {type: string}}, required: [text]}\n",
			"main.py": `import json, sys, time
text = json.load(sys.stdin)['text']
if text == 'slow': time.sleep(1.5)
if text == 'forever': time.sleep(600)
print(json.dumps({'words': len(text.split())}))
`,
		})
		cmd := m.command()
		cmd.Path, cmd.Args = "/usr/bin/node", []string{"node", filepath.Join(dir, "session.mjs"), filepath.Join(binDir, "skillbox"), bundle}
		var stderr strings.Builder
		cmd.Stderr = &stderr
		out, err := outputOf(t, cmd)
		var seen struct {
			Server      string
			Tools       []string
			Progress    int
			Result      struct{ StructuredContent struct{ Words int } }
			Refused     struct{ IsError bool }
			Slow, After struct{ Words int }
			Canceled    string
			Closed      int
		}
		if jsonErr := json.Unmarshal(out, &seen); err != nil || jsonErr != nil {
			t.Fatalf("%v, %v: %s; stderr: %s", err, jsonErr, out, stderr.String())
		}
		if seen.Server != "skillbox" || !slices.Equal(seen.Tools, []string{"counts"}) || seen.Result.StructuredContent.Words != 3 ||
			!seen.Refused.IsError || seen.Slow.Words != 1 || seen.Progress == 0 || !strings.Contains(seen.Canceled, "enough") || seen.After.Words != 1 {
			t.Errorf("%s; stderr: %s", out, stderr.String())
		}
		// The client sends SIGTERM after 2 s to a server that has not ended with its input.
		if seen.Closed >= 2000 && emulation("SKILLBOX_PATIENCE") == 1 {
			t.Errorf("it took %d ms to end", seen.Closed)
		}
	})
}

// outputOf is what a program prints; one that does not end is killed.
func outputOf(t *testing.T, cmd *exec.Cmd) ([]byte, error) {
	t.Helper()
	timer := time.AfterFunc(patience(60*time.Second), func() { _ = cmd.Process.Kill() })
	defer timer.Stop()
	out, err := cmd.Output()
	if err != nil {
		err = fmt.Errorf("%s: %w", cmd.Path, err)
	}
	return out, err
}
