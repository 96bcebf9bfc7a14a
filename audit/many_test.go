package audit

import (
	"bytes"
	"fmt"
	"math/rand/v2"
	"path/filepath"
	"testing"
	"time"
)

// many is a log of 10,000 runs in several segments, by the writer that all runs have.
func many(t *testing.T) (dir string, segments [][][]byte, first []uint64) {
	t.Helper()
	dir = filepath.Join(t.TempDir(), "audit")
	l := open(t, dir, Options{Sync: SyncNone, Interval: time.Hour, MaxSegment: 8 << 20})
	for i := range 10_000 {
		grant, end := call(fmt.Sprintf("run-%d", i))
		add(t, l, append(grant[:3], end...)...)
		if i%100 == 99 {
			if err := l.Checkpoint(); err != nil {
				t.Fatal(err)
			}
		}
	}
	shut(t, l)
	r := whole(t, dir)
	if r.Unsigned > 0 || r.Segments < 3 {
		t.Fatalf("%+v", r)
	}
	next := uint64(1)
	for n := range r.Segments {
		lines := bytes.SplitAfter(content(t, dir, segmentName(uint64(n+1))), []byte("\n"))
		lines = lines[:len(lines)-1]
		segments, first = append(segments, lines), append(first, next)
		next += uint64(len(lines))
	}
	return dir, segments, first
}

// Whatever is done to one record of a long log shows, at this record.
func TestALogOfTenThousandRunsShowsWhereItWasChanged(t *testing.T) {
	dir, segments, first := many(t)
	runs := 0
	for r, err := range Runs(Read(dir, Query{})) {
		if err != nil || r.Verdict != "exited" {
			t.Fatalf("%+v, %v", r, err)
		}
		runs++
	}
	if runs != 10_000 {
		t.Fatalf("%d runs", runs)
	}
	times := 5
	if testing.Short() {
		times = 2
	}
	random := rand.New(rand.NewPCG(10_000, 1))
	for range times {
		s := random.IntN(len(segments))
		lines, name := segments[s], segmentName(uint64(s+1))
		n := 1 + random.IntN(len(lines)-2)
		seq := first[s] + uint64(n)
		changed := bytes.Clone(lines[n])
		changed[random.IntN(len(changed))] ^= 1 << random.IntN(8)
		join := func(before, after [][]byte, between ...[]byte) []byte {
			return bytes.Join([][]byte{bytes.Join(before, nil), bytes.Join(between, nil), bytes.Join(after, nil)}, nil)
		}
		for what, c := range map[string]struct {
			text   []byte
			damage []Damage
		}{
			"a flipped bit":   {join(lines[:n], lines[n+1:], changed), nil},
			"dropped":         {join(lines[:n], lines[n+1:]), []Damage{Dropped}},
			"swapped":         {join(lines[:n], lines[n+2:], lines[n+1], lines[n]), []Damage{Reordered}},
			"cut off here":    {join(lines[:n], nil), []Damage{Truncated, Dropped, Changed}},
			"the middle gone": {join(lines[:n], lines[min(n+1+random.IntN(50), len(lines)-1):]), []Damage{Dropped}},
		} {
			b := damaged(t, dir, name, c.text)
			if b == nil || b.Seq != seq {
				t.Errorf("%s line %d (record %d) %s: %v", name, n+1, seq, what, b)
				continue
			}
			found := len(c.damage) == 0
			for _, d := range c.damage {
				found = found || b.Damage == d
			}
			if !found {
				t.Errorf("%s line %d (record %d) %s: %v", name, n+1, seq, what, b)
			}
		}
	}
}
