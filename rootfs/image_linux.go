package rootfs

import (
	"errors"
	"fmt"
	"io"
	"os"
	"path"
	"path/filepath"
	"strings"

	"golang.org/x/sys/unix"
)

// mountImage makes the root out of two layers: below the image's tree, above it a skeleton with what the box needs for itself. Where both
// have a directory its contents are seen together; whatever else the image has in such a place, a link above all, is covered and never
// followed. One mount shows all, whatever the image's size.
func (t *Tree) mountImage(s *Spec) error {
	lower, err := t.holdImage(s.Image)
	if err != nil {
		return err
	}
	dirs := map[string]string{}
	for _, d := range []string{"", "lower", "own"} {
		dirs[d] = filepath.Join(t.dir, "image", d)
		if err := os.Mkdir(dirs[d], 0o755); err != nil {
			return fmt.Errorf("rootfs: %w", err)
		}
	}
	own, err := unix.Open(dirs["own"], unix.O_RDONLY|unix.O_DIRECTORY|unix.O_CLOEXEC, 0)
	if err != nil {
		return fmt.Errorf("rootfs: %w", err)
	}
	defer unix.Close(own)
	if err := t.skeleton(s, own, lower); err != nil {
		return err
	}
	below, err := cloneTree(lower)
	if err != nil {
		return fmt.Errorf("rootfs: clone image: %w", err)
	}
	err = attach(below, unix.AT_FDCWD, dirs["lower"])
	unix.Close(below)
	if err != nil {
		return err
	}
	root, err := newFilesystem("overlay", readOnly, setting{"source", "overlay"}, setting{"lowerdir", dirs["own"] + ":" + dirs["lower"]})
	if err != nil {
		return errors.Join(err, detach(dirs["lower"]))
	}
	t.root = root
	return errors.Join(attach(root, unix.AT_FDCWD, t.Path), detach(dirs["lower"]))
}

// holdImage opens an image's tree, and holds a lock for reading on the record beside it as long as the Tree is: who removes images needs one
// for writing. Whoever may read an image could keep everybody out by a flock(2); a lock for writing only the image's owner gets.
func (t *Tree) holdImage(i *Image) (int, error) {
	fd, err := openDirectory(i.Source)
	if err != nil {
		return -1, err
	}
	t.image = fd
	// From the tree, and not by its name: so it is this image's, wherever that is by now.
	if t.record, err = unix.Openat(fd, "../image.json", unix.O_RDONLY|unix.O_NOFOLLOW|unix.O_NONBLOCK|unix.O_CLOEXEC, 0); err != nil {
		return -1, fmt.Errorf("rootfs: image %s: %s/../image.json: %w", i.Digest, i.Source.Path, err)
	}
	err = unix.FcntlFlock(uintptr(t.record), unix.F_OFD_SETLK, &unix.Flock_t{Type: unix.F_RDLCK})
	if err == unix.EAGAIN || err == unix.EACCES {
		return -1, fmt.Errorf("rootfs: image %s is in use by another process of its owner, such as skillbox image rm; try again: %w", i.Digest, err)
	}
	if err != nil {
		return -1, fmt.Errorf("rootfs: lock image %s: %w", i.Digest, err)
	}
	// It may have been removed between the two.
	again, err := openDirectory(i.Source)
	if err != nil {
		return -1, err
	}
	return fd, unix.Close(again)
}

// openDirectory is openSource for what is looked into.
func openDirectory(s Source) (int, error) {
	found, err := openSource(s)
	if err != nil {
		return -1, err
	}
	defer unix.Close(found)
	fd, err := unix.Openat(found, ".", unix.O_RDONLY|unix.O_DIRECTORY|unix.O_CLOEXEC, 0)
	if err != nil {
		return -1, fmt.Errorf("rootfs: %s: %w", s.Path, err)
	}
	return fd, nil
}

