package sandbox

import (
	"bytes"
	"fmt"
	"io"
	"os"
	"sync/atomic"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

// wired is a call's stdio with this process as the skill and as the caller.
type wired struct {
	*stdio
	lasts  bool        // the box outlives the call
	skill  [3]int      // the skill's ends
	caller [3]*os.File // the caller's other ends
	over   atomic.Int64
}

func wireUp(t *testing.T, limit int64, merged bool) *wired {
	t.Helper()
	w := &wired{}
	w.wire(t, limit, merged, func() { w.over.Add(1) })
	return w
}

func (w *wired) wire(t *testing.T, limit int64, merged bool, onLimit func()) {
	t.Helper()
	var ours [3]*os.File
	for i := range 3 {
		r, p, err := os.Pipe()
		if err != nil {
			t.Fatal(err)
		}
		ours[i], w.caller[i] = p, r
		if i == 0 {
			ours[i], w.caller[i] = r, p
		}
		defer ours[i].Close()
		t.Cleanup(func() { w.caller[i].Close() })
	}
	if merged {
		ours[2] = ours[1]
	}
	// The relays are given duplicates: they outlive this function.
	var fds [3]int
	for i, f := range ours {
		fd, err := unix.FcntlInt(f.Fd(), unix.F_DUPFD_CLOEXEC, 3)
		if err != nil {
			t.Fatal(err)
		}
		fds[i] = fd
	}
	t.Cleanup(func() {
		for _, fd := range fds {
			unix.Close(fd)
		}
	})
	var err error
	if w.stdio, err = connect(fds, -1, os.Getuid(), os.Getgid(), limit, onLimit); err != nil {
		t.Fatal(err)
	}
	for i, fd := range w.box {
		if w.skill[i], err = unix.FcntlInt(uintptr(fd), unix.F_DUPFD_CLOEXEC, 3); err != nil {
			t.Fatal(err)
		}
	}
	w.handOver()
	if w.lasts {
		if err := w.stay(); err != nil {
			t.Fatal(err)
		}
	}
	w.start()
}

func (w *wired) endSkill() {
	for _, fd := range w.skill {
		unix.Close(fd)
	}
}

func TestRelaysPassEverythingOn(t *testing.T) {
	before := openFiles(t)
	t.Run("", func(t *testing.T) {
		w := wireUp(t, 1<<30, false)
		data := bytes.Repeat([]byte("0123456789abcdef"), 1<<16)
		go func() {
			_, _ = w.caller[0].Write(data) // a failure shows in what arrives
			w.caller[0].Close()
		}()
		got := make(chan []byte, 2)
		for _, n := range []int{1, 2} {
			go func() {
				text, _ := io.ReadAll(io.LimitReader(w.caller[n], int64(len(data))))
				got <- text
			}()
		}
		for _, n := range []int{1, 2} {
			out := os.NewFile(uintptr(w.skill[n]), "out")
			in := io.Reader(bytes.NewReader(data))
			if n == 1 {
				in = os.NewFile(uintptr(w.skill[0]), "in") // from the caller through the skill and back
			}
			if _, err := io.Copy(out, in); err != nil {
				t.Fatal(err)
			}
			out.Close()
			if f, ok := in.(*os.File); ok {
				f.Close()
			}
		}
		for range 2 {
			if text := <-got; !bytes.Equal(text, data) {
				t.Errorf("%d bytes arrived, not the same %d", len(text), len(data))
			}
		}
		taken, err := w.finish(time.Minute, nil)
		if n, truncated := w.bytesOf(1); !taken || err != nil || n != int64(len(data)) || truncated {
			t.Errorf("taken %v, %v, %d bytes, truncated %v", taken, err, n, truncated)
		}
	})
	if after := openFiles(t); after != before {
		t.Errorf("%d descriptors are open, %d were before", after, before)
	}
}

func openFiles(t *testing.T) int {
	t.Helper()
	entries, err := os.ReadDir("/proc/self/fd")
	if err != nil {
		t.Fatal(err)
	}
	return len(entries)
}

func TestOneLimitHoldsForBothStreams(t *testing.T) {
	w := wireUp(t, 100, false)
	for _, n := range []int{1, 2} {
		if _, err := unix.Write(w.skill[n], make([]byte, 80)); err != nil {
			t.Fatal(err)
		}
	}
	w.endSkill()
	if _, err := w.finish(time.Minute, nil); err != nil {
		t.Error(err)
	}
	out, cutOut := w.bytesOf(1)
	errs, cutErr := w.bytesOf(2)
	if out+errs != 100 || cutOut == cutErr || w.over.Load() != 1 {
		t.Errorf("%d and %d bytes, truncated %v and %v, told %d times", out, errs, cutOut, cutErr, w.over.Load())
	}
}

func TestWhatIsAboveTheLimitIsDropped(t *testing.T) {
	before := openFiles(t)
	t.Run("", func(t *testing.T) {
		w := &wired{}
		w.wire(t, 100, false, nil)
		for _, n := range []int{1, 2, 1, 2} {
			if _, err := unix.Write(w.skill[n], make([]byte, 70)); err != nil {
				t.Fatal(err)
			}
		}
		// No one reads at the caller's side, and the skill does not wait.
		flood := make([]byte, 1<<20)
		for range 200 {
			for left := len(flood); left > 0; {
				n, err := unix.Write(w.skill[1], flood[:left])
				if err != nil {
					t.Fatal(err)
				}
				left -= n
			}
		}
		w.endSkill()
		if taken, err := w.finish(time.Minute, nil); !taken || err != nil {
			t.Errorf("taken %v, %v", taken, err)
		}
		out, cutOut := w.bytesOf(1)
		errs, cutErr := w.bytesOf(2)
		if out+errs != 100 || !cutOut || !cutErr || w.dropped.Load() != 180+200<<20 {
			t.Errorf("%d and %d bytes, truncated %v and %v, %d dropped", out, errs, cutOut, cutErr, w.dropped.Load())
		}
	})
	if after := openFiles(t); after != before {
		t.Errorf("%d descriptors are open, %d were before", after, before)
	}
}

func TestWhatATerminalIsSentAboveTheLimitIsDropped(t *testing.T) {
	master, err := os.OpenFile("/dev/ptmx", os.O_RDWR|unix.O_NOCTTY, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer master.Close()
	fd := int(master.Fd()) // it blocks from here on
	if err := unix.IoctlSetPointerInt(fd, unix.TIOCSPTLCK, 0); err != nil {
		t.Fatal(err)
	}
	number, err := unix.IoctlGetInt(fd, unix.TIOCGPTN)
	if err != nil {
		t.Fatal(err)
	}
	slave, err := os.OpenFile(fmt.Sprintf("/dev/pts/%d", number), os.O_RDWR|unix.O_NOCTTY, 0)
	if err != nil {
		t.Fatal(err)
	}
	in, typed, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	defer in.Close()
	defer typed.Close()
	shown, out, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	defer shown.Close()
	defer out.Close()
	s, err := terminal(fd, [3]int{int(in.Fd()), int(out.Fd()), int(out.Fd())}, 1000, nil)
	if err != nil {
		t.Fatal(err)
	}
	s.start()
	for range 1000 {
		if _, err := slave.Write(bytes.Repeat([]byte("x"), 1000)); err != nil {
			t.Fatal(err)
		}
	}
	slave.Close()
	if taken, err := s.finish(time.Minute, nil); !taken || err != nil {
		t.Errorf("taken %v, %v", taken, err)
	}
	if n, cut := s.bytesOf(1); n != 1000 || !cut || s.dropped.Load() != 999_000 {
		t.Errorf("%d bytes, truncated %v, %d dropped", n, cut, s.dropped.Load())
	}
}

func TestASharedOutputStaysOnePipe(t *testing.T) {
	w := wireUp(t, 1<<20, true)
	for i := range 100 {
		if _, err := unix.Write(w.skill[1+i%2], []byte{byte(i)}); err != nil {
			t.Fatal(err)
		}
	}
	w.endSkill()
	if _, err := w.finish(time.Minute, nil); err != nil {
		t.Error(err)
	}
	got := make([]byte, 100)
	if _, err := io.ReadFull(w.caller[1], got); err != nil {
		t.Fatal(err)
	}
	for i, b := range got {
		if int(b) != i {
			t.Fatalf("byte %d is %d", i, b)
		}
	}
}

func TestAReaderWhoLeavesEndsTheSkillsPipe(t *testing.T) {
	w := wireUp(t, 1<<30, false)
	w.caller[1].Close()
	deadline := time.Now().Add(5 * time.Second)
	for {
		if _, err := unix.Write(w.skill[1], []byte("x")); err == unix.EPIPE {
			break
		}
		if time.Now().After(deadline) {
			t.Fatal("the skill can write for ever")
		}
	}
	w.endSkill()
	if taken, err := w.finish(time.Minute, nil); !taken || err != nil {
		t.Errorf("taken %v, %v", taken, err)
	}
}

func TestACallerWhoDoesNotReadIsLeft(t *testing.T) {
	for name, c := range map[string]struct {
		within time.Duration
		cancel func(chan struct{})
	}{
		"in time":         {50 * time.Millisecond, func(chan struct{}) {}},
		"by a cancel":     {time.Minute, func(c chan struct{}) { c <- struct{}{} }},
		"when it is gone": {time.Minute, func(c chan struct{}) { close(c) }},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			w := wireUp(t, 1<<30, false)
			if err := unix.SetNonblock(w.skill[1], true); err != nil {
				t.Fatal(err)
			}
			for refused := 0; refused < 20; { // both pipes are full when nothing has moved for a while
				if _, err := unix.Write(w.skill[1], make([]byte, 4096)); err == unix.EAGAIN {
					refused++
					time.Sleep(10 * time.Millisecond)
				} else {
					refused = 0
				}
			}
			w.endSkill()
			cancel := make(chan struct{}, 1)
			c.cancel(cancel)
			began := time.Now()
			taken, err := w.finish(c.within, cancel)
			if _, truncated := w.bytesOf(1); taken || err != nil || !truncated {
				t.Errorf("taken %v, %v, truncated %v", taken, err, truncated)
			}
			if took := time.Since(began); took > grace+5*time.Second {
				t.Errorf("it took %v", took)
			}
		})
	}
}

func TestInputEndsWithTheRun(t *testing.T) {
	w := wireUp(t, 1<<30, false) // the caller's stdin stays open and silent
	w.endSkill()
	if taken, err := w.finish(time.Minute, nil); !taken || err != nil {
		t.Errorf("taken %v, %v", taken, err)
	}
}

func TestParametersAreOneJSONValue(t *testing.T) {
	for text, ok := range map[string]bool{
		`{}`: true, " [1, {\"a\": [null]}] \n": true, `"x"`: true, `0`: true, `null`: true,
		``: false, ` `: false, `{`: false, `{} {}`: false, `{}]`: false, `1 2`: false, `{"a" 1}`: false, `[1,]`: false, `nul`: false, `x`: false, `"`: false,
	} {
		f, err := os.CreateTemp(t.TempDir(), "")
		if err != nil {
			t.Fatal(err)
		}
		defer f.Close()
		if _, err := f.WriteString(text); err != nil {
			t.Fatal(err)
		}
		if err := oneJSONValue(int(f.Fd())); (err == nil) != ok {
			t.Errorf("%q: %v", text, err)
		}
	}
}
