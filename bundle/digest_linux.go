package bundle

import (
	"context"
	"fmt"
	"os"
	"time"

	"golang.org/x/sys/unix"
)

// Digest walks the bundle below dir, refuses what has no place in one, and returns its digest; sum defines it byte by byte.
//
// Refused, as an *Error with the path: links that are absolute or lead outside, devices, sockets, FIFOs, overlayfs whiteouts, set-user-id
// and set-group-id files, files with a second hard link, mount points, names that are not plain text or that another system reads as
// something else, two names that differ in case or Unicode normal form only, paths beyond 4096 bytes or 64 levels, and more than lim.
//
// The digest describes what was read, at the moment it was read. A file that changes meanwhile is an error; one that changes later is
// the matter of whoever needs to run these very bytes, and must run a private copy. The same holds for the cache, which may be nil: it
// knows an unchanged file by its stat fields, and one who writes through a mapping made earlier, or sets the clock, can fool those.
//
// Reading can hang where the bundle lies on FUSE or a network. When ctx ends, Digest returns its error at once; what hangs is left to
// a goroutine that owns its descriptors and ends when the system call does. dir may be closed as soon as Digest has returned.
func Digest(ctx context.Context, dir *os.File, lim Limits, cache *Cache) (*Tree, error) {
	fd, err := unix.FcntlInt(dir.Fd(), unix.F_DUPFD_CLOEXEC, 0)
	if err != nil {
		return nil, sysError("", err)
	}
	type outcome struct {
		tree *Tree
		err  error
	}
	done := make(chan outcome, 1)
	go func() {
		tree, err := digest(ctx, fd, lim.orDefault(), cache)
		unix.Close(fd) // first: who has the answer may count descriptors
		done <- outcome{tree, err}
	}()
	select {
	case o := <-done:
		return o.tree, o.err
	case <-ctx.Done():
		return nil, fmt.Errorf("bundle: read: %w", context.Cause(ctx))
	}
}

func digest(ctx context.Context, dir int, lim Limits, cache *Cache) (*Tree, error) {
	id, err := identify(dir)
	if err != nil {
		return nil, sysError("", err)
	}
	w := &walk{ctx: ctx, lim: lim, changed: id.ctime}
	w.more.L = &w.mu
	root := &openDir{fd: dir, depth: -1}
	root.uses.Store(2) // the work below, and the caller, who closes dir
	w.stack = []work{{in: root}}
	if id.keeps {
		w.known = cache.load(id, lim.Files)
	}
	entries, err := w.run()
	if err != nil {
		return nil, err
	}
	if err := checkLinks(entries); err != nil {
		return nil, err
	}
	if id.keeps {
		cache.save(id, w.known, entries, int(w.cached.Load()))
	}
	tree := &Tree{
		Digest: sum(entries),
		Files:  int(w.files.Load()),
		Bytes:  w.bytes.Load(),
		Cached: int(w.cached.Load()),
	}
	if id.keeps {
		tree.Changed = time.Unix(0, w.changed).Add(tick(w.changed))
	}
	return tree, nil
}
