package observe

import (
	"errors"
	"path"
	"slices"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"

	"skillbox/audit"
	"skillbox/seccomp"
	"skillbox/seccomp/opener"
)

// name is a path that a call names, as it was read once.
type name struct {
	text  string
	below bool   // it is relative
	dir   int    // what it is relative to, as a descriptor of ours, or -1
	at    string // where that is, as the box sees it; "" where nobody can say
}

// named reads a path; close the name. One that cannot be read fails with the kernel's error here and now: were the call let go on, another
// thread could put the path there meanwhile, and nobody would have seen it.
func (c *call) named(dir, argument int) (n name, errno unix.Errno) {
	n.dir = -1
	n.text, errno = readText(c.n.PID, c.n.Args[argument], opener.MaxPath)
	if n.below = !strings.HasPrefix(n.text, "/"); !n.below {
		return n, errno
	}
	link := "cwd"
	if dir >= 0 && c.arg(dir) != unix.AT_FDCWD {
		link = "fd/" + strconv.Itoa(c.arg(dir))
	}
	// Looked up once: what is told is the directory that the call starts from.
	if fd, err := c.onPath(link); err == nil {
		n.dir, n.at = fd, ownLink(fd)
	}
	return n, errno
}

func (n name) close() {
	if n.dir >= 0 {
		unix.Close(n.dir)
	}
}

// asked is the path as the call says it: no link in it is followed.
func (n name) asked() string {
	switch {
	case !n.below:
		return n.text
	case slices.Contains(strings.Split(n.text, "/"), ".."): // which leads elsewhere behind a link
		return strings.TrimSuffix(n.at, "/") + "/" + n.text
	}
	return path.Join(n.at, n.text)
}

// do has the opener make a call. elsewhere says that the kernel must.
func (c *call) do(r *opener.Request, names ...name) (reply opener.Reply, file int, elsewhere bool) {
	one, err := c.opener()
	if err != nil {
		c.fail(err)
		return reply, -1, true
	}
	var dirs []int
	for _, n := range names {
		if n.below && n.dir < 0 { // no such descriptor: the kernel says what that is
			return reply, -1, true
		}
		if n.below {
			dirs = slices.Repeat([]int{n.dir}, len(names))
		}
	}
	for i, n := range names {
		if n.below {
			dirs[i] = n.dir // an absolute one starts from the root, whatever stands for it
		}
	}
	if !c.n.Valid() { // what was read may be another process's
		return reply, -1, true
	}
	if reply, file, err = one.Do(r, dirs...); err != nil {
		c.fail(err)
		return reply, -1, true
	}
	return reply, file, reply.Elsewhere
}

func (c *call) open() seccomp.Answer   { return c.openAt(-1, 0, c.arg(1), uint32(c.arg(2))) }
func (c *call) openat() seccomp.Answer { return c.openAt(0, 1, c.arg(2), uint32(c.arg(3))) }
func (c *call) creat() seccomp.Answer {
	return c.openAt(-1, 0, unix.O_CREAT|unix.O_WRONLY|unix.O_TRUNC, uint32(c.arg(1)))
}

// openAt opens in the skill's place, so that what was recorded is what the skill gets.
func (c *call) openAt(dir, argument, flags int, mode uint32) seccomp.Answer {
	n, errno := c.named(dir, argument)
	defer n.close()
	if errno != 0 {
		return seccomp.Fail(errno)
	}
	if n.text == "" {
		return seccomp.Fail(unix.ENOENT)
	}
	record := audit.File{PID: c.caller.pid, Op: opened(flags), Path: n.asked(), Flags: openFlags(flags)}
	const creates = unix.O_CREAT | unix.O_TMPFILE&^unix.O_DIRECTORY
	if flags&creates == 0 {
		mode = 0
	}
	reply, file, elsewhere := c.do(&opener.Request{Op: opener.Open, Flags: uint32(flags), Mode: mode & 0o7777, Umask: c.caller.umask, First: n.text}, n)
	if elsewhere {
		record.Claimed, record.Verdict = []string{"path", "verdict"}, audit.Allowed
		c.note(record)
		return seccomp.Continue()
	}
	errno = unix.Errno(reply.Errno)
	if file >= 0 {
		if record.Path = reply.Path; record.Path == "" {
			record.Path, record.Claimed = n.asked(), []string{"path"}
		}
		answer, err := c.give(file, flags)
		if err == nil {
			record.Outcome = result(0, "")
			c.note(record)
			return answer
		}
		if !errors.As(err, &errno) { // its limit of open files, or it is gone
			errno = unix.EIO
		}
	}
	record.Outcome = result(errno, "filesystem")
	c.note(record)
	return seccomp.Fail(errno)
}

