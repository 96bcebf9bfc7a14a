package server

import (
	"cmp"
	"crypto/sha256"
	"encoding/json"
	"errors"
	"fmt"
	"time"

	"skillbox/bundle"
	"skillbox/helper"
	"skillbox/helper/server/metrics"
	"skillbox/sandbox"
)

// kind is what calls have in common that the same boxes can serve.
type kind struct {
	key     string
	skill   string // names for people
	policy  string
	from    string           // the caller's bundle
	plan    *sandbox.Plan    // of boxes that wait
	preload *sandbox.Preload // nil: they are prepared, no more
	least   int              // how many the policy wants, 0 for none
	without string           // why they are not preloaded where the policy asks for that
}

// kind finds out what a call has in common with others.
func (c *connection) kind(d *decision) (k kind, err error) {
	warm := d.granted.Policy.Warm
	k.skill, k.policy, k.from, k.plan, k.least = d.bundle.Name, d.policy.Name, d.from(), d.plan, int(warm.Ready)
	if k.key, err = d.key(); err != nil || !warm.Preload {
		return k, err
	}
	if dir := cmp.Or(c.request.WorkDir, d.dir); dir != "" && dir != bundle.Dir {
		k.without = "its working directory comes with the call (--workdir)"
		return k, nil
	}
	preload, err := d.plan.PreloadFor(d.argv, c.files.stdio, c.files.params != nil, c.request.TTY)
	var not *sandbox.NotPreloaded
	if errors.As(err, &not) {
		k.without = not.Why
		return k, nil
	}
	if err != nil {
		return k, err
	}
	text, err := json.Marshal(preload)
	if err != nil {
		return k, fmt.Errorf("server: preload: %w", err)
	}
	sum := sha256.Sum256(append([]byte(k.key), text...))
	k.key, k.plan, k.preload = string(sum[:]), d.plan.ForPreload(), preload
	return k, nil
}

// preloadPatience is how long other boxes wait for one to be preloaded. Imports may take longer.
const preloadPatience = time.Second

// preloadBox brings a box that was prepared to its shelf when its interpreter has come to the script. One whose interpreter does not is
// discarded, and those that follow are prepared only, for a while.
func (p *pool) preloadBox(next *shelf, box *sandbox.Box) {
	done := make(chan struct{})
	go func() {
		select {
		case <-p.end:
			box.Kill()
		case <-done:
		}
	}()
	p.work.Go(func() {
		defer close(done)
		since := time.Now()
		err := box.Preload(next.preload)
		p.came(next, box, since, err)
		if err != nil {
			p.record.log.Warn("preload", "bundle", next.plan.Tree.Bundle.Source.Path, "command", next.preload.Argv, "error", err)
		}
	})
	select {
	case <-done:
	case <-time.After(preloadPatience):
		p.mu.Lock()
		defer p.mu.Unlock()
		next.bare = time.Now() // until this one is ready after all
	}
}

// came ends a preload that began at since.
func (p *pool) came(next *shelf, box *sandbox.Box, since time.Time, err error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if err == nil {
		next.bare, next.why = time.Time{}, ""
		p.arrived(next, box, since, nil)
		return
	}
	next.coming--
	p.boxes--
	p.discard(box, metrics.NotPreloaded)
	next.bare, next.why = time.Now(), err.Error()
	var not *sandbox.NotPreloaded
	if errors.As(err, &not) {
		next.why = not.Why
	}
	p.wake()
}

// notPreloaded says why a box that served a call was not preloaded, if that will not change with the next.
func (p *pool) notPreloaded(k kind, box *sandbox.Box) string {
	if k.preload == nil || box.Preloaded() {
		return k.without
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	if s := p.shelves[k.key]; s != nil {
		return s.why
	}
	return ""
}

// current says that what a preloaded box has read of the bundle is what the bundle holds: also if it was changed and changed back.
func (r *ready) current(tree *bundle.Tree) bool {
	return !r.box.Preloaded() || !tree.Changed.IsZero() && tree.Changed.Before(r.since)
}

func (r *ready) handOut() *sandbox.Box {
	r.box.Start = r.start()
	return r.box
}

// start is how far the box is.
func (r *ready) start() string {
	if r.box.Preloaded() {
		return helper.Preloaded
	}
	return helper.Prepared
}

func (s *shelf) preloaded() (n int) {
	for _, r := range s.ready {
		if r.box.Preloaded() {
			n++
		}
	}
	return n
}

// keep is how long a shelf is kept without a call.
func (s *shelf) keep() time.Duration {
	if s.least > 0 {
		return keepLeast
	}
	return keep
}
