package audit

import (
	"bytes"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

// This test binary is also the other processes that tests need.
func TestMain(m *testing.M) {
	role, dir := os.Getenv("AUDIT_TEST_ROLE"), os.Getenv("AUDIT_TEST_DIR")
	if role == "" {
		os.Exit(m.Run())
	}
	if err := play(role, dir); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

func play(role, dir string) error {
	switch role {
	case "thousand", "endless":
		l, err := Open(dir, Options{Sync: SyncNone, Interval: 5 * time.Millisecond, MaxSegment: 256 << 10})
		if err != nil {
			return err
		}
		for i := 0; i < 250 || role == "endless"; i++ {
			if err := l.Append(run(fmt.Sprintf("%d-%d", os.Getpid(), i))...); err != nil {
				return err
			}
		}
		return l.Close()
	case "full":
		return onAFullDisk(dir)
	case "full-drop":
		return dropsOnAFullDisk(dir)
	}
	return fmt.Errorf("no role %q", role)
}

func other(t testing.TB, role, dir string) *exec.Cmd {
	t.Helper()
	c := exec.Command("/proc/self/exe")
	c.Env = append(os.Environ(), "AUDIT_TEST_ROLE="+role, "AUDIT_TEST_DIR="+dir)
	c.Stderr = &bytes.Buffer{}
	c.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	return c
}

func TestProcessesAppendToOneLogAtATime(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "audit")
	const processes = 4
	var all []*exec.Cmd
	for range processes {
		c := other(t, "thousand", dir)
		if err := c.Start(); err != nil {
			t.Fatal(err)
		}
		all = append(all, c)
	}
	for _, c := range all {
		if err := c.Wait(); err != nil {
			t.Errorf("%v: %s", err, c.Stderr)
		}
	}
	r := whole(t, dir)
	if r.Unsigned > 0 || r.Torn > 0 || r.Segments < 2 {
		t.Errorf("%+v", r)
	}
	// Each batch stands together, and nobody's is missing.
	runs := map[string][]Kind{}
	var last string
	for e, err := range Read(dir, Query{}) {
		if err != nil {
			t.Fatal(err)
		}
		if e.Run == "" {
			continue
		}
		if len(runs[e.Run]) > 0 && last != e.Run {
			t.Errorf("record %d of run %s stands alone", e.Seq, e.Run)
		}
		runs[e.Run], last = append(runs[e.Run], e.Kind), e.Run
	}
	for id, kinds := range runs {
		if !slices.Equal(kinds, []Kind{RunGranted, RunStarted, DNSKind, RunEnded}) {
			t.Errorf("run %s: %v", id, kinds)
		}
	}
	if len(runs) != processes*250 {
		t.Errorf("%d runs", len(runs))
	}
}

func TestAKilledWriterLeavesALogThatGoesOn(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "audit")
	times := 50
	if testing.Short() {
		times = 10
	}
	var before uint64
	for i := range times {
		c := other(t, "endless", dir)
		if err := c.Start(); err != nil {
			t.Fatal(err)
		}
		if i%2 == 0 { // else it may be killed before it has written anything
			untilGrown(t, dir)
		}
		time.Sleep(time.Duration(rand.IntN(20_000)) * time.Microsecond)
		if err := c.Process.Kill(); err != nil {
			t.Fatal(err)
		}
		if err := c.Wait(); err == nil || c.ProcessState.Exited() {
			t.Fatalf("it ended by itself: %v: %s", err, c.Stderr)
		}
		if _, err := os.Stat(filepath.Join(dir, publicFile)); errors.Is(err, os.ErrNotExist) {
			continue // killed before it had a log
		}
		if r := whole(t, dir); r.Last < before {
			t.Fatalf("there were %d records, now there are %d", before, r.Last)
		}
		l := open(t, dir, quick)
		add(t, l, run("after")...)
		shut(t, l)
		r := whole(t, dir)
		if r.Unsigned > 0 || r.TornBytes > 0 {
			t.Fatalf("%+v", r)
		}
		before = r.Last
	}
	t.Logf("%d records after %d kills", before, times)
	if before < uint64(4*times) {
		t.Errorf("only %d records: the writers were killed before they wrote", before)
	}
}

// untilGrown waits until somebody has written to the log.
func untilGrown(t *testing.T, dir string) {
	t.Helper()
	size := func() (n int64) {
		names, err := filepath.Glob(filepath.Join(dir, "*"+suffix))
		if err != nil {
			t.Fatal(err)
		}
		for _, name := range names {
			if info, err := os.Stat(name); err == nil {
				n += info.Size()
			}
		}
		return n
	}
	began := time.Now()
	for before := size(); size() <= before; time.Sleep(time.Millisecond) {
		if time.Since(began) > 30*time.Second {
			t.Fatal("nothing was written")
		}
	}
}

