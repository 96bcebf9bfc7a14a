package bundle

import (
	"context"
	"fmt"
	"time"

	"golang.org/x/sys/unix"
)

// look fills in the entry of a path; now is a moment before that.
func (w *worker) look(d *openDir, e *entry, now time.Time) error {
	if len(e.path) > maxPath {
		return refuse(e.path[:maxPath/16]+"…", "the path is longer than 4096 bytes", "")
	}
	name := d.name(e.path)
	fd := -1
	if w.known.len() == 0 {
		// Every file is going to be read: opening it first saves looking its name up twice. What cannot be opened like a file is
		// looked at by name below, and the open neither follows a link nor waits.
		if fd = openFile(d.fd, name); fd >= 0 {
			defer unix.Close(fd)
		}
	}
	if err := w.stat(d, name, fd); err != nil {
		return sysError(e.path, err)
	}
	if w.st.Attributes_mask&w.st.Attributes&unix.STATX_ATTR_MOUNT_ROOT != 0 {
		return sysError(e.path, unix.EXDEV)
	}
	e.mode = w.st.Mode & 0o7777
	w.changed = max(w.changed, w.st.Ctime.Sec*1e9+int64(w.st.Ctime.Nsec))
	switch w.st.Mode & unix.S_IFMT {
	case unix.S_IFDIR:
		return w.directory(d, e)
	case unix.S_IFLNK:
		return w.link(d, name, e)
	case unix.S_IFREG:
		return w.file(d, name, e, now, fd)
	}
	return refuse(e.path, "is "+typeName(w.st.Mode)+", and only files, directories and links belong in a bundle", "remove it")
}

// stat fills w.st from an open file, or by name where fd is -1.
func (w *worker) stat(d *openDir, name string, fd int) error {
	if fd >= 0 {
		return statx(fd, "", &w.st)
	}
	return statx(d.fd, name, &w.st)
}

func (w *worker) directory(d *openDir, e *entry) error {
	e.typ = 'd'
	if d.depth+1 >= maxNests {
		return refuse(e.path, "lies deeper than 64 levels", "")
	}
	if w.dirs.Add(1) > int64(w.lim.Files) {
		return w.tooMany(e.path)
	}
	// A set-group-id directory is how shared trees keep their group, gives nobody a right, and is let be.
	if e.mode&unix.S_ISUID != 0 {
		return setID(e.path)
	}
	return nil
}

func (w *worker) link(d *openDir, name string, e *entry) error {
	e.typ, e.mode = 'l', 0
	if w.files.Add(1) > int64(w.lim.Files) {
		return w.tooMany(e.path)
	}
	n, err := unix.Readlinkat(d.fd, name, w.buf[:maxPath+1])
	switch {
	case err != nil:
		return sysError(e.path, err)
	case n > maxPath:
		return refuse(e.path, "is a link to a path longer than 4096 bytes", "")
	}
	e.target = string(w.buf[:n])
	return nil
}

func (w *worker) file(d *openDir, name string, e *entry, now time.Time, fd int) error {
	e.typ, e.size = 'f', w.st.Size
	switch {
	case w.files.Add(1) > int64(w.lim.Files):
		return w.tooMany(e.path)
	case w.st.Nlink > 1:
		return refuse(e.path, "has a second hard link: it may be another file of this machine, and can be changed from outside the bundle",
			"copy the bundle with `cp -r`, which makes files of their own")
	case e.mode&(unix.S_ISUID|unix.S_ISGID) != 0:
		return setID(e.path)
	case e.size > uint64(w.lim.Bytes), w.bytes.Add(int64(e.size)) > w.lim.Bytes:
		return refuse(e.path, fmt.Sprintf("makes the bundle larger than %d bytes", w.lim.Bytes), "raise it with --max-bytes")
	}
	e.stamp = stampOf(&w.st)
	if sum, ok := w.known.lookup(e.stamp); ok {
		e.hash, e.fresh = sum, true
		w.cached.Add(1)
		return nil
	}
	e.fresh = e.stamp.settled(now)
	if fd < 0 {
		return w.contentOf(d, name, e)
	}
	if e.size < bufSize {
		return w.whole(fd, e)
	}
	return w.content(fd, e)
}

// contentOf opens a file that was looked at by name, and hashes it.
func (w *worker) contentOf(d *openDir, name string, e *entry) error {
	fd, err := openat(d.fd, name, unix.O_RDONLY)
	if err != nil {
		return sysError(e.path, err)
	}
	defer unix.Close(fd)
	return w.content(fd, e)
}

// whole hashes a small file that was looked at after it was opened. It need not be looked at again: what is written to it between the
// look and the one read gives it a new time, with which the cache does not know it.
func (w *worker) whole(fd int, e *entry) error {
	n, err := read(fd, w.buf[:])
	if err != nil {
		return sysError(e.path, err)
	}
	if uint64(n) != e.size {
		// Changed, or on a file system that gives less than was asked for: read again with all care.
		if _, err := unix.Seek(fd, 0, unix.SEEK_SET); err != nil {
			return sysError(e.path, err)
		}
		return w.content(fd, e)
	}
	w.hash.Reset()
	w.hash.Write(w.buf[:n])
	w.hash.Sum(e.hash[:0])
	return nil
}

// content hashes a file, and makes sure that what was read is the file that was looked at: the same inode before and after, of the same
// size, not written to in between.
func (w *worker) content(fd int, e *entry) error {
	var size uint64
	w.hash.Reset()
	for size < e.size {
		n, err := read(fd, w.buf[:])
		if err != nil {
			return sysError(e.path, err)
		}
		if n == 0 {
			break
		}
		w.hash.Write(w.buf[:n])
		if size += uint64(n); size < e.size && w.ctx.Err() != nil {
			return w.canceled()
		}
	}
	var after unix.Stat_t
	if err := unix.Fstat(fd, &after); err != nil {
		return sysError(e.path, err)
	}
	if size != e.size || stampOfStat(&after) != e.stamp {
		return refuse(e.path, changed, "run it again when nothing writes to the bundle")
	}
	w.hash.Sum(e.hash[:0])
	return nil
}

func (w *walk) canceled() error { return fmt.Errorf("bundle: read: %w", context.Cause(w.ctx)) }

func (w *walk) tooMany(path string) *Error {
	return refuse(path, fmt.Sprintf("makes the bundle larger than %d files", w.lim.Files), "raise it with --max-files")
}

func setID(path string) *Error {
	return refuse(path, "has the set-user-id or set-group-id bit", "remove it with `chmod ug-s`")
}
