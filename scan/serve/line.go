package serve

import (
	"context"
	"errors"
	"fmt"
	"runtime/debug"
	"time"

	"skillbox/scan"
)

// line bounds how many requests there are, and how many of them are scanned at a time.
type line struct {
	places chan struct{} // of those who scan and those who wait
	slots  chan struct{} // of those who scan
}

func newLine(parallel, queue int) *line {
	return &line{places: make(chan struct{}, parallel+queue), slots: make(chan struct{}, parallel)}
}

// enter takes a place, if there is one.
func (l *line) enter() (leave func(), ok bool) {
	select {
	case l.places <- struct{}{}:
		return func() { <-l.places }, true
	default:
		return nil, false
	}
}

// job is a skill to be scanned. When its turn has come, prepare makes the directory; release is called once nothing uses that any more, also
// where prepare failed.
type job struct {
	name    string // the caller's for it
	prepare func(ctx context.Context) (dir string, err error)
	release func()
}

type outcome struct {
	report *scan.Report
	err    error
}

// scan waits for its turn and scans. It returns at the latest patience after ctx has ended; a scanner that goes on keeps its turn, so that
// there are never more than were allowed.
func (s *Server) scan(ctx context.Context, j job) (*scan.Report, error) {
	select {
	case s.line.slots <- struct{}{}:
	case <-ctx.Done():
		j.release()
		return nil, context.Cause(ctx)
	}
	result := make(chan outcome, 1)
	go func() {
		o := s.scanOne(ctx, j)
		j.release() // before the answer: whoever has it finds nothing left
		<-s.line.slots
		result <- o
	}()
	select {
	case o := <-result:
		return o.report, o.err
	case <-ctx.Done():
	}
	select {
	case o := <-result:
		return o.report, o.err
	case <-time.After(patience):
		s.Log.Error("a scan goes on after it was ended", "skill", j.name)
		return nil, context.Cause(ctx)
	}
}

// scanOne turns a panic into an error: what one upload meets in the scanner does not end the others' scans.
func (s *Server) scanOne(ctx context.Context, j job) (o outcome) {
	defer func() {
		if p := recover(); p != nil {
			s.Log.Error("the scanner panicked", "skill", j.name, "panic", fmt.Sprint(p), "stack", string(debug.Stack()))
			o = outcome{err: fmt.Errorf("serve: the scanner failed: %v", p)}
		}
	}()
	dir, err := j.prepare(ctx)
	if err != nil {
		return outcome{err: err}
	}
	report, err := s.Scan(ctx, dir, Options{Name: j.name})
	switch {
	case err == nil && report == nil:
		err = errors.New("serve: the scanner gave no report")
		fallthrough
	case err != nil:
		s.health.doubt()
	default:
		s.health.works()
	}
	return outcome{report, err}
}
