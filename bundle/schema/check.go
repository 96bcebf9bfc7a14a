package schema

import (
	"encoding/json"
	"fmt"
	"maps"
	"math"
	"slices"
	"strconv"
	"strings"
	"unicode/utf8"
)

// maxSteps bounds the work for one value: a schema of a stranger's may have exponentially many branches. It takes some tens of milliseconds.
const maxSteps = 200_000

// maxNesting bounds recursion; a schema may refer to itself without going deeper into the value.
const maxNesting = 1000

type checker struct{ steps int }

func (c *checker) spend(n int) bool {
	c.steps -= n
	return c.steps > 0
}

// check returns where v, which lies at a pointer, does not fit n.
func (c *checker) check(n *node, v any, at string, depth int) (found []Mismatch) {
	if depth > maxNesting {
		c.steps = 0
	}
	if !c.spend(1) {
		return nil
	}
	if n.never {
		return []Mismatch{{at, "nothing may be here"}}
	}
	if len(n.types) > 0 && !slices.ContainsFunc(n.types, func(t string) bool { return is(v, t) }) {
		return []Mismatch{{at, "expected " + oneOfTypes(n.types) + ", found " + show(v)}} // the rest would say the same again
	}
	if n.enum != nil && !slices.ContainsFunc(n.enum, func(e any) bool { return c.spend(1) && equal(e, v) }) {
		found = append(found, Mismatch{at, "expected " + choices(n.enum) + ", found " + show(v)})
	}
	found = append(found, c.counted(n, v, at)...)
	switch v := v.(type) {
	case map[string]any:
		found = append(found, c.object(n, v, at, depth)...)
	case []any:
		found = append(found, c.array(n, v, at, depth)...)
	case string:
		if n.pattern != nil && c.spend(len(v)/64+1) && !n.pattern.MatchString(v) {
			found = append(found, Mismatch{at, fmt.Sprintf("expected a text that matches %s, found %s", n.pattern, show(v))})
		}
	}
	return append(found, c.combined(n, v, at, depth)...)
}

// counted looks at the bounds.
func (c *checker) counted(n *node, v any, at string) (found []Mismatch) {
	for _, b := range n.bounds {
		var size float64
		switch v := v.(type) {
		case json.Number:
			if b.of != "number" {
				continue
			}
			size, _ = strconv.ParseFloat(string(v), 64)
		case string:
			if b.of != "length" || !c.spend(len(v)/64+1) {
				continue
			}
			size = float64(utf8.RuneCountInString(v))
		case []any:
			if b.of != "items" {
				continue
			}
			size = float64(len(v))
		case map[string]any:
			if b.of != "properties" {
				continue
			}
			size = float64(len(v))
		default:
			continue
		}
		if !b.holds(size) {
			found = append(found, Mismatch{at, b.message(size, v)})
		}
	}
	return found
}

func (b bound) holds(size float64) bool {
	switch b.kind {
	case "least":
		return size >= b.limit
	case "most":
		return size <= b.limit
	case "above":
		return size > b.limit
	case "below":
		return size < b.limit
	}
	// Decimal fractions are not exact in binary: 0.3 is a multiple of 0.1.
	q := size / b.limit
	return math.Abs(q-math.Round(q)) <= 1e-9*max(1, math.Abs(q))
}

func (b bound) message(size float64, v any) string {
	word := map[string]string{"least": "at least ", "most": "at most ", "above": "more than ", "below": "less than ", "multiple": "a multiple of "}[b.kind]
	limit := strconv.FormatFloat(b.limit, 'g', -1, 64)
	if b.of == "number" {
		return "expected " + word + limit + ", found " + show(v)
	}
	unit := map[string]string{"length": "characters", "items": "items", "properties": "keys"}[b.of]
	return fmt.Sprintf("expected %s%s %s, found %g", word, limit, unit, size)
}

