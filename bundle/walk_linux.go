package bundle

import (
	"context"
	"crypto/sha256"
	"fmt"
	"hash"
	"runtime"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"golang.org/x/sys/unix"
)

// walk is one Digest under way: a stack of work, several workers, the first error.
type walk struct {
	ctx   context.Context
	lim   Limits
	known *known

	mu    sync.Mutex
	more  sync.Cond
	stack []work // last in, first out: few directories are open at a time
	busy  int    // workers that may still add work
	err   error

	changed int64 // the latest ctime of all, in nanoseconds; the root's until run returns

	seen   atomic.Int64 // names listed
	files  atomic.Int64
	dirs   atomic.Int64
	bytes  atomic.Int64
	cached atomic.Int64
}

// work is one directory to open and list, or some paths in a listed one to look at.
type work struct {
	in    *openDir
	sub   string   // path of the directory to open, "" for the root
	paths []string // or of what to look at
}

// batch is how many paths make one piece of work: enough to forget the lock, few enough to share out one large directory.
const batch = 64

// share is how much work there has to be before others are asked to help: to wake them takes as long as a small bundle.
const share = 4

// openDir is a directory's descriptor, closed when the last piece of work in it is done.
type openDir struct {
	fd    int
	path  string // "" for the root
	depth int
	uses  atomic.Int32
}

// name returns the last part of a path in d.
func (d *openDir) name(path string) string {
	if d.path == "" {
		return path
	}
	return path[len(d.path)+1:]
}

func (d *openDir) done() {
	if d.uses.Add(-1) == 0 {
		unix.Close(d.fd)
	}
}

// run does all the work there is and returns the entries, sorted by path.
func (w *walk) run() ([]*entry, error) {
	workers := []*worker{newWorker(w)}
	for len(w.stack) > 0 && len(w.stack) < share && w.err == nil {
		workers[0].step()
	}
	if len(w.stack) > 0 && w.err == nil {
		// Two at least, as much of the time is spent waiting for the kernel; beyond four the directory locks are what is waited for.
		for len(workers) < min(max(runtime.GOMAXPROCS(0), 2), 4) {
			workers = append(workers, newWorker(w))
		}
		var all sync.WaitGroup
		for _, one := range workers {
			all.Go(one.loop)
		}
		all.Wait()
	}
	for _, one := range workers {
		buffers.Put(one.buf)
	}
	for _, left := range w.stack {
		left.in.done()
	}
	if w.err != nil {
		return nil, w.err
	}
	entries := make([]*entry, 0, w.seen.Load())
	for _, one := range workers {
		entries = append(entries, one.entries...)
		w.changed = max(w.changed, one.changed)
	}
	slices.SortFunc(entries, func(a, b *entry) int { return strings.Compare(a.path, b.path) })
	return entries, nil
}

// next waits for work; false means that there is none left, or no point in it.
func (w *walk) next() (work, bool) {
	w.mu.Lock()
	defer w.mu.Unlock()
	for len(w.stack) == 0 && w.busy > 0 && w.err == nil {
		w.more.Wait()
	}
	if len(w.stack) == 0 || w.err != nil {
		return work{}, false
	}
	last := len(w.stack) - 1
	item := w.stack[last]
	w.stack = w.stack[:last]
	w.busy++
	return item, true
}

// finish hands in the outcome of one piece of work.
func (w *walk) finish(item work, found []work, err error) {
	item.in.done()
	w.mu.Lock()
	defer w.mu.Unlock()
	w.busy--
	w.stack = append(w.stack, found...)
	if err != nil && w.err == nil {
		w.err = err
	}
	if len(found) > 0 || w.busy == 0 || w.err != nil {
		w.more.Broadcast()
	}
}

// worker is one goroutine of a walk with the buffers it uses again.
type worker struct {
	*walk
	entries []*entry
	changed int64 // the latest ctime, in nanoseconds
	st      unix.Statx_t
	buf     *[bufSize]byte
	hash    hash.Hash
}

const bufSize = 128 << 10

