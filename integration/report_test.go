//go:build linux

package integration

import (
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"skillbox/scan"
	"skillbox/scan/page"
)

// written is the file of a scan's page.
func written(t *testing.T, r *scan.Report) string {
	t.Helper()
	file := filepath.Join(t.TempDir(), "report.html")
	f, err := os.Create(file)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	if err := page.Write(f, r); err != nil {
		t.Fatal(err)
	}
	return file
}

// quiet fails if the page had anything to complain about, asked for anything but itself or opened a dialog.
func (p *tab) quiet() {
	p.t.Helper()
	for _, method := range []string{"Runtime.consoleAPICalled", "Runtime.exceptionThrown", "Log.entryAdded", "Page.javascriptDialogOpening"} {
		for _, e := range p.events(method) {
			p.t.Errorf("%s: %.500s", method, e)
		}
	}
	if requests := p.events("Network.requestWillBeSent"); len(requests) != 1 || !strings.Contains(requests[0], "report.html") {
		p.t.Errorf("requests: %.500s", requests)
	}
}

// fits fails if something is wider than the window, folded or not.
func (p *tab) fits() {
	p.t.Helper()
	for _, open := range []bool{false, true} {
		got := eval[[]string](p, fmt.Sprintf(`(() => {
			document.querySelectorAll("details").forEach((d) => { if (%t) d.open = true });
			const width = document.documentElement.clientWidth, wide = [];
			if (document.documentElement.scrollWidth > width) wide.push("the page: " + document.documentElement.scrollWidth);
			for (const e of document.querySelectorAll("body *:not(.skip, .hide, thead, thead *, svg *)")) {
				const r = e.getBoundingClientRect();
				if (r.width && (r.right > width + 0.5 || r.left < -0.5)) wide.push(e.tagName + "." + e.className + ": " + r.left + " to " + r.right);
			}
			return wide.slice(0, 5);
		})()`, open))
		if len(got) > 0 {
			p.t.Errorf("with all unfolded %t, wider than the window: %q", open, got)
		}
	}
}

// legible fails if a text that is seen has less contrast than WCAG 2.2 asks for (1.4.3: 4.5 to 1). It returns the background.
func (p *tab) legible() string {
	p.t.Helper()
	got := eval[struct {
		Texts int
		Least float64
		Where string
		Paper string
	}](p, `(() => {
		const parts = (c) => c.match(/[\d.]+/g).map(Number);
		const light = (c) => { const [r, g, b] = parts(c).map((v) => (v /= 255) <= 0.04045 ? v / 12.92 : ((v + 0.055) / 1.055) ** 2.4); return 0.2126 * r + 0.7152 * g + 0.0722 * b };
		const under = (e) => { for (; e; e = e.parentElement) { const c = getComputedStyle(e).backgroundColor; if (parts(c)[3] !== 0) return c } };
		const walk = document.createTreeWalker(document.body, NodeFilter.SHOW_TEXT);
		const got = {texts: 0, least: 99, where: "", paper: getComputedStyle(document.body).backgroundColor};
		while (walk.nextNode()) {
			const e = walk.currentNode.parentElement;
			if (!walk.currentNode.data.trim() || !e.checkVisibility() || e.closest("script")) continue;
			const [a, b] = [light(getComputedStyle(e).color), light(under(e))].sort((a, b) => b - a);
			got.texts++;
			if ((a + 0.05) / (b + 0.05) < got.least) [got.least, got.where] = [(a + 0.05) / (b + 0.05), e.outerHTML.slice(0, 200)];
		}
		return got;
	})()`)
	if got.Texts < 50 || got.Least < 4.5 {
		p.t.Errorf("of %d texts one has a contrast of %.2f: %s", got.Texts, got.Least, got.Where)
	}
	return got.Paper
}

// One browser shows all pages that are made here.
func TestReports(t *testing.T) {
	b := startBrowser(t)
	for _, c := range []struct {
		claim string
		test  func(*testing.T, *browser)
	}{
		{"are readable", areReadable},
		{"run and restyle nothing of a skill's", runNothing},
		{"are under a policy", areUnderAPolicy},
		{"are filtered by click", areFiltered},
		{"are used by keyboard", areUsedByKeyboard},
		{"give remedies to be copied", giveRemedies},
		{"are read without a script and on paper", areReadOtherwise},
		{"may be large", mayBeLarge},
	} {
		t.Run(c.claim, func(t *testing.T) { c.test(t, b) })
	}
}

// In each width and light. SKILLBOX_SHOTS names a directory for pictures.
func areReadable(t *testing.T, b *browser) {
	for name, report := range map[string]*scan.Report{"hostile": hostileScan(t), "benign": benignScan(t)} {
		file := written(t, report)
		papers := map[string]bool{}
		for _, width := range []int{1280, 390} {
			for _, media := range []string{"light", "dark"} {
				t.Run(fmt.Sprintf("%s %d %s", name, width, media), func(t *testing.T) {
					p := b.open(t, file, width, media)
					defer p.close()
					p.quiet()
					if dir := os.Getenv("SKILLBOX_SHOTS"); dir != "" { // pictures for people who change the page
						p.shot(filepath.Join(dir, fmt.Sprintf("%s-%d-%s.png", name, width, media)))
					}
					p.fits()
					papers[p.legible()] = true
					if n := eval[int](p, `document.getAnimations().length + [...document.querySelectorAll("*")].filter((e) => getComputedStyle(e).transitionDuration !== "0s").length`); n != 0 {
						t.Errorf("%d things move", n)
					}
				})
			}
		}
		if len(papers) != 2 {
			t.Errorf("light and dark have the backgrounds %v", papers)
		}
	}
}

