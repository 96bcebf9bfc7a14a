package audit

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

func refused(t *testing.T, dir, why string) {
	t.Helper()
	l, err := Open(dir, quick)
	if err == nil {
		l.Close()
		t.Fatalf("%s was opened", dir)
	}
	if !strings.Contains(err.Error(), why) {
		t.Errorf("%v, want %q", err, why)
	}
}

func must(t *testing.T, errs ...error) {
	t.Helper()
	for _, err := range errs {
		if err != nil {
			t.Fatal(err)
		}
	}
}

func TestADirectoryOfOthersIsRefused(t *testing.T) {
	at := t.TempDir()
	real := filepath.Join(at, "real")
	shut(t, open(t, real, quick))
	link := filepath.Join(at, "link")
	must(t, os.Symlink(real, link))
	refused(t, link, "link")

	must(t, os.Chmod(real, 0o770))
	refused(t, real, "chmod 700 "+real)
	must(t, os.Chmod(real, 0o700))

	file := filepath.Join(at, "file")
	put(t, nil, file)
	refused(t, file, "no directory")

	if os.Getuid() != 0 {
		t.Skip("to give a directory away needs root")
	}
	must(t, os.Chown(real, 61234, 61234))
	refused(t, real, "belongs to user 61234")
}

func TestFilesOfOthersAreRefused(t *testing.T) {
	for name, do := range map[string]func(path string) error{
		"link":              func(path string) error { return os.Rename(path, path+".away") },
		"chmod 600":         func(path string) error { return os.Chmod(path, 0o620) },
		"second name":       func(path string) error { return os.Link(path, path+".too") },
		"belongs to user 6": func(path string) error { return os.Chown(path, 61234, -1) },
	} {
		for _, file := range []string{segmentName(1), keyFile, headFile, lockFile} {
			dir := filepath.Join(t.TempDir(), "audit")
			l := open(t, dir, quick)
			add(t, l, run("one")...)
			shut(t, l)
			path := filepath.Join(dir, file)
			if os.Getuid() != 0 && strings.HasPrefix(name, "belongs") {
				continue
			}
			must(t, do(path))
			if name == "link" {
				must(t, os.Symlink(path+".away", path))
			}
			refused(t, dir, name)
		}
	}
}

func TestAKeyIsNeverReplaced(t *testing.T) {
	dir := small(t)
	key := content(t, dir, keyFile)
	must(t, os.Remove(filepath.Join(dir, keyFile)))
	refused(t, dir, "put the file `key` back")
	foreign := written(t, 1, quick)
	put(t, content(t, foreign, keyFile), dir, keyFile)
	refused(t, dir, "key.pub is not of key")
	put(t, content(t, foreign, publicFile), dir, publicFile)
	refused(t, dir, "foreign key")
	put(t, key, dir, keyFile)
	must(t, os.Remove(filepath.Join(dir, publicFile))) // the key tells it
	shut(t, open(t, dir, quick))
	whole(t, dir)
	for _, name := range []string{keyFile, headFile, segmentName(1), lockFile} {
		if info, err := os.Stat(filepath.Join(dir, name)); err != nil || info.Mode().Perm() != 0o600 {
			t.Errorf("%s: %v %v", name, info.Mode(), err)
		}
	}
}

func TestABrokenLogIsNotAppendedTo(t *testing.T) {
	for what, do := range map[string]func(dir string) error{
		"the head's checkpoint": func(dir string) error { return os.Truncate(filepath.Join(dir, segmentName(2)), 900) },
		"there is a head and no segment": func(dir string) error {
			return unix.Unlink(filepath.Join(dir, segmentName(1))) // and the other one below
		},
		"is gone": func(dir string) error { return os.Remove(filepath.Join(dir, segmentName(2))) },
	} {
		dir := small(t)
		must(t, do(dir))
		if strings.Contains(what, "no segment") {
			must(t, os.Remove(filepath.Join(dir, segmentName(2))))
		}
		refused(t, dir, what)
	}
}

func TestALogTruncatedUnderItsWriterIsNoticed(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "audit")
	l := open(t, dir, quick)
	add(t, l, run("one")...)
	must(t, os.Truncate(filepath.Join(dir, segmentName(1)), 100))
	if err := l.Append(run("two")...); err == nil || !strings.Contains(err.Error(), "shorter") {
		t.Errorf("%v", err)
	}
	if err := l.Close(); err == nil {
		t.Error("closed as if nothing were wrong")
	}
}

func TestSegmentsRotateAndTheOldestGo(t *testing.T) {
	dir := written(t, 400, Options{Sync: SyncNone, Interval: time.Hour, MaxSegment: 4 * MaxRecord, MaxTotal: 8 * MaxRecord})
	r := whole(t, dir)
	if r.Removed == 0 || r.First == 1 || r.Segments > 4 || r.Unsigned > 0 {
		t.Fatalf("%+v", r)
	}
	// What no checkpoint lets go must be there.
	d, err := os.ReadDir(dir)
	must(t, err)
	must(t, os.Remove(filepath.Join(dir, d[0].Name())))
	if r := verified(t, dir, VerifyOptions{}); r.Whole || r.Broken.Damage != MissingSegment || r.Broken.Segment != d[0].Name() {
		t.Errorf("%+v", r.Broken)
	}
}

func TestSegmentsGoByAge(t *testing.T) {
	dir := small(t)
	old := time.Now().Add(-48 * time.Hour)
	must(t, os.Chtimes(filepath.Join(dir, segmentName(1)), old, old))
	l := open(t, dir, Options{Sync: SyncNone, MaxAge: 24 * time.Hour})
	add(t, l, run("now")...)
	shut(t, l)
	if r := whole(t, dir); r.Removed != 1 || r.Segments != 1 {
		t.Errorf("%+v", r)
	}
	l = open(t, dir, Options{Sync: SyncNone, MaxSegmentAge: time.Nanosecond})
	add(t, l, run("later")...)
	shut(t, l)
	if r := whole(t, dir); r.Segments != 2 {
		t.Errorf("%+v", r)
	}
}
