package audit

import (
	"bytes"
	"encoding/json"
	"slices"
	"strings"
	"time"
)

// Query chooses records; the zero value chooses all. What is empty does not matter, the rest must all hold.
type Query struct {
	Run     string    // id of a run
	Kinds   []Kind    // any of them
	Skill   string    // the bundle's name, or how its digest begins
	Verdict string    // of a run's end, or what became of something: timed_out, denied …; refused is also a run that was
	Since   time.Time // not before
	Until   time.Time // before
	Text    string    // anywhere in the record, as it is written there; capital letters do not matter
}

// Record is an event with the line that it was read from, without its newline.
type Record struct {
	Event
	Line []byte
}

// MarshalJSON writes the line as it is, or where there is none, the event.
func (r Record) MarshalJSON() ([]byte, error) {
	if len(r.Line) == 0 {
		return encode(&r.Event)
	}
	return r.Line, nil
}

// UnmarshalJSON reads a line as Parse does.
func (r *Record) UnmarshalJSON(line []byte) (err error) {
	r.Line = bytes.Clone(line)
	r.Event, err = Parse(r.Line)
	return err
}

// may rules lines out that need not be read as JSON.
func (q *Query) may(line []byte) bool {
	return q.Run == "" || bytes.Contains(line, []byte(`"run":`+string(quoted(q.Run))))
}

// quoted is a text as it stands in a record.
func quoted(s string) []byte {
	var b bytes.Buffer
	encoder := json.NewEncoder(&b)
	encoder.SetEscapeHTML(false)
	if encoder.Encode(s) != nil {
		return []byte(`""`) // no string fails
	}
	return bytes.TrimSuffix(b.Bytes(), []byte("\n"))
}

// Match tells whether a record is chosen.
func (q *Query) Match(r *Record) bool {
	switch {
	case q.Run != "" && r.Run != q.Run,
		len(q.Kinds) > 0 && !slices.Contains(q.Kinds, r.Kind),
		!q.Since.IsZero() && r.Time.Before(q.Since),
		!q.Until.IsZero() && !r.Time.Before(q.Until),
		q.Verdict != "" && r.Verdict() != q.Verdict,
		q.Text != "" && !strings.Contains(strings.ToLower(string(r.Line)), strings.ToLower(string(inner(q.Text)))):
		return false
	}
	if q.Skill == "" {
		return true
	}
	return r.Skill != nil && (r.Skill.Name == q.Skill || len(q.Skill) >= 8 && strings.HasPrefix(r.Skill.Digest, q.Skill))
}

// inner is a text as it stands between the quotes of a record.
func inner(text string) []byte {
	whole := quoted(Clean(text, MaxRecord))
	return whole[1 : len(whole)-1]
}

// Verdict is what the event comes to: a run's verdict at its end, refused for one that did not start, and allowed, denied or failed of
// what was tried; "" of all else.
func (e *Event) Verdict() string {
	switch d := e.Detail.(type) {
	case Ended:
		return d.Verdict
	case Refused:
		return "refused"
	}
	if o := e.Outcome(); o != nil {
		return o.Verdict
	}
	return ""
}

// Outcome is what became of what was tried, where the event is of that sort, else nil.
func (e *Event) Outcome() *Outcome {
	switch d := e.Detail.(type) {
	case Refused:
		return &d.Outcome
	case Exec:
		return &d.Outcome
	case File:
		return &d.Outcome
	case Syscall:
		return &d.Outcome
	case DNS:
		return &d.Outcome
	case Connection:
		return &d.Outcome
	case Env:
		return &d.Outcome
	case Limit:
		return &d.Outcome
	}
	return nil
}
