package boxinit

import (
	"errors"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

// shelf is a directory with programs and scripts, and a PATH that finds its interpreters.
func shelf(t *testing.T) (dir string, env []string) {
	t.Helper()
	dir = t.TempDir()
	for name, file := range map[string]struct {
		text string
		mode os.FileMode
	}{
		"bin/python3": {"", 0o755}, "bin/sh": {"", 0o755}, "bin/env": {"", 0o755}, "bin/not-executable": {"", 0o644},
		"program": {"\x7fELF", 0o755}, "tool.py": {"#!/usr/bin/env python3\n", 0o755},
		"plain.py": {"print()\n", 0o644}, "plain.txt": {"words\n", 0o644}, "plain.rb": {"puts\n", 0o644},
		"bare": {"#!" + dir + "/bin/sh\n", 0o644}, "argument": {"#! " + dir + "/bin/sh   -e -u \n", 0o644},
		"wins.py": {"#!" + dir + "/bin/sh\n", 0o644}, "lost": {"#!/no/such/program\n", 0o644},
		"empty": {"", 0o644}, "only": {"#!\n", 0o644}, "endless": {"#!" + dir + "/bin/sh", 0o644},
	} {
		path := filepath.Join(dir, name)
		if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, []byte(file.text), file.mode); err != nil {
			t.Fatal(err)
		}
	}
	return dir, []string{"HOME=/", "PATH=/no/such/dir:" + dir + "/bin"}
}

func TestResolveFindsWhatToExecute(t *testing.T) {
	dir, env := shelf(t)
	for _, c := range []struct {
		argv []string
		path string // below dir
		want []string
	}{
		{[]string{"./program", "a"}, "program", []string{"./program", "a"}},
		{[]string{dir + "/program"}, "program", []string{dir + "/program"}},
		{[]string{"python3", "x.py"}, "bin/python3", []string{"python3", "x.py"}},
		{[]string{"./tool.py"}, "tool.py", []string{"./tool.py"}}, // the kernel knows what to do
		{[]string{"./plain.py", "a", "b"}, "bin/python3", []string{"python3", dir + "/plain.py", "a", "b"}},
		{[]string{"./bare", "a"}, "bin/sh", []string{dir + "/bin/sh", dir + "/bare", "a"}},
		{[]string{"./argument"}, "bin/sh", []string{dir + "/bin/sh", "-e -u", dir + "/argument"}},
		{[]string{"./wins.py"}, "bin/sh", []string{dir + "/bin/sh", dir + "/wins.py"}},
		{[]string{"./endless"}, "bin/sh", []string{dir + "/bin/sh", dir + "/endless"}},
	} {
		path, argv, err := resolve(c.argv, env, dir)
		if err != nil || path != filepath.Join(dir, c.path) || !slices.Equal(argv, c.want) {
			t.Errorf("%q: %s, %q, %v; want %s, %q", c.argv, path, argv, err, c.path, c.want)
		}
	}
}

func TestResolveSaysWhatIsMissing(t *testing.T) {
	dir, env := shelf(t)
	for _, c := range []struct {
		word    string
		missing bool // 127, else 126
		want    string
	}{
		{"", true, "empty command"},
		{"no-such", true, "no-such: not found in the sandbox's PATH"},
		{"not-executable", true, "not found"},
		{"./no-such", true, "no such file"},
		{"./plain.txt", false, "no exec bit, no #! line and no known extension"},
		{"./empty", false, "no exec bit"},
		{"./only", false, "no exec bit"},
		{"./bin", false, "not a regular file"},
		{"./plain.rb", true, "plain.rb needs ruby"},
		{"./lost", true, "lost needs /no/such/program"},
	} {
		_, _, err := resolve([]string{c.word}, env, dir)
		if err == nil || errors.Is(err, os.ErrNotExist) != c.missing || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%q: %v; want %q, missing %v", c.word, err, c.want, c.missing)
		}
	}
	if _, _, err := resolve([]string{"python3"}, []string{"HOME=/"}, dir); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("without a PATH: %v", err)
	}
}
