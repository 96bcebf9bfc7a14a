package audit

import (
	"bytes"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"testing"
	"time"
)

// small is a log of two segments, with a checkpoint in the middle of the second, closed.
func small(t *testing.T) string {
	t.Helper()
	dir := filepath.Join(t.TempDir(), "audit")
	l := open(t, dir, quick)
	add(t, l, run("one")...)
	l.opts.MaxSegment = 1 // now
	add(t, l, run("two")...)
	l.opts.MaxSegment = 64 << 20
	if err := l.Checkpoint(); err != nil {
		t.Fatal(err)
	}
	add(t, l, run("three")[:2]...)
	shut(t, l)
	if r := whole(t, dir); r.Segments != 2 || r.Checkpoints != 3 || r.Unsigned != 0 {
		t.Fatalf("%+v", r)
	}
	return dir
}

// damaged puts a changed file into a copy of a log, asks what Verify says of it, and takes the change back.
func damaged(t *testing.T, dir, name string, text []byte) *Broken {
	t.Helper()
	old := content(t, dir, name)
	put(t, text, dir, name)
	r, err := Verify(dir, VerifyOptions{})
	put(t, old, dir, name)
	if err != nil {
		t.Fatalf("%s: %v", name, err)
	}
	if r.Whole != (r.Broken == nil) {
		t.Fatalf("%+v", r)
	}
	return r.Broken
}

var twoSegments = []string{"000001.jsonl", "000002.jsonl"}

// firstSeq of each of the two segments.
func seqs(t *testing.T, dir string) (first [2]uint64, lines [2][][]byte) {
	t.Helper()
	n := uint64(1)
	for i, name := range twoSegments {
		first[i] = n
		lines[i] = bytes.SplitAfter(content(t, dir, name), []byte("\n"))
		lines[i] = lines[i][:len(lines[i])-1]
		n += uint64(len(lines[i]))
	}
	return first, lines
}

// share says which of many positions this run tries: each fifth, and others in another run; SKILLBOX_EVERY=1 has it try all.
func share(t *testing.T) func(position int) bool {
	of := 5
	switch {
	case os.Getenv("SKILLBOX_EVERY") != "":
		of = 1
	case testing.Short(): // under the race detector
		of = 41
	}
	from := rand.IntN(of)
	t.Logf("positions %d, %d, %d …", from, from+of, from+2*of)
	return func(position int) bool { return position%of == from }
}

func TestEveryFlippedByteIsFoundAtItsRecord(t *testing.T) {
	mine := share(t)
	dir := small(t)
	first, all := seqs(t, dir)
	for i, name := range twoSegments {
		text := content(t, dir, name)
		at, number := 0, 0
		for p := range text {
			if p >= at+len(all[i][number]) {
				at, number = at+len(all[i][number]), number+1
			}
			if !mine(p) {
				continue
			}
			changed := bytes.Clone(text)
			changed[p] ^= 1 << (p % 8)
			b := damaged(t, dir, name, changed)
			want := first[i] + uint64(number)
			if b == nil || b.Segment != name || b.Line != number+1 || b.Seq != want {
				t.Fatalf("%s, byte %d of line %d (record %d): %v", name, p, number+1, want, b)
			}
		}
	}
}

func TestEveryDroppedRecordIsFound(t *testing.T) {
	dir := small(t)
	first, all := seqs(t, dir)
	for i, name := range twoSegments {
		for n := range all[i] {
			b := damaged(t, dir, name, bytes.Join(slices.Delete(slices.Clone(all[i]), n, n+1), nil))
			want, damage := first[i]+uint64(n), Dropped
			if i == 1 && n == len(all[i])-1 {
				damage = Truncated // the last record of all
			}
			if b == nil || b.Seq != want || b.Damage != damage {
				t.Errorf("%s without line %d (record %d): %v", name, n+1, want, b)
			}
		}
	}
}

func TestEverySwappedPairIsFound(t *testing.T) {
	dir := small(t)
	first, all := seqs(t, dir)
	for i, name := range twoSegments {
		for n := range len(all[i]) - 1 {
			swapped := slices.Clone(all[i])
			swapped[n], swapped[n+1] = swapped[n+1], swapped[n]
			b := damaged(t, dir, name, bytes.Join(swapped, nil))
			if want := first[i] + uint64(n); b == nil || b.Seq != want || b.Line != n+1 || b.Segment != name || b.Damage != Reordered {
				t.Errorf("%s with lines %d and %d swapped: %v", name, n+1, n+2, b)
			}
		}
	}
}

func TestEveryInsertedRecordIsFound(t *testing.T) {
	dir := small(t)
	_, all := seqs(t, dir)
	for i, name := range twoSegments {
		for n := range all[i] {
			for at := range len(all[i]) + 1 {
				b := damaged(t, dir, name, bytes.Join(slices.Insert(slices.Clone(all[i]), at, all[i][n]), nil))
				if b == nil || b.Damage == Dropped || b.Damage == Truncated {
					t.Errorf("%s with line %d once more before line %d: %v", name, n+1, at+1, b)
				}
			}
		}
	}
}

