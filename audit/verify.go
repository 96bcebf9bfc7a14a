package audit

import (
	"crypto/ed25519"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"time"
)

// VerifyOptions are what is known of a log from elsewhere. What somebody keeps who can write the log proves nothing against them;
// a head that was exported does, and so does a key.
type VerifyOptions struct {
	Head []byte // a head that was exported before: what Head returned; empty is none
	Key  []byte // the file key.pub that was exported before; empty is the log's own
}

// Damage is a way in which a log does not hold together.
type Damage string

const (
	Changed        Damage = "changed"
	Dropped        Damage = "dropped"
	Reordered      Damage = "reordered"
	Inserted       Damage = "inserted"
	Truncated      Damage = "truncated"
	BadSignature   Damage = "bad signature"
	ForeignKey     Damage = "foreign key"
	MissingSegment Damage = "missing segment"
	BadHead        Damage = "bad head"
)

// Broken is the first record that does not fit.
type Broken struct {
	Segment string `json:"segment"` // the file
	Line    int    `json:"line"`    // from 1; 0 is the file as a whole
	Seq     uint64 `json:"seq"`     // the number that the record has, or should have
	Damage  Damage `json:"damage"`
	Why     string `json:"why"`
}

func (b *Broken) Error() string {
	where := b.Segment
	if b.Line > 0 {
		where = fmt.Sprintf("%s:%d", b.Segment, b.Line)
	}
	return fmt.Sprintf("%s: record %d: %s: %s", where, b.Seq, b.Damage, b.Why)
}

// Report is what Verify found.
type Report struct {
	Whole       bool      `json:"whole"`
	Broken      *Broken   `json:"broken,omitempty"` // nil where the log is whole
	Log         string    `json:"log,omitempty"`    // its id; "" of a log without records
	Key         string    `json:"key"`              // id of the key that the signatures were checked with
	Segments    int       `json:"segments"`
	Records     uint64    `json:"records"` // up to the first broken one
	First       uint64    `json:"first"`   // number of the first record that is left
	FirstTime   time.Time `json:"first_time,omitzero"`
	Last        uint64    `json:"last"` // number of the last good record
	Removed     uint64    `json:"removed_segments"`
	Checkpoints int       `json:"checkpoints"`
	Signed      uint64    `json:"signed"` // number of the last good checkpoint: up to there the log is signed
	SignedTime  time.Time `json:"signed_time,omitzero"`
	Unsigned    uint64    `json:"unsigned"`   // records after it
	TornBytes   int       `json:"torn_bytes"` // of a line at the end that was never finished
	Torn        int       `json:"torn"`       // how often one was removed, as log.torn says
	Dropped     uint64    `json:"dropped"`    // details that checkpoints count as not written, because the disk was full
}

// verifier goes through a log once.
type verifier struct {
	Report
	src *lines
	key ed25519.PublicKey

	head     *head // the directory's; nil where there is none
	headSeq  uint64
	first    []byte  // the line of the head that was announced, where there is no head
	begun    bool    // that is the log's only checkpoint
	exported *header // likewise of the exported head
	expLine  []byte
	badHead  error

	last   *line // the last good one; nil before the first
	seq    uint64
	hash   hash
	signed bool // last is a checkpoint with a good signature
	tree   tree
	before tree
	oldest uint64 // as the newest checkpoint says
}

func broken(l *line, seq uint64, d Damage, format string, args ...any) *Broken {
	return &Broken{Segment: segmentName(l.segment), Line: l.number, Seq: seq, Damage: d, Why: fmt.Sprintf(format, args...)}
}

// run returns an error only where the log could not be read.
func (v *verifier) run() error {
	for {
		l, err := v.src.next()
		if err != nil {
			return err
		}
		if l == nil {
			v.Broken = v.finish()
			return nil
		}
		if l.torn {
			after, err := v.src.peek()
			if err != nil {
				return err
			}
			if after == nil && len(v.src.segments) == 0 {
				v.TornBytes = len(l.text)
				continue
			}
			v.Broken = broken(l, v.seq+1, Truncated, "the line has no end, and another segment follows")
			return nil
		}
		if v.Broken, err = v.step(l); v.Broken != nil || err != nil {
			return err
		}
	}
}

