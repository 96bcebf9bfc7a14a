package metrics

import (
	"bytes"
	"fmt"
	"math"
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	dto "github.com/prometheus/client_model/go"
	"github.com/prometheus/common/expfmt"
	"github.com/prometheus/common/model"

	"skillbox/helper"
)

// parse reads what m writes, as Prometheus would.
func parse(t *testing.T, m *Metrics) map[string]*dto.MetricFamily {
	t.Helper()
	var text bytes.Buffer
	if err := m.Write(&text, helper.Boxes{Running: 1, Ready: 2, Coming: 3}); err != nil {
		t.Fatal(err)
	}
	parser := expfmt.NewTextParser(model.LegacyValidation)
	families, err := parser.TextToMetricFamilies(&text)
	if err != nil {
		t.Fatal(err)
	}
	return families
}

// value is a series' of these labels, in the order in which they are written.
func value(t *testing.T, families map[string]*dto.MetricFamily, name string, pairs ...string) float64 {
	t.Helper()
	for _, m := range families[name].GetMetric() {
		var have []string
		for _, l := range m.Label {
			have = append(have, l.GetName(), l.GetValue())
		}
		if !slices.Equal(have, pairs) {
			continue
		}
		switch {
		case m.Counter != nil:
			return m.Counter.GetValue()
		case m.Gauge != nil:
			return m.Gauge.GetValue()
		}
		return float64(m.Histogram.GetSampleCount())
	}
	t.Errorf("no %s%v", name, pairs)
	return -1
}

func started(start string) helper.Sandbox { return helper.Sandbox{Start: start} }

func TestPrometheusReadsWhatWasCounted(t *testing.T) {
	m := New("v1")
	m.Call(&helper.Result{Verdict: helper.Exited, Success: true, DurationMS: 3, Phases: map[string]float64{"run_ms": 2, "prepare_ms": 0}, Sandbox: started(helper.Preloaded)})
	m.Call(&helper.Result{Verdict: helper.Exited, ExitCode: 3, DurationMS: 30, Phases: map[string]float64{"run_ms": 2, "prepare_ms": 20}, Sandbox: started(helper.Cold)})
	m.Call(&helper.Result{Verdict: helper.TimedOut, Denials: []helper.Denial{{Kind: "syscall", Count: 3}, {Kind: "dns", Count: 2}, {Kind: "new", Count: 1}}, Sandbox: started(helper.Cold)})
	m.Call(&helper.Result{Verdict: helper.Refused})
	m.Ahead(20 * time.Millisecond)
	m.Discarded(BundleChanged)
	m.Refused(Stranger)
	m.Swept("group", 4)
	got := parse(t, m)
	for _, c := range []struct {
		want  float64
		name  string
		pairs []string
	}{
		{1, "skillbox_build_info", []string{"version", "v1"}},
		{1, "skillbox_calls_total", []string{"verdict", "exited", "success", "true"}},
		{1, "skillbox_calls_total", []string{"verdict", "exited", "success", "false"}},
		{1, "skillbox_calls_total", []string{"verdict", "timed_out", "success", "false"}},
		{1, "skillbox_calls_total", []string{"verdict", "refused", "success", "false"}},
		{0, "skillbox_calls_total", []string{"verdict", "failed", "success", "false"}},
		{2, "skillbox_calls_boxes_total", []string{"start", "cold"}},
		{0, "skillbox_calls_boxes_total", []string{"start", "prepared"}},
		{1, "skillbox_calls_boxes_total", []string{"start", "preloaded"}},
		{0, "skillbox_calls_boxes_total", []string{"start", "session"}},
		{4, "skillbox_call_duration_seconds", nil},
		{2, "skillbox_call_phase_duration_seconds", []string{"phase", "run"}},
		{1, "skillbox_call_phase_duration_seconds", []string{"phase", "prepare"}},
		{1, "skillbox_boxes_prepare_ahead_duration_seconds", nil},
		{1, "skillbox_boxes", []string{"state", "running"}},
		{2, "skillbox_boxes", []string{"state", "ready"}},
		{3, "skillbox_boxes", []string{"state", "coming"}},
		{1, "skillbox_boxes_discarded_total", []string{"reason", "bundle_changed"}},
		{3, "skillbox_denials_total", []string{"kind", "syscall"}},
		{2, "skillbox_denials_total", []string{"kind", "dns"}},
		{1, "skillbox_denials_total", []string{"kind", "other"}},
		{1, "skillbox_connections_refused_total", []string{"reason", "stranger"}},
		{4, "skillbox_leaks_swept_total", []string{"kind", "group"}},
	} {
		if v := value(t, got, c.name, c.pairs...); v != c.want {
			t.Errorf("%s%v is %v, want %v", c.name, c.pairs, v, c.want)
		}
	}
	for _, name := range []string{"process_resident_memory_bytes", "process_open_fds", "process_start_time_seconds", "go_goroutines"} {
		if value(t, got, name) <= 0 {
			t.Errorf("%s is not above zero", name)
		}
	}
	if started := value(t, got, "process_start_time_seconds"); math.Abs(started-float64(time.Now().Unix())) > 600 {
		t.Errorf("this process started at %v", started)
	}
}

