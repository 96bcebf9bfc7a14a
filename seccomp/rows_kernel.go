package seccomp

import "syscall"

// kernelGroups: what administers the machine, changes what the box is made of, or is no longer there.
var kernelGroups = []group{
	{
		names:  "mount umount2 pivot_root chroot",
		errno:  syscall.EPERM,
		final:  true,
		reason: "the box's tree is the box's wall: nothing may be put over it or taken away",
	},
	{
		names:  "fsopen fsconfig fsmount fspick move_mount open_tree open_tree_attr mount_setattr",
		errno:  syscall.ENOSYS,
		final:  true,
		reason: "the newer mount calls, refused as if they were missing, so that tools try mount and see EPERM",
	},
	{
		names:  "statmount listmount",
		errno:  syscall.ENOSYS,
		quiet:  true,
		reason: "newer way to read the mount table (6.8), which programs probe before /proc/self/mountinfo",
	},
	{
		names:  "unshare setns",
		errno:  syscall.EPERM,
		final:  true,
		reason: "a new user namespace holds every capability over new namespaces of its own, which is most of the kernel's attack surface",
	},
	{
		names:  "listns",
		errno:  syscall.ENOSYS,
		quiet:  true,
		reason: "lists namespaces (6.19); newer than any program that needs it",
	},
	{
		names:  "bpf",
		errno:  syscall.EPERM,
		final:  true,
		reason: "loads code into the kernel; its verifier has been wrong often enough",
	},
	{
		names:  "perf_event_open",
		errno:  syscall.EPERM,
		final:  true,
		reason: "counters and samples see beyond the box, and its code is a steady source of exploits",
	},
	{
		names:  "init_module finit_module delete_module kexec_load kexec_file_load",
		errno:  syscall.EPERM,
		final:  true,
		reason: "replaces the kernel or parts of it",
	},
	{
		names:  "add_key request_key keyctl",
		errno:  syscall.ENOSYS,
		final:  true,
		reason: "keyrings are not namespaced: a box could read the keys of its user outside and leave some behind",
	},
	{
		names:  "acct swapon swapoff reboot sethostname setdomainname settimeofday clock_settime iopl ioperm vhangup",
		errno:  syscall.EPERM,
		final:  true,
		reason: "administers the whole machine; needs a capability that no box has",
	},
	{
		names:  "adjtimex clock_adjtime",
		errno:  syscall.EPERM,
		reason: "steers the host's clock; reading its state is harmless and may be opened",
	},
	{
		names:  "syslog",
		errno:  syscall.EPERM,
		final:  true,
		reason: "the kernel's log tells addresses and the host's doings",
	},
	{
		names:  "lsm_get_self_attr lsm_list_modules",
		errno:  syscall.ENOSYS,
		quiet:  true,
		reason: "newer way to ask for security labels (6.8), with /proc/self/attr to fall back on",
	},
	{
		names:  "lsm_set_self_attr",
		errno:  syscall.ENOSYS,
		final:  true,
		reason: "changes the security label that the host gave to the box",
	},
	{
		names:  "_sysctl sysfs ustat uselib nfsservctl create_module query_module get_kernel_syms",
		errno:  syscall.ENOSYS,
		final:  true,
		reason: "obsolete: gone from current kernels, and where they are still there nothing uses them",
	},
	{
		names:  "afs_syscall getpmsg putpmsg security tuxcall vserver",
		errno:  syscall.ENOSYS,
		quiet:  true,
		final:  true,
		reason: "numbers that never had code behind them: the kernel's own answer",
	},
}
