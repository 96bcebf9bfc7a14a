package unzip_test

import (
	"archive/zip"
	"bytes"
	"context"
	"errors"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"testing/iotest"

	"golang.org/x/sys/unix"

	"skillbox/bundle/unzip"
	"skillbox/bundle/unzip/ziptest"
)

// extract unpacks into a new directory.
func extract(t testing.TB, data []byte, limits unzip.Limits) (string, error) {
	t.Helper()
	dir := filepath.Join(t.TempDir(), "in")
	if err := os.Mkdir(dir, 0o700); err != nil {
		t.Fatal(err)
	}
	root, err := os.OpenRoot(dir)
	if err != nil {
		t.Fatal(err)
	}
	defer root.Close()
	return dir, unzip.Extract(context.Background(), bytes.NewReader(data), int64(len(data)), root, limits)
}

func TestEveryBadArchiveIsRefusedByName(t *testing.T) {
	for _, bad := range ziptest.All() {
		t.Run(bad.Name, func(t *testing.T) {
			dir, err := extract(t, bad.Data, unzip.Limits{})
			var e *unzip.Error
			if !errors.As(err, &e) {
				t.Fatalf("not refused as an archive: %v", err)
			}
			if !strings.Contains(e.Error(), bad.Why) || bad.Entry != "" && e.Entry != bad.Entry {
				t.Errorf("refused as %q of %q, want %q of %q", e.Error(), e.Entry, bad.Why, bad.Entry)
			}
			outside, err := os.ReadDir(filepath.Dir(dir))
			if err != nil || len(outside) != 1 {
				t.Errorf("it wrote outside: %v, %v", outside, err)
			}
		})
	}
}

