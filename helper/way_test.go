package helper

import (
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

func TestTheWayToAFileHasAllThatCanChangeIt(t *testing.T) {
	dir, err := filepath.EvalSymlinks(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	at := func(name string) string { return filepath.Join(dir, name) }
	for _, d := range []string{"a", "a/b", "c", "d"} {
		if err := os.Mkdir(at(d), 0o755); err != nil {
			t.Fatal(err)
		}
	}
	if err := os.WriteFile(at("c/file"), nil, 0o644); err != nil {
		t.Fatal(err)
	}
	for link, target := range map[string]string{"a/link": "../d/second", "d/second": at("c/file"), "dir": "a/b", "loop": "loop"} {
		if err := os.Symlink(target, at(link)); err != nil {
			t.Fatal(err)
		}
	}
	t.Chdir(at("a"))
	for name, want := range map[string][]string{
		at("c/file"):               {"", "c", "c/file"},
		"../c/file":                {"", "a", "c", "c/file"},
		"./..//c/./file":           {"", "a", "c", "c/file"},
		"link":                     {"", "a", "a/link", "d", "d/second", "c", "c/file"},
		"../dir/../link":           {"", "a", "dir", "a/b", "a/link", "d", "d/second", "c", "c/file"},
		"gone":                     {"", "a", "a/gone"},
		"../loop":                  {"", "a", "loop"},
		"/proc/self/cwd/../c/file": {"", "a", "c", "c/file"},
	} {
		way := WayTo(name)
		for _, w := range want {
			if !slices.Contains(way, at(w)) {
				t.Errorf("%s: no %s in %q", name, w, way)
			}
		}
		inside := 0
		for _, w := range way {
			if w == dir || strings.HasPrefix(w, dir+"/") {
				inside++
			}
		}
		if inside != len(want) || !slices.Contains(way, "/") {
			t.Errorf("%s: %q, want %q", name, way, want)
		}
	}
}
