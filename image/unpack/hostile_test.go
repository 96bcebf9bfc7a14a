package unpack

import (
	"archive/tar"
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"skillbox/image"
)

// entry is one of a tar stream.
type entry struct {
	name, link, content string
	kind                byte
	mode                int64
	pax                 map[string]string
}

func dir(name string) entry { return entry{name: name, kind: tar.TypeDir, mode: 0o755} }
func plainFile(name, content string) entry {
	return entry{name: name, kind: tar.TypeReg, content: content, mode: 0o644}
}

func symlink(name, to string) entry { return entry{name: name, kind: tar.TypeSymlink, link: to} }

func hardlink(name, to string) entry       { return entry{name: name, kind: tar.TypeLink, link: to} }
func special(name string, kind byte) entry { return entry{name: name, kind: kind, mode: 0o666} }

func stream(t *testing.T, entries ...entry) []byte {
	t.Helper()
	var b bytes.Buffer
	w := tar.NewWriter(&b)
	for _, e := range entries {
		h := &tar.Header{Name: e.name, Linkname: e.link, Typeflag: e.kind, Mode: e.mode, Size: int64(len(e.content)), PAXRecords: e.pax}
		if e.kind == tar.TypeChar || e.kind == tar.TypeBlock {
			h.Devmajor, h.Devminor = 1, 3
		}
		if err := w.WriteHeader(h); err != nil {
			t.Fatalf("%q: %v", e.name, err)
		}
		if _, err := io.WriteString(w, e.content); err != nil {
			t.Fatal(err)
		}
	}
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	return b.Bytes()
}

// patched changes a header's raw bytes, and mends its checksum: what archive/tar would not write.
func patched(text []byte, at int, with string) []byte {
	copy(text[at:], with)
	copy(text[148:156], "        ")
	var sum int
	for _, c := range text[:512] {
		sum += int(c)
	}
	copy(text[148:156], []byte(octal(sum)))
	return text
}

func octal(n int) string {
	digits := "000000"
	for i := 5; i >= 0; i-- {
		digits = digits[:i] + string(rune('0'+n&7)) + digits[i+1:]
		n >>= 3
	}
	return digits + "\x00 "
}

// put unpacks layers into a new store.
func put(t *testing.T, l Limits, layers ...[]byte) (*image.Store, *image.Image, error) {
	t.Helper()
	defer unix.Umask(unix.Umask(0o022))
	s, err := image.OpenStore(filepath.Join(t.TempDir(), "images"))
	if err != nil {
		t.Fatal(err)
	}
	begun, err := s.Begin(context.Background())
	if err != nil {
		t.Fatal(err)
	}
	defer begun.Close()
	var sources []Source
	all := sha256.New()
	all.Write([]byte("configuration"))
	for _, text := range layers {
		sources = append(sources, sourceOf(text))
		all.Write(text)
	}
	found, err := Put(context.Background(), s, &image.Image{ID: "sha256:" + hex.EncodeToString(all.Sum(nil))}, sources, l)
	return s, found, err
}

func sourceOf(text []byte) Source {
	sum := sha256.Sum256(text)
	return Source{DiffID: "sha256:" + hex.EncodeToString(sum[:]), Open: func(context.Context) (*Stream, error) {
		return &Stream{Reader: bytes.NewReader(text), Came: func() int64 { return 0 }, Check: func() error { return nil }, Close: func() error { return nil }}, nil
	}}
}

// listed is a tree as text: one line for each entry, with its type and content.
func listed(t *testing.T, root string) string {
	t.Helper()
	var b strings.Builder
	err := filepath.WalkDir(root, func(p string, d fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		name, _ := filepath.Rel(root, p)
		info, err := os.Lstat(p)
		if err != nil {
			return err
		}
		switch info.Mode().Type() {
		case fs.ModeDir:
			b.WriteString(name + "/\n")
		case fs.ModeSymlink:
			to, err := os.Readlink(p)
			b.WriteString(name + " -> " + to + "\n")
			return err
		case 0:
			text, err := os.ReadFile(p)
			if len(text) > 40 {
				text = text[:40]
			}
			b.WriteString(name + " " + string(text) + "\n")
			return err
		default:
			t.Errorf("%s is a %v", name, info.Mode())
		}
		return nil
	})
	if err != nil {
		t.Error(err)
	}
	return b.String()
}