func (c *checker) object(n *node, v map[string]any, at string, depth int) (found []Mismatch) {
	for _, key := range n.required {
		if _, ok := v[key]; !ok {
			found = append(found, Mismatch{at + "/" + escape(key), "is required and missing"})
		}
	}
	for _, key := range slices.Sorted(maps.Keys(v)) {
		below := at + "/" + escape(key)
		if n.propertyNames != nil {
			for _, m := range c.check(n.propertyNames, key, "", depth+1) {
				found = append(found, Mismatch{below, "the key: " + m.Message})
			}
		}
		one, listed := n.properties[key]
		if listed {
			found = append(found, c.check(one, v[key], below, depth+1)...)
		}
		for _, p := range n.patterns {
			if c.spend(len(key)/64+1) && p.name.MatchString(key) {
				listed = true
				found = append(found, c.check(p.schema, v[key], below, depth+1)...)
			}
		}
		if !listed && n.additional != nil {
			if n.additional.never {
				found = append(found, Mismatch{below, "there is no such key" + known(n)})
				continue
			}
			found = append(found, c.check(n.additional, v[key], below, depth+1)...)
		}
	}
	for _, key := range slices.Sorted(maps.Keys(n.dependent)) {
		if _, ok := v[key]; ok {
			found = append(found, c.check(n.dependent[key], v, at, depth+1)...)
		}
	}
	return found
}

// known lists the keys that there are.
func known(n *node) string {
	keys := slices.Sorted(maps.Keys(n.properties))
	if len(keys) == 0 || len(keys) > 12 {
		return ""
	}
	return "; there are " + strings.Join(keys, ", ")
}

func (c *checker) array(n *node, v []any, at string, depth int) (found []Mismatch) {
	seen, contained := map[string]int{}, n.contains == nil
	for i, one := range v {
		below := at + "/" + strconv.Itoa(i)
		switch {
		case i < len(n.prefix):
			found = append(found, c.check(n.prefix[i], one, below, depth+1)...)
		case n.items != nil && n.items.never:
			return append(found, Mismatch{at, fmt.Sprintf("expected at most %d items, found %d", len(n.prefix), len(v))})
		case n.items != nil:
			found = append(found, c.check(n.items, one, below, depth+1)...)
		}
		if !contained {
			contained = len(c.check(n.contains, one, below, depth+1)) == 0
		}
		if n.unique && c.spend(1) {
			key := canonical(one)
			if first, twice := seen[key]; twice {
				found = append(found, Mismatch{below, fmt.Sprintf("is the same as item %d, and each must be another", first)})
			}
			seen[key] = i
		}
		if c.steps <= 0 {
			return nil
		}
	}
	if !contained {
		found = append(found, Mismatch{at, "holds no item of the kind that it must (contains)"})
	}
	return found
}

// combined looks at schemas that apply to the same value.
func (c *checker) combined(n *node, v any, at string, depth int) (found []Mismatch) {
	for _, one := range n.all {
		found = append(found, c.check(one, v, at, depth+1)...)
	}
	if len(n.any) > 0 {
		if _, nearest := c.fitting(n.any, v, at, depth, 1); nearest != nil {
			found = append(found, nearest...)
		}
	}
	if len(n.one) > 0 {
		switch fit, nearest := c.fitting(n.one, v, at, depth, 2); {
		case nearest != nil:
			found = append(found, nearest...)
		case fit > 1:
			found = append(found, Mismatch{at, "fits more than one of the forms of which it must have one (oneOf)"})
		}
	}
	if n.not != nil && len(c.check(n.not, v, at, depth+1)) == 0 {
		found = append(found, Mismatch{at, "is what it must not be (not)"})
	}
	if n.test != nil {
		next := n.els
		if len(c.check(n.test, v, at, depth+1)) == 0 {
			next = n.then
		}
		if next != nil {
			found = append(found, c.check(next, v, at, depth+1)...)
		}
	}
	return found
}

// fitting counts the schemas that v fits, up to most; where it fits none, it returns what the one says that v is nearest to.
func (c *checker) fitting(nodes []*node, v any, at string, depth, most int) (fit int, nearest []Mismatch) {
	for _, one := range nodes {
		found := c.check(one, v, at, depth+1)
		if len(found) == 0 {
			if fit++; fit == most {
				break
			}
			continue
		}
		if nearest == nil || deepest(found) > deepest(nearest) || deepest(found) == deepest(nearest) && len(found) < len(nearest) {
			nearest = found
		}
	}
	if fit > 0 || c.steps <= 0 {
		return fit, nil
	}
	first := nearest[0]
	rest := ""
	if first.Pointer != at {
		rest = strings.TrimPrefix(first.Pointer, at) + ": "
	}
	return 0, []Mismatch{{at, fmt.Sprintf("fits none of its %d forms; the nearest says %s%s", len(nodes), rest, first.Message)}}
}

func deepest(found []Mismatch) (n int) {
	for _, m := range found {
		n = max(n, strings.Count(m.Pointer, "/"))
	}
	return n
}
