//go:build linux && cgo

package seccomp

import (
	"errors"
	"fmt"
	"io"
	"maps"
	"os"
	"slices"
	"strings"
	"sync"

	libseccomp "github.com/seccomp/libseccomp-golang"
	"golang.org/x/sys/unix"
)

// Compile makes the program that has the kernel decide as Decide does. The profiles as they stand come ready-made with this
// package; a Spec with calls of its own costs a run of libseccomp, some tens of milliseconds: see Cache.
func Compile(s Spec) (*Program, error) {
	if err := Validate(s); err != nil {
		return nil, err
	}
	if p := stock(s); p != nil {
		return p, nil
	}
	return compile(s)
}

// compile has libseccomp build the program. It is given numbers, never names: 2.5.4, Debian 12's, does not know the newest
// calls. Everything is in one filter, because a chain can have one listener and because an errno from another filter would
// win over it.
func compile(s Spec) (*Program, error) {
	f, err := libseccomp.NewFilter(libseccomp.ActErrno.SetReturnCode(int16(defaultErrno)))
	if err != nil {
		return nil, fmt.Errorf("seccomp: new filter: %w", err)
	}
	defer f.Release()
	if err := f.SetBadArchAction(libseccomp.ActKillProcess); err != nil {
		return nil, fmt.Errorf("seccomp: action for foreign architectures: %w", err)
	}
	// A binary tree over the numbers. Older libraries (before 2.5) make a longer, equal program.
	if err := f.SetOptimize(2); err != nil && !isTooOld(err) {
		return nil, fmt.Errorf("seccomp: optimise: %w", err)
	}

	listener := -1
	rows := newTable(s)
	for _, nr := range slices.Sorted(maps.Keys(rows)) { // sorted: equal Specs make equal programs
		for _, c := range cubes(rows[nr]) {
			if err := add(f, nr, c, s.Report); err != nil {
				return nil, fmt.Errorf("seccomp: rule for %s: %w", c.row.Name, err)
			}
			if c.row.Watch || s.Report && c.row.reported() {
				listener = 0
			}
		}
	}
	code, err := export(f)
	if err != nil {
		return nil, err
	}
	return &Program{Filters: [][]byte{code}, Listener: listener}, nil
}

// reported says whether the row's calls go to the listener, where there is one.
func (r Row) reported() bool { return r.Action == Refuse && !r.Quiet }

func add(f *libseccomp.ScmpFilter, nr int32, c cube, report bool) error {
	action := libseccomp.ActAllow
	switch {
	case c.row.Watch, report && c.row.reported():
		action = libseccomp.ActNotify
	case c.row.Action == Refuse && c.row.Errno == defaultErrno:
		return nil // the filter's default, which libseccomp refuses to hear twice
	case c.row.Action == Refuse:
		action = libseccomp.ActErrno.SetReturnCode(int16(c.row.Errno))
	case c.row.Action == Kill:
		action = libseccomp.ActKillProcess
	}
	var conds []libseccomp.ScmpCondition
	for n := range halves / 2 {
		mask := uint64(c.mask[n]) | uint64(c.mask[n+halves/2])<<32
		if mask == 0 {
			continue
		}
		value := uint64(c.value[n]) | uint64(c.value[n+halves/2])<<32
		cond, err := libseccomp.MakeCondition(uint(n), libseccomp.CompareMaskedEqual, mask, value)
		if err != nil {
			return err
		}
		conds = append(conds, cond)
	}
	if len(conds) == 0 {
		return f.AddRuleExact(libseccomp.ScmpSyscall(nr), action)
	}
	return f.AddRuleConditionalExact(libseccomp.ScmpSyscall(nr), action, conds)
}

// export goes through a memory file: the call that fills a buffer is newer than the libseccomp we support.
func export(f *libseccomp.ScmpFilter) ([]byte, error) {
	fd, err := unix.MemfdCreate("seccomp", unix.MFD_CLOEXEC)
	if err != nil {
		return nil, fmt.Errorf("seccomp: memory file: %w", err)
	}
	file := os.NewFile(uintptr(fd), "seccomp")
	defer file.Close()
	if err := f.ExportBPF(file); err != nil {
		return nil, fmt.Errorf("seccomp: export: %w", err)
	}
	if _, err := file.Seek(0, io.SeekStart); err != nil {
		return nil, fmt.Errorf("seccomp: export: %w", err)
	}
	return io.ReadAll(file)
}

func isTooOld(err error) bool {
	var old libseccomp.VersionError
	return errors.As(err, &old)
}

// Cache remembers compiled programs, so that a helper compiles each policy once. The zero value is ready; it is safe for
// concurrent use, and holds at most 64 programs.
type Cache struct {
	mu       sync.Mutex
	programs map[string]*Program
}

// Compile is Compile, remembered. The program must not be changed.
func (c *Cache) Compile(s Spec) (*Program, error) {
	key := fmt.Sprintf("%s\n%t\n%s\n%s\n%s\n%s", s.Profile, s.Report, s.Calls, s.Files, strings.Join(s.Allow, " "), strings.Join(s.Deny, " "))
	c.mu.Lock()
	defer c.mu.Unlock()
	if p := c.programs[key]; p != nil {
		return p, nil
	}
	p, err := Compile(s)
	if err != nil {
		return nil, err
	}
	if len(c.programs) >= 64 {
		clear(c.programs)
	}
	if c.programs == nil {
		c.programs = map[string]*Program{}
	}
	c.programs[key] = p
	return p, nil
}