// A record that hangs on the one before it can be made by everybody; then two claim the same place.
func TestARecordInsertedWithTheRightHashIsFound(t *testing.T) {
	dir := small(t)
	first, all := seqs(t, dir)
	e := run("two")[0]
	var clean Event
	if err := complete(&e, &clean, "host", time.Now(), boottime()); err != nil {
		t.Fatal(err)
	}
	for n := 1; n < len(all[1]); n++ {
		clean.Seq, clean.Prev = first[1]+uint64(n), hashLine(bytes.TrimSpace(all[1][n-1])).String()
		forged, err := encode(&clean)
		if err != nil {
			t.Fatal(err)
		}
		b := damaged(t, dir, twoSegments[1], bytes.Join(slices.Insert(slices.Clone(all[1]), n, append(forged, '\n')), nil))
		want := Inserted
		if n == len(all[1])-1 {
			want = Changed // what was the last record has another one in its place: the head says so
		}
		if b == nil || b.Seq != clean.Seq || b.Damage != want || b.Line != n+1 {
			t.Errorf("before line %d: %v", n+1, b)
		}
	}
}

func TestEveryTruncationIsFound(t *testing.T) {
	mine := share(t)
	dir := small(t)
	first, _ := seqs(t, dir)
	for i, name := range twoSegments {
		text := content(t, dir, name)
		for end := range text {
			if !mine(end) {
				continue
			}
			b := damaged(t, dir, name, text[:end])
			want := first[i] + uint64(bytes.Count(text[:end], []byte("\n")))
			if b == nil || b.Seq != want {
				t.Fatalf("%s, %d of %d bytes left (before record %d): %v", name, end, len(text), want, b)
			}
		}
	}
}

// Without the key, the chain can be made anew, and the signatures cannot.
func TestAChainThatWasMadeAnewIsFoundAtTheNextCheckpoint(t *testing.T) {
	dir := small(t)
	_, all := seqs(t, dir)
	for n := 1; n < 5; n++ { // of the first segment
		var text []byte
		prev := ""
		for i, raw := range all[0] {
			line := bytes.TrimSpace(raw)
			e, err := Parse(line)
			if err != nil {
				t.Fatal(err)
			}
			if i == n {
				e.Host = "elsewhere"
			}
			if prev != "" {
				e.Prev = prev
			}
			if line, err = encode(&e); err != nil {
				t.Fatal(err)
			}
			prev = hashLine(line).String()
			text = append(append(text, line...), '\n')
		}
		if b := damaged(t, dir, twoSegments[0], text); b == nil || b.Damage != BadSignature || b.Line != len(all[0]) {
			t.Errorf("record %d changed and the rest chained anew: %v", n+1, b)
		}
	}
}

func TestMissingFilesAreFound(t *testing.T) {
	for _, c := range []struct {
		gone    string
		segment string
		damage  Damage
	}{
		{"000001.jsonl", "000001.jsonl", MissingSegment},
		{"000002.jsonl", "000001.jsonl", Truncated},
		{"head", "head", BadHead},
	} {
		dir := small(t)
		if err := os.Remove(filepath.Join(dir, c.gone)); err != nil {
			t.Fatal(err)
		}
		r := verified(t, dir, VerifyOptions{})
		if r.Whole || r.Broken.Segment != c.segment || r.Broken.Damage != c.damage {
			t.Errorf("without %s: %v", c.gone, r.Broken)
		}
	}
}

func TestEveryFlippedBitOfTheHeadAndTheKeyIsFound(t *testing.T) {
	mine := share(t)
	dir := small(t)
	for _, name := range []string{headFile, publicFile} {
		text := content(t, dir, name)
		for p := range text {
			if !mine(p) {
				continue
			}
			changed := bytes.Clone(text)
			changed[p] ^= 1
			put(t, changed, dir, name)
			r, err := Verify(dir, VerifyOptions{})
			if err == nil && r.Whole {
				t.Errorf("%s, byte %d: whole", name, p)
			}
		}
		put(t, text, dir, name)
	}
	whole(t, dir)
}

