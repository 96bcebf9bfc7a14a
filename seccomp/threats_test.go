//go:build linux && cgo

package seccomp

import (
	"strings"
	"syscall"
	"testing"

	"golang.org/x/sys/unix"
)

// attempt is one real call, made for real by the probe, and the answer it must get.
type attempt struct {
	name  string
	args  []uint64
	errno syscall.Errno
}

// refuses makes the attempts under every profile named, the first with a supervisor too, and wants the same answers.
func refuses(t *testing.T, profiles string, attempts []attempt) {
	t.Helper()
	for i, profile := range strings.Fields(profiles) {
		for _, report := range []bool{false, true}[:2-min(i, 1)] {
			s := Spec{Profile: profile, Report: report}
			var calls []Call
			var made []attempt
			for _, a := range attempts {
				if c, ok := NativeCall(a.name, a.args...); ok {
					calls, made = append(calls, c), append(made, a)
				}
			}
			p := runProbe(t, s, probeRequest{Program: program(t, s), Calls: calls})
			if len(p.Errnos) != len(calls) {
				t.Fatalf("%+v: the probe ended with %v: %s", s, p.state, p.stderr)
			}
			for i, a := range made {
				if got := syscall.Errno(p.Errnos[i]); got != a.errno {
					t.Errorf("%+v: %s%#x: %v, want %v", s, a.name, a.args, got, a.errno)
				}
			}
		}
	}
}

func each(calls string, errno syscall.Errno) []attempt {
	var all []attempt
	for _, name := range strings.Fields(calls) {
		all = append(all, attempt{name, nil, errno})
	}
	return all
}

const everyProfile = "default strict debug"

func TestThreat44IoUringIsAbsent(t *testing.T) {
	refuses(t, everyProfile, each("io_uring_setup", unix.ENOSYS))
}

func TestThreat45AnIoUringPassedInCannotBeUsed(t *testing.T) {
	refuses(t, everyProfile, each("io_uring_enter io_uring_register", unix.ENOSYS))
}

func TestThreat46NoKernelCrypto(t *testing.T) { refuses(t, everyProfile, family(unix.AF_ALG)) }

func TestThreat48NoVsock(t *testing.T) { refuses(t, everyProfile, family(unix.AF_VSOCK)) }

func TestThreat52NoPacketSockets(t *testing.T) {
	refuses(t, everyProfile, family(unix.AF_PACKET))
}

// family attempts every type of socket and pair; garbage above the low 32 bits changes nothing.
func family(families ...uint64) []attempt {
	var all []attempt
	for _, f := range families {
		for kind := uint64(1); kind <= 6; kind++ {
			all = append(all,
				attempt{"socket", []uint64{f, kind | unix.SOCK_CLOEXEC, 0}, unix.EAFNOSUPPORT},
				attempt{"socket", []uint64{f | 1<<40, kind, 0}, unix.EAFNOSUPPORT},
				attempt{"socketpair", []uint64{f, kind, 0}, unix.EAFNOSUPPORT})
		}
	}
	return all
}

func TestThreat54OnlyRouteNetlinkOpens(t *testing.T) {
	var all []attempt
	for protocol := uint64(0); protocol < 32; protocol++ {
		errno := syscall.EAFNOSUPPORT
		if protocol == unix.NETLINK_ROUTE {
			errno = 0
		}
		all = append(all, attempt{"socket", []uint64{unix.AF_NETLINK, unix.SOCK_RAW | unix.SOCK_CLOEXEC, protocol}, errno})
	}
	refuses(t, "default debug", all)
}

func TestThreat55NoExoticFamilies(t *testing.T) {
	var others []uint64
	for f := uint64(0); f < 64; f++ {
		switch f {
		case unix.AF_UNIX, unix.AF_INET, unix.AF_INET6, unix.AF_NETLINK:
		default:
			others = append(others, f)
		}
	}
	refuses(t, "default", family(append(others, 1<<31)...))
}