func TestAGoodArchiveIsUnpackedAsItIs(t *testing.T) {
	var buf bytes.Buffer
	w := zip.NewWriter(&buf)
	for _, e := range []struct {
		name string
		mode os.FileMode
	}{{"SKILL.md", 0o600}, {"scripts/run.sh", 0o700}, {"empty/", fs.ModeDir | 0o700}, {"äöü/日本", 0o644}} {
		h := &zip.FileHeader{Name: e.name, Method: zip.Deflate}
		h.SetMode(e.mode)
		f, err := w.CreateHeader(h)
		if err != nil {
			t.Fatal(err)
		}
		if !e.mode.IsDir() {
			if _, err := f.Write([]byte("content of " + e.name)); err != nil {
				t.Fatal(err)
			}
		}
	}
	if err := w.SetComment("a comment"); err != nil {
		t.Fatal(err)
	}
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	defer unix.Umask(unix.Umask(0o077))
	dir, err := extract(t, buf.Bytes(), unzip.Limits{})
	if err != nil {
		t.Fatal(err)
	}
	var got []string
	err = filepath.WalkDir(dir, func(path string, d fs.DirEntry, err error) error {
		if err != nil || path == dir {
			return err
		}
		info, err := d.Info()
		got = append(got, info.Mode().String()+" "+strings.TrimPrefix(path, dir+"/"))
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	want := []string{"-rw-r--r-- SKILL.md", "drwxr-xr-x empty", "drwxr-xr-x scripts", "-rwxr-xr-x scripts/run.sh", "drwxr-xr-x äöü", "-rw-r--r-- äöü/日本"}
	if strings.Join(got, "\n") != strings.Join(want, "\n") {
		t.Errorf("unpacked\n%s\nwant\n%s", strings.Join(got, "\n"), strings.Join(want, "\n"))
	}
	if text, err := os.ReadFile(filepath.Join(dir, "äöü/日本")); err != nil || string(text) != "content of äöü/日本" {
		t.Errorf("%q, %v", text, err)
	}
}

// What people pack with must pass: the layout is checked more strictly than any of these programs does.
func TestWhatZipProgramsMakeIsUnpacked(t *testing.T) {
	for _, one := range []struct{ name, needs, script string }{
		{"zip", "zip", `zip -qr "$1" skill`},
		{"zip into a pipe", "zip", `zip -qr - skill >"$1"`},
		{"zip into a true pipe", "zip", `zip -qr - skill | cat >"$1"`},
		{"zip, stored", "zip", `zip -q0r "$1" skill`},
		{"zip, twice", "zip", `zip -qr "$1" skill/SKILL.md && zip -qr "$1" skill`},
		{"python", "/usr/bin/python3", `/usr/bin/python3 -m zipfile -c "$1" skill`},
		{"python into a pipe", "/usr/bin/python3", `/usr/bin/python3 -c '
import sys, zipfile
class Out:
    def write(self, b): return sys.stdout.buffer.write(b)
    def flush(self): sys.stdout.buffer.flush()
with zipfile.ZipFile(Out(), "w", zipfile.ZIP_DEFLATED) as z:
    z.write("skill/SKILL.md"); z.write("skill/naïve.txt")' >"$1"`},
		{"python's shutil", "/usr/bin/python3", `/usr/bin/python3 -c 'import shutil, sys; shutil.move(shutil.make_archive("made", "zip", ".", "skill"), sys.argv[1])' "$1"`},
		{"git archive", "git", `git init -q . && git add skill && git archive --format=zip -o "$1" "$(git write-tree)"`},
		{"bsdtar", "bsdtar", `bsdtar -a -cf "$1" skill`},
		{"jar", "jar", `jar cMf "$1" skill`},
		{"7z", "7z", `7z a "$1" skill >/dev/null`},
	} {
		t.Run(one.name, func(t *testing.T) {
			if _, err := exec.LookPath(one.needs); err != nil {
				t.Skipf("%s is not here", one.needs)
			}
			in := t.TempDir()
			out := filepath.Join(t.TempDir(), "made.zip")
			if err := os.MkdirAll(filepath.Join(in, "skill/empty"), 0o755); err != nil {
				t.Fatal(err)
			}
			for name, text := range map[string]string{"SKILL.md": strings.Repeat("many words ", 1000), "naïve.txt": "", "run.sh": "#!/bin/sh\n"} {
				if err := os.WriteFile(filepath.Join(in, "skill", name), []byte(text), 0o755); err != nil {
					t.Fatal(err)
				}
			}
			c := exec.Command("sh", "-euc", one.script, "sh", out)
			c.Dir, c.Env = in, append(os.Environ(), "LC_ALL=C.UTF-8")
			if text, err := c.CombinedOutput(); err != nil {
				t.Fatalf("%v: %s", err, text)
			}
			data, err := os.ReadFile(out)
			if err != nil {
				t.Fatal(err)
			}
			dir, err := extract(t, data, unzip.Limits{})
			if err != nil {
				t.Fatal(err)
			}
			text, err := os.ReadFile(filepath.Join(dir, "skill/SKILL.md"))
			if err != nil || len(text) != 11_000 {
				t.Errorf("%d bytes, %v", len(text), err)
			}
			if _, err := os.Stat(filepath.Join(dir, "skill/naïve.txt")); err != nil {
				t.Error(err)
			}
		})
	}
}

func TestLimitsAreTheCallers(t *testing.T) {
	data := ziptest.Make(ziptest.Entry{Name: "a", Data: make([]byte, 2<<20)}, ziptest.Entry{Name: "b", Data: []byte("b")})
	for name, l := range map[string]unzip.Limits{"ratio": {Ratio: 100_000}, "files": {Ratio: 100_000, Files: 1}, "bytes": {Ratio: 100_000, Bytes: 2 << 20}} {
		_, err := extract(t, data, l)
		if (err == nil) != (name == "ratio") {
			t.Errorf("%s: %v", name, err)
		}
	}
}

func TestUnpackingEndsWithItsContext(t *testing.T) {
	root, err := os.OpenRoot(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	defer root.Close()
	why := errors.New("enough")
	ctx, cancel := context.WithCancelCause(context.Background())
	cancel(why)
	data := ziptest.Make(ziptest.Entry{Name: "a", Data: []byte("a")})
	err = unzip.Extract(ctx, bytes.NewReader(data), int64(len(data)), root, unzip.Limits{})
	if !errors.Is(err, why) {
		t.Errorf("%v", err)
	}
}

// readerAt fails as a disk does.
type readerAt struct{ err error }

func (r readerAt) ReadAt(b []byte, _ int64) (int, error) { return iotest.ErrReader(r.err).Read(b) }

func TestWhatTheMachineFailsAtIsNotTheArchivesFault(t *testing.T) {
	root, err := os.OpenRoot(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	defer root.Close()
	err = unzip.Extract(context.Background(), readerAt{unix.EIO}, 1000, root, unzip.Limits{})
	var e *unzip.Error
	if !errors.Is(err, unix.EIO) || errors.As(err, &e) {
		t.Errorf("%v", err)
	}
}
