package sink

import (
	"encoding/binary"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"skillbox/audit"
)

// fields reads a datagram as systemd.io/JOURNAL_NATIVE_PROTOCOL has it.
func fields(t *testing.T, datagram []byte) map[string]string {
	t.Helper()
	all := map[string]string{}
	for rest := string(datagram); rest != ""; {
		line, after, ok := strings.Cut(rest, "\n")
		if !ok {
			t.Fatalf("a line without an end: %q", rest)
		}
		name, value, plain := strings.Cut(line, "=")
		if !plain {
			n := binary.LittleEndian.Uint64([]byte(after[:8]))
			value, after = after[8:8+n], after[8+n+1:]
		}
		if _, twice := all[name]; twice || !regexp.MustCompile(`^[A-Z][A-Z0-9_]{0,63}$`).MatchString(name) {
			t.Errorf("field %q: twice, or no name of a field that a client may send", name)
		}
		all[name], rest = value, after
	}
	return all
}

func TestJournaldGetsItsFields(t *testing.T) {
	journal := listen(t, filepath.Join(t.TempDir(), "socket"))
	l, dir := opened(t, &told{}, Config{Type: "journald", Socket: journal.path})
	if err := l.Append(hostile("run-1")...); err != nil {
		t.Fatal(err)
	}
	if err := l.Checkpoint(); err != nil {
		t.Fatal(err)
	}
	for _, r := range records(t, dir, audit.Query{}) {
		want := map[string]string{
			"MESSAGE": string(r.Kind) + ": " + r.Summary(), "PRIORITY": "6", "SYSLOG_IDENTIFIER": "skillbox", "SKILLBOX_KIND": string(r.Kind),
			"SKILLBOX_SEQ": fmt.Sprint(r.Seq), "SKILLBOX_RECORD": string(r.Line),
		}
		if r.Run != "" {
			want["SKILLBOX_RUN"], want["SKILLBOX_CALLER_UID"], want["SKILLBOX_SKILL"] = "run-1", "1000", `a\u000aPRIORITY=0\u000aMESSAGE=all is well`
		}
		if v := r.Verdict(); v != "" {
			want["SKILLBOX_VERDICT"] = v
		}
		if r.Kind == audit.DNSKind {
			want["PRIORITY"] = "4"
		}
		got := fields(t, journal.next(t))
		for name, value := range want {
			if got[name] != value {
				t.Errorf("%s: %s=%q, want %q", r.Kind, name, got[name], value)
			}
		}
		if len(got) != len(want) {
			t.Errorf("%s: %v", r.Kind, got)
		}
	}
}

func TestSyslogGetsMessagesOfRFC5424(t *testing.T) {
	daemon := listen(t, filepath.Join(t.TempDir(), "log"))
	l, dir := opened(t, &told{}, Config{Type: "syslog", Socket: daemon.path})
	if err := l.Append(hostile("run-1")...); err != nil {
		t.Fatal(err)
	}
	// HEADER SP STRUCTURED-DATA SP MSG, section 6.
	form := regexp.MustCompile(`^<([0-9]{1,3})>1 (\S+) ([!-~]{1,255}) skillbox ([0-9]+) ([!-~]{1,32}) \[skillbox@32473((?: [a-z]+="(?:[^"\\\]]|\\["\\\]])*")*)\] ((?:\x{FEFF})?)(.*)$`)
	for _, r := range records(t, dir, audit.Query{}) {
		got := string(daemon.next(t))
		m := form.FindStringSubmatch(got)
		if m == nil {
			t.Fatalf("%q", got)
		}
		priority := "110" // log audit, informational
		if r.Kind == audit.DNSKind {
			priority = "108" // warning
		}
		at, err := time.Parse(time.RFC3339Nano, m[2])
		if err != nil || !at.Equal(r.Time.Truncate(time.Microsecond)) || m[1] != priority || m[3] != r.Host || m[4] != fmt.Sprint(os.Getpid()) || m[5] != string(r.Kind) || m[8] != string(r.Line) {
			t.Errorf("%q, %v", m, err)
		}
		if r.Run != "" && m[6] != fmt.Sprintf(` seq="%d" run="run-1"`, r.Seq) {
			t.Errorf("%q", m[6])
		}
		if (m[7] != "") != (r.Kind == audit.ExecKind) {
			t.Errorf("%s: a byte order mark: %v", r.Kind, m[7] != "")
		}
		if slices.ContainsFunc([]byte(got), func(c byte) bool { return c < ' ' || c == 0x7f }) {
			t.Errorf("a control character in %q", got)
		}
	}
}

