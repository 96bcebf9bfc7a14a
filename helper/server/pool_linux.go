package server

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"time"

	"skillbox/bundle"
	"skillbox/helper"
	"skillbox/helper/server/metrics"
	"skillbox/sandbox"
)

// pool keeps boxes ready: prepared before the call comes that they serve. Each serves one, and one that is too old, or whose bundle has
// changed, none.
type pool struct {
	host   *sandbox.Host
	record *record
	quota  *quota
	copies copies // of bundles that must stay what they are

	mu      sync.Mutex
	shelves map[string]*shelf // by key
	boxes   int               // on all shelves, and on their way there
	refill  chan struct{}     // there may be something to prepare
	end     chan struct{}
	ended   bool
	work    sync.WaitGroup
}

// shelf has boxes for calls that are alike in everything a box depends on.
type shelf struct {
	kind
	digest string // of the bundle, when last seen
	ready  []*ready
	coming int
	want   int
	used   time.Time
	missed time.Time // when a call last found none
	failed time.Time // when a box last could not be prepared
	bare   time.Time // when one last could not be preloaded
	why    string    // why not
}

type ready struct {
	box   *sandbox.Box
	since time.Time // nothing of the skill's was read before
}

const (
	// maxReady is for all shelves, and maxShelf for each. A ready box takes about 2 MB.
	maxReady, maxShelf = 32, 8
	// keep is how long boxes wait for a call like those that came before, and fresh how long one may wait: what it was prepared from, such
	// as the host's resolvers, may change.
	keep, fresh = time.Minute, 5 * time.Minute
	// hot is how soon after another a call that finds no box says that there should be more; cold is how long nothing is prepared after it
	// has failed.
	hot, cold = 2 * time.Second, 10 * time.Second
	// brisk is how soon one call after another says that preparing the next box may take too long.
	brisk = 250 * time.Millisecond
	// keepLeast is keep where the policy says how many boxes are to be ready, and bareFor how long what could not be preloaded is not tried again.
	keepLeast, bareFor = 10 * time.Minute, 5 * time.Minute
	// closeTime is how long ready boxes may take to end: one may lie on a file system that does not answer.
	closeTime = 10 * time.Second
)

func newPool(h *sandbox.Host, r *record, q *quota) *pool {
	p := &pool{host: h, record: r, quota: q, shelves: map[string]*shelf{}, refill: make(chan struct{}, 1), end: make(chan struct{})}
	p.copies.gone = p.forget
	p.work.Go(p.tend)
	return p
}

// unfit is why no call may have the box, "" if one may.
func (r *ready) unfit() string {
	switch {
	case !r.box.Alive():
		return metrics.Died
	case time.Since(r.since) >= fresh:
		return metrics.TooOld
	}
	return ""
}

// has says that a call would probably find a box.
func (p *pool) has(key string) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	s := p.shelves[key]
	return s != nil && len(s.ready) > 0
}

// take returns a box that is the caller's from now on, and nil if there is none for this bundle as it is now.
func (p *pool) take(key string, tree *bundle.Tree) *sandbox.Box {
	p.mu.Lock()
	defer p.mu.Unlock()
	s := p.shelves[key]
	for s != nil && len(s.ready) > 0 {
		r := s.ready[0]
		s.ready = s.ready[1:]
		p.boxes--
		unfit := r.unfit()
		if unfit == "" && (s.digest != tree.Digest || !r.current(tree)) {
			unfit = metrics.BundleChanged
		}
		if unfit == "" {
			return r.handOut() // another is prepared when the call is over: it would take the processor from it
		}
		p.discard(r.box, unfit)
	}
	return nil
}

// served learns from a call what to keep ready.
func (p *pool) served(k kind, tree *bundle.Tree, found bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.ended {
		return
	}
	s := p.shelves[k.key]
	if s == nil {
		s = &shelf{kind: k, want: max(k.least, 1)}
		p.shelves[k.key] = s
	}
	if now := time.Now(); !found {
		if now.Sub(s.missed) < hot {
			s.want = min(s.want*2, maxShelf)
		}
		s.missed = now
	}
	if found && time.Since(s.used) < brisk {
		s.want = max(s.want, 2)
	}
	if s.digest != tree.Digest {
		p.clear(s, metrics.BundleChanged)
		s.digest, s.bare, s.why = tree.Digest, time.Time{}, ""
	}
	if tree.Changed.IsZero() {
		s.bare, s.why = time.Now(), "the bundle lies on a file system whose clock is another machine's"
	}
	s.used = time.Now()
	p.wake()
}

// status lists what waits.
func (p *pool) status() []helper.Ready {
	p.mu.Lock()
	defer p.mu.Unlock()
	all := []helper.Ready{}
	for _, s := range p.shelves {
		all = append(all, helper.Ready{Bundle: s.from, Boxes: len(s.ready), Preloaded: s.preloaded(), Wanted: s.want, Used: s.used.UTC()})
	}
	slices.SortFunc(all, func(a, b helper.Ready) int { return strings.Compare(a.Bundle, b.Bundle) })
	return all
}

