package policy

import (
	"errors"
	"strings"

	"go.yaml.in/yaml/v4"
)

const (
	maxFile   = 256 << 10
	maxDepth  = 32
	maxErrors = 100
)

// Parse reads a policy file. The error is an Errors with everything that is
// wrong; there is no policy then. Give an absolute name for file where a
// writable bind must not hold the policy itself.
func Parse(file string, data []byte) (*Policy, error) { return parseUpTo(maxFile, file, data) }

func parseUpTo(most int, file string, data []byte) (*Policy, error) {
	r := &reader{file: file, most: most, positions: map[string]Position{}}
	root := r.load(data)
	if root == nil {
		return nil, r.sorted()
	}
	return r.policy(root, true)
}

// ParseDeclared reads the policy that a skill declares for itself in its
// manifest: node is the value of its security_policy key. The version may be
// left out; all else is as strict as in Parse.
func ParseDeclared(file string, node *yaml.Node) (*Policy, error) {
	r := &reader{file: file, positions: map[string]Position{}}
	if node == nil {
		return nil, Errors{{File: file, Message: "no policy is declared"}}
	}
	if node.Kind == yaml.DocumentNode && len(node.Content) == 1 {
		node = node.Content[0]
	}
	return r.policy(node, false)
}

// reader turns nodes into a Policy and keeps what is wrong and where
// everything stands.
type reader struct {
	file      string
	most      int   // bytes
	root      []key // the whole table, to look for a misplaced key
	positions map[string]Position
	errs      Errors
}

func (r *reader) policy(root *yaml.Node, needVersion bool) (*Policy, error) {
	p := Default()
	p.File, p.positions, r.root = r.file, r.positions, keys
	r.strict(root, 1)
	r.mapping("", root, keys, p)
	if err := r.complete(root, p, needVersion); err != nil {
		return nil, err
	}
	return p, nil
}

// complete checks what no key can by itself.
func (r *reader) complete(root *yaml.Node, p *Policy, needVersion bool) error {
	if needVersion && root.Kind == yaml.MappingNode && !p.Named("version") {
		r.fail(root, "version", bad("begin the file with version: 1", "is missing"))
	}
	if len(r.errs) == 0 { // what follows compares values that must each be right
		r.binds(p)
		r.environment(p)
		r.calls(p)
		r.sinkhole(p)
		r.ports(p)
	}
	if len(r.errs) > 0 {
		return r.sorted()
	}
	return nil
}

// strict refuses what makes one text mean two things: anchors and aliases,
// merge keys, tags, keys that are not plain words or come twice.
func (r *reader) strict(n *yaml.Node, depth int) {
	switch {
	case depth > maxDepth:
		r.fail(n, "", bad("", "nested more than %d deep", maxDepth))
		return
	case n.Kind == yaml.AliasNode:
		r.fail(n, "", bad("write the value out where it is used", "alias *%s is not allowed", show(n.Value)))
		return
	case n.Anchor != "":
		r.fail(n, "", bad("write the value out where it is used", "anchor &%s is not allowed", show(n.Anchor)))
	case n.Style&yaml.TaggedStyle != 0 || n.Tag != "" && !strings.HasPrefix(n.Tag, "!!"):
		r.fail(n, "", bad("write the plain value", "tag %s is not allowed", show(n.Tag)))
	case n.Kind == yaml.ScalarNode && strings.ContainsRune(n.Value, 0):
		r.fail(n, "", bad("", "a NUL character is not allowed"))
	}
	if n.Kind == yaml.MappingNode {
		r.keys(n)
	}
	for _, child := range n.Content {
		r.strict(child, depth+1)
	}
}

func (r *reader) keys(n *yaml.Node) {
	seen := map[string]int{}
	for i := 0; i < len(n.Content); i += 2 {
		k := n.Content[i]
		if k.Kind != yaml.ScalarNode {
			if k.Kind != yaml.AliasNode {
				r.fail(k, "", bad("", "a key must be one word"))
			}
			continue
		}
		if k.Tag == "!!merge" {
			r.fail(k, "", bad("write the keys out", "merge key << is not allowed"))
			continue
		}
		if line, ok := seen[k.Value]; ok {
			r.fail(k, "", bad("", "key %s is named twice, first in line %d", show(k.Value), line))
			continue
		}
		seen[k.Value] = k.Line
	}
}

// mapping reads n key by key into the struct behind into.
func (r *reader) mapping(at string, n *yaml.Node, table []key, into any) {
	if !r.is(n, at, yaml.MappingNode, "a mapping of keys") {
		return
	}
	if len(n.Content) == 0 {
		r.fail(n, at, bad("leave it out, or name one of "+names(table), "is empty"))
	}
	for i := 0; i+1 < len(n.Content); i += 2 {
		name, value := n.Content[i], n.Content[i+1]
		if name.Kind != yaml.ScalarNode || name.Tag == "!!merge" {
			continue // refused by strict
		}
		k := find(table, name.Value)
		if k == nil {
			r.fail(name, at, bad(nearest(name.Value, at, table, r.root), "unknown key %s", show(name.Value)))
			continue
		}
		path := join(at, k.name)
		r.note(path, name, value)
		if k.keys != nil {
			r.mapping(path, value, k.keys, into)
			continue
		}
		k.shape.read(r, path, value, k.field(into))
	}
}

func (r *reader) note(path string, name, value *yaml.Node) {
	if value.Kind == yaml.ScalarNode {
		name = value
	}
	r.positions[path] = Position{r.file, name.Line, name.Column}
}

// is tells whether n is of the kind wanted, and says so if not. An alias was
// refused by strict already.
func (r *reader) is(n *yaml.Node, at string, kind yaml.Kind, want string) bool {
	if n.Kind == kind {
		return true
	}
	if n.Kind != yaml.AliasNode {
		r.fail(n, at, bad("", "must be %s, not %s", want, describe(n)))
	}
	return false
}

func describe(n *yaml.Node) string {
	switch {
	case n.Kind == yaml.MappingNode:
		return "a mapping"
	case n.Kind == yaml.SequenceNode:
		return "a list"
	case n.Tag == "!!null":
		return "nothing"
	}
	return show(n.Value)
}

func (r *reader) fail(n *yaml.Node, field string, err error) {
	r.failAt(Position{r.file, n.Line, n.Column}, field, err)
}

func (r *reader) failAt(at Position, field string, err error) {
	if len(r.errs) > maxErrors {
		return
	}
	e := &Error{File: at.File, Line: at.Line, Column: at.Column, Field: field, Message: err.Error()}
	var p *problem
	if errors.As(err, &p) {
		e.Message, e.Hint = p.message, p.hint
	}
	if len(r.errs) == maxErrors {
		e.Field, e.Message, e.Hint = "", "too many errors; the rest is not shown", ""
	}
	r.errs = append(r.errs, e)
}

func (r *reader) sorted() Errors {
	r.errs.sort()
	return r.errs
}

func join(at, name string) string {
	if at == "" {
		return name
	}
	return at + "." + name
}
