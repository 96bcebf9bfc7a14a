//go:build linux

package integration

import (
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"skillbox/helper"
)

// Group H: what skill and host share beside memory and processors: file systems, kernel objects, counts that the kernel keeps for each
// user, the disk, the kernel's log.

// bytesAnd splits what the probe's fill and inodes say: how many, and what ended it.
func bytesAnd(t *testing.T, text string) (n int, end string) {
	t.Helper()
	count, end, _ := strings.Cut(text, " ")
	return number(t, count), end
}

func TestThreat145TmpfsFill(t *testing.T) {
	inEachMode(t, func(t *testing.T, m mode) {
		l := limited(t, m)
		got := call{mode: m, policy: "version: 1\nfilesystem: {tmp: 8Mi, home: 8Mi, output: 8Mi}\n"}.attempts(t, "fill",
			"write /tmp", "write /dev/shm", "write /home/skill", "write /output", "write /run/skillbox/result",
			"write /", "write /dev", "write /dev/pts", "write /run", "write /run/secrets", "write /skill", "write /etc", "write /proc", "write /usr")
		for way, a := range got {
			n, end := bytesAnd(t, a)
			switch way {
			case "write /tmp", "write /dev/shm", "write /home/skill", "write /output":
				if n != 8<<20 || end != "ENOSPC" {
					t.Errorf("%s: %s", way, a)
				}
			case "write /run/skillbox/result":
				if n != 10<<20 || end != "ENOSPC" {
					t.Errorf("%s: %s", way, a)
				}
			default:
				if n != 0 || end == "ok" {
					t.Errorf("%s: %s", way, a)
				}
			}
		}
		before := meminfo(t, "Shmem")
		for _, way := range []string{"write /tmp", "write /dev/shm", "deleted /tmp", "memfd", "shared", "sysv"} {
			r := call{mode: m, policy: l.policy("memory: 64Mi", "filesystem: {tmp: 1Gi}"), words: []string{"/skill/probe", "fill", way}}.run(t)
			if r.Verdict != helper.OutOfMemory {
				t.Errorf("%s:", way)
			}
			wantVerdict(t, r, helper.OutOfMemory, helper.CodeOutOfMemory)
			l.peak(t, way+": memory_peak", r.Usage.MemoryPeak, l.pick(64<<20, 1<<30), 5, 19)
		}
		freed(t, "Shmem", before)
		hostIsWell(t, m, "after")
	})
}

// meminfo reads a line of /proc/meminfo, in bytes.
func meminfo(t *testing.T, fields ...string) (total int64) {
	t.Helper()
	text, err := os.ReadFile("/proc/meminfo")
	if err != nil {
		t.Fatal(err)
	}
	for line := range strings.Lines(string(text)) {
		name, value, _ := strings.Cut(line, ":")
		for _, f := range fields {
			if name == f {
				total += int64(number(t, strings.TrimSuffix(strings.TrimSpace(value), " kB"))) << 10
			}
		}
	}
	return total
}

// freed waits until no more is in use than before, give or take what others on the machine do.
func freed(t *testing.T, what string, before int64) {
	t.Helper()
	deadline := time.Now().Add(patience(5 * time.Second))
	for meminfo(t, what) > before+64<<20 {
		if time.Now().After(deadline) {
			t.Errorf("%s was %d, is %d", what, before, meminfo(t, what))
			return
		}
		time.Sleep(50 * time.Millisecond)
	}
}

// Of each kind of kernel object as many as one process gets, all at once, while the host goes on.
func TestThreat148KernelMemory(t *testing.T) {
	const files, watches, pending = 256, 8192, 1024
	inEachMode(t, func(t *testing.T, m mode) {
		l := limited(t, m)
		unreclaimable := meminfo(t, "SUnreclaim")
		got, lift := l.besiege(t, "pids: 512, memory: 1Gi, open_files: 256", "", "seize")
		if got == nil {
			t.Fatalf("the box did not live to tell: %+v", lift())
		}
		t.Logf("%v", got)
		hostIsWell(t, m, "during the siege")
		anotherBoxRuns(t, m, "during the siege")
		r := lift()
		wantVerdict(t, r, helper.Exited, 0)
		l.peak(t, "memory_peak", r.Usage.MemoryPeak, l.pick(1<<30, 2<<30), 5, 19)
		for kind, most := range map[string]int{
			"eventfd": files, "timerfd": files, "signalfd": files, "epoll": files, "netlink": files, "udp socket": files,
			"pipe": files / 2, "unix socket": files / 2, "tcp socket": files / 2, "pipe pages": files / 2,
			"timer": pending, "inotify watch": watches, "posix queue": files, "locked memory": 8 << 20 >> 16, "key": 0,
		} {
			n, _ := bytesAnd(t, got[kind])
			if n > most {
				t.Errorf("%s: %s, want at most %d", kind, got[kind], most)
			}
			if n == 0 && most > 0 {
				t.Errorf("the attempt itself fails: %s: %s", kind, got[kind])
			}
		}
		freed(t, "SUnreclaim", unreclaimable)
		if l.cgroup {
			chargedToTheBox(t, l)
		}
	})
}

