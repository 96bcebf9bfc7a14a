//go:build linux

package integration

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"
	"unsafe"

	"golang.org/x/sys/unix"

	"skillbox/helper"
)

// Group C: system calls. One run per mode makes every call; each test judges its own. The same calls under every profile, with
// garbage in the high halves and through the supervisor are tested in package seccomp.

var syscallRuns = struct {
	sync.Mutex
	inside, outside map[mode]map[string]string
}{inside: map[mode]map[string]string{}, outside: map[mode]map[string]string{}}

// answersTo returns what the calls answered in a box of the mode, and the harmless ones to the same user outside.
func answersTo(t *testing.T, m mode) (inside, outside map[string]string) {
	t.Helper()
	syscallRuns.Lock()
	defer syscallRuns.Unlock()
	if syscallRuns.inside[m] == nil {
		outside := map[string]string{}
		m.unboxed(t, "/", &outside, "harmless")
		syscallRuns.outside[m] = outside
		syscallRuns.inside[m] = call{mode: m}.attempts(t, "syscalls")
	}
	return syscallRuns.inside[m], syscallRuns.outside[m]
}

// unboxed runs an attempt of the probe without a box, as the mode's user: what must fail inside should be able to succeed.
func (m mode) unboxed(t *testing.T, dir string, got any, attempt ...string) {
	t.Helper()
	c := exec.Command(filepath.Join(binDir, "probe"), attempt...)
	c.Dir = dir
	c.Env = []string{"PATH=/usr/bin:/bin"}
	c.SysProcAttr = &syscall.SysProcAttr{Credential: m.credential()}
	var stderr bytes.Buffer
	c.Stderr = &stderr
	out, err := c.Output()
	if err != nil {
		t.Fatalf("probe %v outside: %v: %s", attempt, err, stderr.String())
	}
	if err := json.Unmarshal(out, got); err != nil {
		t.Fatal(err)
	}
}

// refusedAs wants every call of a threat to be answered by errno, except those named in others as "key errno".
func refusedAs(t *testing.T, threat int, errno string, others ...string) {
	t.Helper()
	inEachMode(t, func(t *testing.T, m mode) {
		inside, outside := answersTo(t, m)
		want := map[string]string{}
		for _, o := range others {
			i := strings.LastIndexByte(o, ' ')
			want[o[:i]] = o[i+1:]
		}
		made, control := 0, ""
		for key, got := range inside {
			name, ours := strings.CutPrefix(key, fmt.Sprintf("%d ", threat))
			if !ours || got == "absent" {
				continue
			}
			made++
			if out, tried := outside[key]; tried && (out != got || control != "differs") {
				control = out
				if out != got {
					control = "differs"
				}
			}
			expected := errno
			if w, other := want[name]; other {
				expected = w
			}
			if got != expected {
				t.Errorf("%s: %s, want %s", name, got, expected)
			}
		}
		if made == 0 {
			t.Error("nothing was tried")
		}
		if control != "" && control != "differs" {
			t.Logf("outside a box this host answers %s too", control)
		}
	})
}

func TestThreat44IoUringSetup(t *testing.T)    { refusedAs(t, 44, "ENOSYS") }
func TestThreat46AfAlg(t *testing.T)           { refusedAs(t, 46, "EAFNOSUPPORT") }
func TestThreat48AfVsock(t *testing.T)         { refusedAs(t, 48, "EAFNOSUPPORT") }
func TestThreat52AfPacket(t *testing.T)        { refusedAs(t, 52, "EAFNOSUPPORT") }
func TestThreat54NetlinkMatrix(t *testing.T)   { refusedAs(t, 54, "EAFNOSUPPORT", "route ok") }
func TestThreat57TCPUlp(t *testing.T)          { refusedAs(t, 57, "ENOPROTOOPT") }
func TestThreat58BpfSyscall(t *testing.T)      { refusedAs(t, 58, "EPERM") }
func TestThreat60Userfaultfd(t *testing.T)     { refusedAs(t, 60, "EPERM", "/dev/userfaultfd ENOENT") }
func TestThreat61Keyrings(t *testing.T)        { refusedAs(t, 61, "ENOSYS") }
func TestThreat63PidfdGetfdKcmp(t *testing.T)  { refusedAs(t, 63, "EPERM") }
func TestThreat70Numa(t *testing.T)            { refusedAs(t, 70, "ENOSYS") }
func TestThreat73Tioclinux(t *testing.T)       { refusedAs(t, 73, "EPERM") }
func TestThreat78UnknownSyscalls(t *testing.T) { refusedAs(t, 78, "ENOSYS") }

