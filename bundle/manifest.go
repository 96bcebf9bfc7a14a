package bundle

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math"
	"slices"
	"strings"
	"unicode"
	"unicode/utf8"

	"go.yaml.in/yaml/v4"
	"go.yaml.in/yaml/v4/plugin/loaderlimits"
)

// Bounds of what a manifest may be. A JSON Schema nests deeper than a policy, hence the depth.
const (
	maxManifest = 256 << 10
	maxDepth    = 64
	maxName     = 200
)

// doc is one manifest as a tree of nodes, and the file name its errors carry.
type doc struct {
	file string
	root *yaml.Node // a mapping
}

// parse reads data as exactly one YAML document, a mapping. Whatever makes the text mean something else than what it shows is refused
// everywhere in it: anchors, aliases, merge keys, tags of somebody's own, duplicate keys.
func parse(file string, data []byte) (*doc, error) {
	d := &doc{file: file}
	if !utf8.Valid(data) {
		return nil, d.errorf(nil, "", "the file is not valid UTF-8")
	}
	loader, err := yaml.NewLoader(bytes.NewReader(data), yaml.WithPlugin(loaderlimits.New(loaderlimits.DepthValue(maxDepth))))
	if err != nil {
		return nil, d.syntaxError(err)
	}
	var n yaml.Node
	switch err := loader.Load(&n); {
	case errors.Is(err, io.EOF):
		return nil, d.errorf(nil, "", "the file is empty")
	case err != nil:
		return nil, d.syntaxError(err)
	}
	var next yaml.Node
	switch err := loader.Load(&next); {
	case err == nil:
		return nil, d.errorf(&next, "", "a second document begins here, and only one is read")
	case !errors.Is(err, io.EOF):
		return nil, d.syntaxError(err)
	}
	root := &n
	if root.Kind == yaml.DocumentNode {
		if len(root.Content) != 1 {
			return nil, d.errorf(nil, "", "the file is empty")
		}
		root = root.Content[0]
	}
	if root.Kind == yaml.ScalarNode && root.ShortTag() == "!!null" {
		return nil, d.errorf(nil, "", "the file is empty")
	}
	d.root = root
	if err := d.plain(root, "", 0); err != nil {
		return nil, err
	}
	if root.Kind != yaml.MappingNode {
		return nil, d.errorf(root, "", "expected keys and values, found %s", kindName(root))
	}
	return d, nil
}

// plain checks n and everything below it for what parse promises.
func (d *doc) plain(n *yaml.Node, field string, depth int) error {
	switch {
	case depth > maxDepth:
		return d.errorf(n, field, "nested deeper than %d levels", maxDepth)
	case n.Kind == yaml.AliasNode:
		return d.errorf(n, field, "aliases are not supported: write the value out")
	case n.Anchor != "":
		return d.errorf(n, field, "anchors are not supported: write the value out")
	case !slices.Contains([]string{"!!map", "!!seq", "!!str", "!!int", "!!float", "!!bool", "!!null", "!!timestamp"}, n.ShortTag()):
		return d.errorf(n, field, "the tag %s is not supported", join("", n.ShortTag()))
	}
	switch n.Kind {
	case yaml.MappingNode:
		return d.plainMapping(n, field, depth)
	case yaml.SequenceNode:
		for i, c := range n.Content {
			if err := d.plain(c, fmt.Sprintf("%s[%d]", field, i), depth+1); err != nil {
				return err
			}
		}
	}
	return nil
}

func (d *doc) plainMapping(n *yaml.Node, field string, depth int) error {
	seen := make(map[string]int, len(n.Content)/2)
	for i := 0; i+1 < len(n.Content); i += 2 {
		k, v := n.Content[i], n.Content[i+1]
		if k.Kind == yaml.AliasNode || k.Anchor != "" {
			return d.errorf(k, field, "anchors and aliases are not supported: write the value out")
		}
		if k.Kind != yaml.ScalarNode {
			return d.errorf(k, field, "a key must be one word or a quoted text, found %s", kindName(k))
		}
		if k.Value == "<<" {
			return d.errorf(k, field, "merge keys are not supported: write the values out")
		}
		if line, ok := seen[k.Value]; ok {
			return d.errorf(k, join(field, k.Value), "the key is there twice, first in line %d", line)
		}
		seen[k.Value] = k.Line
		if err := d.plain(k, field, depth+1); err != nil {
			return err
		}
		if err := d.plain(v, join(field, k.Value), depth+1); err != nil {
			return err
		}
	}
	return nil
}

