package unzip_test

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"unicode"
	"unicode/utf8"

	"skillbox/bundle"
	"skillbox/bundle/unzip"
	"skillbox/bundle/unzip/ziptest"
)

func FuzzExtract(f *testing.F) {
	for _, bad := range ziptest.All() {
		if len(bad.Data) < 64<<10 {
			f.Add(bad.Data)
		}
	}
	f.Add(ziptest.Make(ziptest.Entry{Name: "a/b", Data: []byte("abc")}, ziptest.Entry{Name: "c/"}))
	limits := unzip.Limits{Files: 20, Bytes: 1 << 20}
	f.Fuzz(func(t *testing.T, data []byte) {
		dir, err := extract(t, data, limits)
		var e *unzip.Error
		if err != nil && !errors.As(err, &e) {
			t.Fatalf("taken for the machine's fault: %v", err)
		}
		if e != nil {
			if s := e.Error() + e.Hint; !utf8.ValidString(s) || len(s) > 4<<10 || strings.ContainsFunc(s, unicode.IsControl) {
				t.Fatalf("the error is not fit for a terminal: %q", s)
			}
		}
		holds(t, dir, limits)
	})
}

// holds checks what was unpacked, also of an archive that was refused in its middle.
func holds(t *testing.T, dir string, limits unzip.Limits) {
	var nodes int
	var bytes int64
	err := filepath.WalkDir(dir, func(path string, d fs.DirEntry, err error) error {
		if err != nil || path == dir {
			return err
		}
		info, err := d.Info()
		if err != nil {
			return err
		}
		if why := bundle.BadName(d.Name()); why != "" {
			t.Errorf("%q %s", path, why)
		}
		if !info.IsDir() && !info.Mode().IsRegular() || info.Mode()&(fs.ModeSetuid|fs.ModeSetgid|fs.ModeSticky|0o022) != 0 {
			t.Errorf("%q is %s", path, info.Mode())
		}
		nodes++
		if info.Mode().IsRegular() {
			bytes += info.Size()
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	if nodes > 2*limits.Files || bytes > limits.Bytes {
		t.Errorf("%d files and directories, %d bytes", nodes, bytes)
	}
	if beside, err := os.ReadDir(filepath.Dir(dir)); err != nil || len(beside) != 1 {
		t.Errorf("it wrote outside: %v, %v", beside, err)
	}
}