// chargedToTheBox takes, of what is large, more than the box may have.
func chargedToTheBox(t *testing.T, l limits) {
	t.Helper()
	for _, kind := range []string{"pipe", "unix socket", "sysv queue", "semaphores", "page table", "inotify watch", "file lock"} {
		used := meminfo(t, "MemTotal") - meminfo(t, "MemAvailable")
		kinds := []string{kind, kind + "#2", kind + "#3", kind + "#4"}
		got, lift := l.besiege(t, "memory: 24Mi, pids: 256", ", tmp: 256Mi", append([]string{"seize"}, kinds...)...)
		more := meminfo(t, "MemTotal") - meminfo(t, "MemAvailable") - used
		r := lift()
		t.Logf("%s: %v, %s, the machine has %d MiB less", kind, got, r.Verdict, more>>20)
		if r.Verdict != helper.OutOfMemory && r.Verdict != helper.Exited {
			wantVerdict(t, r, helper.OutOfMemory, helper.CodeOutOfMemory)
		}
		l.peak(t, kind+": memory_peak", r.Usage.MemoryPeak, 24<<20, 5, 19)
		if more > 64<<20 {
			t.Errorf("%s: the machine has %d MiB less, the box's limit is 24: %v", kind, more>>20, got)
		}
	}
}

func TestThreat150InodeExhaustion(t *testing.T) {
	inEachMode(t, func(t *testing.T, m mode) {
		l := limited(t, m)
		got := call{mode: m, policy: "version: 1\nfilesystem: {tmp: 8Mi, home: 8Mi, output: 8Mi}\nrootfs: {bundle: copy-on-write}\n"}.attempts(t, "inodes",
			"/tmp", "/dev/shm", "/home/skill", "/output", "/run/skillbox/result", "/skill", "/dev", "/run")
		for dir, a := range got {
			n, end := bytesAnd(t, a)
			switch dir {
			case "/dev", "/run":
				if n != 0 || end == "ok" {
					t.Errorf("%s: %s", dir, a)
				}
			default:
				if n < 100 || n > 10<<20>>12 || end != "ENOSPC" {
					t.Errorf("%s: %s", dir, a)
				}
			}
		}
		if !l.cgroup {
			return
		}
		// As many as the size allows are more than the memory does.
		r := call{mode: m, policy: l.policy("memory: 24Mi", "filesystem: {tmp: 1Gi}"), words: []string{"/skill/probe", "inodes", "/tmp"}}.run(t)
		wantVerdict(t, r, helper.OutOfMemory, helper.CodeOutOfMemory)
		l.peak(t, "memory_peak", r.Usage.MemoryPeak, 24<<20, 5, 19)
	})
}

// A write bind is the operator's own disk and has no quota of ours.
func TestThreat151DiskFill(t *testing.T) {
	inEachMode(t, func(t *testing.T, m mode) {
		for _, way := range []string{"write", "fallocate", "deleted", "tmpfile"} {
			var tries []string
			for _, dir := range []string{"/output", "/skill", "/tmp", "/home/skill", "/dev/shm"} {
				tries = append(tries, way+" "+dir)
			}
			got := call{
				mode: m, flags: []string{"--output", filepath.Join(m.dir(t), "out")},
				policy: "version: 1\nrootfs: {bundle: copy-on-write}\nfilesystem: {tmp: 8Mi, home: 8Mi, output: 8Mi}\n",
			}.attempts(t, append([]string{"fill"}, tries...)...)
			for what, a := range got {
				n, end := bytesAnd(t, a)
				if n > 8<<20 || end == "ok" || end == "cap" {
					t.Errorf("%s: %s", what, a)
				}
				if n < 1<<20 && what != "tmpfile /skill" {
					t.Errorf("the attempt itself fails: %s: %s", what, a)
				}
			}
		}
		hostIsWell(t, m, "after")
	})
}

