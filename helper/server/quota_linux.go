package server

import (
	"fmt"
	"sync"

	"skillbox/helper"
	"skillbox/helper/server/metrics"
	"skillbox/policy"
)

// quota holds the calls of a service to what its user may take. The zero value holds nobody.
type quota struct {
	mu     sync.Mutex
	most   *policy.Quota // nil is none
	calls  int64
	memory int64
	pids   int64
}

// admit counts a call that is about to have a box, until its end is called; an error says which quota it would go beyond.
func (q *quota) admit(r policy.Resources) (end func(), err error) {
	if q == nil || q.most == nil {
		return func() {}, nil
	}
	q.mu.Lock()
	defer q.mu.Unlock()
	switch most := q.most; {
	case q.calls >= most.Calls:
		return nil, q.spent("calls", "%d of your calls run", q.calls)
	case q.calls >= most.Boxes:
		return nil, q.spent("boxes", "%d of your boxes run", q.calls)
	case q.memory+r.Memory > most.Memory:
		return nil, q.spent("memory", "your calls have %s of %s, and this one asks for %s (resources.memory)",
			policy.FormatSize(q.memory), policy.FormatSize(most.Memory), policy.FormatSize(r.Memory))
	case q.pids+r.Pids > most.Pids:
		return nil, q.spent("pids", "your calls have %d of %d, and this one asks for %d (resources.pids)", q.pids, most.Pids, r.Pids)
	}
	q.count(1, r)
	return sync.OnceFunc(func() {
		q.mu.Lock()
		defer q.mu.Unlock()
		q.count(-1, r)
	}), nil
}

func (q *quota) count(n int64, r policy.Resources) {
	q.calls += n
	q.memory += n * r.Memory
	q.pids += n * r.Pids
}

// ready is how many boxes may wait.
func (q *quota) ready(most int) int {
	if q == nil || q.most == nil {
		return most
	}
	q.mu.Lock()
	defer q.mu.Unlock()
	return int(min(int64(most), q.most.Ready, q.most.Boxes-q.calls))
}

// spent says which value is used up, and by which keys of the administrator's file it holds.
func (q *quota) spent(value, format string, a ...any) *helper.Error {
	hint := "wait for a call to end, or ask for less; the administrator sets this in /etc/skillbox/service.yaml"
	if q.most != nil && q.most.From != "" {
		hint += " (" + q.most.From + ")"
	}
	return &helper.Error{Message: fmt.Sprintf(format, a...), Field: "quota." + value, Hint: hint}
}

// trim makes room, within the quota, for a box that is no ready one.
func (p *pool) trim() {
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, s := range p.shelves {
		for len(s.ready) > 0 && p.boxes > p.quota.ready(maxReady) {
			p.discard(s.ready[0].box, metrics.Unused)
			s.ready = s.ready[1:]
			p.boxes--
		}
	}
}
