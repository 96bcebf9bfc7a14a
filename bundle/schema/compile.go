package schema

import (
	"encoding/json"
	"fmt"
	"maps"
	"math"
	"slices"
	"strconv"
	"strings"
)

// compiler makes nodes out of a schema's JSON.
type compiler struct {
	doc       any
	known     map[string]*node // by the pointer of their place in doc, in its one spelling; a reference may lead to one that is being made
	unchecked []string
	pointers  int   // bytes of the pointers made so far
	programs  int   // instructions of the patterns so far
	err       error // why nothing more is compiled
}

// What a schema may be at most. A manifest has 256 KiB, which written for the purpose become gigabytes; those that people write have some
// dozens of schemas.
const (
	maxDepth     = 128 // of schemas in each other
	maxNodes     = 10_000
	maxPointers  = 8 << 20
	maxUnchecked = 100 // are named
)

func (c *compiler) skip(at, format string, a ...any) {
	switch n := len(c.unchecked); {
	case n < maxUnchecked:
		c.unchecked = append(c.unchecked, at+": "+fmt.Sprintf(format, a...))
	case n == maxUnchecked:
		c.unchecked = append(c.unchecked, "and more")
	}
}

// refuse ends the compiling; the first reason stays.
func (c *compiler) refuse(format string, a ...any) {
	if c.err == nil {
		c.err = fmt.Errorf("schema: "+format, a...)
	}
}

// below is the pointer of a part of what lies at another.
func (c *compiler) below(at, key string) string {
	p := at + "/" + escape(key)
	if c.pointers += len(p); c.pointers > maxPointers {
		c.refuse("its keys are too long for how deep they lie; shorten them")
	}
	return p
}

// schema makes the node of what lies at a pointer.
func (c *compiler) schema(at string, v any) *node {
	if n, ok := c.known[at]; ok {
		return n
	}
	n := &node{}
	if len(c.known) == maxNodes {
		c.refuse("it is made of more than %d schemas; describe less, or in fewer parts", maxNodes)
	}
	if c.err != nil {
		return n
	}
	c.known[at] = n
	switch v := v.(type) {
	case bool:
		n.never = !v
	case map[string]any:
		if strings.Count(at, "/") > maxDepth {
			c.skip(at, "nested too deep")
			return n
		}
		for _, key := range slices.Sorted(maps.Keys(v)) {
			if c.err != nil {
				break
			}
			c.keyword(n, v, key, c.below(at, key))
		}
	default:
		c.skip(at, "expected a schema, found %s", name(v))
	}
	return n
}

// keyword reads one keyword into n. Keywords that are not listed say nothing about values: title, description, format, default ….
func (c *compiler) keyword(n *node, v map[string]any, key, at string) {
	value := v[key]
	switch key {
	case "type":
		n.types = c.types(at, value)
	case "enum":
		if list, ok := value.([]any); ok {
			n.enum = append([]any{}, list...)
		} else {
			c.skip(at, "expected a list, found %s", name(value))
		}
	case "const":
		n.enum = []any{value}
	case "required":
		n.required = c.names(at, value)
	case "properties", "patternProperties", "additionalProperties", "propertyNames", "dependentRequired", "dependentSchemas", "dependencies":
		c.object(n, key, at, value)
	case "items", "prefixItems", "additionalItems", "contains", "minContains", "maxContains", "uniqueItems":
		c.array(n, v, key, at)
	case "allOf", "anyOf", "oneOf", "not", "if", "then", "else", "$ref":
		c.combined(n, key, at, value)
	case "pattern":
		n.pattern = c.regexp(at, value)
	case "minimum", "maximum", "exclusiveMinimum", "exclusiveMaximum", "multipleOf", "minLength", "maxLength", "minItems", "maxItems", "minProperties", "maxProperties":
		c.bound(n, v, key, at)
	case "$dynamicRef", "$recursiveRef", "unevaluatedProperties", "unevaluatedItems", "disallow", "extends":
		c.skip(at, "this keyword is not checked")
	}
}

var typeNames = []string{"string", "integer", "number", "boolean", "array", "object", "null"}

func (c *compiler) types(at string, v any) (types []string) {
	list, ok := v.([]any)
	if !ok {
		list = []any{v}
	}
	for _, one := range list {
		s, ok := one.(string)
		if !ok || !slices.Contains(typeNames, s) {
			c.skip(at, "%s is no type of JSON Schema", show(one))
			return nil
		}
		if !slices.Contains(types, s) {
			types = append(types, s)
		}
	}
	return types
}

func (c *compiler) names(at string, v any) (names []string) {
	list, ok := v.([]any)
	for _, one := range list {
		s, text := one.(string)
		ok = ok && text
		names = append(names, s)
	}
	if !ok {
		c.skip(at, "expected a list of names, found %s", show(v))
		return nil
	}
	return names
}

func (c *compiler) byName(at string, v any) map[string]*node {
	m, ok := v.(map[string]any)
	if !ok {
		c.skip(at, "expected keys and schemas, found %s", name(v))
		return nil
	}
	nodes := make(map[string]*node, len(m))
	for _, key := range slices.Sorted(maps.Keys(m)) {
		if c.err != nil {
			break
		}
		nodes[key] = c.schema(c.below(at, key), m[key])
	}
	return nodes
}

func (c *compiler) list(at string, v any) (nodes []*node) {
	list, ok := v.([]any)
	if !ok {
		c.skip(at, "expected a list of schemas, found %s", name(v))
	}
	for i, one := range list {
		if c.err != nil {
			break
		}
		nodes = append(nodes, c.schema(c.below(at, strconv.Itoa(i)), one))
	}
	return nodes
}

