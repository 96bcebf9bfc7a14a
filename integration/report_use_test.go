//go:build linux

package integration

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"skillbox/audit"
	"skillbox/scan"
)

// count is what the filter says, and how many rows are seen.
func (p *tab) count() (said string, seen int) {
	p.t.Helper()
	return eval[string](p, `document.getElementById("count").textContent`), eval[int](p, `[...document.querySelectorAll(".events > li")].filter((e) => e.checkVisibility()).length`)
}

func (p *tab) counts(step, said string, seen int) {
	p.t.Helper()
	var s string
	var n int
	for end := time.Now().Add(patience(5 * time.Second)); time.Now().Before(end); time.Sleep(20 * time.Millisecond) {
		if s, n = p.count(); s == said && n == seen {
			return
		}
	}
	p.t.Errorf("%s: %q with %d rows, want %q with %d", step, s, n, said, seen)
}

// focus is what has the focus, in a word, and whether that can be seen.
func (p *tab) focus() string {
	p.t.Helper()
	return eval[string](p, `(() => {
		const e = document.activeElement, mark = e.matches(".chip input") ? e.nextElementSibling : e;
		const seen = getComputedStyle(mark).outlineStyle !== "none" ? "" : " without a mark";
		return (e.id || e.value || e.textContent).trim().slice(0, 40) + seen;
	})()`)
}

// until presses Tab as a person would, and fails if what is looked for does not come.
func (p *tab) until(want string) {
	p.t.Helper()
	var passed []string
	for range 120 {
		p.press("Tab")
		at := p.focus()
		if at == want {
			return
		}
		passed = append(passed, at)
	}
	p.t.Fatalf("Tab does not lead to %q, but to %q", want, passed)
}

func areFiltered(t *testing.T, b *browser) {
	file := written(t, hostileScan(t))
	for _, width := range []int{1280, 390} {
		t.Run(fmt.Sprint(width), func(t *testing.T) {
			p := b.open(t, file, width, "light")
			defer p.close()
			p.counts("at first", "33 events", 33)
			p.click(`input[value="exec"]`)
			p.counts("one kind", "7 of 33 events", 7)
			p.click(`input[value="syscall"]`)
			p.counts("two kinds", "11 of 33 events", 11)
			p.click(`input[name="verdict"][value="denied"]`)
			p.counts("refused", "4 of 33 events", 4)
			p.click("#find")
			p.write("PTRACE")
			p.counts("a word", "1 of 33 events", 1)
			p.click("#clear")
			p.counts("cleared", "33 events", 33)
			// An evidence link leads to its row, also when the filter hides it.
			p.click(`input[value="dns"]`)
			p.click(`.evidence a`)
			p.counts("evidence", "33 events", 33)
			row := eval[string](p, `(() => { const e = document.querySelector(":target"), r = e.getBoundingClientRect(); return e.querySelector(".what").textContent + (r.top > 0 && r.bottom < innerHeight ? "" : " out of sight") })()`)
			if row != "open /home/skill/.aws/credentials" {
				t.Errorf("the evidence is %q", row)
			}
			p.quiet()
		})
	}
}

func areUsedByKeyboard(t *testing.T, b *browser) {
	p := b.open(t, written(t, hostileScan(t)), 1280, "light")
	defer p.close()
	p.press("Tab")
	if at := p.focus(); at != "Skip to findings" {
		t.Errorf("Tab leads to %q first", at)
	}
	p.press("Enter")
	if at := p.focus(); !strings.HasPrefix(at, "main") {
		t.Errorf("the link skips to %q", at)
	}
	// The first refusal's remedy, unfolded and copied.
	p.call("Browser.grantPermissions", map[string]any{"permissions": []string{"clipboardReadWrite", "clipboardSanitizedWrite"}}, nil)
	p.until("Remedy")
	p.press("Enter")
	p.until("Copy")
	p.press("Enter")
	patiently(t, patience(5*time.Second), "the button does not say that it copied", func() bool { return p.focus() == "Copied" })
	if got := eval[string](p, "navigator.clipboard.readText()"); got != "filesystem: {read: [/etc/shadow]}" {
		t.Errorf("copied %q", got)
	}
	p.until("find")
	p.write("curl")
	p.counts("a word", "2 of 33 events", 2)
	p.until("clear")
	p.press("Enter")
	p.counts("cleared", "33 events", 33)
	if at := p.focus(); at != "find" {
		t.Errorf("after clearing, the focus is on %q", at)
	}
	p.until("file")
	p.press(" ")
	p.counts("a kind", "10 of 33 events", 10)
	p.until("all")
	p.press("ArrowRight")
	p.counts("an outcome", "1 of 33 events", 1)
	p.quiet()
}

