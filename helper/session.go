package helper

import (
	"fmt"
	"time"
)

// Bounds of a session.
const (
	SessionIdle  = 10 * time.Minute // between two calls, where nobody says another
	SessionTotal = time.Hour        // from its start, likewise
	SessionMost  = 24 * time.Hour   // that either may be
	SessionLeast = time.Second
	// MaxSessions is how many a service holds: each is a box.
	MaxSessions = 32
)

// SessionTimes fills in what a request leaves open and refuses what lies beyond the bounds.
func (r *Request) SessionTimes() (idle, total time.Duration, err error) {
	idle, total = SessionIdle, SessionTotal
	for _, t := range []struct {
		flag string
		ms   int64
		to   *time.Duration
	}{{"--idle", r.IdleMS, &idle}, {"--total", r.TotalMS, &total}} {
		if t.ms == 0 {
			continue
		}
		if t.ms < SessionLeast.Milliseconds() || t.ms > SessionMost.Milliseconds() {
			return 0, 0, &Error{Message: fmt.Sprintf("%s is %v: a session's times are from %v to %v", t.flag, time.Duration(t.ms)*time.Millisecond, SessionLeast, SessionMost)}
		}
		*t.to = time.Duration(t.ms) * time.Millisecond
	}
	return idle, total, nil
}

// SessionStarted answers OpSessionStart.
type SessionStarted struct {
	Session  string    `json:"session"`
	Skill    Named     `json:"skill"`
	Policy   Named     `json:"policy"`
	Sandbox  Sandbox   `json:"sandbox"`
	IdleMS   int64     `json:"idle_ms"`
	Ends     time.Time `json:"ends"` // at the latest
	Warnings []string  `json:"warnings"`

	Published []Published `json:"published,omitempty"`
}

// SessionStopped answers OpSessionStop. What the box's processes did after the last call is told here.
type SessionStopped struct {
	Session  string   `json:"session"`
	Calls    int      `json:"calls"`
	Denials  []Denial `json:"denials"`
	Network  []Flow   `json:"network"`
	Warnings []string `json:"warnings"`
}

// SessionStatus is a session as Status lists it.
type SessionStatus struct {
	ID     string    `json:"id"`
	Skill  string    `json:"skill"`
	Policy string    `json:"policy"`
	State  string    `json:"state"` // "idle" or "busy"
	Calls  int       `json:"calls"` // that were begun
	Since  time.Time `json:"since"`
	Ends   time.Time `json:"ends"` // at the latest: an idle one by its idle time
}