// give hands an open file over and closes it. One that can be written is closed before the skill goes on: it may close it too and start it
// as a program at once.
func (c *call) give(file, flags int) (seccomp.Answer, error) {
	if flags&unix.O_ACCMODE == unix.O_RDONLY {
		defer unix.Close(file)
		return seccomp.Later(), c.n.AddFD(file, flags&unix.O_CLOEXEC != 0)
	}
	number, err := c.n.Install(file, flags&unix.O_CLOEXEC != 0)
	unix.Close(file)
	return seccomp.Return(int64(number)), err
}

func opened(flags int) string {
	switch {
	case flags&unix.O_CREAT != 0:
		return "create"
	case flags&unix.O_ACCMODE != unix.O_RDONLY || flags&unix.O_TRUNC != 0:
		return "write"
	}
	return "open"
}

func openFlags(flags int) []string {
	all := []string{[]string{"O_RDONLY", "O_WRONLY", "O_RDWR", "O_ACCMODE"}[flags&unix.O_ACCMODE]}
	if flags&unix.O_PATH != 0 {
		all = []string{"O_PATH"}
	}
	for _, f := range []struct {
		bit  int
		name string
	}{
		{unix.O_CREAT, "O_CREAT"}, {unix.O_EXCL, "O_EXCL"}, {unix.O_TRUNC, "O_TRUNC"}, {unix.O_APPEND, "O_APPEND"}, {unix.O_DIRECTORY, "O_DIRECTORY"},
	} {
		if flags&f.bit != 0 {
			all = append(all, f.name)
		}
	}
	return all
}

// change describes a call that changes files: where its arguments are. -1 is one that it has not.
type change struct {
	op          string // as a record says it
	call        opener.Op
	dir, path   int
	toDir, to   int
	flags, mode int
	device      int
	always      uint32 // a flag that is meant without being there
}

func plain(op string, call opener.Op, dir, path int) change {
	return change{op: op, call: call, dir: dir, path: path, toDir: -1, to: -1, flags: -1, mode: -1, device: -1}
}

func (c change) with(set func(*change)) change {
	set(&c)
	return c
}

var changes = map[string]change{
	"unlink":    plain("remove", opener.Unlink, -1, 0),
	"rmdir":     plain("remove", opener.Unlink, -1, 0).with(func(c *change) { c.always = unix.AT_REMOVEDIR }),
	"unlinkat":  plain("remove", opener.Unlink, 0, 1).with(func(c *change) { c.flags = 2 }),
	"mkdir":     plain("directory", opener.Mkdir, -1, 0).with(func(c *change) { c.mode = 1 }),
	"mkdirat":   plain("directory", opener.Mkdir, 0, 1).with(func(c *change) { c.mode = 2 }),
	"mknod":     plain("create", opener.Mknod, -1, 0).with(func(c *change) { c.mode, c.device = 1, 2 }),
	"mknodat":   plain("create", opener.Mknod, 0, 1).with(func(c *change) { c.mode, c.device = 2, 3 }),
	"rename":    plain("rename", opener.Rename, -1, 0).with(func(c *change) { c.to = 1 }),
	"renameat":  plain("rename", opener.Rename, 0, 1).with(func(c *change) { c.toDir, c.to = 2, 3 }),
	"renameat2": plain("rename", opener.Rename, 0, 1).with(func(c *change) { c.toDir, c.to, c.flags = 2, 3, 4 }),
	"link":      plain("link", opener.Link, -1, 0).with(func(c *change) { c.to = 1 }),
	"linkat":    plain("link", opener.Link, 0, 1).with(func(c *change) { c.toDir, c.to, c.flags = 2, 3, 4 }),
	"symlink":   plain("link", opener.Symlink, -1, 0).with(func(c *change) { c.to = 1 }),
	"symlinkat": plain("link", opener.Symlink, -1, 0).with(func(c *change) { c.toDir, c.to = 1, 2 }),
	"chmod":     plain("mode", opener.Chmod, -1, 0).with(func(c *change) { c.mode = 1 }),
	"fchmodat":  plain("mode", opener.Chmod, 0, 1).with(func(c *change) { c.mode = 2 }),
	"fchmodat2": plain("mode", opener.Chmod, 0, 1).with(func(c *change) { c.mode, c.flags = 2, 3 }),
	"truncate":  plain("write", opener.Truncate, -1, 0).with(func(c *change) { c.device = 1 }),
}

