package output

import (
	"archive/tar"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"os"
	"slices"
	"strconv"
	"time"

	"golang.org/x/sys/unix"
)

// Collect writes the regular files beneath root as a tar stream. Every directory and file is opened by descriptor relative to its
// parent, without following a link and without waiting for a FIFO, and checked after it was opened; so it is safe even while the
// skill still runs. Links, devices, sockets, FIFOs, files with a second name and names that cannot be shown are left behind, and
// said so. Too many or too large files end the collection with what fits, and so does a tree of many more names than files are taken:
// the time it takes is bounded by the limits, not by what the skill made.
func Collect(root *os.File, w io.Writer, limits Limits) (items []Item, skipped []Skipped, err error) {
	if limits.Files <= 0 || limits.Bytes <= 0 {
		return nil, nil, errors.New("output: no limits given")
	}
	if limits.Depth == 0 {
		limits.Depth = 32
	}
	c := &collector{archive: tar.NewWriter(w), limits: limits}
	if err := c.directory(int(root.Fd()), "", 0); err != nil && !errors.Is(err, errFull) {
		return c.items, c.skipped, err
	}
	return c.items, c.skipped, c.archive.Close()
}

type collector struct {
	archive *tar.Writer
	limits  Limits
	seen    int // entries looked at
	bytes   int64
	names   int // bytes of the names of items
	items   []Item
	skipped []Skipped
}

// errFull ends the walk: the reason is already among what was skipped.
var errFull = errors.New("output: full")

const (
	// maxSkipped bounds what a skill can make us report.
	maxSkipped = 100
	// lookedAt is how many names of any kind are looked at for each file that may be taken.
	lookedAt = 16
	// maxName is what a path may have, as in a system call; maxNames bounds the report, which must fit in one message.
	maxName  = 4095
	maxNames = 256 << 10
	// maxQuoted is what is shown of a name that was left behind.
	maxQuoted = 512
)

func (c *collector) skip(name, format string, a ...any) {
	if len(c.skipped) < maxSkipped {
		if len(name) > maxQuoted {
			name = name[:maxQuoted] + "…"
		}
		c.skipped = append(c.skipped, Skipped{strconv.Quote(name), fmt.Sprintf(format, a...)})
	}
}

func (c *collector) directory(parent int, prefix string, depth int) error {
	if depth > c.limits.Depth {
		c.skip(prefix, "deeper than %d directories", c.limits.Depth)
		return nil
	}
	fd, err := unix.Openat(parent, ".", unix.O_RDONLY|unix.O_DIRECTORY|unix.O_CLOEXEC, 0)
	if err != nil {
		c.skip(prefix, "%v", err)
		return nil
	}
	dir := os.NewFile(uintptr(fd), prefix)
	defer dir.Close()
	names, err := dir.Readdirnames(c.limits.Files + 1)
	if err != nil && err != io.EOF {
		c.skip(prefix, "%v", err)
		return nil
	}
	if len(names) > c.limits.Files {
		c.skip(prefix, "more than %d entries", c.limits.Files)
		return nil
	}
	slices.Sort(names)
	for _, name := range names {
		if err := c.entry(fd, prefix+name, name, depth); err != nil {
			return err
		}
	}
	return nil
}

func (c *collector) entry(dir int, full, name string, depth int) error {
	if c.seen++; c.seen > lookedAt*c.limits.Files {
		c.skip(full, "more than %d names; nothing after this one was looked at", lookedAt*c.limits.Files)
		return errFull
	}
	if why := unfitName(name); why != "" {
		c.skip(full, "%s", why)
		return nil
	}
	// O_PATH opens nothing of the file itself: no FIFO blocks, no device acts.
	node, err := unix.Openat2(dir, name, &unix.OpenHow{
		Flags:   unix.O_PATH | unix.O_NOFOLLOW | unix.O_CLOEXEC,
		Resolve: unix.RESOLVE_BENEATH | unix.RESOLVE_NO_SYMLINKS | unix.RESOLVE_NO_XDEV,
	})
	if err != nil {
		c.skip(full, "%v", err)
		return nil
	}
	defer unix.Close(node)
	var st unix.Stat_t
	if err := unix.Fstat(node, &st); err != nil {
		c.skip(full, "%v", err)
		return nil
	}
	switch st.Mode & unix.S_IFMT {
	case unix.S_IFDIR:
		return c.subdirectory(node, full, &st, depth)
	case unix.S_IFREG:
		return c.file(node, full, &st)
	}
	c.skip(full, "not a regular file")
	return nil
}

func (c *collector) subdirectory(node int, full string, st *unix.Stat_t, depth int) error {
	// A directory without permissions would hide its files; it is ours to read, whoever owns it inside.
	if st.Mode&0o500 != 0o500 {
		if err := unix.Chmod(fdPath(node), st.Mode&0o7777|0o700); err != nil {
			c.skip(full, "%v", err)
			return nil
		}
	}
	return c.directory(node, full+"/", depth+1)
}

func (c *collector) file(node int, full string, st *unix.Stat_t) error {
	if st.Nlink > 1 {
		c.skip(full, "it has a second name (hard link)")
		return nil
	}
	if len(full) > maxName {
		c.skip(full, "its path is longer than %d bytes", maxName)
		return nil
	}
	if c.names+len(full) > maxNames {
		c.skip(full, "the names are longer than %d bytes together; nothing after this one was taken", maxNames)
		return errFull
	}
	if len(c.items) >= c.limits.Files {
		c.skip(full, "more than %d files; nothing after this one was taken", c.limits.Files)
		return errFull
	}
	if st.Size > c.limits.Bytes-c.bytes { // a sum could overflow: a file with a hole may claim 2^63-1 bytes
		c.skip(full, "the files are larger than %d bytes together; nothing after this one was taken", c.limits.Bytes)
		return errFull
	}
	if st.Mode&0o400 == 0 {
		if err := unix.Chmod(fdPath(node), st.Mode&0o7777|0o400); err != nil {
			c.skip(full, "%v", err)
			return nil
		}
	}
	fd, err := unix.Open(fdPath(node), unix.O_RDONLY|unix.O_NONBLOCK|unix.O_CLOEXEC, 0)
	if err != nil {
		c.skip(full, "%v", err)
		return nil
	}
	f := os.NewFile(uintptr(fd), full)
	defer f.Close()
	return c.copy(f, full, st.Size)
}

// copy writes one file of exactly size bytes; one that shrank or grew meanwhile is an error, for the stream would lie.
func (c *collector) copy(f *os.File, full string, size int64) error {
	header := &tar.Header{Typeflag: tar.TypeReg, Name: full, Size: size, Mode: 0o644, ModTime: time.Unix(0, 0), Format: tar.FormatPAX}
	if err := c.archive.WriteHeader(header); err != nil {
		return fmt.Errorf("output: %q: %w", full, err)
	}
	sum := sha256.New()
	n, err := io.Copy(io.MultiWriter(c.archive, sum), io.LimitReader(f, size))
	if err == nil && n != size {
		err = errors.New("it changed while it was read")
	}
	if err != nil {
		return fmt.Errorf("output: %q: %w", full, err)
	}
	c.bytes, c.names = c.bytes+size, c.names+len(full)
	c.items = append(c.items, Item{Name: full, Bytes: size, SHA256: hex.EncodeToString(sum.Sum(nil))})
	return nil
}

// fdPath names an O_PATH descriptor for calls that refuse one.
func fdPath(fd int) string { return "/proc/self/fd/" + strconv.Itoa(fd) }
