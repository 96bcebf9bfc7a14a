package seccomp

import (
	"errors"
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"

	"golang.org/x/sys/unix"
)

var update = flag.Bool("update", false, "write the golden files and the stock programs")

func TestEveryNameHasARowAndEveryRowAReason(t *testing.T) {
	for _, profile := range Profiles() {
		rows := Rows(profile)
		for _, n := range names {
			if !known(rows, n.name) {
				t.Errorf("%s: %s has no row", profile, n.name)
			}
		}
		for _, r := range rows {
			if r.Reason == "" {
				t.Errorf("%s: %s has no reason", profile, r.Name)
			}
			if (r.Action == Refuse) != (r.Errno != 0) {
				t.Errorf("%s: %s: action %v with errno %v", profile, r.Name, r.Action, r.Errno)
			}
			if r.Action != Refuse && (r.Quiet || r.Final) {
				t.Errorf("%s: %s: only a refusal can be quiet or final", profile, r.Name)
			}
		}
	}
}

func TestTheLastRowOfACallHasNoConditionAndTheOthersHave(t *testing.T) {
	for _, profile := range Profiles() {
		for nr, rows := range newTable(Spec{Profile: profile}) {
			for i, r := range rows {
				if last := i == len(rows)-1; last != (len(r.When) == 0) {
					t.Errorf("%s: %s (%d): row %d of %d has %d conditions", profile, r.Name, nr, i+1, len(rows), len(r.When))
				}
				for _, c := range r.When {
					for _, v := range c.In {
						if v&^c.Mask != 0 {
							t.Errorf("%s: %s: %#x cannot be seen under mask %#x", profile, r.Name, v, c.Mask)
						}
					}
				}
			}
		}
	}
}

func TestAllRefusalsOfACallAreFinalOrNone(t *testing.T) {
	for _, profile := range Profiles() {
		final := map[string]bool{}
		for _, r := range Rows(profile) {
			if r.Action != Refuse {
				continue
			}
			if was, seen := final[r.Name]; seen && was != r.Final {
				t.Errorf("%s: %s: some refusals are final, some are not", profile, r.Name)
			}
			final[r.Name] = r.Final
		}
	}
}

func TestNoProfileRefusesWhatInitNeeds(t *testing.T) {
	for _, profile := range Profiles() {
		rows := Rows(profile)
		for _, g := range initGroups {
			for _, name := range strings.Fields(g.names) {
				if !known(rows, name) || refused(rows, name) {
					t.Errorf("%s refuses %s", profile, name)
				}
			}
		}
	}
}

func TestProfilesAreOrderedByRights(t *testing.T) {
	less, more := newTable(Spec{Profile: "strict"}), newTable(Spec{Profile: "debug"})
	stock := newTable(Spec{})
	for _, c := range interestingCalls(stock, less, more) {
		if less.decide(c).Action == Allow && stock.decide(c).Action != Allow {
			t.Errorf("strict allows %v, default does not", c)
		}
		if stock.decide(c).Action == Allow && more.decide(c).Action != Allow {
			t.Errorf("default allows %v, debug does not", c)
		}
	}
}

func TestEveryRowDecidesSomeCall(t *testing.T) {
	for _, profile := range Profiles() {
		rows := newTable(Spec{Profile: profile})
		met := map[string]bool{}
		for _, c := range interestingCalls(rows) {
			met[fmt.Sprint(*rows.decide(c).Row)] = true
		}
		for _, of := range rows {
			for _, r := range of {
				if !met[fmt.Sprint(r)] {
					t.Errorf("%s: no call meets %s: %s", profile, r.Name, r.Reason)
				}
			}
		}
	}
}

func TestCubesAreDisjointAndCoverWhatTheRowsDecide(t *testing.T) {
	for _, profile := range Profiles() {
		rows := newTable(Spec{Profile: profile})
		all := map[int32][]cube{}
		for nr, of := range rows {
			all[nr] = cubes(of)
		}
		for _, c := range interestingCalls(rows) {
			if _, ours := rows[c.Nr]; !ours || c.Arch != nativeArch {
				continue
			}
			in := 0
			for _, k := range all[c.Nr] {
				if !k.holds(c.Args) {
					continue
				}
				in++
				if want := rows.decide(c).Row; k.row.Reason != want.Reason {
					t.Errorf("%s: %v is in a cube of %q, decided by %q", profile, c, k.row.Reason, want.Reason)
				}
			}
			if in != 1 {
				t.Errorf("%s: %v is in %d cubes", profile, c, in)
			}
		}
	}
}

func (k cube) holds(args [6]uint64) bool {
	for n := range k.mask {
		if half(args, uint8(n))&k.mask[n] != k.value[n] {
			return false
		}
	}
	return true
}

