package seccomp

import (
	"syscall"

	"golang.org/x/sys/unix"
)

// strictRows replace rows of the default profile. They take away what a skill that computes from its input to its output
// does without; python3, node and bash start and work under them.
func strictRows() []Row {
	rows := []Row{
		{Name: "socket", Action: Allow, When: []Cond{arg(0, unix.AF_UNIX)}, Reason: "local sockets, within the box's own mount and network namespaces"},
		{Name: "socket", Errno: syscall.EAFNOSUPPORT, Final: true, Reason: "strict has no network sockets: a skill that needs them wants the default profile and an egress rule"},

		// A descriptor that can be executed without ever having a path is what an audit trail is blind to.
		{Name: "memfd_create", Action: Allow, When: []Cond{bits(1, unix.MFD_NOEXEC_SEAL, unix.MFD_NOEXEC_SEAL)}, Reason: "shared memory that can never be executed (MFD_NOEXEC_SEAL, 6.3)"},
		{Name: "memfd_create", Errno: syscall.ENOSYS, Reason: "memory that can be executed without a file; programs fall back to a file in /tmp"},

		{Name: "personality", Action: Allow, When: []Cond{arg(0, personalityRead)}, Reason: "only asking"},
		{Name: "personality", Errno: syscall.EPERM, Reason: "a program that runs here has no need to pretend another machine"},
	}
	rows = append(rows, mknodRows("FIFOs and plain files", 0, unix.S_IFREG, unix.S_IFIFO)...)
	for _, g := range strictGroups {
		rows = append(rows, g.rows()...)
	}
	return rows
}

var strictGroups = []group{
	{
		names:  "shmget shmat shmdt shmctl semget semop semtimedop semctl msgget msgsnd msgrcv msgctl",
		errno:  syscall.ENOSYS,
		reason: "System V IPC outlives processes and is old code; python's multiprocessing uses futexes and /dev/shm",
	},
	{
		names:  "mq_open mq_unlink mq_timedsend mq_timedreceive mq_notify mq_getsetattr",
		errno:  syscall.ENOSYS,
		reason: "POSIX queues: a filesystem of their own, and hardly a program that uses it",
	},
	{
		names:  "inotify_init inotify_init1 inotify_add_watch inotify_rm_watch",
		errno:  syscall.ENOSYS,
		reason: "instances and watches are counted per user of the host; what runs once need not watch files",
	},
	{
		names:  "mlock mlock2 mlockall",
		errno:  syscall.EPERM,
		reason: "pages that cannot be swapped are the host's to give; programs carry on without",
	},
	{
		names:  "splice tee",
		errno:  syscall.ENOSYS,
		quiet:  true,
		reason: "moves page-cache pages by reference, the road of Dirty Pipe (CVE-2022-0847); programs fall back to read and write",
	},
	{
		names:  "sched_setscheduler sched_setattr sched_setparam ioprio_set",
		errno:  syscall.EPERM,
		reason: "scheduling is the host's business; without capabilities they can only do harm to oneself",
	},
	{
		names:  "pkey_alloc pkey_free pkey_mprotect",
		errno:  syscall.ENOSYS,
		quiet:  true,
		reason: "protection keys are absent on many processors, and node's JIT copes",
	},
	{
		names:  "remap_file_pages",
		errno:  syscall.ENOSYS,
		reason: "deprecated since 3.16 and emulated",
	},
	{
		names:  "process_mrelease pidfd_send_signal",
		errno:  syscall.ENOSYS,
		quiet:  true,
		reason: "kill serves as well",
	},
	{
		names:  "readahead syncfs sync_file_range",
		errno:  syscall.EPERM,
		reason: "steers the host's page cache and disks; fsync on the skill's own files remains",
	},
}

// debugRows replace rows of the default profile. They open what debuggers and profilers of the skill's own processes need;
// the filter is asked again after a tracer has changed a call (since 4.8), so tracing leads around nothing.
func debugRows() []Row {
	return group{
		names:  "ptrace process_vm_readv process_vm_writev pidfd_getfd kcmp",
		action: Allow,
		reason: "gdb, strace and py-spy on the skill's own processes; the box's init is not dumpable and stays out of reach",
	}.rows()
}
