package helper

import (
	"errors"
	"testing"

	"golang.org/x/sys/unix"

	"skillbox/wire"
)

// pair is a connection, ours and skillboxd's.
func pair(t *testing.T) (ours, theirs *wire.Conn) {
	t.Helper()
	ours, end, err := wire.Pair()
	if err != nil {
		t.Fatal(err)
	}
	fd, err := unix.Dup(int(end.Fd()))
	if err != nil {
		t.Fatal(err)
	}
	end.Close()
	return ours, wire.FromFD(fd)
}

func TestAServiceThatDiedWithTheRequestUnreadDidNothing(t *testing.T) {
	for _, c := range []struct {
		name string
		want error
		die  func(theirs *wire.Conn)
	}{
		{"before the request", ErrRetired, func(theirs *wire.Conn) { theirs.Close() }},
		{"with the request unread", ErrRetired, func(theirs *wire.Conn) {
			if _, err := unix.Poll([]unix.PollFd{{Fd: int32(theirs.FD()), Events: unix.POLLIN}}, -1); err != nil {
				t.Error(err)
			}
			theirs.Close()
		}},
		{"with the request read", errUnanswered, func(theirs *wire.Conn) {
			var r Request
			if _, err := theirs.Receive(&r); err != nil {
				t.Error(err)
			}
			theirs.Close()
		}},
		{"with the request read and a cancel unread", errUnanswered, func(theirs *wire.Conn) {
			var r Request
			if _, err := theirs.Receive(&r); err != nil {
				t.Error(err)
			}
			if _, err := unix.Poll([]unix.PollFd{{Fd: int32(theirs.FD()), Events: unix.POLLIN}}, -1); err != nil {
				t.Error(err)
			}
			theirs.Close()
		}},
	} {
		ours, theirs := pair(t)
		p := &Peer{Conn: ours}
		if c.name == "with the request read and a cancel unread" {
			if err := p.Tell(Message{Cancel: &Cancel{}}); err != nil {
				t.Fatal(err)
			}
		}
		go c.die(theirs)
		if _, err := p.Do(&Request{Op: OpExec}, nil, nil); !errors.Is(err, c.want) {
			t.Errorf("%s: %v", c.name, err)
		}
		ours.Close()
	}
}

func TestACancelComesAfterTheRequest(t *testing.T) {
	ours, theirs := pair(t)
	p := &Peer{Conn: ours}
	if err := p.Tell(Message{Cancel: &Cancel{}}); err != nil {
		t.Fatal(err)
	}
	done := make(chan error)
	go func() {
		_, err := p.Do(&Request{Op: OpExec}, nil, nil)
		done <- err
	}()
	var r Request
	var m Message
	if _, err := theirs.Receive(&r); err != nil || r.Op != OpExec {
		t.Errorf("first comes %+v, %v", r, err)
	}
	if _, err := theirs.Receive(&m); err != nil || m.Cancel == nil {
		t.Errorf("then comes %+v, %v", m, err)
	}
	theirs.Close()
	if err := <-done; !errors.Is(err, errUnanswered) {
		t.Error(err)
	}
	ours.Close()
}
