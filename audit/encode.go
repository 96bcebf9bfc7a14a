package audit

import (
	"bytes"
	"encoding/json"
	"fmt"
	"reflect"
	"strconv"
	"strings"
	"sync"
	"time"
)

// encode writes an event as one line without its newline: what encoding/json makes of it (EscapeHTML off), byte for byte, with keys in the order
// of the struct, so that the same event is the same bytes. A call leaves a dozen records and an observed one thousands; json's own way took most
// of what the log cost.
func encode(e *Event) ([]byte, error) { return new(encoder).encode(e) }

// encoder remembers of the event before what is the same in all of a run's.
type encoder struct {
	run, host string
	caller    *Caller
	skill     *Skill
	about     []byte // these, as they stand in a line
	line      []byte // the last one; the next takes its place
}

// encode returns a line that holds until the next call.
func (c *encoder) encode(e *Event) ([]byte, error) {
	b := c.line[:0]
	if b == nil {
		b = make([]byte, 0, 1024)
	}
	b = strconv.AppendInt(append(b, `{"v":`...), int64(e.V), 10)
	b = strconv.AppendUint(append(b, `,"seq":`...), e.Seq, 10)
	b = appendText(append(b, `,"prev":`...), e.Prev)
	if y := e.Time.Year(); y < 0 || y > 9999 {
		return nil, fmt.Errorf("audit: record: a time in the year %d", y)
	}
	b = e.Time.AppendFormat(append(b, `,"time":"`...), time.RFC3339Nano)
	b = strconv.AppendInt(append(b, `","mono":`...), e.Mono, 10)
	b = appendText(append(b, `,"kind":`...), string(e.Kind))
	if c.about == nil || e.Run != c.run || e.Host != c.host || e.Caller != c.caller || e.Skill != c.skill {
		if err := c.remember(e); err != nil {
			return nil, err
		}
	}
	b = append(append(b, c.about...), `,"detail":`...)
	v := reflect.ValueOf(e.Detail)
	if !v.IsValid() {
		c.line = append(b, "null}"...)
		return c.line, nil
	}
	b, err := appendStruct(b, reflect.Indirect(v))
	c.line = append(b, '}')
	return c.line, err
}

func (c *encoder) remember(e *Event) (err error) {
	c.run, c.host, c.caller, c.skill = e.Run, e.Host, e.Caller, e.Skill
	b := c.about[:0]
	if e.Run != "" {
		b = appendText(append(b, `,"run":`...), e.Run)
	}
	b = appendText(append(b, `,"host":`...), e.Host)
	if e.Caller != nil {
		b, err = appendStruct(append(b, `,"caller":`...), reflect.ValueOf(e.Caller).Elem())
	}
	if e.Skill != nil && err == nil {
		b, err = appendStruct(append(b, `,"skill":`...), reflect.ValueOf(e.Skill).Elem())
	}
	c.about = b
	return err
}

// plan is one key of a struct, found once for each type.
type plan struct {
	index []int
	key   string // with quotes and colon
	omit  bool   // where it is empty
	max   int    // see maxText
	kind  reflect.Kind
}

// plans keeps what reflection says of a type, which does not change.
var plans sync.Map

func plansOf(t reflect.Type) []plan {
	if known, ok := plans.Load(t); ok {
		return known.([]plan)
	}
	var all []plan
	for _, f := range reflect.VisibleFields(t) {
		if f.Anonymous {
			continue
		}
		name, rest, _ := strings.Cut(f.Tag.Get("json"), ",")
		all = append(all, plan{f.Index, `"` + name + `":`, strings.Contains(rest, "omit"), maxText(f), f.Type.Kind()})
	}
	plans.Store(t, all)
	return all
}

// appendStruct writes a struct of texts, numbers, lists of texts, counts, and structs of these.
func appendStruct(b []byte, v reflect.Value) (_ []byte, err error) {
	b = append(b, '{')
	first := true
	for _, p := range plansOf(v.Type()) {
		field := v.FieldByIndex(p.index)
		if p.omit && (field.IsZero() || (p.kind == reflect.Slice || p.kind == reflect.Map) && field.Len() == 0) {
			continue
		}
		if !first {
			b = append(b, ',')
		}
		first = false
		b = append(b, p.key...)
		switch p.kind {
		case reflect.String:
			b = appendText(b, field.String())
		case reflect.Int, reflect.Int64:
			b = strconv.AppendInt(b, field.Int(), 10)
		case reflect.Uint64:
			b = strconv.AppendUint(b, field.Uint(), 10)
		case reflect.Struct:
			b, err = appendStruct(b, field)
		default:
			b, err = appendAny(b, field.Interface())
		}
		if err != nil {
			return nil, err
		}
	}
	return append(b, '}'), nil
}

// appendText writes a text in quotes. Clean ones are short work.
func appendText(b []byte, text string) []byte {
	for i := range len(text) {
		if c := text[i]; c < ' ' || c > '~' {
			with, err := appendAny(b, text)
			if err != nil {
				return append(b, `""`...) // no string fails
			}
			return with
		}
	}
	b = append(b, '"')
	for i := range len(text) {
		if c := text[i]; c == '"' || c == '\\' {
			b = append(b, '\\')
		}
		b = append(b, text[i])
	}
	return append(b, '"')
}

// appendAny is encoding/json's word.
func appendAny(b []byte, v any) ([]byte, error) {
	var text bytes.Buffer
	encoder := json.NewEncoder(&text)
	encoder.SetEscapeHTML(false) // it is not for a web page, and < would become six bytes
	if err := encoder.Encode(v); err != nil {
		return nil, fmt.Errorf("audit: record: %w", err)
	}
	return append(b, bytes.TrimSuffix(text.Bytes(), []byte("\n"))...), nil
}