// skeleton makes the upper layer: mount points, the box's own links, and what of /etc has to be the box's.
func (t *Tree) skeleton(s *Spec, own, lower int) error {
	dirs := []string{"proc", "dev", "run", "tmp", "etc", "var", "skill", HomeDir, OutputDir, s.Bundle.Path}
	if s.BundleAt != "" && !strings.HasPrefix(s.BundleAt, HomeDir+"/") { // the home is the skill's, and made later
		dirs = append(dirs, s.BundleAt)
	}
	for _, d := range dirs {
		if _, err := t.point(own, d, false); err != nil {
			return err
		}
	}
	for link, target := range rootLinks {
		if err := unix.Symlinkat(target, own, link); err != nil {
			return fmt.Errorf("rootfs: /%s: %w", link, err)
		}
	}
	for _, b := range s.Binds {
		source, err := openSource(b.Source)
		if err != nil {
			return err
		}
		var st unix.Stat_t
		err = unix.Fstat(source, &st)
		unix.Close(source)
		if err != nil {
			return fmt.Errorf("rootfs: stat %s: %w", b.Source.Path, err)
		}
		if _, err := t.point(own, b.Path, st.Mode&unix.S_IFMT != unix.S_IFDIR); err != nil {
			return err
		}
	}
	if s.GPU != nil {
		for _, l := range s.GPU.Libraries {
			if _, err := t.point(own, LibraryDir+"/"+l.Name, true); err != nil {
				return err
			}
		}
	}
	return t.imageEtc(s, own, lower)
}

// point makes a mount point below the skeleton, which is ours alone.
func (t *Tree) point(own int, p string, file bool) (made bool, err error) {
	at := "."
	parts := strings.Split(strings.Trim(p, "/"), "/")
	for i, name := range parts {
		at = path.Join(at, name)
		if file && i == len(parts)-1 {
			var fd int
			if fd, err = unix.Openat(own, at, unix.O_CREAT|unix.O_RDONLY|unix.O_NOFOLLOW|unix.O_CLOEXEC, 0o444); err == nil {
				err = unix.Close(fd)
			}
		} else if err = unix.Mkdirat(own, at, 0o755); err == unix.EEXIST {
			continue
		}
		if err == nil {
			err = unix.Fchownat(own, at, t.owner.RootUID, t.owner.RootGID, unix.AT_SYMLINK_NOFOLLOW)
		}
		if err != nil {
			return false, fmt.Errorf("rootfs: mount point %s: %w", p, err)
		}
		made = true
	}
	return made, nil
}

// alwaysOurs are the files of /etc that say where the box is; others are the image's where it has them.
var alwaysOurs = map[string]bool{"hosts": true, "hostname": true, "resolv.conf": true}

// imageEtc writes what the box needs of /etc above the image's. Its users are the image's and the skill.
func (t *Tree) imageEtc(s *Spec, own, lower int) error {
	etc, err := unix.Openat(own, "etc", unix.O_RDONLY|unix.O_DIRECTORY|unix.O_CLOEXEC, 0)
	if err != nil {
		return fmt.Errorf("rootfs: /etc: %w", err)
	}
	defer unix.Close(etc)
	for name, text := range etcFiles(s.Hostname, s.BoxUID, s.BoxGID) {
		if !alwaysOurs[name] {
			theirs, there, err := readImageFile(lower, "etc/"+name)
			if err != nil {
				return err
			}
			id := s.BoxUID
			switch {
			case name == "group":
				id = s.BoxGID
				fallthrough
			case name == "passwd":
				text = mergeAccounts(text, theirs, id)
			case there:
				continue
			}
		}
		if err := writeFile(etc, name, strings.NewReader(text), s.Owner.RootUID, s.Owner.RootGID, 0o444); err != nil {
			return fmt.Errorf("rootfs: /etc/%s: %w", name, err)
		}
	}
	return nil
}

// maxAccounts is the largest /etc/passwd of an image that is looked into.
const maxAccounts = 1 << 20

// readImageFile reads a file of the image's, through no link; there is false where it has none. What is no file that fits is there, and empty.
func readImageFile(lower int, name string) (text string, there bool, err error) {
	fd, err := unix.Openat2(lower, name, &unix.OpenHow{
		Flags: unix.O_RDONLY | unix.O_CLOEXEC | unix.O_NONBLOCK, Resolve: unix.RESOLVE_BENEATH | unix.RESOLVE_NO_SYMLINKS | unix.RESOLVE_NO_XDEV,
	})
	switch err {
	case nil:
	case unix.ENOENT, unix.ENOTDIR:
		return "", false, nil
	case unix.ELOOP:
		return "", true, nil
	default:
		return "", false, fmt.Errorf("rootfs: the image's /%s: %w", name, err)
	}
	f := os.NewFile(uintptr(fd), name)
	defer f.Close()
	info, err := f.Stat()
	if err != nil {
		return "", false, fmt.Errorf("rootfs: the image's /%s: %w", name, err)
	}
	if !info.Mode().IsRegular() || info.Size() > maxAccounts {
		return "", true, nil
	}
	content, err := io.ReadAll(f)
	if err != nil {
		return "", false, fmt.Errorf("rootfs: the image's /%s: %w", name, err)
	}
	return string(content), true, nil
}
