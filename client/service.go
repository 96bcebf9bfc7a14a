package client

import (
	"context"
	"encoding/json"
	"fmt"

	"skillbox/helper"
)

// ErrNoService says that the caller has no service that runs. The functions below do not start one.
var ErrNoService = helper.ErrNoService

// Service is the one that is asked: with Mode "system" the caller's part of root's, with "user" the caller's own, with "auto" or "" the first of
// these that there is.
type Service struct{ Mode string }

// Status is what the caller's service runs and keeps ready.
func Status(ctx context.Context) (*helper.Status, error) { return Service{}.Status(ctx) }

// Status is what it runs and keeps ready.
func (s Service) Status(ctx context.Context) (*helper.Status, error) {
	return about[helper.Status](ctx, s.Mode, helper.OpStatus)
}

// Boxes is Status with each box by itself, and what it takes of memory.
func (s Service) Boxes(ctx context.Context) (*helper.Status, error) {
	status, err := about[helper.Status](ctx, s.Mode, helper.OpStatus, helper.AllBoxes)
	if err == nil && status.Boxes == nil {
		return nil, &helper.Error{Message: "the service that runs is of an older build, which does not tell of each box", Hint: "`skillbox ps` without --all; the next call replaces your own service, a restart the system's"}
	}
	return status, err
}

// Stats are the figures of the caller's service since it started.
func Stats(ctx context.Context) (*helper.Stats, error) {
	return about[helper.Stats](ctx, "", helper.OpStats)
}

// Metrics are the same figures and more, in Prometheus' text format.
func Metrics(ctx context.Context) (string, error) {
	t, err := about[helper.Text](ctx, "", helper.OpMetrics)
	if err != nil {
		return "", err
	}
	return t.Text, nil
}

// Kill ends calls of the caller's service at once, by the ids that Status lists; who made them gets the verdict canceled. If one of them
// does not run, none is ended.
func Kill(ctx context.Context, ids ...string) error {
	return Service{}.Kill(ctx, ids...)
}

// Kill ends calls of its, as the function of this name does.
func (s Service) Kill(ctx context.Context, ids ...string) error {
	_, err := about[helper.Text](ctx, s.Mode, helper.OpKill, ids...)
	return err
}

// about asks the service something that is answered with a document.
func about[T any](ctx context.Context, mode, op string, words ...string) (*T, error) {
	document, err := helper.AskService(ctx, mode, op, words)
	if err != nil {
		return nil, err
	}
	v := new(T)
	if err := json.Unmarshal(document, v); err != nil {
		return nil, fmt.Errorf("client: the service's answer: %w", err)
	}
	return v, nil
}
