//go:build linux && cgo

package seccomp

import (
	"fmt"
	"maps"
	"os"
	"runtime"
	"strings"
	"syscall"
	"testing"

	"golang.org/x/sys/unix"
)

func TestTheKernelDecidesAsDecideDoes(t *testing.T) {
	for _, s := range specs() {
		if s.listens() {
			continue // the next tests
		}
		rows := newTable(s)
		calls := probeable(rows)
		p := runProbe(t, s, probeRequest{Program: program(t, s), Marked: true, Calls: calls})
		if len(p.Errnos) != len(calls) {
			t.Fatalf("%+v: the probe ended with %v after %d calls: %s", s, p.state, len(p.Errnos), p.stderr)
		}
		wrong, met := 0, map[string]bool{}
		for i, c := range calls {
			v := rows.decide(c)
			want := int(v.Errno)
			if v.Action == Allow {
				want = allowed
			}
			met[fmt.Sprint(*v.Row)] = true
			if p.Errnos[i] != want {
				if wrong++; wrong < 10 {
					t.Errorf("%+v: %+v: the kernel says %d, Decide %d", s, c, p.Errnos[i], want)
				}
			}
		}
		for _, of := range rows {
			for _, r := range of {
				if !met[fmt.Sprint(r)] && r.Name != "uretprobe" && r.Name != "uprobe" {
					t.Errorf("%+v: %s was not probed: %s", s, r.Name, r.Reason)
				}
			}
		}
		t.Logf("%+v: %d calls", s, len(calls))
	}
}

// marker answers marked calls that are watched as a marked filter would those that are let through. The probe's own go on.
type marker struct{ seen map[string]int }

func (m marker) Watch(n *Notification) Answer {
	if n.Args[5]>>32 != mark {
		return Continue()
	}
	m.seen[n.Name]++
	return Fail(allowed)
}

// What is watched reaches the watcher, what is not goes on as before, and what is refused stays so.
func TestTheKernelShowsWhatIsWatched(t *testing.T) {
	for _, s := range specs() {
		if !s.watching() {
			continue
		}
		rows := newTable(s)
		calls := probeable(rows)
		w := marker{map[string]int{}}
		p := runWatched(t, s, w, probeRequest{Program: program(t, s), Marked: true, Calls: calls})
		if len(p.Errnos) != len(calls) {
			t.Fatalf("%+v: the probe ended with %v after %d calls: %s", s, p.state, len(p.Errnos), p.stderr)
		}
		want := map[string]int{}
		for i, c := range calls {
			v := rows.decide(c)
			errno := int(v.Errno)
			switch {
			case v.Row.Watch:
				errno = allowed
				want[v.Row.Name]++
			case v.Action == Allow:
				errno = int(unix.ENOSYS) // what markFilter answers below a listener
			}
			if p.Errnos[i] != errno {
				t.Errorf("%+v: %+v: the kernel says %d, not %d", s, c, p.Errnos[i], errno)
			}
		}
		if !maps.Equal(w.seen, want) || len(want) < 10 {
			t.Errorf("%+v: seen %v, want %v", s, w.seen, want)
		}
	}
}

// probeable is every interesting call but the fatal ones, those of foreign architectures, with the sixth argument free.
// Left out are -1, which is no call, and uretprobe and uprobe, which newer kernels (6.14, 6.18) run past every filter and
// answer with SIGILL where they were not made by the kernel's own trampoline.
func probeable(rows table) []Call {
	var calls []Call
	for _, c := range interestingCalls(rows) {
		name := rows.decide(c).Row.Name
		if rows.decide(c).Action != Kill && c.Nr != -1 && name != "uretprobe" && name != "uprobe" {
			c.Args[5] = 0
			calls = append(calls, c)
		}
	}
	return calls
}

// Each refused row once, through the supervisor: the same errno as without, and a denial that names it.
func TestReportedCallsGetTheSameErrnoAndAreCounted(t *testing.T) {
	for _, profile := range Profiles() {
		s := Spec{Profile: profile, Report: true}
		rows := newTable(s)
		var calls []Call
		want := map[string]int64{}
		for _, c := range probeable(rows) {
			v := rows.decide(c)
			if key := v.Row.Name + " " + v.Row.Reason; v.Row.reported() && want[key] == 0 {
				want[key]++
				calls = append(calls, c)
			}
		}
		p := runProbe(t, s, probeRequest{Program: program(t, s), Marked: true, Calls: calls})
		if len(p.Errnos) != len(calls) {
			t.Fatalf("%s: the probe ended with %v: %s", profile, p.state, p.stderr)
		}
		for i, c := range calls {
			if want := int(rows.decide(c).Errno); p.Errnos[i] != want {
				t.Errorf("%s: %+v: %d, want %d", profile, c, p.Errnos[i], want)
			}
		}
		var counted int64
		for _, d := range p.denials {
			counted += d.Count
			if d.Hint == "" || d.Errno == "" {
				t.Errorf("%s: %+v lacks words", profile, d)
			}
		}
		if counted != int64(len(calls)) {
			t.Errorf("%s: %d denials counted of %d made: %+v", profile, counted, len(calls), p.denials)
		}
	}
}

