//go:build linux

package integration

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"skillbox/helper"
)

// Group H: file systems in memory, and the disk.

// bytesAnd splits what the probe's fill and inodes say: how many, and what ended it.
func bytesAnd(t *testing.T, text string) (n int, end string) {
	t.Helper()
	count, end, _ := strings.Cut(text, " ")
	return number(t, count), end
}

func TestThreat145TmpfsFill(t *testing.T) {
	inEachMode(t, func(t *testing.T, m mode) {
		l := limited(t, m)
		got := call{mode: m, policy: "version: 1\nfilesystem: {tmp: 2Mi, home: 2Mi, output: 2Mi}\n"}.attempts(t, "fill",
			"write /tmp", "write /dev/shm", "write /home/skill", "write /output", "write /run/skillbox/result",
			"write /", "write /dev", "write /dev/pts", "write /run", "write /run/secrets", "write /skill", "write /etc", "write /proc", "write /usr")
		for way, a := range got {
			n, end := bytesAnd(t, a)
			switch way {
			case "write /tmp", "write /dev/shm", "write /home/skill", "write /output":
				if n != 2<<20 || end != "ENOSPC" {
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
		for _, way := range []string{"write /tmp", "deleted /dev/shm", "memfd", "shared", "sysv"} {
			r := call{mode: m, policy: l.policy("memory: 32Mi", "timeout: 5m", "filesystem: {tmp: 1Gi}"), words: []string{"/skill/probe", "fill", way}}.run(t)
			if r.Verdict != helper.OutOfMemory {
				t.Errorf("%s:", way)
			}
			t.Logf("%s: %.0f ms", way, r.DurationMS)
			wantVerdict(t, r, helper.OutOfMemory, helper.CodeOutOfMemory)
			l.peak(t, way+": memory_peak", r.Usage.MemoryPeak, l.pick(32<<20, 1<<30), 5, 19)
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

func TestThreat150InodeExhaustion(t *testing.T) {
	inEachMode(t, func(t *testing.T, m mode) {
		l := limited(t, m)
		got := call{mode: m, policy: "version: 1\ntimeout: 5m\nfilesystem: {tmp: 4Mi, home: 4Mi, output: 4Mi}\nrootfs: {bundle: copy-on-write}\n"}.attempts(t, "inodes",
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
		r := call{mode: m, policy: l.policy("memory: 24Mi", "timeout: 5m", "filesystem: {tmp: 1Gi}"), words: []string{"/skill/probe", "inodes", "/tmp"}}.run(t)
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
