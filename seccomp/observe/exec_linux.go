package observe

import (
	"encoding/binary"
	"fmt"
	"slices"
	"strings"

	"golang.org/x/sys/unix"

	"skillbox/audit"
	"skillbox/seccomp"
	"skillbox/seccomp/opener"
)

// Bounds of what is read of a program's words.
const (
	maxWords = 64
	maxWord  = 4096
	maxArgv  = 12 << 10 // of all
)

func (c *call) execve() seccomp.Answer { return c.exec(-1, 0, 1, 0) }

func (c *call) execveat() seccomp.Answer { return c.exec(0, 1, 2, c.arg(4)) }

// exec says which program is to be started. The kernel starts it: what it finds in memory then may be another.
func (c *call) exec(dir, argument, argv, flags int) seccomp.Answer {
	record := audit.Exec{PID: c.caller.pid, Parent: insideOf(c.caller.parent), Claimed: []string{"path", "argv", "verdict"}}
	if c.caller.parent == c.box.Init {
		record.Parent = 1
	}
	record.Argv = c.words(c.n.Args[argv])
	record.Verdict = audit.Allowed
	n, errno := c.named(dir, argument)
	defer n.close()
	switch {
	case errno != 0:
		return seccomp.Fail(errno)
	case n.text != "":
		if record.Parent == 1 && strings.HasPrefix(n.text, c.box.Own) {
			// Init's own, to no effect. A skill's first process has the same parent, and another thread of it could put a program's name
			// there now: so this is what the kernel would say, and the kernel does not look again.
			return seccomp.Fail(unix.ENOTDIR)
		}
		record.Path = n.asked()
		request := &opener.Request{Op: opener.Check, First: n.text}
		if flags&unix.AT_SYMLINK_NOFOLLOW != 0 {
			request.Flags = unix.O_NOFOLLOW
		}
		reply, _, elsewhere := c.do(request, n)
		if reply.Path != "" {
			record.Path = reply.Path
		}
		if !elsewhere {
			record.Outcome = result(unix.Errno(reply.Errno), "filesystem")
		}
	case flags&unix.AT_EMPTY_PATH != 0: // an open file: fexecve(3)
		record.Path = n.at
	default:
		return seccomp.Fail(unix.ENOENT)
	}
	c.note(record)
	return seccomp.Continue()
}

// words reads a list of pointers to strings.
func (c *call) words(at uint64) []string {
	var all []string
	left := maxArgv
	for i := range uint64(maxWords) {
		var pointer [8]byte
		if n, err := readMemory(c.n.PID, at+8*i, pointer[:]); err != nil || n < len(pointer) {
			break
		}
		address := binary.NativeEndian.Uint64(pointer[:])
		if address == 0 {
			break
		}
		word, errno := readText(c.n.PID, address, min(maxWord, left))
		if errno != 0 {
			word += "…"
		}
		all = append(all, word)
		if left -= len(word); left <= 0 {
			break
		}
	}
	return all
}

// other is a call of which only its registers are known.
func (c *call) other() seccomp.Answer {
	record := audit.Syscall{PID: c.caller.pid, Name: c.n.Name, Args: c.arguments(), Outcome: audit.Outcome{Verdict: audit.Allowed}}
	if c.n.Name == "memfd_create" {
		if name, _ := readText(c.n.PID, c.n.Args[0], 249); name != "" {
			record.Args, record.Claimed = []string{name}, []string{"args"}
		}
	}
	c.note(record)
	return seccomp.Continue()
}

// arguments are those that tell something, as words: pointers are not among them.
func (c *call) arguments() []string {
	switch c.n.Name {
	case "kill", "pidfd_send_signal":
		return []string{fmt.Sprint(c.arg(0)), signalName(c.arg(1))}
	case "ptrace":
		return []string{fmt.Sprintf("request %d", c.arg(0)), fmt.Sprintf("process %d", c.arg(1))}
	case "process_vm_readv", "process_vm_writev":
		return []string{fmt.Sprintf("process %d", c.arg(0))}
	}
	if slices.Contains([]string{
		"setuid", "setgid", "setreuid", "setregid", "setresuid", "setresgid", "setfsuid", "setfsgid", "unshare", "setns", "personality", "socket", "socketpair",
	}, c.n.Name) {
		return []string{fmt.Sprintf("%d", c.arg(0)), fmt.Sprintf("%d", c.arg(1)), fmt.Sprintf("%d", c.arg(2))}
	}
	return nil
}

func signalName(n int) string {
	if name := unix.SignalName(unix.Signal(n)); name != "" {
		return name
	}
	return fmt.Sprintf("signal %d", n)
}
