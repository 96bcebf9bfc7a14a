// Package docs checks what the documents say against the code.
package docs

import (
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
)

// tests are the names of all tests in the tree.
func tests(t *testing.T) map[string]bool {
	t.Helper()
	found := map[string]bool{}
	declared := regexp.MustCompile(`(?m)^func (Test[A-Za-z0-9_]+)\(\w+ \*testing\.T\)`)
	err := filepath.WalkDir("..", func(path string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() || !strings.HasSuffix(path, "_test.go") {
			return err
		}
		text, err := os.ReadFile(path)
		for _, m := range declared.FindAllStringSubmatch(string(text), -1) {
			found[m[1]] = true
		}
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	return found
}

// cells are a table row's columns, nil for any other line.
func cells(line string) []string {
	line = strings.TrimSpace(line)
	if !strings.HasPrefix(line, "|") || !strings.HasSuffix(line, "|") || len(line) < 2 {
		return nil
	}
	row := strings.Split(line[1:len(line)-1], "|")
	for i := range row {
		row[i] = strings.TrimSpace(row[i])
	}
	return row
}

// wrongRows says what is wrong with the rows of docs/compatibility.md, and counts them.
func wrongRows(page string, exists map[string]bool) (wrong []string, rows int) {
	header := []string{"what", "state", "test", "notes"}
	named := regexp.MustCompile("`(Test[A-Za-z0-9_]+)`")
	for line := range strings.Lines(page) {
		row := cells(line)
		if row == nil || slices.Equal(row, header) || strings.HasPrefix(row[0], "---") {
			continue
		}
		rows++
		say := func(what string) { wrong = append(wrong, what+": "+strings.TrimSpace(line)) }
		if len(row) != len(header) {
			say("not four columns")
			continue
		}
		names := named.FindAllStringSubmatch(row[2], -1)
		switch {
		case row[0] == "":
			say("nothing named")
		case row[1] != "done" && row[1] != "not yet":
			say("neither done nor not yet")
		case row[1] == "done" && len(names) == 0:
			say("done without a test")
		}
		for _, name := range names {
			if !exists[name[1]] {
				say(name[1] + " does not exist")
			}
		}
	}
	return wrong, rows
}

func TestCompatibilityIsTested(t *testing.T) {
	page, err := os.ReadFile("compatibility.md")
	if err != nil {
		t.Fatal(err)
	}
	wrong, rows := wrongRows(string(page), tests(t))
	for _, w := range wrong {
		t.Errorf("docs/compatibility.md: %s", w)
	}
	t.Logf("%d rows", rows)
	for _, section := range strings.Split(string(page), "\n## ")[1:] {
		if !strings.Contains(section, "\n| what | state | test | notes |\n|---|---|---|---|\n") {
			name, _, _ := strings.Cut(section, "\n")
			t.Errorf("docs/compatibility.md: %s has no table", name)
		}
	}
}

func TestARowWithoutATestIsSeen(t *testing.T) {
	exists := map[string]bool{"TestIt": true}
	for row, wants := range map[string]string{
		"| a | done | `TestIt` | x |":           "",
		"| a | not yet | | waits for b |":       "",
		"| a | done | | |":                      "done without a test",
		"| a | done | TestIt | |":               "done without a test",
		"| a | done | `TestIt`, `TestNot` | |":  "TestNot does not exist",
		"| a | not yet | `TestNot` | |":         "TestNot does not exist",
		"| a | mostly | `TestIt` | |":           "neither done nor not yet",
		"| a | | | |":                           "neither done nor not yet",
		"| | done | `TestIt` | |":               "nothing named",
		"| a | done | `TestIt` | x | y |":       "not four columns",
		"| what | state | test | notes |":       "",
		"no row, but with | done | in the text": "",
	} {
		wrong, _ := wrongRows(row+"\n", exists)
		if got := strings.Join(wrong, "\n"); wants == "" && got != "" || !strings.HasPrefix(got, wants) {
			t.Errorf("%s: %q, wants %q", row, got, wants)
		}
	}
}