func TestQuietRefusalsAreNoNews(t *testing.T) {
	s := Spec{Report: true}
	var calls []Call
	for _, name := range []string{"clone3", "get_mempolicy", "statmount", "futex_wait"} {
		c, _ := NativeCall(name)
		calls = append(calls, c)
	}
	calls = append(calls, Call{Arch: nativeArch, Nr: 999})
	p := runProbe(t, s, probeRequest{Program: program(t, s), Calls: calls})
	for i, errno := range p.Errnos {
		if syscall.Errno(errno) != syscall.ENOSYS {
			t.Errorf("%+v: %v", calls[i], syscall.Errno(errno))
		}
	}
	if len(p.Errnos) != len(calls) || len(p.denials) != 0 {
		t.Errorf("%d answers, denials %+v", len(p.Errnos), p.denials)
	}
}

func TestEveryThreadIsUnderTheFilter(t *testing.T) {
	for _, s := range []Spec{{}, {Report: true}} {
		p := runProbe(t, s, probeRequest{Program: program(t, s)})
		if len(p.Threads) < 6 {
			t.Fatalf("%d threads: %s", len(p.Threads), p.stderr)
		}
		for _, state := range p.Threads {
			if state != "Seccomp: 2" {
				t.Errorf("%+v: a thread has %q", s, state)
			}
		}
	}
}

func TestInstallWantsNoNewPrivs(t *testing.T) {
	if set, _ := unix.PrctlRetInt(unix.PR_GET_NO_NEW_PRIVS, 0, 0, 0, 0); set == 1 {
		t.Skip("this process has no_new_privs already")
	}
	if _, err := Install(program(t, Spec{}), nil); err == nil || !strings.Contains(err.Error(), "no_new_privs") {
		t.Errorf("got %v", err)
	}
}

func TestInstallRefusesWhatIsNoProgram(t *testing.T) {
	for _, code := range [][]byte{nil, {1, 2, 3}} {
		if _, err := load(code, 0); err == nil {
			t.Errorf("%d bytes are loaded", len(code))
		}
	}
}

// i386 has 20 for getpid and 1 for exit; x86-64 has writev and write there.
func TestThreat49ForeignArchitectureCallKills(t *testing.T) {
	if runtime.GOARCH != "amd64" {
		t.Skip("int 0x80 is x86")
	}
	for _, c := range []struct {
		name  string
		image []byte
	}{
		{"int 0x80 from a 64-bit program", elf64(int80)},
		{"an i386 program", elf32(int80)},
	} {
		t.Run(c.name, func(t *testing.T) {
			path := executable(t, c.image)
			if control := runProbe(t, Spec{}, probeRequest{Exec: []string{path}}); control.state.ExitCode() != 7 {
				t.Skipf("this kernel has no 32-bit calls: without a filter it ends with %v", control.state)
			}
			for _, s := range []Spec{{}, {Profile: "strict"}, {Profile: "debug"}, {Report: true}} {
				if p := runProbe(t, s, probeRequest{Program: program(t, s), Exec: []string{path}}); !p.killedBy(unix.SIGSYS) {
					t.Errorf("%+v: it ended with %v", s, p.state)
				}
			}
		})
	}
}

func TestThreat51X32CallKills(t *testing.T) {
	if !hasX32 {
		t.Skip("x32 is x86")
	}
	for _, nr := range []int32{0x40000000 | unix.SYS_GETPID, 0x40000000 | 520, 0x7fffffff} {
		p := runProbe(t, Spec{}, probeRequest{Program: program(t, Spec{}), Calls: []Call{{Nr: nr}}})
		if !p.killedBy(unix.SIGSYS) {
			t.Errorf("%#x: it ended with %v", nr, p.state)
		}
	}
}

func executable(t *testing.T, image []byte) string {
	t.Helper()
	path := t.TempDir() + "/program"
	if err := os.WriteFile(path, image, 0o755); err != nil {
		t.Fatal(err)
	}
	return path
}
