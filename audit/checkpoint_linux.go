package audit

import (
	"crypto/ed25519"
	"errors"
	"fmt"
	"os"
	"time"

	"golang.org/x/sys/unix"
)

func (l *Log) publicKey() ed25519.PublicKey { return l.key.Public().(ed25519.PublicKey) }

// checkpoint signs the log so far, has the disk take it, and then writes the head. Nobody waits for the disk but who asked for it: meanwhile the
// log is locked neither for other processes nor, by l.mu, for this one; but see announce. The caller holds l.signing and l.mu.
func (l *Log) checkpoint() error {
	err := l.locked(func() error {
		if err := l.catchUp(); err != nil {
			return err // nothing is written behind what does not hold together
		}
		return l.sign()
	})
	if err != nil {
		return err
	}
	if !l.headDue {
		return nil
	}
	due := l.newest
	segment, err := l.at.again()
	if err != nil {
		return err
	}
	l.mu.Unlock()
	if l.opts.Sync != SyncNone {
		err = syncFile(segment)
	}
	if err = errors.Join(err, segment.Close()); err == nil {
		err = l.writeHead(due)
	}
	l.mu.Lock()
	if err != nil {
		return err
	}
	l.headDue = l.newest != due // or somebody has signed meanwhile
	return l.locked(func() error { return l.prune(due) })
}

// sign appends a checkpoint, unless the last line is one, and before it what was torn and what sinks did not get. The caller holds the lock.
func (l *Log) sign() error {
	if l.at.file == nil || l.at.signed && l.at.torn == nil && len(l.undelivered) == 0 {
		return nil
	}
	oldest, err := l.oldest()
	if err != nil {
		return err
	}
	b, err := l.begin()
	if err != nil {
		return err
	}
	for _, u := range l.missing() {
		e := b.own(u)
		if err := b.add(e.clean()); err != nil {
			return err
		}
	}
	t := &b.tail
	c := Checkpoint{Log: t.log, Segment: t.number, Lines: t.tree.lines, Root: t.tree.root().String(), Oldest: oldest, Dropped: l.dropped, Key: keyID(l.publicKey())}
	e := b.own(c)
	b.number(&e)
	line, err := sign(&e, c, l.key)
	if err != nil {
		return err
	}
	newest := t.head(line)
	b.put(line, e)
	first, err := l.announce(newest)
	if err != nil {
		return err
	}
	if err := l.commit(b); err != nil {
		return err
	}
	l.newest, l.headDue, l.dropped, l.undelivered = newest, true, 0, nil
	if first {
		return l.firstHead()
	}
	return nil
}

// announce prepares the log's first head before there is its checkpoint, and tells whether there is none yet. From then on a log with a checkpoint
// and neither a head nor this one is a log whose head somebody removed. Once in a log's life its lock is held while a disk is waited for.
func (l *Log) announce(h *head) (first bool, err error) {
	if there, err := l.dir.has(headFile); there || err != nil {
		return false, err
	}
	if l.newest != nil { // who wrote the first checkpoint died before its head, and a second one needs it
		if err := l.syncSegment(); err != nil {
			return false, err
		}
		return false, l.writeHead(l.newest)
	}
	text, err := h.encode()
	if err != nil {
		return false, fmt.Errorf("audit: head: %w", err)
	}
	if err := l.dir.replace(firstHead, text, l.opts.Sync != SyncNone); err != nil {
		return false, err
	}
	return true, l.syncDir()
}

// firstHead makes the head of what was announced, now that the log has its checkpoint. Nobody else writes a head: there is no other checkpoint.
func (l *Log) firstHead() error {
	if err := l.syncSegment(); err != nil {
		return err
	}
	if err := unix.Renameat(int(l.dir.Fd()), firstHead, int(l.dir.Fd()), headFile); err != nil {
		return &os.PathError{Op: "audit: write", Path: headFile, Err: err}
	}
	return l.syncDir() // before there is a second checkpoint
}

// writeHead writes a checkpoint's head, whose segment the disk has, unless another process has written a newer one. It waits for the disk, so it has
// a lock of its own; who holds it asks for no other.
func (l *Log) writeHead(h *head) (err error) {
	if h == nil {
		return nil
	}
	l.heads.Lock()
	defer l.heads.Unlock()
	if err := lock(l.headLock, l.opts.LockWait); err != nil {
		return err
	}
	defer func() { err = errors.Join(err, unlock(l.headLock)) }()
	ours, err := readHeader(h.line)
	if err != nil {
		return err
	}
	if text, err := l.dir.read(headFile); err == nil {
		if theirs, err := readHeader(text); err == nil && theirs.seq >= ours.seq {
			return nil
		}
	} else if !errors.Is(err, os.ErrNotExist) {
		return err
	}
	text, err := h.encode()
	if err != nil {
		return fmt.Errorf("audit: head: %w", err)
	}
	if err := l.dir.replace(headFile, text, l.opts.Sync != SyncNone); err != nil {
		return err
	}
	return l.dir.remove(firstHead) // of who died before it was the head
}

// oldest is the oldest segment that MaxTotal and MaxAge leave.
func (l *Log) oldest() (uint64, error) {
	segments, err := l.dir.segments()
	if err != nil {
		return 0, err
	}
	sizes := make([]unix.Stat_t, len(segments))
	var total int64
	for i, n := range segments {
		if err := unix.Fstatat(int(l.dir.Fd()), segmentName(n), &sizes[i], unix.AT_SYMLINK_NOFOLLOW); err != nil {
			return 0, &os.PathError{Op: "audit: stat", Path: segmentName(n), Err: err}
		}
		total += sizes[i].Size
	}
	for i, n := range segments {
		old := l.opts.MaxAge > 0 && time.Since(time.Unix(sizes[i].Mtim.Unix())) > l.opts.MaxAge
		if n == l.at.number || !old && total <= l.opts.MaxTotal {
			return n, nil
		}
		total -= sizes[i].Size
	}
	return l.at.number, nil
}

// prune removes the segments before the oldest, now that this is signed and the head says so. The caller holds the lock.
func (l *Log) prune(h *head) error {
	e, err := Parse(h.line)
	if err != nil {
		return err
	}
	segments, err := l.dir.segments()
	if err != nil {
		return err
	}
	for _, n := range segments {
		if n >= e.Detail.(Checkpoint).Oldest {
			break
		}
		if err := l.dir.remove(segmentName(n)); err != nil {
			return err
		}
	}
	return nil
}
