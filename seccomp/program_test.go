//go:build linux && cgo

package seccomp

import (
	"bytes"
	"encoding/binary"
	"os"
	"path/filepath"
	"reflect"
	"testing"

	libseccomp "github.com/seccomp/libseccomp-golang"
	"golang.org/x/net/bpf"
	"golang.org/x/sys/unix"
)

// specs is every stock profile with and without reporting, and some with words of their own.
func specs() []Spec {
	var all []Spec
	for _, profile := range Profiles() {
		all = append(all, Spec{Profile: profile}, Spec{Profile: profile, Report: true})
	}
	return append(all,
		Spec{Allow: []string{"ptrace", "personality", "io_setup"}, Deny: []string{"socket", "statx", "inotify_init1"}},
		Spec{Profile: "strict", Allow: []string{"mlock", "memfd_create"}, Deny: []string{"bind"}, Report: true},
		Spec{Report: true, Calls: Security}, Spec{Report: true, Calls: AllCalls}, Spec{Files: Writes},
		Spec{Profile: "debug", Report: true, Calls: Security, Files: AllFiles}, Spec{Profile: "strict", Report: true, Calls: Security, Files: Writes},
	)
}

func TestTheCompiledProgramDecidesAsDecideDoes(t *testing.T) {
	for _, s := range specs() {
		p, err := Compile(s)
		if err != nil {
			t.Fatal(err)
		}
		if len(p.Filters) != 1 || (p.Listener == 0) != s.listens() {
			t.Fatalf("%+v: %d filters, listener %d", s, len(p.Filters), p.Listener)
		}
		vm := machine(t, p.Filters[0])
		rows := newTable(s)
		calls := interestingCalls(rows)
		wrong := 0
		for _, c := range calls {
			got := vm.run(t, c)
			if want := wordOf(rows.decide(c), s.Report); got != want {
				if wrong++; wrong < 10 {
					t.Errorf("%+v: %+v: the program says %#x, Decide %#x", s, c, got, want)
				}
			}
		}
		t.Logf("%+v: %d calls, %d instructions", s, len(calls), len(p.Filters[0])/unix.SizeofSockFilter)
	}
}

// wordOf is the verdict as a filter returns it.
func wordOf(v Verdict, report bool) uint32 {
	switch {
	case v.Row.Watch:
		return unix.SECCOMP_RET_USER_NOTIF
	case v.Action == Allow:
		return unix.SECCOMP_RET_ALLOW
	case v.Action == Kill:
		return unix.SECCOMP_RET_KILL_PROCESS
	case report && v.Row.reported():
		return unix.SECCOMP_RET_USER_NOTIF
	}
	return unix.SECCOMP_RET_ERRNO | uint32(v.Errno)
}

type vm struct{ *bpf.VM }

func machine(t *testing.T, code []byte) vm {
	t.Helper()
	var raw []bpf.RawInstruction
	for ; len(code) > 0; code = code[unix.SizeofSockFilter:] {
		raw = append(raw, bpf.RawInstruction{
			Op: binary.NativeEndian.Uint16(code), Jt: code[2], Jf: code[3], K: binary.NativeEndian.Uint32(code[4:]),
		})
	}
	if len(raw) > 4096 {
		t.Fatalf("%d instructions: the kernel takes 4096", len(raw))
	}
	program, ok := bpf.Disassemble(raw)
	if !ok {
		t.Fatal("the program has instructions that classic BPF has not")
	}
	m, err := bpf.NewVM(program)
	if err != nil {
		t.Fatal(err)
	}
	return vm{m}
}

