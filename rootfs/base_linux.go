package rootfs

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"golang.org/x/sys/unix"
)

// topLevel are the directories of a base that appear in the box, where the base has them.
var topLevel = []string{"usr", "bin", "sbin", "lib", "lib32", "lib64", "libx32"}

// reserved are made by us in every tree; a base's own are not shown.
var reserved = []string{"proc", "sys", "dev", "run", "tmp", "home", "root", "input", "output", "skill", "boot", "mnt", "media", "var"}

// mountBase shows the base read-only: the host's /usr with a generated /etc, or a directory that is a root file system.
func (t *Tree) mountBase(s *Spec) error {
	if s.Image != nil {
		return nil // it is the root
	}
	if dir, ok := strings.CutPrefix(s.Base, "dir:"); ok {
		return t.mountDirBase(s, dir)
	}
	if s.Base != "host" {
		return fmt.Errorf("rootfs: base %q is not available", s.Base)
	}
	for _, name := range topLevel {
		if err := t.show(unix.AT_FDCWD, "/"+name, name); err != nil {
			return err
		}
	}
	if err := t.writeEtc(s); err != nil {
		return err
	}
	for _, pattern := range etcShared {
		paths, err := filepath.Glob("/etc/" + pattern)
		if err != nil {
			return fmt.Errorf("rootfs: %s: %w", pattern, err)
		}
		for _, p := range paths {
			if err := t.show(unix.AT_FDCWD, p, strings.TrimPrefix(p, "/")); err != nil {
				return err
			}
		}
	}
	return nil
}

// show makes a path of the base, below dir, appear: a symbolic link as the same link, anything else mounted read-only or copied.
func (t *Tree) show(dir int, source, target string) error {
	fd, err := unix.Openat2(dir, source, &unix.OpenHow{Flags: unix.O_PATH | unix.O_NOFOLLOW | unix.O_CLOEXEC, Resolve: unix.RESOLVE_NO_MAGICLINKS})
	if err == unix.ENOENT {
		return nil
	}
	if err != nil {
		return fmt.Errorf("rootfs: open %s: %w", source, err)
	}
	defer unix.Close(fd)
	var st unix.Stat_t
	if err := unix.Fstat(fd, &st); err != nil {
		return fmt.Errorf("rootfs: stat %s: %w", source, err)
	}
	switch st.Mode & unix.S_IFMT {
	case unix.S_IFLNK:
		link := make([]byte, unix.PathMax)
		n, err := unix.Readlinkat(fd, "", link)
		if err != nil {
			return fmt.Errorf("rootfs: read link %s: %w", source, err)
		}
		if parent := filepath.Dir(target); parent != "." {
			if err := t.directory(parent, false); err != nil {
				return err
			}
		}
		if err := unix.Symlinkat(string(link[:n]), t.root, target); err != nil {
			return fmt.Errorf("rootfs: link %s: %w", target, err)
		}
		return nil
	case unix.S_IFDIR, unix.S_IFREG:
		if st.Mode&unix.S_IFMT == unix.S_IFREG && st.Size <= maxCopy {
			return t.copyFile(fd, target)
		}
		return t.mountReadOnly(fd, source, target, st.Mode&unix.S_IFMT == unix.S_IFREG)
	}
	return fmt.Errorf("rootfs: %s is neither a file nor a directory", source)
}

// maxCopy is the size up to which copying a file is cheaper than mounting it, and than cloning that mount with every namespace.
const maxCopy = 128 << 10

func (t *Tree) copyFile(source int, target string) error {
	// Through the descriptor: the path may lead elsewhere by now.
	content, err := os.ReadFile(fmt.Sprintf("/proc/self/fd/%d", source))
	if err != nil {
		return fmt.Errorf("rootfs: %w", err)
	}
	dir := t.root
	if parent := filepath.Dir(target); parent != "." {
		if err := t.directory(parent, false); err != nil {
			return err
		}
		if dir, err = unix.Openat(t.root, parent, unix.O_PATH|unix.O_DIRECTORY|unix.O_CLOEXEC, 0); err != nil {
			return fmt.Errorf("rootfs: /%s: %w", parent, err)
		}
		defer unix.Close(dir)
	}
	if err := writeFile(dir, filepath.Base(target), bytes.NewReader(content), t.owner.RootUID, t.owner.RootGID, 0o444); err != nil {
		return fmt.Errorf("rootfs: /%s: %w", target, err)
	}
	return nil
}

func (t *Tree) mountReadOnly(fd int, source, target string, file bool) error {
	mount, err := cloneTree(fd)
	if err != nil {
		return fmt.Errorf("rootfs: clone %s: %w", source, err)
	}
	if err := restrict(mount, readOnly); err != nil {
		unix.Close(mount)
		return fmt.Errorf("rootfs: restrict %s: %w", source, err)
	}
	return t.place(mount, target, file)
}

