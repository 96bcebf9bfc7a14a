package server

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"os"
	"sync"
	"time"

	"golang.org/x/sys/unix"

	"skillbox/helper"
	"skillbox/helper/server/metrics"
	"skillbox/policy"
	"skillbox/sandbox"
	"skillbox/wire"
)

// Service answers the calls of one user until nobody has asked for a while.
type Service struct {
	Door      Door     // who else lets callers in; nil where the service does, by the next three
	Records   Appender // where whoever lets callers in records their calls; not nil with Door
	Listening *os.File
	Dir       *os.File // where the socket has its name
	Name      string   // of the socket, see helper.ServiceSocket
	Build     string   // clients of another are sent away, and the service leaves; behind a door, it stays
	Idle      time.Duration
	Log       *slog.Logger
	Version   string
	MetricsAt string        // "" for nowhere, "unix" for a socket beside the service's own, or an address
	Quota     *policy.Quota // nil is none

	stop    context.CancelFunc
	audit   Audit
	quota   quota
	host    *sandbox.Host
	pool    *pool
	record  *record
	calls   calls
	before  decisions
	held    sessions
	since   time.Time
	serving sync.WaitGroup // connections

	mu     sync.Mutex
	open   int       // connections
	last   time.Time // when the last one ended
	leave  chan struct{}
	leaves sync.Once

	metricsAt string // the path or address that MetricsAt came to
}

const (
	// maxConnections are served at a time; who comes then waits. requestTime is what a client has to say what it wants, and answerTime to
	// read what it is told.
	maxConnections          = 128
	requestTime, answerTime = 10 * time.Second, 30 * time.Second
	// acceptTime is how often the service looks whether it is to leave.
	acceptTime = 200 * time.Millisecond
)

// Run serves until ctx ends, the service was idle for so long, or a client of another build came. Calls that run are then waited for;
// when ctx ends, they do.
func (s *Service) Run(ctx context.Context, host *sandbox.Host) error {
	s.audit.Warn = s.Log.Warn
	s.host, s.leave, s.since, s.last = host, make(chan struct{}), time.Now(), time.Now()
	ctx, s.stop = context.WithCancel(ctx)
	defer s.stop()
	s.record = newRecord(s.Version, s.Log)
	for kind, n := range host.Swept {
		s.record.Swept(kind, n)
	}
	s.quota.most = s.Quota
	s.pool, s.held.log = newPool(host, s.record, &s.quota), s.Log
	endMetrics, err := s.exposeMetrics()
	if err != nil {
		return errors.Join(err, s.Refuse(err), s.pool.close())
	}
	err = s.accept(ctx)
	boxes := s.boxes()
	s.Log.Info("leaving", "stopped", ctx.Err() != nil, "running", boxes.Running, "ready", boxes.Ready)
	err = errors.Join(err, endMetrics(), s.Retire(helper.Reply{Retired: true})) // the next service wants the metrics' address
	s.held.retire()
	s.serving.Wait()
	return errors.Join(err, s.held.close(), s.pool.close(), s.audit.Close())
}

func (s *Service) accept(ctx context.Context) error {
	slots := make(chan struct{}, s.seats())
	for {
		if s.Door == nil {
			select {
			case slots <- struct{}{}:
			case <-ctx.Done():
				return nil
			}
		}
		v, err := s.next(ctx)
		if err != nil || v == nil {
			return err
		}
		if s.Door != nil && !s.seat(slots, v.conn) {
			continue
		}
		s.serving.Go(func() {
			defer func() { <-slots }()
			defer s.ended()
			if err := s.serve(ctx, v); err != nil {
				s.Log.Error("connection", "error", err)
			}
		})
	}
}

// next waits for a connection; nil is that it is time to leave.
func (s *Service) next(ctx context.Context) (*visitor, error) {
	for {
		if s.leaving(ctx) { // first: whoever is sent away comes again at once
			return nil, nil
		}
		v, err := s.arrival(acceptTime)
		switch {
		case errors.Is(err, io.EOF): // whoever lets callers in ends, and every call with it
			s.stop()
			return nil, nil
		case err != nil:
			return nil, err
		case v != nil && unwelcome(v.who) != "":
			s.record.refuse(unwelcome(v.who), v.who, nil)
			v.conn.Close()
			continue
		case v != nil:
			s.mu.Lock()
			s.open++
			s.mu.Unlock()
			return v, nil
		}
		since, none := s.held.idleSince()
		s.mu.Lock()
		idle := none && s.open == 0 && time.Since(s.last) > s.Idle && time.Since(since) > s.Idle
		s.mu.Unlock()
		if idle {
			return nil, nil
		}
	}
}

// unwelcome is "" if who connects is our user, outside of every box of ours: a skill that a policy shows the socket is the same user, but its
// process has a number here. Otherwise it is why the connection is refused.
func unwelcome(who unix.Ucred) string {
	switch {
	case who.Uid != uint32(os.Getuid()):
		return metrics.Stranger
	case who.Pid != 0:
		return metrics.FromBox
	}
	return ""
}

