package learn

import "testing"

func TestHeadroom(t *testing.T) {
	const kib, mib = int64(1) << 10, int64(1) << 20
	twenty := make([]int64, 20)
	for i := range twenty {
		twenty[i] = int64(i+1) * mib
	}
	for name, c := range map[string]struct {
		used        []int64
		least, most int64
		friendly    func(int64) int64
		want        int64
	}{
		"half as much again, rounded up":     {[]int64{10 * mib}, 1, 1 << 40, friendlySize, 16 * mib},
		"or to one and a half":               {[]int64{14 * mib}, 1, 1 << 40, friendlySize, 24 * mib},
		"of the 95th percentile":             {twenty, 1, 1 << 40, friendlySize, 32 * mib},
		"which of few is the largest":        {[]int64{1, 2, 100 * mib}, 1, 1 << 40, friendlySize, 192 * mib},
		"never above the ceiling":            {[]int64{100 * mib}, 1, 130 * mib, friendlySize, 130 * mib},
		"a least one":                        {[]int64{3}, 64 * kib, 1 << 40, friendlySize, 64 * kib},
		"of nothing, the least":              {nil, 64 * kib, 1 << 40, friendlySize, 64 * kib},
		"processes":                          {[]int64{9}, 8, 4096, friendlyCount, 16},
		"more processes":                     {[]int64{100}, 8, 4096, friendlyCount, 192},
		"seconds":                            {[]int64{6_100}, 5000, 60_000, friendlyTime, 10_000},
		"a little":                           {[]int64{40}, 5000, 60_000, friendlyTime, 5000},
		"hours":                              {[]int64{3_000_000}, 5000, 1 << 40, friendlyTime, 2 * 3_600_000},
		"the ceiling's time":                 {[]int64{50_000}, 5000, 60_000, friendlyTime, 60_000},
		"what is friendly already, stays so": {[]int64{2 * mib}, 1, 1 << 40, friendlySize, 3 * mib},
	} {
		if got := limit(c.used, c.least, c.most, c.friendly); got != c.want {
			t.Errorf("%s: %d, not %d", name, got, c.want)
		}
	}
}

func TestFriendlyIsNeverLess(t *testing.T) {
	for n := int64(1); n < 1<<34; n = n*9/8 + 1 {
		for name, f := range map[string]func(int64) int64{"size": friendlySize, "count": friendlyCount, "time": friendlyTime} {
			if got := f(n); got < n || f(got) != got {
				t.Errorf("%s: %d of %d, then %d", name, got, n, f(got))
			}
		}
	}
}
