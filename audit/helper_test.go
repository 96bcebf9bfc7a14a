package audit

import (
	"fmt"
	"os"
	"path/filepath"
	"testing"
	"time"
)

// run is what a small run leaves.
func run(id string) []Event {
	by, skill := &Caller{UID: 1000, GID: 1000, PID: 4711, Process: "agent"}, &Skill{Name: "word-count", Digest: "sha256:0123456789abcdef"}
	event := func(d Detail) Event { return Event{Run: id, Caller: by, Skill: skill, Detail: d} }
	return []Event{
		event(Granted{Mode: "rootless", Policy: "policy.yaml", PolicyDigest: "sha256:aa", PlanDigest: "sha256:bb"}),
		event(Started{Box: "prepared", Command: []string{"python3", "/skill/main.py"}}),
		event(DNS{Name: "evil.example", Type: "A", Outcome: Outcome{Verdict: "denied", Layer: "network", Rule: "no rule of network.egress", Remedy: "network.egress: [{domain: evil.example}]"}}),
		event(Ended{Verdict: "exited", ExitCode: 0, DurationMS: 12.5, Denials: map[string]int64{"dns": 1}}),
	}
}

func open(t testing.TB, dir string, opts Options) *Log {
	t.Helper()
	l, err := Open(dir, opts)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := l.Close(); err != nil {
			t.Error(err)
		}
	})
	return l
}

func add(t testing.TB, l *Log, events ...Event) {
	t.Helper()
	if err := l.Append(events...); err != nil {
		t.Fatal(err)
	}
}

func shut(t testing.TB, l *Log) {
	t.Helper()
	if err := l.Close(); err != nil {
		t.Fatal(err)
	}
}

func verified(t testing.TB, dir string, opts VerifyOptions) Report {
	t.Helper()
	r, err := Verify(dir, opts)
	if err != nil {
		t.Fatal(err)
	}
	return r
}

// whole fails unless the log is.
func whole(t testing.TB, dir string) Report {
	t.Helper()
	r := verified(t, dir, VerifyOptions{})
	if !r.Whole {
		t.Fatalf("%v", r.Broken)
	}
	return r
}

// written makes a log of so many runs in segments as small as they may be, and returns its directory.
func written(t testing.TB, runs int, opts Options) string {
	t.Helper()
	dir := filepath.Join(t.TempDir(), "audit")
	l := open(t, dir, opts)
	for i := range runs {
		add(t, l, run(fmt.Sprintf("run-%d", i))...)
	}
	shut(t, l)
	return dir
}

func content(t testing.TB, path ...string) []byte {
	t.Helper()
	text, err := os.ReadFile(filepath.Join(path...))
	if err != nil {
		t.Fatal(err)
	}
	return text
}

func put(t testing.TB, text []byte, path ...string) {
	t.Helper()
	if err := os.WriteFile(filepath.Join(path...), text, 0o600); err != nil {
		t.Fatal(err)
	}
}

var quick = Options{Sync: SyncNone, Interval: time.Hour}