func TestThreat66LdtPersonality(t *testing.T) {
	refusedAs(t, 66, "EPERM", "modify_ldt ENOSYS", "ldt write ENOSYS", "PER_LINUX32 ok")
}

func TestThreat69AdminSyscalls(t *testing.T) {
	refusedAs(t, 69, "EPERM", "nfsservctl ENOSYS", "uselib ENOSYS", "ustat ENOSYS", "sysfs ENOSYS")
}

func TestThreat55ExoticFamilies(t *testing.T) {
	before, err := os.ReadFile("/proc/modules")
	if err != nil && !os.IsNotExist(err) {
		t.Fatal(err)
	}
	refusedAs(t, 55, "EAFNOSUPPORT")
	if after, _ := os.ReadFile("/proc/modules"); len(slices.Collect(strings.Lines(string(after)))) != len(slices.Collect(strings.Lines(string(before)))) {
		t.Errorf("a module was loaded: before\n%safter\n%s", before, after)
	}
}

// An io_uring that the caller has open does not come in, and could not be used if it did.
func TestThreat45IoUringFdPassed(t *testing.T) {
	refusedAs(t, 45, "ENOSYS")
	inEachMode(t, func(t *testing.T, m mode) {
		ring, _, errno := unix.Syscall(unix.SYS_IO_URING_SETUP, 4, uintptr(unsafePointer(make([]byte, 120))), 0)
		if errno != 0 {
			needs(t, "io_uring", errno)
		}
		file := os.NewFile(ring, "ring")
		defer file.Close()
		c := m.command("exec", "--json", m.probeBundle(t), "--", "/skill/probe", "links")
		c.ExtraFiles = []*os.File{file, file}
		out, err := c.Output()
		if err != nil {
			t.Fatal(err)
		}
		var r helper.Result
		if err := json.Unmarshal(out, &r); err != nil || strings.Contains(r.Stdout, "io_uring") || !strings.Contains(r.Stdout, "pipe") {
			t.Errorf("%v: %s", err, r.Stdout)
		}
	})
}

func TestThreat49I386Int80(t *testing.T) {
	foreignKilled(t, "int80 of a 64-bit program", "i386 program")
}

func TestThreat51X32Abi(t *testing.T) { foreignKilled(t, "x32") }

func foreignKilled(t *testing.T, names ...string) {
	t.Helper()
	inEachMode(t, func(t *testing.T, m mode) {
		got := call{mode: m}.attempts(t, "foreign")
		if got["none"] == "absent" {
			needs(t, "x86", errors.New("there is nothing foreign to call"))
		}
		outside := map[string]string{}
		m.unboxed(t, "/", &outside, "foreign")
		for _, name := range names {
			if got[name] != "killed:SIGSYS" {
				t.Errorf("%s: %s, outside %s", name, got[name], outside[name])
			}
		}
	})
}

func TestThreat64MemfdExec(t *testing.T) {
	inEachMode(t, func(t *testing.T, m mode) {
		var status map[string]string
		call{mode: m}.probe(t, &status, "memfd-exec")
		if strings.Trim(status["CapEff"]+status["CapPrm"]+status["CapBnd"], "0") != "" || status["Seccomp"] != "2" || status["NoNewPrivs"] != "1" {
			t.Errorf("a program without a path has %v", status)
		}
		got := call{mode: m, policy: "version: 1\nsyscalls: {profile: strict}\n"}.attempts(t, "memfd-exec")
		if got["memfd_create"] != "ENOSYS" {
			t.Errorf("under strict: %v", got)
		}
	})
}

