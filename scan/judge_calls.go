package scan

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"strings"

	"skillbox/audit"
)

// dangerous are calls that break out of sandboxes, with how bad a try is. Runtimes make those that are Low by themselves, to see whether they are
// there. What is not here, and was refused, is Low too.
var dangerous = map[string]Severity{
	"ptrace": High, "process_vm_readv": High, "process_vm_writev": High, "mount": High, "umount2": High, "pivot_root": High, "chroot": High, "setns": High, "unshare": High,
	"open_by_handle_at": High, "name_to_handle_at": Medium, "bpf": High, "perf_event_open": High, "keyctl": High, "add_key": High, "request_key": High,
	"init_module": Critical, "finit_module": Critical, "delete_module": Critical, "kexec_load": Critical, "kexec_file_load": Critical, "reboot": Critical,
	"userfaultfd": High, "fsopen": High, "fsmount": High, "move_mount": High, "open_tree": High, "mount_setattr": High, "iopl": High, "ioperm": High, "swapon": High,
	"settimeofday": Medium, "clock_settime": Medium, "sethostname": Medium, "setuid": Low, "setgid": Low, "capset": Medium, "mknod": Medium, "mknodat": Medium,
	"io_uring_setup": Low, "personality": Medium, "kcmp": Medium, "pidfd_getfd": High, "seccomp": Low, "clone3": Low, "memfd_create": Low,
}

// calls judges system calls that were refused or are watched.
func (s *sight) calls() {
	for _, e := range s.run.Events {
		d, ok := e.Detail.(audit.Syscall)
		if !ok {
			continue
		}
		severity, known := dangerous[d.Name]
		switch {
		case d.Verdict != audit.Denied && severity < Medium:
			continue // it is watched, and no harm
		case !known:
			severity = Low
		}
		if slices.Contains(s.declared.Syscalls.Allow, d.Name) {
			severity = Low
		}
		what := d.Name
		if len(d.Args) > 0 {
			what += "(" + strings.Join(d.Args, ", ") + ")"
		}
		if d.Arch != "" {
			what, severity = what+" of "+d.Arch, max(severity, High) // past a filter that knows only the native ones
		}
		refused := ""
		if d.Verdict == audit.Denied {
			refused = " and was refused"
		}
		s.note(SyscallDangerous, severity, s.text.holding(d.Name), fmt.Sprintf("The skill called %s%s.", seen(what), refused), e)
	}
}

// Figures of a run that does nothing but compute: this much of its time, and this long.
const (
	busyShare   = 0.7
	busySeconds = 4
)

// limits judges what was used.
func (s *sight) limits() {
	for _, e := range s.run.Events {
		switch d := e.Detail.(type) {
		case audit.Limit:
			severity := Medium
			switch d.Limit {
			case "timeout":
				continue // see below
			case "resources.pids":
				severity = High // it went on forking
			}
			s.note(ResourceAbuse, severity, place{}, fmt.Sprintf("The skill met the limit %s of %d.", d.Limit, d.Value), e)
		case audit.Ended:
			s.busy(e, d)
		}
	}
}

func (s *sight) busy(e audit.Record, d audit.Ended) {
	used, lasted := (d.Usage.UserMS+d.Usage.SystemMS)/1000, d.DurationMS/1000
	if used >= busySeconds && used >= busyShare*lasted && (d.Verdict == "timed_out" || d.Verdict == "signaled") {
		s.note(ResourceAbuse, None, place{}, "The skill kept a processor busy until its time was over.", e)
	} else if d.Verdict == "timed_out" {
		s.note(ResourceAbuse, Low, place{}, "The skill did not end in its time.", e)
	}
}

func sortedKeys[V any](m map[string]V) []string { return slices.Sorted(maps.Keys(m)) }

// base is the name of a program without its directory and version: python3.11 is python.
func base(program string) string {
	name := program[strings.LastIndexByte(program, '/')+1:]
	return cmp.Or(strings.TrimRight(name, "0123456789."), name)
}
