//go:build linux

package scan

import (
	"errors"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"

	"golang.org/x/sys/unix"
)

func decoyHome(t *testing.T) string {
	t.Helper()
	dir := filepath.Join(t.TempDir(), "home")
	if err := os.Mkdir(dir, 0o700); err != nil {
		t.Fatal(err)
	}
	var c canaries
	if err := makeHome(dir, c.homeSecrets()); err != nil {
		t.Fatal(err)
	}
	return dir
}

func do(t *testing.T, errs ...error) {
	t.Helper()
	if err := errors.Join(errs...); err != nil {
		t.Fatal(err)
	}
}

func TestWhatBecameOfAHomeIsSeen(t *testing.T) {
	dir := decoyHome(t)
	before, err := look(dir)
	do(t, err)
	in := func(name string) string { return filepath.Join(dir, name) }
	do(t,
		os.WriteFile(in(".bashrc"), []byte("evil &\n"), 0o644),
		os.Remove(in("Documents/notes.txt")),
		os.Chmod(in(".ssh/config"), 0o777),
		os.Symlink("/etc/passwd", in("link")),
		unix.Mkfifo(in("pipe"), 0o600),
		os.MkdirAll(in(".config/autostart"), 0o755),
		os.WriteFile(in(".config/autostart/a.desktop"), nil, 0o644),
		os.Mkdir(in("closed"), 0),
	)
	after, err := look(dir)
	do(t, err)
	var got []string
	for _, c := range changes(before, after) {
		got = append(got, c.what+" "+c.name)
	}
	want := []string{
		"changed .bashrc", "made .config/autostart", "made .config/autostart/a.desktop", "changed .ssh/config", "removed Documents/notes.txt",
		"made closed", "made link", "made pipe",
	}
	if !slices.Equal(got, want) {
		t.Errorf("got %q\nwant %q", got, want)
	}
}

func TestAHomeIsBounded(t *testing.T) {
	for name, fill := range map[string]func(dir string) error{
		"bytes": func(dir string) error { return os.Truncate(filepath.Join(dir, ".bashrc"), maxHomeBytes+1) },
		"files": func(dir string) error {
			for i := range maxHomeFiles + 1 {
				if err := os.Symlink("x", filepath.Join(dir, strconv.Itoa(i))); err != nil {
					return err
				}
			}
			return nil
		},
		"depth": func(dir string) error {
			return os.MkdirAll(filepath.Join(dir, strings.Repeat("d/", maxHomeDepth+2)), 0o700)
		},
	} {
		t.Run(name, func(t *testing.T) {
			dir := decoyHome(t)
			do(t, fill(dir))
			if _, err := look(dir); !errors.Is(err, errHomeFull) {
				t.Errorf("%v", err)
			}
		})
	}
}

func TestAHomeIsRemovedWhateverItsOwnerMayDo(t *testing.T) {
	dir := decoyHome(t)
	do(t, os.MkdirAll(filepath.Join(dir, "a/b/c"), 0o700), os.WriteFile(filepath.Join(dir, "a/b/c/d"), nil, 0o600))
	do(t, os.Chmod(filepath.Join(dir, "a/b/c"), 0), os.Chmod(filepath.Join(dir, "a/b"), 0), os.Chmod(filepath.Join(dir, "a"), 0), os.Chmod(dir, 0))
	do(t, removeHome(dir))
	if _, err := os.Lstat(dir); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("%v", err)
	}
}

func TestAPathOfSomeHomeIsOne(t *testing.T) {
	for p, want := range map[string]string{
		homeDir + "/.bashrc": ".bashrc", "/home/skill/.ssh/id_rsa": ".ssh/id_rsa", homeDir + "/../../etc/x": "", homeDir: "", "/etc/passwd": "",
	} {
		if got, _ := inHome(p); got != want {
			t.Errorf("%s: %q", p, got)
		}
	}
}
