//go:build linux

package integration

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"maps"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	dto "github.com/prometheus/client_model/go"
	"github.com/prometheus/common/expfmt"
	"github.com/prometheus/common/model"
	"golang.org/x/sys/unix"

	"skillbox/helper"
)

func (s *service) stats(t *testing.T) *helper.Stats {
	t.Helper()
	text, code := output(t, s.skillbox("stats", "--json"))
	stats := &helper.Stats{}
	if err := json.Unmarshal([]byte(text), stats); err != nil || code != 0 {
		t.Fatalf("exit code %d, %v: %s", code, err, text)
	}
	return stats
}

// series reads Prometheus' text: values by name and labels, of a histogram its count.
func series(t *testing.T, text string) map[string]float64 {
	t.Helper()
	parser := expfmt.NewTextParser(model.LegacyValidation)
	families, err := parser.TextToMetricFamilies(strings.NewReader(text))
	if err != nil {
		t.Fatalf("%v: %s", err, text)
	}
	all := map[string]float64{}
	for name, f := range families {
		for _, m := range f.Metric {
			all[name+labelled(m.Label)] = m.GetCounter().GetValue() + m.GetGauge().GetValue() + float64(m.GetHistogram().GetSampleCount())
		}
	}
	return all
}

func labelled(labels []*dto.LabelPair) (text string) {
	for _, l := range labels {
		text += fmt.Sprintf(" %s=%s", l.GetName(), l.GetValue())
	}
	return text
}

func TestTheFiguresOfKnownCallsAreRight(t *testing.T) {
	inEachMode(t, func(t *testing.T, m mode) {
		s := m.service(t)
		bundle := m.bundleOf(t, map[string]string{
			"ok": "#!/bin/sh\n", "fail": "#!/bin/sh\nexit 3\n", "wait": "#!/bin/sh\nsleep 60\n", "unshare": "#!/bin/sh\nunshare -U true; unshare -U true; exit 0\n",
		})
		wrong := m.file(t, "wrong.yaml", "version: 1\nfilesystem: {read: [{host: /nonexistent}]}\n")
		ready := 0
		for _, c := range []struct {
			flags   []string
			word    string
			verdict string
			code    int
		}{
			{nil, "./ok", helper.Exited, 0},
			{nil, "./ok", helper.Exited, 0},
			{nil, "./ok", helper.Exited, 0},
			{nil, "./fail", helper.Exited, 3},
			{nil, "./unshare", helper.Exited, 0},
			{[]string{"--timeout", "1s"}, "./wait", helper.TimedOut, 124},
			{[]string{"--policy", wrong}, "./ok", helper.Refused, 125},
		} {
			r, err := s.ask(c.flags, bundle, c.word)
			if err != nil || r.Verdict != c.verdict || r.ExitCode != c.code {
				t.Fatalf("%v: %v, %+v", c, err, r)
			}
			if wasReady(r) {
				ready++
			}
			if want := (map[bool]string{true: helper.Prepared, false: helper.Cold})[wasReady(r)]; r.Sandbox.Start != want && r.Verdict != helper.Refused {
				t.Errorf("it took %v ms to prepare a box that was %q", r.Phases["prepare_ms"], r.Sandbox.Start)
			}
			s.awaitReady(t)
		}
		stats := s.stats(t)
		if want := map[string]int64{helper.Exited: 5, helper.TimedOut: 1, helper.Refused: 1}; !maps.Equal(stats.Calls, want) || stats.Succeeded != 4 {
			t.Errorf("%v, %d succeeded; want %v and 4", stats.Calls, stats.Succeeded, want)
		}
		if want := map[string]int64{helper.Prepared: int64(ready), helper.Cold: int64(6 - ready)}; !maps.Equal(stats.Starts, want) || ready == 0 {
			t.Errorf("%v, want %v", stats.Starts, want)
		}
		if want := map[string]int64{"syscall": 2}; !maps.Equal(stats.Denials, want) {
			t.Errorf("denials: %v", stats.Denials)
		}
		timings := map[string]helper.Timing{}
		for _, of := range stats.Durations {
			timings[of.Phase] = of
		}
		if of := timings["total"]; of.Count != 7 || of.P99MS < 950 || of.P99MS > of.MaxMS || of.MedianMS > of.P99MS || of.MedianMS <= 0 {
			t.Errorf("total: %+v", of)
		}
		if of := timings["run"]; of.Count != 6 || of.MaxMS < 1000 {
			t.Errorf("run: %+v", of)
		}
		if of := timings["prepare"]; of.Count != int64(6-ready) {
			t.Errorf("prepare: %+v", of)
		}
		if p := stats.Process; p.ResidentBytes < 1<<20 || p.Descriptors < 3 || p.Threads < 1 || stats.Boxes.Running != 0 {
			t.Errorf("%+v, %+v", p, stats.Boxes)
		}
		text, code := output(t, s.skillbox("stats", "--prometheus"))
		got := series(t, text)
		for name, want := range map[string]float64{
			"skillbox_calls_total verdict=exited success=true":     4,
			"skillbox_calls_total verdict=exited success=false":    1,
			"skillbox_calls_total verdict=timed_out success=false": 1,
			"skillbox_calls_total verdict=refused success=false":   1,
			"skillbox_calls_total verdict=failed success=false":    0,
			"skillbox_calls_boxes_total start=prepared":            float64(ready),
			"skillbox_calls_boxes_total start=cold":                float64(6 - ready),
			"skillbox_calls_boxes_total start=preloaded":           0,
			"skillbox_call_duration_seconds":                       7,
			"skillbox_call_phase_duration_seconds phase=run":       6,
			"skillbox_denials_total kind=syscall":                  2,
			"skillbox_denials_total kind=dns":                      0,
		} {
			if n, there := got[name]; n != want || !there || code != 0 {
				t.Errorf("%s is %v, %v; want %v", name, n, there, want)
			}
		}
		table, _ := output(t, s.skillbox("stats"))
		if !strings.Contains(table, "7: 4 succeeded, 1 exited otherwise, 1 refused, 1 timed_out") || !strings.Contains(table, "2 syscall") {
			t.Errorf("%s", table)
		}
	})
}

