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

// maxSteps bounds the work for one value: a schema of a stranger's may have exponentially many branches. A step is a schema, an item, a key, or
// 64 bytes of a text; all take some tenths of a second, or in patterns a second.
const maxSteps = 500_000

// maxNesting bounds recursion; a schema may refer to itself without going deeper into the value.
const maxNesting = 1000

type checker struct{ steps int }

func (c *checker) spend(n int) bool {
	c.steps -= n
	return c.steps > 0
}

// text spends for reading a text once.
func (c *checker) text(s string) bool { return c.spend(len(s) / 64) }

// matches spends for a match in the time that it may take: each character moves each instruction at the worst.
func (c *checker) matches(p *pattern, s string) bool {
	return c.spend(1+len(s)/64+p.size*len(s)/stepMatch) && p.MatchString(s)
}

// stepMatch is how many bytes times instructions of a pattern are a step.
const stepMatch = 512

// below is the pointer of a part of what lies at another, or nothing once the steps are spent.
func (c *checker) below(at, key string) (pointer string, ok bool) {
	if !c.spend(1 + (len(at)+len(key))/64) {
		return "", false
	}
	return at + "/" + escape(key), true
}

// keys are those of a map in their order.
func keys[V any](c *checker, m map[string]V) []string {
	for key := range m {
		if !c.spend(1) || !c.text(key) {
			return nil
		}
	}
	return slices.Sorted(maps.Keys(m))
}

// add collects mismatches, one more than are told.
func add(found []Mismatch, more ...Mismatch) []Mismatch {
	return append(found, more[:min(len(more), maxMismatches+1-len(found))]...)
}

func full(found []Mismatch) bool { return len(found) > maxMismatches }

// check returns where v, which lies at a pointer, does not fit n.
func (c *checker) check(n *node, v any, at string, depth int) (found []Mismatch) {
	if depth > maxNesting {
		c.steps = 0
	}
	if !c.spend(1) {
		return nil
	}
	if number, ok := v.(json.Number); ok && !c.text(string(number)) {
		return nil
	}
	if n.never {
		return []Mismatch{{at, "nothing may be here"}}
	}
	if len(n.types) > 0 && !slices.ContainsFunc(n.types, func(t string) bool { return is(v, t) }) {
		return []Mismatch{{at, "expected " + oneOfTypes(n.types) + ", found " + show(v)}} // the rest would say the same again
	}
	if n.enum != nil && !slices.ContainsFunc(n.enum, func(e any) bool { return c.equal(e, v) }) {
		found = add(found, Mismatch{at, "expected " + choices(n.enum) + ", found " + show(v)})
	}
	found = add(found, c.counted(n, v, at)...)
	switch v := v.(type) {
	case map[string]any:
		found = add(found, c.object(n, v, at, depth)...)
	case []any:
		found = add(found, c.array(n, v, at, depth)...)
	case string:
		if n.pattern != nil && !c.matches(n.pattern, v) && c.text(n.pattern.String()) {
			found = add(found, Mismatch{at, fmt.Sprintf("expected a text that matches %s, found %s", n.pattern, show(v))})
		}
	}
	return add(found, c.combined(n, v, at, depth)...)
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
			found = add(found, Mismatch{at, b.message(size, v)})
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
		if full(found) || !c.spend(1) || !c.text(key) {
			return found
		}
		if _, ok := v[key]; ok {
			continue
		}
		below, ok := c.below(at, key)
		if !ok {
			return found
		}
		found = add(found, Mismatch{below, "is required and missing"})
	}
	if n.propertyNames != nil || len(n.properties) > 0 || len(n.patterns) > 0 || n.additional != nil {
		found = add(found, c.properties(n, v, at, depth)...)
	}
	for _, key := range keys(c, n.dependent) {
		if _, ok := v[key]; ok {
			found = add(found, c.check(n.dependent[key], v, at, depth+1)...)
		}
	}
	return found
}

func (c *checker) properties(n *node, v map[string]any, at string, depth int) (found []Mismatch) {
	for _, key := range keys(c, v) {
		below, ok := c.below(at, key)
		if full(found) || !ok {
			return found
		}
		if n.propertyNames != nil {
			for _, m := range c.check(n.propertyNames, key, "", depth+1) {
				if c.text(m.Message) {
					found = add(found, Mismatch{below, "the key: " + m.Message})
				}
			}
		}
		one, listed := n.properties[key]
		if listed {
			found = add(found, c.check(one, v[key], below, depth+1)...)
		}
		for _, p := range n.patterns {
			if c.matches(p.name, key) {
				listed = true
				found = add(found, c.check(p.schema, v[key], below, depth+1)...)
			}
		}
		if !listed && n.additional != nil {
			if n.additional.never {
				found = add(found, Mismatch{below, "there is no such key" + known(n)})
				continue
			}
			found = add(found, c.check(n.additional, v[key], below, depth+1)...)
		}
	}
	return found
}

