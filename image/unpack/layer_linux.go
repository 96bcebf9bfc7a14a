package unpack

import (
	"archive/tar"
	"errors"
	"fmt"
	"io"
	"path"

	"golang.org/x/sys/unix"
)

// contents is what came out of a layer.
type contents struct {
	size    int64
	removed []removal
	skipped []string // the first of them
}

// maxSkipped is how many entries that were left out are told.
const maxSkipped = 20

// layer unpacks one tar stream into a directory that is empty and the caller's alone.
type layer struct {
	root    int // descriptor
	budget  *budget
	parent  int // descriptor of the directory that was used last; -1
	within  string
	scratch []byte
	contents
}

// budget is what is left of an image's limits; layers that are unpacked at the same time share it.
type budget struct {
	entries, bytes counter
	removals       counter // bytes that they take in memory
	ratio          int64
}

// maxRemovals bounds what is kept in memory of an image's whiteouts while its layers are read: 2,000,000 long names would be 8 GB.
const maxRemovals = 64 << 20

// removalOverhead is what one takes beside its name.
const removalOverhead = 32

func tooMany(entry string) error {
	return refuse(entry, "the image has more entries than are permitted (--max-entries)")
}

// unpack reads the stream to the end of its archive.
func (l *layer) unpack(stream io.Reader) error {
	l.parent = -1
	defer l.leave()
	l.scratch = make([]byte, 1<<20)
	archive := tar.NewReader(stream)
	for {
		h, err := archive.Next()
		if errors.Is(err, io.EOF) {
			return nil
		}
		if err != nil {
			return fmt.Errorf("tar stream: %w", err)
		}
		if !l.budget.entries.take(1) {
			return tooMany(h.Name)
		}
		if err := l.entry(h, archive); err != nil {
			var r *Refusal
			if errors.As(err, &r) {
				return err
			}
			return fmt.Errorf("entry %q: %w", shorten(h.Name), err)
		}
	}
}

func (l *layer) entry(h *tar.Header, content io.Reader) error {
	if h.Typeflag == tar.TypeXGlobalHeader {
		return nil
	}
	name, err := clean(h.Name)
	if err != nil {
		return refuse(h.Name, "%v", err)
	}
	gone, ignored, err := removalOf(name)
	if err != nil {
		return refuse(h.Name, "%v", err)
	}
	if gone != nil {
		if !l.budget.removals.take(int64(len(gone.path)) + removalOverhead) {
			return refuse(h.Name, "the names that the image's whiteouts take away have more than %d MiB", maxRemovals>>20)
		}
		l.removed = append(l.removed, *gone)
		return nil
	}
	if kind := kindOf(h.Typeflag); ignored || kind != "" {
		if kind != "" && len(l.skipped) < maxSkipped {
			l.skipped = append(l.skipped, kind+" /"+shorten(name))
		}
		return nil
	}
	if name == "." {
		if h.Typeflag != tar.TypeDir {
			return refuse(h.Name, "the root is not a directory")
		}
		return nil
	}
	base := path.Base(name)
	if err := l.enter(path.Dir(name), h.Name); err != nil {
		return err
	}
	switch h.Typeflag {
	case tar.TypeDir:
		return l.directory(name, base)
	case tar.TypeReg, tar.TypeGNUSparse:
		return l.file(h, name, base, content)
	case tar.TypeSymlink:
		return l.symlink(h, name, base)
	case tar.TypeLink:
		return l.link(h, name, base)
	}
	return refuse(h.Name, "its type %q is none that an image may hold", h.Typeflag)
}

var beneath = unix.OpenHow{
	Flags:   unix.O_PATH | unix.O_DIRECTORY | unix.O_CLOEXEC,
	Resolve: unix.RESOLVE_BENEATH | unix.RESOLVE_NO_SYMLINKS | unix.RESOLVE_NO_MAGICLINKS | unix.RESOLVE_NO_XDEV,
}

// enter makes a directory the one that entries are made in; what is missing of its path is made, and counts as entries do. A symbolic link or a
// file in its path is a refusal: an archive that writes through its own link has no good reason to.
func (l *layer) enter(dir, entry string) error {
	if l.parent >= 0 && l.within == dir {
		return nil
	}
	l.leave()
	fd, err := unix.Openat2(l.root, dir, &beneath)
	if err == unix.ENOENT {
		fd, err = l.makeAll(dir)
	}
	switch err {
	case nil:
	case errTooMany:
		return tooMany(entry)
	case unix.ELOOP, unix.ENOTDIR:
		return refuse(entry, "its directory leads through a symbolic link or a file")
	default:
		return fmt.Errorf("directory %s: %w", shorten(dir), err)
	}
	l.parent, l.within = fd, dir
	return nil
}

func (l *layer) leave() {
	if l.parent >= 0 {
		unix.Close(l.parent)
	}
	l.parent = -1
}

var errTooMany = errors.New("too many entries")

func (l *layer) makeAll(dir string) (int, error) {
	if !l.budget.entries.take(1) {
		return -1, errTooMany
	}
	if parent := path.Dir(dir); parent != "." {
		up, err := unix.Openat2(l.root, parent, &beneath)
		if err == unix.ENOENT {
			up, err = l.makeAll(parent)
		}
		if err != nil {
			return -1, err
		}
		defer unix.Close(up)
		if err := unix.Mkdirat(up, path.Base(dir), 0o755); err != nil && err != unix.EEXIST {
			return -1, err
		}
	} else if err := unix.Mkdirat(l.root, dir, 0o755); err != nil && err != unix.EEXIST {
		return -1, err
	}
	return unix.Openat2(l.root, dir, &beneath)
}

