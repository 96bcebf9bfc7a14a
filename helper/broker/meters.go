package broker

import "time"

// perSecond is how many connections a user may make in a second; as many may come at once. To refuse one costs less than to serve it.
const perSecond = 500

// meters count every user's connections. They are for one goroutine.
type meters struct {
	of    map[uint32]*meter
	swept time.Time
}

type meter struct {
	left float64
	seen time.Time
}

// take takes one connection of a user's, if there is one left.
func (m *meters) take(uid uint32, now time.Time) bool {
	if m.of == nil || now.Sub(m.swept) > time.Minute {
		m.sweep(now)
	}
	one := m.of[uid]
	if one == nil {
		one = &meter{left: perSecond, seen: now}
		m.of[uid] = one
	}
	one.left = min(perSecond, one.left+now.Sub(one.seen).Seconds()*perSecond)
	one.seen = now
	if one.left < 1 {
		return false
	}
	one.left--
	return true
}

// sweep forgets who has not been seen for a while, whose count is full again.
func (m *meters) sweep(now time.Time) {
	kept := map[uint32]*meter{}
	for uid, one := range m.of {
		if now.Sub(one.seen) < 2*time.Second {
			kept[uid] = one
		}
	}
	m.of, m.swept = kept, now
}

// seldom lets ten messages through in a second, and counts the others. It is for one goroutine.
type seldom struct {
	since  time.Time
	said   int
	unsaid int
}

// now says whether another message may be written, and how many were not since the last.
func (s *seldom) now(now time.Time) (unsaid int, ok bool) {
	const most = 10
	if now.Sub(s.since) > time.Second {
		s.since, s.said = now, 0
	}
	if s.said >= most {
		s.unsaid++
		return 0, false
	}
	s.said++
	unsaid, s.unsaid = s.unsaid, 0
	return unsaid, true
}