func TestStrangersNamesMakeNoSeries(t *testing.T) {
	m := asRoot
	if os.Getuid() != 0 {
		m = rootless
	}
	s := m.service(t)
	bundle := m.bundleOf(t, map[string]string{"SKILL.md": "---\nname: a-skill\ndescription: d\n---\n"})
	call := func(name string) {
		m.write(t, filepath.Join(bundle, "SKILL.md"), "---\nname: "+name+"\ndescription: d\n---\n", 0o644)
		// It is refused when the skill's name is known, and needs no box.
		r, err := s.ask([]string{"--env", "A=" + name}, bundle)
		if err != nil || r.Skill.Name != name && r.Verdict != helper.Refused {
			t.Fatalf("%v, %+v", err, r)
		}
	}
	before := map[string]float64{}
	for i := range load(300) {
		call(fmt.Sprintf("skill-%d", i))
		if i > 0 {
			continue
		}
		text, _ := output(t, s.skillbox("stats", "--prometheus"))
		before = series(t, text)
	}
	text, _ := output(t, s.skillbox("stats", "--prometheus"))
	after := series(t, text)
	if len(after) != len(before) || strings.Contains(text, "skill-") {
		t.Errorf("%d series became %d", len(before), len(after))
	}
	if n := after["skillbox_call_duration_seconds"]; n != float64(load(300)) {
		t.Errorf("%v calls were counted", n)
	}
}

// scrape asks for the metrics over a connection.
func scrape(dial func() (net.Conn, error), path string) (int, string, error) {
	c := http.Client{Timeout: patience(responseTime), Transport: &http.Transport{
		DisableKeepAlives: true, DialContext: func(context.Context, string, string) (net.Conn, error) { return dial() },
	}}
	r, err := c.Get("http://service" + path)
	if err != nil {
		return 0, "", err
	}
	defer r.Body.Close()
	text, err := io.ReadAll(r.Body)
	return r.StatusCode, string(text), err
}

const responseTime = 10 * time.Second

