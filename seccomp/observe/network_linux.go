package observe

import (
	"encoding/binary"
	"errors"
	"net/netip"
	"strings"
	"unsafe"

	"golang.org/x/sys/unix"

	"skillbox/audit"
	"skillbox/seccomp"
)

// sockaddr is an address as a call brings it.
type sockaddr struct {
	raw    []byte
	family uint16
}

// address reads one, as long as the caller says it is. One that cannot be read fails at once, as a path does.
func (c *call) address(pointer, length int) (sockaddr, unix.Errno) {
	const storage = 128 // struct sockaddr_storage
	n := c.arg(length)
	if n < 2 || n > storage {
		return sockaddr{}, unix.EINVAL
	}
	a := sockaddr{raw: make([]byte, n)}
	if got, err := readMemory(c.n.PID, c.n.Args[pointer], a.raw); err != nil || got < n {
		return a, unix.EFAULT
	}
	a.family = binary.NativeEndian.Uint16(a.raw)
	return a, 0
}

// describe fills in what the address says.
func (a *sockaddr) describe(record *audit.Connection) {
	switch {
	case a.family == unix.AF_INET && len(a.raw) >= 8:
		record.Port = int(binary.BigEndian.Uint16(a.raw[2:]))
		record.Address = netip.AddrFrom4([4]byte(a.raw[4:8])).String()
	case a.family == unix.AF_INET6 && len(a.raw) >= 24:
		record.Port = int(binary.BigEndian.Uint16(a.raw[2:]))
		record.Address = netip.AddrFrom16([16]byte(a.raw[8:24])).Unmap().String()
	case a.family == unix.AF_UNIX:
		record.Proto = "unix"
		if path := string(a.raw[2:]); strings.HasPrefix(path, "\x00") { // abstract
			record.Address = "@" + path[1:]
		} else {
			record.Address, _, _ = strings.Cut(path, "\x00")
		}
	}
}

func (a *sockaddr) inet() bool { return a.family == unix.AF_INET || a.family == unix.AF_INET6 }

// errNoTable says that the kernel is too old to be asked for a descriptor of just this thread.
var errNoTable = errors.New("observe: which descriptors the thread has cannot be told")

// socket borrows the caller's. A thread may have descriptors of its own (clone(2) without CLONE_FILES, unshare(2)), also after the first
// thread of its process has ended.
func (c *call) socket(fd int) (int, error) {
	process, err := c.pidfd()
	if err != nil {
		return -1, errNoTable
	}
	defer unix.Close(process)
	return unix.PidfdGetfd(process, fd, 0)
}

// pidfd is of the thread, or of its process where that has the same descriptors.
func (c *call) pidfd() (int, error) {
	if c.n.PID == c.caller.group {
		return unix.PidfdOpen(c.caller.group, 0)
	}
	if fd, err := unix.PidfdOpen(c.n.PID, unix.O_EXCL); err != unix.EINVAL { // PIDFD_THREAD, Linux 6.9
		return fd, err
	}
	const kcmpFiles = 2 // KCMP_FILES
	if r, _, errno := unix.Syscall6(unix.SYS_KCMP, uintptr(c.n.PID), uintptr(c.caller.group), kcmpFiles, 0, 0, 0); errno != 0 || r != 0 {
		return -1, errNoTable
	}
	return unix.PidfdOpen(c.caller.group, 0)
}

// proto names a socket's protocol.
func proto(fd int) string {
	family, err := unix.GetsockoptInt(fd, unix.SOL_SOCKET, unix.SO_DOMAIN)
	if err != nil {
		return "unknown"
	}
	kind, err := unix.GetsockoptInt(fd, unix.SOL_SOCKET, unix.SO_TYPE)
	switch {
	case err != nil:
	case family == unix.AF_UNIX:
		return "unix"
	case family == unix.AF_NETLINK:
		return "netlink"
	case kind == unix.SOCK_STREAM:
		return "tcp"
	case kind == unix.SOCK_DGRAM:
		return "udp"
	}
	return "unknown"
}

