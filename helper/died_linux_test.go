package helper

import (
	"errors"
	"testing"

	"golang.org/x/sys/unix"

	"skillbox/wire"
)

func TestADeadSkillboxdIsToldAlikeWheneverItDied(t *testing.T) {
	for name, die := range map[string]func(theirs *wire.Conn){
		"before the request": func(theirs *wire.Conn) { theirs.Close() },
		"with the request unread": func(theirs *wire.Conn) {
			if _, err := unix.Poll([]unix.PollFd{{Fd: int32(theirs.FD()), Events: unix.POLLIN}}, -1); err != nil {
				t.Error(err)
			}
			theirs.Close()
		},
		"with the request read": func(theirs *wire.Conn) {
			var r Request
			if _, err := theirs.Receive(&r); err != nil {
				t.Error(err)
			}
			theirs.Close()
		},
	} {
		ours, end, err := wire.Pair()
		if err != nil {
			t.Fatal(err)
		}
		fd, err := unix.Dup(int(end.Fd()))
		if err != nil {
			t.Fatal(err)
		}
		end.Close()
		go die(wire.FromFD(fd))
		_, err = (&Peer{Conn: ours}).Do(&Request{Op: OpExec}, nil, nil)
		if !errors.Is(err, errUnanswered) {
			t.Errorf("%s: %v", name, err)
		}
		ours.Close()
	}
}