// harmless checks everything of a store that a skill could see: nothing special, no set-user-id bit, no attribute, all readable.
func harmless(t *testing.T, root string) {
	t.Helper()
	err := filepath.WalkDir(root, func(p string, d fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		info, err := os.Lstat(p)
		if err != nil {
			return err
		}
		switch m := info.Mode(); {
		case m.Type() == fs.ModeSymlink:
			return nil
		case m.Type() != 0 && !m.IsDir(), m&(fs.ModeSetuid|fs.ModeSetgid) != 0, m.Perm()&0o444 != 0o444, m.IsDir() && m.Perm()&0o111 != 0o111, m.Perm()&0o022 != 0:
			t.Errorf("%s is %v", p, m)
		}
		if n, err := unix.Llistxattr(p, nil); err == nil && n > 0 {
			names := make([]byte, n)
			_, _ = unix.Llistxattr(p, names)
			if !bytes.Equal(names, []byte("security.selinux\x00")) {
				t.Errorf("%s has the attributes %q", p, names)
			}
		}
		return nil
	})
	if err != nil {
		t.Error(err)
	}
}

// hostile are layers that somebody could wish us to unpack. refused is part of the error; otherwise tree is what may come of them, or part of it.
func hostile(t *testing.T, outside string) []struct {
	name    string
	layers  [][]byte
	refused string
	tree    []string
} {
	one := func(entries ...entry) [][]byte { return [][]byte{stream(t, entries...)} }
	two := func(lower, upper []entry) [][]byte { return [][]byte{stream(t, lower...), stream(t, upper...)} }
	long := strings.Repeat("n", 256)
	deep := strings.Repeat("d/", 200) + "f"
	canary := outside + "/canary"
	return []struct {
		name    string
		layers  [][]byte
		refused string
		tree    []string
	}{
		{"a name with ..", one(plainFile("../escaped", "x")), "holds ..", nil},
		{"a name with .. inside", one(dir("a/"), plainFile("a/../../escaped", "x")), "holds ..", nil},
		{"a name that is ..", one(dir("..")), "holds ..", nil},
		{"a name that ends in ..", one(dir("a/..")), "holds ..", nil},
		{"an absolute name", one(plainFile(canary, "written")), "", []string{strings.TrimPrefix(canary, "/") + " written"}},
		{"an absolute name with ..", one(plainFile("/../"+canary, "written")), "holds ..", nil},
		{"many slashes", one(plainFile("///etc////x", "x")), "", []string{"etc/x x"}},
		{"the root as a file", [][]byte{patched(stream(t, plainFile("a", "")), 0, ".")}, "root is not a directory", nil},
		{"the root as a symbolic link", one(symlink(".", outside)), "root is not a directory", nil},
		{"an empty name", [][]byte{patched(stream(t, plainFile("a", "")), 0, "\x00")}, "root is not a directory", nil},
		{"a symbolic link, and a file through it", one(symlink("l", outside), plainFile("l/canary", "written")), "through a symbolic link", nil},
		{"a relative symbolic link, and a file through it", one(symlink("l", "../../../../../../../../../.."+outside), plainFile("l/canary", "written")), "through a symbolic link", nil},
		{"a symbolic link inside, and a file through it", one(dir("d/"), symlink("l", "d"), plainFile("l/f", "x")), "through a symbolic link", nil},
		{"a symbolic link, and a directory through it", one(symlink("l", outside), dir("l/d/")), "through a symbolic link", nil},
		{"a symbolic link, and a directory in its place", one(symlink("l", outside), dir("l/"), plainFile("l/canary", "mine")), "", []string{"l/canary mine"}},
		{"a directory, and a symbolic link in its place, and a file", one(dir("l/"), plainFile("l/a", ""), symlink("l", outside), plainFile("l/canary", "w")), "through a symbolic link", nil},
		{"a symbolic link, and a file in its place", one(symlink("canary", canary), plainFile("canary", "mine")), "", []string{"canary mine"}},
		{"a link to a link, and a file through both", one(symlink("a", "b"), symlink("b", outside), plainFile("a/canary", "w")), "through a symbolic link", nil},
		{"a symbolic link to itself, and a file through it", one(symlink("a", "a"), plainFile("a/x", "w")), "through a symbolic link", nil},
		{"a symbolic link into /proc", one(symlink("self", "/proc/self/root"), plainFile("self"+canary, "w")), "through a symbolic link", nil},
		{"a symbolic link without a target", [][]byte{patched(stream(t, symlink("l", "x")), 157, "\x00")}, "no length", nil},
		{"a symbolic link of a lower layer, and a file through it", two([]entry{symlink("l", outside)}, []entry{plainFile("l/canary", "mine")}), "", []string{"l/canary mine"}},
		{"a symbolic link of a lower layer, and a whiteout through it", two([]entry{symlink("l", outside)}, []entry{plainFile("l/.wh.canary", "")}), "", []string{"l -> " + outside}},
		{"a symbolic link of a lower layer, and opaque through it", two([]entry{symlink("l", outside)}, []entry{plainFile("l/.wh..wh..opq", "")}), "", []string{"l -> " + outside}},
		{"a symbolic link of an upper layer over a directory", two([]entry{plainFile("d/f", "x")}, []entry{symlink("d", outside)}), "", []string{"d -> " + outside}},
		{"a file through a file", one(plainFile("f", "x"), plainFile("f/g", "y")), "through a symbolic link or a file", nil},
		{"a hard link out", one(hardlink("h", canary)), "no file of the layer", nil},
		{"a hard link out with ..", one(hardlink("h", "../../../canary")), "no file of the layer", nil},
		{"a hard link through a symbolic link", one(symlink("l", outside), hardlink("h", "l/canary")), "no file of the layer", nil},
		{"a hard link to a symbolic link, and a file through it", one(symlink("l", canary), hardlink("h", "l"), plainFile("h", "mine")), "", []string{"h mine", "l -> " + canary}},
		{"a hard link to a file, and another content", one(plainFile("f", "first"), hardlink("h", "f"), plainFile("h", "second")), "", []string{"f first", "h second"}},
		{"a hard link to itself", one(hardlink("h", "h")), "to itself", nil},
		{"a hard link to what is not there", one(hardlink("h", "none")), "no file of the layer", nil},
		{"a hard link to a directory", one(dir("d/"), hardlink("h", "d")), "no file of the layer", nil},
		{"a hard link to the root", one(hardlink("h", "/")), "no file of the layer", nil},
		{"a hard link to a lower layer's file", two([]entry{plainFile("f", "x")}, []entry{hardlink("h", "f")}), "no file of the layer", nil},
		{"device nodes", one(special("dev/mem", tar.TypeChar), special("dev/sda", tar.TypeBlock), plainFile("ok", "")), "", []string{"ok"}},
		{"a FIFO", one(special("pipe", tar.TypeFifo), plainFile("ok", "")), "", []string{"ok"}},
		{"a whiteout made as overlayfs makes it", two([]entry{plainFile("f", "x")}, []entry{special("f", tar.TypeChar)}), "", []string{"f x"}},
		{"an unknown type", [][]byte{patched(stream(t, plainFile("s", "")), 156, "s")}, "is none that an image may hold", nil},
		{"set-user-id and sticky bits", one(entry{name: "su", kind: tar.TypeReg, content: "x", mode: 0o7755}, entry{name: "d/", kind: tar.TypeDir, mode: 0o7777}), "", []string{"su x", "d/"}},
		{"files that nobody may read", one(entry{name: "s", kind: tar.TypeReg, content: "x"}, entry{name: "d/", kind: tar.TypeDir}, plainFile("d/f", "y")), "", []string{"s x", "d/f y"}},
		{"extended attributes", one(entry{name: "f", kind: tar.TypeReg, mode: 0o755, pax: map[string]string{
			"SCHILY.xattr.security.capability": "\x01\x00\x00\x02\xff\xff\xff\xff\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00", "SCHILY.xattr.user.overlay.opaque": "y", "SCHILY.xattr.trusted.overlay.redirect": "/etc",
		}}), "", []string{"f"}},
		{"a name of 4096 bytes", one(plainFile(strings.Repeat("n/", 2048)+"n", "")), "longer than 4095", nil},
		{"a part of 256 bytes", one(plainFile(long, "")), "longer than 255", nil},
		{"directories that are too deep", one(plainFile(deep, "")), "deeper than", nil},
		{"a name that is not UTF-8", [][]byte{patched(stream(t, plainFile("aaa", "x")), 0, "a\xff\xfe")}, "", []string{"a\xff\xfe x"}},
		{"names that differ in case", one(plainFile("File", "1"), plainFile("file", "2")), "", []string{"File 1", "file 2"}},
		{"control characters in a name", one(plainFile("a\x1b[2J\n", "x")), "", []string{"a\x1b[2J\n x"}},
		{"the same name twice", one(plainFile("f", "1"), plainFile("f", "2")), "", []string{"f 2"}},
		{"a file in place of a full directory", one(plainFile("d/e/f", "1"), plainFile("d", "2")), "", []string{"d 2"}},
		{"a directory in place of a file", one(plainFile("d", "1"), dir("d/"), plainFile("d/f", "2")), "", []string{"d/f 2"}},
		{"a whiteout and the same name", two([]entry{plainFile("f", "old")}, []entry{plainFile("f", "new"), plainFile(".wh.f", "")}), "", []string{"f new"}},
		{"a whiteout of ..", one(plainFile("a/.wh...", "")), "whiteout of no name", nil},
		{"a whiteout of .", one(plainFile("a/.wh..", "")), "whiteout of no name", nil},
		{"a whiteout of nothing", one(plainFile(".wh.", "")), "whiteout of no name", nil},
		{"a whiteout of what is not there", one(plainFile("x/.wh.none", ""), plainFile("ok", "")), "", []string{"ok"}},
		{"a file below a whiteout", one(plainFile(".wh.d/f", "")), "below a whiteout", nil},
		{"a directory that is a whiteout", two([]entry{plainFile("d/f", "")}, []entry{dir(".wh.d/")}), "", []string{"./"}},
		{"an AUFS name", one(plainFile(".wh..wh.plnk/1", ""), plainFile("ok", "")), "below a whiteout", nil},
		{"another AUFS name", one(plainFile(".wh..wh.aufs", "x"), plainFile("ok", "")), "", []string{"ok"}},
		{"an opaque root", two([]entry{plainFile("d/f", ""), plainFile("g", "")}, []entry{plainFile(".wh..wh..opq", ""), plainFile("h", "")}), "", []string{"h"}},
		{"opaque where a file is", two([]entry{plainFile("d", "x")}, []entry{plainFile("d/.wh..wh..opq", "")}), "", []string{"d x"}},
		{"opaque hides what is below", two([]entry{plainFile("d/old", "")}, []entry{dir("d/"), plainFile("d/.wh..wh..opq", ""), plainFile("d/new", "")}), "", []string{"d/new"}},
		{"more bytes than are permitted", one(plainFile("f", strings.Repeat("x", 2<<20))), "--max-bytes", nil},
		{"many files that are too many bytes", one(plainFile("a", strings.Repeat("x", 600<<10)), plainFile("b", strings.Repeat("x", 600<<10))), "--max-bytes", nil},
		{"two layers that are too many bytes", two([]entry{plainFile("a", strings.Repeat("x", 600<<10))}, []entry{plainFile("b", strings.Repeat("x", 600<<10))}), "--max-bytes", nil},
		{"a sparse file of 8 TiB", [][]byte{sparse(t, 8<<40)}, "--max-bytes", nil},
		{"a size that the stream does not have", [][]byte{patched(stream(t, plainFile("f", "")), 124, "77777777777")}, "--max-bytes", nil},
		{"a negative size", [][]byte{patched(stream(t, plainFile("f", "")), 124, "-7777777777")}, "tar stream", nil},
		{"more entries than are permitted", [][]byte{stream(t, manyFiles(300)...)}, "--max-entries", nil},
		{"more directories than are permitted, of which no entry is", one(plainFile(strings.Repeat("a/", 120)+"f", ""), plainFile(strings.Repeat("b/", 120)+"f", ""), plainFile(strings.Repeat("c/", 120)+"f", "")), "--max-entries", nil},
		{"the same layer too often", slices.Repeat(one(manyFiles(100)...), 3), "--max-entries", nil},
		{"whiteouts of one layer too often", slices.Repeat(one(manyWhiteouts(100, 8)...), 3), "--max-entries", nil},
		{"a stream that is cut", [][]byte{stream(t, plainFile("f", strings.Repeat("x", 4096)))[:2000]}, "1488 bytes and not 4096", nil},
		{"a header that is cut", [][]byte{stream(t, plainFile("f", "x"))[:300]}, "tar stream", nil},
		{"a stream that is no archive", [][]byte{bytes.Repeat([]byte("no tar "), 1000)}, "tar stream", nil},
		{"a wrong checksum", [][]byte{wrongSum(stream(t, plainFile("f", "x")))}, "tar stream", nil},
		{"a PAX path with ..", [][]byte{pax(t, "path=../x")}, "holds ..", nil},
		{"a PAX header of megabytes", [][]byte{pax(t, "comment="+strings.Repeat("x", 2<<20))}, "tar stream", nil},
		{"a global PAX header", one(entry{name: "g", kind: tar.TypeXGlobalHeader, pax: map[string]string{"path": "../x"}}, plainFile("ok", "")), "", []string{"ok"}},
		{"a time before 1970", [][]byte{pax(t, "mtime=-99999999999")}, "", []string{"f"}},
		{"data behind the archive", [][]byte{append(stream(t, plainFile("f", "x")), stream(t, plainFile("../g", "y"))...)}, "", []string{"f x"}},
		{"an empty layer", [][]byte{{}}, "", []string{"./"}},
	}
}