// known lists the keys that there are, if they are not more than one reads.
func known(n *node) string {
	if len(n.properties) == 0 || len(n.properties) > 12 {
		return ""
	}
	all := 0
	for key := range n.properties {
		all += len(key)
	}
	if all > 1000 {
		return ""
	}
	return "; there are " + strings.Join(slices.Sorted(maps.Keys(n.properties)), ", ")
}

func (c *checker) array(n *node, v []any, at string, depth int) (found []Mismatch) {
	seen, contained := map[string]int{}, n.contains == nil
	for i, one := range v {
		if i >= len(n.prefix) && n.items == nil && contained && !n.unique {
			break // nothing is asked of the others
		}
		below, ok := c.below(at, strconv.Itoa(i))
		if full(found) || !ok {
			return found
		}
		switch {
		case i < len(n.prefix):
			found = add(found, c.check(n.prefix[i], one, below, depth+1)...)
		case n.items != nil && n.items.never:
			return add(found, Mismatch{at, fmt.Sprintf("expected at most %d items, found %d", len(n.prefix), len(v))})
		case n.items != nil:
			found = add(found, c.check(n.items, one, below, depth+1)...)
		}
		if !contained {
			contained = len(c.check(n.contains, one, below, depth+1)) == 0
		}
		if n.unique && c.weigh(one) {
			key := canonical(one)
			if first, twice := seen[key]; twice {
				found = add(found, Mismatch{below, fmt.Sprintf("is the same as item %d, and each must be another", first)})
			}
			seen[key] = i
		}
	}
	if !contained {
		found = add(found, Mismatch{at, "holds no item of the kind that it must (contains)"})
	}
	return found
}

// combined looks at schemas that apply to the same value.
func (c *checker) combined(n *node, v any, at string, depth int) (found []Mismatch) {
	for _, one := range n.all {
		if full(found) {
			return found
		}
		found = add(found, c.check(one, v, at, depth+1)...)
	}
	if len(n.any) > 0 {
		if _, nearest := c.fitting(n.any, v, at, depth, 1); nearest != nil {
			found = add(found, nearest...)
		}
	}
	if len(n.one) > 0 {
		switch fit, nearest := c.fitting(n.one, v, at, depth, 2); {
		case nearest != nil:
			found = add(found, nearest...)
		case fit > 1:
			found = add(found, Mismatch{at, "fits more than one of the forms of which it must have one (oneOf)"})
		}
	}
	if n.not != nil && len(c.check(n.not, v, at, depth+1)) == 0 {
		found = add(found, Mismatch{at, "is what it must not be (not)"})
	}
	if n.test != nil {
		next := n.els
		if len(c.check(n.test, v, at, depth+1)) == 0 {
			next = n.then
		}
		if next != nil {
			found = add(found, c.check(next, v, at, depth+1)...)
		}
	}
	return found
}

// fitting counts the schemas that v fits, up to most; where it fits none, it returns what the one says that v is nearest to.
func (c *checker) fitting(nodes []*node, v any, at string, depth, most int) (fit int, nearest []Mismatch) {
	level := -1 // of nearest
	for _, one := range nodes {
		found := c.check(one, v, at, depth+1)
		if len(found) == 0 {
			if fit++; fit == most {
				break
			}
			continue
		}
		if l := c.deepest(found); l > level || l == level && len(found) < len(nearest) {
			nearest, level = found, l
		}
	}
	if fit > 0 || c.steps <= 0 {
		return fit, nil
	}
	first := nearest[0]
	if !c.text(first.Message) { // it grows with each level
		return 0, nil
	}
	rest := ""
	if first.Pointer != at {
		rest = strings.TrimPrefix(first.Pointer, at) + ": "
	}
	return 0, []Mismatch{{at, fmt.Sprintf("fits none of its %d forms; the nearest says %s%s", len(nodes), rest, first.Message)}}
}

func (c *checker) deepest(found []Mismatch) (n int) {
	for _, m := range found {
		if !c.text(m.Pointer) {
			return n
		}
		n = max(n, strings.Count(m.Pointer, "/"))
	}
	return n
}
