// Package audit is the record of what skills did: events in a log that shows when somebody changed it. It decides nothing; skillboxd
// writes, and who answers for a machine reads and verifies.
package audit

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"reflect"
	"time"
)

// Version is that of the schema, docs/audit.schema.json. A change that a reader must know of makes another.
const Version = 1

// Event is one record. Whoever appends one gives Run, Caller, Skill and Detail; the rest is filled in by Append, Time and Mono only
// where they are zero.
type Event struct {
	V      int       `json:"v" doc:"version of this schema"`
	Seq    uint64    `json:"seq" doc:"number of the record in its log, from 1, over all segments"`
	Prev   string    `json:"prev" doc:"SHA-256 of the line before, without its newline, in hex; of the very first line, zeros"`
	Time   time.Time `json:"time" doc:"wall clock, UTC, RFC 3339 with up to nine decimals"`
	Mono   int64     `json:"mono" doc:"nanoseconds of CLOCK_BOOTTIME, which nobody sets"`
	Kind   Kind      `json:"kind" doc:"what happened; says what detail holds"`
	Run    string    `json:"run,omitempty" doc:"id of the run; absent in the log's own records"`
	Host   string    `json:"host" doc:"host name"`
	Caller *Caller   `json:"caller,omitempty" doc:"who asked for the run"`
	Skill  *Skill    `json:"skill,omitempty" doc:"what ran"`
	Detail Detail    `json:"detail" doc:"what belongs to this kind"`
}

// Caller is the process that asked for a run, as the kernel tells it of a socket's peer.
type Caller struct {
	UID     int    `json:"uid" doc:"user id"`
	GID     int    `json:"gid" doc:"group id"`
	PID     int    `json:"pid" doc:"process id, in the namespace of the helper"`
	Process string `json:"process" doc:"the process's name; it chooses that itself" max:"64"`
}

// Skill is a bundle by what it calls itself and by what it is.
type Skill struct {
	Name   string `json:"name" doc:"the bundle's own name" max:"256"`
	Digest string `json:"digest" doc:"digest of the bundle" max:"128"`
}

// Kind says what a record is about.
type Kind string

// Kinds of records. Those of log.* are the log's own; Append writes them by itself and takes none from outside.
const (
	RunGranted    Kind = "run.granted"
	RunRefused    Kind = "run.refused"
	RunStarted    Kind = "run.started"
	LayerVerified Kind = "layer.verified"
	ExecKind      Kind = "exec"
	FileKind      Kind = "file"
	SyscallKind   Kind = "syscall"
	DNSKind       Kind = "dns"
	ConnKind      Kind = "connection"
	EnvKind       Kind = "env"
	LimitKind     Kind = "limit"
	OutputKind    Kind = "output"
	RunEnded      Kind = "run.ended"
	LogOpened     Kind = "log.opened"
	LogCheckpoint Kind = "log.checkpoint"
	LogTorn       Kind = "log.torn"
	// LogUndelivered says what sinks did not get.
	LogUndelivered Kind = "log.undelivered"
)

// Detail is what an event of one kind says; the kind follows from the type. Parse makes values, not pointers.
type Detail interface{ kind() Kind }

// kinds has an empty detail of each kind, in the order of a run.
var kinds = []func() Detail{
	func() Detail { return new(Granted) },
	func() Detail { return new(Refused) },
	func() Detail { return new(Started) },
	func() Detail { return new(Layer) },
	func() Detail { return new(Exec) },
	func() Detail { return new(File) },
	func() Detail { return new(Syscall) },
	func() Detail { return new(DNS) },
	func() Detail { return new(Connection) },
	func() Detail { return new(Env) },
	func() Detail { return new(Limit) },
	func() Detail { return new(Output) },
	func() Detail { return new(Ended) },
	func() Detail { return new(Opened) },
	func() Detail { return new(Checkpoint) },
	func() Detail { return new(Torn) },
	func() Detail { return new(Undelivered) },
}

