package auditlog

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"skillbox/helper"
	"skillbox/policy"
)

func file(t *testing.T, text string, mode os.FileMode) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "audit.yaml")
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	if err := os.Chmod(path, mode); err != nil {
		t.Fatal(err)
	}
	return path
}

func TestAUsersFileSaysHowTheLogIsKept(t *testing.T) {
	c, err := Read(file(t, "version: 1\nsync: always\nmax_segment: 64Ki\n", 0o644), 1000)
	if err != nil || c.Sync != "always" || c.MaxSegment != 64<<10 {
		t.Fatalf("%+v, %v", c, err)
	}
	for _, path := range []string{"", filepath.Join(t.TempDir(), "none")} {
		if c, err := Read(path, 1000); err != nil || c.Sync != "" || c.Sinks != nil {
			t.Errorf("%q: %+v, %v", path, c, err)
		}
	}
	var many policy.Errors
	if _, err := Read(file(t, "version: 1\nsync: sometimes\n", 0o644), 1000); !errors.As(err, &many) || !strings.Contains(err.Error(), "audit.yaml:2:7: sync") {
		t.Error(err)
	}
	var wrong *helper.Error
	if _, err := Read(file(t, "version: 1\n", 0o666), 1000); !errors.As(err, &wrong) || wrong.Hint != "chmod 644" {
		t.Error(err)
	}
	fifo := filepath.Join(t.TempDir(), "fifo")
	if err := unix.Mkfifo(fifo, 0o600); err != nil {
		t.Fatal(err)
	}
	if _, err := Read(fifo, 1000); !errors.As(err, &wrong) {
		t.Error(err)
	}
}

func TestRootsLogIsTheMachines(t *testing.T) {
	if os.Getuid() != 0 {
		t.Skip("service.yaml must be root's")
	}
	c, err := Read(file(t, "version: 1\naudit: {on_full: drop-detail}\n", 0o644), 0)
	if err != nil || c.OnFull != "drop-detail" {
		t.Fatalf("%+v, %v", c, err)
	}
	if _, err := Read(file(t, "version: 1\naudit: {on_full: drop}\n", 0o644), 0); err == nil || !strings.Contains(err.Error(), "audit.yaml:2:18: audit.on_full") {
		t.Error(err)
	}
}

func TestATokenIsReadFromAFileThatOthersCannotRead(t *testing.T) {
	if token, err := tokenOf(file(t, "abc\n", 0o600)); token != "abc" || err != nil {
		t.Errorf("%q, %v", token, err)
	}
	for text, mode := range map[string]os.FileMode{"abc": 0o604, "": 0o600, "a\nb": 0o600, "a b": 0o600} {
		if token, err := tokenOf(file(t, text, mode)); err == nil {
			t.Errorf("%q %#o: %q", text, mode, token)
		}
	}
	c := &policy.AuditLog{Sinks: []policy.Sink{{Type: "otlp", Endpoint: "http://127.0.0.1:1/v1/logs", TokenFile: "/nonexistent"}}}
	if _, err := Open(filepath.Join(t.TempDir(), "audit"), c, nil); !errors.Is(err, os.ErrNotExist) {
		t.Error(err)
	}
}
