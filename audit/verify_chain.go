package audit

import (
	"fmt"
	"strings"
)

// follows tells whether a line is the next one of the chain; if it is not, which record somebody touched. One change shows in several
// places, so the line after has a say in it: what a good line vouches for is as it was written.
func (v *verifier) follows(l *line, h header) (*Broken, error) {
	expected, prev := v.seq+1, v.hash.String()
	if v.last == nil {
		if expected, prev = h.seq, h.prev; l.segment == 1 {
			expected, prev = 1, strings.Repeat("0", len(h.prev))
		} else if h.kind != LogOpened {
			expected = h.seq - 1
		}
	}
	if h.seq == expected && h.prev == prev {
		return nil, nil
	}
	after, err := v.src.peek()
	if err != nil {
		return nil, err
	}
	var next header
	if after != nil && !after.torn {
		if n, err := readHeader(after.text); err == nil {
			next = n
		}
	}
	if h.kind == LogCheckpoint && h.seq == expected && after == nil {
		if _, _, err := readCheckpoint(l.text, v.key); err != nil { // nothing vouches for it, not even itself
			return broken(l, h.seq, Changed, "it does not hold the hash of the record before it, and is not what was signed"), nil
		}
	}
	return v.diagnose(l, h, next, expected, h.prev == prev), nil
}

// diagnose names the damage. next is the header of the line after, zero where there is none that could be read.
func (v *verifier) diagnose(l *line, h, next header, expected uint64, prevFits bool) *Broken {
	vouched := next.prev == hashLine(l.text).String() // l is as it was written
	switch {
	case prevFits && (v.last != nil || l.segment == 1), v.last == nil && h.seq == expected:
		return broken(l, expected, Changed, "its number and the hash in it do not belong together")
	case h.seq > expected && next.seq >= expected && next.seq < h.seq && next.seq > 0:
		return broken(l, expected, Reordered, "record %d stands before record %d", h.seq, next.seq)
	case h.seq > expected && next.seq == expected+1:
		return broken(l, expected, Changed, "its number is %d", h.seq)
	case h.seq > expected && h.seq == expected+1:
		return broken(l, expected, Dropped, "record %d is missing before this line", expected)
	case h.seq > expected:
		return broken(l, expected, Dropped, "records %d to %d are missing before this line", expected, h.seq-1)
	case h.seq == v.seq && vouched && !v.signed:
		return broken(v.last, v.seq, Inserted, "there are two records of this number, and the other one is the right one")
	case h.seq < expected:
		return broken(l, h.seq, Inserted, "a record of this number was there before")
	case v.signed || next.seq == h.seq+1 && !vouched:
		return broken(l, h.seq, Changed, "it does not hold the hash of the record before it")
	}
	return broken(v.last, v.seq, Changed, "the record after it holds another hash of it")
}

// finish judges what only the whole log tells: whether its end and its beginning are there.
func (v *verifier) finish() *Broken {
	end := &line{segment: 1, number: 1}
	if v.last != nil {
		end = &line{segment: v.last.segment, number: v.last.number + 1}
		v.Unsigned = v.Last - max(v.Signed, v.First-1)
		v.Removed = v.firstSegment() - 1
	}
	switch {
	case v.head != nil && v.headSeq > v.seq:
		return broken(end, v.seq+1, Truncated, "the log ends before this record, and its head says that it had %d", v.headSeq)
	case v.exported != nil && v.exported.seq > v.seq:
		return broken(end, v.seq+1, Truncated, "the log ends before this record, and when its head was exported it had %d", v.exported.seq)
	case v.badHead != nil:
		return &Broken{Segment: headFile, Seq: v.Signed, Damage: BadHead, Why: v.badHead.Error()}
	case v.head == nil && v.Checkpoints > 0 && !v.begun:
		return &Broken{Segment: headFile, Seq: v.Signed, Damage: BadHead, Why: "there are checkpoints, and no head"}
	case v.head != nil && v.headSeq < v.First:
		return &Broken{Segment: headFile, Seq: v.headSeq, Damage: BadHead, Why: "it is of a record before all that are left"}
	case v.last != nil && v.firstSegment() > max(v.oldest, 1):
		missing := &Broken{Segment: segmentName(v.oldest), Seq: v.First - 1, Damage: MissingSegment, Why: "no checkpoint says that it may be removed"}
		if v.oldest <= 1 {
			missing.Segment, missing.Seq = segmentName(1), 1
		}
		return missing
	case v.exported != nil && v.exported.seq < v.First:
		return &Broken{
			Segment: segmentName(v.firstSegment()), Seq: v.exported.seq, Damage: MissingSegment,
			Why: fmt.Sprintf("the exported head is of a segment that is gone, so it proves nothing of the records from %d on: export one more often", v.First),
		}
	}
	return nil
}

// firstSegment is the oldest one that is left.
func (v *verifier) firstSegment() uint64 { return v.last.segment - uint64(v.Segments) + 1 }
