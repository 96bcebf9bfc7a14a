package policy

import (
	"fmt"
	"slices"
	"strings"

	"go.yaml.in/yaml/v4"
)

// listing bounds a list. Where order does not matter, saying a thing twice is
// taken for a mistake.
type listing struct {
	what        string
	least, most int
	repeats     bool
	item        object // the schema of one item
}

func list[T any](l listing, parse func(*yaml.Node) (T, error), text func(T) string) shape {
	schema := object{"type": "array", "items": l.item, "minItems": l.least, "maxItems": l.most, "uniqueItems": !l.repeats}
	return shape{
		accepts: "a list of " + l.what,
		schema:  schema,
		read: func(r *reader, at string, n *yaml.Node, into any) {
			if !r.is(n, at, yaml.SequenceNode, "a list of "+l.what) || !r.count(n, at, l) {
				return
			}
			out, seen := make([]T, 0, len(n.Content)), map[string]bool{}
			for i, item := range n.Content {
				path := fmt.Sprintf("%s[%d]", at, i)
				r.note(path, item, item)
				if item.Kind == yaml.AliasNode {
					continue // refused by strict
				}
				v, err := parse(item)
				if err != nil {
					r.fail(item, path, err)
					continue
				}
				if s := text(v); seen[s] && !l.repeats {
					r.fail(item, path, bad("", "%s is listed twice", s))
				} else {
					seen[s] = true
				}
				out = append(out, v)
			}
			*into.(*[]T) = out
		},
		text: func(v any) string {
			parts := make([]string, 0, len(*v.(*[]T)))
			for _, one := range *v.(*[]T) {
				parts = append(parts, text(one))
			}
			if len(parts) == 0 && l.least > 0 {
				return ""
			}
			return "[" + strings.Join(parts, ", ") + "]"
		},
	}
}

func (r *reader) count(n *yaml.Node, at string, l listing) bool {
	switch {
	case len(n.Content) < l.least:
		r.fail(n, at, bad("leave the key out", "the list is empty"))
	case len(n.Content) > l.most:
		r.fail(n, at, bad("", "%d items, more than %d", len(n.Content), l.most))
	default:
		return true
	}
	return false
}

// words is a list of texts, each passed through normal.
func words(l listing, normal func(string) (string, error)) shape {
	return list(l, func(n *yaml.Node) (string, error) {
		s, err := word(n)
		if err != nil {
			return "", err
		}
		return normal(s)
	}, quote)
}

// structs is a list of mappings, each read by table into a T and checked as a whole.
func structs[T any](l listing, table []key, check func(r *reader, at string, n *yaml.Node, v *T)) shape {
	l.item = mappingSchema(table)
	return shape{
		accepts: "a list of " + l.what,
		schema:  object{"type": "array", "items": l.item, "maxItems": l.most},
		read: func(r *reader, at string, n *yaml.Node, into any) {
			if !r.is(n, at, yaml.SequenceNode, "a list of "+l.what) || !r.count(n, at, l) {
				return
			}
			out := make([]T, len(n.Content))
			for i, item := range n.Content {
				path, before := fmt.Sprintf("%s[%d]", at, i), len(r.errs)
				r.note(path, item, item)
				r.mapping(path, item, table, &out[i])
				if len(r.errs) == before && item.Kind == yaml.MappingNode {
					check(r, path, item, &out[i])
				}
			}
			*into.(*[]T) = out
		},
		items: func(v any) []string {
			var out []string
			for i := range *v.(*[]T) {
				out = append(out, flow(table, &(*v.(*[]T))[i]))
			}
			return out
		},
	}
}

// pairs is a mapping of names to literal texts.
func pairs(what string, most int, name func(string) error) shape {
	return shape{
		accepts: what,
		schema: object{
			"type": "object", "maxProperties": most, "propertyNames": object{"pattern": envPattern},
			"additionalProperties": object{"type": "string"},
		},
		read: func(r *reader, at string, n *yaml.Node, into any) {
			if !r.is(n, at, yaml.MappingNode, what) {
				return
			}
			if len(n.Content)/2 > most {
				r.fail(n, at, bad("", "%d names, more than %d", len(n.Content)/2, most))
				return
			}
			out := map[string]string{}
			for i := 0; i+1 < len(n.Content); i += 2 {
				k, v := n.Content[i], n.Content[i+1]
				if k.Kind != yaml.ScalarNode || v.Kind == yaml.AliasNode || k.Tag == "!!merge" {
					continue // refused by strict
				}
				if err := name(k.Value); err != nil {
					r.fail(k, at, err)
					continue
				}
				path := join(at, k.Value)
				r.note(path, k, v)
				s, err := word(v)
				if err == nil {
					err = CheckText(s)
				}
				if err != nil {
					r.fail(v, path, err)
				}
				out[k.Value] = s
			}
			*into.(*map[string]string) = out
		},
		text: func(v any) string {
			m := *v.(*map[string]string)
			parts := make([]string, 0, len(m))
			for k, s := range m {
				parts = append(parts, quote(k)+": "+quote(s))
			}
			slices.Sort(parts)
			return "{" + strings.Join(parts, ", ") + "}"
		},
	}
}