// displace takes away what an earlier entry of the layer has made in this place: the last one counts, as to tar(1).
func (l *layer) displace(base string) error {
	err := removeAll(l.parent, base)
	if err == unix.ENOENT {
		return nil
	}
	return err
}

func (l *layer) directory(name, base string) error {
	err := unix.Mkdirat(l.parent, base, 0o755)
	if err != unix.EEXIST {
		return err
	}
	var st unix.Stat_t
	if err := unix.Fstatat(l.parent, base, &st, unix.AT_SYMLINK_NOFOLLOW); err != nil {
		return err
	}
	if st.Mode&unix.S_IFMT == unix.S_IFDIR {
		return nil
	}
	if err := l.displace(base); err != nil {
		return err
	}
	return unix.Mkdirat(l.parent, base, 0o755)
}

// mode is what remains of a file's: everybody may read it, and execute it where somebody may. Set-user-id bits are gone.
func mode(header int64) uint32 {
	if header&0o111 != 0 {
		return 0o755
	}
	return 0o644
}

func (l *layer) file(h *tar.Header, name, base string, content io.Reader) error {
	if h.Size < 0 || !l.budget.bytes.take(h.Size) {
		return refuse(h.Name, "the image's files are larger than is permitted (--max-bytes)")
	}
	if err := l.displace(base); err != nil {
		return err
	}
	// O_RDWR would do, but nobody reads; O_EXCL follows no link.
	fd, err := unix.Openat(l.parent, base, unix.O_WRONLY|unix.O_CREAT|unix.O_EXCL|unix.O_NOFOLLOW|unix.O_CLOEXEC, 0o600)
	if err != nil {
		return err
	}
	defer unix.Close(fd)
	written, err := copySparse(fd, content, l.scratch)
	if err != nil {
		return err
	}
	if written != h.Size {
		return refuse(h.Name, "it has %d bytes and not %d", written, h.Size)
	}
	l.size += written
	if err := unix.Fchmod(fd, mode(h.Mode)); err != nil {
		return err
	}
	return l.date(h, base)
}

// copySparse leaves holes where there are nothing but zeros.
func copySparse(fd int, content io.Reader, buffer []byte) (int64, error) {
	var at int64
	for {
		n, err := io.ReadFull(content, buffer)
		if n > 0 && !zero(buffer[:n]) {
			if err := writeAt(fd, buffer[:n], at); err != nil {
				return at, err
			}
		}
		at += int64(n)
		if err == io.EOF || err == io.ErrUnexpectedEOF {
			return at, unix.Ftruncate(fd, at)
		}
		if err != nil {
			return at, err
		}
	}
}

func zero(b []byte) bool {
	for _, c := range b {
		if c != 0 {
			return false
		}
	}
	return true
}

func writeAt(fd int, b []byte, at int64) error {
	for len(b) > 0 {
		n, err := unix.Pwrite(fd, b, at)
		if err == unix.EINTR {
			continue
		}
		if err != nil {
			return err
		}
		b, at = b[n:], at+int64(n)
	}
	return nil
}

// date sets the time of change, which programs compare with what they have compiled of a file.
func (l *layer) date(h *tar.Header, base string) error {
	t := unix.NsecToTimespec(h.ModTime.UnixNano())
	if h.ModTime.Unix() < 0 || h.ModTime.Unix() > 1<<34 { // what file systems can hold
		t = unix.Timespec{}
	}
	return unix.UtimesNanoAt(l.parent, base, []unix.Timespec{t, t}, unix.AT_SYMLINK_NOFOLLOW)
}

func (l *layer) symlink(h *tar.Header, name, base string) error {
	// Whatever it says: it is followed in a box alone, whose root is the image.
	if h.Linkname == "" || len(h.Linkname) > maxName {
		return refuse(h.Name, "its target has no length, or one above 4095")
	}
	if err := l.displace(base); err != nil {
		return err
	}
	if err := unix.Symlinkat(h.Linkname, l.parent, base); err != nil {
		return err
	}
	return l.date(h, base)
}

func (l *layer) link(h *tar.Header, name, base string) error {
	target, err := clean(h.Linkname)
	if err != nil || target == "." {
		return refuse(h.Name, "it is a hard link to %q, which is no file of the layer", shorten(h.Linkname))
	}
	if target == name {
		return refuse(h.Name, "it is a hard link to itself")
	}
	dir, err := unix.Openat2(l.root, path.Dir(target), &beneath)
	if err != nil {
		return refuse(h.Name, "it is a hard link to %q, which is no file of the layer (%v)", shorten(h.Linkname), err)
	}
	defer unix.Close(dir)
	var st unix.Stat_t
	if err := unix.Fstatat(dir, path.Base(target), &st, unix.AT_SYMLINK_NOFOLLOW); err != nil || st.Mode&unix.S_IFMT == unix.S_IFDIR {
		return refuse(h.Name, "it is a hard link to %q, which is no file of the layer", shorten(h.Linkname))
	}
	if err := l.displace(base); err != nil {
		return err
	}
	// Without AT_SYMLINK_FOLLOW a link to a symbolic link is one.
	return unix.Linkat(dir, path.Base(target), l.parent, base, 0)
}