// connect makes the connection of an IP socket in the skill's place, on the skill's socket. A unix socket's other end would see us
// as its peer, so that one is the kernel's.
func (c *call) connect() seccomp.Answer {
	fd, err := c.socket(c.arg(0))
	if err == errNoTable {
		return c.addressed("connect", 1, 2)
	}
	if err != nil { // no descriptor: another thread could make it one now
		return seccomp.Fail(unix.EBADF)
	}
	a, errno := c.address(1, 2)
	if errno != 0 {
		unix.Close(fd)
		return seccomp.Fail(errno)
	}
	record := audit.Connection{Op: "connect", PID: c.caller.pid}
	record.Proto = proto(fd)
	a.describe(&record)
	if !a.inet() || (record.Proto != "tcp" && record.Proto != "udp") || !c.n.Valid() || !c.begin(fd) {
		unix.Close(fd)
		record.Claimed, record.Verdict = []string{"proto", "address", "port", "verdict"}, audit.Allowed
		c.note(record)
		return seccomp.Continue()
	}
	go func() {
		_, _, errno := unix.Syscall(unix.SYS_CONNECT, uintptr(fd), uintptr(unsafe.Pointer(&a.raw[0])), uintptr(len(a.raw)))
		c.over(fd)
		record.Outcome = c.reached(errno)
		c.note(record)
		if errno != 0 {
			c.n.Answer(seccomp.Fail(errno))
		} else {
			c.n.Answer(seccomp.Return(0))
		}
	}()
	return seccomp.Later()
}

// reached is what became of a connection. One that is still being made is none that was refused.
func (c *call) reached(errno unix.Errno) audit.Outcome {
	if errno == unix.EINPROGRESS {
		return audit.Outcome{Verdict: audit.Allowed, Error: "EINPROGRESS"}
	}
	one := result(errno, "network")
	if c.box.Confined && errno == unix.ENETUNREACH {
		one.Verdict, one.Layer = audit.Denied, "network"
	}
	return one
}

// begin notes that a connection is on its way, unless too many are.
func (o *Observer) begin(fd int) bool {
	o.mu.Lock()
	defer o.mu.Unlock()
	if o.closed || len(o.connecting) >= maxConnecting {
		return false
	}
	o.connecting[fd] = true
	return true
}

func (o *Observer) over(fd int) {
	o.mu.Lock()
	defer o.mu.Unlock()
	delete(o.connecting, fd)
	unix.Close(fd)
}

func (c *call) bind() seccomp.Answer { return c.addressed("bind", 1, 2) }

func (c *call) sendto() seccomp.Answer {
	if c.arg(5) == 0 { // the kernel then reads no address
		return seccomp.Continue()
	}
	return c.addressed("send", 4, 5)
}

// addressed records what a call says, and leaves it to the kernel.
func (c *call) addressed(op string, pointer, length int) seccomp.Answer {
	record, fd, errno := c.claim(op)
	if errno != 0 {
		return seccomp.Fail(errno)
	}
	if fd >= 0 {
		unix.Close(fd)
	}
	a, errno := c.address(pointer, length)
	if errno != 0 {
		return seccomp.Fail(errno)
	}
	a.describe(&record)
	c.note(record)
	return seccomp.Continue()
}

// claim begins a record of a call that the kernel makes: by then another thread may have given the number to another socket. The socket
// is the caller's to close; it is -1 where the thread's own descriptors cannot be asked for.
func (c *call) claim(op string) (record audit.Connection, fd int, errno unix.Errno) {
	record = audit.Connection{
		Op: op, PID: c.caller.pid, Proto: "unknown", Claimed: []string{"proto", "address", "port", "verdict"}, Outcome: audit.Outcome{Verdict: audit.Allowed},
	}
	fd, err := c.socket(c.arg(0))
	switch {
	case err == errNoTable:
		return record, -1, 0
	case err != nil:
		return record, -1, unix.EBADF
	}
	record.Proto = proto(fd)
	return record, fd, 0
}

// listen says on which address.
func (c *call) listen() seccomp.Answer {
	record, fd, errno := c.claim("listen")
	if errno != 0 {
		return seccomp.Fail(errno)
	}
	if fd < 0 {
		c.note(record)
		return seccomp.Continue()
	}
	defer unix.Close(fd)
	if own, err := unix.Getsockname(fd); err == nil {
		switch own := own.(type) {
		case *unix.SockaddrInet4:
			record.Address, record.Port = netip.AddrFrom4(own.Addr).String(), own.Port
		case *unix.SockaddrInet6:
			record.Address, record.Port = netip.AddrFrom16(own.Addr).String(), own.Port
		case *unix.SockaddrUnix:
			record.Address = own.Name
		}
	}
	c.note(record)
	return seccomp.Continue()
}