// A process can die at each byte of a write.
func TestATornLineIsToldOfAndTheLogGoesOn(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "audit")
	l := open(t, dir, quick)
	add(t, l, run("one")...)
	shut(t, l)
	signed := whole(t, dir)
	path := filepath.Join(dir, segmentName(1))
	for _, torn := range []string{"{", `{"v":1,"seq":7,"prev":"`, strings.Repeat("x", 5000), "\x00\x00\x00"} {
		put(t, append(content(t, path), torn...), path)
		r := whole(t, dir)
		if r.TornBytes != len(torn) {
			t.Errorf("%+v", r)
		}
		l = open(t, dir, quick)
		add(t, l, run("after")...)
		shut(t, l)
	}
	r := whole(t, dir)
	if r.Torn != 4 || r.TornBytes != 0 || r.Last <= signed.Last {
		t.Errorf("%+v", r)
	}
	var bytes []int64
	for e, err := range Read(dir, Query{Kinds: []Kind{LogTorn}}) {
		if err != nil {
			t.Fatal(err)
		}
		bytes = append(bytes, e.Detail.(Torn).Bytes)
	}
	if !slices.Equal(bytes, []int64{1, 23, 5000, 3}) {
		t.Errorf("%v", bytes)
	}
}

// Behind a checkpoint there is nothing to sign, but for what was torn there.
func TestATornLineBehindACheckpointIsToldOf(t *testing.T) {
	const torn = `{"v":1,"seq":7,"prev":"`
	for name, do := range map[string]func(t *testing.T, dir string){
		"by who rotates": func(t *testing.T, dir string) {
			l := open(t, dir, quick)
			l.opts.MaxSegment = 1 // due
			add(t, l, run("after")...)
			l.opts.MaxSegment = 64 << 20
			shut(t, l)
			if r := whole(t, dir); r.Segments != 2 {
				t.Errorf("%+v", r)
			}
		},
		"by who writes nothing else": func(t *testing.T, dir string) { shut(t, open(t, dir, quick)) },
		// Who cut it off could not write of it, and meanwhile another process begins a segment.
		"in a later segment": func(t *testing.T, dir string) {
			l := open(t, dir, quick)
			l2 := open(t, dir, quick)
			l2.opts.MaxSegment = 1
			add(t, l2, run("meanwhile")...)
			l2.opts.MaxSegment = 64 << 20
			shut(t, l2)
			shut(t, l)
		},
	} {
		t.Run(name, func(t *testing.T) {
			dir := filepath.Join(t.TempDir(), "audit")
			l := open(t, dir, quick)
			add(t, l, run("one")...)
			shut(t, l)
			path := filepath.Join(dir, segmentName(1))
			put(t, append(content(t, path), torn...), path)
			do(t, dir)
			if r := whole(t, dir); r.Torn != 1 || r.TornBytes > 0 || r.Unsigned > 0 {
				t.Errorf("%+v", r)
			}
		})
	}
}

// Whoever begins a segment can die before its first record is whole.
func TestASegmentThatWasNeverBegunIsBegun(t *testing.T) {
	for _, torn := range []string{"", `{"v":1,"seq":`} {
		dir := small(t)
		put(t, []byte(torn), dir, segmentName(3))
		whole(t, dir)
		l := open(t, dir, quick)
		add(t, l, run("after")...)
		shut(t, l)
		if r := whole(t, dir); r.Segments != 3 || r.Unsigned > 0 {
			t.Errorf("%+v", r)
		}
	}
}

// The head comes after its checkpoint. Who dies between them leaves the head of before, or none.
func TestAHeadThatWasNotWrittenIsWrittenByTheNext(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "audit")
	l := open(t, dir, quick)
	add(t, l, run("one")...)
	shut(t, l)
	older := content(t, dir, headFile)
	l = open(t, dir, quick)
	add(t, l, run("two")...)
	shut(t, l)
	newer := content(t, dir, headFile)
	for _, head := range [][]byte{older, nil} {
		if err := os.Remove(filepath.Join(dir, headFile)); err != nil {
			t.Fatal(err)
		}
		if head != nil {
			put(t, head, dir, headFile)
			whole(t, dir)
		}
		shut(t, open(t, dir, quick))
		if !bytes.Equal(content(t, dir, headFile), newer) {
			t.Error("the head is not the newest checkpoint's")
		}
		whole(t, dir)
	}
}

