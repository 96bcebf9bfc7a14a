package rootfs

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"time"

	"golang.org/x/sys/unix"
)

// setting is one key=value of a filesystem context, or a flag where the value is empty.
type setting struct{ key, value string }

// newFilesystem creates a superblock and returns a detached mount of it, see fsopen(2).
func newFilesystem(kind string, attributes int, settings ...setting) (int, error) {
	context, err := unix.Fsopen(kind, unix.FSOPEN_CLOEXEC)
	if err != nil {
		return -1, fmt.Errorf("rootfs: fsopen %s: %w", kind, err)
	}
	defer unix.Close(context)
	for _, s := range settings {
		set := func() error { return unix.FsconfigSetString(context, s.key, s.value) }
		if s.value == "" {
			set = func() error { return unix.FsconfigSetFlag(context, s.key) }
		}
		if err := set(); err != nil {
			return -1, fmt.Errorf("rootfs: %s option %s=%s: %w", kind, s.key, s.value, contextError(context, err))
		}
	}
	if err := unix.FsconfigCreate(context); err != nil {
		return -1, fmt.Errorf("rootfs: create %s: %w", kind, contextError(context, err))
	}
	fd, err := unix.Fsmount(context, unix.FSMOUNT_CLOEXEC, attributes)
	if err != nil {
		return -1, fmt.Errorf("rootfs: fsmount %s: %w", kind, err)
	}
	return fd, nil
}

// contextError adds what the filesystem itself had to say; the kernel queues such messages on the context.
func contextError(context int, err error) error {
	buffer := make([]byte, 512)
	n, readErr := unix.Read(context, buffer)
	if readErr != nil || n <= 2 {
		return err
	}
	return fmt.Errorf("%w: %s", err, strings.TrimSpace(string(buffer[2:n])))
}

// attach puts a detached mount on a directory or file below dir (AT_FDCWD for an absolute path).
func attach(mount, dir int, path string) error {
	if err := unix.MoveMount(mount, "", dir, path, unix.MOVE_MOUNT_F_EMPTY_PATH); err != nil {
		return fmt.Errorf("rootfs: mount on %s: %w", path, err)
	}
	return nil
}

// cloneTree returns a detached copy of the mount at an open path, submounts included: below a less privileged mount namespace a
// mount may not be separated from what is mounted on it (mount_namespaces(7), locked mounts).
func cloneTree(fd int) (int, error) {
	return unix.OpenTree(fd, "", unix.OPEN_TREE_CLONE|unix.OPEN_TREE_CLOEXEC|unix.AT_EMPTY_PATH|unix.AT_RECURSIVE)
}

// restrict sets mount attributes on a detached tree, all submounts included.
func restrict(mount int, attributes uint64) error {
	return setAttributes(mount, unix.AT_RECURSIVE, attributes)
}

// setAttributes waits a little where a mount that is to be read-only is still written to: by us that can only be a child that another
// goroutine starts, which has our descriptors until it executes its program.
func setAttributes(mount int, flags uint, attributes uint64) (err error) {
	attr := unix.MountAttr{Attr_set: attributes}
	for range 500 {
		if err = unix.MountSetattr(mount, "", unix.AT_EMPTY_PATH|flags, &attr); err != unix.EBUSY {
			break
		}
		time.Sleep(time.Millisecond)
	}
	return err
}

const readOnly = unix.MOUNT_ATTR_RDONLY | unix.MOUNT_ATTR_NOSUID | unix.MOUNT_ATTR_NODEV

// openSource opens a host path without following a symbolic link in any component and checks that it is the inode that was
// meant. What was swapped since is refused here, and what is swapped later does not matter: the mount is made of the descriptor.
func openSource(s Source) (int, error) {
	fd, err := unix.Openat2(unix.AT_FDCWD, s.Path, &unix.OpenHow{
		Flags:   unix.O_PATH | unix.O_CLOEXEC, // with O_NOFOLLOW a link in the last place would be opened itself
		Resolve: unix.RESOLVE_NO_SYMLINKS | unix.RESOLVE_NO_MAGICLINKS,
	})
	if err != nil {
		return -1, fmt.Errorf("rootfs: open %s: %w", s.Path, err)
	}
	var st unix.Stat_t
	if err := unix.Fstat(fd, &st); err != nil {
		unix.Close(fd)
		return -1, fmt.Errorf("rootfs: stat %s: %w", s.Path, err)
	}
	if st.Dev != s.Dev || st.Ino != s.Ino {
		unix.Close(fd)
		return -1, fmt.Errorf("rootfs: %s is no longer what was checked (inode %d:%d, now %d:%d)", s.Path, s.Dev, s.Ino, st.Dev, st.Ino)
	}
	return fd, nil
}

// SourceOf describes the file behind an open descriptor.
func SourceOf(fd int) (Source, error) {
	path, err := os.Readlink(fmt.Sprintf("/proc/self/fd/%d", fd))
	if err != nil {
		return Source{}, fmt.Errorf("rootfs: descriptor %d: %w", fd, err)
	}
	var st unix.Stat_t
	if err := unix.Fstat(fd, &st); err != nil {
		return Source{}, fmt.Errorf("rootfs: stat %s: %w", path, err)
	}
	if !filepath.IsAbs(path) || st.Nlink == 0 {
		return Source{}, fmt.Errorf("rootfs: %s has no path on this host (deleted, or not a file)", path)
	}
	return Source{Path: path, Dev: st.Dev, Ino: st.Ino}, nil
}

// cloneBind returns a detached mount of a bind's source with its attributes and id mapping set.
func cloneBind(b Bind, userns int) (int, error) {
	source, err := openSource(b.Source)
	if err != nil {
		return -1, err
	}
	defer unix.Close(source)
	mount, err := cloneTree(source)
	if err != nil {
		return -1, fmt.Errorf("rootfs: clone %s: %w", b.Source.Path, err)
	}
	attributes := uint64(unix.MOUNT_ATTR_NOSUID | unix.MOUNT_ATTR_NODEV)
	if !b.Writable {
		attributes |= unix.MOUNT_ATTR_RDONLY
	}
	if err := restrict(mount, attributes); err != nil {
		unix.Close(mount)
		return -1, fmt.Errorf("rootfs: restrict %s: %w", b.Source.Path, err)
	}
	if !b.IDMap {
		return mount, nil
	}
	attr := unix.MountAttr{Attr_set: unix.MOUNT_ATTR_IDMAP, Userns_fd: uint64(userns)}
	if err := unix.MountSetattr(mount, "", unix.AT_EMPTY_PATH|unix.AT_RECURSIVE, &attr); err != nil {
		unix.Close(mount)
		return -1, idmapError(b.Source.Path, source, err)
	}
	return mount, nil
}

// idmapError names the filesystem that cannot map ids; EINVAL is its answer, see mount_setattr(2).
func idmapError(path string, fd int, err error) error {
	if !errors.Is(err, unix.EINVAL) {
		return fmt.Errorf("rootfs: idmap %s: %w", path, err)
	}
	var fs unix.Statfs_t
	kind := "its filesystem"
	if unix.Fstatfs(fd, &fs) == nil {
		kind = fmt.Sprintf("its filesystem (type %#x)", fs.Type)
	}
	return fmt.Errorf("rootfs: %s cannot be given to the sandbox's user: %s does not support idmapped mounts on this kernel; copy it to ext4, xfs or btrfs, or run as an ordinary user: %w", path, kind, err)
}
