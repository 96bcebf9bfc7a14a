package server

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"sync"
	"time"

	"golang.org/x/sys/unix"

	"skillbox/bundle"
	"skillbox/sandbox"
)

// pinned is a copy of a bundle that only this skillboxd can change. What is checked is then what runs: the caller may write to the original.
type pinned struct {
	path string
	dir  *os.File
}

// pin copies the bundle to a file system of its own. A box that is made from it keeps that; what is said here of it is to be closed.
func pin(ctx context.Context, h *sandbox.Host, from *os.File, limits bundle.Limits) (_ *pinned, err error) {
	p := &pinned{path: filepath.Join(h.Dir, "bundle-"+sandbox.NewID())}
	defer func() {
		if err != nil {
			err = errors.Join(err, p.close())
		}
	}()
	if err := os.Mkdir(p.path, 0o700); err != nil {
		return nil, fmt.Errorf("server: %w", err)
	}
	// The limits are the caller's flags; memory is the machine's. Each file takes whole pages.
	limits.Files = min(limits.Files, bundle.DefaultFiles)
	limits.Bytes = min(limits.Bytes, bundle.DefaultBytes)
	options := fmt.Sprintf("mode=0755,size=%d,nr_inodes=%d", bundle.DefaultBytes+int64(bundle.DefaultFiles)*int64(os.Getpagesize()), 2*bundle.DefaultFiles+16)
	if err := unix.Mount("bundle", p.path, "tmpfs", unix.MS_NOSUID|unix.MS_NODEV, options); err != nil {
		return nil, fmt.Errorf("server: a place for a copy of the bundle: %w", err)
	}
	if p.dir, err = os.Open(p.path); err != nil {
		return nil, fmt.Errorf("server: %w", err)
	}
	return p, bundle.Copy(ctx, from, p.dir, limits, h.Mode == "root")
}

// close takes the copy out of sight. It is gone when no box has it any more.
func (p *pinned) close() error {
	if p == nil {
		return nil
	}
	var errs []error
	if p.dir != nil {
		errs = append(errs, p.dir.Close())
	}
	if err := unix.Unmount(p.path, unix.MNT_DETACH); err != nil && err != unix.EINVAL && err != unix.ENOENT { // not mounted; never made
		errs = append(errs, fmt.Errorf("server: unmount the copy of a bundle: %w", err))
	}
	if err := os.Remove(p.path); err != nil && !errors.Is(err, os.ErrNotExist) {
		errs = append(errs, fmt.Errorf("server: %w", err))
	}
	return errors.Join(errs...)
}

// copies are pinned bundles that a service keeps. Who calls the same bundle again, unchanged, is served from the copy that was checked before,
// and so by boxes that were prepared from it.
type copies struct {
	mu    sync.Mutex
	kept  map[place]*copied // by the caller's directory
	bytes int64             // of all
	gone  func(path string) // hears that nothing can be prepared from a copy any more
}

// place is a directory, whatever its name.
type place struct{ dev, ino uint64 }

type copied struct {
	*pinned
	tree  *bundle.Tree // of the copy
	users int          // calls that look at it; boxes have it by themselves
	used  time.Time
	out   bool // no call finds it any more: the last one that has it closes it
}

const (
	// maxCopies and maxCopied, in bytes, bound what is kept. A copy takes memory, and boxes that run go on having one that is let go.
	maxCopies, maxCopied = 32, 256 << 20
	// keepCopies is how long one waits for the next call: no shorter than boxes that a policy wants ready.
	keepCopies = keepLeast + time.Minute
)

// size is what a copy takes at most, beside its directories.
func (c *copied) size() int64 { return c.tree.Bytes + int64(c.tree.Files)*int64(os.Getpagesize()) }

// find returns the copy that was made of a directory, which is to be released; nil if there is none.
func (c *copies) find(of place) *copied {
	c.mu.Lock()
	defer c.mu.Unlock()
	found := c.kept[of]
	if found != nil {
		found.users++
		found.used = time.Now()
	}
	return found
}

// finds says whether calls that come find this copy still.
func (c *copies) finds(one *copied) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return !one.out
}

