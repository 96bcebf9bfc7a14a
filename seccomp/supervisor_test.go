//go:build linux && cgo

package seccomp

import (
	"fmt"
	"strings"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

func TestASecondListenerIsRefusedByName(t *testing.T) {
	s := Spec{Report: true}
	p := runProbe(t, s, probeRequest{Program: program(t, s), Again: program(t, s)})
	if p.Again != "listener taken" {
		t.Errorf("got %q", p.Again)
	}
	if p := runProbe(t, s, probeRequest{Program: program(t, s), Again: program(t, Spec{})}); p.Again != "<nil>" {
		t.Errorf("a second filter without a listener: %q", p.Again)
	}
}

func TestThisKernelCanWatch(t *testing.T) {
	var name unix.Utsname
	if err := unix.Uname(&name); err != nil {
		t.Fatal(err)
	}
	var major, minor int
	if _, err := fmt.Sscanf(unix.ByteSliceToString(name.Release[:]), "%d.%d", &major, &minor); err != nil {
		t.Fatal(err)
	}
	if want := major > 5 || major == 5 && minor >= 19; CanWatch() != want {
		t.Errorf("Linux %d.%d: %v", major, minor, CanWatch())
	}
}

func TestDenialsAreTold(t *testing.T) {
	s := Spec{Report: true}
	var calls []Call
	for _, a := range []attempt{
		{"socket", []uint64{unix.AF_ALG, unix.SOCK_SEQPACKET, 0}, 0},
		{"socket", []uint64{unix.AF_NETLINK, unix.SOCK_RAW, unix.NETLINK_NETFILTER}, 0},
		{"ioctl", []uint64{0, unix.TIOCSTI, 0}, 0},
		{"ioctl", []uint64{0, unix.TIOCSTI, 0}, 0},
		{"clone", []uint64{unix.CLONE_NEWUSER | unix.CLONE_NEWNET}, 0},
		{"setsockopt", []uint64{0, unix.SOL_TCP, unix.TCP_ULP}, 0},
		{"ptrace", nil, 0},
	} {
		c, _ := NativeCall(a.name, a.args...)
		calls = append(calls, c)
	}
	p := runProbe(t, s, probeRequest{Program: program(t, s), Calls: calls})
	var told string
	for _, d := range p.denials {
		told += fmt.Sprintf("%d %s %s %s: %.24s\n", d.Count, d.Syscall, d.Detail, d.Errno, d.Hint)
	}
	want := `2 ioctl TIOCSTI EPERM: none: puts words into a 
1 clone CLONE_NEWUSER|CLONE_NEWNET EPERM: none: a new user namespa
1 ptrace  EPERM: syscalls: {allow: [ptrac
1 setsockopt TCP_ULP ENOPROTOOPT: none: hangs kernel proto
1 socket AF_ALG EAFNOSUPPORT: none: other families are
1 socket AF_NETLINK protocol 12 EAFNOSUPPORT: none: other families are
`
	if told != want {
		t.Errorf("got\n%swant\n%s", told, want)
	}
}

func TestAFloodCostsLittle(t *testing.T) {
	if testing.Short() {
		t.Skip("takes seconds")
	}
	const burst, more = 1000, 2000
	s := Spec{Report: true}
	c, _ := NativeCall("bpf")
	before, start := cpu(t), time.Now()
	p := runProbe(t, s, probeRequest{Program: program(t, s), Calls: []Call{c}, Repeat: burst + more - 1})
	took, used := time.Since(start), cpu(t)-before
	if len(p.denials) != 1 || p.denials[0].Count != burst+more {
		t.Fatalf("%v: %+v", p.state, p.denials)
	}
	if took < more*time.Second/perSecond*9/10 {
		t.Errorf("%d denials in %v", burst+more, took)
	}
	t.Logf("%d denials in %v, %v of the supervisor's processor time: %.1f%% of a core", burst+more, took, used, 100*float64(used)/float64(took))
	if used > took/3 { // unpaced it would be nearly all of it; a busy machine makes each denial dearer
		t.Errorf("%v of processor time in %v", used, took)
	}
}

// cpu is the processor time that this process has used.
func cpu(t *testing.T) time.Duration {
	var u unix.Rusage
	if err := unix.Getrusage(unix.RUSAGE_SELF, &u); err != nil {
		t.Fatal(err)
	}
	return time.Duration(u.Utime.Nano() + u.Stime.Nano())
}

func TestACallerKilledWhileItWaitsIsNoError(t *testing.T) {
	s := Spec{Report: true}
	c, _ := NativeCall("bpf")
	p := startProbe(t, probeRequest{Program: program(t, s), Calls: []Call{c}, Repeat: 1 << 30})
	v := Supervise(p.listener, s, nil)
	waitFor(t, func() bool { return count(v) > perSecond+10 }) // now it is being slowed down, and waits nearly always
	if err := p.cmd.Process.Kill(); err != nil {
		t.Fatal(err)
	}
	_ = p.cmd.Wait()
	select {
	case <-v.Done():
	case <-time.After(5 * time.Second):
		t.Fatal("the supervisor goes on")
	}
	if err := v.Close(); err != nil {
		t.Error(err)
	}
	if err := v.Close(); err != nil {
		t.Error("the second Close:", err)
	}
}

func TestAfterCloseRefusedCallsStillFail(t *testing.T) {
	s := Spec{Report: true}
	c, _ := NativeCall("bpf")
	p := startProbe(t, probeRequest{Program: program(t, s), Calls: []Call{c}, Repeat: perSecond + 200})
	v := Supervise(p.listener, s, nil)
	waitFor(t, func() bool { return count(v) > perSecond })
	if err := v.Close(); err != nil {
		t.Fatal(err)
	}
	if err := p.cmd.Wait(); err != nil {
		t.Fatal(err)
	}
	if want := fmt.Sprintf(`"Errnos":[%d]`, unix.ENOSYS); !strings.Contains(p.stdout.String(), want) {
		t.Errorf("got %s, want %s", p.stdout.String(), want)
	}
	if count(v) < perSecond {
		t.Error("Close forgets what was counted")
	}
}

func TestKindsOfDenialsAreBounded(t *testing.T) {
	s := Spec{Report: true}
	var calls []Call
	for n := range uint64(1000) {
		c, _ := NativeCall("personality", 0x1000000+n)
		calls = append(calls, c)
	}
	p := runProbe(t, s, probeRequest{Program: program(t, s), Calls: calls})
	if len(p.denials) != maxKinds+1 {
		t.Fatalf("%d kinds", len(p.denials))
	}
	if last := p.denials[maxKinds]; last.Syscall != "other" || last.Count != 1000-maxKinds {
		t.Errorf("got %+v", last)
	}
}

// A signal that a handler takes neither loses the call nor the answer.
func TestSignalsDuringADenialDoNoHarm(t *testing.T) {
	s := Spec{Report: true}
	c, _ := NativeCall("bpf")
	p := startProbe(t, probeRequest{Program: program(t, s), Calls: []Call{c}, Repeat: perSecond + 300})
	v := Supervise(p.listener, s, nil)
	ended := make(chan error, 1)
	go func() { ended <- p.cmd.Wait() }()
	for {
		select {
		case err := <-ended:
			if err != nil {
				t.Error(err, p.stderr.String())
			}
			if n := count(v); n != perSecond+301 {
				t.Logf("%d calls were counted %d times: this kernel lacks WAIT_KILLABLE_RECV", perSecond+301, n)
			}
			if want := fmt.Sprintf(`"Errnos":[%d]`, unix.EPERM); !strings.Contains(p.stdout.String(), want) {
				t.Errorf("got %s, want %s", p.stdout.String(), want)
			}
			if err := v.Close(); err != nil {
				t.Error(err)
			}
			return
		case <-time.After(200 * time.Microsecond):
			_ = p.cmd.Process.Signal(syscall.SIGURG) // Go's own way to interrupt a thread
		}
	}
}

func TestPaceHoldsUpWhatComesAfterTheFirstThousand(t *testing.T) {
	var p pace
	now := time.Unix(1000, 0)
	for n := range perSecond {
		if wait := p.next(now); wait != 0 {
			t.Fatalf("event %d waits %v", n, wait)
		}
	}
	if wait := p.next(now); wait != pause {
		t.Errorf("the next one waits %v", wait)
	}
	if wait := p.next(now.Add(time.Hour)); wait != 0 {
		t.Errorf("an hour later one waits %v", wait)
	}
}

func count(v *Supervisor) (n int64) {
	for _, d := range v.Denials() {
		n += d.Count
	}
	return n
}

func waitFor(t *testing.T, cond func() bool) {
	t.Helper()
	for range 2000 {
		if cond() {
			return
		}
		time.Sleep(5 * time.Millisecond)
	}
	t.Fatal("it does not come")
}
