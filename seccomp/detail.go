package seccomp

import (
	"fmt"
	"strings"

	"golang.org/x/sys/unix"
)

// detail names the argument that decided, for calls where one does. It is made of register values only and short.
func detail(name string, args [6]uint64) string {
	low := func(n int) uint32 { return uint32(args[n]) }
	switch name {
	case "socket", "socketpair":
		return socketDetail(low(0), low(1)&sockType, low(2))
	case "ioctl":
		return nameOr(low(1), map[uint32]string{unix.TIOCSTI: "TIOCSTI", unix.TIOCLINUX: "TIOCLINUX", unix.TIOCSETD: "TIOCSETD"})
	case "setsockopt":
		return "TCP_ULP"
	case "prctl":
		return nameOr(low(0), map[uint32]string{
			unix.PR_SET_MM: "PR_SET_MM", unix.PR_SET_SECUREBITS: "PR_SET_SECUREBITS", unix.PR_SCHED_CORE: "PR_SCHED_CORE",
			unix.PR_SET_MEMORY_MERGE: "PR_SET_MEMORY_MERGE",
		})
	case "clone", "unshare":
		return cloneDetail(low(0))
	case "personality":
		return nameOr(low(0), map[uint32]string{0x0040000: "ADDR_NO_RANDOMIZE", 0x0400000: "READ_IMPLIES_EXEC", 0x0100000: "MMAP_PAGE_ZERO"})
	case "mknod":
		return nodeDetail(low(1))
	case "mknodat":
		return nodeDetail(low(2))
	case "chmod", "fchmod", "creat":
		return modeDetail(low(1))
	case "fchmodat", "fchmodat2", "open":
		return modeDetail(low(2))
	case "openat":
		return modeDetail(low(3))
	}
	return ""
}

func nameOr(v uint32, names map[uint32]string) string {
	if name := names[v]; name != "" {
		return name
	}
	return fmt.Sprintf("%#x", v)
}

func socketDetail(family, kind, protocol uint32) string {
	var name string
	if family < uint32(len(families)) {
		name = families[family]
	}
	switch {
	case name == "":
		return fmt.Sprintf("family %d", family)
	case family == unix.AF_NETLINK:
		return fmt.Sprintf("%s protocol %d", name, protocol)
	case family == unix.AF_INET || family == unix.AF_INET6:
		return fmt.Sprintf("%s type %d protocol %d", name, kind, protocol)
	}
	return name
}

var families = [...]string{
	unix.AF_UNIX: "AF_UNIX", unix.AF_INET: "AF_INET", unix.AF_INET6: "AF_INET6", unix.AF_NETLINK: "AF_NETLINK", unix.AF_PACKET: "AF_PACKET",
	unix.AF_ALG: "AF_ALG", unix.AF_VSOCK: "AF_VSOCK", unix.AF_KEY: "AF_KEY", unix.AF_RXRPC: "AF_RXRPC", unix.AF_BLUETOOTH: "AF_BLUETOOTH",
	unix.AF_CAN: "AF_CAN", unix.AF_TIPC: "AF_TIPC", unix.AF_RDS: "AF_RDS", unix.AF_SMC: "AF_SMC", unix.AF_XDP: "AF_XDP", unix.AF_NFC: "AF_NFC",
	unix.AF_KCM: "AF_KCM", unix.AF_QIPCRTR: "AF_QIPCRTR", unix.AF_AX25: "AF_AX25", unix.AF_X25: "AF_X25", unix.AF_APPLETALK: "AF_APPLETALK",
	unix.AF_PPPOX: "AF_PPPOX", unix.AF_PHONET: "AF_PHONET", unix.AF_LLC: "AF_LLC", unix.AF_IEEE802154: "AF_IEEE802154", unix.AF_MCTP: "AF_MCTP",
	unix.AF_IB: "AF_IB",
}

func cloneDetail(flags uint32) string {
	var set []string
	for _, f := range []struct {
		bit  uint32
		name string
	}{
		{unix.CLONE_NEWUSER, "CLONE_NEWUSER"},
		{unix.CLONE_NEWNS, "CLONE_NEWNS"},
		{unix.CLONE_NEWPID, "CLONE_NEWPID"},
		{unix.CLONE_NEWNET, "CLONE_NEWNET"},
		{unix.CLONE_NEWIPC, "CLONE_NEWIPC"},
		{unix.CLONE_NEWUTS, "CLONE_NEWUTS"},
		{unix.CLONE_NEWCGROUP, "CLONE_NEWCGROUP"},
	} {
		if flags&f.bit != 0 {
			set = append(set, f.name)
		}
	}
	return strings.Join(set, "|")
}

func modeDetail(mode uint32) string { return fmt.Sprintf("mode %#o", mode&0o7777) }

func nodeDetail(mode uint32) string {
	if mode&setID != 0 {
		return modeDetail(mode)
	}
	switch mode & unix.S_IFMT {
	case unix.S_IFBLK:
		return "S_IFBLK"
	case unix.S_IFCHR:
		return "S_IFCHR"
	case unix.S_IFSOCK:
		return "S_IFSOCK"
	}
	return fmt.Sprintf("%#o", mode&unix.S_IFMT)
}
