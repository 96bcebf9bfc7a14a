package engine

import (
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"

	"skillbox/helper"
)

// table is a table of the document. What nobody has asked for is left over in the end.
type table struct {
	d      *document
	path   []string
	values map[string]any
	known  []string
}

// place is an empty text that stands where the key does, or the table itself.
func (t *table) place(name ...string) text {
	path := append(append([]string{}, t.path...), name...)
	at := text{file: t.d.file, field: dotted(path)}
	for n := len(path); n > 0; n-- {
		if found, ok := t.d.places[strings.Join(path[:n], "\x00")]; ok {
			at.line, at.column = found[0], found[1]
			break
		}
	}
	return at
}

// dotted is a path as it is written: skills.ffmpeg.docker.volumes[1].
func dotted(path []string) string {
	var b strings.Builder
	for i, word := range path {
		_, err := strconv.Atoi(word)
		switch {
		case err == nil && i > 0:
			b.WriteString("[" + word + "]")
			continue
		case i > 0:
			b.WriteByte('.')
		}
		b.WriteString(strings.Map(func(c rune) rune {
			if c < ' ' || c == 0x7F {
				return '?'
			}
			return c
		}, word))
	}
	return b.String()
}

func kindOf(v any) string {
	switch v.(type) {
	case string:
		return "text"
	case bool:
		return "true or false"
	case int64, float64:
		return "a number"
	case []any:
		return "a list"
	case map[string]any:
		return "a table"
	}
	return "a date"
}

func (t *table) wrong(want string, v any, name ...string) *helper.Error {
	return t.place(name...).fail(fmt.Sprintf("must be %s, not %s", want, kindOf(v)), "")
}

// text reads a value that is text.
func (t *table) text(name string) (text, error) {
	t.known = append(t.known, name)
	v, ok := t.values[name]
	if !ok {
		return text{}, nil
	}
	s, ok := v.(string)
	if !ok {
		return text{}, t.wrong("text", v, name)
	}
	at := t.place(name)
	at.text, at.there = s, true
	return at, nil
}

// boolean reads true or false, as these words.
func (t *table) boolean(name string) (text, error) {
	t.known = append(t.known, name)
	v, ok := t.values[name]
	if !ok {
		return text{}, nil
	}
	b, ok := v.(bool)
	if !ok {
		return text{}, t.wrong("true or false", v, name)
	}
	at := t.place(name)
	at.text, at.there = strconv.FormatBool(b), true
	return at, nil
}

// texts reads a list of texts; named is false where the key is not there.
func (t *table) texts(name string) (list []text, named bool, err error) {
	t.known = append(t.known, name)
	v, ok := t.values[name]
	if !ok {
		return nil, false, nil
	}
	items, ok := v.([]any)
	if !ok {
		return nil, false, t.wrong("a list of texts", v, name)
	}
	for i, item := range items {
		s, ok := item.(string)
		if !ok {
			return nil, false, t.wrong("text", item, name, strconv.Itoa(i))
		}
		at := t.place(name, strconv.Itoa(i))
		at.text, at.there = s, true
		list = append(list, at)
	}
	return list, true, nil
}

// table reads a table; it is empty, and not nil, where the key is not there.
func (t *table) table(name string) (*table, error) {
	t.known = append(t.known, name)
	sub := &table{d: t.d, path: append(append([]string{}, t.path...), name)}
	v, ok := t.values[name]
	if !ok {
		return sub, nil
	}
	if sub.values, ok = v.(map[string]any); !ok {
		return nil, t.wrong("a table", v, name)
	}
	return sub, nil
}

// pairs reads a table of texts.
func (t *table) pairs(name string) (map[string]text, error) {
	sub, err := t.table(name)
	if err != nil {
		return nil, err
	}
	pairs := map[string]text{}
	for key := range sub.values {
		if pairs[key], err = sub.text(key); err != nil {
			return nil, err
		}
	}
	return pairs, nil
}

// rest are the keys that nobody has asked for.
func (t *table) rest() []string {
	return slices.DeleteFunc(slices.Sorted(maps.Keys(t.values)), func(name string) bool { return slices.Contains(t.known, name) })
}