func (c *compiler) object(n *node, key, at string, value any) {
	switch key {
	case "properties":
		n.properties = c.byName(at, value)
	case "patternProperties":
		nodes := c.byName(at, value)
		for _, p := range slices.Sorted(maps.Keys(nodes)) {
			if c.err != nil {
				break
			}
			if r := c.regexp(c.below(at, p), p); r != nil {
				n.patterns = append(n.patterns, patterned{r, nodes[p]})
			}
		}
	case "additionalProperties":
		n.additional = c.schema(at, value)
	case "propertyNames":
		n.propertyNames = c.schema(at, value)
	default:
		c.dependent(n, at, value)
	}
}

// dependent reads what is asked for only where a property is there: names of others, or a schema for the whole.
func (c *compiler) dependent(n *node, at string, value any) {
	m, ok := value.(map[string]any)
	if !ok {
		c.skip(at, "expected keys and values, found %s", name(value))
		return
	}
	if n.dependent == nil {
		n.dependent = map[string]*node{}
	}
	for _, key := range slices.Sorted(maps.Keys(m)) {
		if c.err != nil {
			break
		}
		below := c.below(at, key)
		then := &node{}
		if _, list := m[key].([]any); list {
			then.required = c.names(below, m[key])
		} else {
			then = c.schema(below, m[key])
		}
		if before := n.dependent[key]; before != nil {
			then = &node{all: []*node{before, then}}
		}
		n.dependent[key] = then
	}
}

func (c *compiler) array(n *node, v map[string]any, key, at string) {
	value := v[key]
	switch key {
	case "items":
		if _, tuple := value.([]any); tuple {
			n.prefix = c.list(at, value)
		} else {
			n.items = c.schema(at, value)
		}
	case "prefixItems":
		n.prefix = c.list(at, value)
	case "additionalItems":
		if _, tuple := v["items"].([]any); tuple {
			n.items = c.schema(at, value)
		}
	case "contains":
		n.contains = c.schema(at, value)
	case "uniqueItems":
		n.unique, _ = value.(bool)
	default:
		c.skip(at, "this keyword is not checked")
	}
}

func (c *compiler) combined(n *node, key, at string, value any) {
	switch key {
	case "allOf":
		n.all = append(n.all, c.list(at, value)...)
	case "anyOf":
		n.any = c.list(at, value)
	case "oneOf":
		n.one = c.list(at, value)
	case "not":
		n.not = c.schema(at, value)
	case "if":
		n.test = c.schema(at, value)
	case "then":
		n.then = c.schema(at, value)
	case "else":
		n.els = c.schema(at, value)
	case "$ref":
		if to := c.reference(at, value); to != nil {
			n.all = append(n.all, to)
		}
	}
}

// reference finds what a $ref within the schema means; others are nobody's to fetch.
func (c *compiler) reference(at string, v any) *node {
	s, _ := v.(string)
	pointer, ok := strings.CutPrefix(s, "#")
	if !ok || pointer != "" && pointer[0] != '/' {
		c.skip(at, "%s is not a place in this schema, such as #/$defs/name", show(v))
		return nil
	}
	found, place := c.doc, []string{""}
	for part := range strings.SplitSeq(strings.TrimPrefix(pointer, "/"), "/") {
		if pointer == "" {
			break
		}
		key := strings.ReplaceAll(strings.ReplaceAll(part, "~1", "/"), "~0", "~")
		switch in := found.(type) {
		case map[string]any:
			found, ok = in[key]
		case []any:
			i, err := strconv.Atoi(key)
			if ok = err == nil && i >= 0 && i < len(in) && strconv.Itoa(i) == key; ok { // RFC 6901: not 00, nor +0
				found = in[i]
			}
		default:
			ok = false
		}
		if !ok {
			c.skip(at, "there is no %s in this schema", show(v))
			return nil
		}
		place = append(place, escape(key)) // a ~ that stands alone is taken for itself; the place has one spelling
	}
	return c.schema(strings.Join(place, "/"), found)
}

// bound is a limit for something that can be counted.
type bound struct {
	of    string // "number", "length", "items" or "properties"
	limit float64
	kind  string // "least", "most", "above", "below" or "multiple"
}

var bounds = map[string]bound{
	"minimum": {"number", 0, "least"}, "maximum": {"number", 0, "most"},
	"exclusiveMinimum": {"number", 0, "above"}, "exclusiveMaximum": {"number", 0, "below"}, "multipleOf": {"number", 0, "multiple"},
	"minLength": {"length", 0, "least"}, "maxLength": {"length", 0, "most"},
	"minItems": {"items", 0, "least"}, "maxItems": {"items", 0, "most"},
	"minProperties": {"properties", 0, "least"}, "maxProperties": {"properties", 0, "most"},
}

func (c *compiler) bound(n *node, v map[string]any, key, at string) {
	b := bounds[key]
	value := v[key]
	if flag, ok := value.(bool); ok && (key == "exclusiveMinimum" || key == "exclusiveMaximum") {
		// Draft-04: it turns the other bound into this one.
		if value = v[map[string]string{"exclusiveMinimum": "minimum", "exclusiveMaximum": "maximum"}[key]]; !flag || value == nil {
			return
		}
	}
	number, ok := value.(json.Number)
	limit, err := strconv.ParseFloat(string(number), 64)
	if !ok || err != nil || math.IsInf(limit, 0) || b.kind == "multiple" && limit <= 0 {
		c.skip(at, "%s is no such limit", show(value))
		return
	}
	b.limit = limit
	n.bounds = append(n.bounds, b)
}

// escape makes a key a part of a JSON Pointer.
func escape(key string) string {
	return strings.ReplaceAll(strings.ReplaceAll(key, "~", "~0"), "/", "~1")
}