// buffers are for a service, which walks again and again.
var buffers = sync.Pool{New: func() any { return (*[bufSize]byte)(make([]byte, bufSize)) }}

func newWorker(w *walk) *worker {
	return &worker{walk: w, buf: buffers.Get().(*[bufSize]byte), hash: sha256.New()}
}

func (w *worker) loop() {
	for w.step() {
	}
}

// step does one piece of work; false means that there is none left.
func (w *worker) step() bool {
	item, ok := w.next()
	if !ok {
		return false
	}
	var found []work
	var err error
	switch {
	case w.ctx.Err() != nil:
		err = w.canceled()
	case item.paths == nil:
		found, err = w.list(item)
	default:
		found, err = w.visit(item)
	}
	w.finish(item, found, err)
	return true
}

// list opens a directory, reads its names, judges them, and makes pieces of work of them.
func (w *worker) list(item work) ([]work, error) {
	// Below the caller's descriptor lies the root itself, opened again since listing moves a descriptor's position.
	d, name := &openDir{path: item.sub, depth: item.in.depth + 1}, "."
	if item.sub != "" {
		name = item.in.name(item.sub)
	}
	var err error
	if d.fd, err = openat(item.in.fd, name, unix.O_RDONLY|unix.O_DIRECTORY); err != nil {
		return nil, sysError(d.path, err)
	}
	d.uses.Store(1)
	defer d.done()
	names, err := w.names(d)
	if err != nil {
		return nil, err
	}
	if err := judgeNames(d.path, names); err != nil {
		return nil, err
	}
	var found []work
	for part := range slices.Chunk(inside(d.path, names), batch) {
		d.uses.Add(1)
		found = append(found, work{in: d, paths: part})
	}
	return found, nil
}

// names lists a directory. It stops when the whole walk has seen more names than the limits can allow, so that a directory of millions
// costs neither time nor memory.
func (w *worker) names(d *openDir) ([]string, error) {
	var names []string
	for {
		n, err := getdents(d.fd, w.buf[:])
		if err != nil {
			return nil, sysError(d.path, err)
		}
		if n == 0 {
			return names, nil
		}
		before := len(names)
		_, _, names = unix.ParseDirent(w.buf[:n], -1, names)
		if w.seen.Add(int64(len(names)-before)) > 2*int64(w.lim.Files) {
			return nil, w.tooMany(d.path)
		}
		if w.ctx.Err() != nil {
			return nil, w.canceled()
		}
	}
}

// judgeNames refuses names that BadName or twins finds.
func judgeNames(dir string, names []string) error {
	for _, n := range names {
		if why := BadName(n); why != "" {
			return refuse(inDir(dir, n), why, "rename it")
		}
	}
	if a, b, found := twins(names); found {
		a, b = min(a, b), max(a, b)
		return refuse(inDir(dir, b), fmt.Sprintf("differs from \"%s\" in case or Unicode form only", escape(a)),
			"rename one of them: on some systems they are one file")
	}
	return nil
}

// inside turns names into paths, in place. All share one string: ten thousand small ones are what the garbage collector would notice.
func inside(dir string, names []string) []string {
	if dir == "" {
		return names
	}
	var all strings.Builder
	for _, n := range names {
		all.WriteString(dir)
		all.WriteByte('/')
		all.WriteString(n)
	}
	rest := all.String()
	for i, n := range names {
		length := len(dir) + 1 + len(n)
		names[i], rest = rest[:length], rest[length:]
	}
	return names
}

// visit looks at some entries of a directory, and reads those files that the cache does not know.
func (w *worker) visit(item work) ([]work, error) {
	var found []work
	now := time.Now()
	entries := make([]entry, len(item.paths))
	for i, path := range item.paths {
		e := &entries[i]
		e.path = path
		if err := w.look(item.in, e, now); err != nil {
			return found, err
		}
		w.entries = append(w.entries, e)
		if e.typ == 'd' {
			item.in.uses.Add(1)
			found = append(found, work{in: item.in, sub: path})
		}
	}
	return found, nil
}
