//go:build linux

package integration

import (
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
)

func TestThreatsAreTested(t *testing.T) {
	doc, err := os.ReadFile("../docs/threats.md")
	if err != nil {
		t.Fatal(err)
	}
	var files []string
	for _, pattern := range []string{"../*/*_test.go", "../*/*/*_test.go"} {
		found, err := filepath.Glob(pattern)
		if err != nil {
			t.Fatal(err)
		}
		files = append(files, found...)
	}
	var tests strings.Builder
	for _, f := range files {
		text, err := os.ReadFile(f)
		if err != nil {
			t.Fatal(err)
		}
		tests.Write(text)
	}
	names := regexp.MustCompile("`(Test[A-Za-z0-9]+)`").FindAllStringSubmatch(string(doc), -1)
	if len(names) < 100 {
		t.Errorf("docs/threats.md names only %d tests", len(names))
	}
	for _, name := range names {
		if !strings.Contains(tests.String(), "func "+name[1]+"(t *testing.T)") {
			t.Errorf("docs/threats.md names %s, which does not exist", name[1])
		}
	}
	for line := range strings.Lines(string(doc)) {
		columns := strings.Split(line, "|")
		if len(columns) > 4 && strings.HasPrefix(strings.TrimSpace(columns[3]), "tested") && !strings.Contains(line, "`Test") {
			t.Errorf("docs/threats.md says tested without naming a test: %s", strings.TrimSpace(line))
		}
	}
}
