package doctor

import (
	"fmt"

	"golang.org/x/sys/unix"
)

var filesystemNames = map[int64]string{
	unix.EXT4_SUPER_MAGIC: "ext4", unix.XFS_SUPER_MAGIC: "xfs", unix.BTRFS_SUPER_MAGIC: "btrfs", unix.TMPFS_MAGIC: "tmpfs",
	unix.OVERLAYFS_SUPER_MAGIC: "overlay", unix.NFS_SUPER_MAGIC: "nfs", unix.FUSE_SUPER_MAGIC: "fuse", unix.F2FS_SUPER_MAGIC: "f2fs",
	unix.V9FS_MAGIC: "9p", unix.SQUASHFS_MAGIC: "squashfs", unix.EROFS_SUPER_MAGIC_V1: "erofs", unix.CIFS_SUPER_MAGIC: "cifs",
	0x2fc12fc1: "zfs", 0xca451a4e: "bcachefs", unix.CEPH_SUPER_MAGIC: "ceph",
}

// filesystem names the type of the file system of path, and tells whether nothing may be executed there.
func filesystem(path string) (name string, noExec bool) {
	var fs unix.Statfs_t
	if unix.Statfs(path, &fs) != nil {
		return "unknown file system", false
	}
	noExec = fs.Flags&unix.ST_NOEXEC != 0
	if name, known := filesystemNames[int64(fs.Type)]; known {
		return name, noExec
	}
	return fmt.Sprintf("file system type %#x", fs.Type), noExec
}
