package server

import (
	"log/slog"
	"sync"
	"time"

	"golang.org/x/sys/unix"

	"skillbox/helper"
	"skillbox/helper/server/metrics"
)

// record counts and logs what a service does. What a caller passes to a skill, and what the skill says, is in neither.
type record struct {
	*metrics.Metrics
	log *slog.Logger

	mu      sync.Mutex
	refusal map[string]*refusal // by reason
}

// refusal is when connections were last logged that were refused for one reason, and how many were not since.
type refusal struct {
	logged   time.Time
	silently int64
}

// refusalTime is how often refused connections are logged: who tries again and again shall not push everything else out of the log.
const refusalTime = time.Second

func newRecord(version string, log *slog.Logger) *record {
	return &record{Metrics: metrics.New(version), log: log, refusal: map[string]*refusal{}}
}

// ended counts a call; the returned function logs it, which the client need not wait for.
func (r *record) ended(result *helper.Result) (log func()) {
	r.Call(result)
	var denials int64
	for _, d := range result.Denials {
		denials += d.Count
	}
	words := []any{
		"id", result.ID, "skill", result.Skill.Name, "bundle", result.Skill.Digest, "policy", result.Policy.Name, "policy_digest", result.Policy.Digest,
		"verdict", result.Verdict, "exit_code", result.ExitCode, "duration_ms", result.DurationMS, "start", result.Sandbox.Start, "denials", denials,
	}
	// Any other error may quote what the caller passed.
	if result.Verdict == helper.Failed && result.ExitCode == helper.CodeFailed && result.Error != nil {
		words = append(words, "error", result.Error.Message)
	}
	return func() { r.log.Info("call", words...) }
}

// discard notes the end of a box that served no call.
func (r *record) discard(box, reason string) {
	r.Discarded(reason)
	r.log.Info("box discarded", "box", box, "reason", reason)
}

// refuse notes a connection that is not served.
func (r *record) refuse(reason string, who unix.Ucred, err error) {
	r.Refused(reason)
	r.mu.Lock()
	last := r.refusal[reason]
	if last == nil {
		last = &refusal{}
		r.refusal[reason] = last
	}
	if time.Since(last.logged) < refusalTime {
		last.silently++
		r.mu.Unlock()
		return
	}
	words := []any{"reason", reason, "uid", who.Uid, "pid", who.Pid, "more", last.silently}
	last.logged, last.silently = time.Now(), 0
	r.mu.Unlock()
	if err != nil {
		words = append(words, "error", err)
	}
	r.log.Warn("connection refused", words...)
}

// stopped is why a call ended that its own client did not end; the zero value is that it did, if anybody.
type stopped struct {
	mu  sync.Mutex
	why string
}

func (s *stopped) because(why string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.why == "" {
		s.why = why
	}
}

// tell words the result of a call that was ended.
func (s *stopped) tell(result *helper.Result) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.why != "" && result.Verdict == helper.Canceled && result.Error != nil {
		result.Error.Message = s.why
	}
}