// Pages of files on a disk are the box's too until they are written, but they can be: nobody is killed for them.
func TestWritingToADiskStaysWithinTheMemory(t *testing.T) {
	inEachMode(t, func(t *testing.T, m mode) {
		l := limited(t, m)
		shared := m.dir(t)
		done := call{
			mode: m, policy: l.policy("memory: 32Mi", "timeout: 5m", "filesystem: {write: [{host: "+shared+", path: /shared}]}"),
			words: []string{"dd", "if=/dev/zero", "of=/shared/big", "bs=1M", "count=128", "conv=fsync"},
		}.started(t)
		appears(t, filepath.Join(shared, "big"))
		hostIsWell(t, m, "during the writing")
		r := <-done
		if r == nil {
			t.FailNow()
		}
		wantVerdict(t, r, helper.Exited, 0)
		l.peak(t, "memory_peak", r.Usage.MemoryPeak, l.pick(32<<20, 1<<30), 5, 19)
		if l.cgroup && r.Usage.IO != nil && r.Usage.IO.WriteBytes < 64<<20 {
			t.Errorf("io: %+v", r.Usage.IO)
		}
	})
}

func TestThreat154InotifyInstances(t *testing.T) {
	inEachMode(t, func(t *testing.T, m mode) {
		l := limited(t, m)
		got, lift := l.besiege(t, "open_files: 1024", "", "inotify")
		if got["end"] != "EMFILE" || number(t, got["made"]) < 8 || number(t, got["made"]) > 64 {
			t.Errorf("%v", got)
		}
		hostIsWell(t, m, "during the siege")
		wantVerdict(t, lift(), helper.Exited, 0)
	})
}

// The kernel counts instances for the user that made the box, whatever the box's own limit: several boxes add up.
func TestFourBoxesLeaveTheHostItsInotifyInstances(t *testing.T) {
	inEachMode(t, func(t *testing.T, m mode) {
		l := limited(t, m)
		var lifts []func() *helper.Result
		for range 4 {
			_, lift := l.besiege(t, "open_files: 1024", "", "inotify")
			lifts = append(lifts, lift)
		}
		hostIsWell(t, m, "during the siege")
		for _, lift := range lifts {
			wantVerdict(t, lift(), helper.Exited, 0)
		}
	})
}

func TestThreat156PtyExhaustion(t *testing.T) {
	inEachMode(t, func(t *testing.T, m mode) {
		l := limited(t, m)
		got, lift := l.besiege(t, "open_files: 1024", "", "ptys")
		if made := number(t, got["made"]); made > 16 || got["end"] != "ENOSPC" {
			t.Errorf("%v", got)
		}
		hostIsWell(t, m, "during the siege")
		wantVerdict(t, lift(), helper.Exited, 0)
	})
}

// Counts that the kernel keeps for a user and not for a process: queued signals, message queues, locked memory, keys, pages in pipes,
// descriptors in flight. An ordinary user's box runs as that user.
func TestThreat157UidSharedRlimits(t *testing.T) {
	inEachMode(t, func(t *testing.T, m mode) {
		l := limited(t, m)
		kinds := []string{"timer", "timer#2", "posix queue", "posix queue#2", "locked memory", "locked segment", "locked segment#2", "key", "in flight", "in flight#2"}
		for i := range 8 {
			kinds = append(kinds, fmt.Sprintf("pipe pages#%d", i))
		}
		got, lift := l.besiege(t, "pids: 512", "", append([]string{"seize"}, kinds...)...)
		t.Logf("%v", got)
		if got == nil {
			t.Fatalf("the box did not live to tell: %+v", lift())
		}
		hostIsWell(t, m, "during the siege")
		anotherBoxRuns(t, m, "during the siege")
		wantVerdict(t, lift(), helper.Exited, 0)
	})
}

// sync(2) is for all of the host, whoever calls it: it is bounded only by there being little to write.
func TestThreat162SyncStorm(t *testing.T) {
	inEachMode(t, func(t *testing.T, m mode) {
		l := limited(t, m)
		shared, own := m.dir(t), m.dir(t)
		quiet := slowestWrite(t, own, time.After(time.Second))
		over := make(chan time.Time)
		done := call{
			mode: m, policy: l.policy("pids: 64", "filesystem: {write: [{host: "+shared+", path: /shared}]}"), words: []string{"/skill/probe", "sync-storm", "/shared", "3000"},
		}.started(t)
		var r *helper.Result
		go func() {
			r = <-done
			close(over)
		}()
		slowest := slowestWrite(t, own, over)
		if r == nil {
			t.FailNow()
		}
		wantVerdict(t, r, helper.Exited, 0)
		t.Logf("the slowest write took %v alone, %v in the storm of %s", quiet, slowest, strings.TrimSpace(r.Stdout))
		if bound := patience(2*time.Second) + 2*quiet; slowest > bound {
			t.Errorf("one write took %v, longer than %v", slowest, bound)
		}
	})
}

