package opener

import (
	"errors"
	"fmt"
	"runtime"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"
)

// Descriptors that the process starts with.
const (
	socket = 3
	mounts = 4 // the box's mount namespace
)

// Word is the argument by which a program knows that it is to be the opener; the skill's user and group follow.
const Word = "opener"

// Main serves until the socket closes. Its goroutine is locked to the thread that becomes the skill.
func Main(args []string) error {
	runtime.LockOSThread()
	s, err := become(args)
	if err != nil {
		return err
	}
	if err := unix.Sendmsg(socket, (&Reply{}).encode(), nil, nil, 0); err != nil { // it is the skill now
		return err
	}
	buffer := make([]byte, header+2*MaxPath+1)
	control := make([]byte, unix.CmsgSpace(2*4))
	for {
		n, oobn, _, _, err := unix.Recvmsg(socket, buffer, control, unix.MSG_CMSG_CLOEXEC)
		if err == unix.EINTR {
			continue
		}
		if err != nil || n == 0 {
			return err
		}
		dirs, err := rights(control[:oobn])
		if err != nil {
			return err
		}
		var r Request
		if err := r.decode(buffer[:n]); err != nil {
			return err
		}
		reply, file := s.serve(&r, dirs)
		var oob []byte
		if file >= 0 {
			oob = unix.UnixRights(file)
		}
		err = unix.Sendmsg(socket, reply.encode(), oob, nil, 0)
		for _, fd := range append(dirs, file) {
			if fd >= 0 {
				unix.Close(fd)
			}
		}
		if err == nil && file >= 0 && r.acknowledged() {
			err = unix.Sendmsg(socket, (&Reply{}).encode(), nil, nil, 0)
		}
		if err != nil {
			return err
		}
	}
}

func rights(control []byte) ([]int, error) {
	if len(control) == 0 {
		return nil, nil
	}
	messages, err := unix.ParseSocketControlMessage(control)
	if err != nil || len(messages) != 1 {
		return nil, errFrame
	}
	return unix.ParseUnixRights(&messages[0])
}

// skill is the process as it serves.
type skill struct {
	self int // our own /proc/self/fd, outside the box
}

// become enters the box. Every step is for the calling thread, or must be: Go's own wrappers would change all threads.
func become(args []string) (*skill, error) {
	if len(args) != 2 {
		return nil, fmt.Errorf("opener: %d arguments", len(args))
	}
	uid, errUID := strconv.Atoi(args[0])
	gid, errGID := strconv.Atoi(args[1])
	if errUID != nil || errGID != nil {
		return nil, fmt.Errorf("opener: not ids: %q", args)
	}
	unix.CloseOnExec(socket)
	self, err := unix.Open("/proc/self/fd", unix.O_PATH|unix.O_DIRECTORY|unix.O_CLOEXEC, 0)
	if err != nil {
		return nil, fmt.Errorf("opener: /proc/self/fd: %w", err)
	}
	if err := unix.Unshare(unix.CLONE_FS); err != nil { // a thread that shares its root with others may not enter
		return nil, fmt.Errorf("opener: unshare: %w", err)
	}
	if err := unix.Setns(mounts, unix.CLONE_NEWNS); err != nil {
		return nil, fmt.Errorf("opener: join mount namespace: %w", err)
	}
	unix.Close(mounts)
	// Where groups cannot be dropped (one id, setgroups denied) the skill has them too.
	if _, _, errno := unix.RawSyscall(unix.SYS_SETGROUPS, 0, 0, 0); errno != 0 && errno != unix.EPERM {
		return nil, fmt.Errorf("opener: setgroups: %w", errno)
	}
	if _, _, errno := unix.RawSyscall(unix.SYS_SETRESGID, uintptr(gid), uintptr(gid), uintptr(gid)); errno != 0 {
		return nil, fmt.Errorf("opener: setresgid: %w", errno)
	}
	if _, _, errno := unix.RawSyscall(unix.SYS_SETRESUID, uintptr(uid), uintptr(uid), uintptr(uid)); errno != 0 {
		return nil, fmt.Errorf("opener: setresuid: %w", errno)
	}
	none := [2]unix.CapUserData{}
	if err := unix.Capset(&unix.CapUserHeader{Version: unix.LINUX_CAPABILITY_VERSION_3}, &none[0]); err != nil {
		return nil, fmt.Errorf("opener: drop capabilities: %w", err)
	}
	if err := unix.Prctl(unix.PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0); err != nil {
		return nil, fmt.Errorf("opener: no_new_privs: %w", err)
	}
	return &skill{self}, nil
}

// serve returns the file of a successful Open, else -1.
func (s *skill) serve(r *Request, dirs []int) (Reply, int) {
	base := func(n int) int {
		if n < len(dirs) {
			return dirs[n]
		}
		return unix.AT_FDCWD // the path is absolute then: nothing else comes without a directory
	}
	if r.Op == Open {
		return s.open(r, base(0))
	}
	if r.Op == Check {
		return s.check(r, base(0))
	}
	return s.change(r, place{dir: base(0), name: r.First}, place{dir: base(1), name: r.Second}), -1
}

