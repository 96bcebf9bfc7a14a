//go:build linux

package integration

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"skillbox/audit"
	"skillbox/helper"
)

// report runs a command that writes a page, and returns the page's file and the exit code.
func (m mode) report(t *testing.T, words ...string) (file string, code int) {
	t.Helper()
	file = filepath.Join(m.dir(t), "report.html")
	cmd := m.command(append(words, "--html", file)...)
	out, err := cmd.CombinedOutput()
	if cmd.ProcessState == nil {
		t.Fatal(err)
	}
	code = cmd.ProcessState.ExitCode()
	if _, err := os.Stat(file); err != nil {
		t.Fatalf("exit %d, no page: %v\n%s", code, err, out)
	}
	return file, code
}

// What the log holds of a run that tried much and of one that did not, and what a scan found, as pages made by the commands.
func TestPagesOfRealRuns(t *testing.T) {
	asRootAndRootless(t, func(t *testing.T, m mode) {
		b := startBrowser(t)
		bundle := m.example(t, "hostile")
		t.Run("run", func(t *testing.T) {
			r := call{mode: m, flags: []string{"--params", `{"only": ["mount", "keyctl", "unshare-user", "read-ssh"]}`}, bundle: bundle}.run(t)
			wantVerdict(t, r, helper.Exited, 0)
			what := map[string]bool{}
			var times int64
			for _, e := range recorded(t, m, r.ID) {
				if o := e.Outcome(); o != nil && o.Verdict == audit.Denied {
					what[e.What()] = true
					times += max(o.Count, 1)
				}
			}
			file, code := m.report(t, "audit", "report", r.ID)
			if code != 0 || len(what) < 4 {
				t.Fatalf("exit %d, refused %v", code, what)
			}
			p := b.open(t, file, 1280, "light")
			defer p.close()
			p.quiet()
			p.fits()
			if got, want := eval[string](p, `document.querySelector(".word").textContent`), fmt.Sprintf("%d attempts refused", times); got != want {
				t.Errorf("the page says %q, want %q", got, want)
			}
			shown := eval[[]string](p, `[...document.querySelectorAll(".refused .what")].map((e) => e.textContent)`)
			for one := range what {
				if !strings.Contains(strings.Join(shown, "\n"), one) {
					t.Errorf("%q is not among %q", one, shown)
				}
			}
			if none := eval[int](p, `[...document.querySelectorAll(".refused > li")].filter((e) => !e.querySelector(".remedy, .never")).length`); none > 0 {
				t.Errorf("%d refusals have no remedy and no reason", none)
			}
			if n := eval[int](p, `document.querySelectorAll("#findings").length`); n != 0 {
				t.Error("the page of a run has findings")
			}
		})
		t.Run("benign", func(t *testing.T) {
			r := call{mode: m, flags: []string{"--params", `{"text": "a b a"}`}, bundle: m.example(t, "word-count")}.run(t)
			wantVerdict(t, r, helper.Exited, 0)
			file, _ := m.report(t, "audit", "report", r.ID)
			p := b.open(t, file, 390, "dark")
			defer p.close()
			p.quiet()
			p.fits()
			if got := eval[string](p, `document.querySelector(".word").textContent`); got != "Nothing refused" {
				t.Errorf("the page says %q", got)
			}
		})
		t.Run("scan", func(t *testing.T) {
			file, code := m.report(t, "scan", "--runtime", bundle, "--params", `{"only": ["mount", "read-ssh", "write-root"]}`)
			if code != 1 {
				t.Errorf("exit %d", code)
			}
			p := b.open(t, file, 1280, "light")
			defer p.close()
			p.quiet()
			p.fits()
			p.legible()
			if got := eval[string](p, `document.querySelector(".word").textContent`); got != "High" && got != "Critical" {
				t.Errorf("the page says %q", got)
			}
			p.click(`.evidence a`)
			if row := eval[string](p, `document.querySelector("li:target").dataset.k`); row == "" {
				t.Error("the evidence leads nowhere")
			}
		})
	})
}

func TestNoPageIsWrittenOfNothing(t *testing.T) {
	asRootAndRootless(t, func(t *testing.T, m mode) {
		r := call{mode: m, words: []string{"/bin/true"}}.run(t)
		dir := m.dir(t)
		file := filepath.Join(dir, "report.html")
		for _, c := range []struct {
			words []string
			code  int
			says  string
		}{
			{[]string{"none", "--html", file}, 1, `the log has no run "none"`},
			{[]string{r.ID}, helper.CodeFailed, "nothing says where the page is to be written"},
			{[]string{r.ID, "--html", file, "--dir", dir + "/none"}, helper.CodeFailed, "there is no audit log"},
			{[]string{r.ID, "--html", dir + "/none/report.html"}, helper.CodeFailed, "no such file or directory"},
		} {
			cmd := m.command(append([]string{"audit", "report"}, c.words...)...)
			out, _ := cmd.CombinedOutput()
			if code := cmd.ProcessState.ExitCode(); code != c.code || !strings.Contains(string(out), c.says) {
				t.Errorf("%v: exit %d, %s", c.words, code, out)
			}
		}
		if left, err := os.ReadDir(dir); err != nil || len(left) > 0 {
			t.Errorf("%v, %v", left, err)
		}
		// Of something, one is.
		file, code := m.report(t, "audit", "report", r.ID)
		text, err := os.ReadFile(file)
		if err != nil || code != 0 || !strings.Contains(string(text), r.ID) || !strings.Contains(string(text), "Nothing was refused.") {
			t.Errorf("exit %d, %v, %d bytes", code, err, len(text))
		}
	})
}
