package learn

import (
	"slices"
	"strings"
	"testing"
	"time"

	"skillbox/audit"
	"skillbox/policy"
)

// limited gives the policy that is learned where runs used so much, with the limits that are known.
func limited(current, widest *policy.Policy, taken []int64, usage ...audit.Usage) *learning {
	draft := *policy.Default()
	l := &learning{subject: &subject{current: current, widest: widest}, seen: newWants(), draft: &draft}
	l.seen.usage, l.seen.taken = usage, taken
	l.limits()
	return l
}

func TestLimitsAreMeasuredWhereEveryRunTells(t *testing.T) {
	const mib = 1 << 20
	widest := policy.Default()
	widest.Resources.Memory, widest.Resources.Pids, widest.Resources.Output, widest.Timeout = 64*mib, 256, 64*mib, time.Minute
	both := []string{"resources.memory", "resources.pids"}

	l := limited(nil, widest, []int64{100, 9000}, audit.Usage{MemoryPeak: 10 * mib, PidsPeak: 3, StdoutBytes: 1000}, audit.Usage{MemoryPeak: 15 * mib, PidsPeak: 9, StderrBytes: mib})
	if r := l.draft.Resources; r.Memory != 24*mib || r.Pids != 16 || r.Output != 3*mib/2 || l.draft.Timeout != 15*time.Second || !slices.Equal(l.measured, both) {
		t.Errorf("%+v %v, measured %v", r, l.draft.Timeout, l.measured)
	}

	l = limited(nil, widest, []int64{1}, audit.Usage{MemoryPeak: 60 * mib, PidsPeak: 1})
	if r := l.draft.Resources; r.Memory != 64*mib || r.Pids != 8 {
		t.Errorf("above the ceiling: %+v", r)
	}

	l = limited(nil, widest, []int64{1, 1}, audit.Usage{MemoryPeak: 10 * mib, PidsPeak: 3}, audit.Usage{})
	if r, usual := l.draft.Resources, policy.Default().Resources; r.Memory != usual.Memory || r.Pids != usual.Pids || len(l.measured) > 0 {
		t.Errorf("not measured: %+v, %v", r, l.measured)
	}
}

func TestLimitsThatHoldNowGrowOnlyByNeed(t *testing.T) {
	const mib = 1 << 20
	now, widest := policy.Default(), policy.Default()
	now.Resources.Memory, now.Resources.Pids, now.Resources.OpenFiles, now.Timeout = 20*mib, 9, 64, 2*time.Second
	widest.Resources.Memory = 1 << 30
	l := limited(now, widest, []int64{500}, audit.Usage{MemoryPeak: 12 * mib, PidsPeak: 7})
	if r := l.draft.Resources; r.Memory != 20*mib || r.Pids != 12 || r.OpenFiles != 64 || l.draft.Timeout != 2*time.Second {
		t.Errorf("%+v %v", r, l.draft.Timeout)
	}
	l = limited(now, widest, []int64{500}, audit.Usage{})
	if r := l.draft.Resources; r.Memory != 20*mib || r.Pids != 9 {
		t.Errorf("not measured: %+v", r)
	}
	l.expected, l.options.Runs = nil, 1
	if text := l.document().String(); !strings.Contains(text, "without a cgroup") {
		t.Errorf("%s", text)
	}
}
