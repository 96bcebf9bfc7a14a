package page

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"iter"
	"reflect"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"skillbox/audit"
	"skillbox/scan"
)

var began = time.Date(2026, 11, 22, 9, 0, 0, 0, time.UTC)

// records numbers details as the records of a run, a millisecond apart.
func records(run string, details ...audit.Detail) (all []audit.Record) {
	kinds := map[reflect.Type]audit.Kind{}
	for i, d := range details {
		of := reflect.TypeOf(d)
		if kinds[of] == "" {
			text, err := audit.Pack(audit.Event{Detail: d})
			if err != nil {
				panic(err)
			}
			var e struct{ Kind audit.Kind }
			if err := json.Unmarshal(text, &e); err != nil {
				panic(err)
			}
			kinds[of] = e.Kind
		}
		all = append(all, audit.Record{Event: audit.Event{Run: run, Seq: uint64(i + 1), Time: began.Add(time.Duration(i) * time.Millisecond), Kind: kinds[of], Detail: d}})
	}
	return all
}

func each(all []audit.Record) iter.Seq2[audit.Record, error] {
	return func(yield func(audit.Record, error) bool) {
		for _, r := range all {
			if !yield(r, nil) {
				return
			}
		}
	}
}

func ofRun(t *testing.T, details ...audit.Detail) string {
	t.Helper()
	var b bytes.Buffer
	if err := WriteRun(&b, each(records("r", details...))); err != nil {
		t.Fatal(err)
	}
	return b.String()
}

func ofScan(t *testing.T, r *scan.Report) string {
	t.Helper()
	var b bytes.Buffer
	if err := Write(&b, r); err != nil {
		t.Fatal(err)
	}
	return b.String()
}

// between are the parts of a page between two words.
func between(page, from, to string) (found []string) {
	for {
		_, rest, ok := strings.Cut(page, from)
		if !ok {
			return found
		}
		part, after, _ := strings.Cut(rest, to)
		found, page = append(found, part), after
	}
}

func denied(remedy string) audit.Outcome {
	return audit.Outcome{Verdict: audit.Denied, Error: "EPERM", Layer: "seccomp", Rule: "syscalls.profile default: EPERM", Remedy: remedy}
}

func TestThePolicyNamesTheHashesOfWhatIsInThePage(t *testing.T) {
	page := ofScan(t, &scan.Report{})
	policy := strings.NewReplacer("&#39;", "'", "&#43;", "+").Replace(between(page, `Content-Security-Policy" content="`, `"`)[0])
	styles, scripts := between(page, "<style>", "</style>"), between(page, "<script>", "</script>")
	if len(styles) != 1 || len(scripts) != 1 || len(scripts[0]) < 1000 {
		t.Fatalf("%d styles, %d scripts", len(styles), len(scripts))
	}
	want := fmt.Sprintf("default-src 'none'; style-src '%s'; script-src '%s'; base-uri 'none'; form-action 'none'", hash(styles[0]), hash(scripts[0]))
	if policy != want {
		t.Errorf("got  %s\nwant %s", policy, want)
	}
	if m := regexp.MustCompile(`(?i)https?:|@import|url\(|unsafe| src=`).FindString(page); m != "" {
		t.Errorf("the page has %q", m)
	}
}

func TestAPageOfNothingIsNotWritten(t *testing.T) {
	var b bytes.Buffer
	if err := WriteRun(&b, each(nil)); !errors.Is(err, ErrNoRecords) || b.Len() > 0 {
		t.Errorf("%v, %d bytes", err, b.Len())
	}
	broken := errors.New("broken")
	if err := WriteRun(&b, func(yield func(audit.Record, error) bool) { yield(audit.Record{}, broken) }); !errors.Is(err, broken) || b.Len() > 0 {
		t.Errorf("%v, %d bytes", err, b.Len())
	}
}