func TestRecordsWaitForADaemonThatIsStartedLater(t *testing.T) {
	path, w := filepath.Join(t.TempDir(), "log"), &told{}
	l, _ := opened(t, w, Config{Type: "syslog", Socket: path})
	eventually(t, "a warning at the start", func() bool { return w.has("not reached, records wait") && w.has(path) })
	if err := l.Append(hostile("run-1")...); err != nil {
		t.Fatal(err)
	}
	daemon := listen(t, path)
	for range 5 {
		daemon.next(t)
	}
	eventually(t, "word that it is there", func() bool { return w.has("reached again") })
	// Nor does it miss one that is started anew.
	daemon.conn.Close()
	if err := os.Remove(path); err != nil && !os.IsNotExist(err) {
		t.Fatal(err)
	}
	again := listen(t, path)
	if err := l.Append(hostile("run-2")...); err != nil {
		t.Fatal(err)
	}
	if got := string(again.next(t)); !strings.Contains(got, `run="run-2"`) {
		t.Errorf("%s", got)
	}
}

// A daemon that does not read holds nobody up: what is too much is dropped, counted, and recorded.
func TestADaemonThatDoesNotReadHoldsNobodyUp(t *testing.T) {
	daemon, w := listen(t, filepath.Join(t.TempDir(), "log")), &told{}
	l, dir := opened(t, w, Config{Type: "syslog", Socket: daemon.path, Queue: 64})
	const runs = 200
	var slowest time.Duration
	for range runs {
		began := time.Now()
		if err := l.Append(hostile("run")...); err != nil {
			t.Fatal(err)
		}
		slowest = max(slowest, time.Since(began))
	}
	if slowest > time.Second {
		t.Errorf("an append took %s", slowest)
	}
	eventually(t, "a warning", func() bool { return w.has("records not delivered") })
	began := time.Now()
	if err := l.Close(); err != nil {
		t.Fatal(err)
	}
	if d := time.Since(began); d > 3*time.Second {
		t.Errorf("closing took %s", d)
	}
	s, err := audit.Count(audit.Read(dir, audit.Query{}))
	if err != nil {
		t.Fatal(err)
	}
	lost := s.Undelivered["syslog "+daemon.path]
	got := uint64(0)
	if err := daemon.conn.SetReadDeadline(time.Now().Add(100 * time.Millisecond)); err != nil {
		t.Fatal(err)
	}
	for b := make([]byte, 64<<10); ; got++ {
		if _, err := daemon.conn.Read(b); err != nil {
			break
		}
	}
	// What was written after the sink was closed is the count itself, and the checkpoint after it.
	if whole := s.Records - 2; lost == 0 || got+lost != whole {
		t.Errorf("%d delivered, %d counted as lost, of %d", got, lost, whole)
	}
	if r, err := audit.Verify(dir, audit.VerifyOptions{}); err != nil || !r.Whole {
		t.Errorf("%+v, %v", r.Broken, err)
	}
}

// A daemon has room for ten datagrams (net.unix.max_dgram_qlen): at the end it is waited for.
func TestABusyDaemonIsWaitedForAtTheEnd(t *testing.T) {
	daemon := listen(t, filepath.Join(t.TempDir(), "log"))
	l, dir := opened(t, &told{}, Config{Type: "syslog", Socket: daemon.path})
	for range 50 {
		if err := l.Append(hostile("run")...); err != nil {
			t.Fatal(err)
		}
	}
	closed := make(chan error, 1)
	go func() { closed <- l.CloseWithin(time.Minute) }() // a machine may be busier than the daemon
	time.Sleep(50 * time.Millisecond)
	for range 1 + 4*50 + 1 { // log.opened, the events, log.checkpoint
		daemon.next(t)
	}
	if err := <-closed; err != nil {
		t.Fatal(err)
	}
	if s, err := audit.Count(audit.Read(dir, audit.Query{})); err != nil || len(s.Undelivered) > 0 {
		t.Errorf("%v, %v", s.Undelivered, err)
	}
}