// What a skill says stands in the page as the log has it, and does nothing.
func runNothing(t *testing.T, b *browser) {
	report := attackScan(t)
	file := written(t, report)
	for _, width := range []int{1280, 390} {
		t.Run(fmt.Sprint(width), func(t *testing.T) {
			p := b.open(t, file, width, "light")
			defer p.close()
			p.quiet()
			p.fits()
			if width == 1280 {
				p.legible()
			}
			if title := eval[string](p, "document.title"); title != report.Skill.Name+" – skillbox scan" {
				t.Errorf("the title is %q", title)
			}
			odd := eval[[]string](p, `[
				...[...document.querySelectorAll("script, style, img, iframe, object, embed, base, link, form, svg *:not(symbol, path, use)")].slice(0, 9).map((e) => e.tagName),
				...[...document.querySelectorAll("*")].flatMap((e) => [...e.attributes]).filter((a) => /^(on|style$)/i.test(a.name) || a.name === "href" && !/^#[a-z0-9-]*$/.test(a.value)).map((a) => a.name + "=" + a.value),
			]`)
			if fmt.Sprint(odd) != "[STYLE SCRIPT]" {
				t.Errorf("the page has %q", odd)
			}
			text := eval[string](p, "document.body.textContent")
			if m := regexp.MustCompile(`[\x00-\x08\x0b-\x1f\x7f-\x{9f}\x{200b}-\x{200f}\x{2028}-\x{202e}\x{2066}-\x{2069}\x{fffd}]`).FindString(text); m != "" {
				t.Errorf("the page has the character %q", m)
			}
			for _, want := range append(attacks[:9:9], `\u001b[31mred\u001b]0;owned\u0007`, hebrew, `\u202egnp.exe\u2066\u200f\u061c`, `\u0000\xff\xfe one\u000atwo`, strings.Repeat("W", 240), "<b>bold</b>") {
				if !strings.Contains(text, want) {
					t.Errorf("the page does not show %q", want)
				}
			}
			if where := eval[[]string](p, fmt.Sprintf(`(() => {
				const walk = document.createTreeWalker(document.body, NodeFilter.SHOW_TEXT), where = [];
				while (walk.nextNode()) {
					const e = walk.currentNode.parentElement;
					if (walk.currentNode.data.includes(%q) && getComputedStyle(e).unicodeBidi !== "isolate") where.push(e.outerHTML.slice(0, 200));
				}
				return where.slice(0, 5);
			})()`, hebrew)); len(where) > 0 {
				t.Errorf("not isolated from what stands beside it: %q", where)
			}
		})
	}
}

// Even somebody who found a way into the page would not get far.
func areUnderAPolicy(t *testing.T, b *browser) {
	p := b.open(t, written(t, hostileScan(t)), 1280, "light")
	defer p.close()
	p.forget()
	got := eval[[]string](p, `(async () => {
		const got = [];
		addEventListener("securitypolicyviolation", (e) => got.push(e.effectiveDirective));
		const add = (tag, set) => { const e = document.createElement(tag); set(e); document.body.append(e) };
		add("script", (e) => { e.textContent = "document.title = 'owned'" });
		add("style", (e) => { e.textContent = "* { display: none }" });
		add("img", (e) => { e.src = "http://192.0.2.1/x.png" });
		add("div", (e) => { e.setAttribute("style", "color: red") });
		add("base", (e) => { e.href = "http://192.0.2.1/" });
		add("iframe", (e) => { e.src = "data:text/html,x" });
		add("form", (e) => { e.action = "http://192.0.2.1/"; e.submit() });
		await fetch("http://192.0.2.1/").catch(() => got.push("fetch"));
		try { new Function("return 1")() } catch { got.push("eval") }
		await new Promise((r) => setTimeout(r, 500));
		if (document.title.includes("owned") || getComputedStyle(document.body).display === "none") got.push("OWNED");
		return [...new Set(got)].sort();
	})()`)
	want := "[base-uri connect-src eval fetch frame-src img-src script-src script-src-elem style-src-attr style-src-elem]"
	if fmt.Sprint(got) != want {
		t.Errorf("stopped by %v, want %s", got, want)
	}
	if at := eval[string](p, "location.href"); !strings.HasPrefix(at, "file://") {
		t.Errorf("a form led to %s", at)
	}
	for _, r := range p.events("Network.responseReceived") {
		if strings.Contains(r, `"url":"http`) || strings.Contains(r, `"url":"file`) {
			t.Errorf("something was loaded: %.300s", r)
		}
	}
}
