// Package schema checks a JSON value against a JSON Schema and says where it does not fit, by JSON Pointer and in words for the person who
// wrote the value. It reads what manifests of skills use: JSON Schema 2020-12, the spellings that draft-04 to draft-07 had for the same
// (definitions, tuples in items, dependencies, a boolean exclusiveMinimum), and references within the schema.
//
// What a schema asks for and this package does not check is never a mismatch and never passed over in silence: Unchecked names it.
// As the standard leaves it, format says something about a value and refuses none.
package schema

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"strings"
)

// Schema is one that was compiled. It is immutable: many may check with it at a time.
type Schema struct {
	// Unchecked are the places of the schema that values are not checked for, and why, in the order of their pointers:
	// keywords that this package does not know how to check, and those that are not as the standard wants them. Of very many, the first.
	Unchecked []string

	root *node
}

// node is one schema of the tree. A zero field asks for nothing.
type node struct {
	never bool // the schema false

	types    []string
	enum     []any // nil for none; const is an enum of one
	required []string

	properties    map[string]*node
	patterns      []patterned
	additional    *node
	propertyNames *node
	dependent     map[string]*node // where the property is there, the whole fits this too

	prefix   []*node
	items    *node // of those after prefix
	contains *node
	unique   bool

	all, any, one []*node
	not           *node
	test          *node // if
	then, els     *node

	bounds  []bound
	pattern *pattern
}

type patterned struct {
	name   *pattern
	schema *node
}

// Compile reads a schema. An error says that it is no schema at all, or one of a size that no parameters need; what is wrong with a part of it is in Unchecked.
func Compile(text json.RawMessage) (*Schema, error) {
	doc, err := decode(text)
	if err != nil {
		return nil, fmt.Errorf("schema: %w", err)
	}
	switch doc.(type) {
	case map[string]any, bool:
	default:
		return nil, fmt.Errorf("schema: expected an object, found %s", name(doc))
	}
	c := &compiler{doc: doc, known: map[string]*node{}}
	root := c.schema("", doc)
	if c.err != nil {
		return nil, c.err
	}
	return &Schema{Unchecked: c.unchecked, root: root}, nil
}

// decode reads exactly one JSON value, with its numbers as they are written.
func decode(text []byte) (v any, err error) {
	d := json.NewDecoder(bytes.NewReader(text))
	d.UseNumber()
	if err := d.Decode(&v); err != nil {
		if errors.Is(err, io.EOF) {
			err = errors.New("there is nothing")
		}
		return nil, err
	}
	if _, err := d.Token(); !errors.Is(err, io.EOF) {
		return nil, errors.New("something follows the value")
	}
	return v, nil
}

// Mismatch is one place of a value that does not fit.
type Mismatch struct {
	Pointer string // JSON Pointer (RFC 6901); "" is the whole value
	Message string // what was expected there, and what was found
}

func (m Mismatch) String() string {
	if m.Pointer == "" {
		return m.Message
	}
	return m.Pointer + ": " + m.Message
}

// Error is why a value does not fit, in one line.
type Error struct {
	Mismatches []Mismatch // at least one
	More       bool       // there are more, which nobody collected
}

const (
	maxShown      = 5
	maxMismatches = 100
)

func (e *Error) Error() string {
	var parts []string
	for i, m := range e.Mismatches {
		if i == maxShown {
			rest := fmt.Sprintf("and %d more", len(e.Mismatches)-i)
			if e.More {
				rest = fmt.Sprintf("and more than %d more", len(e.Mismatches)-i)
			}
			parts = append(parts, rest)
			break
		}
		parts = append(parts, m.String())
	}
	return strings.Join(parts, "; ")
}

// ErrCostly says that a schema asks for more work than a few parameters are worth.
var ErrCostly = errors.New("schema: checking the value takes too many steps")

// Check returns nil where the JSON text fits, an *Error where it does not, and another error where it is not JSON or ErrCostly.
func (s *Schema) Check(text []byte) error {
	v, err := decode(text)
	if err != nil {
		return err
	}
	c := &checker{steps: maxSteps}
	found := c.check(s.root, v, "", 0)
	switch {
	case c.steps <= 0:
		return ErrCostly
	case len(found) > maxMismatches:
		return &Error{found[:maxMismatches], true}
	case len(found) > 0:
		return &Error{found, false}
	}
	return nil
}
