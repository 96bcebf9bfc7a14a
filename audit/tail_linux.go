package audit

import (
	"bufio"
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"os"
	"slices"
	"time"

	"golang.org/x/sys/unix"
)

// tail is the end of a log as one process knows it.
type tail struct {
	file   *os.File // the newest segment; nil before there is one
	number uint64
	size   int64 // of what was read and hangs together: whole lines
	tree   tree  // of this segment
	opened time.Time
	torn   *Torn // removed from the log's end, to be told with the next batch, which may be in another segment

	log    string // id
	seq    uint64 // of the last line
	prev   hash   // of the last line
	signed bool   // the last line is a checkpoint
	before tree   // of the segment before
}

func (t *tail) close() error {
	if t.file == nil {
		return nil
	}
	return t.file.Close()
}

func (t *tail) sync() error {
	if t.file == nil {
		return nil
	}
	return syncFile(t.file)
}

func syncFile(f *os.File) error {
	if err := unix.Fdatasync(int(f.Fd())); err != nil {
		return &os.PathError{Op: "audit: sync", Path: f.Name(), Err: err}
	}
	return nil
}

// again is the segment for who syncs it while it may be left.
func (t *tail) again() (*os.File, error) {
	fd, err := unix.FcntlInt(t.file.Fd(), unix.F_DUPFD_CLOEXEC, 0)
	if err != nil {
		return nil, &os.PathError{Op: "audit: open", Path: t.file.Name(), Err: err}
	}
	return os.NewFile(uintptr(fd), t.file.Name()), nil
}

// copied returns the tail for lines to be added that may have to be taken back.
func (t *tail) copied() tail {
	next := *t
	next.tree.roots = slices.Clone(t.tree.roots)
	return next
}

// enter goes on to a segment, which may be empty.
func (t *tail) enter(d *folder, n uint64, flags int) error {
	f, err := d.open(segmentName(n), unix.O_RDWR|unix.O_APPEND|flags)
	if err != nil {
		return err
	}
	err = t.close()
	t.before, t.tree = t.tree, tree{}
	t.file, t.number, t.size, t.opened = f, n, 0, time.Time{}
	return err
}

// findEnd reads the newest segment, from its newest checkpoint on if the head says where that is.
func (l *Log) findEnd() error {
	segments, err := l.dir.segments()
	if err != nil || len(segments) == 0 {
		if there, err2 := l.dir.has(headFile); there || err2 != nil {
			return errors.Join(err, err2, fmt.Errorf("%w: %s: there is a head and no segment", ErrBroken, l.dir.path))
		}
		return err
	}
	newest, err := l.fromHead(segments[len(segments)-1])
	if err != nil {
		return err
	}
	if l.at.file == nil {
		if err := l.at.enter(l.dir, segments[max(len(segments)-2, 0)], 0); err != nil {
			return err
		}
	}
	l.headDue = false
	if err := l.catchUp(); err != nil {
		return err
	}
	if newest != nil && newest.seq > l.at.seq {
		return fmt.Errorf("%w: %s: it ends with record %d, and its head says that there was a record %d", ErrBroken, l.dir.path, l.at.seq, newest.seq)
	}
	return nil
}

