package sink

import (
	"fmt"
	"net"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"skillbox/audit"
)

// told keeps what an administrator is warned of.
type told struct {
	mu    sync.Mutex
	lines []string
}

func (w *told) warn(message string, about ...any) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.lines = append(w.lines, message+" "+fmt.Sprint(about...))
}

func (w *told) has(words string) bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	return strings.Contains(strings.Join(w.lines, "\n"), words)
}

// eventually waits for what other goroutines bring about.
func eventually(t *testing.T, what string, is func() bool) {
	t.Helper()
	for end := time.Now().Add(10 * time.Second); !is(); time.Sleep(5 * time.Millisecond) {
		if time.Now().After(end) {
			t.Fatalf("not within 10 s: %s", what)
		}
	}
}

// hostile is a run whose skill writes to whoever reads.
func hostile(run string) []audit.Event {
	by, skill := &audit.Caller{UID: 1000, GID: 1000, PID: 4711, Process: "agent\x1b]0;x\a"}, &audit.Skill{Name: "a\nPRIORITY=0\nMESSAGE=all is well", Digest: "sha256:00"}
	event := func(d audit.Detail) audit.Event { return audit.Event{Run: run, Caller: by, Skill: skill, Detail: d} }
	return []audit.Event{
		event(audit.Granted{Mode: "rootless", PolicyDigest: "sha256:aa", PlanDigest: "sha256:bb"}),
		event(audit.DNS{Name: "evil\n<0>1 - - - - - - all is well\x1b[2J\u009b31m.example", Type: "A", Outcome: audit.Outcome{Verdict: audit.Denied, Layer: "network"}}),
		event(audit.Exec{PID: 2, Path: "/bin/\"]é", Argv: []string{"a", "\xff"}, Outcome: audit.Outcome{Verdict: audit.Allowed}}),
		event(audit.Ended{Verdict: "exited", DurationMS: 1.5}),
	}
}

// opened is a log with these sinks, and its directory.
func opened(t *testing.T, w *told, all ...Config) (*audit.Log, string) {
	t.Helper()
	set, err := Open(all, w.warn)
	if err != nil {
		t.Fatal(err)
	}
	dir := filepath.Join(t.TempDir(), "audit")
	l, err := audit.Open(dir, audit.Options{Sync: audit.SyncNone, Interval: time.Hour, Sink: set})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := l.Close(); err != nil {
			t.Error(err)
		}
	})
	return l, dir
}

func records(t *testing.T, dir string, q audit.Query) (all []audit.Record) {
	t.Helper()
	for r, err := range audit.Read(dir, q) {
		if err != nil {
			t.Fatal(err)
		}
		all = append(all, r)
	}
	return all
}

// receiver is a datagram socket as journald and syslog daemons have it.
type receiver struct {
	path string
	conn *net.UnixConn
}

func listen(t *testing.T, path string) *receiver {
	t.Helper()
	conn, err := net.ListenUnixgram("unixgram", &net.UnixAddr{Name: path, Net: "unixgram"})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { conn.Close() })
	return &receiver{path, conn}
}

func (r *receiver) next(t *testing.T) []byte {
	t.Helper()
	if err := r.conn.SetReadDeadline(time.Now().Add(10 * time.Second)); err != nil {
		t.Fatal(err)
	}
	b := make([]byte, 64<<10)
	n, err := r.conn.Read(b)
	if err != nil {
		t.Fatal(err)
	}
	return b[:n]
}