func TestThreat67PagecacheWrites(t *testing.T) {
	inEachMode(t, func(t *testing.T, m mode) {
		input, ref := m.file(t, "input.txt", "the input"), m.dir(t)
		m.write(t, filepath.Join(ref, "data"), "the reference", 0o666)
		bundle := m.probeBundle(t)
		m.write(t, filepath.Join(bundle, "lib.py"), "the bundle", 0o666)
		before := hashes(t, input, ref, bundle, "/usr/bin/true", "/etc/ssl/openssl.cnf", filepath.Join(binDir, "skillbox-init"))
		paths := []string{"/input/input.txt", "/ref/data", "/skill/lib.py", "/usr/bin/true", "/etc/ssl/openssl.cnf", "/etc/passwd", "/run/skillbox/init"}
		got := call{
			mode: m, bundle: bundle, flags: []string{"--input", input}, policy: "version: 1\nfilesystem: {read: [{host: " + ref + ", path: /ref}]}\n",
		}.attempts(t, append([]string{"pagecache"}, paths...)...)
		for key, answer := range got {
			if answer == "ok" && !strings.HasPrefix(key, "pipe ") && !strings.HasPrefix(key, "cow ") {
				t.Errorf("%s succeeded", key)
			}
		}
		if got["pipe /skill/lib.py"] != "ok" || got["cow /ref/data"] != "ok" {
			t.Errorf("the attempt itself does not work: %v", got)
		}
		if after := hashes(t, input, ref, bundle, "/usr/bin/true", "/etc/ssl/openssl.cnf", filepath.Join(binDir, "skillbox-init")); !maps.Equal(before, after) {
			t.Errorf("changed: before %v, after %v", before, after)
		}
	})
	refusedAs(t, 67, "EPERM")
}

// A call with the caller's terminal as stdio sees no terminal; with --tty it has its own, and cannot type into that either.
func TestThreat72Tiocsti(t *testing.T) {
	refusedAs(t, 72, "EPERM")
	inEachMode(t, func(t *testing.T, m mode) {
		for _, tty := range []bool{false, true} {
			got, typed := m.underTerminal(t, tty)
			if typed != 0 {
				t.Errorf("tty %t: %d bytes were put into the caller's terminal", tty, typed)
			}
			for key, answer := range got {
				switch {
				case strings.HasPrefix(key, "TIOCSTI"), strings.HasPrefix(key, "TIOCLINUX"), strings.HasPrefix(key, "TIOCSETD"):
					if answer != "EPERM" {
						t.Errorf("tty %t: %s: %s", tty, key, answer)
					}
				case key == "/dev/tty":
					if want := map[bool]string{false: "ENXIO", true: "ok"}[tty]; answer != want {
						t.Errorf("tty %t: %s: %s, want %s", tty, key, answer, want)
					}
				case strings.HasPrefix(key, "isatty"):
					if (answer == "ok") != tty {
						t.Errorf("tty %t: %s: %s", tty, key, answer)
					}
				}
			}
		}
	})
}

func TestThreat75TTYLdisc(t *testing.T) {
	refusedAs(t, 75, "EPERM")
	inEachMode(t, func(t *testing.T, m mode) {
		got, _ := m.underTerminal(t, false)
		for fd := range 3 {
			if key := fmt.Sprintf("TIOCSCTTY %d", fd); got[key] != "ENOTTY" {
				t.Errorf("%s: %s", key, got[key])
			}
		}
	})
}

// underTerminal runs the probe's terminal attempt from a client whose stdio and controlling terminal are a pty, and says how many
// bytes wait in the pty for whoever reads it next.
func (m mode) underTerminal(t *testing.T, tty bool) (got map[string]string, typed int) {
	t.Helper()
	master, slave := openPTY(t)
	defer master.Close()
	defer slave.Close()
	flag := "--json"
	if tty {
		flag = "--tty"
	}
	c := m.command("exec", flag, m.probeBundle(t), "--", "/skill/probe", "terminal")
	c.Stdin, c.Stdout, c.Stderr = slave, slave, slave
	c.SysProcAttr.Setsid, c.SysProcAttr.Setctty, c.SysProcAttr.Ctty = true, true, 0
	shown := make(chan []byte, 1)
	go func() {
		var all []byte
		buffer := make([]byte, 4096)
		for {
			n, err := master.Read(buffer)
			all = append(all, buffer[:n]...)
			if err != nil || bytes.Contains(all, []byte("\n")) {
				shown <- all
				return
			}
		}
	}()
	if err := c.Run(); err != nil {
		t.Fatal(err)
	}
	var out []byte
	select {
	case out = <-shown:
	case <-time.After(patience(5 * time.Second)):
		t.Fatal("nothing was shown")
	}
	text := out[:bytes.IndexByte(append(out, '\n'), '\n')]
	if !tty {
		var r helper.Result
		if err := json.Unmarshal(text, &r); err != nil {
			t.Fatalf("%v: %q", err, out)
		}
		text = []byte(r.Stdout)
	}
	if err := json.Unmarshal(text, &got); err != nil {
		t.Fatalf("%v: %q", err, out)
	}
	typed, err := unix.IoctlGetInt(int(slave.Fd()), unix.TIOCINQ)
	if err != nil {
		t.Fatal(err)
	}
	return got, typed
}

