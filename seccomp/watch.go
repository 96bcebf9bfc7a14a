package seccomp

import (
	"slices"
	"strings"
	"syscall"

	"golang.org/x/sys/unix"
)

// Levels of Spec.Calls and Spec.Files.
const (
	Security = "security" // of Calls: what starts programs, reaches others, or changes what a process is
	AllCalls = "all"      // of Calls: all but unwatched
	Writes   = "writes"   // of Files: what makes or changes files
	AllFiles = "all"      // of Files: every open besides
)

// watchedCalls is what the level Security shows of the calls that are allowed. Others, such as mount, are refused, and reported as that.
const watchedCalls = `execve execveat connect bind listen sendto ptrace process_vm_readv process_vm_writev process_madvise pidfd_getfd kcmp
	kill pidfd_send_signal setns unshare chroot pivot_root mount umount2 keyctl add_key request_key bpf perf_event_open userfaultfd
	memfd_create memfd_secret personality setuid setgid setreuid setregid setresuid setresgid setgroups capset setfsuid setfsgid
	init_module finit_module delete_module kexec_load reboot swapon swapoff io_uring_setup`

// watchedWrites is what the level Writes shows, besides opens that can write.
const watchedWrites = `creat unlink unlinkat rmdir rename renameat renameat2 mkdir mkdirat link linkat symlink symlinkat chmod fchmodat
	fchmodat2 fchmod chown lchown fchownat fchown truncate mknod mknodat`

const opens = "open openat creat"

// unwatched is left out of AllCalls: what works on what is open already, on memory, time and threads, which programs call all the time;
// and what init calls between the installation of the filter and the moment when somebody answers.
const unwatched = `read write readv writev pread64 pwrite64 preadv pwritev preadv2 pwritev2 close lseek sendmsg recvmsg recvfrom sendmmsg recvmmsg
	poll ppoll select pselect6 epoll_create epoll_create1 epoll_ctl epoll_wait epoll_pwait epoll_pwait2 eventfd eventfd2 fcntl
	mmap munmap mremap mprotect madvise brk futex futex_waitv futex_wait futex_wake futex_requeue membarrier rseq
	nanosleep clock_nanosleep clock_gettime clock_getres gettimeofday time sched_yield sched_getaffinity getcpu getrandom
	getpid gettid getppid getuid geteuid getgid getegid rt_sigaction rt_sigprocmask rt_sigreturn sigaltstack rt_sigtimedwait tgkill restart_syscall
	set_tid_address set_robust_list arch_prctl exit exit_group wait4 waitid seccomp prctl`

// writeFlags of open(2): with none of them an open changes nothing.
const writeFlags = unix.O_ACCMODE | creates | unix.O_TRUNC

// watching says whether the Spec watches calls that are allowed.
func (s Spec) watching() bool { return s.Calls != "" || s.Files != "" }

// listens says whether a program of the Spec has a listener.
func (s Spec) listens() bool { return s.Report || s.watching() }

// unperformed is what a program would do to calls of its own that a Watcher makes in its place: whoever makes them is outside of a program's
// Landlock domain, so that a program that has narrowed its rights would still have them all. It is told that there is no Landlock.
const unperformed = "landlock_create_ruleset landlock_add_rule landlock_restrict_self"

// watch marks the permissions whose calls a Watcher sees. It allows nothing, and refuses no more than what could not be kept.
func (s Spec) watch(rows []Row) []Row {
	if !s.watching() {
		return rows
	}
	calls := map[string]bool{}
	mark := func(names string, on bool) {
		for _, name := range strings.Fields(names) {
			calls[name] = on
		}
	}
	switch s.Calls {
	case Security:
		mark(watchedCalls, true)
	case AllCalls:
		for _, r := range rows {
			calls[r.Name] = true
		}
		mark(unwatched, false)
	}
	if s.Files != "" {
		mark(watchedWrites, true)
	}
	everyOpen := s.Files == AllFiles || s.Calls == AllCalls
	if everyOpen {
		mark(opens, true)
	}
	var all []Row
	for _, r := range rows {
		if slices.Contains(strings.Fields(unperformed), r.Name) {
			r.Action, r.Errno, r.Quiet, r.Reason = Refuse, syscall.ENOSYS, true, "what is watched is made in the skill's place, outside of its Landlock domain"
		}
		flags, opening := map[string]uint8{"open": 1, "openat": 2}[r.Name]
		switch {
		case r.Action != Allow:
		case opening && !everyOpen && s.Files != "":
			all = append(all, withCondition(r, bits(flags, writeFlags, 0)))
			r.Watch = true
		case r.Name == "sendto" && calls["sendto"]: // with an address; what goes over a connection was seen when that was made
			unaddressed := withCondition(r, arg(4, 0))
			all = append(all, withCondition(unaddressed, arg(10, 0)))
			r.Watch = true
		default:
			r.Watch = calls[r.Name]
		}
		all = append(all, r)
	}
	return all
}

func withCondition(r Row, c Cond) Row {
	r.When = append(slices.Clone(r.When), c)
	return r
}
