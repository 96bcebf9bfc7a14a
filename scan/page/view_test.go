package page

import (
	"fmt"
	"strings"
	"testing"

	"skillbox/audit"
	"skillbox/scan"
)

func TestProcessesStandBelowTheirParents(t *testing.T) {
	went := audit.Outcome{Verdict: audit.Allowed}
	start := func(pid, parent int, words string) audit.Exec {
		return audit.Exec{PID: pid, Parent: parent, Path: "/bin/" + strings.Fields(words)[0], Argv: strings.Fields(words), Outcome: went}
	}
	for _, c := range []struct {
		name    string
		details []audit.Detail
		want    string
	}{
		{"a tree", []audit.Detail{start(2, 1, "sh a"), start(3, 2, "curl x"), start(4, 2, "sh"), start(5, 4, "base64"), start(6, 2, "ls")}, "0 2 sh a, 1 3 curl x, 1 4 sh, 2 5 base64, 1 6 ls"},
		{"another program", []audit.Detail{start(2, 1, "sh"), start(2, 1, "python3")}, "0 2 sh → python3"},
		{"an id used again", []audit.Detail{start(2, 1, "sh"), start(3, 2, "ls"), start(4, 2, "make"), start(3, 4, "cc")}, "0 2 sh, 1 3 ls, 1 4 make, 2 3 cc"},
		{"a circle", []audit.Detail{start(2, 3, "a"), start(3, 2, "b"), start(2, 3, "a"), start(4, 4, "own")}, "0 2 a → a, 1 3 b, 0 4 own"},
		{"refused", []audit.Detail{start(2, 1, "sh"), audit.Exec{PID: 2, Path: "/bin/su", Outcome: denied("")}}, "0 2 sh [1 refused]"},
		{"workers", []audit.Detail{
			start(2, 1, "sh"), audit.File{PID: 3, Outcome: went}, audit.File{PID: 4, Outcome: went}, audit.Syscall{PID: 5, Outcome: denied("")}, start(6, 2, "ls"),
		}, "0 2 sh, 1 6 ls, 0 3–5  [2 file events · 1 call · 1 refused]"},
	} {
		b := newBuilder(nil)
		r := b.run(&scan.Run{})
		for _, e := range records("r", c.details...) {
			r.add(e)
		}
		list, more := r.tree.list(nil)
		var got []string
		for _, p := range list {
			one := fmt.Sprintf("%d %s %s", p.Depth, p.PIDs, p.Command.Head)
			if p.Sums != "" {
				one += " [" + p.Sums + "]"
			}
			got = append(got, one)
		}
		if strings.Join(got, ", ") != c.want || more != 0 {
			t.Errorf("%s: got  %s, %d more\nwant %s", c.name, strings.Join(got, ", "), more, c.want)
		}
	}
}

// A skill that forks ever deeper gets a tree that a browser can show.
func TestADeepTreeIsBounded(t *testing.T) {
	var details []audit.Detail
	for i := range 20_000 {
		details = append(details, audit.Exec{PID: i + 2, Parent: i + 1, Path: "/bin/sh", Outcome: audit.Outcome{Verdict: audit.Allowed}})
	}
	page := ofRun(t, details...)
	if n := len(between(strings.Join(between(page, `<ol class="processes">`, "</ol>"), ""), "<li", ">")); n != maxProcesses {
		t.Errorf("%d processes are shown", n)
	}
	if !strings.Contains(page, " processes more are not in this list.") || strings.Contains(page, `class="d13`) {
		t.Error("it is not said that there are more, or one is too deep")
	}
}

// What was refused is told once, first what somebody can do something about.
func TestRefusalsAreToldOnce(t *testing.T) {
	name := audit.DNS{Name: "a.example", Type: "A", Outcome: audit.Outcome{Verdict: audit.Denied, Error: "NXDOMAIN", Layer: "network", Remedy: "network: …", Count: 3}}
	call := audit.Syscall{Name: "bpf", Outcome: denied("none: loads code")}
	b := newBuilder(nil)
	r := b.run(&scan.Run{})
	for _, e := range records("r", call, name, call, name, audit.Syscall{Name: "open", Outcome: audit.Outcome{Verdict: audit.Failed}}) {
		r.add(e)
	}
	v := b.finish()
	if len(v.Refused) != 2 || v.Refused[0].What.Head != "a.example A" || v.Refused[0].Count != 6 || v.Refused[1].Never != "loads code" || v.Refused[1].Remedy.Head != "" || len(v.Refused[1].Rows) != 2 {
		t.Errorf("%+v", v.Refused)
	}
}

