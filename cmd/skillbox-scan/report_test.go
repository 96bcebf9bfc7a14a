package main

import (
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"testing"
)

func TestAPageIsWrittenWholeOrNotAtAll(t *testing.T) {
	dir := t.TempDir()
	file := filepath.Join(dir, "report.html")
	full := errors.New("full")
	for _, c := range []struct {
		name, text, want string
		err              error
	}{
		{"new", "one", "one", nil},
		{"replaced", "two", "two", nil},
		{"failed", "half", "two", full},
	} {
		err := writePage(file, func(w io.Writer) error { return errors.Join(errOf(io.WriteString(w, c.text)), c.err) })
		if !errors.Is(err, c.err) {
			t.Errorf("%s: %v", c.name, err)
		}
		got, err := os.ReadFile(file)
		if err != nil || string(got) != c.want {
			t.Errorf("%s: %q, %v, want %q", c.name, got, err, c.want)
		}
		if left, err := os.ReadDir(dir); err != nil || len(left) != 1 {
			t.Errorf("%s: %v, %v", c.name, left, err)
		}
	}
	if info, err := os.Stat(file); err != nil || info.Mode().Perm() != 0o600 {
		t.Errorf("%v, %v: others may read what the skill did", info.Mode(), err)
	}
	if err := writePage(filepath.Join(dir, "none", "report.html"), func(io.Writer) error { return nil }); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("a directory that is not there: %v", err)
	}
}

func errOf(_ int, err error) error { return err }

// A device is written to, and stays one.
func TestAPageMayGoToADevice(t *testing.T) {
	r, w, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	link := filepath.Join(t.TempDir(), "out")
	if err := os.Symlink(fmt.Sprintf("/dev/fd/%d", w.Fd()), link); err != nil {
		t.Fatal(err)
	}
	err = writePage(link, func(w io.Writer) error { return errOf(io.WriteString(w, "page")) })
	if err := errors.Join(err, w.Close()); err != nil {
		t.Fatal(err)
	}
	if got, err := io.ReadAll(r); err != nil || string(got) != "page" {
		t.Errorf("%q, %v", got, err)
	}
}
