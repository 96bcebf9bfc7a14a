package server

import (
	"errors"
	"fmt"
	"path/filepath"
	"sync"

	"skillbox/audit"
	"skillbox/audit/sink"
	"skillbox/helper"
	"skillbox/helper/auditlog"
)

// Audit is the audit logs of a helper's one user that are open, by directory. The zero value is ready.
type Audit struct {
	Warn sink.Warn // is told of sinks that miss records; may be nil

	mu     sync.Mutex
	open   map[string]*audit.Log
	closed bool
}

// maxLogs are open at a time: a user has one, and tests have others.
const maxLogs = 16

// at opens the log in a directory of the user's, as the file config says, unless it is open. A log that is found broken, or was moved away, is
// tried anew next time; another configuration holds for the next helper.
func (l *Audit) at(dir, config string, uid int) (Appender, error) {
	if !filepath.IsAbs(dir) {
		return nil, &helper.Error{Message: "the client does not say where the audit log lies", Hint: "set HOME or XDG_STATE_HOME"}
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	if log := l.open[dir]; log != nil {
		return log, nil
	}
	if l.closed {
		return nil, audit.ErrClosed
	}
	if len(l.open) >= maxLogs {
		return nil, fmt.Errorf("%d audit logs are open", len(l.open))
	}
	said, err := auditlog.Read(config, uid)
	if err != nil {
		return nil, err
	}
	log, err := auditlog.Open(dir, said, l.Warn)
	if err != nil {
		return nil, err
	}
	if l.open == nil {
		l.open = map[string]*audit.Log{}
	}
	l.open[dir] = log
	return log, nil
}

// Close signs what was written, and has sinks deliver it for a second at most. It may be called twice, and while a call still writes, which then
// fails.
func (l *Audit) Close() error { return l.end((*audit.Log).Close) }

// CloseNow is Close for who cannot wait for sinks.
func (l *Audit) CloseNow() error {
	return l.end(func(log *audit.Log) error { return log.CloseWithin(0) })
}

func (l *Audit) end(closed func(*audit.Log) error) error {
	l.mu.Lock()
	defer l.mu.Unlock()
	var errs []error
	for _, log := range l.open {
		errs = append(errs, closed(log))
	}
	l.open, l.closed = nil, true
	return errors.Join(errs...)
}

// of opens the log that a user's request names, when there is something to write.
func (l *Audit) of(r *helper.Request, uid int) func() (Appender, error) {
	return func() (Appender, error) { return l.at(r.AuditDir, r.AuditConfig, uid) }
}

// recordIn makes a call's trail. helper is who serves it: oneshot, user or system.
func (c *connection) recordIn(helper string, log func() (Appender, error)) *trail {
	asker := c.request.Asker
	return &trail{log: log, helper: helper, caller: audit.Caller{UID: c.host.Caller(), GID: c.host.CallerGroup(), PID: asker.PID, Process: asker.Process}}
}

// trail makes the trail of a call of the service's: its user's own, or with a door the machine's, where nothing that the client says counts.
func (s *Service) trail(c *connection, v *visitor) *trail {
	if s.Door == nil {
		return c.recordIn("user", s.audit.of(c.request, c.host.Caller()))
	}
	c.request.Asker = *v.asker
	return c.recordIn("system", func() (Appender, error) { return s.Records, nil })
}
