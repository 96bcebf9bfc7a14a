package seccomp

import "syscall"

// fileGroups: files, directories and what watches them. Which files exist is the mount namespace's business; here it only
// counts which kernel code a skill can reach.
var fileGroups = []group{
	{
		names: `close close_range read write readv writev pread64 pwrite64 preadv pwritev preadv2 pwritev2
			lseek fadvise64 readahead truncate ftruncate fallocate sendfile copy_file_range`,
		action: Allow,
		reason: "every program reads and writes files; the mount namespace says which ones there are",
	},
	{
		names: `stat fstat lstat newfstatat statx access faccessat faccessat2 statfs fstatfs cachestat
			getcwd chdir fchdir getdents getdents64 readlink readlinkat umask`,
		action: Allow,
		reason: "looking at files and moving among them changes nothing",
	},
	{
		names: `chown fchown lchown fchownat utime utimes futimesat utimensat
			getxattr lgetxattr fgetxattr getxattrat setxattr lsetxattr fsetxattr setxattrat
			listxattr llistxattr flistxattr listxattrat removexattr lremovexattr fremovexattr removexattrat`,
		action: Allow,
		reason: "owners, times and attributes of the skill's own files, as tar, git and pip set them; ids outside the box's mapping are refused by the kernel",
	},
	{
		names:  "link linkat symlink symlinkat unlink unlinkat rename renameat renameat2 mkdir mkdirat rmdir",
		action: Allow,
		reason: "arranging names in directories the skill may write to; output collection follows no link",
	},
	{
		names:  "dup dup2 dup3 fcntl flock pipe pipe2 splice tee",
		action: Allow,
		reason: "descriptors and pipes; shells and coreutils are made of them (what splice can do to the page cache through AF_ALG needs a socket that no row opens)",
	},
	{
		names:  "sync syncfs fsync fdatasync sync_file_range msync",
		action: Allow,
		reason: "databases and editors flush what they wrote; sync is known to never fail, so programs do not cope with a refusal",
	},
	{
		names: `poll ppoll select pselect6 epoll_create epoll_create1 epoll_ctl epoll_wait epoll_pwait epoll_pwait2
			eventfd eventfd2 signalfd signalfd4 timerfd_create timerfd_settime timerfd_gettime`,
		action: Allow,
		reason: "waiting for descriptors: the event loops of python, node and Go",
	},
	{
		names:  "epoll_ctl_old epoll_wait_old",
		action: Allow,
		reason: "numbers without code behind them: the kernel itself answers ENOSYS",
	},
	{
		names:  "inotify_init inotify_init1 inotify_add_watch inotify_rm_watch",
		action: Allow,
		reason: "node's fs.watch and build tools; the number of instances is limited by user.max_inotify_instances in the box's user namespace, not by a filter",
	},
	{
		names:  "landlock_create_ruleset landlock_add_rule landlock_restrict_self",
		action: Allow,
		reason: "a program may narrow its own rights further; Landlock never widens any",
	},
	{
		names:  "io_setup io_destroy io_submit io_cancel io_getevents io_pgetevents",
		errno:  syscall.ENOSYS,
		reason: "the old asynchronous I/O draws on one limit for the whole host (fs.aio-max-nr): a skill could leave the host's own databases with EAGAIN",
	},
	{
		names:  "io_uring_setup io_uring_enter io_uring_register",
		errno:  syscall.ENOSYS,
		final:  true,
		reason: "operations on a ring are invisible to this filter, and io_uring has been the richest source of kernel exploits; enter and register are refused too, for a ring that was passed in",
	},
	{
		names:  "vmsplice",
		errno:  syscall.EPERM,
		reason: "lends pages to a pipe by reference (CVE-2020-29374, Dirty Pipe's tool); next to no program uses it",
	},
	{
		names:  "openat2",
		errno:  syscall.ENOSYS,
		quiet:  true,
		final:  true,
		reason: "takes the new file's mode from memory, where no filter sees set-id bits; what uses it falls back to openat, as on kernels before 5.6",
	},
	{
		names:  "name_to_handle_at",
		errno:  syscall.EPERM,
		reason: "file handles name inodes of a whole filesystem, below every bind mount",
	},
	{
		names:  "open_by_handle_at",
		errno:  syscall.EPERM,
		final:  true,
		reason: "opens any inode of a filesystem by number, whatever the mount namespace hides (the shocker escape)",
	},
	{
		names:  "fanotify_init",
		errno:  syscall.EPERM,
		reason: "watches whole filesystems; inotify serves programs",
	},
	{
		names:  "fanotify_mark",
		errno:  syscall.ENOSYS,
		reason: "useless without fanotify_init, which is refused",
	},
	{
		names:  "file_getattr file_setattr",
		errno:  syscall.ENOSYS,
		quiet:  true,
		reason: "newer than any program that needs them (6.17): inode flags by path, with an ioctl to fall back on",
	},
	{
		names:  "quotactl quotactl_fd",
		errno:  syscall.EPERM,
		final:  true,
		reason: "administers the quotas of host filesystems; needs a capability that no box has",
	},
	{
		names:  "lookup_dcookie",
		errno:  syscall.EPERM,
		final:  true,
		reason: "tells host paths to the kernel's profiler; removed in 6.7",
	},
}