// fromHead sets the tail to the checkpoint of the head, and returns what the head says of itself; nil where there is none.
func (l *Log) fromHead(last uint64) (*header, error) {
	text, err := l.dir.read(headFile)
	if errors.Is(err, os.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	h, err := decodeHead(text)
	if err != nil {
		return nil, fmt.Errorf("%w: %w", ErrBroken, err)
	}
	e, c, err := readCheckpoint(h.line, l.publicKey())
	if err != nil {
		return nil, fmt.Errorf("%w: head: %w", ErrBroken, err)
	}
	before, err := h.tree(c)
	if err != nil {
		return nil, fmt.Errorf("%w: %w", ErrBroken, err)
	}
	seen := &header{seq: e.Seq, prev: e.Prev, kind: e.Kind}
	if c.Segment > last {
		return nil, fmt.Errorf("%w: %s: segment %s is gone, where its head lies", ErrBroken, l.dir.path, segmentName(c.Segment))
	}
	t := &l.at
	if err := t.enter(l.dir, c.Segment, 0); err != nil {
		return nil, err
	}
	line := make([]byte, len(h.line)+1)
	if _, err := t.file.ReadAt(line, h.at.End-int64(len(line))); err != nil || !bytes.Equal(line[:len(h.line)], h.line) || line[len(h.line)] != '\n' {
		return nil, fmt.Errorf("%w: %s: the head's checkpoint (record %d) is not where it was written", ErrBroken, t.file.Name(), e.Seq)
	}
	t.tree, t.size, t.opened, t.log = before, h.at.End, e.Time, c.Log
	t.tree.add(h.line)
	t.seq, t.prev, t.signed = e.Seq, hashLine(h.line), true
	return seen, nil
}

// catchUp reads what other processes have written since. The caller holds the lock, so a line without an end is one that nobody writes any more.
func (l *Log) catchUp() error {
	t := &l.at
	if t.file == nil { // another process may have begun the log
		segments, err := l.dir.segments()
		if err != nil || len(segments) == 0 {
			return err
		}
		if err := t.enter(l.dir, segments[0], 0); err != nil {
			return err
		}
	}
	for {
		if err := l.readOn(); err != nil {
			return err
		}
		more, err := l.dir.has(segmentName(t.number + 1))
		if err != nil || !more {
			return err
		}
		if err := t.enter(l.dir, t.number+1, 0); err != nil {
			return err
		}
	}
}

// readOn takes in the lines of this segment that are new, and cuts off what is no whole line.
func (l *Log) readOn() error {
	t := &l.at
	var st unix.Stat_t
	if err := unix.Fstat(int(t.file.Fd()), &st); err != nil {
		return &os.PathError{Op: "audit: stat", Path: t.file.Name(), Err: err}
	}
	if st.Size < t.size || st.Nlink == 0 {
		return fmt.Errorf("%w: %s: it is shorter than it was, or removed", ErrBroken, t.file.Name())
	}
	if st.Size == t.size {
		return nil // nearly always; a reader's memory would be most of what an append takes
	}
	r := bufio.NewReaderSize(io.NewSectionReader(t.file, t.size, st.Size-t.size), MaxRecord+1)
	for t.size < st.Size {
		line, err := r.ReadSlice('\n')
		if err == io.EOF {
			return l.cutTorn(line)
		}
		if err != nil {
			return fmt.Errorf("%w: %s: a line of more than %d bytes at %d: %w", ErrBroken, t.file.Name(), MaxRecord, t.size, err)
		}
		if err := l.take(line[:len(line)-1]); err != nil {
			return err
		}
	}
	return nil
}

// take adds a line that is in the log.
func (l *Log) take(line []byte) error {
	t := &l.at
	h, err := readHeader(line)
	// The first line that this process sees needs not be the log's first.
	first := t.seq == 0 && t.number > 1
	switch {
	case err != nil:
		return fmt.Errorf("%w: %s: after record %d: %w", ErrBroken, t.file.Name(), t.seq, err)
	case !first && (h.seq != t.seq+1 || h.prev != t.prev.String()):
		return fmt.Errorf("%w: %s: record %d does not follow record %d", ErrBroken, t.file.Name(), h.seq, t.seq)
	case (h.kind == LogOpened) != (t.size == 0):
		return fmt.Errorf("%w: %s: a segment begins with one record of kind %s", ErrBroken, t.file.Name(), LogOpened)
	}
	if h.kind == LogOpened {
		e, err := Parse(line)
		if err != nil {
			return fmt.Errorf("%w: %s: %w", ErrBroken, t.file.Name(), err)
		}
		t.log, t.opened = e.Detail.(Opened).Log, e.Time
	}
	if h.kind == LogCheckpoint {
		l.newest, l.headDue = t.head(line), true
	}
	t.add(line, h)
	return nil
}

// head is what the head holds once this checkpoint's line is added.
func (t *tail) head(line []byte) *head {
	h := &head{line: bytes.Clone(line), at: position{Segment: t.number, End: t.size + int64(len(line)) + 1, Roots: make([]string, len(t.tree.roots))}}
	for i, root := range t.tree.roots {
		h.at.Roots[i] = root.String()
	}
	return h
}

// add goes on by one line.
func (t *tail) add(line []byte, h header) {
	t.tree.add(line)
	t.size += int64(len(line)) + 1
	t.seq, t.prev, t.signed = h.seq, hashLine(line), h.kind == LogCheckpoint
}

func (l *Log) cutTorn(rest []byte) error {
	t := &l.at
	sum := sha256.Sum256(rest)
	t.torn = &Torn{Bytes: int64(len(rest)), SHA256: hex.EncodeToString(sum[:])}
	return t.cut()
}

// cut takes back what lies after the last whole line.
func (t *tail) cut() error {
	if err := unix.Ftruncate(int(t.file.Fd()), t.size); err != nil {
		return &os.PathError{Op: "audit: truncate", Path: t.file.Name(), Err: err}
	}
	return nil
}
