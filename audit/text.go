package audit

import (
	"fmt"
	"maps"
	"math"
	"reflect"
	"slices"
	"strconv"
	"strings"
	"unicode"
	"unicode/utf8"
)

const (
	// MaxRecord is how many bytes one line may have, its newline not counted.
	MaxRecord = 16 << 10
	// defaultText is how many bytes a text may have where its field has no tag max.
	defaultText = 1024
	// maxItems is how many items a list may have, and the last one says how many there were.
	maxItems = 64
	// markLength is the most that the mark of a cut text adds.
	markLength = len(`\…(18446744073709551615 bytes)`)
)

// Clean makes a stranger's text safe to show and to store. What a terminal, a log viewer or an editor would obey or hide (control
// characters, bidirectional overrides, invisible ones, spaces other than the common one) is written out: \u001b, \U000e0041, bytes
// that are no UTF-8 as \xff. A backslash becomes two, so that nothing written out can be taken for the text itself. What is longer
// than max bytes is cut, with a mark that no text can contain: \…(5000 bytes).
func Clean(text string, max int) string { return writeOut(text, max, `\\`) }

// Show is Clean for a text that may have been cleaned before, such as one of a record: a backslash stays one, so that what was written out
// stands as it does in the log. Nothing is cut.
func Show(text string) string { return writeOut(text, math.MaxInt, `\`) }

func writeOut(text string, max int, backslash string) string {
	if len(text) <= max && plain(text) {
		return text
	}
	var b strings.Builder
	for i := 0; i < len(text); {
		r, size := utf8.DecodeRuneInString(text[i:])
		at := b.Len()
		word := text[i : i+size]
		switch {
		case r == utf8.RuneError && size == 1:
			word = fmt.Sprintf(`\x%02x`, text[i])
		case r == '\\':
			word = backslash
		case unsafeRune(r) && r > 0xffff:
			word = fmt.Sprintf(`\U%08x`, r)
		case unsafeRune(r):
			word = fmt.Sprintf(`\u%04x`, r)
		}
		if at+len(word) > max {
			return fmt.Sprintf(`%s\…(%d bytes)`, b.String(), len(text))
		}
		b.WriteString(word)
		i += size
	}
	return b.String()
}

// plain is for most texts: they stay as they are.
func plain(text string) bool {
	for i := range len(text) {
		if c := text[i]; c < ' ' || c > '~' || c == '\\' {
			return false
		}
	}
	return true
}

// unsafeRune tells what is no visible character of its own. Letters that fonts show as nothing are among them.
func unsafeRune(r rune) bool {
	return !unicode.IsPrint(r) || unicode.Is(unicode.Other_Default_Ignorable_Code_Point, r) || unicode.Is(unicode.Variation_Selector, r) || r == '\u2800'
}

// bounds say how far texts and lists are cut.
type bounds struct{ text, items int }

// tighter are tried in turn until a record fits into MaxRecord; the last one fits whatever a record holds.
var tighter = []bounds{{4096, maxItems}, {512, 16}, {64, 8}}

// clean makes every text of an event safe, in a copy.
func (e Event) clean() Event { return rewriting{Clean, tighter[0]}.event(e) }

// shorten cuts the texts of an event that is clean already.
func (e Event) shorten(to bounds) Event { return rewriting{cut, to}.event(e) }

// cut may leave half of a character that was written out, which is odd and no danger.
func cut(text string, max int) string {
	if len(text) <= max || strings.Contains(text, `\…`) && len(text) <= max+markLength {
		return text
	}
	for !utf8.RuneStart(text[max]) {
		max--
	}
	return fmt.Sprintf(`%s\…(%d bytes)`, text[:max], len(text))
}

// rewriting does the same to every text of an event.
type rewriting struct {
	text func(text string, max int) string
	to   bounds
}

func (w rewriting) event(e Event) Event {
	e.Host = w.text(e.Host, min(w.to.text, 256))
	e.Run = w.text(e.Run, 64)
	e.Caller, e.Skill = w.caller(e.Caller), w.skill(e.Skill)
	from := reflect.Indirect(reflect.ValueOf(e.Detail))
	detail := reflect.New(from.Type()).Elem()
	detail.Set(from)
	w.fields(detail)
	e.Detail = detail.Interface().(Detail)
	return e
}

func (w rewriting) caller(c *Caller) *Caller {
	if c == nil {
		return nil
	}
	copied := *c
	w.fields(reflect.ValueOf(&copied).Elem())
	return &copied
}

func (w rewriting) skill(s *Skill) *Skill {
	if s == nil {
		return nil
	}
	copied := *s
	w.fields(reflect.ValueOf(&copied).Elem())
	return &copied
}

func (w rewriting) fields(v reflect.Value) {
	for _, p := range plansOf(v.Type()) {
		field, limit := v.FieldByIndex(p.index), min(w.to.text, p.max)
		switch p.kind {
		case reflect.String:
			if old := field.String(); old != "" {
				if text := w.text(old, limit); text != old {
					field.SetString(text)
				}
			}
		case reflect.Slice:
			field.Set(reflect.ValueOf(w.list(field.Interface().([]string), limit)))
		case reflect.Map:
			field.Set(reflect.ValueOf(w.counts(field.Interface().(map[string]int64))))
		case reflect.Float64:
			if f := field.Float(); math.IsNaN(f) || math.IsInf(f, 0) {
				field.SetFloat(0) // JSON has no word for it
			}
		case reflect.Struct:
			w.fields(field)
		}
	}
}

func maxText(f reflect.StructField) int {
	if n, err := strconv.Atoi(f.Tag.Get("max")); err == nil {
		return n
	}
	return defaultText
}

func (w rewriting) list(list []string, max int) []string {
	if list == nil {
		return nil
	}
	out := make([]string, 0, min(len(list), w.to.items))
	for i, item := range list {
		if i == w.to.items-1 && len(list) > w.to.items {
			return append(out, fmt.Sprintf(`\…(%d items)`, len(list)))
		}
		out = append(out, w.text(item, max))
	}
	return out
}

// counts keeps what comes first in the alphabet, so that the same counts give the same record.
func (w rewriting) counts(counts map[string]int64) map[string]int64 {
	if counts == nil {
		return nil
	}
	names := slices.Sorted(maps.Keys(counts))
	out := make(map[string]int64, min(len(names), w.to.items))
	for _, name := range names[:min(len(names), w.to.items)] {
		out[w.text(name, 64)] += counts[name]
	}
	return out
}

// unclean returns a text that clean would not have left.
func unclean(e *Event) (text string, found bool) {
	var look func(v reflect.Value)
	look = func(v reflect.Value) {
		switch v.Kind() {
		case reflect.String:
			if s := v.String(); !found && strings.IndexFunc(s, unsafeRune) >= 0 || !utf8.ValidString(s) {
				text, found = s, true
			}
		case reflect.Slice:
			for i := range v.Len() {
				look(v.Index(i))
			}
		case reflect.Map:
			for _, key := range v.MapKeys() {
				look(key)
			}
		case reflect.Struct:
			for i := range v.NumField() {
				look(v.Field(i))
			}
		case reflect.Pointer, reflect.Interface:
			if !v.IsNil() {
				look(v.Elem())
			}
		}
	}
	for _, v := range []any{e.Host, e.Run, e.Caller, e.Skill, e.Detail} {
		look(reflect.ValueOf(v))
	}
	return text, found
}
