package broker

import (
	"errors"
	"fmt"
	"os"
	"strings"
	"unsafe"

	"golang.org/x/sys/unix"

	"skillbox/helper"
	"skillbox/helper/access"
	"skillbox/wire"
)

// caller is who connected, as the kernel says it was at that moment.
type caller struct {
	uid, gid uint32
	groups   []uint32
	pid      int32
	process  string // its name
}

// maxGroups is how many groups a caller may be in: they travel with the connection.
const maxGroups = 2048

// namespace is one, by the number of its file.
type namespace struct{ dev, ino uint64 }

// namespaces are those that a caller must be in, for a worker sees what they show.
type namespaces struct {
	user, net namespace
	mounts    [2]namespace // ours, and those of the machine's init: a unit may have its own
}

func namespaceOf(path string) (namespace, error) {
	var st unix.Stat_t
	if err := unix.Stat(path, &st); err != nil {
		return namespace{}, fmt.Errorf("broker: %s: %w", path, err)
	}
	return namespace{st.Dev, st.Ino}, nil
}

func ownNamespaces() (n namespaces, err error) {
	var errs [4]error
	n.user, errs[0] = namespaceOf("/proc/self/ns/user")
	n.net, errs[1] = namespaceOf("/proc/self/ns/net")
	n.mounts[0], errs[2] = namespaceOf("/proc/self/ns/mnt")
	n.mounts[1], errs[3] = namespaceOf("/proc/1/ns/mnt")
	return n, errors.Join(errs[:]...)
}

// identify finds out who connected, or why that is nobody for this service: *decline.
func (b *Broker) identify(conn *wire.Conn, who unix.Ucred) (caller, error) {
	c := caller{uid: who.Uid, gid: who.Gid, pid: who.Pid}
	if c.uid == 0 {
		return c, elsewhere("the system service serves ordinary users; root has the right to do all it does")
	}
	groups, err := peerGroups(conn.FD())
	if err != nil {
		return c, fmt.Errorf("broker: the groups of user %d: %w", c.uid, err)
	}
	if len(groups) > maxGroups {
		return c, elsewhere("you are in %d groups, and the system service looks at no more than %d", len(groups), maxGroups)
	}
	c.groups = append(groups, c.gid)
	config, err := b.config.read(b.Config)
	if err != nil {
		return c, err
	}
	why, err := config.KeepsOut(access.Caller{UID: c.uid, Groups: c.groups})
	if err != nil {
		return c, err
	}
	if why != nil {
		return c, &decline{why}
	}
	// It may have ended, and then this is nobody's, which place finds out.
	name, _ := os.ReadFile(fmt.Sprintf("/proc/%d/comm", who.Pid))
	c.process = strings.TrimSuffix(string(name), "\n")
	return c, b.place(conn.FD(), who)
}

func elsewhere(format string, a ...any) *decline {
	return &decline{&helper.Error{Message: fmt.Sprintf(format, a...), Hint: "use --mode user or oneshot"}}
}

// place looks where the caller is. The pid alone would not do: another process may have it by now. Its pidfd tells.
func (b *Broker) place(fd int, who unix.Ucred) error {
	if who.Pid == 0 {
		return elsewhere("the system service does not see the process that called: it is in a pid namespace that is not below its own")
	}
	pidfd, err := peerPidfd(fd, who)
	if err != nil {
		return elsewhere("the process that called has gone: %v", err)
	}
	defer unix.Close(pidfd)
	at := fmt.Sprintf("/proc/%d/ns/", who.Pid)
	user, err1 := namespaceOf(at + "user")
	net, err2 := namespaceOf(at + "net")
	mount, err3 := namespaceOf(at + "mnt")
	err = errors.Join(err1, err2, err3)
	if err == nil {
		err = unix.PidfdSendSignal(pidfd, 0, nil, 0)
	}
	switch {
	case errors.Is(err, unix.ENOENT) || errors.Is(err, unix.ESRCH):
		return elsewhere("the process that called has gone")
	case err != nil:
		return elsewhere("where the process that called is cannot be told: %v", err)
	case user != b.here.user:
		return elsewhere("this call comes from another user namespace, such as a container's or a box's, which the system service does not serve")
	case net != b.here.net:
		return elsewhere("this call comes from another network namespace, and the system service has the machine's network")
	case mount != b.here.mounts[0] && mount != b.here.mounts[1]:
		return elsewhere("this call comes from another mount namespace, whose files the system service does not see")
	}
	return nil
}

// peerPidfd is the caller's process: since Linux 6.5 as the socket knows it, before that the one that has its number and its user now.
func peerPidfd(fd int, who unix.Ucred) (int, error) {
	pidfd, err := unix.GetsockoptInt(fd, unix.SOL_SOCKET, unix.SO_PEERPIDFD)
	if err == nil {
		unix.CloseOnExec(pidfd)
		return pidfd, nil
	}
	if err != unix.ENOPROTOOPT {
		return -1, err
	}
	if pidfd, err = unix.PidfdOpen(int(who.Pid), 0); err != nil {
		return -1, err
	}
	status, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", who.Pid))
	if err == nil && !strings.Contains(string(status), fmt.Sprintf("\nUid:\t%d\t", who.Uid)) && !strings.Contains(string(status), fmt.Sprintf("\t%d\n", who.Uid)) {
		err = errors.New("its number is another's")
	}
	if err != nil {
		return -1, errors.Join(err, unix.Close(pidfd))
	}
	return pidfd, nil
}

// peerGroups are the supplementary groups that whoever connected had then (SO_PEERGROUPS, since Linux 4.13).
func peerGroups(fd int) ([]uint32, error) {
	groups := make([]uint32, 64)
	for {
		size := uint32(4 * len(groups))
		_, _, errno := unix.Syscall6(unix.SYS_GETSOCKOPT, uintptr(fd), unix.SOL_SOCKET, unix.SO_PEERGROUPS,
			uintptr(unsafe.Pointer(&groups[0])), uintptr(unsafe.Pointer(&size)), 0)
		if errno == unix.ERANGE && int(size) > 4*len(groups) {
			groups = make([]uint32, size/4)
			continue
		}
		if errno != 0 {
			return nil, errno
		}
		return groups[:size/4], nil
	}
}
