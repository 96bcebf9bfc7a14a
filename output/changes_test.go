//go:build linux

package output

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

// layer writes an upper or a lower directory: a path that ends in / is a directory, content "-> x" a link, "fifo", "whiteout" and "opaque" are these.
func layer(t *testing.T, files map[string]string) *os.File {
	t.Helper()
	dir := t.TempDir()
	do := func(err error) {
		t.Helper()
		if errors.Is(err, unix.EPERM) || errors.Is(err, unix.ENOTSUP) {
			t.Skipf("not permitted here: %v", err)
		}
		if err != nil {
			t.Fatal(err)
		}
	}
	for name, content := range files {
		at := filepath.Join(dir, name)
		do(os.MkdirAll(filepath.Dir(at), 0o755))
		switch {
		case strings.HasSuffix(name, "/"):
			do(os.MkdirAll(at, 0o755))
			if content == "opaque" {
				do(unix.Setxattr(at, "user.overlay.opaque", []byte("y"), 0))
			}
		case content == "whiteout":
			do(unix.Mknod(at, unix.S_IFCHR, 0))
		case content == "fifo":
			do(unix.Mkfifo(at, 0o600))
		case strings.HasPrefix(content, "-> "):
			do(os.Symlink(content[3:], at))
		default:
			do(os.WriteFile(at, []byte(content), 0o644))
		}
	}
	f, err := os.Open(dir)
	do(err)
	t.Cleanup(func() { f.Close() })
	return f
}

func changesOf(t *testing.T, upper, lower map[string]string) (text string, more bool) {
	t.Helper()
	list, more, err := Changes(layer(t, upper), layer(t, lower))
	if err != nil {
		t.Fatal(err)
	}
	var lines []string
	for _, c := range list {
		lines = append(lines, fmt.Sprintf("%s %s %d", c.Kind, c.Path, c.Size))
	}
	return strings.Join(lines, "; "), more
}

func TestChangesAreWhatAnUpperLayerSays(t *testing.T) {
	lower := map[string]string{"a": "1", "d/x": "1", "d/y": "1", "l": "-> a"}
	for name, c := range map[string]struct {
		upper map[string]string
		want  string
	}{
		"nothing":                     {nil, ""},
		"a new file":                  {map[string]string{"n": "12"}, "added n 2"},
		"another content":             {map[string]string{"a": "123", "d/x": ""}, "changed a 3; changed d/x 0"},
		"a new directory":             {map[string]string{"n/m/f": "1", "e/": ""}, "added e/ 0; added n/ 0; added n/m/ 0; added n/m/f 1"},
		"what was removed":            {map[string]string{"a": "whiteout", "d/y": "whiteout"}, "removed a 0; removed d/y 0"},
		"a hole above nothing":        {map[string]string{"n": "whiteout"}, ""},
		"a directory replaced":        {map[string]string{"d/": "opaque", "d/x": "22"}, "removed d/y 0; changed d/x 2"},
		"a directory for a file":      {map[string]string{"a/b": "1"}, "changed a/ 0; added a/b 1"},
		"links and pipes":             {map[string]string{"s": "-> /etc/passwd", "l": "-> /etc", "p": "fifo"}, "changed l 0; added p 0; added s 0"},
		"names that cannot be shown":  {map[string]string{"x\n\x1b[2J": "", "\xff": ""}, `added x\n\x1b[2J 0; added \xff 0`},
		"a link below is no way down": {map[string]string{"l/f": "1"}, "changed l/ 0; added l/f 1"},
	} {
		t.Run(name, func(t *testing.T) {
			if got, more := changesOf(t, c.upper, lower); got != c.want || more {
				t.Errorf("%s (more: %v), want %s", got, more, c.want)
			}
		})
	}
}

func TestChangesAreBounded(t *testing.T) {
	many, long := map[string]string{}, map[string]string{}
	for i := range 3000 {
		many[fmt.Sprintf("f%d", i)] = ""
	}
	for i := range 500 {
		long[fmt.Sprintf("%s%d", strings.Repeat("n", 240), i)] = ""
	}
	deep := map[string]string{strings.Repeat("d/", 100) + "f": ""}
	for name, upper := range map[string]map[string]string{"many files": many, "long names": long, "deep directories": deep} {
		began := time.Now()
		list, more, err := Changes(layer(t, upper), layer(t, nil))
		if err != nil || !more || len(list) > maxChanges || time.Since(began) > 10*time.Second {
			t.Errorf("%s: %d changes, more: %v, %v, %v", name, len(list), more, err, time.Since(began))
		}
	}
}