// Whatever a skill does, the page stays of a size that a browser shows, and says what it lacks.
func TestAFloodIsBounded(t *testing.T) {
	worst := strings.Repeat(`"<&'`, 1000)
	details := []audit.Detail{audit.Started{Command: []string{"flood"}}}
	for i := range 30_000 {
		details = append(details, audit.File{PID: 2, Op: "open", Path: fmt.Sprintf("/%d%s", i, worst), Outcome: audit.Outcome{Verdict: audit.Allowed}})
	}
	for i := range 15_000 {
		details = append(details, audit.Syscall{PID: i, Name: fmt.Sprintf("call%d", i), Outcome: denied(worst)})
	}
	details = append(details, audit.Connection{Op: "connect", Proto: "tcp", Address: "192.0.2.7", Port: 443, Outcome: audit.Outcome{Verdict: audit.Allowed}}, audit.Ended{Verdict: "exited"})
	run := ofRun(t, details...)
	all := records("r", details...)
	findings := make([]scan.Finding, 2000)
	for i := range findings {
		findings[i] = scan.Finding{Rule: worst, Title: worst, Description: fmt.Sprint(i) + worst, Remediation: worst, Snippet: worst, File: worst, Run: "r", Severity: scan.High, Evidence: all[len(all)-2 : len(all)-1]}
	}
	compared := make([]scan.Difference, 5000)
	for i := range compared {
		compared[i] = scan.Difference{Key: worst, Value: worst}
	}
	whole := ofScan(t, &scan.Report{Runs: []scan.Run{{ID: "r", Events: all}}, Findings: findings, Compared: compared, Unobserved: slices.Repeat([]string{worst}, 1000), Incomplete: slices.Repeat([]string{worst}, 1000)})
	for name, page := range map[string]string{"run": run, "scan": whole} {
		if len(page) > 12<<20 {
			t.Errorf("%s: %d bytes", name, len(page))
		}
		rows := strings.Count(page, "<li id=")
		if said := number(rows) + " of 45,003 events are shown. Left out: "; rows < 400 || rows > maxEvents || !strings.Contains(page, said) {
			t.Errorf("%s: %d rows, and it does not say %q", name, rows, said)
		}
		for _, want := range []string{"connect tcp 192.0.2.7:443", ">call0<", "exited, exit code 0", " refusals more are not in this list"} {
			if !strings.Contains(page, want) {
				t.Errorf("%s: the page does not have %q", name, want)
			}
		}
	}
	if !strings.Contains(whole, " findings more are not in this page") || !strings.Contains(whole, " differences more ") || !strings.Contains(whole, " lines more ") {
		t.Error("the scan's page does not say what it lacks")
	}
}

// Each link of a page leads somewhere in it, and no ID is there twice.
func TestLinksLeadSomewhere(t *testing.T) {
	first := records("one", audit.Started{Command: []string{"a"}}, audit.Exec{PID: 2, Path: "/bin/sh", Outcome: audit.Outcome{Verdict: audit.Allowed}}, audit.Layer{Layer: "root"}, audit.Ended{Verdict: "exited"})
	second := records("two", audit.Started{Command: []string{"b"}}, audit.Syscall{Name: "bpf", Outcome: denied("none: no")})
	page := ofScan(t, &scan.Report{
		Runs: []scan.Run{{ID: "one", Events: first}, {ID: "two", Events: second}},
		Findings: []scan.Finding{
			{Title: "a", Run: "one", Evidence: first}, {Title: "b", Run: "two", Description: "x", Evidence: second}, {Title: "c", Run: "three", Evidence: records("three", audit.Started{})},
		},
	})
	ids := map[string]int{}
	for _, id := range between(page, ` id="`, `"`) {
		ids[id]++
		if ids[id] > 1 {
			t.Errorf("%s is there twice", id)
		}
	}
	links := between(page, `href="`, `"`)
	for _, link := range links {
		if ids[strings.TrimPrefix(link, "#")] != 1 {
			t.Errorf("%s leads nowhere", link)
		}
	}
	// Both runs have a record 2: each finding's evidence is its own run's.
	if !slices.Contains(links, "#e1-2") || !slices.Contains(links, "#e2-2") || !slices.Contains(links, "#run-2") {
		t.Errorf("the links are %q", links)
	}
}
