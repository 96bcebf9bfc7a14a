// Package seccomp decides which system calls a skill may make, and makes the kernel agree.
//
// A profile is a list of rows, each a permission or a refusal with its reason. Decide interprets the rows in plain Go;
// Compile turns the same rows into a BPF program with libseccomp (skillboxd); Install loads that program on every thread
// (the box's init, which needs neither cgo nor libseccomp); Supervise answers and counts what was refused.
//
// The rule for what a refusal looks like to the skill, measured by denying one call at a time to python3, node, git, tar,
// bash and java: a call that is unknown, newer than this list or "not in this kernel" gets ENOSYS, which every program
// takes as a hint to fall back; a known call that is forbidden gets EPERM; a socket family gets EAFNOSUPPORT; a foreign
// architecture is killed, since its numbers mean other calls.
package seccomp

import (
	"fmt"
	"slices"
	"strings"
	"syscall"
)

//go:generate go run gen.go
//go:generate go test . -run TestStockProgramsAreFresh -update

// Spec is what a policy says about system calls. The zero value is the default profile as it stands.
type Spec struct {
	Profile string   // "" and "default" | "strict" | "debug"
	Allow   []string // calls to open besides; Validate says which may be
	Deny    []string // calls to refuse besides
	Report  bool     // refused calls go to a listener (see Supervise) instead of straight back with their errno
	Calls   string   // allowed calls that go there too: "" none, Security, AllCalls
	Files   string   // likewise: "" none, Writes, AllFiles
}

// Action is what happens to a call. The zero value refuses.
type Action uint8

const (
	Refuse Action = iota // the call returns the row's errno
	Allow                // the kernel runs the call
	Kill                 // SIGSYS, the whole process
)

func (a Action) String() string {
	switch a {
	case Allow:
		return "allow"
	case Kill:
		return "kill"
	}
	return "refuse"
}

// Row is one permission or refusal. Of the rows with one name the first whose conditions all hold decides;
// the last one of each name has no condition.
type Row struct {
	Name   string
	Action Action
	Errno  syscall.Errno // of a refusal; never zero there
	When   []Cond
	Reason string
	Quiet  bool // a refusal that ordinary programs probe and fall back from: never reported
	Final  bool // a refusal that no policy can lift
	Watch  bool // a permission whose calls are seen by a Watcher before the kernel runs them
}

// Cond holds when argument Arg (0 to 5), masked, is one of In. Only the low 32 bits count: a filter sees 64-bit registers
// where the kernel reads an int, and a test of all 64 would be fooled by one high bit. For pointers, Arg 6 to 11 are the high
// halves of arguments 0 to 5.
type Cond struct {
	Arg  uint8
	Mask uint32
	In   []uint32
}

func (c Cond) holds(args [6]uint64) bool {
	return slices.Contains(c.In, half(args, c.Arg)&c.Mask)
}

// halves is how many numbers Cond.Arg can be.
const halves = 12

func half(args [6]uint64, n uint8) uint32 {
	if n >= halves/2 {
		return uint32(args[n-halves/2] >> 32)
	}
	return uint32(args[n])
}

// arg holds when the argument is one of the values.
func arg(n uint8, in ...uint32) Cond { return Cond{n, 0xffffffff, in} }

// bits holds when the masked argument is one of the values.
func bits(n uint8, mask uint32, in ...uint32) Cond { return Cond{n, mask, in} }

// group is a set of rows without conditions that share their reason. Names are separated by spaces.
type group struct {
	names  string
	action Action
	errno  syscall.Errno
	quiet  bool
	final  bool
	reason string
}

func (g group) rows() []Row {
	var rows []Row
	for _, name := range strings.Fields(g.names) {
		rows = append(rows, Row{Name: name, Action: g.action, Errno: g.errno, Reason: g.reason, Quiet: g.quiet, Final: g.final})
	}
	return rows
}

// Profiles returns the names that Spec.Profile takes, the default first.
func Profiles() []string { return []string{"default", "strict", "debug"} }

// Rows returns the rows of a profile ("" is the default one), and nil for a profile that does not exist.
// Every call that this package knows by name has a row, on architectures that lack the call too.
func Rows(profile string) []Row {
	var rows []Row
	for _, part := range [][]group{fileGroups, processGroups, ipcGroups, kernelGroups} {
		for _, g := range part {
			rows = append(rows, g.rows()...)
		}
	}
	rows = append(rows, argRows()...)
	switch profile {
	case "", "default":
		return rows
	case "strict":
		return replace(rows, strictRows())
	case "debug":
		return replace(rows, debugRows())
	}
	return nil
}

// replace drops the rows of every call that has rows in better, and appends those.
func replace(rows, better []Row) []Row {
	replaced := map[string]bool{}
	for _, r := range better {
		replaced[r.Name] = true
	}
	rows = slices.DeleteFunc(rows, func(r Row) bool { return replaced[r.Name] })
	return append(rows, better...)
}

// rows returns the profile's rows with the policy's own words on top. The Spec has been validated.
func (s Spec) rows() []Row {
	rows := Rows(s.Profile)
	var better []Row
	for _, name := range s.Allow {
		better = append(better, Row{Name: name, Action: Allow, Reason: "the policy's syscalls.allow names it"})
	}
	for _, name := range s.Deny {
		if !refused(rows, name) { // a refusal keeps its own errno: clone3 as EPERM breaks every thread
			better = append(better, Row{Name: name, Errno: denyErrno(name), Reason: "the policy's syscalls.deny names it"})
		}
	}
	return s.watch(replace(rows, better))
}

// denyErrno is EPERM, but ENOSYS where programs fall back from a call they find missing and break on one forbidden: statx, copy_file_range
// and fchmodat2 break programs when they say EPERM, and the others are probed in the same way.
func denyErrno(name string) syscall.Errno {
	switch name {
	case "statx", "copy_file_range", "fchmodat2", "faccessat2", "openat2", "close_range", "epoll_pwait2", "memfd_create", "preadv2", "pwritev2", "renameat2", "rseq":
		return syscall.ENOSYS
	}
	return syscall.EPERM
}

// refused says whether every row of the call refuses.
func refused(rows []Row, name string) bool {
	return !slices.ContainsFunc(rows, func(r Row) bool { return r.Name == name && r.Action == Allow })
}

// Program is a compiled Spec: raw arrays of struct sock_filter in the order in which they are to be installed. It belongs
// to the architecture it was compiled on, and travels from skillboxd to the box's init.
type Program struct {
	Filters  [][]byte
	Listener int // index of the filter that gets the listener, or -1
}

// UnknownError says that a policy names a system call, or a profile, that does not exist.
type UnknownError struct {
	What, Name, Nearest string // What is "system call" or "profile"; Nearest may be empty
}

func (e *UnknownError) Error() string {
	if e.Nearest == "" {
		return fmt.Sprintf("seccomp: no %s is named %q", e.What, e.Name)
	}
	return fmt.Sprintf("seccomp: no %s is named %q: did you mean %s?", e.What, e.Name, e.Nearest)
}
