package main

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
)

func TestWithoutItsProgramACommandSaysSo(t *testing.T) {
	for name, want := range map[string]int{"scan": 2, "policy learn": 125, "audit report": 125, "mcp": 125} {
		for _, program := range []string{filepath.Join(t.TempDir(), "none"), notAProgram(t)} {
			t.Setenv("SKILLBOX_SCAN", program)
			t.Setenv("SKILLBOX_MCP", program)
			if stdout, code := capture(t, append(strings.Fields(name), "--anything")...); code != want || stdout != "" {
				t.Errorf("%s with %s: exit code %d, %q", name, program, code, stdout)
			}
			if offers := complete(t, append(strings.Fields(name), "")...); len(offers) != 1 {
				t.Errorf("%s with %s: offers %q", name, program, offers)
			}
		}
	}
}

func notAProgram(t *testing.T) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "text")
	if err := os.WriteFile(path, []byte("no program"), 0o755); err != nil {
		t.Fatal(err)
	}
	return path
}
