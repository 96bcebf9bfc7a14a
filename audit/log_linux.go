package audit

import (
	"crypto/ed25519"
	"errors"
	"fmt"
	"os"
	"sync"
	"time"

	"golang.org/x/sys/unix"
)

// Log is an open log that events are appended to. Any number of processes may have the same one open. It is safe for concurrent use.
type Log struct {
	opts     Options
	dir      *folder
	lock     *os.File
	headLock *os.File
	key      ed25519.PrivateKey

	signing sync.Mutex // held by who writes a checkpoint, before mu
	heads   sync.Mutex // held by who writes the head, in this process; headLock, among processes

	mu      sync.Mutex
	at      tail
	timer   *time.Timer // runs while a record has no checkpoint
	failed  error       // why the last checkpoint that nobody waited for was not written
	newest  *head       // the last checkpoint that this process has seen or written
	headDue bool        // its head may not be written
	closed  bool
	spare   []byte // what the last batch was put together in

	full      bool              // the disk was full at the last attempt, and details are dropped
	tried     time.Time         // when it was last tried whether it still is
	dropped   uint64            // details since the last checkpoint
	droppedOf map[string]uint64 // by run, until it ends

	undelivered []Undelivered // by sinks, and not recorded yet
}

// ErrClosed is what a closed log says.
var ErrClosed = errors.New("audit: the log is closed")

// ErrBroken is a log that does not hold together, so that nothing can be appended to it.
var ErrBroken = errors.New("audit: the log is broken")

// Open opens the log in dir for appending, and makes the directory (mode 0700) and the log's key where there are none. Nobody else may
// be able to write there. A log whose end somebody changed, or that is shorter than its head says, is ErrBroken and stays as it is:
// `skillbox audit verify` says where, and a new log begins when the directory is moved away.
func Open(dir string, opts Options) (*Log, error) {
	l, err := openLog(dir, opts)
	if err != nil && opts.Sink != nil {
		err = errors.Join(err, opts.Sink.Close(0))
	}
	return l, err
}

func openLog(dir string, opts Options) (*Log, error) {
	opts, err := opts.withDefaults()
	if err != nil {
		return nil, err
	}
	if opts.Host == "" {
		if opts.Host, err = os.Hostname(); err != nil {
			return nil, fmt.Errorf("audit: %w", err)
		}
	}
	if err := makeFolder(dir); err != nil {
		return nil, err
	}
	l := &Log{opts: opts, droppedOf: map[string]uint64{}}
	if l.dir, err = openFolder(dir, false); err != nil {
		return nil, err
	}
	if l.lock, err = l.dir.open(lockFile, unix.O_RDWR|unix.O_CREAT); err != nil {
		return nil, errors.Join(err, l.dir.Close())
	}
	if l.headLock, err = l.dir.open(headLock, unix.O_RDWR|unix.O_CREAT); err != nil {
		return nil, errors.Join(err, l.lock.Close(), l.dir.Close())
	}
	if err := l.locked(l.load); err != nil {
		l.closed = true
		return nil, errors.Join(err, l.close())
	}
	return l, nil
}

// load reads where the log ends.
func (l *Log) load() (err error) {
	if l.key, err = openKey(l.dir); err != nil {
		return err
	}
	if err := l.findEnd(); err != nil {
		return err
	}
	if l.opts.OnFull == DropDetail {
		l.keepReserve() // on a full disk there is none to be had, which the first record will find out
	}
	// Where whoever wrote the newest checkpoint did not come to its head, our own first one does: a disk is waited for under no lock
	// that others wait for, and of fifty that start at a time most find somebody's head on its way.
	return nil
}

// locked runs f while this process alone writes to the log.
func (l *Log) locked(f func() error) error {
	if err := lock(l.lock, l.opts.LockWait); err != nil {
		return err
	}
	return errors.Join(f(), unlock(l.lock))
}

