package helper

import (
	"strings"
	"testing"
	"time"
)

func TestASessionsTimesAreBounded(t *testing.T) {
	const day = 24 * 60 * 60 * 1000
	for _, c := range []struct {
		idle, total         int64
		wantIdle, wantTotal time.Duration
		refused             string
	}{
		{0, 0, 10 * time.Minute, time.Hour, ""},
		{1000, day, time.Second, 24 * time.Hour, ""},
		{day, 0, 24 * time.Hour, time.Hour, ""},
		{999, 0, 0, 0, "--idle"},
		{-1, 0, 0, 0, "--idle"},
		{0, day + 1, 0, 0, "--total"},
		{0, -1 << 63, 0, 0, "--total"},
		{1<<63 - 1, 0, 0, 0, "--idle"},
	} {
		idle, total, err := (&Request{IdleMS: c.idle, TotalMS: c.total}).SessionTimes()
		switch {
		case c.refused != "" && (err == nil || !strings.Contains(err.Error(), c.refused)):
			t.Errorf("%d, %d: %v, %v, %v", c.idle, c.total, idle, total, err)
		case c.refused == "" && (err != nil || idle != c.wantIdle || total != c.wantTotal):
			t.Errorf("%d, %d: %v, %v, %v", c.idle, c.total, idle, total, err)
		}
	}
}