func TestThreat55OnlyTCPAndUDPOfInternetSockets(t *testing.T) {
	var all []attempt
	for _, f := range []uint64{unix.AF_INET, unix.AF_INET6} {
		for _, c := range []struct {
			kind, protocol uint64
			errno          syscall.Errno
		}{
			{unix.SOCK_STREAM, 0, 0},
			{unix.SOCK_STREAM | unix.SOCK_NONBLOCK, unix.IPPROTO_TCP, 0},
			{unix.SOCK_DGRAM, unix.IPPROTO_UDP, 0},
			{unix.SOCK_DGRAM, unix.IPPROTO_ICMP, unix.EAFNOSUPPORT},
			{unix.SOCK_DGRAM, unix.IPPROTO_UDPLITE, unix.EAFNOSUPPORT},
			{unix.SOCK_STREAM, unix.IPPROTO_SCTP, unix.EAFNOSUPPORT},
			{unix.SOCK_STREAM, unix.IPPROTO_MPTCP, unix.EPROTONOSUPPORT},
			{unix.SOCK_SEQPACKET, unix.IPPROTO_SCTP, unix.EAFNOSUPPORT},
			{unix.SOCK_DCCP, unix.IPPROTO_DCCP, unix.EAFNOSUPPORT},
			{unix.SOCK_RAW, unix.IPPROTO_RAW, unix.EAFNOSUPPORT},
		} {
			all = append(all, attempt{"socket", []uint64{f, c.kind | unix.SOCK_CLOEXEC, c.protocol}, c.errno})
		}
	}
	refuses(t, "default", all)
}

func TestStrictHasLocalSocketsOnly(t *testing.T) {
	refuses(t, "strict", append(family(unix.AF_INET, unix.AF_INET6, unix.AF_NETLINK),
		attempt{"socket", []uint64{unix.AF_UNIX, unix.SOCK_STREAM | unix.SOCK_CLOEXEC, 0}, 0}))
}

func TestThreat57NoProtocolModulesOnConnections(t *testing.T) {
	refuses(t, everyProfile, []attempt{
		{"setsockopt", []uint64{0, unix.SOL_TCP, unix.TCP_ULP, 0, 0}, unix.ENOPROTOOPT},
		{"setsockopt", []uint64{0, unix.SOL_TCP | 1<<32, unix.TCP_ULP | 1<<63, 0, 0}, unix.ENOPROTOOPT},
		{"setsockopt", []uint64{^uint64(0), unix.SOL_TCP, unix.TCP_NODELAY, 0, 0}, unix.EBADF},
	})
}

func TestThreat58NoBPF(t *testing.T) { refuses(t, everyProfile, each("bpf", unix.EPERM)) }

func TestThreat60NoUserfaultfd(t *testing.T) {
	const userModeOnly = 1
	refuses(t, everyProfile, []attempt{{"userfaultfd", []uint64{userModeOnly}, unix.EPERM}, {"userfaultfd", nil, unix.EPERM}})
}

func TestThreat61NoKeyrings(t *testing.T) {
	refuses(t, everyProfile, each("keyctl add_key request_key", unix.ENOSYS))
}

func TestThreat63NoLookingIntoOtherProcesses(t *testing.T) {
	refuses(t, "default strict", each("ptrace process_vm_readv process_vm_writev pidfd_getfd kcmp process_madvise", unix.EPERM))
	refuses(t, "debug", each("process_madvise perf_event_open", unix.EPERM))
}

func TestThreat64StrictHasNoExecutableMemoryFiles(t *testing.T) {
	if errno := errnoOf(t, Spec{Profile: "strict"}, "memfd_create", 0, unix.MFD_CLOEXEC); errno != unix.ENOSYS {
		t.Errorf("memfd_create: %v", errno)
	}
	// The null name is EFAULT: the filter let the call through.
	if errno := errnoOf(t, Spec{Profile: "strict"}, "memfd_create", 0, unix.MFD_NOEXEC_SEAL); errno != unix.EFAULT {
		t.Errorf("memfd_create with MFD_NOEXEC_SEAL: %v", errno)
	}
	if errno := errnoOf(t, Spec{}, "memfd_create", 0, unix.MFD_CLOEXEC); errno != unix.EFAULT {
		t.Errorf("memfd_create under default: %v", errno)
	}
}

