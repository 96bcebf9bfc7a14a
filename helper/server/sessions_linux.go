package server

import (
	"errors"
	"fmt"
	"log/slog"
	"os"
	"slices"
	"sync"
	"time"

	"skillbox/bundle"
	"skillbox/helper"
	"skillbox/sandbox"
)

// sessions are those that a service holds, and why the last ones ended.
type sessions struct {
	log *slog.Logger

	mu       sync.Mutex
	live     map[string]*session
	starting int
	ended    []ended
	last     time.Time // when one ended
	retired  bool
	work     sync.WaitGroup // of those that live
}

type ended struct{ id, why string }

// maxEnded are remembered for those who ask for a session that is over.
const maxEnded = 256

// session is a box for several calls, with what was decided and found when it began.
type session struct {
	id     string
	box    *sandbox.Box
	run    *sandbox.Session
	d      *decision
	tree   *bundle.Tree
	dir    *os.File // the bundle's
	ports  *published
	limits bundle.Limits
	cache  string
	idle   time.Duration
	since  time.Time
	ends   time.Time

	// Below sessions.mu.
	busy  bool
	calls int
	used  time.Time // when the last call ended
	rest  *time.Timer
	gone  bool          // its box is
	over  chan struct{} // closed when everything of it is
	final *helper.Result
}

// reserve makes room for one more, until add or cancel.
func (s *sessions) reserve() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if len(s.live)+s.starting >= helper.MaxSessions {
		return &helper.Error{Message: fmt.Sprintf("the service holds %d sessions, which is as many as it may", helper.MaxSessions), Hint: "`skillbox ps` lists them, `skillbox session stop` ends one"}
	}
	s.starting++
	return nil
}

func (s *sessions) cancel() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.starting--
}

// add takes a session over that was reserved. It ends by itself.
func (s *sessions) add(one *session) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.starting--
	if s.live == nil {
		s.live = map[string]*session{}
	}
	s.live[one.id] = one
	one.over = make(chan struct{})
	one.used = one.since
	one.rest = time.AfterFunc(one.idle, func() { s.expire(one) })
	if s.retired {
		replaced(one)
	}
	s.work.Go(func() { s.follow(one) })
}

func (s *sessions) expire(one *session) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if !one.busy && time.Since(one.used) >= one.idle {
		one.run.End(helper.TimedOut, "the session was idle for %v (--idle)", one.idle)
	}
}

// follow ends a session in time, and takes it down when its box is gone.
func (s *sessions) follow(one *session) {
	total := time.NewTimer(time.Until(one.ends))
	defer total.Stop()
	select {
	case <-total.C:
		one.run.End(helper.TimedOut, "the session lasted for its %v (--total)", one.ends.Sub(one.since))
	case <-one.box.Gone():
	}
	<-one.box.Gone()
	s.mu.Lock()
	one.gone = true
	waits := one.busy // the call still reads from what the box has left
	s.mu.Unlock()
	if !waits {
		s.bury(one)
	}
	<-one.over
}

