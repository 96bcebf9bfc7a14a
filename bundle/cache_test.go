package bundle

import (
	"os"
	"path/filepath"
	"testing"
	"time"
)

// aged makes a bundle whose files are old enough to be remembered, and a cache that has seen it.
func aged(t *testing.T) (dir *os.File, cache *Cache, first *Tree) {
	t.Helper()
	dir = files(t, map[string]string{"a/b": "x", "c": "y", "d": "z"})
	time.Sleep(30 * time.Millisecond)
	cache = OpenCache(filepath.Join(t.TempDir(), "not", "there", "yet"))
	first = digestWith(t, dir, cache)
	return dir, cache, first
}

func digestWith(t *testing.T, dir *os.File, cache *Cache) *Tree {
	t.Helper()
	tree, err := Digest(t.Context(), dir, Limits{}, cache)
	must(t, err)
	return tree
}

// onlyFile returns the path of the one file in the cache.
func onlyFile(t *testing.T, c *Cache) string {
	t.Helper()
	entries, err := os.ReadDir(c.dir)
	must(t, err)
	if len(entries) != 1 {
		t.Fatalf("the cache holds %d files, want one", len(entries))
	}
	return filepath.Join(c.dir, entries[0].Name())
}

func TestAnUnchangedBundleIsNotReadAgain(t *testing.T) {
	dir, cache, first := aged(t)
	again := digestWith(t, dir, cache)
	if first.Cached != 0 || again.Cached != 3 || again.Digest != first.Digest || again.Bytes != first.Bytes {
		t.Errorf("first %+v, then %+v", first, again)
	}
	for path, mode := range map[string]os.FileMode{cache.dir: 0o700 | os.ModeDir, onlyFile(t, cache): 0o600} {
		if info, err := os.Stat(path); err != nil || info.Mode() != mode {
			t.Errorf("%s: %v, %v", path, info.Mode(), err)
		}
	}
}

func TestOnlyTheChangedFileIsReadAgain(t *testing.T) {
	dir, cache, first := aged(t)
	must(t, os.WriteFile(dir.Name()+"/c", []byte("Y"), 0o644))
	now := digestWith(t, dir, cache)
	if now.Cached != 2 || now.Digest == first.Digest {
		t.Errorf("first %+v, then %+v", first, now)
	}
}

func TestAModeChangeNeedsNoCacheToBeSeen(t *testing.T) {
	dir, cache, first := aged(t)
	must(t, os.Chmod(dir.Name()+"/c", 0o755))
	if now := digestWith(t, dir, cache); now.Digest == first.Digest {
		t.Error("the digest is the same")
	}
}

func TestAFileOfThisMomentIsNotRemembered(t *testing.T) {
	cache := OpenCache(filepath.Join(t.TempDir(), "c"))
	dir := files(t, map[string]string{"old": "x"})
	time.Sleep(30 * time.Millisecond)
	// Same inode, same size, rewritten as fast as it goes: whatever the clock's tick, no digest may be a stale one.
	var last string
	for i := range 200 {
		content := []byte{'a' + byte(i%2)}
		must(t, os.WriteFile(dir.Name()+"/new", content, 0o644))
		tree := digestWith(t, dir, cache)
		if tree.Digest == last {
			t.Fatal("a change within one tick of the clock went unnoticed")
		}
		last = tree.Digest
	}
}

func TestAStampIsSettledAfterTwentyMilliseconds(t *testing.T) {
	at := time.Unix(1000, 5e6)
	s := newStamp(1, 2, 3, at.UnixNano(), at.UnixNano())
	whole := newStamp(1, 2, 3, 1000e9, 1000e9)
	for _, c := range []struct {
		stamp stamp
		now   time.Time
		want  bool
	}{
		{s, at.Add(21 * time.Millisecond), true},
		{s, at.Add(20 * time.Millisecond), false},
		{s, at.Add(-time.Hour), false}, // a time in the future
		{whole, time.Unix(1001, 0), false},
		{whole, time.Unix(1003, 0), true},
	} {
		if got := c.stamp.settled(c.now); got != c.want {
			t.Errorf("settled at %v: %v", c.now, got)
		}
	}
}

