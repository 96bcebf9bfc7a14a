package audit

import (
	"bytes"
	"testing"
	"time"
)

// memory is a sink that keeps what it gets, and has lost what it is made with.
type memory struct {
	got    []Record
	lost   []Undelivered
	late   []Undelivered // found out by Close
	closed int
}

func (m *memory) Take(records []Record) { m.got = append(m.got, records...) }

func (m *memory) Undelivered() []Undelivered {
	lost := m.lost
	m.lost = nil
	return lost
}

func (m *memory) Close(time.Duration) error {
	m.closed++
	m.lost, m.late = append(m.lost, m.late...), nil
	return nil
}

func TestASinkGetsEachLineThatTheLogHas(t *testing.T) {
	dir := t.TempDir() + "/audit"
	m := &memory{late: []Undelivered{{Sink: "syslog /dev/log", Records: 2, Why: "gone"}}}
	opts := quick
	opts.Sink, opts.MaxSegment = m, 4*MaxRecord
	l := open(t, dir, opts)
	for range 100 {
		add(t, l, run("a")...)
	}
	if err := l.Checkpoint(); err != nil {
		t.Fatal(err)
	}
	if err := l.Append(Event{Run: "b"}); err == nil {
		t.Error("an event without a detail was appended")
	}
	shut(t, l)
	if m.closed != 1 {
		t.Errorf("closed %d times", m.closed)
	}
	// What was found out at the end comes after what the sink got.
	i, kinds := 0, map[Kind]int{}
	for r, err := range Read(dir, Query{}) {
		if err != nil {
			t.Fatal(err)
		}
		kinds[r.Kind]++
		if i < len(m.got) {
			if got := m.got[i]; !bytes.Equal(got.Line, r.Line) || got.Seq != r.Seq || got.Kind != r.Kind || got.Time != r.Time || got.Summary() != r.Summary() {
				t.Fatalf("record %d: the sink got %s, the log has %s", r.Seq, got.Line, r.Line)
			}
		}
		i++
	}
	if i != len(m.got) || kinds[LogOpened] < 2 || kinds[LogCheckpoint] < 3 || kinds[LogUndelivered] != 1 {
		t.Errorf("the sink got %d of %d records: %v", len(m.got), i, kinds)
	}
	if r := whole(t, dir); r.Unsigned != 0 {
		t.Errorf("%+v", r)
	}
	s, err := Count(Read(dir, Query{}))
	if err != nil || s.Undelivered["syslog /dev/log"] != 2 {
		t.Errorf("%+v, %v", s, err)
	}
}

func TestALogThatCannotBeOpenedClosesItsSink(t *testing.T) {
	m := &memory{}
	if l, err := Open("/proc/none/audit", Options{Sink: m}); err == nil {
		t.Error(l.Close())
	}
	if m.closed != 1 {
		t.Errorf("closed %d times", m.closed)
	}
}
