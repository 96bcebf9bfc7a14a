package client

import (
	"context"
	"encoding/json"
	"errors"
	"os"
	"time"

	"golang.org/x/sys/unix"

	"skillbox/helper"
)

// Error says what was refused, and where.
type Error = helper.Error

// SessionOptions say what a session's box is made from. The zero value of each field but Bundle is a default.
type SessionOptions struct {
	Bundle string // directory
	Policy string // file; "" is no network and no files of the host's

	RequireDigest   string // as in Call
	Signature       string // likewise
	TrustRemoteCode bool   // likewise

	Mode    string        // who holds it, see ConnectSession
	Timeout time.Duration // the most that a call may take; 0 is the policy's
	Publish []*Listener   // as in Call; the session removes the files of unix sockets when it ends: see Listener.Leave
	Idle    time.Duration // the longest time between two calls; 0 is 10 minutes
	Total   time.Duration // that it lasts; 0 is an hour
}

// Session is one box for several calls, one at a time: what a call leaves in the box's files and running is there for the next. A call that
// times out, is canceled or meets a limit ends it.
type Session struct {
	ID       string
	Ends     time.Time // at the latest
	Warnings []string

	mode string
}

// StartSession has a box prepared. Its error wraps an *Error where policy, bundle or host refuse it.
func StartSession(ctx context.Context, o SessionOptions) (*Session, error) {
	s, err := startSession(ctx, &o)
	var refusal *Error
	if !errors.As(err, &refusal) {
		return s, err
	}
	// An image that the policy names and the store has not yet.
	if again, failed := importFor(ctx, refusal); failed != nil || !again {
		return nil, errors.Join(failed, err)
	}
	return startSession(ctx, &o)
}

func startSession(ctx context.Context, o *SessionOptions) (*Session, error) {
	s := &sending{request: &helper.Request{
		Version: helper.Version, Op: helper.OpSessionStart, BundleName: o.Bundle, PolicyName: o.Policy, TimeoutMS: Milliseconds(o.Timeout),
		IdleMS: Milliseconds(o.Idle), TotalMS: Milliseconds(o.Total), CacheDir: CacheDir(), ImageDir: ImageDir(), AuditDir: AuditDir(), AuditConfig: AuditConfig(), Asker: asker(os.Getpid()),
		RequireDigest: o.RequireDigest, TrustRemoteCode: o.TrustRemoteCode,
	}}
	defer s.close()
	if _, _, err := s.request.SessionTimes(); err != nil {
		return nil, err
	}
	if err := s.openFile("bundle", o.Bundle, unix.O_DIRECTORY); err != nil {
		return nil, err
	}
	if err := s.openSignature(o.Bundle, o.Signature); err != nil {
		return nil, err
	}
	if o.Policy != "" {
		s.request.Ways = helper.WayTo(o.Policy)
		if err := s.openFile("policy", o.Policy, 0); err != nil {
			return nil, err
		}
	}
	for _, l := range o.Publish {
		s.fds = l.Pass(s.request, s.fds)
	}
	var started helper.SessionStarted
	if err := s.document(ctx, o.Mode, &started); err != nil {
		return nil, err
	}
	return &Session{ID: started.Session, Ends: started.Ends, Warnings: started.Warnings, mode: o.Mode}, nil
}

// Exec runs one call, as the function Exec does. The call's Bundle, Policy and Mode are not looked at.
func (s *Session) Exec(ctx context.Context, c Call) (*Result, error) {
	c.Bundle, c.Policy, c.Mode = "", "", s.mode
	return exec(ctx, &c, s.ID)
}

// Stop ends the session and the call that it serves.
func (s *Session) Stop(ctx context.Context) error {
	sending := &sending{request: &helper.Request{Version: helper.Version, Op: helper.OpSessionStop, Session: s.ID}}
	var stopped helper.SessionStopped
	return sending.document(ctx, s.mode, &stopped)
}

// document has a request of a session answered with one.
func (s *sending) document(ctx context.Context, mode string, into any) error {
	for tries := 0; ; tries++ {
		peer, err := ConnectSession(mode, s.request)
		if err != nil {
			return err
		}
		stop := context.AfterFunc(ctx, peer.Kill)
		answer, err := peer.Do(s.request, s.fds, os.LookupEnv)
		canceled := !stop()
		closed := peer.Close()
		switch {
		case canceled:
			return context.Cause(ctx)
		case errors.Is(err, helper.ErrRetired) && tries < Tries:
			continue
		case err != nil:
			return errors.Join(err, closed)
		case answer.Plan == nil:
			return answer.Result.Error
		}
		return json.Unmarshal(answer.Plan, into)
	}
}

// Milliseconds rounds away from zero: what is a time stays one.
func Milliseconds(d time.Duration) int64 {
	ms := d.Milliseconds()
	if time.Duration(ms)*time.Millisecond != d {
		ms += int64(d / d.Abs())
	}
	return ms
}