// slowestWrite writes to the disk and waits for it, over and over.
func slowestWrite(t *testing.T, dir string, over <-chan time.Time) (slowest time.Duration) {
	t.Helper()
	f, err := os.Create(filepath.Join(dir, "host"))
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	for {
		select {
		case <-over:
			return slowest
		default:
		}
		began := time.Now()
		if _, err := f.WriteAt(make([]byte, 1<<20), 0); err != nil {
			t.Fatal(err)
		}
		if err := f.Sync(); err != nil {
			t.Fatal(err)
		}
		slowest = max(slowest, time.Since(began))
		time.Sleep(5 * time.Millisecond)
	}
}

// The kernel reports such a crash in a line or two, by its own rule not more than ten of each kind in five seconds.
func TestThreat163KernelLogFlood(t *testing.T) {
	const crashes = 1000
	withCoreHandler(t)
	inEachMode(t, func(t *testing.T, m mode) {
		before, err := logged("sbcrash")
		if errors.Is(err, unix.EPERM) {
			t.Log("the kernel's log may not be read here: only that the crashes are survived is seen")
		} else if err != nil {
			t.Fatal(err)
		}
		began := time.Now()
		got := call{mode: m, policy: "version: 1\ntimeout: 2m\n"}.attempts(t, "crash", fmt.Sprint(crashes))
		if got["SIGSEGV"] != fmt.Sprint(crashes) {
			t.Errorf("%v", got)
		}
		if err != nil {
			return
		}
		after, err := logged("sbcrash")
		if err != nil {
			t.Fatal(err)
		}
		took := time.Since(began)
		t.Logf("%d crashes in %v: %d lines", crashes, took.Round(time.Millisecond), after-before)
		if bound := 40 * (1 + int(took/(5*time.Second))); after-before > bound {
			t.Errorf("%d lines, want at most %d", after-before, bound)
		}
	})
}

// withCoreHandler gives a complete machine, which is thrown away, what most machines have: a program that takes core files. With a
// core limit of 1 the kernel says each time that it does not call it.
func withCoreHandler(t *testing.T) {
	t.Helper()
	const file = "/proc/sys/kernel/core_pattern"
	if os.Getenv("SKILLBOX_COMPLETE") == "" || os.Getuid() != 0 {
		return
	}
	before, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(file, []byte("|/bin/false"), 0); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := os.WriteFile(file, before, 0); err != nil {
			t.Error(err)
		}
	})
}

// logged counts the lines of the kernel's log that name a word.
func logged(word string) (n int, err error) {
	buffer := make([]byte, 16<<20)
	read, err := unix.Klogctl(unix.SYSLOG_ACTION_READ_ALL, buffer)
	if err != nil {
		return 0, err
	}
	for line := range strings.Lines(string(buffer[:read])) {
		if strings.Contains(line, word) {
			n++
		}
	}
	return n, nil
}

// tooMuch is a writer that takes no more than a bounded client could send.
type tooMuch struct {
	strings.Builder
}

func (w *tooMuch) Write(b []byte) (int, error) {
	if w.Len()+len(b) > 64<<20 {
		return 0, io.ErrShortWrite
	}
	return w.Builder.Write(b)
}

func TestAStdoutFloodEndsAtItsLimit(t *testing.T) {
	inEachMode(t, func(t *testing.T, m mode) {
		policy := m.file(t, "policy.yaml", "version: 1\nresources: {output: 1Mi}\n")
		for _, flags := range [][]string{{"--json"}, nil} {
			within(t, patience(3*time.Second), func() {
				c := m.command(append(append([]string{"exec"}, flags...), "--policy", policy, m.sharedBundle(t), "--", "/skill/probe", "flood", "10240")...)
				out := &tooMuch{}
				c.Stdout = out
				var exit *exec.ExitError
				if err := c.Run(); !errors.As(err, &exit) || exit.ExitCode() != helper.CodeOutputLimit {
					t.Errorf("%v: %v", flags, err)
				}
				if out.Len() > 8<<20 {
					t.Errorf("%v: %d bytes came out", flags, out.Len())
				}
				if usage, ok := c.ProcessState.SysUsage().(*syscall.Rusage); ok && usage.Maxrss > 64<<10 {
					t.Errorf("%v: skillbox took %d KiB", flags, usage.Maxrss)
				}
			})
		}
		hostIsWell(t, m, "after")
	})
}