// change makes a change of files in the skill's place.
func (c *call) change(k change) seccomp.Answer {
	first, errno := c.named(k.dir, k.path)
	defer first.close()
	if errno != 0 {
		return seccomp.Fail(errno)
	}
	names := []name{first}
	r := &opener.Request{Op: k.call, Flags: k.always, Umask: c.caller.umask, First: first.text}
	record := audit.File{PID: c.caller.pid, Op: k.op, Path: first.asked()}
	if k.to >= 0 {
		second, errno := c.named(k.toDir, k.to)
		defer second.close()
		if errno != 0 {
			return seccomp.Fail(errno)
		}
		names = append(names, second)
		r.Second, record.To = second.text, second.asked()
	}
	if k.call == opener.Symlink { // the text may be anything
		record.Path, record.To = record.To, first.text
	}
	if k.flags >= 0 {
		r.Flags |= uint32(c.arg(k.flags))
	}
	if k.mode >= 0 {
		r.Mode = uint32(c.arg(k.mode))
	}
	if k.device >= 0 {
		r.Device = c.n.Args[k.device]
	}
	// A mode of a link, and a name for an open file, need what only the caller has.
	if k.call == opener.Chmod && r.Flags != 0 || r.Flags&unix.AT_EMPTY_PATH != 0 {
		record.Claimed, record.Verdict = []string{"path", "to", "verdict"}, audit.Allowed
		c.note(record)
		return seccomp.Continue()
	}
	reply, _, elsewhere := c.do(r, names...)
	if elsewhere {
		record.Claimed, record.Verdict = []string{"path", "to", "verdict"}, audit.Allowed
		c.note(record)
		return seccomp.Continue()
	}
	record.Outcome = result(unix.Errno(reply.Errno), "filesystem")
	if k.call == opener.Symlink {
		reply.Path, reply.To = reply.To, record.To
	}
	if reply.Path != "" {
		record.Path = reply.Path
	} else if reply.Errno == 0 {
		record.Claimed = append(record.Claimed, "path")
	}
	if reply.To != "" {
		record.To = reply.To
	} else if reply.Errno == 0 && record.To != "" {
		record.Claimed = append(record.Claimed, "to")
	}
	c.note(record)
	if reply.Errno != 0 {
		return seccomp.Fail(unix.Errno(reply.Errno))
	}
	return seccomp.Return(0)
}

// owner leaves it to the kernel, which translates ids from the caller's namespace.
func (c *call) owner(dir, argument int) seccomp.Answer {
	n, errno := c.named(dir, argument)
	defer n.close()
	if errno != 0 {
		return seccomp.Fail(errno)
	}
	c.note(audit.File{
		PID: c.caller.pid, Op: "owner", Path: n.asked(), Claimed: []string{"path", "verdict"}, Outcome: audit.Outcome{Verdict: audit.Allowed},
	})
	return seccomp.Continue()
}

// ofOpen records a change of the mode or owner of an open file, and leaves it to the kernel: another thread may give the number to
// another file meanwhile.
func (c *call) ofOpen(op string) seccomp.Answer {
	at, err := c.onPath("fd/" + strconv.Itoa(c.arg(0)))
	if err == unix.ENOENT {
		return seccomp.Fail(unix.EBADF)
	}
	record := audit.File{PID: c.caller.pid, Op: op, Claimed: []string{"path", "verdict"}, Outcome: audit.Outcome{Verdict: audit.Allowed}}
	if err == nil {
		record.Path = ownLink(at)
		unix.Close(at)
	}
	c.note(record)
	return seccomp.Continue()
}
