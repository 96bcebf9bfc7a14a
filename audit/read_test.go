package audit

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"testing"
	"time"
)

func found(t *testing.T, dir string, q Query) (seqs []uint64) {
	t.Helper()
	for r, err := range Read(dir, q) {
		if err != nil {
			t.Fatal(err)
		}
		seqs = append(seqs, r.Seq)
	}
	return seqs
}

func TestQueriesChoose(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "audit")
	l := open(t, dir, quick)
	add(t, l, run("one")...)
	between := time.Now()
	time.Sleep(2 * time.Millisecond)
	add(t, l, run("two")...)
	odd := run("three")
	odd[0].Skill = &Skill{Name: "od\x1bd", Digest: "sha256:ffffffff00000000"}
	odd[3].Detail = Ended{Verdict: "timed_out"}
	add(t, l, odd[0], odd[3], Event{Detail: Refused{Message: "no", Outcome: Outcome{Verdict: "denied", Layer: "policy", Rule: "p.yaml:3"}}})
	shut(t, l)
	for _, c := range []struct {
		q    Query
		want []uint64
	}{
		{Query{Run: "two"}, []uint64{6, 7, 8, 9}},
		{Query{Run: "tw"}, nil},
		{Query{Kinds: []Kind{DNSKind, RunRefused}}, []uint64{4, 8, 12}},
		{Query{Verdict: "denied"}, []uint64{4, 8}},
		{Query{Verdict: "timed_out"}, []uint64{11}},
		{Query{Verdict: "refused"}, []uint64{12}},
		{Query{Until: between, Verdict: "exited"}, []uint64{5}},
		{Query{Since: between, Kinds: []Kind{RunGranted}}, []uint64{6, 10}},
		{Query{Skill: "word-count", Kinds: []Kind{RunEnded}}, []uint64{5, 9, 11}},
		{Query{Skill: "sha256:ffffffff"}, []uint64{10}},
		{Query{Skill: "sha256"}, nil},
		{Query{Text: "EVIL.example", Run: "one"}, []uint64{4}},
		{Query{Text: "od\x1bd"}, []uint64{10}},
		{Query{Text: `"`}, nil},
	} {
		if got := found(t, dir, c.q); !slices.Equal(got, c.want) {
			t.Errorf("%+v: %v, want %v", c.q, got, c.want)
		}
	}
}

func TestTheTailIsTheLastOfAllSegments(t *testing.T) {
	dir := small(t)
	all := found(t, dir, Query{})
	for n := range len(all) + 3 {
		records, err := Tail(dir, Query{}, n)
		if err != nil {
			t.Fatal(err)
		}
		var got []uint64
		for _, r := range records {
			got = append(got, r.Seq)
		}
		if want := all[max(len(all)-n, 0):]; !slices.Equal(got, want) {
			t.Errorf("the last %d: %v, want %v", n, got, want)
		}
	}
}

func TestFollowSeesEachRecordOnceAcrossSegments(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "audit")
	ctx, stop := context.WithTimeout(t.Context(), time.Minute)
	defer stop()
	got := make(chan uint64, 1000)
	go func() {
		defer close(got)
		for r, err := range Follow(ctx, dir, Query{}, 0) {
			if err != nil {
				t.Error(err)
				return
			}
			got <- r.Seq
		}
	}()
	l := open(t, dir, Options{Sync: SyncNone, Interval: time.Hour, MaxSegment: 4 * MaxRecord})
	for i := range 100 {
		add(t, l, run(fmt.Sprint(i))...)
		time.Sleep(3 * time.Millisecond)
	}
	shut(t, l)
	last := whole(t, dir).Last
	for want := uint64(1); want <= last; want++ {
		if seq := <-got; seq != want {
			t.Fatalf("record %d, want %d", seq, want)
		}
	}
	stop()
	if seq, more := <-got; more {
		t.Errorf("record %d once more", seq)
	}
}

func TestADamagedRecordEndsReadingWithItsPlace(t *testing.T) {
	dir := small(t)
	text := content(t, dir, segmentName(1))
	text[slices.Index(text, '\n')+20] ^= 1
	put(t, text, dir, segmentName(1))
	var err error
	for _, err = range Read(dir, Query{}) {
	}
	if err == nil || err.Error()[:14] != "000001.jsonl:2" {
		t.Errorf("%v", err)
	}
}

func TestALogThatIsNotThereIsNotVerified(t *testing.T) {
	if _, err := Verify(filepath.Join(os.TempDir(), "no", "such", "log"), VerifyOptions{}); err == nil {
		t.Error("a log that is not there was verified")
	}
}
