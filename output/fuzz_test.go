//go:build linux

package output

import (
	"archive/tar"
	"bytes"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

// FuzzCollect builds a tree from the bytes. Whatever it is, Collect ends, follows nothing, keeps to its limits, and Extract of its
// stream writes regular files below its directory only.
func FuzzCollect(f *testing.F) {
	f.Add([]byte("\x00a\x01b\x02c\x03d\x04e\x05f\x06g\x07h"), uint8(8), uint8(64), uint8(3))
	f.Add([]byte("\x01d\x01d\x01d\x01d\x01d\x00f"), uint8(100), uint8(255), uint8(2))
	f.Add([]byte("\x00\x1b\x00\n\x00\xff\x09x\x02x\x0ax"), uint8(4), uint8(1), uint8(0))
	f.Fuzz(func(t *testing.T, program []byte, files, size, depth uint8) {
		base, err := os.MkdirTemp("/dev/shm", "skillbox-fuzz-")
		if err != nil {
			t.Skip(err)
		}
		defer func() {
			_ = filepath.WalkDir(base, func(p string, e fs.DirEntry, err error) error {
				if e != nil && e.IsDir() {
					os.Chmod(p, 0o700)
				}
				return nil
			})
			os.RemoveAll(base)
		}()
		outside, from, to := base+"/outside", base+"/from", base+"/to"
		for _, d := range []string{outside, from, to} {
			must(t, os.Mkdir(d, 0o755))
		}
		must(t, os.WriteFile(outside+"/secret", []byte("SECRET"), 0o644))
		build(from, outside, program)
		limits := Limits{Files: 1 + int(files), Bytes: 1 + int64(size), Depth: int(depth) % 40}
		root, err := os.Open(from)
		must(t, err)
		defer root.Close()
		var stream bytes.Buffer
		start := time.Now()
		items, _, err := Collect(root, &stream, limits)
		if err != nil {
			t.Fatal(err)
		}
		if d := time.Since(start); d > 2*time.Second {
			t.Errorf("took %v", d)
		}
		var total int64
		for _, i := range items {
			total += i.Bytes
			if max := limits.Depth; max > 0 && strings.Count(i.Name, "/") > max {
				t.Errorf("%q is deeper than %d", i.Name, max)
			}
		}
		if len(items) > limits.Files || total > limits.Bytes {
			t.Errorf("%d files of %d bytes, the limits are %+v", len(items), total, limits)
		}
		if bytes.Contains(stream.Bytes(), []byte("SECRET")) {
			t.Error("a link was followed")
		}
		extracted(t, stream.Bytes(), base, to, len(items))
	})
}

// build makes one entry for every two bytes: what, and of which name. A directory becomes the place for what follows.
func build(dir, outside string, program []byte) {
	made := 0
	for ; len(program) >= 2 && made < 300; program = program[2:] {
		made++
		name := string(program[1:2])
		if program[1]%16 == 0 {
			name = strings.Repeat(name, 200)
		}
		path := dir + "/" + name
		// What cannot be made is not there: errors are of no interest.
		switch program[0] % 14 {
		case 0:
			makeFile(path, int(program[1]), 0)
		case 1:
			if os.Mkdir(path, 0o755) == nil {
				dir = path
			}
		case 2:
			os.Symlink(outside+"/secret", path)
		case 3:
			os.Symlink(outside, path)
		case 4:
			os.Symlink("../"+name, path)
		case 5:
			unix.Mkfifo(path, 0o600)
		case 6:
			unix.Mknod(path, unix.S_IFSOCK|0o600, 0)
		case 7:
			os.Link(outside+"/secret", path)
		case 8:
			unix.Mknod(path, unix.S_IFCHR|0o600, 0)
		case 9:
			os.Chmod(path, os.FileMode(program[1])&0o777)
		case 10:
			os.Chmod(dir, 0)
		case 11:
			makeFile(path, 0, 1<<63-1)
		case 12:
			dir = filepath.Dir(dir)
			if !strings.HasPrefix(dir, filepath.Dir(outside)+"/from") {
				dir = filepath.Dir(outside) + "/from"
			}
		case 13:
			os.Rename(path, path+"2")
		}
	}
}

// makeFile writes a new file, and stretches it. An old FIFO would block, and an old link be followed.
func makeFile(path string, bytes int, size int64) {
	f, err := os.OpenFile(path, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o644)
	if err != nil {
		return
	}
	defer f.Close()
	f.WriteString(strings.Repeat("x", bytes))
	if size > 0 {
		f.Truncate(size)
	}
}

// extracted extracts a stream and looks at everything below base.
func extracted(t *testing.T, stream []byte, base, to string, want int) {
	t.Helper()
	before := everything(t, base)
	root, err := os.OpenRoot(to)
	must(t, err)
	defer root.Close()
	err = Extract(bytes.NewReader(stream), root, false)
	got := 0
	for path, mode := range everything(t, base) {
		if _, old := before[path]; old {
			continue
		}
		if !strings.HasPrefix(path, to+"/") {
			t.Errorf("%q appeared outside", path)
		}
		switch {
		case mode.IsDir():
		case mode == 0o644:
			got++
		default:
			t.Errorf("%q has the mode %v", path, mode)
		}
	}
	if want >= 0 && (err != nil || got != want) {
		t.Errorf("%d of %d files: %v", got, want, err)
	}
}

// FuzzExtract feeds it any bytes.
func FuzzExtract(f *testing.F) {
	for _, h := range []tar.Header{
		{Name: "a", Typeflag: tar.TypeReg, Size: 1},
		{Name: "../a", Typeflag: tar.TypeReg, Size: 1},
		{Name: "d/e/f", Typeflag: tar.TypeReg, Size: 1},
		{Name: "l", Typeflag: tar.TypeSymlink, Linkname: ".."},
		{Name: "link/x", Typeflag: tar.TypeReg, Size: 1},
		{Name: "in/x", Typeflag: tar.TypeReg, Size: 1},
		{Name: strings.Repeat("long/", 60) + "x", Typeflag: tar.TypeReg, Size: 1, Format: tar.FormatPAX},
	} {
		var b bytes.Buffer
		w := tar.NewWriter(&b)
		must(f, w.WriteHeader(&h))
		fmt.Fprint(w, strings.Repeat("x", int(h.Size)))
		must(f, w.Close())
		f.Add(b.Bytes(), false)
		f.Add(b.Bytes(), true)
	}
	f.Fuzz(func(t *testing.T, stream []byte, force bool) {
		base, err := os.MkdirTemp("/dev/shm", "skillbox-fuzz-")
		if err != nil {
			t.Skip(err)
		}
		defer os.RemoveAll(base)
		to := base + "/to"
		for _, d := range []string{base + "/outside", to, to + "/real"} {
			must(t, os.Mkdir(d, 0o755))
		}
		must(t, os.WriteFile(base+"/outside/victim", []byte("old"), 0o644))
		must(t, os.Symlink("../outside", to+"/link"))
		must(t, os.Symlink("real", to+"/in"))
		root, err := os.OpenRoot(to)
		must(t, err)
		defer root.Close()
		_ = Extract(io.LimitReader(bytes.NewReader(stream), 1<<20), root, force) // most streams are none
		if got, _ := os.ReadFile(base + "/outside/victim"); string(got) != "old" {
			t.Errorf("the file outside holds %q", got)
		}
		for path, mode := range everything(t, base) {
			switch {
			case mode.IsDir(), mode == 0o644, strings.HasSuffix(path, "/link"), strings.HasSuffix(path, "/in"):
			default:
				t.Errorf("%q has the mode %v", path, mode)
			}
			if strings.HasPrefix(path, base+"/outside/") && path != base+"/outside/victim" {
				t.Errorf("%q appeared", path)
			}
		}
	})
}