func TestThreat66NoLdtAndNoWeakPersonality(t *testing.T) {
	const addrNoRandomize, readImpliesExec, mmapPageZero = 0x0040000, 0x0400000, 0x0100000
	refuses(t, everyProfile, append(each("modify_ldt", unix.ENOSYS),
		attempt{"personality", []uint64{readImpliesExec}, unix.EPERM},
		attempt{"personality", []uint64{addrNoRandomize}, unix.EPERM},
		attempt{"personality", []uint64{mmapPageZero}, unix.EPERM},
		attempt{"personality", []uint64{0x8 | readImpliesExec}, unix.EPERM},
		attempt{"personality", []uint64{0xffffffff}, 0},
	))
	refuses(t, "default", []attempt{{"personality", []uint64{0x8}, 0}, {"personality", []uint64{0x20008}, 0}, {"personality", []uint64{0}, 0}})
}

func TestThreat67NoPagesLentToPipes(t *testing.T) {
	refuses(t, everyProfile, each("vmsplice", unix.EPERM))
	refuses(t, "strict", each("splice tee", unix.ENOSYS))
}

func TestThreat69NoAdministration(t *testing.T) {
	refuses(t, everyProfile, append(
		each(`kexec_load kexec_file_load init_module finit_module delete_module iopl ioperm swapon swapoff acct reboot settimeofday
			clock_settime adjtimex clock_adjtime quotactl quotactl_fd syslog vhangup lookup_dcookie sethostname setdomainname`, unix.EPERM),
		each("nfsservctl uselib ustat sysfs _sysctl create_module query_module get_kernel_syms", unix.ENOSYS)...))
}

func TestThreat70NoNumaPlacement(t *testing.T) {
	refuses(t, everyProfile, each("mbind set_mempolicy get_mempolicy set_mempolicy_home_node move_pages migrate_pages", unix.ENOSYS))
}

func TestThreat72NoTypingIntoTheTerminal(t *testing.T) {
	refuses(t, everyProfile, []attempt{
		{"ioctl", []uint64{0, unix.TIOCSTI, 0}, unix.EPERM},
		{"ioctl", []uint64{0, unix.TIOCSTI | 1<<32, 0}, unix.EPERM},
		{"ioctl", []uint64{0, unix.TIOCSTI | 0xffffffff<<32, 0}, unix.EPERM},
		{"ioctl", []uint64{^uint64(0), unix.TCGETS, 0}, unix.EBADF},
	})
}

func TestThreat73NoConsolePaste(t *testing.T) {
	refuses(t, everyProfile, []attempt{{"ioctl", []uint64{0, unix.TIOCLINUX, 0}, unix.EPERM}, {"ioctl", []uint64{0, unix.TIOCLINUX | 1<<63, 0}, unix.EPERM}})
}

func TestThreat75NoLineDisciplines(t *testing.T) {
	refuses(t, everyProfile, []attempt{{"ioctl", []uint64{0, unix.TIOCSETD, 0}, unix.EPERM}})
}

func TestThreat78UnknownCallsAreAbsent(t *testing.T) {
	last := int32(0)
	for _, n := range names {
		last = max(last, n.nr)
	}
	var calls []Call
	for nr := last + 1; nr <= 520; nr++ {
		calls = append(calls, Call{Nr: nr})
	}
	calls = append(calls, Call{Nr: 999}, Call{Nr: 0x3fffffff})
	p := runProbe(t, Spec{}, probeRequest{Program: program(t, Spec{}), Calls: calls})
	if len(p.Errnos) != len(calls) {
		t.Fatalf("the probe ended with %v", p.state)
	}
	for i, c := range calls {
		if syscall.Errno(p.Errnos[i]) != unix.ENOSYS {
			t.Errorf("%d: %v", c.Nr, syscall.Errno(p.Errnos[i]))
		}
	}
}

func TestThreat79TheFilterSurvivesExecAndFork(t *testing.T) {
	script := `grep -h ^Seccomp: /proc/self/status; (exec -a other bash -c 'grep -h ^Seccomp: /proc/self/status'); unshare -U true 2>&1; mount -t tmpfs x /tmp 2>&1`
	out := workload(t, Spec{}, "bash", "-c", script+"; true")
	if strings.Count(out, "Seccomp:\t2") != 2 || strings.Count(out, "not permitted") < 1 {
		t.Errorf("got %q", out)
	}
}

