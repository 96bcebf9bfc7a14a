package docs

import (
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"unicode"
)

// anchor is what the forges make of a heading: small letters, digits, hyphens for blanks, and nothing else.
func anchor(heading string) string {
	return strings.Map(func(r rune) rune {
		switch {
		case r == ' ':
			return '-'
		case unicode.IsLetter(r) || unicode.IsDigit(r) || r == '-' || r == '_':
			return unicode.ToLower(r)
		}
		return -1
	}, heading)
}

func anchors(t *testing.T, page string) map[string]bool {
	t.Helper()
	text, err := os.ReadFile(page)
	if err != nil {
		t.Fatal(err)
	}
	found := map[string]bool{}
	for _, m := range regexp.MustCompile(`(?m)^#+ (.*)$`).FindAllStringSubmatch(string(text), -1) {
		found[anchor(m[1])] = true
	}
	return found
}

func TestLinksLeadSomewhere(t *testing.T) {
	pages, err := filepath.Glob("*.md")
	if err != nil || len(pages) < 15 {
		t.Fatalf("%v, %v", pages, err)
	}
	link := regexp.MustCompile(`\]\(([^)\s]+)\)`)
	seen := 0
	for _, page := range append(pages, "../README.md", "../ARCHITECTURE.md", "../examples/README.md") {
		text, err := os.ReadFile(page)
		if err != nil {
			t.Fatal(err)
		}
		for _, m := range link.FindAllStringSubmatch(string(text), -1) {
			if strings.Contains(m[1], "://") {
				continue
			}
			seen++
			file, fragment, _ := strings.Cut(m[1], "#")
			to := page
			if file != "" {
				to = filepath.Join(filepath.Dir(page), file)
			}
			if _, err := os.Stat(to); err != nil {
				t.Errorf("%s leads to %s, which is not there", page, m[1])
			} else if fragment != "" && !anchors(t, to)[fragment] {
				t.Errorf("%s leads to %s, which has no such heading", page, m[1])
			}
		}
	}
	if seen < 50 {
		t.Errorf("only %d links", seen)
	}
}
