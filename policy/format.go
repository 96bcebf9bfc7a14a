package policy

import (
	"bytes"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"
)

// YAML prints every value of the policy in canonical form, in the order of the
// reference, defaults marked as such. Parse accepts it and yields the same
// values; what was a default is named then.
func (p *Policy) YAML() []byte { return p.render(true) }

// Stated writes p without what nobody named and is a default: Parse yields the same policy, and what was a default is one then.
func (p *Policy) Stated() []byte {
	var kept []string
	depth := func(line string) int { return len(line) - len(strings.TrimLeft(line, " ")) }
	lines := strings.Split(strings.TrimSpace(string(p.YAML())), "\n")
	for i := len(lines) - 1; i >= 0; i-- {
		line, usual := strings.CutSuffix(lines[i], " # default")
		group := strings.HasSuffix(line, ":") && (len(kept) == 0 || depth(kept[len(kept)-1]) <= depth(line))
		if (usual || group) && !strings.HasPrefix(line, "version:") {
			continue // a group has nothing left in it
		}
		kept = append(kept, line)
	}
	slices.Reverse(kept)
	return []byte(strings.Join(kept, "\n") + "\n")
}

func (p *Policy) render(comments bool) []byte {
	var b bytes.Buffer
	usual := p
	if comments {
		usual = Default()
	}
	p.group(&b, "", "", keys, usual)
	return b.Bytes()
}

func (p *Policy) group(b *bytes.Buffer, at, indent string, table []key, usual *Policy) {
	for _, k := range table {
		path := join(at, k.name)
		if k.keys != nil {
			fmt.Fprintf(b, "%s%s:\n", indent, k.name)
			p.group(b, path, indent+"  ", k.keys, usual)
			continue
		}
		mark := func(is, was string) string {
			if usual != p && is == was && !p.Named(path) {
				return " # default"
			}
			return ""
		}
		if k.shape.items == nil {
			if s := k.shape.text(k.field(p)); s != "" {
				fmt.Fprintf(b, "%s%s: %s%s\n", indent, k.name, s, mark(s, k.shape.text(k.field(usual))))
			}
			continue
		}
		items := k.shape.items(k.field(p))
		if len(items) == 0 {
			fmt.Fprintf(b, "%s%s: []%s\n", indent, k.name, mark("", ""))
			continue
		}
		fmt.Fprintf(b, "%s%s:\n", indent, k.name)
		for _, item := range items {
			fmt.Fprintf(b, "%s  - %s\n", indent, item)
		}
	}
}

// flow prints the struct behind v as one flow mapping, leaving out what is
// empty or false.
func flow(table []key, v any) string {
	var parts []string
	for _, k := range table {
		if s := k.shape.text(k.field(v)); s != "" && s != "false" {
			parts = append(parts, k.name+": "+s)
		}
	}
	return "{" + strings.Join(parts, ", ") + "}"
}

var bare = lazily(`^[A-Za-z/][A-Za-z0-9/_.-]*$`)

// quote prints s as a YAML scalar that every YAML reader takes for text.
func quote(s string) string {
	switch strings.ToLower(s) {
	case "true", "false", "yes", "no", "on", "off", "y", "n", "null":
		return strconv.Quote(s)
	}
	if bare.MatchString(s) {
		return s
	}
	return strconv.QuoteToASCII(s)
}

func sortedKeys[V any](m map[string]V) []string { return slices.Sorted(maps.Keys(m)) }