// Who writes the first checkpoint can die at each step: its head is announced, the checkpoint written, the head made of what was announced.
func TestAFirstHeadThatWasNotWrittenIsNoDamage(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "audit")
	l := open(t, dir, quick)
	add(t, l, run("one")...)
	unsigned := content(t, dir, segmentName(1))
	shut(t, l)
	signed, head := content(t, dir, segmentName(1)), content(t, dir, headFile)
	l = open(t, dir, quick)
	add(t, l, run("two")...)
	more := content(t, dir, segmentName(1)) // another process goes on before anybody signs
	shut(t, l)

	for name, c := range map[string]struct{ segment, first []byte }{
		"nothing was announced":         {unsigned, nil},
		"half of it":                    {unsigned, nil},
		"announced":                     {unsigned, head},
		"announced and begun":           {signed[:len(unsigned)+10], head},
		"the checkpoint is there":       {signed, head},
		"and records of others":         {more, head},
		"and the beginning of a record": {more[:len(more)-1], head},
	} {
		for _, how := range []string{"append", "rotate", "close"} {
			t.Run(name+", "+how, func(t *testing.T) {
				_ = os.Remove(filepath.Join(dir, headFile))
				_ = os.Remove(filepath.Join(dir, segmentName(2)))
				put(t, c.segment, dir, segmentName(1))
				if c.first != nil {
					put(t, c.first, dir, firstHead)
				}
				if name == "half of it" {
					put(t, head[:len(head)/2], dir, firstHead+".new")
				}
				whole(t, dir)
				l := open(t, dir, quick)
				whole(t, dir)
				if how != "close" {
					add(t, l, run("after")...)
					whole(t, dir)
				}
				if how == "rotate" {
					l.opts.MaxSegment = 1
					add(t, l, run("after that")...)
					l.opts.MaxSegment = 64 << 20
					whole(t, dir) // a second checkpoint: there is a head by now
					content(t, dir, headFile)
				}
				shut(t, l)
				if r := whole(t, dir); r.Unsigned > 0 || r.TornBytes > 0 {
					t.Errorf("%+v", r)
				}
				content(t, dir, headFile)
				for _, left := range []string{firstHead, firstHead + ".new"} {
					if _, err := os.Stat(filepath.Join(dir, left)); !errors.Is(err, os.ErrNotExist) {
						t.Errorf("%s is left: %v", left, err)
					}
				}
			})
		}
	}
}

func TestAWriterKilledAtItsFirstCheckpointLeavesAWholeLog(t *testing.T) {
	times := 60
	if testing.Short() {
		times = 10
	}
	states := map[string]int{}
	for range times {
		dir := filepath.Join(t.TempDir(), "audit")
		c := other(t, "endless", dir)
		if err := c.Start(); err != nil {
			t.Fatal(err)
		}
		untilGrown(t, dir)
		time.Sleep(time.Duration(rand.IntN(10_000)) * time.Microsecond) // it signs every 5 ms
		if err := c.Process.Kill(); err != nil {
			t.Fatal(err)
		}
		if err := c.Wait(); err == nil || c.ProcessState.Exited() {
			t.Fatalf("it ended by itself: %v: %s", err, c.Stderr)
		}
		r := whole(t, dir)
		states[fmt.Sprintf("%d checkpoints", min(r.Checkpoints, 2))]++
		shut(t, open(t, dir, quick))
		whole(t, dir)
	}
	t.Log(states)
}

func TestTwoWhoOpenAtOnceMakeOneKey(t *testing.T) {
	for range 20 {
		dir := filepath.Join(t.TempDir(), "audit")
		keys := make([]string, 8)
		var all sync.WaitGroup
		for i := range keys {
			all.Go(func() {
				l, err := Open(dir, quick)
				if err != nil {
					t.Error(err)
					return
				}
				keys[i] = keyID(l.publicKey())
				if err := l.Append(run(fmt.Sprint(i))...); err != nil {
					t.Error(err)
				}
				if err := l.Close(); err != nil {
					t.Error(err)
				}
			})
		}
		all.Wait()
		if len(slices.Compact(slices.Clone(keys))) != 1 {
			t.Fatalf("%v", keys)
		}
		if r := whole(t, dir); r.Key != keys[0] || r.Records < 8*4 {
			t.Errorf("%+v", r)
		}
	}
}

func TestARecordIsSignedWithinASecond(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "audit")
	l := open(t, dir, Options{})
	began := time.Now()
	add(t, l, run("one")...)
	for r := whole(t, dir); r.Unsigned > 0; r = whole(t, dir) {
		if time.Since(began) > 5*time.Second { // a second, and what a busy machine's disk takes
			t.Fatalf("%+v after %s", r, time.Since(began))
		}
		time.Sleep(10 * time.Millisecond)
	}
	t.Logf("after %s", time.Since(began))
	size := len(content(t, dir, segmentName(1)))
	time.Sleep(2 * l.opts.Interval)
	if now := len(content(t, dir, segmentName(1))); now != size {
		t.Errorf("nothing was recorded, and the log grew from %d to %d bytes", size, now)
	}
}

func TestAStoppedHolderIsNotWaitedForForEver(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "audit")
	l := open(t, dir, Options{Sync: SyncNone, LockWait: 50 * time.Millisecond})
	held, err := os.Open(filepath.Join(dir, lockFile))
	if err != nil {
		t.Fatal(err)
	}
	defer held.Close()
	if err := unix.Flock(int(held.Fd()), unix.LOCK_EX); err != nil {
		t.Fatal(err)
	}
	if err := l.Append(run("one")...); !errors.Is(err, errBusy) {
		t.Errorf("%v", err)
	}
	if err := unix.Flock(int(held.Fd()), unix.LOCK_UN); err != nil {
		t.Fatal(err)
	}
	add(t, l, run("one")...)
}
