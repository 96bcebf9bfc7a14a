package output

import (
	"fmt"
	"io"
	"os"
	"slices"
	"strconv"

	"golang.org/x/sys/unix"
)

// The kinds of a Change.
const (
	Added   = "added"
	Changed = "changed" // its content, or what is known of it
	Removed = "removed"
)

// Change is something that a skill changed in its own directory, which is a copy.
type Change struct {
	Path string // below the directory; quoted where it holds what cannot be shown
	Kind string
	Size int64 // bytes of a regular file that is there now
}

// Bounds of a list of changes: what a skill can make us report, and how long it takes.
const (
	maxChanges     = 1000
	maxChangeNames = 64 << 10
	maxLooked      = 20_000
	maxChangeDepth = 64
)

// Changes compares an overlay's upper directory with the lower one, as they are described in the kernel's overlayfs.rst: what lies in upper was
// added or changed, a character device 0/0 stands for something removed, and an opaque directory replaces the lower one. Only names and
// attributes are looked at, by descriptors, and no link is followed. more says that there are changes which the list has no room for.
func Changes(upper, lower *os.File) (list []Change, more bool, err error) {
	c := &comparer{}
	fd, err := unix.FcntlInt(lower.Fd(), unix.F_DUPFD_CLOEXEC, 0)
	if err != nil {
		return nil, false, fmt.Errorf("output: changes: %w", err)
	}
	defer unix.Close(fd)
	c.directory(int(upper.Fd()), fd, "", 0)
	return c.list, c.more, nil
}

type comparer struct {
	list   []Change
	names  int
	looked int
	more   bool
}

// add notes a change, and says whether there is room for another.
func (c *comparer) add(path, kind string, size int64) {
	if c.names += len(path); len(c.list) >= maxChanges || c.names > maxChangeNames {
		c.more = true
		return
	}
	c.list = append(c.list, Change{path, kind, size})
}

// directory compares one directory; lower is -1 where there is none below. Both stay open.
func (c *comparer) directory(upper, lower int, prefix string, depth int) {
	names, whole := c.listed(upper)
	if !whole || depth > maxChangeDepth {
		c.more = true
	}
	if lower >= 0 && opaque(upper) {
		c.replaced(lower, names, prefix)
	}
	for _, name := range names {
		if c.more {
			return
		}
		c.entry(upper, lower, prefix+shownName(name), name, depth)
	}
}

// listed lists a directory, sorted, and says whether that is all of it.
func (c *comparer) listed(dir int) (names []string, whole bool) {
	fd, err := unix.Openat(dir, ".", unix.O_RDONLY|unix.O_DIRECTORY|unix.O_CLOEXEC, 0)
	if err != nil {
		return nil, false
	}
	f := os.NewFile(uintptr(fd), "directory")
	defer f.Close()
	names, err = f.Readdirnames(maxLooked - c.looked + 1)
	c.looked += len(names)
	slices.Sort(names)
	return names, (err == nil || err == io.EOF) && c.looked <= maxLooked
}

func (c *comparer) entry(upper, lower int, path, name string, depth int) {
	node, st, ok := look(upper, name)
	if !ok {
		return // it went away while we looked: the box is still there
	}
	defer unix.Close(node)
	below, was, existed := -1, unix.Stat_t{}, false
	if lower >= 0 {
		if below, was, existed = look(lower, name); existed {
			defer unix.Close(below)
		}
	}
	kind := Added
	if existed {
		kind = Changed
	}
	switch st.Mode & unix.S_IFMT {
	case unix.S_IFCHR:
		if st.Rdev == 0 {
			if existed {
				c.add(path, Removed, 0)
			}
			return
		}
		c.add(path, kind, 0)
	case unix.S_IFDIR:
		isDir := existed && was.Mode&unix.S_IFMT == unix.S_IFDIR
		if !isDir {
			c.add(path+"/", kind, 0)
			below = -1
		}
		c.directory(node, below, path+"/", depth+1)
	case unix.S_IFREG:
		c.add(path, kind, st.Size)
	default:
		c.add(path, kind, 0)
	}
}

// replaced notes what an opaque directory hides of the one below it.
func (c *comparer) replaced(lower int, kept []string, prefix string) {
	names, whole := c.listed(lower)
	if !whole {
		c.more = true
	}
	for _, name := range names {
		if _, found := slices.BinarySearch(kept, name); !found {
			c.add(prefix+shownName(name), Removed, 0)
		}
	}
}

// look opens a name without opening what it names.
func look(dir int, name string) (fd int, st unix.Stat_t, ok bool) {
	fd, err := unix.Openat2(dir, name, &unix.OpenHow{
		Flags:   unix.O_PATH | unix.O_NOFOLLOW | unix.O_CLOEXEC,
		Resolve: unix.RESOLVE_BENEATH | unix.RESOLVE_NO_SYMLINKS | unix.RESOLVE_NO_XDEV,
	})
	if err != nil {
		return -1, st, false
	}
	if err := unix.Fstat(fd, &st); err != nil {
		unix.Close(fd)
		return -1, st, false
	}
	return fd, st, true
}

// opaque says of a directory in an upper layer that it hides the lower one. A skill can set the mark itself only for what it may change anyway.
func opaque(dir int) bool {
	var value [2]byte
	for _, name := range []string{"user.overlay.opaque", "trusted.overlay.opaque"} {
		n, err := unix.Getxattr(fdPath(dir), name, value[:])
		if err == nil && n == 1 && value[0] == 'y' {
			return true
		}
	}
	return false
}

// shownName is a name as it may be shown.
func shownName(name string) string {
	if unfitName(name) == "" {
		return name
	}
	quoted := strconv.QuoteToASCII(name)
	return quoted[1 : len(quoted)-1]
}
