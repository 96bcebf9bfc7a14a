package audit

import (
	"bytes"
	"context"
	"os"
	"path/filepath"
	"testing"
	"time"
)

// fuzzed are the files of the log that FuzzLog changes.
var fuzzed = []string{segmentName(1), segmentName(2), headFile, publicFile, keyFile}

// FuzzLog changes a log's directory: reading and verifying it, and opening it to write, end soon and without a panic, and what verifies is what was written.
func FuzzLog(f *testing.F) {
	made := filepath.Join(f.TempDir(), "audit")
	l, err := Open(made, quick)
	if err != nil {
		f.Fatal(err)
	}
	if err := l.Append(run("one")...); err != nil {
		f.Fatal(err)
	}
	l.opts.MaxSegment = 1
	if err := l.Append(run("two")...); err != nil {
		f.Fatal(err)
	}
	if err := l.Close(); err != nil {
		f.Fatal(err)
	}
	files := map[string][]byte{}
	var head []byte
	for _, name := range fuzzed {
		files[name] = content(f, made, name)
	}
	if head, err = Head(made); err != nil {
		f.Fatal(err)
	}
	f.Add(uint8(0), uint32(10), uint32(0), []byte("x"))
	f.Add(uint8(1), uint32(0), uint32(1<<20), []byte{})
	f.Add(uint8(0), uint32(200), uint32(300), []byte("\n"))
	f.Add(uint8(2), uint32(5), uint32(6), []byte("9"))
	f.Add(uint8(1), uint32(1<<20), uint32(0), []byte("{\"v\":1,\"seq\":"))
	f.Add(uint8(3), uint32(0), uint32(1<<20), bytes.Repeat([]byte("a"), 100_000))
	f.Fuzz(func(t *testing.T, which uint8, at, skip uint32, put []byte) {
		name := fuzzed[int(which)%len(fuzzed)]
		old := files[name]
		from := min(int(at), len(old))
		to := min(from+int(skip&0xfffff), len(old))
		changed := bytes.Join([][]byte{old[:from], put, old[to:]}, nil)
		dir := filepath.Join(t.TempDir(), "audit")
		if err := os.Mkdir(dir, 0o700); err != nil {
			t.Fatal(err)
		}
		for n, text := range files {
			if n == name {
				text = changed
			}
			if err := os.WriteFile(filepath.Join(dir, n), text, 0o600); err != nil {
				t.Fatal(err)
			}
		}
		same := bytes.Equal(changed, old)
		began := time.Now()
		r, err := Verify(dir, VerifyOptions{Head: head})
		// What Verify does not speak of: the private half, a last line that was never finished, and of the head what is only for writers.
		first, _, _ := bytes.Cut(changed, []byte("\n"))
		harmless := name == keyFile || name == segmentName(2) && bytes.HasPrefix(changed, old) && !bytes.ContainsRune(changed[len(old):], '\n') ||
			name == headFile && bytes.HasPrefix(old, append(first, '\n'))
		if whole := err == nil && r.Whole; same && !whole || whole && !same && !harmless {
			t.Fatalf("%s changed: %v, verify says whole: %v, %v, %v", name, !same, whole, r.Broken, err)
		}
		records := 0
		for _, err := range Read(dir, Query{}) {
			if records++; err != nil {
				break
			}
		}
		if _, err := Tail(dir, Query{}, 5); err == nil && records == 0 {
			t.Fatal("it has a tail and no records")
		}
		_, _ = Count(Read(dir, Query{})) // an error is one of the above
		_, _ = Head(dir)
		ctx, stop := context.WithCancel(context.Background())
		for range Follow(ctx, dir, Query{}, 0) {
			break
		}
		stop()
		if l, err := Open(dir, quick); err == nil {
			_ = l.Append(run("three")...) // it may be broken further in
			_ = l.Close()
			if _, err := Verify(dir, VerifyOptions{}); err != nil && same {
				t.Fatal(err)
			}
		}
		if d := time.Since(began); d > 10*time.Second {
			t.Fatalf("it took %s", d)
		}
	})
}
