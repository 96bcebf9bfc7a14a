package seccomp

import (
	"syscall"

	"golang.org/x/sys/unix"
)

const (
	// nsFlags is every CLONE_NEW* flag that clone can carry. CLONE_NEWTIME shares its bits with the exit signal and needs clone3.
	nsFlags = 0x7e020000
	// sockType leaves out SOCK_CLOEXEC and SOCK_NONBLOCK.
	sockType = 0xf
	// Of personality(2): "machine i686", "release 2.6" and "only ask".
	perLinux32      = 0x8
	uname26         = 0x20000
	personalityRead = 0xffffffff
	// creates is each open(2) flag with which the mode argument counts; without one, programs pass whatever the register holds.
	creates = unix.O_CREAT | unix.O_TMPFILE&^unix.O_DIRECTORY
	setID   = unix.S_ISUID | unix.S_ISGID
)

// argRows: calls that are decided by an argument. All of these arguments are ints in the kernel.
func argRows() []Row {
	rows := cloneRows()
	rows = append(rows, socketRows()...)
	rows = append(rows, ioctlRows()...)
	rows = append(rows, prctlRows()...)
	rows = append(rows, personalityRows()...)
	rows = append(rows, limitRows()...)
	rows = append(rows, modeRows()...)
	return append(rows, mknodRows("FIFOs, sockets and plain files", 0, unix.S_IFREG, unix.S_IFIFO, unix.S_IFSOCK)...)
}

func cloneRows() []Row {
	return []Row{
		{Name: "clone", Action: Allow, When: []Cond{bits(0, nsFlags, 0)}, Reason: "threads and children"},
		{Name: "clone", Errno: syscall.EPERM, Final: true, Reason: "a new user namespace holds every capability over new namespaces of its own, which is most of the kernel's attack surface"},
	}
}

func socketRows() []Row {
	inet := arg(0, unix.AF_INET, unix.AF_INET6)
	stream, dgram := bits(1, sockType, unix.SOCK_STREAM), bits(1, sockType, unix.SOCK_DGRAM)
	const families = "other families are kernel code that a skill has no use for, loaded as a module by the mere attempt (CVE-2021-26708 in vsock, CVE-2021-43267 in TIPC)"
	return []Row{
		{Name: "socket", Action: Allow, When: []Cond{arg(0, unix.AF_UNIX)}, Reason: "local sockets, within the box's own mount and network namespaces"},
		{Name: "socket", Action: Allow, When: []Cond{inet, stream, arg(2, 0, unix.IPPROTO_TCP)}, Reason: "TCP; where it leads is the policy's egress"},
		{Name: "socket", Action: Allow, When: []Cond{inet, dgram, arg(2, 0, unix.IPPROTO_UDP)}, Reason: "UDP, for DNS; where it leads is the policy's egress"},
		{Name: "socket", Errno: syscall.EPROTONOSUPPORT, When: []Cond{inet, stream, arg(2, unix.IPPROTO_MPTCP)}, Quiet: true, Final: true, Reason: "multipath TCP, which Go's listeners try before TCP"},
		{Name: "socket", Action: Allow, When: []Cond{arg(0, unix.AF_NETLINK), arg(2, unix.NETLINK_ROUTE)}, Reason: "getaddrinfo and os.networkInterfaces read interfaces and addresses; changing them needs a capability"},
		{Name: "socket", Errno: syscall.EAFNOSUPPORT, Final: true, Reason: families},

		// socketpair loads a family's module before it learns that the family has no pairs, so it needs the same answer.
		{Name: "socketpair", Action: Allow, When: []Cond{arg(0, unix.AF_UNIX)}, Reason: "local pairs: node's child processes, python's asyncio"},
		{Name: "socketpair", Errno: syscall.EAFNOSUPPORT, Final: true, Reason: families},

		{Name: "setsockopt", Errno: syscall.ENOPROTOOPT, When: []Cond{arg(1, unix.SOL_TCP), arg(2, unix.TCP_ULP)}, Final: true, Reason: "hangs kernel protocol modules (tls, espintcp) on a connection, without any capability (CVE-2023-0461)"},
		{Name: "setsockopt", Action: Allow, Reason: "buffer sizes, time-outs, no-delay; what matters beyond needs a capability"},
	}
}

func ioctlRows() []Row {
	return []Row{
		{Name: "ioctl", Errno: syscall.EPERM, When: []Cond{arg(1, unix.TIOCSTI, unix.TIOCLINUX)}, Final: true, Reason: "puts words into a terminal's input, for the caller's shell to run (CVE-2017-5226, CVE-2023-28100)"},
		{Name: "ioctl", Errno: syscall.EPERM, When: []Cond{arg(1, unix.TIOCSETD)}, Final: true, Reason: "loads line disciplines, old modules that no skill has a use for (CVE-2017-2636, CVE-2023-6546)"},
		{Name: "ioctl", Action: Allow, Reason: "terminals, pipes and sockets are asked by ioctl; devices that would obey others are not in the box's /dev"},
	}
}

