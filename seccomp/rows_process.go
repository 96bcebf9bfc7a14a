package seccomp

import "syscall"

// processGroups: memory, threads, children, signals, time and identity. clone, prctl and personality are in rows_args.go.
var processGroups = []group{
	{
		names:  "brk mmap munmap mremap mprotect madvise mincore membarrier mseal remap_file_pages",
		action: Allow,
		reason: "a program's own memory; how much of it is the memory limit's business",
	},
	{
		names:  "mlock mlock2 mlockall munlock munlockall",
		action: Allow,
		reason: "keys and latency: locked memory is bounded by RLIMIT_MEMLOCK and charged to the box",
	},
	{
		names:  "pkey_alloc pkey_free pkey_mprotect",
		action: Allow,
		reason: "protection keys for a program's own pages; node's JIT uses them",
	},
	{
		names:  "memfd_create",
		action: Allow,
		reason: "anonymous memory with a descriptor: shared memory, libffi's closures. It can be executed, but gains no right thereby, and /tmp could serve as well",
	},
	{
		names:  "memfd_secret",
		errno:  syscall.ENOSYS,
		reason: "pages that the host's own kernel cannot see, freeze or swap; off on most kernels",
	},
	{
		names:  "userfaultfd",
		errno:  syscall.EPERM,
		final:  true,
		reason: "stops the kernel in the middle of a copy for as long as a skill likes, which turns narrow races into reliable exploits",
	},
	{
		names:  "map_shadow_stack",
		errno:  syscall.ENOSYS,
		quiet:  true,
		reason: "glibc probes it for user-space control-flow integrity and does without",
	},
	{
		names:  "get_mempolicy",
		errno:  syscall.ENOSYS,
		quiet:  true,
		reason: "libnuma's probe: with ENOSYS it reports a machine without NUMA",
	},
	{
		names:  "mbind set_mempolicy set_mempolicy_home_node move_pages migrate_pages",
		errno:  syscall.ENOSYS,
		reason: "placing memory on nodes of the host is the host's business, and move_pages has told where pages lie",
	},
	{
		names:  "process_madvise",
		errno:  syscall.EPERM,
		reason: "advice on the memory of another process",
	},
	{
		names:  "execve execveat fork vfork exit exit_group wait4 waitid",
		action: Allow,
		reason: "starting programs and waiting for them; how many is the pids limit's business",
	},
	{
		names:  "clone3",
		errno:  syscall.ENOSYS,
		quiet:  true,
		final:  true,
		reason: "its flags lie in memory, where a filter cannot look, so namespaces could hide there; with ENOSYS glibc uses clone (EPERM would kill python's threads, node and java)",
	},
	{
		names:  "futex futex_waitv set_robust_list get_robust_list rseq set_tid_address gettid getcpu arch_prctl set_thread_area get_thread_area",
		action: Allow,
		reason: "threads and their locks: glibc, musl and Go make these calls before main",
	},
	{
		names:  "futex_wait futex_wake futex_requeue rseq_slice_yield",
		errno:  syscall.ENOSYS,
		quiet:  true,
		reason: "newer forms that libraries probe and do without",
	},
	{
		names:  "modify_ldt",
		errno:  syscall.ENOSYS,
		reason: "16-bit segments, for Wine: old entry code that hardly any program exercises",
	},
	{
		names: `sched_yield sched_getaffinity sched_setaffinity sched_getattr sched_setattr sched_getparam sched_setparam sched_getscheduler
			sched_setscheduler sched_get_priority_max sched_get_priority_min sched_rr_get_interval getpriority setpriority ioprio_get ioprio_set`,
		action: Allow,
		reason: "scheduling within the box's share; real-time classes and negative nice values need a capability (java aborts without sched_getaffinity)",
	},
	{
		names: `rt_sigaction rt_sigprocmask rt_sigpending rt_sigsuspend rt_sigtimedwait rt_sigreturn rt_sigqueueinfo rt_tgsigqueueinfo
			sigaltstack kill tkill tgkill pause restart_syscall pidfd_open pidfd_send_signal process_mrelease`,
		action: Allow,
		reason: "signals, which reach only processes of the box's pid namespace",
	},
	{
		names: `time gettimeofday clock_gettime clock_getres nanosleep clock_nanosleep alarm getitimer setitimer
			timer_create timer_settime timer_gettime timer_getoverrun timer_delete times getrusage sysinfo uname`,
		action: Allow,
		reason: "reading clocks and usage, sleeping, timers",
	},
	{
		names: `getpid getppid getpgid getpgrp getsid setpgid setsid getuid geteuid getresuid getgid getegid getresgid getgroups
			setuid setreuid setresuid setfsuid setgid setregid setresgid setfsgid setgroups capget capset`,
		action: Allow,
		reason: "who am I, and dropping what one has: without capabilities a change can only go to an id one already is",
	},
	{
		names:  "getrlimit",
		action: Allow,
		reason: "limits can be read",
	},
	{
		names:  "getrandom",
		action: Allow,
		reason: "hash seeds and TLS keys: python3 does not start without it",
	},
	{
		names:  "seccomp",
		action: Allow,
		reason: "a program may add filters of its own; filters only ever add up, and the strictest verdict wins",
	},
	{
		names:  "uretprobe",
		action: Allow,
		reason: "made by the kernel's own trampoline when the host traces a function, never by a program; killing it kills traced programs (6.11)",
	},
	{
		names:  "uprobe",
		errno:  syscall.ENOSYS,
		quiet:  true,
		reason: "like uretprobe, but the kernel itself falls back to a breakpoint",
	},
	{
		names:  "ptrace process_vm_readv process_vm_writev pidfd_getfd kcmp",
		errno:  syscall.EPERM,
		reason: "reads, steers or compares other processes; the debug profile has them",
	},
}

// ipcGroups: talking to other processes. socket, socketpair and setsockopt are in rows_args.go.
var ipcGroups = []group{
	{
		names: `bind connect listen accept accept4 getsockname getpeername getsockopt shutdown
			sendto sendmsg sendmmsg recvfrom recvmsg recvmmsg`,
		action: Allow,
		reason: "using a socket; which kinds exist is decided at socket, where they lead by the network namespace and its rules",
	},
	{
		names:  "shmget shmat shmdt shmctl semget semop semtimedop semctl msgget msgsnd msgrcv msgctl",
		action: Allow,
		reason: "System V memory, semaphores and queues, as databases use them; the box's ipc namespace holds no one else's",
	},
	{
		names:  "mq_open mq_unlink mq_timedsend mq_timedreceive mq_notify mq_getsetattr",
		action: Allow,
		reason: "POSIX message queues, in the box's own ipc namespace",
	},
}
