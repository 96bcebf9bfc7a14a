package bundle

import (
	"context"
	"crypto/sha256"
	"encoding/binary"
	"encoding/hex"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

// files makes a bundle: a name ending in / is a directory, "-> x" as content makes a link to x, "#!" at the beginning an exec bit.
func files(t testing.TB, tree map[string]string) *os.File {
	t.Helper()
	root := t.TempDir()
	for name, content := range tree {
		path := root + "/" + name
		must(t, os.MkdirAll(filepath.Dir(path), 0o755))
		mode := os.FileMode(0o644)
		if strings.HasPrefix(content, "#!") {
			mode = 0o755
		}
		if target, ok := strings.CutPrefix(content, "-> "); ok {
			must(t, os.Symlink(target, path))
		} else if !strings.HasSuffix(name, "/") {
			must(t, os.WriteFile(path, []byte(content), mode))
			must(t, os.Chmod(path, mode))
		}
	}
	return open(t, root)
}

func open(t testing.TB, path string) *os.File {
	t.Helper()
	dir, err := os.Open(path)
	must(t, err)
	t.Cleanup(func() { dir.Close() })
	return dir
}

func must(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

func digestOf(t testing.TB, dir *os.File) string {
	t.Helper()
	tree, err := Digest(t.Context(), dir, Limits{}, nil)
	must(t, err)
	return tree.Digest
}

// refused runs Digest and wants it refused with this path and these words.
func refused(t *testing.T, dir *os.File, path, words string) {
	t.Helper()
	tree, err := Digest(t.Context(), dir, Limits{}, nil)
	var e *Error
	if !errors.As(err, &e) {
		t.Fatalf("got %v, %v; want a refusal of %q", tree, err, path)
	}
	if e.Path != path || !strings.Contains(e.Message, words) {
		t.Errorf("refused as %q, want path %q and %q in the message", err, path, words)
	}
}

func TestTheDigestIsThatOfTheDocumentedBytes(t *testing.T) {
	dir := files(t, map[string]string{"b/run.sh": "#!/bin/sh\n", "a.txt": "hello", "b.txt": "", "l": "-> b/run.sh", "empty/": ""})
	var want []byte
	str := func(s string) {
		want = binary.BigEndian.AppendUint16(want, uint16(len(s)))
		want = append(want, s...)
	}
	head := func(typ byte, mode uint16, path string) {
		want = binary.BigEndian.AppendUint16(append(want, typ), mode)
		str(path)
	}
	content := func(s string) {
		h := sha256.Sum256([]byte(s))
		want = append(binary.BigEndian.AppendUint64(want, uint64(len(s))), h[:]...)
	}
	want = binary.BigEndian.AppendUint32([]byte("skillbox-tree-v1\n"), 6)
	head('f', 0o644, "a.txt")
	content("hello")
	head('d', 0o755, "b")
	head('f', 0o644, "b.txt")
	content("")
	head('f', 0o755, "b/run.sh")
	content("#!/bin/sh\n")
	head('d', 0o755, "empty")
	head('l', 0, "l")
	str("b/run.sh")
	sum := sha256.Sum256(want)

	tree, err := Digest(t.Context(), dir, Limits{}, nil)
	must(t, err)
	if w := "sha256:" + hex.EncodeToString(sum[:]); tree.Digest != w {
		t.Errorf("got %s, want %s", tree.Digest, w)
	}
	if tree.Files != 4 || tree.Bytes != 15 || tree.Cached != 0 {
		t.Errorf("got %+v, want 4 files of 15 bytes", tree)
	}
}

func TestTheDigestTellsTreesApart(t *testing.T) {
	seen := map[string]string{}
	for name, tree := range map[string]map[string]string{
		"one file":          {"a": "x"},
		"another content":   {"a": "y"},
		"another name":      {"b": "x"},
		"in a directory":    {"a/a": "x"},
		"executable":        {"a": "#!"},
		"not executable":    {"a": "# "},
		"a link instead":    {"a": "-> x"},
		"a link elsewhere":  {"a": "-> y"},
		"an empty tree":     {},
		"an empty dir":      {"a/": ""},
		"two files":         {"a": "x", "b": ""},
		"content moved":     {"a": "", "b": "x"},
		"name into content": {"a": "xb"},
	} {
		d := digestOf(t, files(t, tree))
		if other, ok := seen[d]; ok {
			t.Errorf("%q and %q have the same digest", name, other)
		}
		seen[d] = name
	}
}

func TestTheDigestIgnoresTimesAndTheRootsOwnName(t *testing.T) {
	tree := map[string]string{"a/b": "x", "c": "y"}
	one, two := files(t, tree), files(t, tree)
	must(t, os.Chtimes(two.Name()+"/c", time.Unix(1, 0), time.Unix(1, 0)))
	must(t, os.Chmod(two.Name(), 0o700))
	if digestOf(t, one) != digestOf(t, two) {
		t.Error("two copies differ")
	}
}

func TestLinksInsideTheBundleAreLeftAlone(t *testing.T) {
	dir := files(t, map[string]string{
		"bin/tool": "#!/bin/sh\n", "a/b/up": "-> ../../bin/tool", "dir": "-> a/b", "through": "-> dir/up", "nowhere": "-> missing/x",
		"self": "-> .", "a/top": "-> ..",
	})
	tree, err := Digest(t.Context(), dir, Limits{}, nil)
	must(t, err)
	if tree.Files != 7 {
		t.Errorf("%d files, want 7", tree.Files)
	}
}

func TestThreat112SymlinkAbs(t *testing.T) {
	for name, c := range map[string]struct {
		tree        map[string]string
		path, words string
	}{
		"to a file of the host":        {map[string]string{"data.csv": "-> /etc/shadow"}, "data.csv", "absolute path \"/etc/shadow\""},
		"to a directory of the host":   {map[string]string{"lib": "-> /root"}, "lib", "absolute"},
		"into the bundle but absolute": {map[string]string{"a": "x", "l": "-> /skill/a"}, "l", "absolute"},
		"out by dots":                  {map[string]string{"l": "-> ../../etc/shadow"}, "l", "leads out of the bundle"},
		"out by dots from below":       {map[string]string{"a/b/l": "-> ../../../x"}, "a/b/l", "leads out"},
		"out and in again":             {map[string]string{"a": "x", "l": "-> ../skill/a"}, "l", "leads out"},
		// Dots after a link count from where the link leads: a/b/c is the root.
		"out by way of a link":     {map[string]string{"a/b/c": "-> ../..", "l": "-> a/b/c/../x"}, "l", "leads out"},
		"in circles":               {map[string]string{"a": "-> b", "b": "-> a"}, "a", "in circles"},
		"to itself and something":  {map[string]string{"a": "-> a/x"}, "a", "in circles"},
		"with escapes in the path": {map[string]string{"l": "-> /\x1b[2J"}, "l", `\x1b[2J`},
	} {
		t.Run(name, func(t *testing.T) { refused(t, files(t, c.tree), c.path, c.words) })
	}
	t.Run("thousands of links through links end soon", func(t *testing.T) {
		tree := map[string]string{"l00": "-> ."}
		for i := 1; i < 40; i++ {
			tree[fmt.Sprintf("l%02d", i)] = "-> " + strings.Repeat(fmt.Sprintf("l%02d/", i-1), 500)
		}
		start := time.Now()
		_, err := Digest(t.Context(), files(t, tree), Limits{}, nil)
		if err == nil || time.Since(start) > 5*time.Second {
			t.Errorf("got %v after %v", err, time.Since(start))
		}
	})
}

func TestThreat114HardlinkInArchive(t *testing.T) {
	dir := files(t, map[string]string{"a": "x"})
	outside := filepath.Join(filepath.Dir(dir.Name()), "outside")
	must(t, os.WriteFile(outside, []byte("secret"), 0o600))
	must(t, os.Link(outside, dir.Name()+"/data"))
	refused(t, dir, "data", "second hard link")

	dir = files(t, map[string]string{"a": "x"})
	must(t, os.Link(dir.Name()+"/a", dir.Name()+"/b"))
	if _, err := Digest(t.Context(), dir, Limits{}, nil); err == nil || !strings.Contains(err.(*Error).Hint, "cp -r") {
		t.Errorf("two names of one file: got %v, want a hint how to copy", err)
	}
}

func TestThreat115SpecialFiles(t *testing.T) {
	for name, c := range map[string]struct {
		mode  uint32
		dev   int
		words string
	}{
		"a FIFO":            {unix.S_IFIFO, 0, "is a FIFO"},
		"a socket":          {unix.S_IFSOCK, 0, "is a socket"},
		"a terminal":        {unix.S_IFCHR, int(unix.Mkdev(5, 0)), "is a character device"},
		"a disk":            {unix.S_IFBLK, int(unix.Mkdev(7, 0)), "is a block device"},
		"an overlay's hole": {unix.S_IFCHR, 0, "is a character device"},
	} {
		t.Run(name, func(t *testing.T) {
			dir := files(t, map[string]string{"a/b": "x"})
			err := unix.Mknod(dir.Name()+"/a/special", c.mode|0o644, c.dev)
			if errors.Is(err, unix.EPERM) {
				t.Skip("making a device needs root")
			}
			must(t, err)
			refused(t, dir, "a/special", c.words)
			for _, manifest := range []string{"skillbox.yaml", "SKILL.md", "policy.yaml"} {
				must(t, os.Rename(dir.Name()+"/a/special", dir.Name()+"/"+manifest))
				if _, err := Read(dir); err == nil || !strings.Contains(err.Error(), c.words) {
					t.Errorf("%s as %s: got %v, want a refusal", name, manifest, err)
				}
				must(t, os.Rename(dir.Name()+"/"+manifest, dir.Name()+"/a/special"))
			}
		})
	}
}

func TestSetIDFilesAreRefusedAndSharedDirectoriesAreNot(t *testing.T) {
	for _, mode := range []uint32{0o4755, 0o2755, 0o6755, 0o4644} {
		dir := files(t, map[string]string{"a/b": "x"})
		must(t, unix.Chmod(dir.Name()+"/a/b", mode))
		refused(t, dir, "a/b", "set-user-id")
	}
	dir := files(t, map[string]string{"a/b": "x"})
	must(t, unix.Chmod(dir.Name()+"/a", 0o2775))
	digestOf(t, dir)
}

func TestThreat117NamesOfZipSlip(t *testing.T) {
	for name, want := range map[string]string{
		"a\\..\\b": `a\\..\\b`, "C:x": "C:x", "c:": "c:", "new\nline": `new\nline`, "\x1b[31mred": `\x1b[31mred`, "-rf": "-rf",
		"bad\xffutf8": `bad\xffutf8`, "over\u202etxt.exe": `over\u202etxt.exe`, "line\u2028": `line\u2028`, "del\x7f": `del\x7f`,
		"c1\u0085": `c1\u0085`,
	} {
		t.Run(want, func(t *testing.T) {
			refused(t, files(t, map[string]string{"d/" + name: "x"}), "d/"+want, "name")
			refused(t, files(t, map[string]string{name + "/x": "x"}), want, "name")
		})
	}
	t.Run("what looks odd but is a name", func(t *testing.T) {
		digestOf(t, files(t, map[string]string{"..a": "", "...": "", "a b": "", "ä.txt": "", "日本": "", "$(id)": "", ";id": "", "ab:c": "", "👩‍💻": ""}))
	})
}

func TestThreat118DuplicateTwins(t *testing.T) {
	for name, pair := range map[string][2]string{
		"case":               {"SKILL.md", "skill.md"},
		"case of one letter": {"a", "A"},
		"case of Greek":      {"ΣΑΣ", "σας"},
		"normal form":        {"caf\u00e9", "cafe\u0301"},
		"both":               {"CAFE\u0301", "caf\u00e9"},
		"Kelvin":             {"k", "\u212a"},
		"long s":             {"s", "ſ"},
	} {
		t.Run(name, func(t *testing.T) {
			dir := files(t, map[string]string{"d/" + pair[0]: "x", "d/" + pair[1]: "-> " + pair[0]})
			refused(t, dir, "d/"+max(pair[0], pair[1]), "differs from")
		})
	}
	digestOf(t, files(t, map[string]string{"a/x": "", "b/X": "", "ß": "", "ss": ""}))
}

func TestThreat120BundleToctou(t *testing.T) {
	t.Run("a file exchanged for one of the same size is noticed by the next digest", func(t *testing.T) {
		dir := files(t, map[string]string{"main.py": "print(1)"})
		cache := OpenCache(filepath.Join(t.TempDir(), "c"))
		first, err := Digest(t.Context(), dir, Limits{}, cache)
		must(t, err)
		must(t, os.WriteFile(dir.Name()+"/new", []byte("print(2)"), 0o644))
		must(t, os.Chtimes(dir.Name()+"/new", time.Unix(1, 0), time.Unix(1, 0)))
		must(t, os.Rename(dir.Name()+"/new", dir.Name()+"/main.py"))
		second, err := Digest(t.Context(), dir, Limits{}, cache)
		must(t, err)
		if first.Digest == second.Digest {
			t.Error("the digest is the same")
		}
	})
	t.Run("a file that grows, shrinks or is exchanged between the look and the reading is an error", func(t *testing.T) {
		for name, change := range map[string]func(path string) error{
			"grows":      func(p string) error { return os.WriteFile(p, []byte("longer than before"), 0o644) },
			"shrinks":    func(p string) error { return os.Truncate(p, 1) },
			"same size":  func(p string) error { return os.WriteFile(p, []byte("after!"), 0o644) },
			"vanishes":   os.Remove,
			"a link now": func(p string) error { return errors.Join(os.Remove(p), os.Symlink("/etc/passwd", p)) },
			"a FIFO now": func(p string) error { return errors.Join(os.Remove(p), unix.Mkfifo(p, 0o644)) },
		} {
			dir := files(t, map[string]string{"f": "before"})
			time.Sleep(15 * time.Millisecond) // a tick of the kernel's clock, so that the change has another time
			w := newWorker(&walk{ctx: t.Context(), lim: Limits{}.orDefault()})
			must(t, statx(int(dir.Fd()), "f", &w.st))
			e := &entry{path: "f", typ: 'f', size: w.st.Size, stamp: stampOf(&w.st)}
			must(t, change(dir.Name()+"/f"))
			if err := w.contentOf(&openDir{fd: int(dir.Fd())}, "f", e); err == nil || !strings.Contains(err.Error(), "while it was read") {
				t.Errorf("%s: got %v, want changed while it was read", name, err)
			}
		}
	})
	t.Run("a bundle written to all the time yields an error or one of its states", func(t *testing.T) {
		dir := files(t, map[string]string{"f": strings.Repeat("a", 1<<20)})
		stop, stopped := make(chan bool), make(chan bool)
		go func() {
			defer close(stopped)
			for c := byte('b'); ; c ^= 'b' ^ 'c' {
				select {
				case <-stop:
					return
				default:
					os.WriteFile(dir.Name()+"/f", []byte(strings.Repeat(string(c), 1<<20)), 0o644)
				}
			}
		}()
		for range 50 {
			if _, err := Digest(t.Context(), dir, Limits{}, nil); err != nil && !strings.Contains(err.Error(), "while it was read") {
				t.Error(err)
			}
		}
		close(stop)
		<-stopped
	})
}

func TestThreat126BundleWriteback(t *testing.T) {
	dir := files(t, map[string]string{"main.py": "import lib\n", "lib.py": "x = 1\n"})
	cache := OpenCache(filepath.Join(t.TempDir(), "c"))
	var last string
	for range 3 {
		tree, err := Digest(t.Context(), dir, Limits{}, cache)
		must(t, err)
		if last != "" && tree.Digest != last {
			t.Error("the digest of an untouched bundle changed")
		}
		last = tree.Digest
	}
	must(t, os.Mkdir(dir.Name()+"/__pycache__", 0o755))
	must(t, os.WriteFile(dir.Name()+"/__pycache__/lib.cpython-311.pyc", []byte("poison"), 0o644))
	tree, err := Digest(t.Context(), dir, Limits{}, cache)
	must(t, err)
	if tree.Digest == last {
		t.Error("byte code beside the source left the digest as it was")
	}
}

func TestAMountInsideTheBundleIsRefused(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Skip("mounting needs root")
	}
	for _, target := range []string{"d", "f"} {
		dir := files(t, map[string]string{"d/": "", "f": "x"})
		source := "/etc"
		if target == "f" {
			source = "/etc/hostname"
		}
		err := unix.Mount(source, dir.Name()+"/"+target, "", unix.MS_BIND, "")
		if err != nil {
			t.Skipf("mounting is not permitted here: %v", err)
		}
		refused(t, dir, target, "mount point")
		must(t, unix.Unmount(dir.Name()+"/"+target, unix.MNT_DETACH))
	}
}

func TestLimitsNameThemselvesAndTheFlag(t *testing.T) {
	for name, c := range map[string]struct {
		lim         Limits
		words, flag string
	}{
		"files": {Limits{Files: 4}, "larger than 4 files", "--max-files"},
		"bytes": {Limits{Bytes: 10}, "larger than 10 bytes", "--max-bytes"},
	} {
		dir := files(t, map[string]string{"a": "xxx", "b": "xxx", "c": "xxx", "d": "xxx", "e": "-> a"})
		_, err := Digest(t.Context(), dir, c.lim, nil)
		var e *Error
		if !errors.As(err, &e) || !strings.Contains(e.Message, c.words) || !strings.Contains(e.Hint, c.flag) {
			t.Errorf("%s: got %v", name, err)
		}
	}
	dir := files(t, map[string]string{"a": "", "b": "", "c/d/e": ""})
	if _, err := Digest(t.Context(), dir, Limits{Files: 3, Bytes: 1}, nil); err != nil {
		t.Errorf("as many files as permitted: %v", err)
	}
	sparse := files(t, map[string]string{"hole": ""})
	must(t, os.Truncate(sparse.Name()+"/hole", 1<<40))
	refused(t, sparse, "hole", "larger than 536870912 bytes")
}

func TestADeepTreeIsRefused(t *testing.T) {
	deep := strings.Repeat("d/", 63)
	digestOf(t, files(t, map[string]string{deep + "f": "x"}))
	refused(t, files(t, map[string]string{deep + "d/f": "x"}), strings.TrimSuffix(deep+"d", "/"), "deeper than 64")

	long := strings.Repeat(strings.Repeat("n", 250)+"/", 15)
	digestOf(t, files(t, map[string]string{long + "f": "x"}))
	root := t.TempDir()
	must(t, os.MkdirAll(root+"/"+long, 0o755))
	at := open(t, root+"/"+long)
	must(t, unix.Mkdirat(int(at.Fd()), strings.Repeat("m", 250), 0o755))
	sub, err := unix.Openat(int(at.Fd()), strings.Repeat("m", 250), unix.O_DIRECTORY, 0)
	must(t, err)
	defer unix.Close(sub)
	must(t, unix.Mkdirat(sub, strings.Repeat("o", 250), 0o755))
	if _, err := Digest(t.Context(), open(t, root), Limits{}, nil); err == nil || !strings.Contains(err.Error(), "longer than 4096") {
		t.Errorf("a path of more than 4096 bytes: got %v", err)
	}
}

func TestACanceledDigestReturnsAtOnce(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := Digest(ctx, files(t, map[string]string{"a": "x"}), Limits{}, nil); !errors.Is(err, context.Canceled) {
		t.Errorf("got %v", err)
	}
}

func TestDigestLeavesNoDescriptorOpen(t *testing.T) {
	count := func() int {
		entries, err := os.ReadDir("/proc/self/fd")
		must(t, err)
		return len(entries)
	}
	good := files(t, map[string]string{"a/b/c": "x", "a/d": "y", "e": ""})
	bad := files(t, map[string]string{"a/b/c": "x", "a/d": "y", "e/f/-g": ""})
	before := count()
	for range 20 {
		digestOf(t, good)
		if _, err := Digest(t.Context(), bad, Limits{}, nil); err == nil {
			t.Fatal("not refused")
		}
	}
	if after := count(); after > before {
		t.Errorf("%d descriptors before, %d after", before, after)
	}
}

func TestATreeTellsThatItWasChangedAndChangedBack(t *testing.T) {
	dir := files(t, map[string]string{"main.py": "1", "lib/a.py": "1", "lib/link": "-> a.py"})
	root := dir.Name()
	look := func() *Tree {
		tree, err := Digest(t.Context(), dir, Limits{}, nil)
		must(t, err)
		return tree
	}
	first := look()
	for name, change := range map[string]func() error{
		"a file and back": func() error {
			return errors.Join(os.WriteFile(root+"/lib/a.py", []byte("2"), 0o644), os.WriteFile(root+"/lib/a.py", []byte("1"), 0o644),
				os.Chtimes(root+"/lib/a.py", time.Unix(1, 0), time.Unix(1, 0)))
		},
		"a file more and less": func() error { return errors.Join(os.WriteFile(root+"/re.py", nil, 0o644), os.Remove(root+"/re.py")) },
		"another link for a moment": func() error {
			return errors.Join(os.Remove(root+"/lib/link"), os.Symlink("../main.py", root+"/lib/link"), os.Remove(root+"/lib/link"), os.Symlink("a.py", root+"/lib/link"))
		},
		"a mode and back": func() error { return errors.Join(os.Chmod(root+"/main.py", 0o600), os.Chmod(root+"/main.py", 0o644)) },
	} {
		time.Sleep(50 * time.Millisecond)
		before := time.Now()
		must(t, change())
		if now := look(); now.Digest != first.Digest || !now.Changed.After(before) {
			t.Errorf("%s: digest %s, was %s; changed at %v, not after %v", name, now.Digest, first.Digest, now.Changed, before)
		}
	}
	time.Sleep(50 * time.Millisecond)
	if now := time.Now(); look().Changed.After(now) {
		t.Errorf("what nobody changed changed after %v", now)
	}
}
