package server

import (
	"context"
	"time"

	"skillbox/bundle"
	"skillbox/sandbox"
)

type digested struct {
	tree *bundle.Tree
	err  error
	ms   float64
}

// digest starts walking the bundle beside everything else. hangUp ends it: the numbers of the descriptors that it uses may be another
// client's afterwards.
func (c *connection) digest() <-chan digested {
	done, walked := make(chan digested, 1), make(chan struct{})
	ctx, cancel := context.WithCancel(context.Background())
	c.endWalk = func() {
		cancel()
		<-walked
	}
	began := time.Now()
	if c.copied != nil {
		close(walked)
		done <- digested{c.copied.tree, nil, c.looked}
		return done
	}
	var cache *bundle.Cache // a copy has another place each time
	if c.pinned == nil {
		cache = bundle.OpenCache(c.request.CacheDir)
	}
	go func() {
		defer close(walked)
		limits := bundle.Limits{Files: c.request.MaxFiles, Bytes: c.request.MaxBytes}
		tree, err := bundle.Digest(ctx, c.files.bundle, limits, cache)
		done <- digested{tree, err, sandbox.Since(began)}
	}()
	return done
}

// digestTime is what a bundle has at least to be read: a short time-out is about the skill, and where a box is ready nothing else takes
// time meanwhile.
const digestTime = 5 * time.Second

// digested waits for the bundle's digest, once.
func (c *connection) digested(d *decision, digesting <-chan digested, phases map[string]float64) (*bundle.Tree, error) {
	return c.digestedWithin(max(d.plan.Limits.Timeout, digestTime), digesting, phases)
}

func (c *connection) digestedWithin(within time.Duration, digesting <-chan digested, phases map[string]float64) (*bundle.Tree, error) {
	if c.tree != nil {
		return c.tree, nil
	}
	select {
	case checked := <-digesting:
		phases["digest_ms"], c.tree = checked.ms, checked.tree
		return checked.tree, checked.err
	case <-time.After(within):
		return nil, refused("the bundle could not be read within %v (timeout)", within)
	case <-c.link.over:
		return nil, errCanceled
	}
}