func openPTY(t *testing.T) (master, slave *os.File) {
	t.Helper()
	master, err := os.OpenFile("/dev/ptmx", os.O_RDWR|unix.O_NOCTTY, 0)
	needs(t, "a pty", err)
	if err := unix.IoctlSetPointerInt(int(master.Fd()), unix.TIOCSPTLCK, 0); err != nil {
		t.Fatal(err)
	}
	n, err := unix.IoctlGetInt(int(master.Fd()), unix.TIOCGPTN)
	if err != nil {
		t.Fatal(err)
	}
	if slave, err = os.OpenFile(fmt.Sprintf("/dev/pts/%d", n), os.O_RDWR|unix.O_NOCTTY, 0); err != nil {
		t.Fatal(err)
	}
	return master, slave
}

func TestThreat76FsIoctls(t *testing.T) {
	inEachMode(t, func(t *testing.T, m mode) {
		shared, out := m.dir(t), m.dir(t)
		r := call{
			mode: m, flags: []string{"--output", out}, policy: "version: 1\nfilesystem: {write: [{host: " + shared + ", path: /shared}]}\n",
		}
		for key, answer := range r.attempts(t, "ioctls", "/shared", "/output", "/tmp", "/home/skill") {
			// A project id may be stored where the file system has no quota for it; it moves no limit there.
			if answer == "ok" {
				t.Errorf("%s succeeded", key)
			}
		}
		for _, dir := range []string{shared, out} {
			left, err := os.ReadDir(dir)
			if err != nil || len(left) == 0 {
				t.Fatalf("%v: %v", left, err)
			}
			for _, e := range left {
				if err := os.Remove(filepath.Join(dir, e.Name())); err != nil {
					t.Errorf("it cannot be deleted: %v", err)
				}
			}
		}
	})
}

func TestThreat79SeccompEnforceUnderExecModes(t *testing.T) {
	inEachMode(t, func(t *testing.T, m mode) {
		want, _ := answersTo(t, m)
		var forms map[string]map[string]string
		var own map[string]string
		c := call{mode: m}
		c.probe(t, &forms, "forms")
		c.probe(t, &own, "status")
		for form, got := range forms {
			if form == "a set-id program" {
				if got["program"] == "none" {
					t.Log("the base has no set-id program")
					continue
				}
				for _, field := range []string{"Uid", "Gid", "CapPrm", "CapEff", "CapBnd", "CapAmb", "NoNewPrivs", "Seccomp"} {
					if got[field] == "" || got[field] != strings.Join(strings.Fields(own[field]), " ") {
						t.Errorf("%s has %s %s, the skill %s", got["program"], field, got[field], own[field])
					}
				}
				continue
			}
			for key, answer := range want {
				if got[key] != answer {
					t.Errorf("%s: %s: %s, not %s", form, key, got[key], answer)
				}
			}
		}
	})
}

// A set-id file on a host directory would act for whoever starts it outside the box, where no nosuid stands in the way.
func TestNoSetIDFileAppearsOnTheHost(t *testing.T) {
	inEachMode(t, func(t *testing.T, m mode) {
		control, shared := m.dir(t), m.dir(t)
		outside := map[string]string{}
		m.unboxed(t, control, &outside, "setid", control)
		if n := len(setIDFiles(t, control)); n < 10 {
			t.Fatalf("outside a box only %d attempts of %v succeed", n, outside)
		}
		got := call{mode: m, policy: "version: 1\nfilesystem: {write: [{host: " + shared + ", path: /shared}]}\n"}.attempts(t, "setid", "/shared")
		if found := setIDFiles(t, shared); len(found) > 0 {
			t.Errorf("%v appeared; the calls answered %v", found, got)
		}
		if got["file capability"] == "ok" {
			t.Error("a file got a capability")
		}
		if left, err := os.ReadDir(shared); err != nil || len(left) < 10 {
			t.Errorf("the directory was not writable: %d files, %v", len(left), err)
		}
	})
}

func setIDFiles(t *testing.T, dir string) (found []string) {
	t.Helper()
	err := filepath.WalkDir(dir, func(path string, e fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		info, err := e.Info()
		if err == nil && info.Mode()&(fs.ModeSetuid|fs.ModeSetgid) != 0 {
			found = append(found, filepath.Base(path))
		}
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	return found
}

func unsafePointer(b []byte) unsafe.Pointer { return unsafe.Pointer(&b[0]) }
