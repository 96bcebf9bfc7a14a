package netpolicy

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"os"
	"slices"
	"strings"
	"unsafe"

	"golang.org/x/sys/unix"
)

// legacy is iptables as it was before nftables, for one family, and where things stand in its struct ipt_entry or ip6t_entry
// (linux/netfilter_ipv4/ip_tables.h, linux/netfilter_ipv6/ip6_tables.h) on 64-bit machines.
type legacy struct {
	program, names string
	domain, level  int
	interfaces     int // names of in and out, then their masks, 16 bytes each
	target, next   int
	size           int
}

var legacies = map[byte]legacy{
	ipv4: {"iptables-legacy", "/proc/thread-self/net/ip_tables_names", unix.AF_INET, unix.SOL_IP, 16, 88, 90, 112},
	ipv6: {"ip6tables-legacy", "/proc/thread-self/net/ip6_tables_names", unix.AF_INET6, unix.SOL_IPV6, 64, 140, 142, 168},
}

// filter is the chain FORWARD if it drops in the end; nil if not. To ask the kernel for a table makes it, so that only one that is there
// is asked for.
func (l legacy) filter() (*filter, error) {
	names, err := os.ReadFile(l.names)
	if err != nil || !slices.Contains(strings.Fields(string(names)), "filter") {
		return nil, nil
	}
	forward, entries, err := l.read()
	if err != nil {
		return nil, fmt.Errorf("netpolicy: read the filter table of %s: %w", l.program, err)
	}
	f := &filter{program: l.program, chain: "FORWARD", docker: bytes.Contains(entries, []byte("DOCKER-USER\x00")), ufw: bytes.Contains(entries, []byte("ufw-before-forward\x00"))}
	drops := false
	for at := 0; at+l.size <= len(entries); {
		entry := entries[at:]
		target, next := int(nativeEndian.Uint16(entry[l.target:])), int(nativeEndian.Uint16(entry[l.next:]))
		if target < l.size || next < target || next > len(entry) {
			return nil, fmt.Errorf("netpolicy: the filter table of %s is not of this machine's form", l.program)
		}
		in, back := l.opens(entry[:next], target)
		f.in, f.back = f.in || in, f.back || back
		if v, ok := verdict(entry[target:next]); at == forward && ok && v == legacyDrop {
			drops = true
		}
		at += next
	}
	if !drops {
		return nil, nil
	}
	return f, nil
}

// Verdicts of a standard target: -1 less the number of linux/netfilter.h; others lead to a chain.
const legacyDrop, legacyAccept = -1, -2

// verdict is what a standard target, which has no name, does.
func verdict(target []byte) (int32, bool) {
	const name, value = 2, 32
	if len(target) < value+4 || target[name] != 0 {
		return 0, false
	}
	return int32(nativeEndian.Uint32(target[value:])), true
}

// opens is what the function of this name says of nftables' rules.
func (l legacy) opens(entry []byte, target int) (in, back bool) {
	of := func(i int) (names, none bool) {
		name, mask := entry[l.interfaces+16*i:][:16], entry[l.interfaces+32+16*i:][:16]
		begins := bytes.IndexByte(mask, 0)
		return begins > 0 && ours(string(name[:begins])), begins == 0
	}
	from, noFrom := of(0)
	to, noTo := of(1)
	v, ok := verdict(entry[target:])
	passes := ok && (v == legacyAccept || v >= 0)
	connection := bytes.Contains(entry[l.size:target], []byte("conntrack\x00")) || bytes.Contains(entry[l.size:target], []byte("state\x00"))
	return passes && from, passes && (to || connection && noFrom && noTo)
}

// read asks for the table: the offset of the chain FORWARD's policy, and the entries.
func (l legacy) read() (forward int, entries []byte, err error) {
	fd, err := unix.Socket(l.domain, unix.SOCK_RAW|unix.SOCK_CLOEXEC, unix.IPPROTO_RAW)
	if err != nil {
		return 0, nil, err
	}
	defer unix.Close(fd)
	const getInfo, getEntries = 64, 65 // IPT_SO_GET_INFO, IPT_SO_GET_ENTRIES
	for range 10 {
		var info struct {
			Name              [32]byte
			Hooks             uint32
			Entries, Policies [5]uint32 // of each hook
			Number, Size      uint32
		}
		copy(info.Name[:], "filter")
		raw := make([]byte, binary.Size(info))
		copy(raw, info.Name[:])
		if err := getsockopt(fd, l.level, getInfo, raw); err != nil {
			return 0, nil, err
		}
		if _, err := binary.Decode(raw, nativeEndian, &info); err != nil {
			return 0, nil, err
		}
		const head = 40 // of struct ipt_get_entries
		all := make([]byte, head+int(info.Size))
		copy(all, info.Name[:])
		nativeEndian.PutUint32(all[len(info.Name):], info.Size)
		err := getsockopt(fd, l.level, getEntries, all)
		if err == unix.EAGAIN {
			continue // it has changed in between
		}
		return int(info.Policies[unix.NF_INET_FORWARD]), all[head:], err
	}
	return 0, nil, errors.New("it changes again and again")
}

func getsockopt(fd, level, option int, buffer []byte) error {
	size := uint32(len(buffer))
	_, _, errno := unix.Syscall6(unix.SYS_GETSOCKOPT, uintptr(fd), uintptr(level), uintptr(option),
		uintptr(unsafe.Pointer(&buffer[0])), uintptr(unsafe.Pointer(&size)), 0)
	if errno != 0 {
		return errno
	}
	return nil
}