// mountDirBase shows each top-level entry of a directory, which is opened once and without following a link: it could be turned
// while we work. What the box needs for itself must not be a link there: a path that we are about to mount on would lead elsewhere.
func (t *Tree) mountDirBase(s *Spec, dir string) error {
	fd, err := unix.Openat2(unix.AT_FDCWD, dir, &unix.OpenHow{
		Flags: unix.O_RDONLY | unix.O_DIRECTORY | unix.O_CLOEXEC, Resolve: unix.RESOLVE_NO_SYMLINKS | unix.RESOLVE_NO_MAGICLINKS,
	})
	if err == unix.ELOOP {
		return fmt.Errorf("rootfs: base %s: prohibited symbolic link in the path: %w", dir, err)
	}
	if err != nil {
		return fmt.Errorf("rootfs: base %s: %w", dir, err)
	}
	base := os.NewFile(uintptr(fd), dir)
	defer base.Close()
	entries, err := base.ReadDir(-1)
	if err != nil {
		return fmt.Errorf("rootfs: base: %w", err)
	}
	hasEtc := false
	for _, e := range entries {
		if slices.Contains(reserved, e.Name()) {
			if !e.IsDir() && e.Name() != "var" {
				return fmt.Errorf("rootfs: base %s: /%s is not a directory (prohibited symbolic link or file)", dir, e.Name())
			}
			continue
		}
		if e.Type()&os.ModeSymlink == 0 && !e.IsDir() {
			continue
		}
		hasEtc = hasEtc || e.Name() == "etc"
		if err := t.show(fd, e.Name(), e.Name()); err != nil {
			return err
		}
	}
	if !hasEtc {
		return t.writeEtc(s)
	}
	return nil
}

// writeEtc generates /etc, owned by box uid 0.
func (t *Tree) writeEtc(s *Spec) error {
	etc, err := unix.Openat(t.root, "etc", unix.O_RDONLY|unix.O_DIRECTORY|unix.O_CLOEXEC, 0)
	if err != nil {
		return fmt.Errorf("rootfs: /etc: %w", err)
	}
	defer unix.Close(etc)
	for name, text := range etcFiles(s.Hostname, s.BoxUID, s.BoxGID) {
		if err := writeFile(etc, name, strings.NewReader(text), s.Owner.RootUID, s.Owner.RootGID, 0o444); err != nil {
			return fmt.Errorf("rootfs: /etc/%s: %w", name, err)
		}
	}
	return nil
}

// mountDev mounts a /dev with verified nodes of the host, a devpts instance of its own and nothing else.
func (t *Tree) mountDev(s *Spec) error {
	mount, err := newFilesystem("tmpfs", unix.MOUNT_ATTR_NOSUID|unix.MOUNT_ATTR_NODEV|unix.MOUNT_ATTR_NOEXEC, setting{"source", "tmpfs"},
		setting{"mode", "0755"}, setting{"size", "65536"}, setting{"nr_inodes", "64"}, owner("uid", s.Owner.RootUID), owner("gid", s.Owner.RootGID))
	if err != nil {
		return err
	}
	if err := t.place(mount, "/dev", false); err != nil {
		return err
	}
	dev, err := t.open("/dev")
	if err != nil {
		return err
	}
	defer dev.Close()
	fd := int(dev.Fd())
	for _, d := range devices {
		if err := mountDevice(fd, d.name, d.major, d.minor); err != nil {
			return err
		}
	}
	for name, target := range map[string]string{"fd": "/proc/self/fd", "stdin": "fd/0", "stdout": "fd/1", "stderr": "fd/2", "ptmx": "pts/ptmx"} {
		if err := unix.Symlinkat(target, fd, name); err != nil {
			return fmt.Errorf("rootfs: /dev/%s: %w", name, err)
		}
	}
	// newinstance is implied since Linux 4.7; max keeps one box from using up the host's ptys (kernel.pty.max is global).
	pts, err := newFilesystem("devpts", unix.MOUNT_ATTR_NOSUID|unix.MOUNT_ATTR_NOEXEC, setting{"mode", "0620"}, setting{"ptmxmode", "0666"}, setting{"max", "16"})
	if err != nil {
		return err
	}
	shm, err := scratch(s, "/dev/shm", s.TmpSize, "1777")
	if err != nil {
		unix.Close(pts)
		return err
	}
	for _, m := range []struct {
		name  string
		mount int
	}{{"pts", pts}, {"shm", shm}} {
		err = errors.Join(err, unix.Mkdirat(fd, m.name, 0o755), attach(m.mount, fd, m.name), unix.Close(m.mount))
	}
	return err
}

// mountDevice shows one device node, after checking on the opened node that it is the device it is named for.
func mountDevice(dev int, name string, major, minor uint32) error {
	source, err := unix.Open("/dev/"+name, unix.O_PATH|unix.O_NOFOLLOW|unix.O_CLOEXEC, 0)
	if err != nil {
		return fmt.Errorf("rootfs: open /dev/%s: %w", name, err)
	}
	defer unix.Close(source)
	var st unix.Stat_t
	if err := unix.Fstat(source, &st); err != nil {
		return fmt.Errorf("rootfs: stat /dev/%s: %w", name, err)
	}
	if st.Mode&unix.S_IFMT != unix.S_IFCHR || st.Rdev != unix.Mkdev(major, minor) {
		return fmt.Errorf("rootfs: the host's /dev/%s is not character device %d:%d", name, major, minor)
	}
	mount, err := cloneTree(source)
	if err != nil {
		return fmt.Errorf("rootfs: clone /dev/%s: %w", name, err)
	}
	defer unix.Close(mount)
	if err := restrict(mount, unix.MOUNT_ATTR_NOSUID|unix.MOUNT_ATTR_NOEXEC|unix.MOUNT_ATTR_RDONLY); err != nil {
		return fmt.Errorf("rootfs: restrict /dev/%s: %w", name, err)
	}
	point, err := unix.Openat(dev, name, unix.O_CREAT|unix.O_RDONLY|unix.O_NOFOLLOW|unix.O_CLOEXEC, 0o666)
	if err != nil {
		return fmt.Errorf("rootfs: /dev/%s: %w", name, err)
	}
	unix.Close(point)
	return attach(mount, dev, name)
}
