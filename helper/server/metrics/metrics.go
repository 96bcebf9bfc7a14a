// Package metrics counts what a service does, and writes it in Prometheus' text format. Every label has values that are known
// beforehand: nothing that a skill or a caller chooses becomes a series.
//
// It uses Prometheus' data model and writer, and not its client library, whose package initialisation takes longer than a service's
// start-up may (ARCHITECTURE.md).
package metrics

import (
	"maps"
	"slices"
	"strings"
	"sync"
	"time"

	"skillbox/helper"
)

// Other stands for every value of a label that is not known.
const Other = "other"

// Reasons for which a box that was prepared ahead served no call.
const (
	BundleChanged = "bundle_changed"
	TooOld        = "too_old"
	Died          = "died"
	Failed        = "failed" // it was not ready in time, or at all
	Unused        = "unused" // no call of its kind came any more
	Stopped       = "stopped"
	NotPreloaded  = "not_preloaded" // its interpreter did not come as far as the call
)

// Reasons for which a connection was refused.
const (
	Stranger  = "stranger" // another user
	FromBox   = "box"      // a process of a box of this service
	Malformed = "malformed"
	Silent    = "silent" // no whole request came in time
	Build     = "build"  // a client of another build; the service leaves
	Leaving   = "leaving"
)

// The known values of each label.
var (
	verdicts = []string{
		helper.Exited, helper.Signaled, helper.TimedOut, helper.OutOfMemory, helper.PidsLimit, helper.OutputLimit, helper.SyscallKilled,
		helper.Canceled, helper.Refused, helper.Failed,
	}
	starts   = []string{helper.Cold, helper.Prepared, helper.Preloaded, helper.InSession}
	phases   = []string{"enter", "decide", "digest", "prepare", "tree", "group", "network", "jail", "preload", "run"}
	denials  = []string{"syscall", "dns", "connection"}
	discards = []string{BundleChanged, TooOld, Died, Failed, Unused, Stopped, NotPreloaded}
	refusals = []string{Stranger, FromBox, Malformed, Silent, Build, Leaving}
	leaks    = []string{"group", "link"}
)

// Metrics are a service's figures since it started. Its methods may be called by several goroutines.
type Metrics struct {
	version string
	since   time.Time

	mu        sync.Mutex
	succeeded int64
	calls     counts // by verdict
	starts    counts // by how far the box was when the call came
	denials   counts // by kind
	discarded counts // by reason
	refused   counts // by reason
	swept     counts // by kind
	total     Histogram
	ahead     Histogram
	phases    map[string]*Histogram
}

// counts are numbers by the value of one label.
type counts map[string]int64

// known are counts of zero.
func known(values []string) counts {
	c := counts{}
	for _, v := range values {
		c[v] = 0
	}
	return c
}

func (c counts) add(value string, n int64) {
	if _, ok := c[value]; !ok {
		value = Other
	}
	c[value] += n
}

// some are those that are not zero.
func (c counts) some() map[string]int64 {
	some := map[string]int64(maps.Clone(c))
	maps.DeleteFunc(some, func(_ string, n int64) bool { return n == 0 })
	return some
}

// New begins to count, for a service of this version.
func New(version string) *Metrics {
	m := &Metrics{
		version: version, since: time.Now(), calls: known(verdicts), starts: known(starts), denials: known(denials), discarded: known(discards),
		refused: known(refusals), swept: known(leaks), phases: map[string]*Histogram{},
	}
	for _, name := range phases {
		m.phases[name] = &Histogram{}
	}
	return m
}

// Call counts a call that has ended.
func (m *Metrics) Call(r *helper.Result) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.calls.add(r.Verdict, 1)
	if r.Success {
		m.succeeded++
	}
	if start := r.Sandbox.Start; start != "" {
		m.starts.add(start, 1)
	}
	for _, d := range r.Denials {
		m.denials.add(d.Kind, d.Count)
	}
	m.total.Observe(milliseconds(r.DurationMS))
	for key, ms := range r.Phases {
		name := strings.TrimSuffix(key, "_ms")
		if h := m.phases[name]; h != nil && ms > 0 { // what took no time was not done: a box was ready
			h.Observe(milliseconds(ms))
		}
	}
}

// Ahead counts a box that was prepared before the call comes that it is to serve.
func (m *Metrics) Ahead(took time.Duration) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.ahead.Observe(took)
}

// Discarded counts a box that served no call.
func (m *Metrics) Discarded(reason string) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.discarded.add(reason, 1)
}

// Refused counts a connection that was not served.
func (m *Metrics) Refused(reason string) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.refused.add(reason, 1)
}

// Swept counts what dead processes had left: a "group" or a "link".
func (m *Metrics) Swept(kind string, n int) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.swept.add(kind, int64(n))
}

// Verdicts is the number of calls that came to each.
func (m *Metrics) Verdicts() map[string]int64 {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.calls.some()
}

// Found is the number of calls that found a box prepared or preloaded.
func (m *Metrics) Found() int64 {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.starts[helper.Prepared] + m.starts[helper.Preloaded]
}

// Stats are the figures for a person. boxes are those of now.
func (m *Metrics) Stats(boxes helper.Boxes) (*helper.Stats, error) {
	p, err := lookAtProcess()
	if err != nil {
		return nil, err
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	s := &helper.Stats{
		Version: m.version, Since: m.since.UTC(), Calls: m.calls.some(), Succeeded: m.succeeded,
		Starts:    m.starts.some(),
		Durations: []helper.Timing{timing("total", &m.total)}, PreparedAhead: timing("prepare", &m.ahead),
		Denials: m.denials.some(), Discarded: m.discarded.some(), Refused: m.refused.some(), Swept: m.swept.some(), Boxes: boxes, Process: p.Process,
	}
	for _, name := range phases {
		if h := m.phases[name]; h.Count() > 0 {
			s.Durations = append(s.Durations, timing(name, h))
		}
	}
	return s, nil
}

func timing(phase string, h *Histogram) helper.Timing {
	ms := func(d time.Duration) float64 { return float64(d.Microseconds()) / 1000 }
	return helper.Timing{Phase: phase, Count: int64(h.Count()), MedianMS: ms(h.Quantile(0.5)), P99MS: ms(h.Quantile(0.99)), MaxMS: ms(h.Max())}
}

func milliseconds(ms float64) time.Duration { return time.Duration(ms * float64(time.Millisecond)) }

// sorted are the label's values in the order in which they are told.
func sorted[V any](values map[string]V) []string { return slices.Sorted(maps.Keys(values)) }
