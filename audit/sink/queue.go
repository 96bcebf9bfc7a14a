package sink

import (
	"context"
	"errors"
	"math/rand/v2"
	"sync"
	"time"

	"skillbox/audit"
)

const (
	defaultQueue = 8192
	// maxWaiting is how many bytes of lines may wait for one sink, however short its queue's records are.
	maxWaiting = 32 << 20
	// maxBatch are sent at a time, and maxBatchBytes of lines.
	maxBatch, maxBatchBytes = 512, 1 << 20
	// firstPause is how long after a failure the next attempt comes, and lastPause after many.
	firstPause, lastPause = 50 * time.Millisecond, 30 * time.Second
	busyPause             = 2 * time.Millisecond
	// warnPause is how often losses are told of.
	warnPause = 10 * time.Second
)

// queue holds records until its target has them, as many as it may.
type queue struct {
	to   target
	most int
	warn Warn
	ctx  context.Context
	stop context.CancelFunc
	news chan struct{} // there are records, or an end
	// ended is closed when nothing more is delivered.
	ended chan struct{}

	mu      sync.Mutex
	waiting []audit.Record
	bytes   int
	closing bool
	lost    uint64 // since undelivered was asked
	untold  uint64 // since warn was told
	why     string
	told    time.Time
}

func newQueue(to target, most int, warn Warn) *queue {
	if most == 0 {
		most = defaultQueue
	}
	q := &queue{to: to, most: most, warn: warn, news: make(chan struct{}, 1), ended: make(chan struct{})}
	q.ctx, q.stop = context.WithCancel(context.Background())
	go q.run()
	return q
}

var errOverflow = errors.New("more records waited than may")

func (q *queue) take(records []audit.Record) {
	q.mu.Lock()
	defer q.mu.Unlock()
	for i, r := range records {
		if q.closing || len(q.waiting) >= q.most || q.bytes+len(r.Line) > maxWaiting {
			why := errOverflow
			if q.closing {
				why = errEnded
			}
			q.lose(uint64(len(records)-i), why)
			break
		}
		q.waiting, q.bytes = append(q.waiting, r), q.bytes+len(r.Line)
	}
	q.wake()
}

var errEnded = errors.New("skillbox ended before it was delivered")

func (q *queue) wake() {
	select {
	case q.news <- struct{}{}:
	default: // it is awake
	}
}

// lose counts. q.mu is held.
func (q *queue) lose(n uint64, why error) {
	if n == 0 {
		return
	}
	q.lost, q.untold, q.why = q.lost+n, q.untold+n, audit.Clean(why.Error(), 512)
}

// tell warns of losses, seldom, and never while somebody waits for the queue: whoever is told may be slow.
func (q *queue) tell() {
	q.mu.Lock()
	n, why := q.untold, q.why
	if n == 0 || !q.closing && time.Since(q.told) < warnPause {
		q.mu.Unlock()
		return
	}
	q.untold, q.told = 0, time.Now()
	q.mu.Unlock()
	q.warn("audit sink: records not delivered", "sink", q.to.name(), "records", n, "why", why)
}

func (q *queue) undelivered() (audit.Undelivered, bool) {
	q.mu.Lock()
	defer q.mu.Unlock()
	u := audit.Undelivered{Sink: q.to.name(), Records: q.lost, Why: q.why}
	q.lost = 0
	return u, u.Records > 0
}

// end has what waits delivered within this time.
func (q *queue) end(within time.Duration) {
	q.mu.Lock()
	defer q.mu.Unlock()
	if q.closing {
		return
	}
	q.closing = true
	if within <= 0 {
		q.stop() // what needs no waiting still goes
	} else {
		time.AfterFunc(within, q.stop)
	}
	q.wake()
}

// run delivers until the end.
func (q *queue) run() {
	defer close(q.ended)
	defer q.tell()
	defer q.stop()
	failures := 0
	if err := q.to.reach(q.ctx); err != nil {
		failures = q.failed(0, err)
	}
	for {
		batch, closing := q.batch()
		if len(batch) == 0 {
			if closing {
				return
			}
			<-q.news
			continue
		}
		o := q.to.send(q.ctx, batch)
		q.settle(o)
		q.tell()
		if o.done == len(batch) {
			if failures > 0 {
				q.warn("audit sink: reached again", "sink", q.to.name())
			}
			failures = 0
			continue
		}
		if !o.busy || o.done == 0 { // a reader that is only slower than we are is none that is not there
			failures = q.failed(failures, o.why)
		}
		if q.givesUp(o) {
			return
		}
		q.pause(failures, o)
	}
}

func (q *queue) failed(before int, why error) int {
	if before == 0 {
		q.warn("audit sink: not reached, records wait", "sink", q.to.name(), "error", audit.Clean(why.Error(), 512))
	}
	return before + 1
}

// batch is what is to be sent next; it stays in the queue until it is settled.
func (q *queue) batch() (some []audit.Record, closing bool) {
	q.mu.Lock()
	defer q.mu.Unlock()
	bytes := 0
	for _, r := range q.waiting {
		if len(some) > 0 && (len(some) == maxBatch || bytes+len(r.Line) > maxBatchBytes) {
			break
		}
		some, bytes = append(some, r), bytes+len(r.Line)
	}
	return some, q.closing
}

func (q *queue) settle(o outcome) {
	q.mu.Lock()
	defer q.mu.Unlock()
	for _, r := range q.waiting[:o.done] {
		q.bytes -= len(r.Line)
	}
	clear(q.waiting[:o.done]) // their lines are not to stay in memory
	if q.waiting = q.waiting[o.done:]; len(q.waiting) == 0 {
		q.waiting = nil
	}
	if o.refused > 0 {
		q.lose(o.refused, o.why)
	}
}

// givesUp tells whether the end has come for what still waits: a target that is not there then is not tried again.
func (q *queue) givesUp(o outcome) bool {
	q.mu.Lock()
	defer q.mu.Unlock()
	if !q.closing || o.busy && q.ctx.Err() == nil {
		return false
	}
	q.lose(uint64(len(q.waiting)), o.why)
	q.waiting, q.bytes = nil, 0
	return true
}

// pause waits longer from failure to failure, and never as long as others do at the same time.
func (q *queue) pause(failures int, o outcome) {
	first, last := firstPause, lastPause
	if o.busy {
		first, last = busyPause, time.Second
	}
	wait := min(first<<min(max(failures-1, 0), 16), last)
	wait += time.Duration(rand.Int64N(int64(wait/2) + 1))
	timer := time.NewTimer(max(wait, min(o.after, 10*lastPause)))
	defer timer.Stop()
	for {
		select {
		case <-timer.C:
			return
		case <-q.ctx.Done():
			return
		case <-q.news: // more records, or the end
			q.tell()
			q.mu.Lock()
			closing := q.closing
			q.mu.Unlock()
			if closing {
				return
			}
		}
	}
}
