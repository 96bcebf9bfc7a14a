package wire

import (
	"errors"
	"io"
	"os"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

func TestAConnectionIsPassedOnWithItsNote(t *testing.T) {
	to, from, err := Relay()
	if err != nil {
		t.Fatal(err)
	}
	defer from.Close()
	if c, _, err := Take(int(from.Fd()), time.Millisecond); c != nil || err != nil {
		t.Errorf("nobody passed anything: %v, %v", c, err)
	}
	for _, note := range []string{"", "who it was", string(make([]byte, maxNote))} {
		ours, theirs, err := Pair()
		if err != nil {
			t.Fatal(err)
		}
		if err := Pass(int(to.Fd()), ours, []byte(note)); err != nil {
			t.Fatal(err)
		}
		ours.Close()
		taken, got, err := Take(int(from.Fd()), time.Second)
		if err != nil || taken == nil || string(got) != note {
			t.Fatalf("%v, %q", err, got)
		}
		if who, err := taken.Owner(); err != nil || int(who.Uid) != os.Getuid() {
			t.Errorf("%v, %+v", err, who)
		}
		if err := taken.SendNow(map[string]int{"a": 1}); err != nil {
			t.Error(err)
		}
		other, answer := FromFD(int(theirs.Fd())), map[string]int{}
		if _, err := other.Receive(&answer); err != nil || answer["a"] != 1 {
			t.Errorf("%v, %v", err, answer)
		}
		taken.Close()
		theirs.Close()
	}
	if err := Pass(int(to.Fd()), &Conn{fd: 0}, make([]byte, maxNote+1)); !errors.Is(err, ErrProtocol) {
		t.Errorf("a long note: %v", err)
	}
	to.Close()
	if c, _, err := Take(int(from.Fd()), time.Second); c != nil || !errors.Is(err, io.EOF) {
		t.Errorf("the end: %v, %v", c, err)
	}
}

func TestWhoPassesConnectionsOnNeverWaits(t *testing.T) {
	to, from, err := Relay()
	if err != nil {
		t.Fatal(err)
	}
	defer to.Close()
	defer from.Close()
	ours, theirs, err := Pair()
	if err != nil {
		t.Fatal(err)
	}
	defer ours.Close()
	defer theirs.Close()
	passed := 0
	for err == nil && passed < 100000 {
		if err = Pass(int(to.Fd()), ours, nil); err == nil {
			passed++
		}
	}
	if !errors.Is(err, ErrFull) || passed == 0 {
		t.Errorf("after %d: %v", passed, err)
	}
	// What does not fit into the socket of a peer who does not read is an error at once.
	for err = error(nil); err == nil; {
		err = ours.SendNow(make([]byte, 10000))
	}
	if !errors.Is(err, unix.EAGAIN) {
		t.Error(err)
	}
	for range passed {
		c, _, err := Take(int(from.Fd()), time.Second)
		if err != nil || c == nil {
			t.Fatal(err)
		}
		c.Close()
	}
}

func TestWhatIsNoConnectionIsNotTaken(t *testing.T) {
	to, from, err := Relay()
	if err != nil {
		t.Fatal(err)
	}
	defer to.Close()
	defer from.Close()
	for name, rights := range map[string][]byte{"no descriptor": nil, "two": unix.UnixRights(0, 0)} {
		if _, err := unix.SendmsgN(int(to.Fd()), []byte{0}, rights, nil, 0); err != nil {
			t.Fatal(err)
		}
		if c, _, err := Take(int(from.Fd()), time.Second); c != nil || !errors.Is(err, ErrProtocol) {
			t.Errorf("%s: %v, %v", name, c, err)
		}
	}
}