// change makes a call that changes files, from where its paths lead: what is told of them is then what was changed, also where somebody
// exchanges a directory for a link meanwhile. A path that leads nowhere is given to the kernel as it is, for the error that it has.
func (s *skill) change(r *Request, first, second place) Reply {
	unix.Umask(int(r.Umask))
	from, to := first, second
	switch {
	case r.Op == Symlink: // it is a text
	case r.Op == Chmod, r.Op == Truncate, r.Op == Link && r.Flags&unix.AT_SYMLINK_FOLLOW != 0:
		from = s.target(first)
	default:
		from = s.parent(first)
	}
	defer from.close()
	if r.Second != "" {
		to = s.parent(second)
	}
	defer to.close()
	exact := *r
	exact.First, exact.Second = from.name, to.name
	err := perform(&exact, from.dir, to.dir)
	reply := Reply{Path: from.path, To: to.path}
	if err == nil {
		return reply
	}
	if inProc(first.dir, first.name) || second.name != "" && inProc(second.dir, second.name) {
		return Reply{Elsewhere: true}
	}
	reply.Errno = failed(err).Errno
	return reply
}

// place is a path and the directory that it starts from.
type place struct {
	dir  int
	name string
	path string // resolved, "" where it is not
	open []int  // what it keeps open
}

func (p place) close() {
	for _, fd := range p.open {
		unix.Close(fd)
	}
}

// parent follows a path to its last name, as the calls do that work on a name in a directory.
func (s *skill) parent(p place) place {
	rest := strings.TrimRight(p.name, "/")
	cut := strings.LastIndexByte(rest, '/') + 1
	last := rest[cut:]
	if last == "" || last == "." || last == ".." { // of those the kernel refuses every change
		return p
	}
	above := rest[:cut]
	if above == "" {
		above = "."
	}
	fd, err := unix.Openat(p.dir, above, unix.O_PATH|unix.O_DIRECTORY|unix.O_CLOEXEC, 0)
	if err != nil {
		return p
	}
	at := place{dir: fd, name: p.name[cut:], open: []int{fd}} // slashes at the end mean something
	if path := s.path(fd); path != "" {
		at.path = strings.TrimSuffix(path, "/") + "/" + last
	}
	return at
}

// target follows a path to its end. The link in /proc is the only name for an open file that every call takes.
func (s *skill) target(p place) place {
	fd, err := unix.Openat(p.dir, p.name, unix.O_PATH|unix.O_CLOEXEC, 0)
	if err != nil {
		return p
	}
	return place{dir: s.self, name: strconv.Itoa(fd), path: s.path(fd), open: []int{fd}}
}

func failed(err error) Reply {
	errno := unix.EIO
	errors.As(err, &errno)
	return Reply{Errno: uint32(errno)}
}

func perform(r *Request, first, second int) error {
	switch r.Op {
	case Unlink:
		return unix.Unlinkat(first, r.First, int(r.Flags))
	case Mkdir:
		return unix.Mkdirat(first, r.First, r.Mode)
	case Mknod:
		return unix.Mknodat(first, r.First, r.Mode, int(r.Device))
	case Rename:
		return unix.Renameat2(first, r.First, second, r.Second, uint(r.Flags))
	case Link:
		return unix.Linkat(first, r.First, second, r.Second, int(r.Flags))
	case Symlink:
		return unix.Symlinkat(r.First, second, r.Second)
	case Chmod:
		return unix.Fchmodat(first, r.First, r.Mode, 0)
	case Truncate:
		return truncate(first, r.First, int64(r.Device))
	}
	return unix.ENOSYS
}

// truncate has no system call that takes a directory. To open the file instead would get another error where several could be had. The
// working directory is this thread's own, and nothing else starts from it.
func truncate(dir int, path string, length int64) error {
	if dir != unix.AT_FDCWD {
		if err := unix.Fchdir(dir); err != nil {
			return err
		}
	}
	return unix.Truncate(path, length)
}

// open never waits. What is left to the caller's own context is only looked at before: to open one end of a pipe and close it again
// would be seen at the other.
func (s *skill) open(r *Request, dir int) (Reply, int) {
	flags := int(r.Flags) | unix.O_CLOEXEC
	if r.Flags&unix.O_PATH == 0 {
		flags |= unix.O_NONBLOCK | unix.O_NOCTTY
	}
	if seen, err := unix.Openat(dir, r.First, unix.O_PATH|unix.O_CLOEXEC|flags&unix.O_NOFOLLOW, 0); err == nil {
		mine := ordinary(seen)
		unix.Close(seen)
		if !mine {
			return Reply{Elsewhere: true}, -1
		}
	}
	unix.Umask(int(r.Umask))
	fd, err := unix.Openat(dir, r.First, flags, r.Mode)
	if err != nil {
		if err == unix.ENXIO || err == unix.EAGAIN || err == unix.ENODEV || inProc(dir, r.First) {
			return Reply{Elsewhere: true}, -1
		}
		return failed(err), -1
	}
	if !ordinary(fd) {
		unix.Close(fd)
		return Reply{Elsewhere: true}, -1
	}
	if flags&unix.O_NONBLOCK != 0 && r.Flags&unix.O_NONBLOCK == 0 {
		now, err := unix.FcntlInt(uintptr(fd), unix.F_GETFL, 0)
		if err == nil {
			_, err = unix.FcntlInt(uintptr(fd), unix.F_SETFL, now&^unix.O_NONBLOCK)
		}
		if err != nil {
			unix.Close(fd)
			return failed(err), -1
		}
	}
	return Reply{Path: s.path(fd)}, fd
}