func TestADoubtfulCacheIsRewrittenAndNeverTrusted(t *testing.T) {
	for name, spoil := range map[string]func(t *testing.T, c *Cache, file string){
		"a flipped bit in a hash": func(t *testing.T, _ *Cache, file string) {
			data, err := os.ReadFile(file)
			must(t, err)
			data[cacheHeader+stampSize+3] ^= 1
			must(t, os.WriteFile(file, data, 0o600))
		},
		"cut short": func(t *testing.T, _ *Cache, file string) { must(t, os.Truncate(file, 100)) },
		"empty":     func(t *testing.T, _ *Cache, file string) { must(t, os.Truncate(file, 0)) },
		"huge":      func(t *testing.T, _ *Cache, file string) { must(t, os.Truncate(file, 1<<40)) },
		"readable by others": func(t *testing.T, _ *Cache, file string) {
			must(t, os.Chmod(file, 0o644))
		},
		"in a directory that others may write": func(t *testing.T, c *Cache, _ string) {
			must(t, os.Chmod(c.dir, 0o777))
		},
		"another bundle's": func(t *testing.T, c *Cache, file string) {
			other := files(t, map[string]string{"x": ""})
			time.Sleep(30 * time.Millisecond)
			digestWith(t, other, c)
			entries, err := os.ReadDir(c.dir)
			must(t, err)
			for _, e := range entries {
				if p := filepath.Join(c.dir, e.Name()); p != file {
					must(t, os.Rename(p, file))
				}
			}
		},
		"a link": func(t *testing.T, _ *Cache, file string) {
			must(t, os.Rename(file, file+".real"))
			must(t, os.Symlink(file+".real", file))
		},
		"foreign": func(t *testing.T, _ *Cache, file string) {
			if os.Geteuid() != 0 {
				t.Skip("giving a file away needs root")
			}
			must(t, os.Chown(file, 12345, 12345))
		},
		"in a foreign directory": func(t *testing.T, c *Cache, _ string) {
			if os.Geteuid() != 0 {
				t.Skip("giving a directory away needs root")
			}
			must(t, os.Chown(c.dir, 12345, 12345))
		},
	} {
		t.Run(name, func(t *testing.T) {
			dir, cache, first := aged(t)
			spoil(t, cache, onlyFile(t, cache))
			now := digestWith(t, dir, cache)
			if now.Cached != 0 || now.Digest != first.Digest {
				t.Errorf("first %+v, then %+v", first, now)
			}
			os.Chmod(cache.dir, 0o700)
			os.Chown(cache.dir, os.Geteuid(), os.Getegid())
			os.Chmod(cache.dir, 0o700)
			digestWith(t, dir, cache)
			if now := digestWith(t, dir, cache); now.Cached != 3 {
				t.Errorf("it was not written again: %+v", now)
			}
		})
	}
}

func TestNoCacheIsACache(t *testing.T) {
	dir, _, first := aged(t)
	if OpenCache("") != nil {
		t.Error("a cache without a directory")
	}
	if now := digestWith(t, dir, OpenCache("")); now.Cached != 0 || now.Digest != first.Digest {
		t.Errorf("got %+v", now)
	}
	if now := digestWith(t, dir, OpenCache("/proc/nonsense")); now.Digest != first.Digest {
		t.Errorf("got %+v", now)
	}
}

func TestTheCacheForgetsTheOldest(t *testing.T) {
	dir, cache, _ := aged(t)
	for i := range maxBundles {
		p := filepath.Join(cache.dir, identity{dev: 1, ino: uint64(i)}.file())
		must(t, os.WriteFile(p, nil, 0o600))
		must(t, os.Chtimes(p, time.Unix(int64(i), 0), time.Unix(int64(i), 0)))
	}
	left := filepath.Join(cache.dir, "new-KILLED")
	must(t, os.WriteFile(left, nil, 0o600))
	must(t, os.Chtimes(left, time.Unix(1, 0), time.Unix(1, 0)))
	must(t, os.WriteFile(dir.Name()+"/c", []byte("news"), 0o644))
	digestWith(t, dir, cache)
	entries, err := os.ReadDir(cache.dir)
	must(t, err)
	if len(entries) != maxBundles {
		t.Errorf("%d files, want %d", len(entries), maxBundles)
	}
	if _, err := os.Stat(filepath.Join(cache.dir, identity{dev: 1, ino: 0}.file())); err == nil {
		t.Error("the oldest is still there")
	}
}
