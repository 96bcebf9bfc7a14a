package sandbox

import (
	"sync/atomic"
	"time"

	"golang.org/x/sys/unix"

	"skillbox/boxinit"
	"skillbox/helper"
)

// Session is a prepared box that serves several calls, one at a time. What a call leaves in the scratch space and running stays for the
// next: the calls of a session trust one another. A call that does not end by itself ends the session, for nobody could say what
// it has left: the time-out, a cancel, a limit.
//
// Between calls the box's limits hold as they do within. What happens in it then is told by the call that follows.
type Session struct {
	box  *Box
	fate ending        // why it is over; "" where that is still to be found out
	stop chan struct{} // closed when the box is to be watched no longer

	forks  atomic.Int64 // refused since the box was confined
	before atomic.Int64 // of them those before the call that runs
}

// Stay makes a session of a box that has served no call. The box is still to be closed.
func (b *Box) Stay() (*Session, error) {
	s := &Session{box: b, stop: make(chan struct{})}
	b.session = s
	go func() {
		<-b.Gone()
		close(s.stop)
	}()
	return s, s.watch()
}

// Gone is closed when every process of the box is.
func (b *Box) Gone() <-chan struct{} { return b.jail.Gone() }

// End ends the session, and the call that runs with that verdict. The first word counts. It does not wait.
func (s *Session) End(verdict, format string, a ...any) {
	s.fate.set(verdict, format, a...)
	s.box.kill()
}

// Why says why a session is over whose box is gone.
func (s *Session) Why() (verdict, message string) {
	if verdict, _ := s.fate.get(); verdict == "" {
		// No call has ended it: if the kernel did for memory, that is in the counters.
		if _, err := s.box.used(nil, &s.fate); err != nil {
			s.fate.set(helper.Failed, "%v", err)
		}
		s.fate.set(helper.Failed, "the sandbox was killed from outside")
	}
	return s.fate.get()
}

// Call serves one call and returns its Result when its first process has ended. An error means that skillbox failed, or that the call could
// not be begun, as with parameters that are no JSON; only the former ends the session. Outputs and ReadResult are those of the box.
func (s *Session) Call(call Call) (*helper.Result, error) {
	began, end, b := time.Now(), &ending{}, s.box
	b.Phases, b.Start = map[string]float64{}, helper.InSession
	s.before.Store(s.forks.Load())
	if err := b.tree.Clear(); err != nil {
		return nil, err
	}
	call.Timeout = b.timeout(&call)
	params, err := b.delivered(call, end)
	if err != nil {
		return nil, err
	}
	if params >= 0 {
		defer unix.Close(params)
	}
	var result *helper.Result
	if verdict, message := end.get(); verdict != "" {
		result = b.neverStarted(verdict, message, began)
	} else {
		result, err = b.perform(call, params, end, began)
	}
	if verdict, message := s.fate.get(); err != nil && verdict != "" { // it was ended just when the call began
		result, err = b.neverStarted(verdict, message, began), nil
	}
	if err == nil && b.Alive() && b.group != nil {
		err = b.group.Restart()
	}
	verdict, message := end.get()
	if err != nil {
		verdict, message = helper.Failed, err.Error()
	}
	if verdict != "" {
		s.End(verdict, "%s", message)
		<-b.Gone()
	}
	return result, err
}

// settle comes when the first process of a call has ended, or with a nil exit the box: the call then ended as the session did. What was
// ended by force is taken down before its record is read.
func (s *Session) settle(exit *boxinit.Exit, end *ending) {
	if verdict, message := s.fate.get(); exit == nil && verdict != "" {
		end.set(verdict, "%s", message)
	}
	if verdict, _ := end.get(); verdict != "" {
		s.box.kill()
		<-s.box.Gone()
	}
}

// watch sees to the limits that need somebody to look, in and between calls.
func (s *Session) watch() error {
	b := s.box
	if w := b.Plan.Watched; w != (Watched{}) {
		go s.watchdog(w)
	}
	if b.Plan.Group.Pids == 0 {
		return nil
	}
	return b.group.WatchForks(s.stop, func(refused int64) {
		s.forks.Store(refused)
		if refused-s.before.Load() >= forkBomb {
			b.tooMany(&s.fate)
			b.kill()
		}
	})
}

// watchdog is watch for a box that lasts: processor time is allowed anew as the session goes on, as much as within one time-out at once.
func (s *Session) watchdog(limits Watched) {
	began := time.Now()
	tick := time.NewTicker(watchInterval)
	defer tick.Stop()
	w, err := newWatchdog(s.box.jail.PID(), limits)
	if err != nil {
		if !ended(s.box.jail.PID()) {
			s.End(helper.Failed, "the limits of the skill cannot be watched: %v", err)
		}
		return
	}
	defer w.close()
	for {
		select {
		case <-s.stop:
			return
		case <-tick.C:
		}
		now := limits
		now.CPU = allowed(limits.CPU, s.box.Plan.Limits.Timeout, time.Since(began))
		if verdict, message := now.judge(w.look()); verdict != "" {
			s.End(verdict, "%s", message)
			return
		}
	}
}

// allowed is the processor time that a session may have used after so long, where once is for one time-out. Zero is no limit.
func allowed(once, timeout, passed time.Duration) time.Duration {
	if once == 0 {
		return 0
	}
	return once + time.Duration(float64(once)*(float64(passed)/float64(timeout)))
}

// Rest is what the box did after the last call: what it reached and was refused. It is for a session that is over.
func (s *Session) Rest() *helper.Result {
	r := &helper.Result{}
	s.box.addDenials(r)
	s.box.addNetwork(r)
	r.Normalize()
	return r
}
