package audit

import (
	"context"
	"errors"
	"fmt"
	"iter"
	"os"
	"slices"
	"time"
)

// Read goes through the records that a query chooses, the oldest first. It believes the log: whether it is whole is Verify's business.
// A record that cannot be read ends it with an error; a last line that is not finished is left out.
func Read(dir string, q Query) iter.Seq2[Record, error] {
	return func(yield func(Record, error) bool) {
		d, err := openFolder(dir, true)
		if err != nil {
			yield(Record{}, err)
			return
		}
		defer d.Close()
		segments, err := d.segments()
		if err != nil {
			yield(Record{}, err)
			return
		}
		readSegments(d, segments, q, yield)
	}
}

// readSegments tells whether to go on.
func readSegments(d *folder, segments []uint64, q Query, yield func(Record, error) bool) bool {
	src := &lines{dir: d, segments: segments}
	for {
		l, err := src.next()
		if errors.Is(err, os.ErrNotExist) {
			continue // it became too old
		}
		if err == nil && (l == nil || l.torn) {
			err = src.close()
			if err == nil && (l == nil || len(src.segments) == 0) {
				return true
			}
		}
		if err != nil {
			yield(Record{}, errors.Join(err, src.close()))
			return false
		}
		if l.torn || !q.may(l.text) {
			continue
		}
		r, err := l.record()
		if err != nil || q.Match(&r) {
			if !yield(r, err) || err != nil {
				return src.close() == nil && false
			}
		}
	}
}

func (l *line) record() (Record, error) {
	e, err := Parse(l.text)
	if err != nil {
		return Record{}, fmt.Errorf("%s:%d: %w: skillbox audit verify tells more", segmentName(l.segment), l.number, err)
	}
	return Record{Event: e, Line: l.text}, nil
}

// Tail returns the last n records that a query chooses, the oldest first. It begins with the newest segment.
func Tail(dir string, q Query, n int) ([]Record, error) {
	d, err := openFolder(dir, true)
	if err != nil {
		return nil, err
	}
	defer d.Close()
	segments, err := d.segments()
	if err != nil {
		return nil, err
	}
	var all []Record
	for i := len(segments) - 1; i >= 0 && len(all) < n; i-- {
		var some []Record
		readSegments(d, segments[i:i+1], q, func(r Record, e error) bool {
			if err = e; e == nil {
				if some = append(some, r); len(some) > 2*n { // no more than are wanted stay in memory
					some = slices.Delete(some, 0, len(some)-n)
				}
			}
			return e == nil
		})
		if err != nil {
			return nil, err
		}
		all = append(some, all...)
	}
	return all[max(len(all)-n, 0):], nil
}

// followPause is how often Follow looks for more.
const followPause = 100 * time.Millisecond

// Follow goes on with the records after number seq that a query chooses, and waits for more until ctx ends, which is no error. The log
// may not exist yet.
func Follow(ctx context.Context, dir string, q Query, seq uint64) iter.Seq2[Record, error] {
	return func(yield func(Record, error) bool) {
		from := uint64(1) // the segment to go on with
		var size int64
		for ctx.Err() == nil {
			next, grown, err := readAfter(dir, q, from, size, &seq, yield)
			if err != nil {
				if err != errStopped {
					yield(Record{}, err)
				}
				return
			}
			from, size = next, grown
			select {
			case <-ctx.Done():
			case <-time.After(followPause):
			}
		}
	}
}

// errStopped says that nobody wants more.
var errStopped = errors.New("audit: stopped")

// readAfter passes on what is new since the newest segment had this size.
func readAfter(dir string, q Query, from uint64, size int64, seq *uint64, yield func(Record, error) bool) (newest uint64, grown int64, err error) {
	d, err := openFolder(dir, true)
	if errors.Is(err, os.ErrNotExist) {
		return from, 0, nil
	}
	if err != nil {
		return 0, 0, err
	}
	defer d.Close()
	segments, err := d.segments()
	if err != nil {
		return 0, 0, err
	}
	segments = slices.DeleteFunc(segments, func(n uint64) bool { return n < from })
	if len(segments) == 0 {
		return from, 0, nil
	}
	newest = segments[len(segments)-1]
	f, err := os.Stat(d.path + "/" + segmentName(newest))
	if err != nil {
		return from, 0, err
	}
	if grown = f.Size(); newest == from && grown == size {
		return newest, grown, nil
	}
	readSegments(d, segments, Query{}, func(r Record, e error) bool {
		if err = e; e != nil || r.Seq <= *seq {
			return e == nil
		}
		*seq = r.Seq
		if q.Match(&r) && !yield(r, nil) {
			err = errStopped
		}
		return err == nil
	})
	return newest, grown, err
}
