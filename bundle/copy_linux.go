package bundle

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"

	"golang.org/x/sys/unix"
)

// Copy writes the files, directories and links below from into the empty directory to, with their modes. Whoever can write to the original
// cannot change the copy any more: its Digest is that of what runs. Of a bundle that changes meanwhile the copy may be of no one moment, which
// its digest shows. What Digest refuses, Copy may refuse, or leave to it; lim holds here too. With owners everything belongs to whom it
// belongs in the original, else to the caller.
func Copy(ctx context.Context, from, to *os.File, lim Limits, owners bool) error {
	lim = lim.orDefault()
	c := &copying{ctx: ctx, owners: owners, files: lim.Files, dirs: lim.Files, bytes: lim.Bytes}
	if err := c.dir(int(from.Fd()), int(to.Fd()), "", 0); err != nil {
		return err
	}
	return c.settle(int(from.Fd()), int(to.Fd()), "")
}

// copying is one Copy under way, with what is left of its limits.
type copying struct {
	ctx         context.Context
	owners      bool
	files, dirs int
	bytes       int64
}

func (c *copying) dir(from, to int, path string, depth int) error {
	if depth > maxNests {
		return refuse(path, fmt.Sprintf("lies more than %d directories deep", maxNests), "")
	}
	fd, err := openat(from, ".", unix.O_RDONLY|unix.O_DIRECTORY) // listing moves a descriptor's position
	if err != nil {
		return sysError(path, err)
	}
	list := os.NewFile(uintptr(fd), path)
	defer list.Close()
	for {
		names, err := list.Readdirnames(256)
		for _, name := range names {
			if err := c.one(fd, to, name, inDir(path, name), depth); err != nil {
				return err
			}
		}
		if len(names) == 0 {
			if errors.Is(err, io.EOF) {
				return nil
			}
			return sysError(path, err)
		}
	}
}

// one copies a name. What it is is asked of a descriptor that opens nothing yet: to open a device may do something.
func (c *copying) one(from, to int, name, path string, depth int) error {
	if err := context.Cause(c.ctx); err != nil {
		return fmt.Errorf("bundle: copy: %w", err)
	}
	var st unix.Statx_t
	if err := statx(from, name, &st); err != nil {
		return sysError(path, err)
	}
	switch kind := uint32(st.Mode) & unix.S_IFMT; kind {
	case unix.S_IFDIR:
		if c.dirs--; c.dirs < 0 {
			return refuse("", "has too many directories", "raise --max-files")
		}
		return c.subdir(from, to, name, path, depth)
	case unix.S_IFREG, unix.S_IFLNK:
		if c.files--; c.files < 0 {
			return refuse("", "has too many files", "raise --max-files")
		}
		if kind == unix.S_IFLNK {
			return c.link(from, to, name, path)
		}
		return c.file(from, to, name, path)
	}
	return refuse(path, "is "+typeName(st.Mode), "a bundle holds files, directories and links")
}

func (c *copying) subdir(from, to int, name, path string, depth int) error {
	in, err := openat(from, name, unix.O_RDONLY|unix.O_DIRECTORY)
	if err != nil {
		return sysError(path, err)
	}
	defer unix.Close(in)
	if err := unix.Mkdirat(to, name, 0o700); err != nil {
		return copyError(path, err)
	}
	out, err := openat(to, name, unix.O_RDONLY|unix.O_DIRECTORY)
	if err != nil {
		return copyError(path, err)
	}
	defer unix.Close(out)
	if err := c.dir(in, out, path, depth+1); err != nil {
		return err
	}
	return c.settle(in, out, path)
}

// settle gives a copy the mode of its original, and its owner.
func (c *copying) settle(in, out int, path string) error {
	var st unix.Stat_t
	if err := unix.Fstat(in, &st); err != nil {
		return sysError(path, err)
	}
	if c.owners {
		if err := unix.Fchown(out, int(st.Uid), int(st.Gid)); err != nil {
			return copyError(path, err)
		}
	}
	if err := unix.Fchmod(out, st.Mode&0o7777); err != nil {
		return copyError(path, err)
	}
	return nil
}

func (c *copying) link(from, to int, name, path string) error {
	buf := make([]byte, maxPath+1)
	n, err := unix.Readlinkat(from, name, buf)
	if err != nil {
		return sysError(path, err)
	}
	if err := unix.Symlinkat(string(buf[:n]), to, name); err != nil {
		return copyError(path, err)
	}
	return nil
}

func (c *copying) file(from, to int, name, path string) error {
	in, err := openat(from, name, unix.O_RDONLY)
	if err != nil {
		return sysError(path, err)
	}
	defer unix.Close(in)
	var st unix.Stat_t
	if err := unix.Fstat(in, &st); err != nil {
		return sysError(path, err)
	}
	switch {
	case !isRegular(st.Mode):
		return refuse(path, changed, "")
	case st.Mode&(unix.S_ISUID|unix.S_ISGID) != 0:
		return setID(path)
	}
	out, err := unix.Openat(to, name, unix.O_WRONLY|unix.O_CREAT|unix.O_EXCL|unix.O_NOFOLLOW|unix.O_CLOEXEC, 0o600)
	if err != nil {
		return copyError(path, err)
	}
	defer unix.Close(out)
	buf := buffers.Get().(*[bufSize]byte)
	defer buffers.Put(buf)
	for {
		n, err := read(in, buf[:])
		switch {
		case err != nil:
			return sysError(path, err)
		case n == 0:
			return c.settle(in, out, path)
		}
		if c.bytes -= int64(n); c.bytes < 0 {
			return refuse("", "is too large", "raise --max-bytes")
		}
		if _, err := unix.Write(out, buf[:n]); err != nil {
			return copyError(path, err)
		}
		if err := context.Cause(c.ctx); err != nil {
			return fmt.Errorf("bundle: copy: %w", err)
		}
	}
}

// copyError is a failed system call on the copy.
func copyError(path string, err error) error {
	return fmt.Errorf("bundle: copy of %q: %w", path, err)
}