func TestAnExportedHeadFindsALogThatItsOwnerWroteAnew(t *testing.T) {
	dir := small(t)
	exported, err := Head(dir)
	if err != nil {
		t.Fatal(err)
	}
	if r := verified(t, dir, VerifyOptions{Head: exported}); !r.Whole {
		t.Fatal(r.Broken)
	}
	// A longer log still has it.
	l := open(t, dir, quick)
	add(t, l, run("four")...)
	shut(t, l)
	if r := verified(t, dir, VerifyOptions{Head: exported}); !r.Whole {
		t.Fatal(r.Broken)
	}
	// Its owner has the key, and makes another log with it.
	forged := filepath.Join(t.TempDir(), "forged")
	if err := os.Mkdir(forged, 0o700); err != nil {
		t.Fatal(err)
	}
	for _, name := range []string{keyFile, publicFile} {
		put(t, content(t, dir, name), forged, name)
	}
	l = open(t, forged, quick)
	for i := range 10 {
		add(t, l, run(fmt.Sprint(i))...)
	}
	shut(t, l)
	whole(t, forged)
	if r := verified(t, forged, VerifyOptions{Head: exported}); r.Whole || r.Broken.Damage != Changed {
		t.Errorf("%v", r.Broken)
	}
	// With another key it is not even that.
	other := written(t, 10, quick)
	if r := verified(t, other, VerifyOptions{Head: exported}); r.Whole || r.Broken.Damage != ForeignKey {
		t.Errorf("%v", r.Broken)
	}
	if r := verified(t, other, VerifyOptions{Key: content(t, dir, publicFile)}); r.Whole || r.Broken.Damage != ForeignKey {
		t.Errorf("%v", r.Broken)
	}
}

// A head may be missing only where the log's first checkpoint was announced, and is its only one.
func TestAMissingHeadIsFoundFromTheFirstCheckpointOn(t *testing.T) {
	dir := small(t)
	_, all := seqs(t, dir)
	first := slices.IndexFunc(all[0], isCheckpoint) + 1
	if err := errors.Join(os.Remove(filepath.Join(dir, headFile)), os.Remove(filepath.Join(dir, twoSegments[1]))); err != nil {
		t.Fatal(err)
	}
	put(t, bytes.Join(all[0][:first], nil), dir, twoSegments[0])
	if r := verified(t, dir, VerifyOptions{}); r.Whole || r.Broken.Damage != BadHead || r.Checkpoints != 1 {
		t.Errorf("%+v", r)
	}
	// Who removes its first checkpoint too leaves a log that was never signed: see the next test.
	put(t, bytes.Join(all[0][:first-1], nil), dir, twoSegments[0])
	if r := whole(t, dir); r.Signed != 0 {
		t.Errorf("%+v", r)
	}
}

func isCheckpoint(line []byte) bool { return bytes.Contains(line, []byte(`,"kind":"log.checkpoint",`)) }

// Each checkpoint was signed once, and nothing that lies beside the log tells that others came after it: without the key, too, the log can be cut there,
// and a head made of the checkpoint's line and of hashes that everybody can calculate.
func TestARollbackWithoutTheKeyToAnyCheckpointIsFoundByTheExportedHeadAlone(t *testing.T) {
	dir := small(t)
	exported, err := Head(dir)
	if err != nil {
		t.Fatal(err)
	}
	if err := os.Remove(filepath.Join(dir, keyFile)); err != nil {
		t.Fatal(err)
	}
	_, all := seqs(t, dir)
	tried := 0
	for _, i := range []int{1, 0} { // the newest first: each cut leaves what the next one needs
		if i == 0 {
			if err := os.Remove(filepath.Join(dir, twoSegments[1])); err != nil {
				t.Fatal(err)
			}
		}
		for n := len(all[i]) - 1; n >= 0; n-- {
			if !isCheckpoint(all[i][n]) || i == 1 && n == len(all[i])-1 {
				continue
			}
			forged := tail{number: uint64(i) + 1}
			for _, line := range all[i][:n] {
				line = bytes.TrimSpace(line)
				h, err := readHeader(line)
				if err != nil {
					t.Fatal(err)
				}
				forged.add(line, h)
			}
			head, err := forged.head(bytes.TrimSpace(all[i][n])).encode()
			if err != nil {
				t.Fatal(err)
			}
			put(t, bytes.Join(all[i][:n+1], nil), dir, twoSegments[i])
			put(t, head, dir, headFile)
			tried++
			if r := whole(t, dir); r.Unsigned != 0 { // this is the truth: nothing here shows it
				t.Errorf("%+v", r)
			}
			r := verified(t, dir, VerifyOptions{Head: exported})
			if r.Whole || r.Broken.Damage != Truncated || r.Broken.Seq != r.Last+1 {
				t.Errorf("cut behind line %d of %s: %v", n+1, twoSegments[i], r.Broken)
			}
		}
	}
	if tried < 2 {
		t.Errorf("%d checkpoints to go back to", tried)
	}
}

// Nobody has to calculate anything who has kept an older head, or has the key.
func TestALogCutWithItsHeadIsFoundByTheExportedHeadAlone(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "audit")
	l := open(t, dir, quick)
	add(t, l, run("one")...)
	shut(t, l)
	segment, head := content(t, dir, twoSegments[0]), content(t, dir, headFile)
	l = open(t, dir, quick)
	add(t, l, run("two")...)
	shut(t, l)
	exported, err := Head(dir)
	if err != nil {
		t.Fatal(err)
	}
	put(t, segment, dir, twoSegments[0])
	put(t, head, dir, headFile)
	whole(t, dir)
	r := verified(t, dir, VerifyOptions{Head: exported})
	if r.Whole || r.Broken.Damage != Truncated || r.Broken.Seq != r.Last+1 {
		t.Errorf("%v", r.Broken)
	}
}
