package metrics

import (
	"math"
	"sort"
	"time"

	dto "github.com/prometheus/client_model/go"
)

// Histogram counts durations in classes of which each is nine percent wider than the one before, so that a quantile is off by at most
// half of that however many calls there were. Every eighth bound is one that Prometheus is told: 0.5 ms, 1 ms, 2 ms … 65.536 s.
// The zero value is empty.
type Histogram struct {
	counts [classes + 1]uint64 // the last is for what is longer than every bound
	n      uint64
	sum    float64 // seconds
	max    float64
}

const (
	first   = 0.0005 // seconds, the first bound that is told
	steps   = 8      // classes between two bounds that are told
	below   = 6      // powers of two below first: from 8 µs up
	told    = 18
	classes = (below+told-1)*steps + 1
)

// bounds are the upper ends of the classes.
var bounds = func() (b [classes]float64) {
	for i := range b {
		b[i] = first * math.Exp2(float64(i)/steps-below)
	}
	return b
}()

// Observe counts one duration.
func (h *Histogram) Observe(d time.Duration) {
	s := max(d.Seconds(), 0)
	h.counts[sort.SearchFloat64s(bounds[:], s)]++
	h.n++
	h.sum += s
	h.max = max(h.max, s)
}

// Count is the number of durations.
func (h *Histogram) Count() uint64 { return h.n }

// Max is the longest.
func (h *Histogram) Max() time.Duration { return seconds(h.max) }

// Quantile is the duration that a part q of all, from 0 to 1, do not exceed; 0 if there is none.
func (h *Histogram) Quantile(q float64) time.Duration {
	if h.n == 0 {
		return 0
	}
	rank := max(uint64(math.Ceil(q*float64(h.n))), 1)
	for i, n := range h.counts {
		if n < rank {
			rank -= n
			continue
		}
		if i == 0 || i == classes {
			return seconds(min(h.max, bounds[min(i, classes-1)]))
		}
		return seconds(min(h.max, math.Sqrt(bounds[i-1]*bounds[i])))
	}
	return seconds(h.max)
}

func seconds(s float64) time.Duration { return time.Duration(s * float64(time.Second)) }

// metric is what Prometheus is told.
func (h *Histogram) metric(labels []*dto.LabelPair) *dto.Metric {
	var buckets []*dto.Bucket
	var cumulative uint64
	for i, n := range h.counts[:classes] {
		cumulative += n
		if i >= below*steps && (i-below*steps)%steps == 0 {
			buckets = append(buckets, &dto.Bucket{CumulativeCount: ptr(cumulative), UpperBound: ptr(bounds[i])})
		}
	}
	return &dto.Metric{Label: labels, Histogram: &dto.Histogram{SampleCount: ptr(h.n), SampleSum: ptr(h.sum), Bucket: buckets}}
}

func ptr[T any](v T) *T { return &v }
