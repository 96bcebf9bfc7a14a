package sandbox

import (
	"bytes"
	"fmt"
	"io"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

// lasting is a call's stdio in a box that outlives it.
func lasting(t *testing.T, limit int64, merged bool, onLimit func()) *wired {
	t.Helper()
	w := &wired{lasts: true}
	w.wire(t, limit, merged, onLimit)
	t.Cleanup(w.endSkill)
	return w
}

func (w *wired) finishes(t *testing.T) {
	t.Helper()
	began := time.Now()
	taken, err := w.finish(10*time.Second, nil)
	if took := time.Since(began); !taken || err != nil || took > 2*time.Second {
		t.Errorf("taken %v, %v after %v", taken, err, took)
	}
}

func TestARelayEndsWithItsCallWhoeverHoldsThePipe(t *testing.T) {
	for _, size := range []int{0, 3, 64 << 10} { // as much as the pipe holds
		w := lasting(t, 1<<30, false, nil)
		said := bytes.Repeat([]byte("x"), size)
		if n, err := unix.Write(w.skill[1], said); n != size || err != nil {
			t.Fatal(n, err)
		}
		got := make(chan []byte, 1)
		go func() {
			all := make([]byte, size)
			n, _ := io.ReadFull(w.caller[1], all)
			got <- all[:n]
		}()
		w.finishes(t)
		if all := <-got; !bytes.Equal(all, said) {
			t.Errorf("%d of %d bytes came", len(all), size)
		}
		if _, err := unix.Write(w.skill[1], []byte("x")); err != unix.EPIPE {
			t.Errorf("whoever writes on is told: %v", err)
		}
		if n, err := unix.Read(w.skill[0], make([]byte, 1)); n != 0 || err != nil {
			t.Errorf("whoever reads on sees an end: %d, %v", n, err)
		}
	}
}

func TestARelayEndsWithItsCallWhoeverWritesOnOrReads(t *testing.T) {
	for name, limit := range map[string]int64{"passed on": 1 << 40, "dropped": 10} {
		w := lasting(t, limit, false, nil)
		go func() { _, _ = io.Copy(io.Discard, w.caller[1]) }()
		go func() {
			for { // until there is nobody who reads
				if _, err := unix.Write(w.skill[1], make([]byte, 1000)); err != nil {
					return
				}
			}
		}()
		time.Sleep(50 * time.Millisecond)
		w.finishes(t)
		if name == "dropped" && w.dropped.Load() == 0 {
			t.Error("nothing was dropped")
		}
	}
	// A skill may read its own output, and leave the relay with what was there a moment ago.
	w := lasting(t, 1<<30, false, nil)
	mine, err := unix.Open(fmt.Sprintf("/proc/self/fd/%d", w.skill[1]), unix.O_RDONLY|unix.O_CLOEXEC, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer unix.Close(mine)
	stop := make(chan struct{})
	go func() {
		for buffer := make([]byte, 100); ; {
			select {
			case <-stop:
				return
			default:
			}
			_, _ = unix.Write(w.skill[1], buffer[:50])
			_ = unix.SetNonblock(mine, true)
			_, _ = unix.Read(mine, buffer)
		}
	}()
	go func() { _, _ = io.Copy(io.Discard, w.caller[1]) }()
	time.Sleep(50 * time.Millisecond)
	w.finishes(t)
	close(stop)
}

func TestProcessorTimeIsAllowedAnew(t *testing.T) {
	for _, c := range []struct{ once, timeout, passed, want time.Duration }{
		{0, time.Second, time.Hour, 0}, // no limit
		{2 * time.Second, time.Second, 0, 2 * time.Second},
		{2 * time.Second, time.Second, 500 * time.Millisecond, 3 * time.Second},
		{time.Second, 2 * time.Second, 24 * time.Hour, 12*time.Hour + time.Second},
	} {
		if got := allowed(c.once, c.timeout, c.passed); got != c.want {
			t.Errorf("%v of %v after %v: %v, want %v", c.once, c.timeout, c.passed, got, c.want)
		}
	}
}

func TestOnlyWhatWeMadeIsAnID(t *testing.T) {
	for range 100 {
		if id := NewID(); !ValidID(id) {
			t.Error(id)
		}
	}
	for _, name := range []string{"", "0", "000000000000000", "00000000000000000", "000000000000000i", "000000000000000O", "00000000000000/0", "000000000000000\n", "000000000000000é", "../0000000000000"} {
		if ValidID(name) {
			t.Errorf("%q", name)
		}
	}
}