// check looks at a program without running it.
func (s *skill) check(r *Request, dir int) (Reply, int) {
	flags := unix.O_PATH | unix.O_CLOEXEC | int(r.Flags)&unix.O_NOFOLLOW
	fd, err := unix.Openat(dir, r.First, flags, 0)
	if err != nil {
		return Reply{Errno: failed(err).Errno, Elsewhere: inProc(dir, r.First)}, -1
	}
	defer unix.Close(fd)
	reply := Reply{Path: s.path(fd)}
	if err := unix.Faccessat2(fd, "", unix.X_OK, unix.AT_EMPTY_PATH); err != nil && err != unix.ENOSYS {
		reply.Errno = failed(err).Errno
	}
	return reply, -1
}

// path is where an open file lies, as the box sees it; "" where the kernel does not say.
func (s *skill) path(fd int) string {
	var buffer [MaxPath]byte
	n, err := unix.Readlinkat(s.self, strconv.Itoa(fd), buffer[:])
	if err != nil {
		return ""
	}
	text := string(buffer[:n])
	name, deleted := strings.CutSuffix(text, " (deleted)")
	if deleted && s.at(text, fd) { // its name ends so
		return text
	}
	return name
}

// at says whether that path leads to an open file.
func (s *skill) at(path string, fd int) bool {
	var there, is unix.Stat_t
	return unix.Lstat(path, &there) == nil && unix.Fstat(fd, &is) == nil && there.Dev == is.Dev && there.Ino == is.Ino
}

// ordinary says of an open file that it is the same whoever opens it: a file or a directory, and none of /proc, where "self" is another
// for each process, or of the kernel's other file systems, which look at who has opened a file when it is written.
func ordinary(fd int) bool {
	var st unix.Stat_t
	if unix.Fstat(fd, &st) != nil {
		return false
	}
	if kind := st.Mode & unix.S_IFMT; kind != unix.S_IFREG && kind != unix.S_IFDIR && kind != unix.S_IFLNK {
		return false
	}
	return !onKernel(fd)
}

func onKernel(fd int) bool {
	var fs unix.Statfs_t
	if unix.Fstatfs(fd, &fs) != nil {
		return true
	}
	switch fs.Type {
	case unix.PROC_SUPER_MAGIC, unix.SYSFS_MAGIC, unix.CGROUP_SUPER_MAGIC, unix.CGROUP2_SUPER_MAGIC, unix.DEBUGFS_MAGIC, unix.TRACEFS_MAGIC,
		unix.SECURITYFS_MAGIC, unix.BPF_FS_MAGIC, unix.NSFS_MAGIC, unix.SELINUX_MAGIC, unix.BINFMTFS_MAGIC, unix.DEVPTS_SUPER_MAGIC:
		return true
	}
	return false
}

func onProc(fd int) bool {
	var fs unix.Statfs_t
	return unix.Fstatfs(fd, &fs) == nil && fs.Type == unix.PROC_SUPER_MAGIC
}

// maxSteps bounds a walk: forty links as in the kernel, and the components of the longest path.
const maxSteps = 40 + MaxPath/2

// inProc follows a path as the kernel does and says whether it comes through /proc on its way.
func inProc(dir int, path string) bool {
	start := "."
	if strings.HasPrefix(path, "/") {
		start = "/"
	}
	at, err := unix.Openat(dir, start, unix.O_PATH|unix.O_DIRECTORY|unix.O_CLOEXEC, 0)
	if err != nil {
		return false
	}
	defer func() { unix.Close(at) }()
	enter := func(name string) bool {
		next, err := unix.Openat(at, name, unix.O_PATH|unix.O_NOFOLLOW|unix.O_CLOEXEC, 0)
		if err != nil {
			return false
		}
		unix.Close(at)
		at = next
		return true
	}
	rest := path
	for range maxSteps {
		if strings.HasPrefix(rest, "/") {
			if !enter("/") {
				return false
			}
			rest = strings.TrimLeft(rest, "/")
		}
		if onProc(at) {
			return true
		}
		if rest == "" {
			return false
		}
		name, after, _ := strings.Cut(rest, "/")
		after = strings.TrimLeft(after, "/")
		var target [MaxPath]byte
		if n, err := unix.Readlinkat(at, name, target[:]); err == nil {
			rest = string(target[:n])
			if after != "" {
				rest += "/" + after
			}
			continue
		}
		if !enter(name) {
			return false
		}
		rest = after
	}
	return true // a path that leads in circles is the kernel's to refuse
}
