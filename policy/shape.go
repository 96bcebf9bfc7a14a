package policy

import (
	"fmt"
	"strconv"
	"strings"
	"time"

	"go.yaml.in/yaml/v4"
)

type object = map[string]any

// shape is what may stand as the value of a key: how it is read, written,
// described to an editor and compared.
type shape struct {
	accepts string // for a person: "a size, 64Ki to 64Gi"
	schema  object
	read    func(r *reader, at string, n *yaml.Node, into any)
	text    func(v any) string   // canonical YAML on one line; empty = leave the key out
	items   func(v any) []string // instead of text: one YAML flow value per list item
	rank    func(v any) float64  // narrow to wide; nil where values have no order
	copy    func(dst, src any)   // nil where the value is not one scalar
}

// scalar is a shape of one value of type T.
func scalar[T any](accepts string, schema object, parse func(*yaml.Node) (T, error), text func(T) string) shape {
	return shape{
		accepts: accepts,
		schema:  schema,
		read: func(r *reader, at string, n *yaml.Node, into any) {
			if !r.is(n, at, yaml.ScalarNode, accepts) {
				return
			}
			if n.Tag == "!!null" {
				r.fail(n, at, bad("leave the key out for the default", "has no value"))
				return
			}
			v, err := parse(n)
			if err != nil {
				r.fail(n, at, err)
				return
			}
			*into.(*T) = v
		},
		text: func(v any) string { return text(*v.(*T)) },
		copy: func(dst, src any) { *dst.(*T) = *src.(*T) },
	}
}

// word is the text of a scalar that YAML itself takes for text.
func word(n *yaml.Node) (string, error) {
	if n.Kind != yaml.ScalarNode {
		return "", bad("", "must be text, not %s", describe(n))
	}
	if n.Tag == "!!null" {
		return "", bad("", "has no value")
	}
	if n.Tag != "!!str" {
		return "", bad("put it in quotes", "%s is not text to YAML", show(n.Value))
	}
	return n.Value, nil
}

// number is the text of a scalar that is text or a number to YAML.
func number(n *yaml.Node) (string, error) {
	if n.Kind != yaml.ScalarNode {
		return "", bad("", "must be a number, not %s", describe(n))
	}
	switch n.Tag {
	case "!!int", "!!float", "!!str":
		return n.Value, nil
	}
	return "", bad("", "%s is not a number", show(n.Value))
}

func text(accepts, pattern string, check func(string) error) shape {
	return scalar(accepts, object{"type": "string", "pattern": pattern}, func(n *yaml.Node) (string, error) {
		s, err := word(n)
		if err != nil {
			return "", err
		}
		return s, check(s)
	}, func(s string) string {
		if s == "" {
			return ""
		}
		return quote(s)
	})
}

// choice is one of values, which stand from narrow to wide.
func choice(values ...string) shape {
	s := scalar(strings.Join(values, ", "), object{"enum": values}, func(n *yaml.Node) (string, error) {
		for _, v := range values {
			if n.Value == v && n.Tag == "!!str" {
				return v, nil
			}
		}
		hint := "one of " + strings.Join(values, ", ")
		if near := closest(n.Value, values); near != "" {
			hint = "did you mean " + near + "?"
		}
		return "", bad(hint, "%s is not known here", show(n.Value))
	}, func(s string) string { return s })
	s.rank = func(v any) float64 {
		for i, known := range values {
			if *v.(*string) == known {
				return float64(i)
			}
		}
		return -1
	}
	return s
}

func boolean() shape {
	s := scalar("true or false", object{"type": "boolean"}, func(n *yaml.Node) (bool, error) {
		if n.Tag != "!!bool" {
			return false, bad("write true or false", "%s is neither true nor false", show(n.Value))
		}
		return n.Value[0] == 't' || n.Value[0] == 'T', nil
	}, strconv.FormatBool)
	s.rank = func(v any) float64 {
		if *v.(*bool) {
			return 1
		}
		return 0
	}
	return s
}

func version() shape {
	return scalar("1", object{"const": 1}, func(n *yaml.Node) (int, error) {
		if n.Tag != "!!int" || n.Value != "1" {
			return 0, bad("write version: 1", "%s is not a version this skillbox knows", show(n.Value))
		}
		return 1, nil
	}, strconv.Itoa)
}

func integer(least, most int64) shape {
	accepts := fmt.Sprintf("a whole number, %d to %d", least, most)
	schema := object{"type": "integer", "minimum": least, "maximum": most}
	s := scalar(accepts, schema, func(n *yaml.Node) (int64, error) {
		if n.Tag != "!!int" || !decimal.MatchString(n.Value) {
			return 0, bad("digits only", "%s is not a whole number", show(n.Value))
		}
		v, err := strconv.ParseInt(n.Value, 10, 64)
		if err != nil || v < least || v > most {
			return 0, bad("", "%s is not within %d to %d", show(n.Value), least, most)
		}
		return v, nil
	}, func(v int64) string { return strconv.FormatInt(v, 10) })
	s.rank = func(v any) float64 { return float64(*v.(*int64)) }
	return s
}

// measured is a value with a unit, between two bounds that are part of its words.
func measured[T int64 | float64 | time.Duration](what string, least, most T, pattern string, parse func(string) (T, error), text func(T) string) shape {
	bounds := text(least) + " to " + text(most)
	schema := object{"type": []string{"string", "number"}, "pattern": pattern}
	s := scalar(what+", "+bounds, schema, func(n *yaml.Node) (T, error) {
		s, err := number(n)
		if err != nil {
			return 0, err
		}
		v, err := parse(s)
		if err == nil && (v < least || v > most) {
			err = bad("", "%s is not within %s", show(s), bounds)
		}
		return v, err
	}, text)
	s.rank = func(v any) float64 { return float64(*v.(*T)) }
	return s
}

func size(least, most int64) shape {
	s := measured("a size", least, most, `^[1-9][0-9]*(Ki|Mi|Gi|Ti|k|M|G|T)?$`, ParseSize, FormatSize)
	s.schema["type"] = []string{"string", "integer"}
	return s
}

func rate(least, most int64) shape {
	s := size(least, most)
	s.accepts = "a size per second" + strings.TrimPrefix(s.accepts, "a size")
	return s
}

// optional is s for a key without a default, where 0 stands for "not set" and cannot be written. In comparisons what is not set
// reaches as far as the value unset.
func optional(s shape, unset float64) shape {
	text, rank := s.text, s.rank
	s.text = func(v any) string {
		if *v.(*int64) == 0 {
			return ""
		}
		return text(v)
	}
	s.rank = func(v any) float64 {
		if *v.(*int64) == 0 {
			return unset
		}
		return rank(v)
	}
	return s
}

func cores(least, most float64) shape {
	return measured("cores", least, most, `^([0-9]+(\.[0-9]+)?|[0-9]+m)$`, parseCPU, formatCPU)
}

func duration(least, most time.Duration) shape {
	s := measured("a duration", least, most, `^([0-9]+(\.[0-9]+)?(ms|h|m|s))+$`, parseDuration, formatDuration)
	s.schema["type"] = "string"
	return s
}