// A rule's findings stand together, and whether a scan saw everything is said above them.
func TestVerdicts(t *testing.T) {
	for _, c := range []struct {
		name   string
		report scan.Report
		want   string
	}{
		{"nothing", scan.Report{Runs: make([]scan.Run, 2)}, "none No findings: Nothing that it did in 2 runs speaks against it. That is what was seen, and no promise."},
		{"not run", scan.Report{}, "info Not run: Nothing is known of what it does."},
		{"not wholly", scan.Report{Runs: make([]scan.Run, 1), Incomplete: []string{"Too much."}}, "high Incomplete: Nothing was found in 1 run. It could not be scanned wholly: Too much."},
		{"found", scan.Report{Runs: make([]scan.Run, 1), Findings: []scan.Finding{{Severity: scan.Low}, {Severity: scan.Critical}}}, "critical Critical: 2 findings in 1 run."},
		{"found, not wholly", scan.Report{Findings: []scan.Finding{{Severity: scan.Info}}, Incomplete: []string{"A."}}, "info Info: 1 finding in 0 runs. It could not be scanned wholly: A."},
	} {
		got, line := verdict(c.report.Worst(), &c.report)
		if text := got.Shape + " " + got.Word + ": " + line; text != c.want {
			t.Errorf("%s: got  %s\nwant %s", c.name, text, c.want)
		}
	}
	findings := make([]scan.Finding, 9)
	for i := range findings {
		findings[i] = scan.Finding{Rule: "A", Description: fmt.Sprint(i)}
	}
	findings[3].Rule = "B"
	v := newBuilder(nil).scan(&scan.Report{Findings: findings})
	if len(v.Findings) != 2 || v.Findings[0].Number != "8 findings" || len(v.Findings[0].Items) != foldAfter || v.Findings[1].Rule != "B" {
		t.Errorf("%+v", v.Findings)
	}
}

func TestEventsAreToldInWords(t *testing.T) {
	for want, d := range map[string]audit.Detail{
		"curl -s x | /usr/bin/curl":             audit.Exec{Path: "/usr/bin/curl", Argv: []string{"curl", "-s", "x"}},
		"/bin/x | as the skill claims: argv":    audit.Exec{Path: "/bin/x", Claimed: []string{"argv"}},
		"rename /a → /b | ":                     audit.File{Op: "rename", Path: "/a", To: "/b"},
		"open /a | O_RDONLY":                    audit.File{Op: "open", Path: "/a", Flags: []string{"O_RDONLY"}},
		"bpf | ":                                audit.Syscall{Name: "bpf"},
		"a.example AAAA | 2001:db8::1 · 1.5 ms": audit.DNS{Name: "a.example", Type: "AAAA", Addresses: []string{"2001:db8::1"}, DurationMS: 1.5},
		"connect tcp a.example [2001:db8::1]:443 | 1.5 KiB sent, 0 B received": audit.Connection{Op: "connect", Proto: "tcp", Name: "a.example", Address: "2001:db8::1", Port: 443, BytesOut: 1536},
		"connect tcp a.example:80 | ":                                          audit.Connection{Op: "connect", Proto: "tcp", Name: "a.example", Port: 80},
		"connect unix /run/x.sock | ":                                          audit.Connection{Op: "connect", Proto: "unix", Address: "/run/x.sock"},
		"timeout | at 1.5 s":                                                   audit.Limit{Limit: "timeout", Value: 1500},
		"resources.pids | at 64":                                               audit.Limit{Limit: "resources.pids", Value: 64},
		"resources.memory | at 67,108,864 (64.0 MiB)":                          audit.Limit{Limit: "resources.memory", Value: 64 << 20},
		"signaled, exit code 137, SIGKILL, after 2 min 5 s | ":                 audit.Ended{Verdict: "signaled", ExitCode: 137, Signal: "SIGKILL", DurationMS: 125_000},
		"a | the subject":                                                      audit.Output{Name: "a", Bytes: 0},
	} {
		if strings.HasSuffix(want, "subject") {
			d = audit.Syscall{Name: "a", Outcome: audit.Outcome{Subject: "the subject"}}
		}
		r := rowOf(&audit.Event{Detail: d})
		if got := r.What.Head + " | " + r.Note; got != want {
			t.Errorf("%T: got %q, want %q", d, got, want)
		}
	}
}
