package learn

import (
	"math"
	"slices"
	"time"
)

// headroom is how much more a limit allows than was used.
const headroom = 1.5

// Bounds below which a limit would only measure how busy the machine is.
const (
	leastTimeout = 5 * time.Second
	leastOutput  = 64 << 10
	leastMemory  = 16 << 20
	leastPids    = 8
)

// percentile95 is the 95th percentile by nearest rank; of up to twenty values that is the largest. Of none it is 0.
func percentile95(values []int64) int64 {
	if len(values) == 0 {
		return 0
	}
	sorted := slices.Sorted(slices.Values(values))
	return sorted[int(math.Ceil(0.95*float64(len(sorted))))-1]
}

// limit is what is allowed of something of which these amounts were used: head-room on top, rounded up to a friendly number, at least least, and
// never above most.
func limit(used []int64, least, most int64, friendly func(int64) int64) int64 {
	need := int64(math.Ceil(headroom * float64(percentile95(used))))
	return min(friendly(max(need, least)), most)
}

// keep holds a limit to what holds now where that has room enough: only a need makes it more. now is 0 where nothing holds.
func keep(limit, now int64, used []int64) int64 {
	if now > 0 && float64(now) >= headroom*float64(percentile95(used)) {
		return min(limit, now)
	}
	return limit
}

// friendlySize rounds bytes up to a power of two, or to one and a half of one.
func friendlySize(n int64) int64 {
	for size := int64(1 << 10); ; size *= 2 {
		if n <= size {
			return size
		}
		if n <= size+size/2 {
			return size + size/2
		}
	}
}

// friendlyCount rounds up to 8, 12, 16, 24, 32 and so on.
func friendlyCount(n int64) int64 {
	for count := int64(8); ; count *= 2 {
		if n <= count {
			return count
		}
		if n <= count+count/2 {
			return count + count/2
		}
	}
}

// friendlyTime rounds milliseconds up to what a person would write.
func friendlyTime(ms int64) int64 {
	for _, s := range []int64{1, 2, 5, 10, 15, 20, 30, 45, 60, 90, 120, 180, 300, 600, 900, 1200, 1800, 2700, 3600} {
		if ms <= s*1000 {
			return s * 1000
		}
	}
	const hour = 3_600_000
	return (ms + hour - 1) / hour * hour
}
