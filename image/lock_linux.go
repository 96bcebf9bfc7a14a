package image

import (
	"context"
	"crypto/rand"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"time"

	"golang.org/x/sys/unix"
)

// Prepare makes the directories of a store. It is refused where others could write to them.
func (s *Store) Prepare() error {
	for _, d := range []string{"", "layers", "images", "names", "locks", "tmp"} {
		dir := filepath.Join(s.Dir, d)
		if err := os.MkdirAll(dir, 0o755); err != nil {
			return fmt.Errorf("image: store: %w", err)
		}
		var st unix.Stat_t
		if err := unix.Lstat(dir, &st); err != nil {
			return fmt.Errorf("image: store %s: %w", dir, err)
		}
		if st.Mode&unix.S_IFMT != unix.S_IFDIR || int(st.Uid) != os.Geteuid() || st.Mode&0o022 != 0 {
			return fmt.Errorf("image: store %s must be a directory of yours that nobody else may write (chmod go-w)", dir)
		}
	}
	return nil
}

// Lock waits for a lock on a thing of the store, by its name: shared for those who only must not be disturbed. Closing the file lets go of it.
func (s *Store) Lock(ctx context.Context, name string, shared bool) (*os.File, error) {
	sum := sha256.Sum256([]byte(name))
	f, err := os.OpenFile(filepath.Join(s.Dir, "locks", hex.EncodeToString(sum[:16])), os.O_RDWR|os.O_CREATE, 0o600)
	if err != nil {
		return nil, fmt.Errorf("image: lock: %w", err)
	}
	how := unix.LOCK_EX
	if shared {
		how = unix.LOCK_SH
	}
	for {
		err := unix.Flock(int(f.Fd()), how|unix.LOCK_NB)
		if err == nil {
			return f, nil
		}
		if err != unix.EWOULDBLOCK && err != unix.EINTR {
			return nil, errors.Join(fmt.Errorf("image: lock %s: %w", name, err), f.Close())
		}
		select {
		case <-ctx.Done():
			return nil, errors.Join(context.Cause(ctx), f.Close())
		case <-time.After(20 * time.Millisecond):
		}
	}
}

// whole is the name of the lock that who makes something holds shared, and who takes something away alone.
const whole = "store"

// Temporary is a directory below tmp/ that a lock keeps. Close removes it.
type Temporary struct {
	Path string
	lock *os.File
}

// Temporary makes one.
func (s *Store) Temporary() (*Temporary, error) {
	for range 16 {
		t := &Temporary{Path: filepath.Join(s.Dir, "tmp", rand.Text())}
		if err := os.Mkdir(t.Path, 0o700); err != nil {
			return nil, fmt.Errorf("image: %w", err)
		}
		lock, err := holdDirectory(t.Path)
		if errors.Is(err, errBusy) || errors.Is(err, fs.ErrNotExist) {
			continue // swept between the two
		}
		if err != nil {
			return nil, err
		}
		t.lock = lock
		return t, nil
	}
	return nil, errors.New("image: no temporary directory lasts")
}

// Close removes what is left in it.
func (t *Temporary) Close() error {
	return errors.Join(os.RemoveAll(t.Path), t.lock.Close())
}

var errBusy = errors.New("image: it is in use")

// holdDirectory locks a directory that nobody else may open, and makes sure that it is still there by its name. errBusy is that another holds it.
func holdDirectory(path string) (*os.File, error) {
	f, err := os.OpenFile(path, os.O_RDONLY|unix.O_DIRECTORY|unix.O_NOFOLLOW, 0)
	if err != nil {
		return nil, fmt.Errorf("image: %w", err)
	}
	if err := unix.Flock(int(f.Fd()), unix.LOCK_EX|unix.LOCK_NB); err != nil {
		if err == unix.EWOULDBLOCK {
			err = errBusy
		}
		return nil, errors.Join(err, f.Close())
	}
	held, err := f.Stat()
	if err == nil {
		var named os.FileInfo
		if named, err = os.Lstat(path); err == nil && !os.SameFile(held, named) {
			err = fs.ErrNotExist
		}
	}
	if err != nil {
		return nil, errors.Join(fmt.Errorf("image: %s: %w", path, err), f.Close())
	}
	return f, nil
}

// sweep removes what was left by makers that died.
func (s *Store) sweep() (removed int, err error) {
	entries, err := os.ReadDir(filepath.Join(s.Dir, "tmp"))
	if err != nil {
		return 0, fmt.Errorf("image: %w", err)
	}
	for _, e := range entries {
		path := filepath.Join(s.Dir, "tmp", e.Name())
		lock, err := holdDirectory(path)
		if errors.Is(err, errBusy) || errors.Is(err, fs.ErrNotExist) {
			continue
		}
		if err != nil {
			return removed, err
		}
		if err := errors.Join(os.RemoveAll(path), lock.Close()); err != nil {
			return removed, fmt.Errorf("image: sweep: %w", err)
		}
		removed++
	}
	return removed, nil
}

// Begin is called by whoever makes something: until the file is closed, nothing is taken away. What dead makers left is swept.
func (s *Store) Begin(ctx context.Context) (*os.File, error) {
	if err := s.Prepare(); err != nil {
		return nil, err
	}
	lock, err := s.Lock(ctx, whole, true)
	if err != nil {
		return nil, err
	}
	if _, err := s.sweep(); err != nil {
		return nil, errors.Join(err, lock.Close())
	}
	return lock, nil
}

// Give names an image of the store; another that had the name loses it.
func (s *Store) Give(n Name) error {
	text, err := json.Marshal(n)
	if err != nil {
		return fmt.Errorf("image: name %s: %w", n.Ref, err)
	}
	return s.replace(s.namePath(n.Ref), text)
}

// replace writes a file that is whole at any moment, also after a crash of the machine.
func (s *Store) replace(path string, text []byte) error {
	f, err := os.CreateTemp(filepath.Join(s.Dir, "locks"), ".new-")
	if err != nil {
		return fmt.Errorf("image: %w", err)
	}
	defer os.Remove(f.Name())
	_, err = f.Write(text)
	if err := errors.Join(err, f.Chmod(0o644), f.Sync(), f.Close()); err != nil {
		return fmt.Errorf("image: %w", err)
	}
	if err := os.Rename(f.Name(), path); err != nil {
		return fmt.Errorf("image: %w", err)
	}
	return nil
}