func TestProfilesAsText(t *testing.T) {
	for _, profile := range Profiles() {
		var lines []string
		for _, r := range Rows(profile) {
			lines = append(lines, line(r))
		}
		slices.SortStableFunc(lines, func(a, b string) int { return strings.Compare(strings.Fields(a)[0], strings.Fields(b)[0]) })
		golden(t, "profile-"+profile+".txt", strings.Join(lines, "\n")+"\n")
	}
}

// line shows a row as "name verdict when…".
func line(r Row) string {
	words := []string{fmt.Sprintf("%-24s", r.Name), r.Action.String()}
	if r.Action == Refuse {
		words[1] = unix.ErrnoName(r.Errno)
	}
	if r.Quiet {
		words = append(words, "quiet")
	}
	if r.Final {
		words = append(words, "final")
	}
	for _, c := range r.When {
		if c.Mask == 0xffffffff {
			words = append(words, fmt.Sprintf("arg%d in %#x", c.Arg, c.In))
		} else {
			words = append(words, fmt.Sprintf("arg%d&%#x in %#x", c.Arg, c.Mask, c.In))
		}
	}
	return strings.Join(words, " ")
}

func golden(t *testing.T, name, got string) {
	t.Helper()
	path := filepath.Join("testdata", name)
	if *update {
		if err := os.WriteFile(path, []byte(got), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	want, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	if got != string(want) {
		t.Errorf("%s is not what the rows say; look at the difference after: go test -run %s -update", path, t.Name())
	}
}

func TestValidate(t *testing.T) {
	for _, c := range []struct {
		name string
		spec Spec
		want string // part of the error; "" for none
	}{
		{"the zero value", Spec{}, ""},
		{"an unknown profile", Spec{Profile: "strikt"}, `no profile is named "strikt": did you mean strict?`},
		{"an unknown call", Spec{Deny: []string{"sockett"}}, `no system call is named "sockett": did you mean socket?`},
		{"an unknown call like nothing", Spec{Allow: []string{"qqqqqqqqqqqqqqqq"}}, `no system call is named "qqqqqqqqqqqqqqqq"`},
		{"a huge name", Spec{Allow: []string{strings.Repeat("a", 1<<20)}}, "no system call is named"},
		{"an upper-case name", Spec{Allow: []string{"PTRACE"}}, "did you mean ptrace?"},
		{"denying what init needs", Spec{Deny: []string{"futex"}}, "skillbox's own init"},
		{"denying execve", Spec{Deny: []string{"execve"}}, "skillbox's own init"},
		{"denying sockets", Spec{Deny: []string{"socket", "connect"}}, ""},
		{"denying what is denied", Spec{Deny: []string{"clone3"}}, ""},
		{"both", Spec{Allow: []string{"ptrace"}, Deny: []string{"ptrace"}}, "both allowed and denied"},
		{"a debugger", Spec{Allow: []string{"ptrace", "process_vm_readv"}}, ""},
		{"asynchronous I/O", Spec{Allow: []string{"io_setup", "io_submit"}}, ""},
		{"inotify in strict", Spec{Profile: "strict", Allow: []string{"inotify_init1"}}, ""},
		{"sockets in strict", Spec{Profile: "strict", Allow: []string{"socket"}}, "wants the default profile"},
		{"every personality", Spec{Allow: []string{"personality"}}, ""},
	} {
		t.Run(c.name, func(t *testing.T) {
			err := Validate(c.spec)
			if c.want == "" && err != nil {
				t.Error(err)
			}
			if c.want != "" && (err == nil || !strings.Contains(err.Error(), c.want)) {
				t.Errorf("got %v, want %q", err, c.want)
			}
			if unknown := new(UnknownError); err != nil && len(err.Error()) < 300 && strings.Contains(err.Error(), "is named") && !errors.As(err, &unknown) {
				t.Errorf("%v is no UnknownError", err)
			}
		})
	}
}

func TestNoPolicyOpensTheSandbox(t *testing.T) {
	never := `mount umount2 pivot_root chroot fsopen fsconfig fsmount fspick move_mount open_tree open_tree_attr mount_setattr
		unshare setns clone clone3 bpf init_module finit_module delete_module kexec_load kexec_file_load add_key request_key keyctl
		io_uring_setup io_uring_enter io_uring_register open_by_handle_at userfaultfd perf_event_open ioctl prctl socket socketpair
		setsockopt mknod mknodat open openat openat2 creat chmod fchmod fchmodat fchmodat2 reboot swapon swapoff acct iopl ioperm syslog quotactl lsm_set_self_attr`
	for _, profile := range Profiles() {
		for _, name := range strings.Fields(never) {
			if err := Validate(Spec{Profile: profile, Allow: []string{name}}); err == nil {
				t.Errorf("%s: allow %s is accepted", profile, name)
			}
		}
	}
}

func TestThePolicysWordsAreDecided(t *testing.T) {
	s := Spec{Allow: []string{"ptrace", "personality"}, Deny: []string{"socket", "statx", "clone3"}}
	if err := Validate(s); err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct {
		name  string
		args  []uint64
		act   Action
		errno syscall.Errno
	}{
		{"ptrace", nil, Allow, 0},
		{"personality", []uint64{0x0400000}, Allow, 0},
		{"socket", []uint64{unix.AF_UNIX, unix.SOCK_STREAM}, Refuse, syscall.EPERM},
		{"statx", nil, Refuse, syscall.ENOSYS},
		{"clone3", nil, Refuse, syscall.ENOSYS},
	} {
		call, _ := NativeCall(c.name, c.args...)
		if v := Decide(s, call); v.Action != c.act || v.Errno != c.errno {
			t.Errorf("%s%v: %v %v", c.name, c.args, v.Action, v.Errno)
		}
	}
}

func TestHintsNameTheSmallestAddition(t *testing.T) {
	for _, c := range []struct {
		spec Spec
		name string
		args []uint64
		want string
	}{
		{Spec{}, "ptrace", nil, "syscalls: {allow: [ptrace]}"},
		{Spec{}, "socket", []uint64{unix.AF_ALG}, "none: other families"},
		{Spec{}, "clone", []uint64{unix.CLONE_NEWUSER}, "none: a new user namespace"},
		{Spec{Profile: "strict"}, "socket", []uint64{unix.AF_INET, unix.SOCK_STREAM}, "syscalls: {profile: default}"},
		{Spec{Profile: "strict"}, "socket", []uint64{unix.AF_ALG}, "none: other families"},
		{Spec{Profile: "strict"}, "inotify_init1", nil, "syscalls: {allow: [inotify_init1]}"},
		{Spec{Deny: []string{"socket"}}, "socket", []uint64{unix.AF_UNIX}, "the policy denies it: remove socket"},
	} {
		call, _ := NativeCall(c.name, c.args...)
		if got := hint(c.spec, c.name, call); !strings.HasPrefix(got, c.want) {
			t.Errorf("%v %s: %q, want %q", c.spec, c.name, got, c.want)
		}
	}
}

// interestingCalls is every number around the known ones, on every kind of architecture, and for calls that are decided by
// arguments every combination of the values that some row names, their neighbours, and garbage in the high halves.
func interestingCalls(tables ...table) []Call {
	var calls []Call
	for _, arch := range []uint32{nativeArch, unix.AUDIT_ARCH_I386, unix.AUDIT_ARCH_ARM, 0} {
		for nr := int32(0); nr <= 600; nr++ {
			calls = append(calls, Call{Arch: arch, Nr: nr}, Call{Arch: arch, Nr: nr, Args: [6]uint64{^uint64(0), ^uint64(0), ^uint64(0), ^uint64(0), ^uint64(0), ^uint64(0)}})
		}
		for _, nr := range []int32{-1, -2, 0x40000000, 0x40000000 | 39, 0x40000000 | 520, 0x3fffffff, 0x7fffffff, -0x80000000, 999, 4096} {
			calls = append(calls, Call{Arch: arch, Nr: nr})
		}
	}
	for _, rows := range tables {
		for nr, of := range rows {
			if len(of) > 1 {
				calls = append(calls, combinations(nr, of)...)
			}
		}
	}
	return calls
}

func combinations(nr int32, rows []Row) []Call {
	var values [halves][]uint32
	for _, r := range rows {
		for _, c := range r.When {
			values[c.Arg] = append(values[c.Arg], ^c.Mask, 0xffffffff)
			for _, v := range c.In {
				values[c.Arg] = append(values[c.Arg], v, v|^c.Mask, v^1, v^0x20, v^0x10000, v^0x80000000, v+1)
			}
		}
	}
	calls := []Call{{Arch: nativeArch, Nr: nr}}
	for n := range values {
		if len(values[n]) == 0 {
			continue
		}
		slices.Sort(values[n])
		var next []Call
		for i, v := range slices.Compact(values[n]) {
			for _, c := range calls {
				if n >= halves/2 {
					c.Args[n-halves/2] = c.Args[n-halves/2]&0xffffffff | uint64(v)<<32
				} else {
					c.Args[n] = uint64(v) | uint64(i%3)*0x7fffffff00000001&^0xffffffff
				}
				next = append(next, c)
			}
		}
		calls = next
	}
	return calls
}

func TestLandlockIsRefusedOnlyWhereCallsAreMadeInASkillsPlace(t *testing.T) {
	for _, s := range []Spec{{}, {Report: true}, {Report: true, Calls: Security}, {Files: Writes}, {Files: AllFiles, Allow: []string{"landlock_restrict_self"}}, {Calls: AllCalls}} {
		for _, name := range strings.Fields(unperformed) {
			want := Refuse
			if !s.watching() {
				want = Allow
			}
			for _, r := range s.rows() {
				if r.Name == name && (r.Action != want || r.Watch || want == Refuse && (r.Errno != syscall.ENOSYS || !r.Quiet)) {
					t.Errorf("%+v: %+v", s, r)
				}
			}
		}
	}
}
