package bundle

import (
	"golang.org/x/sys/unix"
)

// resolve is how anything in a bundle is opened: one name below a descriptor, no link followed, no mount crossed.
const resolve = unix.RESOLVE_BENEATH | unix.RESOLVE_NO_SYMLINKS | unix.RESOLVE_NO_XDEV | unix.RESOLVE_NO_MAGICLINKS

// The system calls, again when a signal interrupts them (the runtime's own signals do, on FUSE).

func openat(dir int, name string, flags uint64) (int, error) {
	how := unix.OpenHow{Flags: flags | unix.O_NOFOLLOW | unix.O_NONBLOCK | unix.O_NOCTTY | unix.O_CLOEXEC, Resolve: resolve}
	for {
		fd, err := unix.Openat2(dir, name, &how)
		if err != unix.EINTR {
			return fd, err
		}
	}
}

// openFile opens one name of a directory for reading, or returns -1. A single name that is not followed cannot lead out of the
// directory, so the cheaper openat serves; whether it is a mount point is seen in the file itself (STATX_ATTR_MOUNT_ROOT). O_NOATIME
// leaves the access time of the bundle's files alone, whose first update costs more than the read; only the owner may ask for it.
func openFile(dir int, name string) int {
	flags := unix.O_RDONLY | unix.O_NOFOLLOW | unix.O_NONBLOCK | unix.O_NOCTTY | unix.O_CLOEXEC | unix.O_NOATIME
	for {
		fd, err := unix.Openat(dir, name, flags, 0)
		switch {
		case err == nil:
			return fd
		case err == unix.EPERM && flags&unix.O_NOATIME != 0:
			flags &^= unix.O_NOATIME
		case err != unix.EINTR:
			return -1
		}
	}
}

func statx(dir int, name string, st *unix.Statx_t) error {
	for {
		err := unix.Statx(dir, name, unix.AT_SYMLINK_NOFOLLOW|unix.AT_NO_AUTOMOUNT|unix.AT_EMPTY_PATH, unix.STATX_BASIC_STATS, st)
		if err != unix.EINTR {
			return err
		}
	}
}

func getdents(fd int, buf []byte) (int, error) {
	for {
		n, err := unix.Getdents(fd, buf)
		if err != unix.EINTR {
			return n, err
		}
	}
}

func read(fd int, buf []byte) (int, error) {
	for {
		n, err := unix.Read(fd, buf)
		if err != unix.EINTR {
			return n, err
		}
	}
}

func isRegular(mode uint32) bool { return mode&unix.S_IFMT == unix.S_IFREG }

func typeName[M uint16 | uint32](mode M) string {
	switch uint32(mode) & unix.S_IFMT {
	case unix.S_IFDIR:
		return "a directory"
	case unix.S_IFLNK:
		return "a symbolic link"
	case unix.S_IFIFO:
		return "a FIFO"
	case unix.S_IFSOCK:
		return "a socket"
	case unix.S_IFBLK:
		return "a block device"
	case unix.S_IFCHR:
		return "a character device"
	}
	return "a file of unknown type"
}
