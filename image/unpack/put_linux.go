package unpack

import (
	"bufio"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"

	"golang.org/x/sys/unix"

	"skillbox/image"
)

// Source is where a layer comes from.
type Source struct {
	DiffID string // "sha256:…"; what the tar stream is held against
	// Open returns the tar stream. Done, called at its end, says what was wrong with how it came; Came is the number of bytes that came for
	// what was read so far, 0 where nobody compressed them.
	Open func(ctx context.Context) (*Stream, error)
}

// Stream is a layer's tar stream on its way.
type Stream struct {
	io.Reader
	Came  func() int64
	Check func() error // after the whole was read
	Close func() error
}

// counter goes down to zero; several goroutines take of it.
type counter struct{ left atomic.Int64 }

func (c *counter) take(n int64) bool { return c.left.Add(-n) >= 0 }

// parallel layers are fetched and unpacked at a time: a registry answers slower than a disk takes.
const parallel = 3

// Put unpacks what of an image's layers the store does not have, and makes its tree. The caller holds the lock of image.Store.Begin. The image
// has no name yet.
func Put(ctx context.Context, s *image.Store, about *image.Image, layers []Source, l Limits) (*image.Image, error) {
	lock, err := s.Lock(ctx, "image "+about.ID, false)
	if err != nil {
		return nil, err
	}
	defer lock.Close()
	if found, err := s.Image(about.ID); err == nil || !errors.Is(err, fs.ErrNotExist) {
		return found, err
	}
	b := &budget{ratio: or(l.Ratio, DefaultRatio)}
	b.bytes.left.Store(or(l.Bytes, DefaultBytes))
	b.entries.left.Store(or(l.Entries, DefaultEntries))
	b.removals.left.Store(maxRemovals)
	ctx, stop := context.WithCancelCause(ctx)
	defer stop(nil)
	var (
		group sync.WaitGroup
		turn  = make(chan struct{}, parallel)
		errs  = make([]error, len(layers))
	)
	for i, source := range layers {
		turn <- struct{}{}
		group.Go(func() {
			defer func() { <-turn }()
			if errs[i] = fetch(ctx, s, source, b); errs[i] != nil {
				errs[i] = fmt.Errorf("layer %d of %d (%s): %w", i+1, len(layers), source.DiffID, errs[i])
				stop(errs[i])
			}
		})
	}
	group.Wait()
	if err := context.Cause(ctx); err != nil {
		return nil, err
	}
	return assemble(ctx, s, about, layers, or(l.Entries, DefaultEntries))
}

func or(n, otherwise int64) int64 {
	if n <= 0 {
		return otherwise
	}
	return n
}

func layerDir(s *image.Store, diffID string) string {
	return filepath.Join(s.Dir, "layers", strings.TrimPrefix(diffID, "sha256:"))
}

// note is what a store keeps of a layer beside its files.
type note struct {
	Size    int64    `json:"size"`
	Skipped []string `json:"skipped,omitempty"`
}

// fetch unpacks one layer, unless the store has it, or another process gets it meanwhile.
func fetch(ctx context.Context, s *image.Store, source Source, b *budget) (err error) {
	if err := context.Cause(ctx); err != nil {
		return err
	}
	lock, err := s.Lock(ctx, "layer "+source.DiffID, false)
	if err != nil {
		return err
	}
	defer lock.Close()
	dir := layerDir(s, source.DiffID)
	if _, err := os.Lstat(dir); err == nil || !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	made, err := s.Temporary()
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, made.Close()) }()
	stream, err := source.Open(ctx)
	if err != nil {
		return err
	}
	got, err := extract(ctx, filepath.Join(made.Path, "layer"), stream, source.DiffID, b)
	if err := errors.Join(err, stream.Close()); err != nil {
		return err
	}
	if err := errors.Join(keep(filepath.Join(made.Path, "layer"), got), flush(made.Path)); err != nil {
		return err
	}
	return os.Rename(filepath.Join(made.Path, "layer"), dir)
}

// extract unpacks the stream and reads it to its end, for the digest is of all of it.
func extract(ctx context.Context, dir string, stream *Stream, diffID string, b *budget) (*contents, error) {
	if err := os.MkdirAll(filepath.Join(dir, "fs"), 0o755); err != nil {
		return nil, err
	}
	root, err := os.Open(filepath.Join(dir, "fs"))
	if err != nil {
		return nil, err
	}
	defer root.Close()
	sum := sha256.New()
	bounded := &bounded{ctx: ctx, from: stream, b: b, limit: b.bytes.left.Load() + tarOverhead}
	all := io.TeeReader(bounded, sum)
	l := &layer{root: int(root.Fd()), budget: b}
	if err := l.unpack(all); err != nil {
		return nil, err
	}
	if _, err := io.Copy(io.Discard, all); err != nil {
		return nil, fmt.Errorf("after the archive's end: %w", err)
	}
	if got := "sha256:" + hex.EncodeToString(sum.Sum(nil)); got != diffID {
		return nil, fmt.Errorf("its tar stream is %s: not what the image's configuration names", got)
	}
	return &l.contents, stream.Check()
}