func giveRemedies(t *testing.T, b *browser) {
	p := b.open(t, written(t, hostileScan(t)), 1280, "light")
	defer p.close()
	p.call("Browser.grantPermissions", map[string]any{"permissions": []string{"clipboardReadWrite", "clipboardSanitizedWrite"}}, nil)
	p.click(`.events .denied:has(.remedy) summary`)
	p.click(`.events .remedy[open] button`)
	patiently(t, patience(5*time.Second), "the button does not say that it copied", func() bool {
		return eval[string](p, `document.querySelector(".events .remedy[open] button").textContent`) == "Copied"
	})
	if got := eval[string](p, "navigator.clipboard.readText()"); got != "filesystem: {read: [/etc/shadow]}" {
		t.Errorf("copied %q", got)
	}
	// Where the browser gives no clipboard, the text is selected.
	eval[int](p, `navigator.clipboard.writeText = () => Promise.reject(new Error()), 1`)
	p.click(`.events .remedy[open] button`)
	patiently(t, patience(5*time.Second), "the remedy is not selected", func() bool {
		return eval[string](p, "getSelection().toString()") == "filesystem: {read: [/etc/shadow]}"
	})
	p.quiet()
}

// Without its script the page is text to be read; on paper everything is unfolded.
func areReadOtherwise(t *testing.T, b *browser) {
	file := written(t, hostileScan(t))
	p := b.openAs(t, file, 1280, "light", false)
	if _, seen := p.count(); seen != 33 {
		t.Errorf("%d events are seen without the script", seen)
	}
	if eval[bool](p, `document.getElementById("filter").checkVisibility()`) {
		t.Error("a filter is seen that does nothing")
	}
	p.click(`.refused summary`)
	if !eval[bool](p, `document.querySelector(".refused code").checkVisibility()`) {
		t.Error("the remedy does not unfold")
	}
	p.quiet()
	p.close()

	p = b.open(t, file, 1280, "dark")
	p.call("Emulation.setEmulatedMedia", map[string]any{"media": "print"}, nil)
	got := eval[[]any](p, `[
		getComputedStyle(document.body).backgroundColor, document.getElementById("filter").checkVisibility(),
		[...document.querySelectorAll(".remedy code")].filter((e) => !e.checkVisibility({contentVisibilityAuto: true}) || !e.getBoundingClientRect().height).length,
	]`)
	if fmt.Sprint(got) != "[rgb(255, 255, 255) false 0]" {
		t.Errorf("on paper: background, filter, folded remedies are %v", got)
	}
	p.close()
}

// Ten thousand events are shown at once, and filtered while one types.
func mayBeLarge(t *testing.T, b *browser) {
	s := newStory(t, "8c1f4be0a7d93325", "flood")
	s.begin("python3", "main.py")
	for i := range 12_000 {
		s.at(3+i/10, touched(2, "open", fmt.Sprintf("/tmp/%d", i), went, "O_RDONLY"))
	}
	s.at(1300, touched(2, "open", "/etc/shadow", never("open", "EACCES", "it is somebody else’s")))
	s.at(1301, audit.Ended{Verdict: "exited"})
	records := s.records(t)
	file := written(t, &scan.Report{Skill: s.skill, Runs: []scan.Run{{ID: s.run, Events: records}}, Findings: []scan.Finding{{Severity: scan.High, Title: "The last", Run: s.run, Description: "x", Evidence: records[len(records)-3 : len(records)-2]}}})
	began := time.Now()
	p := b.open(t, file, 1280, "light")
	defer p.close()
	p.quiet()
	if said, _ := p.count(); said != "10,000 events" {
		t.Errorf("the page says %q", said)
	}
	if left := eval[string](p, `document.querySelector("#timeline .left").textContent`); left != "10,000 of 12,004 events are shown. Left out: 2,004 (file, allowed)." {
		t.Errorf("the page says %q", left)
	}
	p.click(`.evidence a`)
	if row := eval[string](p, `document.querySelector("li:target .what").textContent`); row != "open /tmp/11999" {
		t.Errorf("the evidence is %q", row)
	}
	p.click("#find")
	p.write("shadow")
	p.counts("a word", "1 of 10,000 events", 1)
	if took := time.Since(began); took > patience(time.Minute) {
		t.Errorf("it took %v", took)
	}
}