// run lays seccomp_data out for a machine that loads words big-endian, the halves of arguments in the little-endian order
// in which the program looks for them.
func (m vm) run(t *testing.T, c Call) uint32 {
	t.Helper()
	var data [64]byte
	binary.BigEndian.PutUint32(data[0:], uint32(c.Nr))
	binary.BigEndian.PutUint32(data[4:], c.Arch)
	for n, v := range c.Args {
		binary.BigEndian.PutUint32(data[16+8*n:], uint32(v))
		binary.BigEndian.PutUint32(data[20+8*n:], uint32(v>>32))
	}
	word, err := m.Run(data[:])
	if err != nil {
		t.Fatal(err)
	}
	return uint32(word)
}

func TestStockProgramsAreFresh(t *testing.T) {
	for _, s := range stockSpecs() {
		fresh, err := compile(s)
		if err != nil {
			t.Fatal(err)
		}
		if *update {
			if err := os.WriteFile(filepath.Join("programs", stockName(s)), fresh.Filters[0], 0o644); err != nil {
				t.Fatal(err)
			}
			continue
		}
		ready := stock(s)
		if ready == nil {
			t.Errorf("%s: no stock program for this architecture", stockName(s))
			continue
		}
		if ready.Listener != fresh.Listener {
			t.Errorf("%s: listener %d, compiled now %d", stockName(s), ready.Listener, fresh.Listener)
		}
		// Another libseccomp may order its tree otherwise; the program must then decide alike, which
		// TestTheCompiledProgramDecidesAsDecideDoes checks of the stock one, so only the same library must agree to the byte.
		if !bytes.Equal(ready.Filters[0], fresh.Filters[0]) && isStockLibrary() {
			t.Errorf("%s is stale: go generate ./seccomp", stockName(s))
		}
	}
}

// stockSpecs are those that have a program compiled ahead: every profile with and without reporting, and what observes the default one.
func stockSpecs() []Spec {
	var all []Spec
	for _, profile := range Profiles() {
		all = append(all, Spec{Profile: profile}, Spec{Profile: profile, Report: true})
	}
	for _, calls := range []string{"", Security} {
		for _, files := range []string{"", Writes, AllFiles} {
			if s := (Spec{Report: true, Calls: calls, Files: files}); s.watching() {
				all = append(all, s)
			}
		}
	}
	return all
}

// isStockLibrary says whether libseccomp is of the version that made the stock programs.
func isStockLibrary() bool {
	major, minor, _ := libseccomp.GetLibraryVersion()
	return major == 2 && minor == 5
}

func TestAFreshProgramDecidesAsTheStockOne(t *testing.T) {
	s := Spec{Report: true}
	fresh, err := compile(s)
	if err != nil {
		t.Fatal(err)
	}
	vm := machine(t, fresh.Filters[0])
	rows := newTable(s)
	for _, c := range interestingCalls(rows) {
		if got, want := vm.run(t, c), wordOf(rows.decide(c), true); got != want {
			t.Fatalf("%+v: the program says %#x, Decide %#x", c, got, want)
		}
	}
}

// The numbers come from golang.org/x/sys/unix; where libseccomp knows a name it must mean the same call.
func TestNumbersAreThoseOfLibseccomp(t *testing.T) {
	known := 0
	for _, n := range names {
		nr, err := libseccomp.GetSyscallFromName(n.name)
		if err != nil || nr < 0 {
			continue
		}
		known++
		if int32(nr) != n.nr {
			t.Errorf("%s: %d here, %d in libseccomp", n.name, n.nr, nr)
		}
	}
	if known < len(names)*9/10 {
		t.Errorf("libseccomp knows %d of %d names", known, len(names))
	}
}

func TestEqualSpecsMakeEqualPrograms(t *testing.T) {
	s := Spec{Allow: []string{"ptrace"}, Report: true}
	a, err := Compile(s)
	if err != nil {
		t.Fatal(err)
	}
	var cache Cache
	b, err := cache.Compile(s)
	if err != nil {
		t.Fatal(err)
	}
	if !reflect.DeepEqual(a, b) {
		t.Error("two compilations of one Spec differ")
	}
	if again, _ := cache.Compile(s); again != b {
		t.Error("the cache compiles again")
	}
}