// prctlRows leaves to the kernel what it refuses a process without capabilities, such as raising an ambient one.
func prctlRows() []Row {
	return []Row{
		{Name: "prctl", Errno: syscall.EPERM, When: []Cond{arg(0, unix.PR_SET_MM)}, Final: true, Reason: "makes /proc tell lies about a process's program and arguments"},
		{Name: "prctl", Errno: syscall.EPERM, When: []Cond{arg(0, unix.PR_SET_SECUREBITS)}, Final: true, Reason: "changes how capabilities survive; the box's setting stands"},
		{Name: "prctl", Errno: syscall.EPERM, When: []Cond{arg(0, unix.PR_SCHED_CORE)}, Final: true, Reason: "a core-scheduling cookie idles the sibling threads of the host's cores"},
		{Name: "prctl", Errno: syscall.EPERM, When: []Cond{arg(0, unix.PR_SET_MEMORY_MERGE)}, Final: true, Reason: "merges equal pages of different boxes, which then tell by timing what the other holds"},
		{Name: "prctl", Action: Allow, Reason: "thread names, death signals, no_new_privs, dumpability: a program's word about itself"},
	}
}

func personalityRows() []Row {
	return []Row{
		{Name: "personality", Action: Allow, When: []Cond{arg(0, 0, perLinux32, uname26, perLinux32|uname26, personalityRead)}, Reason: "asking, and the harmless ones: what uname says of machine (PER_LINUX32) and release (UNAME26)"},
		{Name: "personality", Errno: syscall.EPERM, Reason: "READ_IMPLIES_EXEC, ADDR_NO_RANDOMIZE and their like switch off what makes exploits hard"},
	}
}

// modeRows: every call that gives a file its mode. A set-id file on one of the host's directories would act for whoever starts it
// outside, where the box's nosuid means nothing. mkdir has no row: the kernel drops these bits of its mode.
func modeRows() []Row {
	var rows []Row
	for _, c := range []struct {
		name string
		mode uint8 // the argument
	}{{"chmod", 1}, {"fchmod", 1}, {"fchmodat", 2}, {"fchmodat2", 2}, {"creat", 1}} {
		rows = append(rows,
			Row{Name: c.name, Errno: syscall.EPERM, When: []Cond{hasSetID(c.mode)}, Final: true, Reason: noSetID},
			Row{Name: c.name, Action: Allow, Reason: "modes of the skill's own files, as tar, git and pip set them"})
	}
	for _, c := range []struct {
		name        string
		flags, mode uint8
	}{{"open", 1, 2}, {"openat", 2, 3}} {
		rows = append(rows,
			Row{Name: c.name, Errno: syscall.EPERM, When: []Cond{anyOf(c.flags, creates), hasSetID(c.mode)}, Final: true, Reason: noSetID},
			Row{Name: c.name, Action: Allow, Reason: "every program opens files; the mount namespace says which ones there are"})
	}
	return rows
}

const noSetID = "a set-user-id file on a writable bind would act for whoever starts it on the host; tar and cp warn and go on"

// hasSetID holds when the argument, a mode, has one of the set-id bits.
func hasSetID(n uint8) Cond { return anyOf(n, setID) }

// anyOf holds when at least one of two bits is set.
func anyOf(n uint8, two uint32) Cond {
	low := two & -two
	return bits(n, two, low, two&^low, two)
}

// limitRows leaves to the kernel to refuse raising a hard limit. There are 16 limits, so four bits tell one from the others.
func limitRows() []Row {
	const (
		lower = "limits can be read, and lowered"
		core  = "a core limit of exactly 1 keeps a host's crash handler (a piped core_pattern, see core(5)) from reading the skill's memory as root (CVE-2025-4598 in one); 0 would let it run"
	)
	return []Row{
		{Name: "setrlimit", Errno: syscall.EPERM, When: []Cond{bits(0, 0xf, unix.RLIMIT_CORE)}, Quiet: true, Final: true, Reason: core},
		{Name: "setrlimit", Action: Allow, Reason: lower},
		{Name: "prlimit64", Action: Allow, When: []Cond{arg(2, 0), arg(2+halves/2, 0)}, Reason: lower}, // no new value: it only asks
		{Name: "prlimit64", Errno: syscall.EPERM, When: []Cond{bits(1, 0xf, unix.RLIMIT_CORE)}, Quiet: true, Final: true, Reason: core},
		{Name: "prlimit64", Action: Allow, Reason: lower},
	}
}

// mknodRows allows some types of files.
func mknodRows(reason string, types ...uint32) []Row {
	const no = "device nodes are the kernel's drivers"
	var rows []Row
	for _, c := range []struct {
		name string
		mode uint8
	}{{"mknod", 1}, {"mknodat", 2}} {
		rows = append(rows,
			Row{Name: c.name, Errno: syscall.EPERM, When: []Cond{hasSetID(c.mode)}, Final: true, Reason: noSetID},
			Row{Name: c.name, Action: Allow, When: []Cond{bits(c.mode, unix.S_IFMT, types...)}, Reason: reason},
			Row{Name: c.name, Errno: syscall.EPERM, Final: true, Reason: no})
	}
	return rows
}