// get returns the value of a key of the manifest's top level, and nil where it is absent or null.
func (d *doc) get(key string) *yaml.Node { return lookup(d.root, key) }

func lookup(mapping *yaml.Node, key string) *yaml.Node {
	if mapping == nil || mapping.Kind != yaml.MappingNode {
		return nil
	}
	for i := 0; i+1 < len(mapping.Content); i += 2 {
		if v := mapping.Content[i+1]; mapping.Content[i].Value == key && v.ShortTag() != "!!null" {
			return v
		}
	}
	return nil
}

// known refuses keys of the top level that are none of valid.
func (d *doc) known(valid ...string) error {
	for i := 0; i+1 < len(d.root.Content); i += 2 {
		k := d.root.Content[i]
		if slices.Contains(valid, k.Value) {
			continue
		}
		e := d.errorf(k, join("", k.Value), "unknown key")
		if near := nearest(k.Value, valid); near != "" {
			e.Hint = "did you mean " + near + "?"
		} else {
			e.Hint = "the keys are " + strings.Join(valid, ", ")
		}
		return e
	}
	return nil
}

// title returns the text of a key that names something: one line, at most maxName bytes. Numbers count as written, so that
// `version: 1.10` is "1.10". An absent key is "" unless required.
func (d *doc) title(key string, required bool) (string, error) {
	s, err := d.text(key, required)
	if err != nil || s == "" {
		return s, err
	}
	if len(s) > maxName {
		return "", d.errorf(d.get(key), key, "longer than %d bytes", maxName)
	}
	if !title(s) {
		return "", d.errorf(d.get(key), key, "contains a character that cannot be printed")
	}
	return s, nil
}

// title tells whether a text may be a name or a version: short, and printable on one line.
func title(s string) bool {
	return len(s) <= maxName && !strings.ContainsFunc(s, func(r rune) bool { return !unicode.IsPrint(r) })
}

// text returns the text of a key, lines and tabs allowed, without blanks around it.
func (d *doc) text(key string, required bool) (string, error) {
	n := d.get(key)
	if n == nil {
		if required {
			return "", d.errorf(nil, key, "the key is missing")
		}
		return "", nil
	}
	if n.Kind != yaml.ScalarNode {
		return "", d.errorf(n, key, "expected a text, found %s", kindName(n))
	}
	s := strings.TrimSpace(n.Value)
	if s == "" && required {
		return "", d.errorf(n, key, "must not be empty")
	}
	if strings.ContainsFunc(s, func(r rune) bool { return r != '\n' && r != '\t' && r != '\r' && unicode.IsControl(r) }) {
		return "", d.errorf(n, key, "contains a control character")
	}
	return s, nil
}

// schema returns the value of a key as JSON, nil when it is absent.
func (d *doc) schema(key string) (json.RawMessage, error) {
	n := d.get(key)
	if n == nil {
		return nil, nil
	}
	if n.Kind != yaml.MappingNode {
		return nil, d.errorf(n, key, "expected a JSON Schema, found %s", kindName(n))
	}
	return d.json(nil, n, key)
}