// count is how many boxes are ready, and how many are being prepared.
func (p *pool) count() (ready, coming int) {
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, s := range p.shelves {
		ready, coming = ready+len(s.ready), coming+s.coming
	}
	return ready, coming
}

func (p *pool) wake() {
	select {
	case p.refill <- struct{}{}:
	default:
	}
}

// tend prepares what is wanted, one box at a time so that calls come first, and clears what nobody asks for.
func (p *pool) tend() {
	tick := time.NewTicker(time.Second)
	defer tick.Stop()
	for {
		select {
		case <-p.end:
			return
		case <-tick.C:
			p.expire()
			if err := p.copies.expire(keepCopies); err != nil {
				p.record.log.Error("let go of the copy of a bundle", "error", err)
			}
		case <-p.refill:
		}
		for p.prepareOne() {
			select {
			case <-p.end:
				return
			default:
			}
		}
	}
}

// prepareOne fills the place that has been empty for longest.
func (p *pool) prepareOne() bool {
	p.mu.Lock()
	var next *shelf
	for _, s := range p.shelves {
		if len(s.ready)+s.coming < s.want && time.Since(s.failed) > cold && (next == nil || s.missed.Before(next.missed)) {
			next = s
		}
	}
	if next == nil || p.boxes >= p.quota.ready(maxReady) {
		p.mu.Unlock()
		return false
	}
	next.coming++
	p.boxes++
	ahead := next.preload != nil && time.Since(next.bare) > bareFor
	p.mu.Unlock()

	id, err := p.host.Reserve()
	var box *sandbox.Box
	if err == nil {
		box, err = inTime(func() (*sandbox.Box, error) { return sandbox.Prepare(p.host, next.plan, id) }, func(late *sandbox.Box) {
			if late != nil {
				p.discard(late, metrics.Failed)
			}
		})
	}

	if err == nil && ahead {
		p.preloadBox(next, box)
		return true
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	p.arrived(next, box, time.Now(), err)
	return err == nil
}

// arrived puts a box on its shelf.
func (p *pool) arrived(next *shelf, box *sandbox.Box, since time.Time, err error) {
	next.coming--
	switch {
	case err != nil:
		p.boxes--
		next.failed = time.Now()
		p.record.Discarded(metrics.Failed)
		p.record.log.Warn("prepare a box ahead", "error", err)
	case p.ended:
		p.boxes--
		p.discard(box, metrics.Stopped)
	case next.want == 0:
		p.boxes--
		p.discard(box, metrics.Unused)
	default:
		p.record.Ahead(time.Duration((box.Phases["prepare_ms"] + box.Phases["preload_ms"]) * float64(time.Millisecond)))
		next.ready = append(next.ready, &ready{box, since})
	}
}

func (p *pool) expire() {
	p.mu.Lock()
	defer p.mu.Unlock()
	for key, s := range p.shelves {
		if time.Since(s.used) > s.keep() {
			s.want = 0
			p.clear(s, metrics.Unused)
			delete(p.shelves, key)
			continue
		}
		for len(s.ready) > 0 && s.ready[0].unfit() != "" {
			p.discard(s.ready[0].box, s.ready[0].unfit())
			s.ready = s.ready[1:]
			p.boxes--
		}
	}
}

// forget takes boxes away that were prepared from a copy of a bundle which is gone.
func (p *pool) forget(path string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	for key, s := range p.shelves {
		if bundleOf(s.plan) == path {
			s.want = 0
			p.clear(s, metrics.BundleChanged)
			delete(p.shelves, key)
		}
	}
}

func (p *pool) clear(s *shelf, why string) {
	for _, r := range s.ready {
		p.discard(r.box, why)
	}
	p.boxes -= len(s.ready)
	s.ready = nil
}

// discard ends a box that served no call.
func (p *pool) discard(b *sandbox.Box, why string) {
	p.work.Go(func() {
		p.record.discard(b.ID, why) // here, for nobody is to wait for a log with the lock in hand
		if err := b.Close(); err != nil {
			p.record.log.Error("close a box that served no call", "box", b.ID, "error", err)
		}
	})
}

// close ends every box that waits.
func (p *pool) close() error {
	p.mu.Lock()
	if p.ended {
		p.mu.Unlock()
		return errors.New("server: the pool was closed before")
	}
	p.ended = true
	close(p.end)
	for key, s := range p.shelves {
		p.clear(s, metrics.Stopped)
		delete(p.shelves, key)
	}
	p.mu.Unlock()
	done := make(chan struct{})
	go func() {
		p.work.Wait()
		close(done)
	}()
	err := p.copies.expire(0)
	select {
	case <-done:
		return err
	case <-time.After(closeTime):
		return errors.Join(err, fmt.Errorf("server: not every ready box could be taken down within %s; what is left ends with this process", closeTime))
	}
}
