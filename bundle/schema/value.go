package schema

import (
	"encoding/json"
	"math"
	"reflect"
	"slices"
	"strconv"
	"strings"
)

// is says whether a value is of a type of JSON Schema; 1.0 is an integer.
func is(v any, kind string) bool {
	switch v := v.(type) {
	case nil:
		return kind == "null"
	case bool:
		return kind == "boolean"
	case string:
		return kind == "string"
	case []any:
		return kind == "array"
	case map[string]any:
		return kind == "object"
	case json.Number:
		if kind == "integer" {
			f, err := strconv.ParseFloat(string(v), 64)
			return err == nil && f == math.Trunc(f) || integral(string(v))
		}
		return kind == "number"
	}
	return false
}

// integral is for those that are too large for a float.
func integral(s string) bool { return s != "" && strings.Trim(s, "-0123456789") == "" }

// equal says whether two values are the same to JSON Schema: 1 and 1.0 are.
func equal(a, b any) bool {
	switch x := a.(type) {
	case json.Number:
		y, ok := b.(json.Number)
		return ok && number(x) == number(y)
	case []any:
		y, ok := b.([]any)
		return ok && slices.EqualFunc(x, y, equal)
	case map[string]any:
		y, ok := b.(map[string]any)
		if !ok || len(x) != len(y) {
			return false
		}
		for key, value := range x {
			if other, ok := y[key]; !ok || !equal(value, other) {
				return false
			}
		}
		return true
	}
	return reflect.DeepEqual(a, b)
}

// equal spends for a comparison before it is made.
func (c *checker) equal(a, b any) bool {
	if !c.spend(1) {
		return false
	}
	switch x := a.(type) {
	case string:
		y, ok := b.(string)
		return ok && len(x) == len(y) && c.text(x) && x == y
	case json.Number:
		y, ok := b.(json.Number)
		return ok && c.text(string(x)) && c.text(string(y)) && number(x) == number(y)
	case []any:
		y, ok := b.([]any)
		return ok && len(x) == len(y) && c.weigh(x) && c.weigh(y) && equal(x, y)
	case map[string]any:
		y, ok := b.(map[string]any)
		return ok && len(x) == len(y) && c.weigh(x) && c.weigh(y) && equal(x, y)
	}
	return equal(a, b)
}

// weigh spends for going through a value once, before that is done.
func (c *checker) weigh(v any) bool {
	if !c.spend(1) {
		return false
	}
	switch v := v.(type) {
	case string:
		return c.text(v)
	case json.Number:
		return c.text(string(v))
	case []any:
		return !slices.ContainsFunc(v, func(one any) bool { return !c.weigh(one) })
	case map[string]any:
		for key, one := range v {
			if !c.text(key) || !c.weigh(one) {
				return false
			}
		}
	}
	return true
}

// number is one text for each number, as far as a float or the way it is written tells them apart.
func number(n json.Number) string {
	if n == "-0" {
		return "0"
	}
	if integral(string(n)) {
		return string(n)
	}
	f, err := strconv.ParseFloat(string(n), 64)
	if err != nil || math.Abs(f) > 1<<53 || f != math.Trunc(f) {
		return strconv.FormatFloat(f, 'g', -1, 64)
	}
	return strconv.FormatInt(int64(f), 10)
}

// canonical is one text for each value.
func canonical(v any) string {
	text, _ := json.Marshal(normal(v)) // it came from JSON
	return string(text)
}

func normal(v any) any {
	switch v := v.(type) {
	case json.Number:
		return json.Number(number(v))
	case []any:
		all := make([]any, len(v))
		for i, one := range v {
			all[i] = normal(one)
		}
		return all
	case map[string]any:
		all := make(map[string]any, len(v))
		for key, one := range v {
			all[key] = normal(one)
		}
		return all
	}
	return v
}

// name says what kind of value it is.
func name(v any) string {
	switch v.(type) {
	case nil:
		return "null"
	case bool:
		return "true or false"
	case string:
		return "a text"
	case []any:
		return "a list"
	case map[string]any:
		return "an object"
	}
	return "a number"
}

// show is the value itself where it is short, else its kind.
func show(v any) string {
	const most = 60
	switch v := v.(type) {
	case []any, map[string]any:
		return name(v)
	case string:
		if len(v) > most { // a value can be megabytes, and asked for often
			return name(v)
		}
	}
	text, err := json.Marshal(v)
	if err != nil || len(text) > most {
		return name(v)
	}
	return string(text)
}

var typeWords = map[string]string{
	"string": "a text", "integer": "an integer", "number": "a number", "boolean": "true or false", "array": "a list", "object": "an object", "null": "null",
}

func oneOfTypes(types []string) string {
	words := make([]string, len(types))
	for i, t := range types {
		words[i] = typeWords[t]
	}
	return strings.Join(words, " or ")
}

func choices(values []any) string {
	if len(values) == 1 {
		return show(values[0])
	}
	var words []string
	for i, v := range values {
		if i == 12 {
			words = append(words, "…")
			break
		}
		words = append(words, show(v))
	}
	return "one of " + strings.Join(words, ", ")
}