// bury takes down what is left of a session that no call uses.
func (s *sessions) bury(one *session) {
	one.rest.Stop()
	one.final = one.run.Rest()
	_, why := one.run.Why()
	err := errors.Join(one.box.Close(), one.dir.Close(), one.ports.release())
	if err != nil {
		s.log.Error("close the box of a session", "session", one.id, "error", err)
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	delete(s.live, one.id)
	s.ended = append(s.ended, ended{one.id, why})
	if len(s.ended) > maxEnded {
		s.ended = slices.Delete(s.ended, 0, 1)
	}
	s.last = time.Now()
	s.log.Info("session ended", "session", one.id, "calls", one.calls, "why", why)
	close(one.over)
}

// find returns a session that lives; s.mu must be held, and is let go of while one is waited for that is about to be over.
func (s *sessions) find(id string) (*session, error) {
	if !sandbox.ValidID(id) {
		return nil, &helper.Error{Message: fmt.Sprintf("%q is no session's id: it has 16 letters and digits", id)}
	}
	one := s.live[id]
	if one != nil && one.box.Alive() {
		return one, nil
	}
	if one != nil {
		s.mu.Unlock()
		select {
		case <-one.over:
		case <-time.After(closeTime): // whoever made its last call does not read
		}
		s.mu.Lock()
	}
	if s.live[id] != nil {
		return nil, over(id, "its last call ended it")
	}
	for _, e := range s.ended {
		if e.id == id {
			return nil, over(id, e.why)
		}
	}
	return nil, &helper.Error{
		Message: "this service knows no session " + id, Hint: "its service may have been replaced by a newer one, or have ended: start another with `skillbox session start`",
	}
}

func over(id, why string) error {
	return &helper.Error{Message: fmt.Sprintf("session %s is over: %s", id, why), Hint: "start another with `skillbox session start`"}
}

// take lends a session to one call, which gets its number there.
func (s *sessions) take(id string) (one *session, call int, err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if one, err = s.find(id); err != nil {
		return nil, 0, err
	}
	if one.busy {
		return nil, 0, &helper.Error{Message: fmt.Sprintf("session %s is busy with another call", id), Hint: "a session serves one call at a time; start another for what is to run beside it"}
	}
	one.busy = true
	one.calls++
	one.rest.Stop()
	return one, one.calls, nil
}

// release gives a session back.
func (s *sessions) release(one *session) {
	s.mu.Lock()
	one.busy = false
	one.used = time.Now()
	gone := one.gone
	if !gone {
		one.rest.Reset(one.idle)
	}
	if s.retired {
		replaced(one)
	}
	s.mu.Unlock()
	if gone {
		s.bury(one)
	}
}

func replaced(one *session) {
	one.run.End(helper.Canceled, "the service was replaced or stopped")
}

// has says of an id that it is one of a session that lives.
func (s *sessions) has(id string) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.live[id] != nil
}

// end ends a session, and the call that it serves.
func (s *sessions) end(id, why string) (*session, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	one, err := s.find(id)
	if err == nil {
		one.run.End(helper.Canceled, "%s", why)
	}
	return one, err
}

// status lists them, the oldest first.
func (s *sessions) status() []helper.SessionStatus {
	s.mu.Lock()
	defer s.mu.Unlock()
	all := []helper.SessionStatus{}
	for _, one := range s.live {
		is := helper.SessionStatus{ID: one.id, Skill: one.d.bundle.Name, Policy: one.d.policy.Name, State: one.state(), Calls: one.calls, Since: one.since.UTC(), Ends: one.ends.UTC()}
		if !one.busy {
			if at := one.used.Add(one.idle); at.Before(one.ends) {
				is.Ends = at.UTC()
			}
		}
		all = append(all, is)
	}
	slices.SortFunc(all, func(a, b helper.SessionStatus) int { return a.Since.Compare(b.Since) })
	return all
}

// state is "busy" with a call, or "idle"; sessions.mu is held.
func (one *session) state() string {
	if one.busy {
		return "busy"
	}
	return "idle"
}

// idleSince says since when there has been none; false is that there is one.
func (s *sessions) idleSince() (time.Time, bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.last, len(s.live)+s.starting == 0
}

// retire ends all sessions: those that serve a call when that is over.
func (s *sessions) retire() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.retired = true
	for _, one := range s.live {
		if !one.busy {
			replaced(one)
		}
	}
}

// close waits for the end of those that were retired.
func (s *sessions) close() error {
	done := make(chan struct{})
	go func() {
		s.work.Wait()
		close(done)
	}()
	select {
	case <-done:
		return nil
	case <-time.After(closeTime):
		return fmt.Errorf("server: not every session could be taken down within %s; what is left ends with this process", closeTime)
	}
}