func TestAServiceWithoutCallsIsReadToo(t *testing.T) {
	got := parse(t, New("v1"))
	if n := value(t, got, "skillbox_call_duration_seconds"); n != 0 {
		t.Errorf("%v calls", n)
	}
	for name, f := range got {
		if len(f.Metric) == 0 || f.GetHelp() == "" {
			t.Errorf("%s: %d series, help %q", name, len(f.Metric), f.GetHelp())
		}
	}
}

func TestStrangersWordsMakeNoSeries(t *testing.T) {
	series := func(m *Metrics) (n int) {
		for _, f := range parse(t, m) {
			n += len(f.Metric)
		}
		return n
	}
	m := New("v1")
	call := func(word string) {
		m.Call(&helper.Result{
			ID: word, Verdict: word, Skill: helper.Named{Name: word, Digest: word}, Policy: helper.Named{Name: word}, Phases: map[string]float64{word + "_ms": 1},
			Denials: []helper.Denial{{Kind: word, What: word, Rule: word, Count: 1}}, Sandbox: started(word),
		})
		m.Discarded(word)
		m.Refused(word)
		m.Swept(word, 1)
	}
	call("first")
	before := series(m)
	for i := range 1000 {
		call(fmt.Sprintf("skill %d", i))
	}
	if after := series(m); after != before || before > 100 {
		t.Errorf("%d series became %d", before, after)
	}
}

func TestQuantilesAreOffByAtMostFivePercent(t *testing.T) {
	random := rand.New(rand.NewPCG(1, 2))
	for _, scale := range []float64{0.2, 1, 40, 3000} { // ms
		var h Histogram
		var all []float64
		for range 20_000 {
			s := scale / 1000 * math.Exp(random.NormFloat64())
			all = append(all, s)
			h.Observe(time.Duration(s * float64(time.Second)))
		}
		slices.Sort(all)
		for _, q := range []float64{0.01, 0.5, 0.99} {
			got, want := h.Quantile(q).Seconds(), all[int(q*float64(len(all)))]
			if math.Abs(got/want-1) > 0.05 {
				t.Errorf("quantile %v of about %v ms: %v, want %v", q, scale, got, want)
			}
		}
		if got := h.Max().Seconds(); math.Abs(got-all[len(all)-1]) > 1e-6 {
			t.Errorf("the longest: %v, want %v", got, all[len(all)-1])
		}
	}
	var none Histogram
	if none.Quantile(0.5) != 0 {
		t.Error("of nothing")
	}
	none.Observe(time.Hour)
	if got := none.Quantile(0.5); got <= time.Minute || got > time.Hour {
		t.Errorf("of an hour alone: %v", got)
	}
}

func TestABoundBelongsToItsBucket(t *testing.T) {
	var h Histogram
	h.Observe(time.Millisecond)
	h.Observe(time.Millisecond + time.Nanosecond)
	h.Observe(0)
	m := h.metric(nil).Histogram
	want := map[float64]uint64{0.0005: 1, 0.001: 2, 0.002: 3, 65.536: 3}
	for _, b := range m.Bucket {
		if n, ok := want[b.GetUpperBound()]; ok && n != b.GetCumulativeCount() {
			t.Errorf("up to %v: %d, want %d", b.GetUpperBound(), b.GetCumulativeCount(), n)
		}
		delete(want, b.GetUpperBound())
	}
	if len(want) > 0 || len(m.Bucket) != told {
		t.Errorf("no buckets up to %v; %d are there", want, len(m.Bucket))
	}
}
