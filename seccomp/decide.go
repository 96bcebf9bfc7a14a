package seccomp

import (
	"slices"
	"sort"
	"syscall"
)

// Call is what the kernel shows a filter: struct seccomp_data without the instruction pointer.
type Call struct {
	Arch uint32 // AUDIT_ARCH_*
	Nr   int32
	Args [6]uint64
}

// Verdict is what becomes of a call. Row is never nil.
type Verdict struct {
	Action
	Errno syscall.Errno // of a refusal
	Row   *Row
}

// number is one entry of names.
type number struct {
	name string
	nr   int32
}

// numberOf returns a call's number on this architecture.
func numberOf(name string) (int32, bool) {
	i := sort.Search(len(names), func(i int) bool { return names[i].name >= name })
	if i == len(names) || names[i].name != name {
		return 0, false
	}
	return names[i].nr, true
}

// NativeCall returns the call of that name with these arguments on this architecture; ok is false where there is none.
func NativeCall(name string, args ...uint64) (c Call, ok bool) {
	c.Arch = nativeArch
	c.Nr, ok = numberOf(name)
	copy(c.Args[:], args)
	return c, ok
}

// Decide tells what the compiled filter does with a call, without a kernel. The Spec must be valid.
func Decide(s Spec, c Call) Verdict { return newTable(s).decide(c) }

// table is a Spec's rows by number, for many decisions.
type table map[int32][]Row

func newTable(s Spec) table {
	t := table{}
	for _, r := range s.rows() {
		if nr, ok := numberOf(r.Name); ok {
			t[nr] = append(t[nr], r)
		}
	}
	return t
}

func (t table) decide(c Call) Verdict {
	if c.Arch != nativeArch || isX32(c.Nr) {
		return Verdict{Action: Kill, Row: &Row{Action: Kill, Reason: "a foreign architecture's numbers mean other calls"}}
	}
	for _, r := range t[c.Nr] {
		if !slices.ContainsFunc(r.When, func(w Cond) bool { return !w.holds(c.Args) }) {
			return Verdict{Action: r.Action, Errno: r.Errno, Row: &r}
		}
	}
	return Verdict{Errno: defaultErrno, Row: &Row{Errno: defaultErrno, Quiet: true, Final: true, Reason: "unknown to this profile, so answered as a kernel that lacks it would"}}
}

// defaultErrno answers every call that has no row.
const defaultErrno = syscall.ENOSYS

// isX32 tells the numbers of x32, which share x86-64's architecture word. -1 is no call: a tracer's way to skip one.
func isX32(nr int32) bool {
	const bit = 0x40000000
	return hasX32 && uint32(nr) >= bit && nr != -1
}
