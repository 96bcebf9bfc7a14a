package main

import (
	"bytes"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
)

// program builds skillbox and what it becomes, whose help the page is made of.
func program(t *testing.T) string {
	t.Helper()
	bin := t.TempDir()
	if out, err := exec.Command("go", "build", "-o", bin, "../../cmd/skillbox", "../../cmd/skillbox-scan", "../../cmd/skillbox-mcp", "../../cmd/skillbox-image").CombinedOutput(); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	return bin
}

// offered asks as a shell does what could be written after these words.
func offered(t *testing.T, bin string, words ...string) []string {
	t.Helper()
	var out bytes.Buffer
	c := exec.Command(filepath.Join(bin, "skillbox"), append([]string{"__completeNoDesc"}, words...)...)
	c.Stdout = &out
	if err := c.Run(); err != nil {
		t.Fatal(err)
	}
	lines := strings.Split(strings.TrimSpace(out.String()), "\n")
	return lines[:len(lines)-1] // the last is the directive
}

// commandsOf are all that a shell is offered below these words, each as the words to it.
func commandsOf(t *testing.T, bin string, words ...string) [][]string {
	t.Helper()
	var all [][]string
	for _, name := range offered(t, bin, append(slices.Clone(words), "")...) {
		if name == "help" || strings.HasPrefix(name, "-") {
			continue
		}
		words := append(slices.Clone(words), name)
		usage := regexp.MustCompile("Usage:\n  skillbox " + strings.Join(words, " ") + "[ \n]")
		if out, err := exec.Command(filepath.Join(bin, "skillbox"), append(words, "--help")...).Output(); err != nil || !usage.Match(out) {
			continue // a value, such as the name of a shell
		}
		if below := commandsOf(t, bin, words...); len(below) > 0 {
			all = append(all, below...)
		} else {
			all = append(all, words)
		}
	}
	return all
}

func TestThePageHasEveryFlagOfEveryCommand(t *testing.T) {
	bin, out := program(t), t.TempDir()
	t.Chdir("../..")
	if err := write(bin, out, footer{"v1.2.3", "2026-11-22"}); err != nil {
		t.Fatal(err)
	}
	text, err := os.ReadFile(filepath.Join(out, "skillbox.1"))
	if err != nil {
		t.Fatal(err)
	}
	page := strings.ReplaceAll(string(text), `\-`, "-")
	seen := 0
	for _, words := range commandsOf(t, bin) {
		_, section, ok := strings.Cut(page, `.SS "skillbox `+strings.Join(words, " ")+"\"\n")
		if !ok {
			t.Errorf("skillbox %s has no section", strings.Join(words, " "))
			continue
		}
		section, _, _ = strings.Cut(section, "\n.S")
		for _, flag := range offered(t, bin, append(slices.Clone(words), "--")...) {
			if flag = strings.TrimSuffix(flag, "="); flag == "--help" {
				continue
			}
			seen++
			if !regexp.MustCompile(`(?m)^\\fB(-\w, )?` + flag + `( .*)?\\fP$`).MatchString(section) {
				t.Errorf("skillbox %s: %s has no entry", strings.Join(words, " "), flag)
			}
		}
	}
	if seen < 20 {
		t.Errorf("a shell was offered %d flags; exec alone has more", seen)
	}
}

func TestDocumentsBecomePages(t *testing.T) {
	page, err := documentPage("x", "7", "about x", "# X\n\nA *b* **c** `-d` [e](f).\n\n- one\n  more\n- .two\n\n| k | means |\n|---|---|\n| `a` | A. |\n\n```\n.code 'x'\n```\n", footer{"v1", "2026-11-22"})
	if err != nil {
		t.Fatal(err)
	}
	const want = `.TH "X" 7 "2026-11-22" "skillbox v1"
.SH "NAME"
x \- about x
.SH "DESCRIPTION"
A \fIb\fP \fBc\fP \fB\-d\fP e.
.IP \(bu 4
one
more
.IP \(bu 4
\&.two
.TP
\fBa\fP
A.
.PP
.RS
.EX
\&.code \(aqx\(aq
.EE
.RE
`
	if page != want {
		t.Errorf("got %s", page)
	}
	for _, text := range []string{"no title", "# X\n\n#### deep", "# X\n\na `b", "# X\n\n| a | b |\n|---|---|\n| c |"} {
		if _, err := documentPage("x", "7", "x", text, footer{}); err == nil {
			t.Errorf("%q is a page", text)
		}
	}
}