func (s *Service) leaving(ctx context.Context) bool {
	select {
	case <-ctx.Done():
		return true
	case <-s.leave:
		return true
	default:
		return false
	}
}

func (s *Service) ended() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.open--
	s.last = time.Now()
}

// Retire takes the socket's name away, so that the next client starts another service, and answers who has connected before. The
// answers are on their way when it returns; Run and Refuse wait for them.
func (s *Service) Retire(answer helper.Reply) error {
	if s.Door != nil {
		return s.leaveDoor(answer)
	}
	lock, err := helper.Lock(s.Dir)
	if err != nil {
		return err
	}
	defer lock.Close()
	if err := unix.Unlinkat(int(s.Dir.Fd()), s.Name, 0); err != nil && err != unix.ENOENT {
		return fmt.Errorf("server: remove the service's socket: %w", err)
	}
	// Who has looked the name up may still be about to connect.
	if err := wire.Refuse(int(s.Listening.Fd())); err != nil {
		return errors.Join(err, s.Listening.Close())
	}
	for {
		conn, who, err := wire.Accept(int(s.Listening.Fd()), 0)
		if err != nil || conn == nil {
			return errors.Join(err, s.Listening.Close())
		}
		if unwelcome(who) != "" {
			conn.Close()
			continue
		}
		s.sendAway(conn, answer)
	}
}

func (s *Service) sendAway(conn *wire.Conn, answer helper.Reply) {
	s.serving.Go(func() {
		if err := sendAway(conn, answer); err != nil {
			s.Log.Warn("a client that came while the service left", "error", err)
		}
	})
}

// sendAway answers whatever is asked. It reads the request first: a client that is still writing it would not come to read the answer.
func sendAway(conn *wire.Conn, answer helper.Reply) error {
	defer conn.Close()
	if err := conn.Bound(requestTime, answerTime); err != nil {
		return err
	}
	var r helper.Request
	fds, err := conn.Receive(&r)
	wire.CloseAll(fds)
	if err != nil {
		return err
	}
	return conn.Send(answer)
}

// Refuse tells who has connected why there is no service, and leaves.
func (s *Service) Refuse(why error) error {
	err := s.Retire(helper.Reply{Result: failure(why)})
	s.serving.Wait()
	return err
}

// refused notes a client that did not come to ask.
func (s *Service) refused(err error) {
	reason := metrics.Malformed
	if errors.Is(err, unix.EAGAIN) {
		reason = metrics.Silent
	}
	s.record.refuse(reason, unix.Ucred{Uid: uint32(os.Getuid())}, err)
}

// SendAway tells who has connected to ask the next service, and leaves.
func (s *Service) SendAway() error {
	err := s.Retire(helper.Reply{Retired: true})
	s.serving.Wait()
	return err
}

// serve answers one connection, and sees to it that nobody holds the service who says or reads nothing.
func (s *Service) serve(ctx context.Context, v *visitor) error {
	conn := v.conn
	defer conn.Close()
	if err := conn.Bound(requestTime, answerTime); err != nil {
		return err
	}
	var r helper.Request
	fds, err := conn.Receive(&r)
	if errors.Is(err, io.EOF) {
		return nil // who only looks whether somebody is here
	}
	if err != nil {
		s.refused(err)
		return nil
	}
	f, err := sort(&r, fds)
	defer f.close()
	if why := s.foreign(&r); why != nil {
		s.record.Refused(metrics.Build)
		return conn.Send(helper.Reply{Declined: why})
	}
	if s.Door == nil && (r.Build != s.Build && !helper.Served(r.Op) || r.Version != helper.Version) {
		s.record.Refused(metrics.Build)
		s.leaves.Do(func() { close(s.leave) })
	}
	if s.leaving(ctx) {
		s.record.Refused(metrics.Leaving)
		return conn.Send(helper.Reply{Retired: true})
	}
	if err := conn.Bound(0, answerTime); err != nil {
		return err
	}
	if err != nil {
		return conn.Send(helper.Reply{Result: failure(err)})
	}
	switch r.Op {
	case helper.OpStatus:
		return conn.Send(document(s.status(r.Words)))
	case helper.OpStats:
		return conn.Send(document(s.stats()))
	case helper.OpMetrics:
		return conn.Send(document(s.exposition()))
	case helper.OpKill:
		s.Log.Info("kill", "calls", r.Words)
		return conn.Send(document(s.kill(r.Words)))
	case helper.OpSessionStop:
		return conn.Send(document(s.stopSession(r.Session)))
	}
	c := &connection{conn: conn, host: s.host, request: &r, files: f, began: time.Now(), pool: s.pool, calls: &s.calls, before: &s.before, record: s.record, held: &s.held, quota: &s.quota, groups: v.groups}
	c.trail = s.trail(c, v)
	stop := context.AfterFunc(ctx, func() {
		c.stopped.because("the service was stopped")
		_ = conn.StopReading() // as if the client had gone, but it is still told
	})
	defer stop()
	return errors.Join(c.answer(), c.hangUp())
}