// pax is an archive with a file f, of which an extended header says something else.
func pax(t *testing.T, record string) []byte {
	t.Helper()
	n := len(record) + 2 // with the space and the line's end
	n += len(strconv.Itoa(n + len(strconv.Itoa(n))))
	record = fmt.Sprintf("%d %s\n", n, record)
	return patched(stream(t, plainFile("PaxHeaders.0/f", record), plainFile("f", "x")), 156, "x")
}

func manyFiles(n int) (entries []entry) {
	for i := range n {
		entries = append(entries, plainFile(strings.Repeat("f", i+1)[:min(i+1, 200)]+octal(i)[:6], ""))
	}
	return entries
}

// manyWhiteouts take away names of about so many bytes.
func manyWhiteouts(n, bytes int) (entries []entry) {
	long := strings.Repeat(strings.Repeat("n", 200)+"/", bytes/201)
	for i := range n {
		entries = append(entries, plainFile(long+whiteout+strconv.Itoa(i), ""))
	}
	return entries
}

func TestWhiteoutsAreNotKeptWithoutBound(t *testing.T) {
	text := stream(t, manyWhiteouts(maxRemovals/4000+100, 4020)...)
	s, _, err := put(t, Limits{}, text)
	if err == nil || !strings.Contains(err.Error(), "whiteouts take away have more than 64 MiB") {
		t.Error(err)
	}
	if left, err := os.ReadDir(filepath.Join(s.Dir, "layers")); err != nil || len(left) > 0 {
		t.Errorf("left: %v, %v", left, err)
	}
}

