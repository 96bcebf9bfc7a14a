package serve

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"

	"golang.org/x/sys/unix"
)

// Temp is a directory that is nobody else's. Its lock says that the service lives: the kernel lets go of it however the service ends.
type Temp struct {
	Path string
	lock *os.File
}

const tempPrefix = "skillbox-serve-"

// OpenTemp makes one in parent, and removes those of services that were killed.
func OpenTemp(parent string) (*Temp, error) {
	if err := sweep(parent); err != nil {
		return nil, fmt.Errorf("serve: %w", err)
	}
	for {
		path, err := os.MkdirTemp(parent, tempPrefix) // mode 0700
		if err != nil {
			return nil, fmt.Errorf("serve: %w", err)
		}
		lock, err := lockDirectory(path)
		if errors.Is(err, unix.EWOULDBLOCK) || errors.Is(err, fs.ErrNotExist) {
			continue // another service, which is just starting, sweeps it
		}
		if err != nil {
			return nil, errors.Join(fmt.Errorf("serve: %w", err), os.Remove(path))
		}
		return &Temp{path, lock}, nil
	}
}

// Close removes the directory.
func (t *Temp) Close() error { return errors.Join(os.RemoveAll(t.Path), t.lock.Close()) }

// lockDirectory takes the lock of a directory that is ours and still has its name.
func lockDirectory(path string) (*os.File, error) {
	fd, err := unix.Open(path, unix.O_RDONLY|unix.O_DIRECTORY|unix.O_NOFOLLOW|unix.O_CLOEXEC, 0)
	if err != nil {
		return nil, &fs.PathError{Op: "open", Path: path, Err: err}
	}
	f := os.NewFile(uintptr(fd), path)
	err = unix.Flock(fd, unix.LOCK_EX|unix.LOCK_NB)
	var is, named unix.Stat_t
	if err == nil {
		err = errors.Join(unix.Fstat(fd, &is), unix.Lstat(path, &named))
	}
	if err == nil && (is.Ino != named.Ino || is.Dev != named.Dev || int(is.Uid) != os.Geteuid()) {
		err = fs.ErrNotExist
	}
	if err != nil {
		return nil, errors.Join(&fs.PathError{Op: "lock", Path: path, Err: err}, f.Close())
	}
	return f, nil
}

// sweep removes what is left of services whose lock nobody holds.
func sweep(parent string) error {
	entries, err := os.ReadDir(parent)
	if err != nil {
		return err
	}
	for _, e := range entries {
		if !e.IsDir() || !strings.HasPrefix(e.Name(), tempPrefix) {
			continue
		}
		path := filepath.Join(parent, e.Name())
		lock, err := lockDirectory(path)
		if err != nil {
			continue // another's, or one that lives
		}
		if err := errors.Join(os.RemoveAll(path), lock.Close()); err != nil {
			return err
		}
	}
	return nil
}
