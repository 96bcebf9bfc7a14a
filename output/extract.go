package output

import (
	"archive/tar"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path"
	"strings"
)

// Extract writes a stream of Collect's into dir. Nothing is written outside dir or through a symbolic link in it (os.Root), no
// file gets a set-id or execute bit, and an existing file is an error that names it unless force is set, where it is replaced by
// a new file. Files written before an error stay.
func Extract(r io.Reader, dir *os.Root, force bool) error {
	archive := tar.NewReader(r)
	for {
		header, err := archive.Next()
		if errors.Is(err, io.EOF) {
			return nil
		}
		if err != nil {
			return fmt.Errorf("output: %w", err)
		}
		if err := extractFile(archive, header, dir, force); err != nil {
			return err
		}
	}
}

func extractFile(archive io.Reader, header *tar.Header, dir *os.Root, force bool) error {
	name := header.Name
	if header.Typeflag != tar.TypeReg || !fs.ValidPath(name) {
		return fmt.Errorf("output: %q is not a file below the directory", name)
	}
	for key := range header.PAXRecords {
		if strings.HasPrefix(key, "GNU.sparse.") {
			return fmt.Errorf("output: %q has holes: a few bytes of the stream could fill the disk", name)
		}
	}
	for part := range strings.SplitSeq(name, "/") {
		if why := unfitName(part); why != "" {
			return fmt.Errorf("output: %q: %s", name, why)
		}
	}
	if parent := path.Dir(name); parent != "." {
		if err := makeDirectories(dir, parent); err != nil {
			return fmt.Errorf("output: %w", err)
		}
	}
	f, err := dir.OpenFile(name, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o644)
	if errors.Is(err, fs.ErrExist) && force {
		if err := dir.Remove(name); err != nil {
			return fmt.Errorf("output: %w", err)
		}
		f, err = dir.OpenFile(name, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o644)
	}
	if errors.Is(err, fs.ErrExist) {
		return fmt.Errorf("output: %q exists already; --force replaces it", name)
	}
	if err != nil {
		return fmt.Errorf("output: %w", err)
	}
	if _, err := io.Copy(f, archive); err != nil {
		return errors.Join(fmt.Errorf("output: %q: %w", name, err), f.Close())
	}
	return f.Close()
}

// makeDirectories is MkdirAll that refuses to go through a symbolic link: os.Root follows one that stays inside.
func makeDirectories(dir *os.Root, name string) error {
	for i := range len(name) + 1 {
		if i < len(name) && name[i] != '/' {
			continue
		}
		err := dir.Mkdir(name[:i], 0o755)
		if err != nil && !errors.Is(err, fs.ErrExist) {
			return err
		}
		if err == nil {
			continue
		}
		if info, err := dir.Lstat(name[:i]); err != nil || !info.IsDir() {
			return errors.Join(fmt.Errorf("%q exists and is not a directory", name[:i]), err)
		}
	}
	return nil
}
