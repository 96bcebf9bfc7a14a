package metrics

import (
	"io"
	"runtime"

	dto "github.com/prometheus/client_model/go"
	"github.com/prometheus/common/expfmt"

	"skillbox/helper"
)

// ContentType is that of what Write writes.
const ContentType = "text/plain; version=0.0.4; charset=utf-8"

// Write writes everything in Prometheus' text format. boxes are those of now.
func (m *Metrics) Write(w io.Writer, boxes helper.Boxes) error {
	p, err := lookAtProcess()
	if err != nil {
		return err
	}
	m.mu.Lock()
	families := append(m.families(boxes), processFamilies(p)...)
	m.mu.Unlock()
	for _, f := range families {
		if len(f.Metric) == 0 {
			continue // before the first call
		}
		if _, err := expfmt.MetricFamilyToText(w, f); err != nil {
			return err
		}
	}
	return nil
}

func (m *Metrics) families(boxes helper.Boxes) []*dto.MetricFamily {
	phases := family("skillbox_call_phase_duration_seconds", "What the parts of a call took, as they are in its result; those that were not needed are not counted.", dto.MetricType_HISTOGRAM)
	for _, name := range sorted(m.phases) {
		if h := m.phases[name]; h.Count() > 0 { // no call may ever have some of them
			phases.Metric = append(phases.Metric, h.metric(labels("phase", name)))
		}
	}
	return []*dto.MetricFamily{
		single(family("skillbox_build_info", "The running build.", dto.MetricType_GAUGE), gauge(1, "version", m.version)),
		m.callFamily(),
		single(family("skillbox_call_duration_seconds", "What calls took, from the request to the result.", dto.MetricType_HISTOGRAM), m.total.metric(nil)),
		phases,
		counters("skillbox_calls_boxes_total", "Calls by how far their box was when they came, as it is in their result (sandbox.start).", "start", m.starts),
		single(family("skillbox_boxes_prepare_ahead_duration_seconds", "What it took to prepare boxes before their calls came.", dto.MetricType_HISTOGRAM), m.ahead.metric(nil)),
		{
			Name: ptr("skillbox_boxes"), Help: ptr("Boxes by what they do: run a skill, wait for a call, or are being prepared for one to come."), Type: dto.MetricType_GAUGE.Enum(),
			Metric: []*dto.Metric{gauge(boxes.Coming, "state", "coming"), gauge(boxes.Ready, "state", "ready"), gauge(boxes.Running, "state", "running")},
		},
		counters("skillbox_boxes_discarded_total", "Boxes that were prepared ahead and served no call.", "reason", m.discarded),
		counters("skillbox_denials_total", "What skills tried and a layer of their box refused.", "kind", m.denials),
		counters("skillbox_connections_refused_total", "Connections to the service that were not served.", "reason", m.refused),
		counters("skillbox_leaks_swept_total", "What dead processes had left and was removed at the start.", "kind", m.swept),
	}
}

// callFamily tells calls that ended well from others: both have the verdict exited.
func (m *Metrics) callFamily() *dto.MetricFamily {
	f := family("skillbox_calls_total", "Calls that have ended. Those that succeeded exited with code 0.", dto.MetricType_COUNTER)
	for _, verdict := range sorted(m.calls) {
		n := m.calls[verdict]
		if verdict == helper.Exited {
			f.Metric = append(f.Metric, counter(m.succeeded, "verdict", verdict, "success", "true"))
			n -= m.succeeded
		}
		f.Metric = append(f.Metric, counter(n, "verdict", verdict, "success", "false"))
	}
	return f
}

// processFamilies have the names that Prometheus' own libraries give them.
func processFamilies(p *process) []*dto.MetricFamily {
	var mem runtime.MemStats
	runtime.ReadMemStats(&mem)
	one := func(name, help string, value float64) *dto.MetricFamily {
		return single(family(name, help, dto.MetricType_GAUGE), &dto.Metric{Gauge: &dto.Gauge{Value: ptr(value)}})
	}
	cpu := family("process_cpu_seconds_total", "User and system time of the service itself, its boxes not included.", dto.MetricType_COUNTER)
	return []*dto.MetricFamily{
		one("go_goroutines", "Number of goroutines.", float64(p.Goroutines)),
		one("go_memstats_alloc_bytes", "Bytes of objects on the heap.", float64(mem.HeapAlloc)),
		one("go_memstats_sys_bytes", "Bytes that the runtime has from the system.", float64(mem.Sys)),
		one("go_threads", "Number of threads.", float64(p.Threads)),
		single(cpu, &dto.Metric{Counter: &dto.Counter{Value: ptr(p.CPUSeconds)}}),
		one("process_max_fds", "Most file descriptors that may be open.", float64(p.MaxDescriptors)),
		one("process_open_fds", "Open file descriptors.", float64(p.Descriptors)),
		one("process_resident_memory_bytes", "Resident memory of the service itself.", float64(p.ResidentBytes)),
		one("process_start_time_seconds", "When the service started, in seconds since 1970.", p.started),
		one("process_virtual_memory_bytes", "Virtual memory of the service itself.", float64(p.virtual)),
	}
}

func family(name, help string, kind dto.MetricType) *dto.MetricFamily {
	return &dto.MetricFamily{Name: &name, Help: &help, Type: &kind}
}

func single(f *dto.MetricFamily, m *dto.Metric) *dto.MetricFamily {
	f.Metric = append(f.Metric, m)
	return f
}

func counters(name, help, label string, values counts) *dto.MetricFamily {
	f := family(name, help, dto.MetricType_COUNTER)
	for _, value := range sorted(values) {
		f.Metric = append(f.Metric, counter(values[value], label, value))
	}
	return f
}

func counter(n int64, pairs ...string) *dto.Metric {
	return &dto.Metric{Label: labels(pairs...), Counter: &dto.Counter{Value: ptr(float64(n))}}
}

func gauge(n int, pairs ...string) *dto.Metric {
	return &dto.Metric{Label: labels(pairs...), Gauge: &dto.Gauge{Value: ptr(float64(n))}}
}

// labels are pairs of a name and a value.
func labels(pairs ...string) (list []*dto.LabelPair) {
	for i := 0; i+1 < len(pairs); i += 2 {
		list = append(list, &dto.LabelPair{Name: &pairs[i], Value: &pairs[i+1]})
	}
	return list
}