func TestALinkedTreeIsGivenUpWithItsContext(t *testing.T) {
	s, found, err := put(t, Limits{}, stream(t, manyFiles(10)...))
	if err != nil {
		t.Fatal(err)
	}
	sources := []Source{{DiffID: found.Layers[0].DiffID}}
	ctx, stop := context.WithCancelCause(context.Background())
	why := errors.New("enough")
	stop(why)
	if _, err := assemble(ctx, s, &image.Image{ID: found.ID}, sources, 100); !errors.Is(err, why) {
		t.Error(err)
	}
}

func wrongSum(text []byte) []byte {
	text[0] ^= 1
	return text
}

// sparse is an archive of one file with a hole, as GNU tar writes it with PAX headers.
func sparse(t *testing.T, size int64) []byte {
	t.Helper()
	text := stream(t, entry{name: "hole", kind: tar.TypeReg})
	text = patched(text, 156, "S")
	// GNU's old format: the real size at 483, the map at 386: one piece of no bytes at the end.
	copy(text[257:265], "ustar  \x00")
	return patched(text, 483, oct12(size))
}

func oct12(n int64) string {
	var b [12]byte
	b[0] = 0x80
	for i := 11; i > 3; i-- {
		b[i] = byte(n)
		n >>= 8
	}
	return string(b[:])
}

