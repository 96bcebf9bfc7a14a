package client

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"

	"skillbox/helper"
)

// ErrNoService says that the caller has no service that runs.
var ErrNoService error = &helper.Error{Message: "your service does not run", Hint: "`skillbox exec --mode user` starts it"}

// Status is what the caller's service runs and keeps ready. Neither it nor the functions below start a service; ErrNoService says that
// there is none.
func Status(ctx context.Context) (*helper.Status, error) {
	return about[helper.Status](ctx, helper.OpStatus)
}

// Stats are the figures of the caller's service since it started.
func Stats(ctx context.Context) (*helper.Stats, error) {
	return about[helper.Stats](ctx, helper.OpStats)
}

// Metrics are the same figures and more, in Prometheus' text format.
func Metrics(ctx context.Context) (string, error) {
	t, err := about[helper.Text](ctx, helper.OpMetrics)
	if err != nil {
		return "", err
	}
	return t.Text, nil
}

// Kill ends calls of the caller's service at once, by the ids that Status lists; who made them gets the verdict canceled. If one of them
// does not run, none is ended.
func Kill(ctx context.Context, ids ...string) error {
	_, err := about[helper.Text](ctx, helper.OpKill, ids...)
	return err
}

// about asks the service something that is answered with a document.
func about[T any](ctx context.Context, op string, words ...string) (*T, error) {
	r := &helper.Request{Version: helper.Version, Op: op, Words: words}
	var err error
	if r.Build, err = Build(); err != nil {
		return nil, err
	}
	p, err := connectWithin(ctx)
	if err != nil {
		return nil, err
	}
	stop := context.AfterFunc(ctx, p.Kill)
	answer, err := p.Do(r, nil, func(string) (string, bool) { return "", false })
	stop()
	err = errors.Join(err, p.Close())
	switch {
	case ctx.Err() != nil:
		return nil, fmt.Errorf("client: the service did not answer: %w", context.Cause(ctx))
	case errors.Is(err, helper.ErrRetired):
		return nil, ErrNoService
	case err != nil:
		return nil, err
	case answer.Result != nil:
		return nil, answer.Result.Error
	}
	v := new(T)
	if err := json.Unmarshal(answer.Plan, v); err != nil {
		return nil, fmt.Errorf("client: the service's answer: %w", err)
	}
	return v, nil
}

// connectWithin connects as long as ctx lasts: one that is stopped accepts nobody, and connect(2) waits.
func connectWithin(ctx context.Context) (*helper.Peer, error) {
	type connected struct {
		peer *helper.Peer
		err  error
	}
	done := make(chan connected, 1)
	go func() {
		p, err := helper.RunningService()
		done <- connected{p, err}
	}()
	select {
	case c := <-done:
		if c.err == nil && c.peer == nil {
			c.err = ErrNoService
		}
		return c.peer, c.err
	case <-ctx.Done():
		go func() {
			if c := <-done; c.peer != nil {
				_ = c.peer.Close() // nobody waits for it
			}
		}()
		return nil, fmt.Errorf("client: the service does not accept a connection: %w", context.Cause(ctx))
	}
}
