//go:build linux

package integration

import (
	"encoding/json"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"skillbox/audit"
	"skillbox/helper"
)

// keepsItsLog writes the file that says how the mode's user's log is kept, and returns what a call needs in its environment to find it.
func (m mode) keepsItsLog(t *testing.T, text string) (env []string) {
	t.Helper()
	if m.credential() != nil || os.Getuid() != 0 {
		config := m.dir(t)
		if err := os.Mkdir(filepath.Join(config, "skillbox"), 0o755); err != nil {
			t.Fatal(err)
		}
		m.write(t, filepath.Join(config, "skillbox", "audit.yaml"), "version: 1\n"+text, 0o644)
		return []string{"XDG_CONFIG_HOME=" + config}
	}
	if _, err := os.Stat("/etc/skillbox"); err != nil {
		if err := os.Mkdir("/etc/skillbox", 0o755); err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { os.Remove("/etc/skillbox") })
	}
	// In this test's namespace of mounts.
	if err := unix.Mount("none", "/etc/skillbox", "tmpfs", unix.MS_NOSUID|unix.MS_NODEV, "mode=755"); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := unix.Unmount("/etc/skillbox", unix.MNT_DETACH); err != nil {
			t.Error(err)
		}
	})
	if err := os.WriteFile("/etc/skillbox/service.yaml", []byte("version: 1\naudit:\n  "+strings.ReplaceAll(text, "\n", "\n  ")), 0o644); err != nil {
		t.Fatal(err)
	}
	return nil
}

// datagramsAt is a daemon's socket that anybody may send to.
func datagramsAt(t *testing.T, path string) *net.UnixConn {
	t.Helper()
	conn, err := net.ListenUnixgram("unixgram", &net.UnixAddr{Name: path, Net: "unixgram"})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { conn.Close() })
	if err := os.Chmod(path, 0o777); err != nil {
		t.Fatal(err)
	}
	return conn
}

// untilEnd reads a daemon's datagrams up to one that holds a text.
func untilEnd(t *testing.T, conn *net.UnixConn, text string) (all []string) {
	t.Helper()
	b := make([]byte, 64<<10)
	for {
		err := conn.SetReadDeadline(time.Now().Add(patience(20 * time.Second)))
		n := 0
		if err == nil {
			n, err = conn.Read(b)
		}
		if err != nil {
			t.Errorf("%v, after %q", err, all)
			return all
		}
		if all = append(all, string(b[:n])); strings.Contains(all[len(all)-1], text) {
			return all
		}
	}
}

// collectorOf keeps the lines that an OTLP collector gets.
func collectorOf(t *testing.T) (endpoint string, lines func() []string) {
	t.Helper()
	var mu sync.Mutex
	var all []string
	server := httptest.NewServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		var request struct {
			ResourceLogs []struct {
				ScopeLogs []struct {
					LogRecords []struct {
						Attributes []struct {
							Key   string
							Value struct{ StringValue string }
						}
					}
				}
			}
		}
		body, err := io.ReadAll(r.Body)
		if err == nil {
			err = json.Unmarshal(body, &request)
		}
		if err != nil {
			t.Errorf("%v: %s", err, body)
		}
		mu.Lock()
		defer mu.Unlock()
		for _, a := range request.ResourceLogs {
			for _, b := range a.ScopeLogs {
				for _, r := range b.LogRecords {
					for _, kv := range r.Attributes {
						if kv.Key == "log.record.original" {
							all = append(all, kv.Value.StringValue)
						}
					}
				}
			}
		}
	}))
	t.Cleanup(server.Close)
	return server.URL + "/v1/logs", func() []string { mu.Lock(); defer mu.Unlock(); return slices.Clone(all) }
}

func TestSinksGetEachRunsRecords(t *testing.T) {
	inEachMode(t, func(t *testing.T, m mode) {
		at := m.dir(t)
		journal, syslog := datagramsAt(t, filepath.Join(at, "journal")), datagramsAt(t, filepath.Join(at, "log"))
		endpoint, lines := collectorOf(t)
		env := m.keepsItsLog(t, fmt.Sprintf(`sinks:
  - {type: journald, socket: %s/journal}
  - {type: syslog, socket: %s/log}
  - {type: otlp, endpoint: "%s"}
`, at, at, endpoint))
		got := map[*net.UnixConn]chan []string{journal: make(chan []string, 1), syslog: make(chan []string, 1)}
		for conn, end := range map[*net.UnixConn]string{journal: "SKILLBOX_KIND=run.ended", syslog: `"kind":"run.ended"`} {
			go func() { got[conn] <- untilEnd(t, conn, end) }() // meanwhile: a socket has room for ten
		}
		r := call{mode: m, env: env, words: []string{"/bin/sh", "-c", "mount -t tmpfs x /tmp; exit 3"}}.run(t)
		if r.ExitCode != 3 || len(r.Warnings) > 1 {
			t.Fatalf("%d, %v", r.ExitCode, r.Warnings)
		}
		records := recorded(t, m, r.ID)
		toJournal, toSyslog := <-got[journal], <-got[syslog]
		if !soon(func() bool { return len(lines()) >= len(records) }) {
			t.Errorf("the collector got %d records of %d", len(lines()), len(records))
		}
		for _, e := range records {
			line := string(e.Line)
			if !slices.ContainsFunc(toJournal, func(got string) bool {
				return strings.Contains(got, "\nSKILLBOX_RECORD="+line+"\n") && strings.Contains(got, "\nSKILLBOX_RUN="+r.ID+"\n")
			}) {
				t.Errorf("journald does not have %s", line)
			}
			if !slices.ContainsFunc(toSyslog, func(got string) bool { return strings.HasSuffix(got, line) }) {
				t.Errorf("syslog does not have %s", line)
			}
			if !slices.Contains(lines(), line) {
				t.Errorf("the collector does not have %s", line)
			}
		}
	})
}

