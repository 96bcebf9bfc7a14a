package server

import (
	"errors"
	"os"
	"path/filepath"
	"strconv"
	"testing"
	"time"

	"skillbox/bundle"
)

// shelved is a set of copies that are plain directories.
func shelved(t *testing.T) (c *copies, one func(n int, digest string, bytes int64) (place, *pinned, *bundle.Tree), gone *[]string) {
	if os.Getuid() != 0 {
		t.Skip("needs root: copies are mounts")
	}
	dir := t.TempDir()
	gone = &[]string{}
	c = &copies{gone: func(path string) { *gone = append(*gone, filepath.Base(path)) }}
	made := 0
	return c, func(n int, digest string, bytes int64) (place, *pinned, *bundle.Tree) {
		made++
		p := &pinned{path: filepath.Join(dir, strconv.Itoa(made))}
		if err := os.Mkdir(p.path, 0o700); err != nil {
			t.Fatal(err)
		}
		return place{1, uint64(n)}, p, &bundle.Tree{Digest: digest, Bytes: bytes}
	}, gone
}

func there(p *pinned) bool {
	_, err := os.Stat(p.path)
	return !errors.Is(err, os.ErrNotExist)
}

func TestACopyIsKeptUntilNobodyHasIt(t *testing.T) {
	c, pin, gone := shelved(t)
	at, old, tree := pin(1, "a", 1)
	if kept, err := c.keep(at, old, tree); !kept || err != nil {
		t.Fatal(kept, err)
	}
	_, twin, _ := pin(1, "a", 1)
	if kept, err := c.keep(at, twin, tree); kept || err != nil {
		t.Errorf("a second copy of the same is kept: %v", err)
	}
	if c.find(place{1, 2}) != nil {
		t.Error("another directory's copy was found")
	}
	one := c.find(at)
	if one == nil || one.pinned != old || !c.finds(one) {
		t.Fatalf("%+v", one)
	}
	_, anew, changed := pin(1, "b", 1)
	if kept, err := c.keep(at, anew, changed); !kept || err != nil || len(*gone) != 1 {
		t.Errorf("%v, %v, gone: %v", kept, err, *gone)
	}
	if c.finds(one) {
		t.Error("a copy that was replaced is said to be found")
	}
	if !there(old) {
		t.Error("a copy was closed while a call had it")
	}
	if err := c.release(one); err != nil || there(old) {
		t.Errorf("a copy that nobody finds or has is still there: %v", err)
	}
	if one := c.find(at); one == nil || one.pinned != anew {
		t.Errorf("%+v", one)
	} else if err := errors.Join(c.expire(0), c.release(one)); err != nil || !there(anew) {
		t.Errorf("a copy was closed while a call had it, or at its end: %v", err)
	}
	if err := c.expire(time.Hour); err != nil || !there(anew) {
		t.Errorf("a copy has gone before its time: %v", err)
	}
	if err := c.expire(0); err != nil || there(anew) || c.bytes != 0 || len(c.kept) != 0 {
		t.Errorf("%v, %d bytes of %d copies", err, c.bytes, len(c.kept))
	}
}

func TestCopiesAreBounded(t *testing.T) {
	c, pin, gone := shelved(t)
	for n := range maxCopies + 3 {
		at, p, tree := pin(n, "a", 1)
		if kept, err := c.keep(at, p, tree); !kept || err != nil {
			t.Fatal(kept, err)
		}
		c.kept[at].used = time.Unix(int64(n), 0)
	}
	if len(c.kept) != maxCopies || len(*gone) != 3 || (*gone)[0] != "1" {
		t.Errorf("%d copies; gone: %v", len(c.kept), *gone)
	}
	at, p, tree := pin(100, "a", maxCopied+1)
	if kept, err := c.keep(at, p, tree); kept || err != nil || len(c.kept) != maxCopies {
		t.Errorf("a copy larger than all may be is kept: %v", err)
	}
	at, p, tree = pin(100, "a", maxCopied)
	if kept, err := c.keep(at, p, tree); !kept || err != nil || len(c.kept) != 1 || c.bytes != maxCopied {
		t.Errorf("%v, %v: %d copies of %d bytes", kept, err, len(c.kept), c.bytes)
	}
	if err := c.expire(0); err != nil || c.bytes != 0 {
		t.Errorf("%v, %d bytes", err, c.bytes)
	}
}