// keep takes a copy over. Where the call's copy is not to be kept it says so, and leaves it to the caller.
func (c *copies) keep(of place, p *pinned, tree *bundle.Tree) (kept bool, err error) {
	one := &copied{pinned: p, tree: tree, used: time.Now()}
	if one.size() > maxCopied {
		return false, nil
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if old := c.kept[of]; old != nil {
		if old.tree.Digest == tree.Digest {
			return false, nil // another call was first
		}
		err = c.drop(of)
	}
	for len(c.kept) >= maxCopies || c.bytes+one.size() > maxCopied {
		err = errors.Join(err, c.drop(c.eldest()))
	}
	if c.kept == nil {
		c.kept = map[place]*copied{}
	}
	c.kept[of] = one
	c.bytes += one.size()
	return true, err
}

func (c *copies) eldest() (of place) {
	var first *copied
	for at, one := range c.kept {
		if first == nil || one.used.Before(first.used) {
			of, first = at, one
		}
	}
	return of
}

// drop lets one go. c.mu is held.
func (c *copies) drop(of place) error {
	one := c.kept[of]
	delete(c.kept, of)
	c.bytes -= one.size()
	one.out = true
	c.gone(one.path)
	if one.users > 0 {
		return nil
	}
	return one.close()
}

// release ends what find began.
func (c *copies) release(one *copied) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	one.users--
	if !one.out || one.users > 0 {
		return nil
	}
	return one.close()
}

// expire lets those go that nobody has asked for in a while, or all.
func (c *copies) expire(after time.Duration) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	var errs []error
	for of, one := range c.kept {
		if one.users == 0 && time.Since(one.used) >= after {
			errs = append(errs, c.drop(of))
		}
	}
	return errors.Join(errs...)
}

// pinBundle has everything that follows look at a copy of the bundle.
func (c *connection) pinBundle() error {
	own, err := again(c.files.bundle) // the original may be closed while the copying hangs
	if err != nil {
		return err
	}
	at, err := source(int(own.Fd()))
	if err != nil {
		return errors.Join(fmt.Errorf("server: the bundle: %w", err), own.Close())
	}
	c.original, c.files.original = place{at.Dev, at.Ino}, at.Path
	ctx, cancel := context.WithCancelCause(context.Background())
	defer cancel(nil)
	ended := make(chan struct{})
	defer close(ended)
	go func() {
		select {
		case <-c.link.over:
			cancel(errCanceled)
		case <-ended:
		}
	}()
	limits := bundle.Limits{Files: c.request.MaxFiles, Bytes: c.request.MaxBytes}
	if c.pool != nil {
		if found, err := c.findCopy(ctx, own, limits); found || err != nil {
			return errors.Join(err, own.Close())
		}
	}
	c.pinned, err = inTime(func() (*pinned, error) {
		defer own.Close()
		return pin(ctx, c.host, own, limits)
	}, func(late *pinned) {
		_ = late.close() // the client was told of the failure
	})
	if err != nil {
		return err
	}
	c.files.bundle = c.pinned.dir
	return nil
}

// findCopy looks for a copy of the bundle as it is now. What the caller's digest is taken from may change meanwhile: what runs is the copy, and
// that is what it was when it was checked.
func (c *connection) findCopy(ctx context.Context, own *os.File, limits bundle.Limits) (found bool, err error) {
	one := c.pool.copies.find(c.original)
	if one == nil {
		return false, nil
	}
	began := time.Now()
	tree, err := inTime(func() (*bundle.Tree, error) {
		return bundle.Digest(ctx, own, limits, bundle.OpenCache(c.request.CacheDir))
	}, func(*bundle.Tree) {})
	if err != nil || tree.Digest != one.tree.Digest {
		return false, errors.Join(err, c.pool.copies.release(one))
	}
	if c.copyDir, err = again(one.dir); err != nil { // of this call's own: listing moves a descriptor's position
		return false, errors.Join(err, c.pool.copies.release(one))
	}
	c.copied, c.files.bundle, c.looked = one, c.copyDir, sandbox.Since(began)
	return true, nil
}

// leaveCopy has the service keep this call's copy, if it can, and says whether calls that follow may find one.
func (c *connection) leaveCopy(tree *bundle.Tree) bool {
	if c.copied != nil {
		return c.pool.copies.finds(c.copied)
	}
	if c.pinned == nil {
		return true // none was needed
	}
	kept, err := c.pool.copies.keep(c.original, c.pinned, tree)
	if err != nil {
		c.record.log.Error("let go of the copy of a bundle", "error", err)
	}
	if kept {
		c.pinned = nil
	}
	return kept
}
