package broker

import (
	"testing"
	"time"
)

func TestAUserHasSoManyConnectionsInASecond(t *testing.T) {
	var m meters
	now := time.Now()
	taken := func(uid uint32, n int) (got int) {
		for range n {
			if m.take(uid, now) {
				got++
			}
		}
		return got
	}
	if got := taken(1, 3*perSecond); got != perSecond {
		t.Errorf("at once: %d", got)
	}
	if got := taken(2, 10); got != 10 {
		t.Errorf("another user: %d", got)
	}
	now = now.Add(100 * time.Millisecond)
	if got := taken(1, perSecond); got != perSecond/10 {
		t.Errorf("after a tenth of a second: %d", got)
	}
	now = now.Add(time.Hour)
	if got := taken(1, 2*perSecond); got != perSecond {
		t.Errorf("after an hour: %d", got)
	}
	if len(m.of) != 1 {
		t.Errorf("%d users are remembered", len(m.of))
	}
}

func TestTheLogIsNotFlooded(t *testing.T) {
	var s seldom
	now, written, unsaid := time.Now(), 0, 0
	for range 1000 {
		if n, ok := s.now(now); ok {
			written++
			unsaid += n
		}
		now = now.Add(3 * time.Millisecond)
	}
	if written < 20 || written > 40 || unsaid < 600 {
		t.Errorf("%d of 1000 messages in 3 s, %d told of as unsaid", written, unsaid)
	}
}