func TestHostileLayersAreRefusedOrNeutralised(t *testing.T) {
	outside := t.TempDir()
	canary := filepath.Join(outside, "canary")
	if err := os.WriteFile(canary, []byte("untouched"), 0o644); err != nil {
		t.Fatal(err)
	}
	before, err := os.Stat(canary)
	if err != nil {
		t.Fatal(err)
	}
	cases := hostile(t, outside)
	if len(cases) < 50 {
		t.Fatalf("%d are too few", len(cases))
	}
	for _, c := range cases {
		t.Run(c.name, func(t *testing.T) {
			s, found, err := put(t, Limits{Bytes: 1 << 20, Entries: 250}, c.layers...)
			switch {
			case c.refused == "" && err != nil:
				t.Fatal(err)
			case c.refused != "" && (err == nil || !strings.Contains(err.Error(), c.refused)):
				t.Fatalf("%v, want %q in it", err, c.refused)
			case err == nil:
				got := listed(t, found.Tree)
				for _, line := range c.tree {
					if !strings.Contains("\n"+got, "\n"+line) {
						t.Errorf("no %q in the tree:\n%s", line, got)
					}
				}
			default:
				if ids, err := os.ReadDir(filepath.Join(s.Dir, "images")); err != nil || len(ids) > 0 {
					t.Errorf("an image is left: %v, %v", ids, err)
				}
				if left, err := os.ReadDir(filepath.Join(s.Dir, "tmp")); err != nil || len(left) > 0 {
					t.Errorf("left in tmp: %v, %v", left, err)
				}
			}
			harmless(t, s.Dir+"/layers")
			harmless(t, s.Dir+"/images")
		})
	}
	after, err := os.Stat(canary)
	text, readErr := os.ReadFile(canary)
	if err := errors.Join(err, readErr); err != nil || string(text) != "untouched" || !after.ModTime().Equal(before.ModTime()) || !os.SameFile(before, after) {
		t.Errorf("the file outside was touched: %q, %v", text, err)
	}
	if names, err := os.ReadDir(outside); err != nil || len(names) != 1 {
		t.Errorf("outside are %v, %v", names, err)
	}
	if st := after.Sys(); st == nil || linksOf(t, canary) != 1 {
		t.Error("the file outside has another link")
	}
}

func linksOf(t *testing.T, path string) uint64 {
	t.Helper()
	var st unix.Stat_t
	if err := unix.Stat(path, &st); err != nil {
		t.Fatal(err)
	}
	return st.Nlink
}
