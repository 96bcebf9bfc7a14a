package audit

import (
	"bytes"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"time"
)

// Files of a log's directory besides its segments.
const (
	lockFile    = "lock"
	headLock    = "head.lock"
	keyFile     = "key"
	publicFile  = "key.pub"
	headFile    = "head"
	firstHead   = "head.first" // until the log has its first checkpoint
	reserveFile = "reserve"
	suffix      = ".jsonl"
)

// segmentName sorts as the numbers do, up to a million segments; what reads a directory sorts by number.
func segmentName(n uint64) string { return fmt.Sprintf("%06d%s", n, suffix) }

func segmentNumber(name string) (uint64, bool) {
	digits, ok := strings.CutSuffix(name, suffix)
	if !ok {
		return 0, false
	}
	n, err := strconv.ParseUint(digits, 10, 63)
	return n, err == nil && n > 0 && segmentName(n) == name
}

// Options of a writer. The zero value is right for most.
type Options struct {
	MaxSegment    int64         // bytes after which a new segment begins; 0 is 64 MiB
	MaxSegmentAge time.Duration // age at which a new segment begins; 0 is a day
	MaxTotal      int64         // bytes of all segments: the oldest go as a whole, never the newest; 0 is 1 GiB
	MaxAge        time.Duration // segments whose last record is older go; 0 keeps them as long as MaxTotal does
	Sync          Sync          // "" is SyncCheckpoint
	OnFull        OnFull        // "" is Refuse
	Interval      time.Duration // after a record its checkpoint comes within this time; 0 is 0.8 s
	LockWait      time.Duration // how long another process may hold the log; 0 is 30 s
	Host          string        // "" is the kernel's host name
	Sink          Sink          // nil is none; Open takes it over, also with an error
}

// Sync says when a disk has to have it.
type Sync string

const (
	SyncNone       Sync = "none"       // when the kernel writes it: a power cut may take records, and then Open refuses what is behind its head
	SyncCheckpoint Sync = "checkpoint" // with each checkpoint, before its head is written: a power cut may take the last second
	SyncAlways     Sync = "always"     // before Append returns
)

// OnFull says what happens when the disk is full.
type OnFull string

const (
	Refuse     OnFull = "refuse"      // Append fails, and nothing of its events is in the log
	DropDetail OnFull = "drop-detail" // details are dropped and counted; grants, refusals and ends go on in 256 KiB that are kept for them
)

func (o Options) withDefaults() (Options, error) {
	set := func(d *time.Duration, to time.Duration) {
		if *d == 0 {
			*d = to
		}
	}
	set(&o.MaxSegmentAge, 24*time.Hour)
	set(&o.Interval, 800*time.Millisecond)
	set(&o.LockWait, 30*time.Second)
	if o.MaxSegment == 0 {
		o.MaxSegment = 64 << 20
	}
	if o.MaxTotal == 0 {
		o.MaxTotal = 1 << 30
	}
	if o.Sync == "" {
		o.Sync = SyncCheckpoint
	}
	if o.OnFull == "" {
		o.OnFull = Refuse
	}
	if o.Sync != SyncNone && o.Sync != SyncCheckpoint && o.Sync != SyncAlways {
		return o, fmt.Errorf("audit: sync %q: it is none, checkpoint or always", o.Sync)
	}
	if o.OnFull != Refuse && o.OnFull != DropDetail {
		return o, fmt.Errorf("audit: on_full %q: it is refuse or drop-detail", o.OnFull)
	}
	if min(o.MaxSegment, o.MaxTotal) < 4*MaxRecord || min(o.MaxSegmentAge, o.MaxAge, o.Interval, o.LockWait) < 0 {
		return o, fmt.Errorf("audit: a limit is negative, or below %d bytes", 4*MaxRecord)
	}
	return o, nil
}

// head is what the file of that name holds: the newest checkpoint's line, and where a writer goes on. Only the first line proves
// anything; of the second, nothing is believed that the first does not confirm.
type head struct {
	line []byte
	at   position
}

// position is where a checkpoint's line ends, and the tree of the lines before it.
type position struct {
	Segment uint64   `json:"segment"`
	End     int64    `json:"end"`
	Roots   []string `json:"roots"`
}

func (h *head) encode() ([]byte, error) {
	at, err := json.Marshal(h.at)
	if err != nil {
		return nil, err
	}
	return append(append(append(bytes.Clone(h.line), '\n'), at...), '\n'), nil
}

func decodeHead(text []byte) (*head, error) {
	line, rest, ok := bytes.Cut(text, []byte("\n"))
	second, empty, ok2 := bytes.Cut(rest, []byte("\n"))
	h := &head{line: line}
	if !ok || !ok2 || len(empty) > 0 {
		return nil, errors.New("audit: head: it has not two lines")
	}
	if err := strictly(second, &h.at); err != nil {
		return nil, fmt.Errorf("audit: head: %w", err)
	}
	if again, err := h.encode(); err != nil || !bytes.Equal(again, text) {
		return nil, errors.New("audit: head: it is not written as skillbox writes it")
	}
	return h, nil
}

// tree returns the tree before the checkpoint, if it is the one that was signed.
func (h *head) tree(c Checkpoint) (tree, error) {
	t := tree{lines: c.Lines}
	for _, root := range h.at.Roots {
		raw, err := hex.DecodeString(root)
		if err != nil || len(raw) != len(hash{}) {
			return tree{}, errors.New("audit: head: a root is no hash")
		}
		t.roots = append(t.roots, hash(raw))
	}
	if t.root().String() != c.Root || h.at.Segment != c.Segment {
		return tree{}, errors.New("audit: head: its second line does not fit its first")
	}
	return t, nil
}
