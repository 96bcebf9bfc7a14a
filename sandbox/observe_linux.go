package sandbox

import (
	"cmp"
	"slices"
	"sync"
	"time"

	"skillbox/audit"
	"skillbox/boxinit"
	"skillbox/helper"
	"skillbox/seccomp/observe"
)

// Observed is something that the skill did, with what the policy has to do with it.
type Observed = observe.Seen

// recordInterval is how long what a skill did waits at most until it is recorded.
const recordInterval = 500 * time.Millisecond

// watched is what a box with audit.files, or audit.syscalls above denied, has seen.
type watched struct {
	observer *observe.Observer
	plan     *Plan

	mu      sync.Mutex // one records at a time
	record  func([]Observed)
	denials map[helper.Denial]int64 // by everything but their number
}

// maxDenials bounds what a skill can make us tell.
const maxDenials = 256

// newWatched returns nil for a plan that watches nothing.
func (b *Box) newWatched(init int) *watched {
	if b.Plan.Seccomp.Calls == "" && b.Plan.Seccomp.Files == "" {
		return nil
	}
	ids := b.Plan.IDs
	return &watched{plan: b.Plan, denials: map[helper.Denial]int64{}, observer: observe.New(observe.Box{
		Init: init, Program: b.host.Init, Own: boxinit.Path + "/", UID: ids.SkillUID, GID: ids.SkillGID, Confined: b.Plan.Network.Path == "none",
	})}
}

// follow records what the skill does until the returned function is called.
func (w *watched) follow(record func([]Observed)) (stop func()) {
	if w == nil {
		return func() {}
	}
	w.mu.Lock()
	w.record = record
	w.mu.Unlock()
	over, done := make(chan struct{}), make(chan struct{})
	go func() {
		defer close(done)
		tick := time.NewTicker(recordInterval)
		defer tick.Stop()
		for {
			select {
			case <-over:
				return
			case <-tick.C:
			case <-w.observer.Full():
			}
			w.flush()
		}
	}()
	return sync.OnceFunc(func() {
		close(over)
		<-done
		w.flush()
	})
}

// flush records what was seen so far.
func (w *watched) flush() {
	w.mu.Lock()
	defer w.mu.Unlock()
	all := w.observer.Take()
	for i := range all {
		all[i].Detail = w.plan.judge(all[i].Detail)
		w.deny(all[i].Detail)
	}
	if w.record != nil && len(all) > 0 {
		w.record(all)
	}
}

// deny counts what the result tells of.
func (w *watched) deny(d audit.Detail) {
	one, count := denialOf(d)
	if one.Kind == "" || one.Hint == "" {
		return
	}
	if _, there := w.denials[one]; there || len(w.denials) < maxDenials {
		w.denials[one] += count
	}
}

// told puts what was refused since it was last called into the result.
func (w *watched) told(r *helper.Result) {
	if w == nil {
		return
	}
	w.flush()
	w.mu.Lock()
	defer w.mu.Unlock()
	var all []helper.Denial
	for one, count := range w.denials {
		one.Count = count
		all = append(all, one)
	}
	clear(w.denials)
	slices.SortFunc(all, func(a, b helper.Denial) int {
		return cmp.Or(cmp.Compare(b.Count, a.Count), cmp.Compare(a.Kind, b.Kind), cmp.Compare(a.What, b.What))
	})
	r.Denials = append(r.Denials, all...)
	r.Unrecorded = w.observer.Restart()
	if err := w.observer.Err(); err != nil {
		r.Warnings = append(r.Warnings, "not all that the skill did could be seen: "+err.Error())
	}
}

func (w *watched) close() error {
	if w == nil {
		return nil
	}
	return w.observer.Close()
}