func TestNamespacesAreRefused(t *testing.T) {
	all := each("unshare setns", unix.EPERM)
	for _, flag := range []uint64{unix.CLONE_NEWUSER, unix.CLONE_NEWNS, unix.CLONE_NEWPID, unix.CLONE_NEWNET, unix.CLONE_NEWIPC, unix.CLONE_NEWUTS, unix.CLONE_NEWCGROUP} {
		all = append(all, attempt{"clone", []uint64{flag | uint64(unix.SIGCHLD)}, unix.EPERM}, attempt{"clone", []uint64{flag | 1<<40}, unix.EPERM})
	}
	refuses(t, everyProfile, append(all, each("clone3", unix.ENOSYS)...))
}

func TestTheMountFamilyIsRefused(t *testing.T) {
	refuses(t, everyProfile, append(each("mount umount2 pivot_root chroot open_by_handle_at", unix.EPERM),
		each("fsopen fsconfig fsmount fspick move_mount open_tree open_tree_attr mount_setattr", unix.ENOSYS)...))
}

func TestDevicesAreRefused(t *testing.T) {
	for _, kind := range []uint64{unix.S_IFCHR, unix.S_IFBLK} {
		refuses(t, everyProfile, []attempt{{"mknod", []uint64{0, kind | 0o600, 0x103}, unix.EPERM}, {"mknodat", []uint64{0, 0, kind | 1<<32, 0x103}, unix.EPERM}})
	}
	refuses(t, everyProfile, []attempt{{"mknodat", []uint64{0, 0, unix.S_IFIFO}, unix.EFAULT}})
}

func TestSetIDBitsAreRefused(t *testing.T) {
	var all []attempt
	for _, mode := range []uint64{0o4755, 0o2755, 0o6755, 0o4000, unix.S_IFREG | 0o2644, 0o4755 | 1<<40} {
		all = append(all,
			attempt{"chmod", []uint64{0, mode}, unix.EPERM},
			attempt{"fchmod", []uint64{^uint64(0), mode}, unix.EPERM},
			attempt{"fchmodat", []uint64{0, 0, mode}, unix.EPERM},
			attempt{"fchmodat2", []uint64{0, 0, mode, 0}, unix.EPERM},
			attempt{"creat", []uint64{0, mode}, unix.EPERM},
			attempt{"open", []uint64{0, unix.O_CREAT | unix.O_WRONLY, mode}, unix.EPERM},
			attempt{"open", []uint64{0, unix.O_TMPFILE | unix.O_RDWR | 1<<50, mode}, unix.EPERM},
			attempt{"openat", []uint64{0, 0, unix.O_CREAT | unix.O_EXCL, mode}, unix.EPERM},
			attempt{"openat", []uint64{0, 0, unix.O_TMPFILE, mode}, unix.EPERM},
			attempt{"mknod", []uint64{0, unix.S_IFREG | mode, 0}, unix.EPERM},
			attempt{"mknodat", []uint64{0, 0, unix.S_IFIFO | mode, 0}, unix.EPERM},
			// Without a flag that creates, the mode is whatever the register held: the null path is EFAULT.
			attempt{"open", []uint64{0, unix.O_DIRECTORY, mode}, unix.EFAULT},
			attempt{"openat", []uint64{0, 0, unix.O_WRONLY | unix.O_TRUNC, mode}, unix.EFAULT})
	}
	refuses(t, everyProfile, append(all,
		attempt{"openat2", []uint64{0, 0, 0, 24}, unix.ENOSYS},
		attempt{"chmod", []uint64{0, 0o1777}, unix.EFAULT},
		attempt{"fchmod", []uint64{^uint64(0), 0o755}, unix.EBADF},
		attempt{"openat", []uint64{0, 0, unix.O_CREAT, 0o1666}, unix.EFAULT}))
}

func TestProcessSettingsThatWidenAreRefused(t *testing.T) {
	refuses(t, everyProfile, []attempt{
		{"prctl", []uint64{unix.PR_SET_MM}, unix.EPERM},
		{"prctl", []uint64{unix.PR_SET_SECUREBITS}, unix.EPERM},
		{"prctl", []uint64{unix.PR_SCHED_CORE}, unix.EPERM},
		{"prctl", []uint64{unix.PR_SET_MEMORY_MERGE, 1}, unix.EPERM},
		{"prctl", []uint64{unix.PR_GET_NO_NEW_PRIVS}, 0},
	})
}
