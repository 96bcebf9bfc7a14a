package audit

import (
	"testing"
	"time"
)

func TestALogOfTenThousandRunsVerifies(t *testing.T) {
	runs := 10_000
	if testing.Short() { // under the race detector
		runs = 2_000
	}
	dir := written(t, runs, Options{Sync: SyncNone, MaxSegment: int64(runs) * (4 << 20) / 10_000})
	began := time.Now()
	r := whole(t, dir)
	took := time.Since(began)
	t.Logf("%d records in %d segments, %d checkpoints, verified in %s", r.Records, r.Segments, r.Checkpoints, took)
	if r.Records < uint64(4*runs) || r.Segments < 3 || r.Unsigned > 0 || r.Signed != r.Last {
		t.Errorf("%+v", r)
	}
}

func BenchmarkAppend(b *testing.B) {
	l := open(b, b.TempDir()+"/audit", Options{})
	events := run("0123456789abcdef")
	for b.Loop() {
		add(b, l, events[:1]...)
	}
}

func BenchmarkAppendARun(b *testing.B) {
	l := open(b, b.TempDir()+"/audit", Options{})
	events := run("0123456789abcdef")
	for b.Loop() {
		add(b, l, events...)
	}
}

func BenchmarkOpenAppendClose(b *testing.B) {
	dir := b.TempDir() + "/audit"
	events := run("0123456789abcdef")
	for b.Loop() {
		l := open(b, dir, Options{})
		add(b, l, events...)
		shut(b, l)
	}
}
