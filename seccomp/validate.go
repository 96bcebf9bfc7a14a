package seccomp

import (
	"fmt"
	"slices"
	"strings"
)

// Validate tells whether a policy's words about system calls can be followed: profile and calls exist, nothing that our own
// init needs is denied, nothing is allowed that may never be. Naming what holds anyway is no error. The first mistake is
// returned; an unknown name as *UnknownError.
func Validate(s Spec) error {
	if s.Profile != "" && !slices.Contains(Profiles(), s.Profile) {
		return &UnknownError{What: "profile", Name: s.Profile, Nearest: nearest(s.Profile, Profiles())}
	}
	if len(s.Allow)+len(s.Deny) == 0 {
		return nil // the rows, a tenth of a millisecond to lay out, need not be asked
	}
	rows := Rows(s.Profile)
	for _, name := range slices.Concat(s.Allow, s.Deny) {
		if !known(rows, name) {
			return &UnknownError{What: "system call", Name: name, Nearest: nearest(name, rowNames(rows))}
		}
	}
	for _, name := range s.Deny {
		if why := initNeeds(name); why != "" {
			return fmt.Errorf("seccomp: deny %s: skillbox's own init, which lives under the same filter, needs it: %s", name, why)
		}
	}
	for _, name := range s.Allow {
		if slices.Contains(s.Deny, name) {
			return fmt.Errorf("seccomp: %s is both allowed and denied", name)
		}
		if why := neverOpen(rows, name); why != "" {
			return fmt.Errorf("seccomp: allow %s: no policy may: %s", name, why)
		}
	}
	return nil
}

// neverOpen returns the reason why the call cannot be allowed as a whole, or "".
func neverOpen(rows []Row, name string) string {
	for _, r := range rows {
		if r.Name == name && r.Action == Refuse && r.Final && !r.Quiet {
			return r.Reason
		}
	}
	for _, r := range rows { // a quiet refusal is the poorer explanation
		if r.Name == name && r.Action == Refuse && r.Final {
			return r.Reason
		}
	}
	return ""
}

// initGroups is what the box's init calls between the installation of the filter and the end of the skill.
var initGroups = []group{
	{names: "read write close recvmsg sendmsg openat fcntl fstat newfstatat mkdirat fchmod lseek dup3 dup2 close_range", reason: "receives the call and its descriptors, writes parameters, hands over stdio"},
	{names: "clone vfork execve exit exit_group wait4 waitid kill tgkill chdir setsid setpgid prctl prlimit64 pipe2 getpid getppid gettid ioctl", reason: "starts the skill, forwards signals, reaps"},
	{names: "mmap munmap madvise mprotect brk futex nanosleep clock_gettime clock_nanosleep sched_yield sched_getaffinity epoll_create1 epoll_ctl epoll_pwait epoll_wait eventfd2 getrandom uname arch_prctl set_tid_address set_robust_list restart_syscall", reason: "the runtime of the language it is written in"},
	{names: "rt_sigaction rt_sigprocmask rt_sigreturn sigaltstack", reason: "its signal handlers"},
}

// initNeeds returns what the box's init needs the call for, or "".
func initNeeds(name string) string {
	for _, g := range initGroups {
		if slices.Contains(strings.Fields(g.names), name) {
			return g.reason
		}
	}
	return ""
}

func known(rows []Row, name string) bool {
	return slices.ContainsFunc(rows, func(r Row) bool { return r.Name == name })
}

func rowNames(rows []Row) []string {
	var all []string
	for _, r := range rows {
		all = append(all, r.Name)
	}
	return all
}

// nearest returns the candidate with the smallest edit distance, or "" when none is near enough to be meant. The names of
// strangers are only measured up to a length that no system call has.
func nearest(name string, candidates []string) string {
	if len(name) > 40 {
		return ""
	}
	best, at := "", len(name)/3+2
	for _, c := range candidates {
		if d := distance(strings.ToLower(name), c); d < at {
			best, at = c, d
		}
	}
	return best
}

// distance is Levenshtein's.
func distance(a, b string) int {
	row := make([]int, len(b)+1)
	for j := range row {
		row[j] = j
	}
	for i := range len(a) {
		diagonal := row[0]
		row[0] = i + 1
		for j := range len(b) {
			cost := diagonal
			if a[i] != b[j] {
				cost = 1 + min(diagonal, row[j], row[j+1])
			}
			diagonal, row[j+1] = row[j+1], cost
		}
	}
	return row[len(b)]
}