// step takes one line in, or says why it does not fit.
func (v *verifier) step(l *line) (*Broken, error) {
	if v.last != nil && l.number == 1 && l.segment != v.last.segment+1 {
		return &Broken{Segment: segmentName(v.last.segment + 1), Seq: v.seq + 1, Damage: MissingSegment, Why: "the segment is missing, or empty"}, nil
	}
	h, err := readHeader(l.text)
	if err == nil && (len(l.text) > MaxRecord || !json.Valid(l.text)) {
		err = errors.New("it is no JSON object of a record's length")
	}
	if err != nil {
		return broken(l, v.seq+1, Changed, "it is no record: %v", err), nil
	}
	if b, err := v.follows(l, h); b != nil || err != nil {
		return b, err
	}
	if l.number == 1 {
		v.before, v.tree = v.tree, tree{}
		v.Segments++
	}
	if b := v.meaning(l, h); b != nil {
		return b, nil
	}
	if v.last == nil {
		v.First = h.seq
	}
	v.last, v.seq, v.hash, v.signed = l, h.seq, hashLine(l.text), h.kind == LogCheckpoint
	v.tree.add(l.text)
	v.Records, v.Last = v.Records+1, h.seq
	if v.exported != nil && h.seq == v.exported.seq && string(v.expLine) != string(l.text) {
		return broken(l, h.seq, Changed, "it is not the checkpoint that was exported: the log was written anew"), nil
	}
	if v.head != nil && h.seq == v.headSeq {
		return v.atHead(l), nil
	}
	return nil, nil
}

// atHead compares the head with the record that it is of.
func (v *verifier) atHead(l *line) *Broken {
	if string(v.head.line) != string(l.text) {
		return broken(l, v.headSeq, Changed, "it is not the checkpoint that the head says")
	}
	if v.head.at.End != l.end {
		v.badHead = errors.New("it says that its checkpoint ends elsewhere")
	}
	return nil
}

// meaning checks what the log says of itself, in records of its own kinds and at a segment's beginning.
func (v *verifier) meaning(l *line, h header) *Broken {
	if (h.kind == LogOpened) != (l.number == 1) {
		return broken(l, h.seq, Changed, "each segment begins with one record of kind %s", LogOpened)
	}
	if h.kind == LogCheckpoint {
		return v.checkpoint(l, h)
	}
	if !own(h.kind) {
		return nil
	}
	e, err := Parse(l.text)
	if err != nil {
		return broken(l, h.seq, Changed, "%v", err)
	}
	o, ok := e.Detail.(Opened)
	if h.kind == LogTorn {
		v.Torn++
	}
	switch {
	case !ok:
		return nil
	case o.Key != keyID(v.key):
		return broken(l, h.seq, ForeignKey, "the segment was begun with key %.16s…, the log's key is %.16s…", o.Key, keyID(v.key))
	case o.Segment != l.segment || v.last != nil && (o.Log != v.Log || o.Root != v.before.root().String() || o.Lines != v.before.lines):
		return broken(l, h.seq, Changed, "the segment does not continue the one before")
	case v.last == nil:
		v.Log, v.FirstTime = o.Log, e.Time
	}
	return nil
}

func (v *verifier) checkpoint(l *line, h header) *Broken {
	e, c, err := readCheckpoint(l.text, v.key)
	switch {
	case errors.Is(err, ErrForeignKey):
		return broken(l, h.seq, ForeignKey, "%s", strings.TrimPrefix(err.Error(), "audit: foreign key: "))
	case errors.Is(err, ErrSignature):
		return broken(l, h.seq, BadSignature, "the signature is not of the log's key over this record")
	case err != nil:
		return broken(l, h.seq, Changed, "%v", err)
	case c.Log != v.Log || c.Segment != l.segment || c.Lines != v.tree.lines || c.Root != v.tree.root().String():
		return broken(l, h.seq, Changed, "it signs other lines than these: one of records %d to %d was changed, and all after it were chained anew", v.Signed+1, h.seq-1)
	}
	v.Checkpoints, v.Signed, v.SignedTime, v.oldest = v.Checkpoints+1, h.seq, e.Time, c.Oldest
	v.begun = v.Checkpoints == 1 && string(v.first) == string(l.text)
	v.Dropped += c.Dropped
	return nil
}