// Kinds lists every kind, in the order of a run.
func Kinds() []Kind {
	all := make([]Kind, len(kinds))
	for i, detail := range kinds {
		all[i] = detail().kind()
	}
	return all
}

// newDetail returns nil for a kind that there is not.
func newDetail(k Kind) Detail {
	for _, detail := range kinds {
		if d := detail(); d.kind() == k {
			return d
		}
	}
	return nil
}

// carriesVerdict tells the records that say whether a run was granted and how it ended; all others of a run are details.
func carriesVerdict(k Kind) bool { return k == RunGranted || k == RunRefused || k == RunEnded }

// own tells the log's own records.
func own(k Kind) bool {
	return k == LogOpened || k == LogCheckpoint || k == LogTorn || k == LogUndelivered
}

// Parse reads one line without its newline. It takes only what Append writes, byte for byte: no other order of keys, no key twice, no
// space, no unknown key, no text that Clean would change.
func Parse(line []byte) (Event, error) {
	var raw struct {
		Event
		Detail json.RawMessage `json:"detail"`
	}
	if len(line) > MaxRecord {
		return Event{}, fmt.Errorf("audit: a record of %d bytes; the most is %d", len(line), MaxRecord)
	}
	if err := strictly(line, &raw); err != nil {
		return Event{}, fmt.Errorf("audit: record: %w", err)
	}
	e := raw.Event
	if e.V != Version {
		return Event{}, fmt.Errorf("audit: a record of version %d of the schema; this program knows version %d", e.V, Version)
	}
	if e.Detail = newDetail(e.Kind); e.Detail == nil {
		return Event{}, fmt.Errorf("audit: a record of the unknown kind %q", Clean(string(e.Kind), 64))
	}
	if err := strictly(raw.Detail, e.Detail); err != nil {
		return Event{}, fmt.Errorf("audit: detail of %s: %w", e.Kind, err)
	}
	e.Detail = reflect.ValueOf(e.Detail).Elem().Interface().(Detail)
	if again, err := encode(&e); err != nil || !bytes.Equal(again, line) {
		return Event{}, errors.Join(errors.New("audit: a record that is not written as skillbox writes it"), err)
	}
	if !isHash(e.Prev) {
		return Event{}, fmt.Errorf("audit: a record that does not hold the hash of the line before: %s", Clean(e.Prev, 64))
	}
	if text, ok := unclean(&e); ok {
		return Event{}, fmt.Errorf("audit: a record with a text that skillbox would have escaped: %s", Clean(text, 64))
	}
	return e, nil
}

// Pack writes an event for Unpack, which another process calls before it appends the event: what Append fills in is not in it yet.
func Pack(e Event) (json.RawMessage, error) {
	if e.Detail == nil {
		return nil, errors.New("audit: an event without a detail")
	}
	e.Kind = e.Detail.kind()
	return encode(&e)
}

// Unpack reads what Pack wrote. The text in it is not clean yet; Append sees to that.
func Unpack(text json.RawMessage) (Event, error) {
	var raw struct {
		Event
		Detail json.RawMessage `json:"detail"`
	}
	if err := strictly(text, &raw); err != nil {
		return Event{}, fmt.Errorf("audit: event: %w", err)
	}
	e := raw.Event
	if e.Detail = newDetail(e.Kind); e.Detail == nil || own(e.Kind) {
		return Event{}, fmt.Errorf("audit: an event of kind %q, which nobody may send", Clean(string(e.Kind), 64))
	}
	if err := strictly(raw.Detail, e.Detail); err != nil {
		return Event{}, fmt.Errorf("audit: detail of %s: %w", e.Kind, err)
	}
	return e, nil
}

func strictly(text []byte, into any) error {
	d := json.NewDecoder(bytes.NewReader(text))
	d.DisallowUnknownFields()
	if err := d.Decode(into); err != nil {
		return err
	}
	if _, err := d.Token(); err != io.EOF {
		return errors.New("more than one value")
	}
	return nil
}
