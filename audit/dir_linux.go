package audit

import (
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"time"

	"golang.org/x/sys/unix"
)

// folder is a log's directory, by descriptor: whatever is done to the path afterwards, it is this one.
type folder struct {
	path string
	*os.File
	readOnly bool // then it may be somebody else's: who may read it may verify it
}

// openFolder opens a log's directory. A link in its place is refused; to write, so are another owner, and others who may write.
func openFolder(path string, readOnly bool) (*folder, error) {
	fd, err := unix.Open(path, unix.O_RDONLY|unix.O_DIRECTORY|unix.O_NOFOLLOW|unix.O_CLOEXEC, 0)
	if err == unix.ELOOP || err == unix.ENOTDIR {
		return nil, fmt.Errorf("audit: %s: it is no directory itself, or a link: name the directory where it is", path)
	}
	if err != nil {
		return nil, &os.PathError{Op: "audit: open", Path: path, Err: err}
	}
	f := &folder{path, os.NewFile(uintptr(fd), path), readOnly}
	if readOnly {
		return f, nil
	}
	if err := owned(fd, path, unix.S_IFDIR, "chmod 700"); err != nil {
		return nil, errors.Join(err, f.Close())
	}
	return f, nil
}

// makeFolder makes what is missing of the path, for nobody else.
func makeFolder(path string) error {
	if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
		return fmt.Errorf("audit: %w", err)
	}
	if err := unix.Mkdir(path, 0o700); err != nil && err != unix.EEXIST {
		return &os.PathError{Op: "audit: mkdir", Path: path, Err: err}
	}
	return nil
}

// owned refuses what somebody else could have written.
func owned(fd int, path string, kind uint32, remedy string) error {
	var st unix.Stat_t
	if err := unix.Fstat(fd, &st); err != nil {
		return &os.PathError{Op: "audit: stat", Path: path, Err: err}
	}
	switch euid := os.Geteuid(); {
	case st.Mode&unix.S_IFMT != kind:
		return fmt.Errorf("audit: %s: it is something else than a log has there", path)
	case int(st.Uid) != euid:
		return fmt.Errorf("audit: %s: it belongs to user %d, and this is user %d: each user has a log of their own", path, st.Uid, euid)
	case st.Mode&0o022 != 0:
		return fmt.Errorf("audit: %s: mode %#o: others can write to it (%s %s)", path, st.Mode&0o7777, remedy, path)
	case kind == unix.S_IFREG && st.Nlink > 1:
		return fmt.Errorf("audit: %s: the file has a second name", path)
	}
	return nil
}

// open opens a file of the log's, which must be the user's own.
func (d *folder) open(name string, flags int) (*os.File, error) {
	path := filepath.Join(d.path, name)
	fd, err := unix.Openat(int(d.Fd()), name, flags|unix.O_NOFOLLOW|unix.O_NONBLOCK|unix.O_CLOEXEC, 0o600)
	if err == unix.ELOOP {
		return nil, fmt.Errorf("audit: %s: it is a link", path)
	}
	if err != nil {
		return nil, &os.PathError{Op: "audit: open", Path: path, Err: err}
	}
	f := os.NewFile(uintptr(fd), path)
	if d.readOnly {
		info, err := f.Stat()
		if err == nil && !info.Mode().IsRegular() {
			err = fmt.Errorf("audit: %s: it is no file", path)
		}
		if err != nil {
			return nil, errors.Join(err, f.Close())
		}
		return f, nil
	}
	if err := owned(fd, path, unix.S_IFREG, "chmod 600"); err != nil {
		return nil, errors.Join(err, f.Close())
	}
	return f, nil
}

// read returns what a small file holds.
func (d *folder) read(name string) ([]byte, error) {
	f, err := d.open(name, unix.O_RDONLY)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	text, err := io.ReadAll(io.LimitReader(f, 2*MaxRecord+1))
	if err == nil && len(text) > 2*MaxRecord {
		err = fmt.Errorf("audit: %s: it is longer than %d bytes", f.Name(), 2*MaxRecord)
	}
	return text, err
}

// replace writes a file as a whole, or leaves it as it is.
func (d *folder) replace(name string, text []byte, sync bool) error {
	next := name + ".new"
	f, err := d.open(next, unix.O_WRONLY|unix.O_CREAT|unix.O_TRUNC)
	if err != nil {
		return err
	}
	_, err = f.Write(text)
	if err == nil && sync {
		err = unix.Fdatasync(int(f.Fd()))
	}
	if err = errors.Join(err, f.Close()); err == nil {
		err = unix.Renameat(int(d.Fd()), next, int(d.Fd()), name)
	}
	if err != nil {
		return errors.Join(&os.PathError{Op: "audit: write", Path: filepath.Join(d.path, name), Err: err}, d.remove(next))
	}
	return nil
}

// remove takes a file away; one that is not there is no error.
func (d *folder) remove(name string) error {
	if err := unix.Unlinkat(int(d.Fd()), name, 0); err != nil && err != unix.ENOENT {
		return &os.PathError{Op: "audit: remove", Path: filepath.Join(d.path, name), Err: err}
	}
	return nil
}

// has looks whether there is a file of that name.
func (d *folder) has(name string) (bool, error) {
	var st unix.Stat_t
	err := unix.Fstatat(int(d.Fd()), name, &st, unix.AT_SYMLINK_NOFOLLOW)
	if err == unix.ENOENT {
		return false, nil
	}
	if err != nil {
		return false, &os.PathError{Op: "audit: stat", Path: filepath.Join(d.path, name), Err: err}
	}
	return true, nil
}

// segments lists the numbers of the segments, the oldest first.
func (d *folder) segments() ([]uint64, error) {
	again, err := unix.Openat(int(d.Fd()), ".", unix.O_RDONLY|unix.O_DIRECTORY|unix.O_CLOEXEC, 0) // with a place of its own in the list
	if err != nil {
		return nil, &os.PathError{Op: "audit: read", Path: d.path, Err: err}
	}
	dir := os.NewFile(uintptr(again), d.path)
	names, err := dir.Readdirnames(-1)
	if err = errors.Join(err, dir.Close()); err != nil {
		return nil, fmt.Errorf("audit: %w", err)
	}
	var all []uint64
	for _, name := range names {
		if n, ok := segmentNumber(name); ok {
			all = append(all, n)
		}
	}
	slices.Sort(all)
	return all, nil
}

// errBusy is a lock that nobody lets go of.
var errBusy = errors.New("audit: another process holds the log")

// lock waits for other processes of this log, but not for ever: one of them may be stopped.
func lock(f *os.File, wait time.Duration) error {
	var began time.Time
	for pause := 20 * time.Microsecond; ; pause = min(2*pause, 2*time.Millisecond) {
		err := unix.Flock(int(f.Fd()), unix.LOCK_EX|unix.LOCK_NB)
		if err == nil {
			return nil
		}
		if err != unix.EWOULDBLOCK && err != unix.EINTR {
			return &os.PathError{Op: "audit: lock", Path: f.Name(), Err: err}
		}
		if began.IsZero() {
			began = time.Now()
		} else if time.Since(began) > wait {
			return fmt.Errorf("%w (%s) for more than %s: look for a stopped skillboxd", errBusy, f.Name(), wait)
		}
		time.Sleep(pause)
	}
}

func unlock(f *os.File) error {
	if err := unix.Flock(int(f.Fd()), unix.LOCK_UN); err != nil {
		return &os.PathError{Op: "audit: unlock", Path: f.Name(), Err: err}
	}
	return nil
}