func TestMetricsAreServedToTheUserAlone(t *testing.T) {
	inEachMode(t, func(t *testing.T, m mode) {
		s := m.service(t)
		s.run(t, nil, m.sharedBundle(t), "true")
		if at := s.stats(t).Metrics; at != "" {
			t.Errorf("nobody asked for metrics, which are served at %s", at)
		}
		s = m.service(t)
		s.also = []string{"SKILLBOX_METRICS=unix"}
		ask := m.bundleOf(t, map[string]string{"ask.py": strings.ReplaceAll(asking, "/svc/", "/svc/metrics-")})
		s.run(t, nil, ask, "true")
		at := s.stats(t).Metrics
		info, err := os.Lstat(at)
		if err != nil || info.Mode() != os.ModeSocket|0o600 || filepath.Dir(at) != s.dir() {
			t.Fatalf("%s: %v, %v", at, info, err)
		}
		if os.Getuid() != 0 || m == asRoot { // otherwise we are not its user
			dir, err := os.Open(s.dir()) // whose path may be too long for a socket's address
			if err != nil {
				t.Fatal(err)
			}
			defer dir.Close()
			dial := func() (net.Conn, error) {
				return net.Dial("unix", fmt.Sprintf("/proc/self/fd/%d/%s", dir.Fd(), filepath.Base(at)))
			}
			code, text, err := scrape(dial, "/metrics")
			if err != nil || code != 200 || series(t, text)["skillbox_call_duration_seconds"] != 1 {
				t.Errorf("%d, %v: %s", code, err, text)
			}
			for path, want := range map[string]int{"/": 404, "/metrics/x": 404, "/debug/pprof/": 404} {
				if code, _, err := scrape(dial, path); code != want {
					t.Errorf("%s: %d, %v", path, code, err)
				}
			}
		}
		policy := m.file(t, "policy.yaml", "version: 1\nfilesystem: {read: [{host: "+s.dir()+", path: /svc}]}\n")
		if r := s.run(t, []string{"--policy", policy}, ask, "/usr/bin/python3", "ask.py"); r.Stdout != "closed\n" {
			t.Errorf("a skill's attempt: %q; stderr %s", r.Stdout, r.Stderr)
		}
		who := "box"
		if m == asRoot { // whose boxes have users of their own
			who = "stranger"
		}
		if stats := s.stats(t); stats.Refused[who] != 1 {
			t.Errorf("refused: %v", stats.Refused)
		}
		if os.Getuid() == 0 {
			if _, err := s.connectTo(t, filepath.Base(at), 65534); err != unix.EACCES {
				t.Errorf("another user connects: %v", err)
			}
		}
		pid := s.pid(t)
		if err := unix.Kill(pid, unix.SIGTERM); err != nil {
			t.Fatal(err)
		}
		if !soon(func() bool { return len(s.pids()) == 0 }) {
			t.Error("it does not leave")
		}
		if _, err := os.Lstat(at); !os.IsNotExist(err) {
			t.Errorf("the socket is still there: %v", err)
		}
	})
}

func TestMetricsAreServedAtAnAddressOfTheMachine(t *testing.T) {
	m := asRoot
	if os.Getuid() != 0 {
		m = rootless
	}
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	address := l.Addr().String()
	s := m.service(t)
	s.also = []string{"SKILLBOX_METRICS=" + address}
	r, err := s.ask(nil, m.sharedBundle(t), "true")
	if err != nil || r.ExitCode != 125 || r.Error == nil || !strings.Contains(r.Error.Message, "SKILLBOX_METRICS") || r.Error.Hint == "" {
		t.Errorf("an address that is taken: %v, %+v", err, r)
	}
	l.Close()
	s.run(t, nil, m.sharedBundle(t), "true")
	code, text, err := scrape(func() (net.Conn, error) { return net.Dial("tcp", address) }, "/metrics")
	if err != nil || code != 200 || series(t, text)["skillbox_call_duration_seconds"] != 1 {
		t.Errorf("%d, %v: %s", code, err, text)
	}
	for _, bad := range []string{"yes", "9464", "127.0.0.1", "localhost:9464", "127.0.0.1:0", "0.0.0.0:9464", "[::]:9464"} {
		s := m.service(t)
		s.also = []string{"SKILLBOX_METRICS=" + bad}
		r, err := s.ask(nil, m.sharedBundle(t), "true")
		if err != nil || r.ExitCode != 125 || !strings.Contains(r.Error.Message, bad) || r.Error.Hint == "" || len(s.pids()) > 0 {
			t.Errorf("%s: %v, %+v", bad, err, r)
		}
	}
}
