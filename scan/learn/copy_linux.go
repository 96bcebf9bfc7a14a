package learn

import (
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"

	"golang.org/x/sys/unix"
)

// Bounds of a copy that stands for a directory of the host's.
const (
	maxCopyBytes = 64 << 20
	maxCopyFiles = 10_000
)

// copyTree copies a directory of the host's, or one file, to a place that nobody else knows. Links stay links, which lead nowhere but into the
// box; devices, sockets and pipes are left out, and so is what is unreadable to the caller, as the skill could not read it either. whole is false
// if there is more than is copied.
func copyTree(from, to string) (whole bool, err error) {
	if from, err = filepath.EvalSymlinks(from); err != nil {
		return false, err
	}
	info, err := os.Stat(from)
	if err != nil {
		return false, err
	}
	whole = true
	var bytes, files int64
	if !info.IsDir() {
		return copyFile(from, to, info.Mode().Perm(), &bytes)
	}
	err = filepath.WalkDir(from, func(at string, d fs.DirEntry, err error) error {
		rel, relErr := filepath.Rel(from, at)
		if relErr != nil {
			return relErr
		}
		if err != nil { // unreadable
			return nil
		}
		if files++; files > maxCopyFiles || bytes > maxCopyBytes {
			whole = false
			return fs.SkipAll
		}
		target := filepath.Join(to, rel)
		switch {
		case d.IsDir():
			return os.Mkdir(target, 0o755)
		case d.Type() == fs.ModeSymlink:
			link, err := os.Readlink(at)
			if err != nil {
				return err
			}
			return os.Symlink(link, target)
		case d.Type().IsRegular():
			info, err := d.Info()
			if err != nil {
				return nil // removed meanwhile
			}
			all, err := copyFile(at, target, info.Mode().Perm(), &bytes)
			whole = whole && all
			return err
		}
		return nil
	})
	return whole, err
}

// copyFile copies one file up to what is left of the bound.
func copyFile(from, to string, mode fs.FileMode, bytes *int64) (whole bool, err error) {
	in, err := os.OpenFile(from, os.O_RDONLY|unix.O_NOFOLLOW|unix.O_NONBLOCK, 0)
	if err != nil {
		return true, nil
	}
	defer in.Close()
	out, err := os.OpenFile(to, os.O_WRONLY|os.O_CREATE|os.O_EXCL, mode|0o600)
	if err != nil {
		return false, err
	}
	n, err := io.Copy(out, io.LimitReader(in, maxCopyBytes-min(*bytes, maxCopyBytes)+1))
	if *bytes += n; err == nil {
		err = out.Close()
	} else {
		out.Close()
	}
	if err != nil {
		return false, fmt.Errorf("copy %s: %w", from, err)
	}
	return *bytes <= maxCopyBytes, nil
}
