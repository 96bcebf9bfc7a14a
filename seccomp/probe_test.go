//go:build linux && cgo

package seccomp

import (
	"bytes"
	"context"
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"syscall"
	"testing"
	"time"

	"golang.org/x/net/bpf"
	"golang.org/x/sys/unix"
)

// The probe is this test binary, run again: it starts threads, sets no_new_privs, installs a program on all of them, and
// then makes calls or becomes a workload. It needs no privilege.
const probeEnv = "SKILLBOX_SECCOMP_PROBE"

func TestMain(m *testing.M) {
	if os.Getenv(probeEnv) != "" {
		probe()
	}
	os.Exit(m.Run())
}

type probeRequest struct {
	Program *Program // nil runs without a filter
	Marked  bool     // do not run allowed calls: see markFilter
	Calls   []Call
	Repeat  int      // make the calls so often again
	Again   *Program // try to install this besides
	Exec    []string // become this instead
}

type probeAnswer struct {
	Threads []string // the Seccomp line of every thread
	Errnos  []int    // of Calls, 0 for success
	Again   string   // the error of installing Again, or "listener taken" for that one

	Installing, Calling time.Duration
}

// allowed is the errno that a marked call gets instead of being run. The kernel knows none above 4095, programs none above 133.
const allowed = 4000

const mark = 0x5eccb0c5

func probe() {
	var req probeRequest
	if err := json.NewDecoder(os.NewFile(4, "request")).Decode(&req); err != nil {
		fail(err)
	}
	unix.Close(4)
	os.Unsetenv(probeEnv)
	var answer probeAnswer
	startThreads(5)
	runtime.LockOSThread()
	if req.Program != nil {
		if err := unix.Prctl(unix.PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0); err != nil {
			fail(err)
		}
		if req.Marked {
			if _, err := load(markFilter(req.Program.Listener >= 0), unix.SECCOMP_FILTER_FLAG_TSYNC); err != nil {
				fail(err)
			}
		}
		start := time.Now()
		listener, err := Install(req.Program, nil)
		answer.Installing = time.Since(start)
		if err != nil {
			fail(err)
		}
		if listener >= 0 {
			if err := unix.Sendmsg(3, []byte{1}, unix.UnixRights(listener), nil, 0); err != nil {
				fail(err)
			}
			unix.Close(listener)
		}
	}
	unix.Close(3)
	if len(req.Exec) > 0 {
		fail(unix.Exec(req.Exec[0], req.Exec, os.Environ()))
	}
	answer.Threads = threadStates()
	if req.Again != nil {
		_, err := Install(req.Again, nil)
		if answer.Again = fmt.Sprint(err); errors.Is(err, ErrListenerTaken) {
			answer.Again = "listener taken"
		}
	}
	start := time.Now()
	for range 1 + req.Repeat {
		answer.Errnos = answer.Errnos[:0]
		for _, c := range req.Calls {
			answer.Errnos = append(answer.Errnos, make1(c, req.Marked))
		}
	}
	answer.Calling = time.Since(start)
	if err := json.NewEncoder(os.Stdout).Encode(answer); err != nil {
		fail(err)
	}
	os.Exit(0)
}

func fail(err error) {
	fmt.Fprintln(os.Stderr, "probe:", err)
	os.Exit(99)
}

func make1(c Call, marked bool) int {
	a := c.Args
	if marked {
		a[5] = uint64(mark) << 32
	}
	_, _, errno := unix.RawSyscall6(uintptr(uint32(c.Nr)), uintptr(a[0]), uintptr(a[1]), uintptr(a[2]), uintptr(a[3]), uintptr(a[4]), uintptr(a[5]))
	return int(errno)
}

// markFilter lies below the program under test and answers calls whose sixth argument carries the mark in its high half,
// which no row looks at. So a call that the program allows is not run, be it exit, pause or rt_sigreturn. An errno of the
// program wins over this one's, since it was installed later; a notification only wins over TRACE, which says ENOSYS where
// there is no tracer.
func markFilter(listener bool) []byte {
	word := uint32(unix.SECCOMP_RET_ERRNO | allowed)
	if listener {
		word = unix.SECCOMP_RET_TRACE
	}
	raw, err := bpf.Assemble([]bpf.Instruction{
		bpf.LoadAbsolute{Off: 16 + 8*5 + 4, Size: 4},
		bpf.JumpIf{Cond: bpf.JumpNotEqual, Val: mark, SkipTrue: 1},
		bpf.RetConstant{Val: word},
		bpf.RetConstant{Val: unix.SECCOMP_RET_ALLOW},
	})
	if err != nil {
		fail(err)
	}
	var code []byte
	for _, i := range raw {
		code = binary.NativeEndian.AppendUint16(code, i.Op)
		code = append(code, i.Jt, i.Jf)
		code = binary.NativeEndian.AppendUint32(code, i.K)
	}
	return code
}