// json appends n to out as JSON, in the order in which it is written.
func (d *doc) json(out []byte, n *yaml.Node, field string) ([]byte, error) {
	var err error
	switch n.Kind {
	case yaml.MappingNode:
		out = append(out, '{')
		for i := 0; i+1 < len(n.Content); i += 2 {
			if i > 0 {
				out = append(out, ',')
			}
			out = append(appendJSONString(out, n.Content[i].Value), ':')
			if out, err = d.json(out, n.Content[i+1], join(field, n.Content[i].Value)); err != nil {
				return nil, err
			}
		}
		return append(out, '}'), nil
	case yaml.SequenceNode:
		out = append(out, '[')
		for i, c := range n.Content {
			if i > 0 {
				out = append(out, ',')
			}
			if out, err = d.json(out, c, fmt.Sprintf("%s[%d]", field, i)); err != nil {
				return nil, err
			}
		}
		return append(out, ']'), nil
	}
	return d.jsonScalar(out, n, field)
}

func (d *doc) jsonScalar(out []byte, n *yaml.Node, field string) ([]byte, error) {
	switch n.ShortTag() {
	case "!!null":
		return append(out, "null"...), nil
	case "!!int", "!!float", "!!bool":
		var v any
		if err := n.Decode(&v); err != nil {
			return nil, d.errorf(n, field, "is not a number")
		}
		if f, ok := v.(float64); ok && (math.IsNaN(f) || math.IsInf(f, 0)) {
			return nil, d.errorf(n, field, "JSON has no such number")
		}
		text, err := json.Marshal(v)
		if err != nil {
			return nil, d.errorf(n, field, "has no form in JSON")
		}
		return append(out, text...), nil
	}
	return appendJSONString(out, n.Value), nil
}

func appendJSONString(out []byte, s string) []byte {
	text, _ := json.Marshal(s) // a string always has a form
	return append(out, text...)
}

func (d *doc) errorf(n *yaml.Node, field, format string, args ...any) *Error {
	e := &Error{File: d.file, Field: field, Message: fmt.Sprintf(format, args...)}
	if n != nil {
		e.Line, e.Column = max(n.Line, 1), max(n.Column, 1)
	}
	return e
}

func (d *doc) syntaxError(err error) *Error {
	e := &Error{File: d.file, Message: escape(strings.TrimPrefix(err.Error(), "yaml: ")), err: err}
	var le *yaml.LoadError
	if errors.As(err, &le) {
		e.Line, e.Column, e.Message = max(le.Mark.Line, 1), max(le.Mark.Column, 1), escape(le.Message)
	}
	if strings.Contains(e.Message, "mapping values are not allowed") {
		e.Hint = "a text that contains a colon followed by a blank must be quoted"
	}
	return e
}

func kindName(n *yaml.Node) string {
	switch n.Kind {
	case yaml.MappingNode:
		return "keys and values"
	case yaml.SequenceNode:
		return "a list"
	}
	switch n.ShortTag() {
	case "!!null":
		return "nothing"
	case "!!str":
		return "a text"
	case "!!bool":
		return "true or false"
	case "!!timestamp":
		return "a date"
	}
	return "a number"
}

// join adds a key to a dotted field name, cut where a message would drown in it.
func join(field, key string) string {
	if len(key) > 64 {
		key = key[:64] + "…"
	}
	if field == "" {
		return escape(key)
	}
	return field + "." + escape(key)
}

// nearest returns the one of valid that word was most likely meant to be, "" when none is near.
func nearest(word string, valid []string) string {
	if len(word) > 64 {
		return ""
	}
	best, least := "", 1+max(1, len(word)/3)
	for _, v := range valid {
		if n := distance(word, v); n < least {
			best, least = v, n
		}
	}
	return best
}

// distance counts the letters to insert, delete or replace to make a out of b.
func distance(a, b string) int {
	row := make([]int, len(b)+1)
	for j := range row {
		row[j] = j
	}
	for i := range len(a) {
		diagonal := row[0]
		row[0] = i + 1
		for j := range len(b) {
			above := row[j+1]
			if a[i] == b[j] {
				row[j+1] = diagonal
			} else {
				row[j+1] = 1 + min(diagonal, above, row[j])
			}
			diagonal = above
		}
	}
	return row[len(b)]
}

func badWord(s string) bool {
	return s == "" || len(s) > maxName || strings.ContainsFunc(s, func(r rune) bool { return !unicode.IsPrint(r) })
}
