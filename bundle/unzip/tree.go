package unzip

import (
	"archive/zip"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path"
	"strings"

	"skillbox/bundle"
)

// tree is the paths of an archive, with the directories that are only part of others' names. It finds those that are one on some system.
type tree struct {
	nodes map[string]*node // by their path as bundle.FoldName has it
	files int
	most  int
}

type node struct {
	path  string // as written, of the first that had it
	dir   bool
	entry bool // has an entry of its own
}

// What a path may be at most, as in a bundle and on every file system.
const (
	maxPath  = 4096
	maxName  = 255
	maxNests = 64
)

func newTree(most int) *tree { return &tree{nodes: map[string]*node{}, most: most} }

// add refuses a path that is unfit, or at odds with one that was added before.
func (t *tree) add(entry string) error {
	name := strings.TrimSuffix(entry, "/")
	switch {
	case name == "":
		return refuse(entry, "", "is no name")
	case len(name) > maxPath:
		return refuse(entry, "", "the path is longer than %d bytes", maxPath)
	case name[0] == '/':
		return refuse(entry, "pack it with paths from the bundle's directory on", "is an absolute path")
	}
	key := ""
	parts := strings.Split(name, "/")
	if len(parts) > maxNests {
		return refuse(entry, "", "lies deeper than %d levels", maxNests)
	}
	for i, part := range parts {
		switch why := bundle.BadName(part); {
		case part == "..":
			return refuse(entry, "pack it with paths from the bundle's directory on", "leads out of the archive's directory")
		case why != "":
			return refuse(entry, "rename it", "%s", why)
		case len(part) > maxName:
			return refuse(entry, "rename it", "has a name longer than %d bytes", maxName)
		}
		key += "/" + bundle.FoldName(part)
		last := i == len(parts)-1
		if err := t.node(entry, key, strings.Join(parts[:i+1], "/"), !last || isDir(entry), last); err != nil {
			return err
		}
	}
	return nil
}

func (t *tree) node(entry, key, at string, dir, own bool) error {
	n := t.nodes[key]
	switch {
	case n == nil:
		n = &node{path: at, dir: dir}
		t.nodes[key] = n
		if !dir {
			t.files++
		}
	case n.path != at:
		return refuse(entry, "rename one of them: on some systems they are one", "differs from \"%s\" in case or Unicode form only", shown(n.path))
	case n.dir != dir:
		return refuse(entry, "", "\"%s\" is a file and a directory", shown(at))
	case own && n.entry:
		return refuse(entry, "pack it again", "is there twice")
	}
	n.entry = n.entry || own
	if t.files > t.most || len(t.nodes) > 2*t.most {
		return refuse(entry, "", "is more than %d files, or with directories more than %d", t.most, 2*t.most)
	}
	return nil
}

// write unpacks entries that were judged.
func write(ctx context.Context, files []*zip.File, dir *os.Root) error {
	made := map[string]bool{".": true}
	for _, f := range files {
		if ctx.Err() != nil {
			return fmt.Errorf("unzip: %w", context.Cause(ctx))
		}
		name := strings.TrimSuffix(f.Name, "/")
		parent := path.Dir(name)
		if isDir(f.Name) {
			parent = name
		}
		if err := makeDirectories(dir, parent, made); err != nil {
			return fmt.Errorf("unzip: %w", err)
		}
		if isDir(f.Name) {
			if err := checkEmpty(f); err != nil {
				return err
			}
			continue
		}
		if err := writeFile(ctx, f, dir, name); err != nil {
			return err
		}
	}
	return nil
}

// makeDirectories is MkdirAll with modes that no umask changes: they are part of a bundle's digest.
func makeDirectories(dir *os.Root, name string, made map[string]bool) error {
	if made[name] {
		return nil
	}
	if err := makeDirectories(dir, path.Dir(name), made); err != nil {
		return err
	}
	made[name] = true
	return errors.Join(dir.Mkdir(name, 0o755), dir.Chmod(name, 0o755))
}

func writeFile(ctx context.Context, f *zip.File, dir *os.Root, name string) error {
	mode := os.FileMode(0o644)
	if f.ExternalAttrs>>16&0o111 != 0 {
		mode = 0o755
	}
	from, err := f.Open()
	if err != nil {
		return faulty(f.Name, err)
	}
	defer from.Close()
	to, err := dir.OpenFile(name, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o600)
	if err != nil {
		return fmt.Errorf("unzip: %w", err)
	}
	if err := copyFile(ctx, to, from, f); err != nil {
		return errors.Join(err, to.Close())
	}
	if err := errors.Join(to.Chmod(mode), to.Close()); err != nil {
		return fmt.Errorf("unzip: %w", err)
	}
	return nil
}

// copyFile copies not a byte more than the entry says it has.
func copyFile(ctx context.Context, to io.Writer, from io.Reader, f *zip.File) error {
	in := &counted{ctx: ctx, from: from, left: f.UncompressedSize64}
	if _, err := io.Copy(to, in); err != nil {
		if in.err != nil && ctx.Err() == nil {
			return faulty(f.Name, in.err)
		}
		return fmt.Errorf("unzip: %w", err)
	}
	return nil
}

// counted reads until a context ends, or one byte more comes than there should be. err is its own error, not the writer's.
type counted struct {
	ctx  context.Context
	from io.Reader
	left uint64
	err  error
}

func (c *counted) Read(b []byte) (int, error) {
	if c.ctx.Err() != nil {
		c.err = context.Cause(c.ctx)
		return 0, c.err
	}
	n, err := c.from.Read(b)
	if uint64(n) > c.left {
		n, err = 0, zip.ErrFormat
	}
	c.left -= uint64(n)
	if err != nil && err != io.EOF {
		c.err = err
	}
	return n, err
}