// Sinks that are not there do not keep a run from starting, and the log says what they did not get.
func TestASinkThatIsNotThereIsCounted(t *testing.T) {
	inEachMode(t, func(t *testing.T, m mode) {
		env := m.keepsItsLog(t, "sinks: [{type: syslog, socket: /nonexistent/log}, {type: otlp, endpoint: \"http://127.0.0.1:9/v1/logs\"}]\n")
		before := undelivered(t, m)
		r := call{mode: m, env: env, words: []string{"/bin/true"}}.run(t)
		if !r.Success {
			t.Fatalf("%+v", r.Error)
		}
		records := uint64(len(recorded(t, m, r.ID)))
		if !soon(func() bool {
			now := undelivered(t, m)
			return now["syslog /nonexistent/log"] >= before["syslog /nonexistent/log"]+records && now["otlp http://127.0.0.1:9/v1/logs"] >= before["otlp http://127.0.0.1:9/v1/logs"]+records
		}) {
			t.Errorf("%v, before %v", undelivered(t, m), before)
		}
		if report, err := audit.Verify(m.audit(), audit.VerifyOptions{}); err != nil || report.Broken != nil {
			t.Errorf("%+v, %v", report.Broken, err)
		}
	})
}

func undelivered(t *testing.T, m mode) map[string]uint64 {
	t.Helper()
	if _, err := os.Stat(m.audit()); err != nil {
		return nil
	}
	s, err := audit.Count(audit.Read(m.audit(), audit.Query{}))
	if err != nil {
		t.Fatal(err)
	}
	return s.Undelivered
}

func TestAMistakeInTheLogsConfigurationStartsNoRun(t *testing.T) {
	inEachMode(t, func(t *testing.T, m mode) {
		r := call{mode: m, env: m.keepsItsLog(t, "on_full: drop\n"), words: []string{"/bin/sh", "-c", "echo ran"}}.run(t)
		file, line, column := "audit.yaml", 2, 10
		if m == asRoot {
			file, line, column = "service.yaml", 3, 12
		}
		e := r.Error
		if r.ExitCode != helper.CodeFailed || r.Verdict != helper.Refused || r.Stdout != "" || !strings.HasSuffix(e.File, file) || e.Line != line || e.Column != column ||
			!strings.HasSuffix(e.Field, "on_full") || !strings.Contains(e.Hint, "drop-detail") {
			t.Errorf("%s %d, %+v, %q", r.Verdict, r.ExitCode, e, r.Stdout)
		}
	})
}

// A service of the user's own keeps its sinks, and tells its log of those that it cannot reach.
func TestAServiceTellsOfSinksThatItCannotReach(t *testing.T) {
	inEachMode(t, func(t *testing.T, m mode) {
		s := m.service(t)
		at := m.dir(t)
		s.also = append(s.also, m.keepsItsLog(t, fmt.Sprintf("sinks: [{type: syslog, socket: %s/log}]\n", at))...)
		bundle := m.bundleOf(t, map[string]string{"main.sh": "#!/bin/sh\necho $1\n"})
		s.run(t, nil, bundle, "./main.sh", "a")
		if !soon(func() bool { return strings.Contains(s.log(t), "audit sink: not reached, records wait") }) {
			t.Errorf("%s", s.log(t))
		}
		conn := datagramsAt(t, filepath.Join(at, "log"))
		if got := untilEnd(t, conn, `"kind":"run.ended"`); len(got) < 4 {
			t.Errorf("%q", got)
		}
	})
}

func TestTheSystemServiceHasSinksAndSaysWhatIsWrongWithThem(t *testing.T) {
	s := theSystem(t)
	conn := datagramsAt(t, filepath.Join(s.dir, "log"))
	config := filepath.Join(s.dir, "service.yaml")
	if err := os.WriteFile(config, []byte("version: 1\naudit:\n  sinks: [{type: sylog}]\n"), 0o644); err != nil {
		t.Fatal(err)
	}
	c := asRoot.command()
	c.Path, c.Args = filepath.Join(binDir, "skillboxd"), append([]string{"skillboxd", "system"}, s.flags...)
	if out, _ := c.CombinedOutput(); c.ProcessState.ExitCode() != helper.CodeFailed || !strings.Contains(string(out), config+`:3:18: audit.sinks[0].type: "sylog" is not known here (did you mean syslog?)`) {
		t.Errorf("%d: %s", c.ProcessState.ExitCode(), out)
	}
	if err := os.WriteFile(config, fmt.Appendf(nil, "version: 1\naudit:\n  sinks: [{type: syslog, socket: %s/log}]\n", s.dir), 0o644); err != nil {
		t.Fatal(err)
	}
	s.begin(t)
	id := s.as(bob).run(t, nil, asRoot.bundleOf(t, map[string]string{"main.sh": "#!/bin/sh\necho $1\n"}), "./main.sh", "hello").ID
	if got := untilEnd(t, conn, `"kind":"run.ended"`); !strings.Contains(strings.Join(got, "\n"), `run="`+id+`"`) {
		t.Errorf("%q", got)
	}
}
