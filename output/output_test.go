//go:build linux

package output

import (
	"archive/tar"
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

// plenty are limits that no test but those of limits meets.
var plenty = Limits{Files: 1000, Bytes: 1 << 20, Depth: 32}

// tree makes files: a name ending in / is a directory, "-> x" as content makes a link to x.
func tree(t testing.TB, files map[string]string) *os.File {
	t.Helper()
	root := t.TempDir()
	for name, content := range files {
		path := root + "/" + name
		must(t, os.MkdirAll(filepath.Dir(path), 0o755))
		if target, ok := strings.CutPrefix(content, "-> "); ok {
			must(t, os.Symlink(target, path))
		} else if !strings.HasSuffix(name, "/") {
			must(t, os.WriteFile(path, []byte(content), 0o644))
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

// collected runs Collect and returns the stream's files, and what was skipped by name.
func collected(t testing.TB, root *os.File, limits Limits) (files, skipped map[string]string) {
	t.Helper()
	var stream bytes.Buffer
	items, left, err := Collect(root, &stream, limits)
	must(t, err)
	files, skipped = map[string]string{}, map[string]string{}
	archive := tar.NewReader(&stream)
	for {
		header, err := archive.Next()
		if errors.Is(err, io.EOF) {
			break
		}
		must(t, err)
		content, err := io.ReadAll(archive)
		must(t, err)
		files[header.Name] = string(content)
		if header.Mode != 0o644 || header.Typeflag != tar.TypeReg {
			t.Errorf("%s: mode %o, type %c", header.Name, header.Mode, header.Typeflag)
		}
	}
	if len(items) != len(files) {
		t.Errorf("%d items, %d files in the stream", len(items), len(files))
	}
	for _, s := range left {
		skipped[s.Name] = s.Reason
	}
	return files, skipped
}

func TestFilesAreCollectedAndExtracted(t *testing.T) {
	root := tree(t, map[string]string{"a": "x", "d/e/f": "yz", "d/empty": "", "nothing/": ""})
	must(t, os.Chmod(root.Name()+"/d/e", 0))
	must(t, os.Chmod(root.Name()+"/a", 0o4000))
	var stream bytes.Buffer
	items, skipped, err := Collect(root, &stream, plenty)
	if err != nil || len(skipped) > 0 || len(items) != 3 {
		t.Fatalf("%v %v %v", items, skipped, err)
	}
	if items[0].Name != "a" || items[0].SHA256 != "2d711642b726b04401627ca9fbac32f5c8530fb1903cc4db02258717921a4881" {
		t.Errorf("%+v", items[0])
	}
	to := t.TempDir()
	into, err := os.OpenRoot(to)
	must(t, err)
	defer into.Close()
	must(t, Extract(&stream, into, false))
	for name, want := range map[string]string{"a": "x", "d/e/f": "yz", "d/empty": ""} {
		got, err := os.ReadFile(to + "/" + name)
		info, _ := os.Lstat(to + "/" + name)
		if err != nil || string(got) != want || info.Mode() != 0o644 {
			t.Errorf("%s: %q %v %v", name, got, info.Mode(), err)
		}
	}
	if _, err := os.Lstat(to + "/nothing"); err == nil {
		t.Error("an empty directory was made")
	}
}

func TestNoLimitsAreRefused(t *testing.T) {
	for _, l := range []Limits{{}, {Files: 1}, {Bytes: 1}, {Files: -1, Bytes: 1}} {
		if _, _, err := Collect(tree(t, nil), io.Discard, l); err == nil {
			t.Errorf("%+v is accepted", l)
		}
	}
}

func TestLimitsHold(t *testing.T) {
	root := tree(t, map[string]string{"a": "123", "b": "456", "c": "789"})
	if files, skipped := collected(t, root, Limits{Files: 2, Bytes: 100}); len(files) != 0 || skipped[`""`] == "" {
		t.Errorf("a directory of too many entries: %v %v", files, skipped)
	}
	if files, skipped := collected(t, root, Limits{Files: 10, Bytes: 6}); len(files) != 2 || skipped[`"c"`] == "" {
		t.Errorf("too many bytes: %v %v", files, skipped)
	}
	root = tree(t, map[string]string{"a/a": "1", "a/b": "2", "b/a": "3", "b/b": "4"})
	if files, skipped := collected(t, root, Limits{Files: 3, Bytes: 100}); len(files) != 3 || skipped[`"b/b"`] == "" {
		t.Errorf("too many files: %v %v", files, skipped)
	}
	root = tree(t, map[string]string{"a": "1", "b/c/d": "2", "b/c/d2/e": "3"})
	if files, skipped := collected(t, root, Limits{Files: 10, Bytes: 100, Depth: 2}); len(files) != 2 || skipped[`"b/c/d2/"`] == "" {
		t.Errorf("too deep: %v %v", files, skipped)
	}
}

// What is reported travels in one message, however long the names are.
func TestLongNamesDoNotFillTheReport(t *testing.T) {
	dir := memory(t)
	at, err := unix.Open(dir, unix.O_PATH|unix.O_DIRECTORY|unix.O_CLOEXEC, 0)
	must(t, err)
	for range 20 {
		must(t, unix.Mkdirat(at, strings.Repeat("<", 255), 0o755))
		next, err := unix.Openat(at, strings.Repeat("<", 255), unix.O_PATH|unix.O_DIRECTORY|unix.O_CLOEXEC, 0)
		must(t, err)
		unix.Close(at)
		at = next
		for i := range 40 {
			fd, err := unix.Openat(at, fmt.Sprint(i), unix.O_CREAT|unix.O_CLOEXEC, 0o644)
			must(t, err)
			unix.Close(fd)
			must(t, unix.Mknodat(at, fmt.Sprintf("\xff%d", i), unix.S_IFIFO|0o644, 0))
		}
	}
	unix.Close(at)
	var stream bytes.Buffer
	items, skipped, err := Collect(open(t, dir), &stream, plenty)
	must(t, err)
	report, err := json.Marshal(map[string]any{"items": items, "skipped": skipped})
	must(t, err)
	if len(report) > 2<<20 || len(items) < 10 || len(skipped) == 0 {
		t.Errorf("%d bytes for %d items and %d left behind", len(report), len(items), len(skipped))
	}
	for _, i := range items {
		if len(i.Name) > 4095 {
			t.Errorf("a path of %d bytes", len(i.Name))
		}
	}
}

// A file with a hole claims any size; added to what was taken before, the largest one overflows.
func TestAHugeHoleIsLeftBehind(t *testing.T) {
	dir := memory(t)
	must(t, os.WriteFile(dir+"/a", []byte("x"), 0o644))
	for _, size := range []int64{1<<63 - 1, 1 << 62} {
		must(t, os.WriteFile(dir+"/b", nil, 0o644))
		if err := os.Truncate(dir+"/b", size); err != nil {
			t.Skipf("no file system here takes a file of %d bytes: %v", size, err)
		}
		files, skipped := collected(t, open(t, dir), plenty)
		if len(files) != 1 || !strings.Contains(skipped[`"b"`], "larger than") {
			t.Errorf("%d: %d files, %v", size, len(files), skipped)
		}
	}
}

// memory is a directory on a tmpfs.
func memory(t testing.TB) string {
	t.Helper()
	dir, err := os.MkdirTemp("/dev/shm", "skillbox-output-test-")
	if err != nil {
		t.Skip(err)
	}
	t.Cleanup(func() { os.RemoveAll(dir) })
	return dir
}

func TestThreat129OutDirSwapRace(t *testing.T) { race(t, nil) }

// The same for metadata: no entry may be described by what a link leads to.
func TestThreat130OutMetadataRace(t *testing.T) {
	race(t, func(items []Item) {
		for _, i := range items {
			if i.Bytes != int64(len("inside")) {
				t.Fatalf("%+v has a stranger's size", i)
			}
		}
	})
}

// race flips one name between a directory, a link to a directory outside, a file and a link to a file outside, by exchanging, while
// Collect runs: no moment without the name. Nothing of the outside may ever be in the stream.
func race(t *testing.T, check func([]Item)) {
	base := memory(t)
	for _, d := range []string{"outside/d", "kinds/dir", "at/d"} {
		must(t, os.MkdirAll(base+"/"+d, 0o755))
	}
	must(t, os.WriteFile(base+"/outside/d/f", []byte("SECRET of the host"), 0o644))
	for _, f := range []string{"kinds/dir/f", "kinds/file", "at/d/f"} {
		must(t, os.WriteFile(base+"/"+f, []byte("inside"), 0o644))
	}
	must(t, os.Symlink(base+"/outside/d", base+"/kinds/linkdir"))
	must(t, os.Symlink(base+"/outside/d/f", base+"/kinds/linkfile"))
	kinds, slot := open(t, base+"/kinds"), open(t, base+"/at")
	var swaps atomic.Int64
	stop, stopped := make(chan bool), make(chan bool)
	go func() {
		defer close(stopped)
		for {
			select {
			case <-stop:
				return
			default:
			}
			for _, kind := range []string{"dir", "linkdir", "file", "linkfile"} {
				if unix.Renameat2(int(kinds.Fd()), kind, int(slot.Fd()), "d", unix.RENAME_EXCHANGE) == nil {
					swaps.Add(1)
				}
			}
		}
	}()
	tries, fooled := 0, 0
	for deadline := time.Now().Add(20 * time.Second); swaps.Load() < 100_000 && time.Now().Before(deadline); tries++ {
		var stream bytes.Buffer
		items, _, err := Collect(slot, &stream, plenty)
		if err != nil {
			t.Fatal(err)
		}
		if bytes.Contains(stream.Bytes(), []byte("SECRET")) {
			t.Fatalf("try %d: the collection followed a link: %q", tries, stream.Bytes())
		}
		if check != nil {
			check(items)
		}
		// What a collector by path would have got.
		if got, _ := os.ReadFile(base + "/at/d/f"); bytes.Contains(got, []byte("SECRET")) {
			fooled++
		}
	}
	close(stop)
	<-stopped
	t.Logf("%d swaps, %d collections; reading by path would have been fooled %d times", swaps.Load(), tries, fooled)
	if swaps.Load() < 100_000 || fooled == 0 {
		t.Error("that was no race")
	}
}

func TestThreat132OutDeviceSocket(t *testing.T) {
	root := tree(t, map[string]string{"good": "x", "link": "-> /etc/passwd", "dirlink": "-> /etc", "self": "-> ."})
	for name, mode := range map[string]uint32{"fifo": unix.S_IFIFO, "socket": unix.S_IFSOCK, "tty": unix.S_IFCHR, "hole": unix.S_IFCHR, "disk": unix.S_IFBLK} {
		dev := map[string]int{"tty": int(unix.Mkdev(5, 0)), "disk": int(unix.Mkdev(7, 0))}[name]
		if err := unix.Mknod(root.Name()+"/"+name, mode|0o666, dev); err != nil && !errors.Is(err, unix.EPERM) {
			t.Fatal(err)
		}
	}
	start := time.Now()
	files, skipped := collected(t, root, plenty)
	if len(files) != 1 || files["good"] != "x" {
		t.Errorf("got %v", files)
	}
	for _, name := range []string{"fifo", "socket", "link", "dirlink", "self"} {
		if skipped[`"`+name+`"`] == "" {
			t.Errorf("nothing is said of %s: %v", name, skipped)
		}
	}
	if d := time.Since(start); d > time.Second {
		t.Errorf("took %v", d)
	}
}

func TestThreat133OutHardlink(t *testing.T) {
	root := tree(t, map[string]string{"a": "x"})
	outside := filepath.Join(t.TempDir(), "secret")
	must(t, os.WriteFile(outside, []byte("secret"), 0o600))
	must(t, os.Link(outside, root.Name()+"/b"))
	files, skipped := collected(t, root, plenty)
	if len(files) != 1 || !strings.Contains(skipped[`"b"`], "second name") {
		t.Errorf("%v %v", files, skipped)
	}
}

// Ten thousand names and a path of 4,000 levels stand for what would take minutes; the walk is bounded by its limits, not by them.
func TestThreat135OutCountDepth(t *testing.T) {
	dir := memory(t)
	at, err := unix.Open(dir, unix.O_PATH|unix.O_DIRECTORY|unix.O_CLOEXEC, 0)
	must(t, err)
	long := strings.Repeat("d", 255)
	for range 4000 {
		must(t, unix.Mkdirat(at, long, 0o755))
		next, err := unix.Openat(at, long, unix.O_PATH|unix.O_DIRECTORY|unix.O_CLOEXEC, 0)
		must(t, err)
		unix.Close(at)
		at = next
	}
	unix.Close(at)
	for i := range 50 {
		for j := range 200 {
			must(t, os.MkdirAll(fmt.Sprintf("%s/many/%d/%d", dir, i, j), 0o755))
		}
	}
	must(t, os.WriteFile(dir+"/a", []byte("x"), 0o644))
	start := time.Now()
	files, skipped := collected(t, open(t, dir), Limits{Files: 200, Bytes: 1 << 20})
	if d := time.Since(start); d > time.Second {
		t.Errorf("took %v", d)
	}
	if files["a"] != "x" || len(skipped) < 2 {
		t.Errorf("%v %v", files, skipped)
	}
	all := fmt.Sprint(skipped)
	for _, want := range []string{"deeper than 32 directories", "more than 3200 names"} {
		if !strings.Contains(all, want) {
			t.Errorf("%q is not said: %s", want, all[:min(len(all), 400)])
		}
	}
	// The box's /output is removed by unmounting it; os.RemoveAll, relative to descriptors, shows that even a disk could be cleaned.
	must(t, os.RemoveAll(dir))
}

func TestThreat136OutUndeletable(t *testing.T) {
	root := tree(t, map[string]string{"a/b/c": "x", "a/d": "y"})
	for _, name := range []string{"/a/b/c", "/a/d", "/a/b", "/a"} {
		must(t, os.Chmod(root.Name()+name, 0))
	}
	files, skipped := collected(t, root, plenty)
	if files["a/b/c"] != "x" || files["a/d"] != "y" || len(skipped) > 0 {
		t.Errorf("%v %v", files, skipped)
	}
}

func TestThreat138OutDestSymlink(t *testing.T) {
	stream := archive(t, map[string]string{"sub/report": "new"})
	outside := t.TempDir()
	must(t, os.WriteFile(outside+"/victim", []byte("old"), 0o644))
	for name, links := range map[string]map[string]string{
		"a file":                    {"sub/report": "-> " + outside + "/victim"},
		"a dangling link":           {"sub/report": "-> " + outside + "/new"},
		"a directory outside":       {"sub": "-> " + outside},
		"a relative way out":        {"sub": "-> ../../../../../../" + outside},
		"a directory inside":        {"sub": "-> other", "other/": ""},
		"a directory up and inside": {"other/x": "", "sub": "-> other/../other"},
	} {
		for _, force := range []bool{false, true} {
			dir := tree(t, links)
			into, err := os.OpenRoot(dir.Name())
			must(t, err)
			err = Extract(bytes.NewReader(stream), into, force)
			into.Close()
			if err == nil && (!force || links["sub/report"] == "") {
				t.Errorf("%s, force %t: written", name, force)
			}
			if got, _ := os.ReadFile(outside + "/victim"); string(got) != "old" {
				t.Fatalf("%s, force %t: the file outside holds %q", name, force, got)
			}
			if left, _ := os.ReadDir(outside); len(left) != 1 {
				t.Fatalf("%s, force %t: %v appeared outside", name, force, left)
			}
			if _, err := os.Lstat(dir.Name() + "/other/report"); err == nil {
				t.Errorf("%s, force %t: written through the link", name, force)
			}
		}
	}
}

// archive is a stream as Collect makes it, with names that Collect would not.
func archive(t testing.TB, files map[string]string) []byte {
	t.Helper()
	var b bytes.Buffer
	w := tar.NewWriter(&b)
	for name, content := range files {
		must(t, w.WriteHeader(&tar.Header{Name: name, Size: int64(len(content)), Mode: 0o644, Typeflag: tar.TypeReg}))
		_, err := w.Write([]byte(content))
		must(t, err)
	}
	must(t, w.Close())
	return b.Bytes()
}

func TestExistingFilesStayUnlessForced(t *testing.T) {
	dir := tree(t, map[string]string{"a": "old", "d/": ""})
	into, err := os.OpenRoot(dir.Name())
	must(t, err)
	defer into.Close()
	if err := Extract(bytes.NewReader(archive(t, map[string]string{"a": "new"})), into, false); err == nil || !strings.Contains(err.Error(), `"a" exists already; --force`) {
		t.Errorf("got %v", err)
	}
	must(t, Extract(bytes.NewReader(archive(t, map[string]string{"a": "new"})), into, true))
	if got, _ := os.ReadFile(dir.Name() + "/a"); string(got) != "new" {
		t.Errorf("got %q", got)
	}
}

// oddNames are those that a listing could not show as they are.
var oddNames = []string{
	"esc\x1b[2J", "new\nline", "cr\r", "bad\xff\xfe", "rtl\u202etxt.exe", "del\x7f", "zero\u200bwidth", "bom\ufeff", "line\u2028sep", "c1\u0085", "tab\t",
}

func TestThreat139OutNameInjection(t *testing.T) {
	fine := []string{"con", "-rf", " ", "$(id)", ";id", "a\\b", "日本", "*", `"quoted"`, "...", strings.Repeat("x", 255)}
	files := map[string]string{}
	for _, name := range append(append([]string{}, oddNames...), fine...) {
		files[name] = "x"
	}
	got, skipped := collected(t, tree(t, files), plenty)
	for _, name := range fine {
		if got[name] != "x" {
			t.Errorf("%q was not taken", name)
		}
	}
	if len(got) != len(fine) || len(skipped) != len(oddNames) {
		t.Errorf("%d taken, %d left behind: %q", len(got), len(skipped), skipped)
	}
	for name := range skipped {
		if strings.ContainsFunc(name, func(r rune) bool { return r < ' ' || r > '~' }) {
			t.Errorf("%q is not escaped", name)
		}
	}
	for _, name := range append([]string{"../x", "/x", "a/../../x", "a//b", ".", "", "a/.", "./a", "x\x00y"}, oddNames...) {
		into := t.TempDir()
		root, err := os.OpenRoot(into)
		must(t, err)
		var b bytes.Buffer
		w := tar.NewWriter(&b)
		if w.WriteHeader(&tar.Header{Name: name, Mode: 0o644, Typeflag: tar.TypeReg}) != nil {
			continue // no tar stream can hold it
		}
		must(t, w.Close())
		if err := Extract(&b, root, true); err == nil {
			t.Errorf("%q is extracted", name)
		}
		root.Close()
		if left, _ := os.ReadDir(into); len(left) > 0 {
			t.Errorf("%q made %v", name, left)
		}
	}
}

func TestOnlyFilesAreExtracted(t *testing.T) {
	for _, kind := range []byte{tar.TypeLink, tar.TypeSymlink, tar.TypeChar, tar.TypeBlock, tar.TypeDir, tar.TypeFifo} {
		var b bytes.Buffer
		w := tar.NewWriter(&b)
		must(t, w.WriteHeader(&tar.Header{Name: "x", Linkname: "/etc/passwd", Mode: 0o644, Typeflag: kind}))
		must(t, w.Close())
		dir := t.TempDir()
		root, err := os.OpenRoot(dir)
		must(t, err)
		if err := Extract(&b, root, true); err == nil {
			t.Errorf("type %c is extracted", kind)
		}
		root.Close()
		if left, _ := os.ReadDir(dir); len(left) > 0 {
			t.Errorf("type %c made %v", kind, left)
		}
	}
}

// A sparse file of the pax format is a regular file to the reader, and its holes cost the sender nothing.
func TestAStreamWithHolesIsRefused(t *testing.T) {
	var b bytes.Buffer
	w := tar.NewWriter(&b)
	must(t, w.WriteHeader(&tar.Header{Name: "x", Size: 1, Mode: 0o644, Typeflag: tar.TypeReg, Format: tar.FormatPAX, PAXRecords: map[string]string{
		"SKILLBOX.sparse.major": "1",
	}}))
	_, err := w.Write([]byte("x"))
	must(t, err)
	must(t, w.Close())
	// The writer refuses to write such records, so they are written as another vendor's of the same length.
	stream := bytes.Replace(b.Bytes(), []byte("SKILLBOX.sparse.major=1"), []byte("GNU.sparse.size=9999999"), 1)
	dir := t.TempDir()
	root, err := os.OpenRoot(dir)
	must(t, err)
	defer root.Close()
	if err := Extract(bytes.NewReader(stream), root, true); err == nil {
		t.Error("it is extracted")
	}
}

// everything lists what lies below a directory, by path.
func everything(t testing.TB, dir string) map[string]fs.FileMode {
	t.Helper()
	found := map[string]fs.FileMode{}
	must(t, filepath.WalkDir(dir, func(path string, e fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		info, err := e.Info()
		if err == nil {
			found[path] = info.Mode()
		}
		return err
	}))
	return found
}
