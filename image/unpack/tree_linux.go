package unpack

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path"

	"golang.org/x/sys/unix"
)

// removeAll takes away a name and everything below it; it follows no link. The error is an errno.
func removeAll(dir int, name string) error {
	err := unix.Unlinkat(dir, name, 0)
	if err != unix.EISDIR && err != unix.EPERM {
		return err
	}
	fd, err := openDirectory(dir, name)
	if err != nil {
		return err
	}
	names, err := list(fd) // closes it
	if err != nil {
		return err
	}
	again, err := openDirectory(dir, name)
	if err != nil {
		return err
	}
	defer unix.Close(again)
	for _, n := range names {
		if err := removeAll(again, n); err != nil {
			return err
		}
	}
	return unix.Unlinkat(dir, name, unix.AT_REMOVEDIR)
}

func openDirectory(dir int, name string) (int, error) {
	return unix.Openat(dir, name, unix.O_RDONLY|unix.O_DIRECTORY|unix.O_NOFOLLOW|unix.O_CLOEXEC, 0)
}

// list reads the names in a directory and closes it.
func list(fd int) ([]string, error) {
	f := os.NewFile(uintptr(fd), "directory")
	defer f.Close()
	return f.Readdirnames(-1)
}

// place puts a layer's files above what is in tree, as hard links.
type place struct {
	ctx          context.Context
	left         counter // entries
	files, bytes int64
}

// next counts an entry, and says whether to go on.
func (p *place) next(name string) error {
	if err := context.Cause(p.ctx); err != nil {
		return err
	}
	if !p.left.take(1) {
		return tooMany(name)
	}
	return nil
}

// removeFrom takes away what a layer says is gone.
func (p *place) removeFrom(tree int, removed []removal) error {
	for _, r := range removed {
		if err := p.next(r.path); err != nil {
			return err
		}
		dir := r.path
		if !r.opaque {
			dir = path.Dir(r.path)
		}
		how := beneath
		how.Flags = unix.O_RDONLY | unix.O_DIRECTORY | unix.O_CLOEXEC
		fd, err := unix.Openat2(tree, dir, &how)
		// Nothing is there, or what the layer's own directory is going to replace.
		if err == unix.ENOENT || err == unix.ENOTDIR || err == unix.ELOOP {
			continue
		}
		if err != nil {
			return fmt.Errorf("whiteout of %s: %w", shorten(r.path), err)
		}
		if err := removeIn(fd, r); err != nil {
			return fmt.Errorf("whiteout of %s: %w", shorten(r.path), err)
		}
	}
	return nil
}

// removeIn closes dir.
func removeIn(dir int, r removal) (err error) {
	names := []string{path.Base(r.path)}
	defer unix.Close(dir)
	if r.opaque {
		copied, err := unix.Openat(dir, ".", unix.O_RDONLY|unix.O_DIRECTORY|unix.O_CLOEXEC, 0)
		if err != nil {
			return err
		}
		if names, err = list(copied); err != nil {
			return err
		}
	}
	for _, name := range names {
		if err := removeAll(dir, name); err != nil && err != unix.ENOENT {
			return err
		}
	}
	return nil
}

// put links everything in the directory from into to.
func (p *place) put(from, to int) error {
	copied, err := unix.Openat(from, ".", unix.O_RDONLY|unix.O_DIRECTORY|unix.O_CLOEXEC, 0)
	if err != nil {
		return err
	}
	names, err := list(copied)
	if err != nil {
		return err
	}
	for _, name := range names {
		if err := p.one(from, to, name); err != nil {
			return fmt.Errorf("%s: %w", shorten(name), err)
		}
	}
	return nil
}

func (p *place) one(from, to int, name string) error {
	if err := p.next(name); err != nil {
		return err
	}
	var st, there unix.Stat_t
	if err := unix.Fstatat(from, name, &st, unix.AT_SYMLINK_NOFOLLOW); err != nil {
		return err
	}
	err := unix.Fstatat(to, name, &there, unix.AT_SYMLINK_NOFOLLOW)
	if err != nil && err != unix.ENOENT {
		return err
	}
	directory := st.Mode&unix.S_IFMT == unix.S_IFDIR
	if err == nil && !(directory && there.Mode&unix.S_IFMT == unix.S_IFDIR) {
		if err := removeAll(to, name); err != nil {
			return err
		}
		err = unix.ENOENT
	}
	p.files++
	if !directory {
		p.bytes += st.Size
		return unix.Linkat(from, name, to, name, 0)
	}
	if err == unix.ENOENT {
		if err := unix.Mkdirat(to, name, 0o755); err != nil {
			return err
		}
	}
	source, err := openDirectory(from, name)
	if err != nil {
		return err
	}
	defer unix.Close(source)
	target, err := openDirectory(to, name)
	if err != nil {
		return err
	}
	return errors.Join(p.put(source, target), unix.Close(target))
}
