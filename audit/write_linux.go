package audit

import (
	"bytes"
	"crypto/rand"
	"encoding/hex"
	"errors"
	"fmt"
	"os"
	"time"

	"golang.org/x/sys/unix"
)

// batch is lines that are written by one write(2), and the tail that there will be.
type batch struct {
	encoder encoder
	text    []byte
	tail    tail
	host    string
	copies  bool // a sink gets records
	records []Record
}

// add puts an event into the batch. One that is too long for a record is cut harder.
func (b *batch) add(e Event) error {
	b.number(&e)
	line, err := b.encoder.encode(&e)
	for i := 1; err == nil && len(line) > MaxRecord; i++ {
		if i == len(tighter) {
			return fmt.Errorf("audit: a record of %d bytes; the most is %d", len(line), MaxRecord)
		}
		e = e.shorten(tighter[i])
		line, err = b.encoder.encode(&e)
	}
	if err != nil {
		return err
	}
	b.put(line, e)
	return nil
}

func (b *batch) number(e *Event) { e.Seq, e.Prev = b.tail.seq+1, b.tail.prev.String() }

func (b *batch) put(line []byte, e Event) {
	b.text = append(append(b.text, line...), '\n')
	b.tail.add(line, header{seq: e.Seq, kind: e.Kind})
	if b.copies {
		b.records = append(b.records, Record{Event: e, Line: bytes.Clone(line)})
	}
}

// own makes one of the log's own records.
func (b *batch) own(d Detail) Event {
	return Event{V: Version, Time: time.Now().UTC().Round(0), Mono: boottime(), Kind: d.kind(), Host: Clean(b.host, 256), Detail: d}
}

// begin makes a batch with what the segment lacks: its first record, and what was torn.
func (l *Log) begin() (*batch, error) {
	b := &batch{tail: l.at.copied(), host: l.opts.Host, text: l.spare[:0], copies: l.opts.Sink != nil}
	if t := &b.tail; t.size == 0 {
		if t.log == "" {
			id := make([]byte, 16)
			if _, err := rand.Read(id); err != nil {
				return nil, fmt.Errorf("audit: %w", err)
			}
			t.log = hex.EncodeToString(id)
		}
		e := b.own(Opened{Log: t.log, Segment: t.number, Key: keyID(l.publicKey()), Root: t.before.root().String(), Lines: t.before.lines})
		if t.opened = e.Time; b.add(e) != nil {
			return nil, fmt.Errorf("audit: the first record of a segment is too long")
		}
	}
	if b.tail.torn != nil {
		if err := b.add(b.own(*b.tail.torn)); err != nil {
			return nil, err
		}
		b.tail.torn = nil
	}
	return b, nil
}

// append writes events. The caller holds the lock.
func (l *Log) append(events []Event) error {
	if err := l.catchUp(); err != nil {
		return err
	}
	drop := l.opts.OnFull == DropDetail
	// Nothing goes on without checkpoints: what is appended now would be no better covered.
	if l.failed != nil && !(drop && IsFull(l.failed)) {
		for _, step := range []func() error{l.sign, l.at.sync, func() error { return l.writeHead(l.newest) }} {
			if l.failed = step(); l.failed != nil {
				return l.failed
			}
		}
	}
	if drop {
		return l.appendOrDrop(events)
	}
	return l.write(events)
}

// write writes events in one batch, or none of them.
func (l *Log) write(events []Event) error {
	if err := l.rotate(); err != nil {
		return err
	}
	b, err := l.begin()
	if err != nil {
		return err
	}
	for _, e := range events {
		if ended, ok := e.Detail.(Ended); ok {
			ended.Dropped += l.droppedOf[e.Run]
			e.Detail = ended
		}
		if err := b.add(e); err != nil {
			return err
		}
	}
	if err := l.commit(b); err != nil {
		return err
	}
	for _, e := range events {
		if e.Kind == RunEnded {
			delete(l.droppedOf, e.Run)
		}
	}
	return nil
}

// commit writes a batch, whole or not at all: what of it came to the file is taken back.
func (l *Log) commit(b *batch) error {
	n, err := l.at.file.Write(b.text)
	l.spare = b.text
	if err == nil {
		l.at = b.tail
		l.tell(b.records)
		return nil
	}
	err = fmt.Errorf("audit: nothing was recorded: %w", err)
	if n > 0 {
		err = errors.Join(err, l.at.cut())
	}
	return err
}

// rotate begins the log's first segment, or another one when the newest is long or old enough. That begins where the last one is signed.
func (l *Log) rotate() error {
	t := &l.at
	if t.file != nil {
		if t.size == 0 || t.size < l.opts.MaxSegment && time.Since(t.opened) < l.opts.MaxSegmentAge {
			return nil
		}
		if err := l.sign(); err != nil {
			return err
		}
		if err := l.syncSegment(); err != nil { // the next checkpoint syncs its own segment alone
			return err
		}
	}
	if err := t.enter(l.dir, t.number+1, unix.O_CREAT|unix.O_EXCL); err != nil {
		return err
	}
	return l.syncDir()
}

// syncSegment has the disk take the newest segment.
func (l *Log) syncSegment() error {
	if l.opts.Sync == SyncNone {
		return nil
	}
	return l.at.sync()
}

// syncDir has the disk take names that were made or changed.
func (l *Log) syncDir() error {
	if l.opts.Sync == SyncNone {
		return nil
	}
	if err := unix.Fsync(int(l.dir.Fd())); err != nil {
		return &os.PathError{Op: "audit: sync", Path: l.dir.path, Err: err}
	}
	return nil
}