// Append writes events in this order, all of them or, with an error, none; with DropDetail, verdicts at least. Each needs a Detail and,
// but for a refusal before there was an id, a Run. When it returns, other processes see them; whether a disk has them is up to
// Options.Sync. A full disk is an error that IsFull recognizes.
func (l *Log) Append(events ...Event) error {
	if len(events) == 0 {
		return nil
	}
	clean, now, mono := make([]Event, len(events)), time.Now(), boottime()
	for i := range events {
		if err := complete(&events[i], &clean[i], l.opts.Host, now, mono); err != nil {
			return err
		}
		if i > 0 && same(events[i].Caller, events[i-1].Caller) && same(events[i].Skill, events[i-1].Skill) {
			clean[i].Caller, clean[i].Skill = clean[i-1].Caller, clean[i-1].Skill // of one run: written once, see encoder
		}
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.closed {
		return ErrClosed
	}
	if err := l.locked(func() error { return l.append(clean) }); err != nil {
		return err
	}
	if l.opts.Sync == SyncAlways {
		if err := l.at.sync(); err != nil {
			return err
		}
	}
	if l.timer == nil {
		l.timer = time.AfterFunc(l.opts.Interval, l.tick)
	}
	return nil
}

// same tells whether two point to the same words.
func same[T comparable](a, b *T) bool { return a == b || a != nil && b != nil && *a == *b }

// complete fills in what a caller leaves to us, in a clean copy.
func complete(e, to *Event, host string, now time.Time, mono int64) error {
	if e.Detail == nil {
		return errors.New("audit: an event without a detail")
	}
	copied := *e
	if copied.Kind = e.Detail.kind(); own(copied.Kind) {
		return fmt.Errorf("audit: an event of kind %s: only the log itself writes it", copied.Kind)
	}
	copied.V, copied.Host = Version, host
	if copied.Time.IsZero() {
		copied.Time = now
	}
	copied.Time = copied.Time.UTC().Round(0)
	if copied.Mono == 0 {
		copied.Mono = mono
	}
	*to = copied.clean()
	return nil
}

func boottime() int64 {
	var ts unix.Timespec
	if unix.ClockGettime(unix.CLOCK_BOOTTIME, &ts) != nil {
		return 0 // since Linux 2.6.39 there is this clock
	}
	return ts.Nano()
}

// tick writes the checkpoint of what was appended lately. What goes wrong is told by the next Append, or by Close.
func (l *Log) tick() {
	l.signing.Lock()
	defer l.signing.Unlock()
	l.mu.Lock()
	defer l.mu.Unlock()
	l.timer = nil
	if l.closed {
		return
	}
	if l.failed = l.checkpoint(); l.failed != nil {
		l.timer = time.AfterFunc(l.opts.Interval, l.tick) // it may get better
	}
}

// Checkpoint signs what was appended so far, unless that was done already.
func (l *Log) Checkpoint() error {
	l.signing.Lock()
	defer l.signing.Unlock()
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.closed {
		return ErrClosed
	}
	l.failed = nil
	return l.checkpoint()
}

// Dropped tells how many details of a run are not in the log because the disk was full; 0 after its end was written.
func (l *Log) Dropped(run string) uint64 {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.droppedOf[run]
}

// Close signs what was appended, has sinks deliver it for a second at most, and closes the log. It is safe to call twice.
func (l *Log) Close() error { return l.CloseWithin(drainTime) }

// CloseWithin is Close with another time for the sinks.
func (l *Log) CloseWithin(drain time.Duration) error {
	l.signing.Lock()
	defer l.signing.Unlock()
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.closed {
		return nil
	}
	l.closed = true
	if l.timer != nil {
		l.timer.Stop()
	}
	err := l.checkpoint()
	if l.opts.Sink != nil {
		err = errors.Join(err, l.opts.Sink.Close(drain))
		if len(l.missing()) > 0 {
			err = errors.Join(err, l.checkpoint())
		}
	}
	return errors.Join(err, l.close())
}

func (l *Log) close() error {
	return errors.Join(l.at.close(), l.lock.Close(), l.headLock.Close(), l.dir.Close())
}
