package bundle

import (
	"fmt"
	"os"
	"path/filepath"
	"testing"
	"time"
)

// tenThousand makes a bundle of 10,000 files of about 1 KiB in 100 directories, or in one.
func tenThousand(b *testing.B, dirs int) *os.File {
	b.Helper()
	root := b.TempDir()
	for d := range dirs {
		dir := filepath.Join(root, fmt.Sprintf("package_%03d", d))
		if err := os.Mkdir(dir, 0o755); err != nil {
			b.Fatal(err)
		}
		for f := range 10_000 / dirs {
			text := make([]byte, 512+f%1024)
			copy(text, fmt.Sprintf("%d %d", d, f))
			if err := os.WriteFile(filepath.Join(dir, fmt.Sprintf("module_%04d.py", f)), text, 0o644); err != nil {
				b.Fatal(err)
			}
		}
	}
	time.Sleep(30 * time.Millisecond) // or the newest files are too new to be cached
	dir, err := os.Open(root)
	if err != nil {
		b.Fatal(err)
	}
	b.Cleanup(func() { dir.Close() })
	return dir
}

func BenchmarkDigestCold(b *testing.B) {
	for _, dirs := range []int{100, 1} {
		b.Run(fmt.Sprintf("dirs=%d", dirs), func(b *testing.B) {
			dir := tenThousand(b, dirs)
			for b.Loop() {
				cache := filepath.Join(b.TempDir(), "cache")
				if _, err := Digest(b.Context(), dir, Limits{}, OpenCache(cache)); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}

func BenchmarkDigestWarm(b *testing.B) {
	for _, dirs := range []int{100, 1} {
		b.Run(fmt.Sprintf("dirs=%d", dirs), func(b *testing.B) {
			dir := tenThousand(b, dirs)
			cache := OpenCache(filepath.Join(b.TempDir(), "cache"))
			if _, err := Digest(b.Context(), dir, Limits{}, cache); err != nil {
				b.Fatal(err)
			}
			for b.Loop() {
				tree, err := Digest(b.Context(), dir, Limits{}, cache)
				if err != nil {
					b.Fatal(err)
				}
				if tree.Cached != 10_000 {
					b.Fatalf("%d files came from the cache, want all", tree.Cached)
				}
			}
		})
	}
}