func startThreads(n int) {
	started := make(chan bool)
	for range n {
		go func() {
			runtime.LockOSThread()
			started <- true
			select {}
		}()
		<-started
	}
}

func threadStates() []string {
	files, err := filepath.Glob("/proc/self/task/*/status")
	if err != nil {
		fail(err)
	}
	var states []string
	for _, f := range files {
		text, err := os.ReadFile(f)
		if err != nil {
			fail(err)
		}
		for line := range strings.Lines(string(text)) {
			if strings.HasPrefix(line, "Seccomp:") {
				states = append(states, strings.Join(strings.Fields(line), " "))
			}
		}
	}
	return states
}

// probed is a finished probe.
type probed struct {
	probeAnswer
	stdout, stderr string
	state          *os.ProcessState
	denials        []Denial
}

func (p probed) killedBy(sig syscall.Signal) bool {
	status, ok := p.state.Sys().(syscall.WaitStatus)
	return ok && status.Signaled() && status.Signal() == sig
}

// runProbe runs the request to its end, under a supervisor where the program has a listener.
func runProbe(t testing.TB, s Spec, req probeRequest) probed {
	t.Helper()
	return runWatched(t, s, nil, req)
}

func runWatched(t testing.TB, s Spec, w Watcher, req probeRequest) probed {
	t.Helper()
	p := startProbe(t, req)
	var v *Supervisor
	if p.listener != nil {
		v = Supervise(p.listener, s, w)
	}
	_ = p.cmd.Wait()
	done := probed{stdout: p.stdout.String(), stderr: p.stderr.String(), state: p.cmd.ProcessState}
	if v != nil {
		select {
		case <-v.Done():
		case <-time.After(5 * time.Second):
			t.Error("the supervisor outlives the last task under its filter")
		}
		done.denials = v.Denials()
		if err := v.Close(); err != nil {
			t.Error(err)
		}
	}
	if done.state.ExitCode() == 99 {
		t.Fatal(done.stderr)
	}
	_ = json.Unmarshal(p.stdout.Bytes(), &done.probeAnswer)
	return done
}

// running is a probe that has installed its program.
type running struct {
	cmd            *exec.Cmd
	stdout, stderr bytes.Buffer
	listener       *os.File // or nil
}

// startProbe leaves the waiting and the listener to the caller. The probe is killed after a minute and at the test's end.
func startProbe(t testing.TB, req probeRequest) *running {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	t.Cleanup(cancel)
	pair, err := unix.Socketpair(unix.AF_UNIX, unix.SOCK_STREAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		t.Fatal(err)
	}
	mine, theirs := os.NewFile(uintptr(pair[0]), "mine"), os.NewFile(uintptr(pair[1]), "theirs")
	defer mine.Close()
	reader, writer, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	p := &running{cmd: exec.CommandContext(ctx, "/proc/self/exe")}
	p.cmd.Env = append(os.Environ(), probeEnv+"=1")
	p.cmd.Dir = t.TempDir()
	p.cmd.Stdout, p.cmd.Stderr = &p.stdout, &p.stderr
	p.cmd.ExtraFiles = []*os.File{theirs, reader}
	if err := p.cmd.Start(); err != nil {
		t.Fatal(err)
	}
	theirs.Close()
	reader.Close()
	if err := json.NewEncoder(writer).Encode(req); err != nil {
		t.Fatal(err)
	}
	writer.Close()
	p.listener = receive(mine)
	return p
}

// receive returns the descriptor that the probe sends, or nil when it closes the socket without.
func receive(from *os.File) *os.File {
	space := make([]byte, unix.CmsgSpace(4))
	n, oob, _, _, err := unix.Recvmsg(int(from.Fd()), make([]byte, 1), space, unix.MSG_CMSG_CLOEXEC)
	if err != nil || n == 0 {
		return nil
	}
	messages, err := unix.ParseSocketControlMessage(space[:oob])
	if err != nil || len(messages) == 0 {
		return nil
	}
	fds, err := unix.ParseUnixRights(&messages[0])
	if err != nil || len(fds) == 0 {
		return nil
	}
	return os.NewFile(uintptr(fds[0]), "listener")
}

func program(t testing.TB, s Spec) *Program {
	t.Helper()
	p, err := Compile(s)
	if err != nil {
		t.Fatal(err)
	}
	return p
}

// errnoOf makes one real call under the spec's filter and returns what the kernel answered.
func errnoOf(t *testing.T, s Spec, name string, args ...uint64) syscall.Errno {
	t.Helper()
	c, ok := NativeCall(name, args...)
	if !ok {
		t.Skipf("this architecture has no %s", name)
	}
	p := runProbe(t, s, probeRequest{Program: program(t, s), Calls: []Call{c}})
	if len(p.Errnos) != 1 {
		t.Fatalf("%s: the probe ended with %v: %s", name, p.state, p.stderr)
	}
	return syscall.Errno(p.Errnos[0])
}