// tarOverhead is what a layer's tar stream may have above the files that are permitted.
const tarOverhead = 1 << 30

// bounded is a tar stream that may not grow without end.
type bounded struct {
	ctx         context.Context
	from        *Stream
	b           *budget
	read, limit int64
}

func (r *bounded) Read(p []byte) (int, error) {
	if err := context.Cause(r.ctx); err != nil {
		return 0, err
	}
	n, err := r.from.Read(p)
	r.read += int64(n)
	if r.read > r.limit {
		return n, errors.New("its tar stream is larger than is permitted (--max-bytes)")
	}
	if came := r.from.Came(); came > 0 && r.read > ratioFrom && r.read/came > r.b.ratio {
		return n, fmt.Errorf("it is more than %d times as large as it was compressed, as nothing but a bomb or a large hole is (--max-ratio)", r.b.ratio)
	}
	return n, err
}

// keep writes beside a layer's files what it takes away.
func keep(dir string, c *contents) error {
	f, err := os.OpenFile(filepath.Join(dir, "removed"), os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o644)
	if err != nil {
		return err
	}
	text := bufio.NewWriter(f) // which keeps its first error
	for _, r := range c.removed {
		kind := "name"
		if r.opaque {
			kind = "all"
		}
		fmt.Fprintf(text, "%s %q\n", kind, r.path)
	}
	if err := errors.Join(text.Flush(), f.Close()); err != nil {
		return err
	}
	about, err := json.Marshal(note{c.size, c.skipped})
	if err != nil {
		return err
	}
	return os.WriteFile(filepath.Join(dir, "layer.json"), about, 0o644)
}

func kept(dir string) (removed []removal, about note, err error) {
	text, err := os.ReadFile(filepath.Join(dir, "layer.json"))
	if err == nil {
		err = json.Unmarshal(text, &about)
	}
	if err != nil {
		return nil, about, err
	}
	f, err := os.Open(filepath.Join(dir, "removed"))
	if err != nil {
		return nil, about, err
	}
	defer f.Close()
	lines := bufio.NewScanner(f)
	lines.Buffer(nil, 8*maxName)
	for lines.Scan() {
		kind, quoted, _ := strings.Cut(lines.Text(), " ")
		path, err := strconv.Unquote(quoted)
		if err != nil {
			return nil, about, fmt.Errorf("%s: %w", f.Name(), err)
		}
		removed = append(removed, removal{path, kind == "all"})
	}
	return removed, about, lines.Err()
}

// flush has the disk hold what will get its final name: after a crash of the machine a layer must not be there in part.
func flush(dir string) error {
	f, err := os.Open(dir)
	if err != nil {
		return err
	}
	return errors.Join(unix.Syncfs(int(f.Fd())), f.Close())
}

// assemble makes the image's tree of links to its layers' files. They count once more, for an image may name layers that the store has, and one
// of them often.
func assemble(ctx context.Context, s *image.Store, about *image.Image, layers []Source, entries int64) (_ *image.Image, err error) {
	made, err := s.Temporary()
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, made.Close()) }()
	dir := filepath.Join(made.Path, "image")
	tree := filepath.Join(dir, "tree")
	if err := os.MkdirAll(tree, 0o755); err != nil {
		return nil, fmt.Errorf("unpack: %w", err)
	}
	one := *about
	one.Layers, one.Skipped = nil, nil
	p := place{ctx: ctx}
	p.left.left.Store(entries)
	for _, source := range layers {
		from := layerDir(s, source.DiffID)
		kept, err := p.stack(from, tree)
		if err != nil {
			return nil, fmt.Errorf("unpack: layer %s: %w", source.DiffID, err)
		}
		one.Layers = append(one.Layers, image.Layer{DiffID: source.DiffID, Size: kept.Size})
		one.Skipped = append(one.Skipped, kept.Skipped...)
	}
	one.Skipped = one.Skipped[:min(len(one.Skipped), maxSkipped)]
	one.Size, one.Files, one.Tree, one.Ref = p.bytes, p.files, "", ""
	text, err := json.Marshal(&one)
	if err != nil {
		return nil, fmt.Errorf("unpack: %w", err)
	}
	if err := errors.Join(os.WriteFile(filepath.Join(dir, "image.json"), text, 0o644), flush(dir)); err != nil {
		return nil, fmt.Errorf("unpack: %w", err)
	}
	if err := os.Rename(dir, filepath.Join(s.Dir, "images", strings.TrimPrefix(one.ID, "sha256:"))); err != nil {
		return nil, fmt.Errorf("unpack: %w", err)
	}
	return s.Image(one.ID)
}

func (p *place) stack(layer, tree string) (note, error) {
	removed, about, err := kept(layer)
	if err != nil {
		return about, err
	}
	to, err := os.Open(tree)
	if err != nil {
		return about, err
	}
	defer to.Close()
	from, err := os.Open(filepath.Join(layer, "fs"))
	if err != nil {
		return about, err
	}
	defer from.Close()
	if err := p.removeFrom(int(to.Fd()), removed); err != nil {
		return about, err
	}
	return about, p.put(int(from.Fd()), int(to.Fd()))
}
