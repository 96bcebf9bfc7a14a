package policy

import (
	"cmp"
	"errors"
	"fmt"
	"slices"
)

// Granted is what holds for a run, and how it came to be.
type Granted struct {
	// Policy is effective. A field is Named if the operator or the ceiling
	// named it, the command and what is warm also if only the skill did.
	Policy    *Policy
	Clamped   []Note // defaults lowered to the ceiling
	Narrowed  []Note // what the skill gave up of what the operator granted
	Requested []Note // what the skill declared and did not get
}

// Note says how one value came to differ from what was asked.
type Note struct {
	Field, Asked, Got string
	Source            string // where it was asked: file:line:column, a flag, or "default"
	Why               string
}

// String returns the note as one line.
func (n Note) String() string {
	return fmt.Sprintf("%s: %s asked %s, got %s: %s", n.Source, n.Field, n.Asked, n.Got, n.Why)
}

// Grant decides what holds where three policies meet; any may be nil.
//
// What the operator names beyond what the ceiling names is an error, an Errors
// with everything asked and not permitted; a default beyond it is lowered and
// noted. What the ceiling does not name it does not restrict. The skill's
// declaration narrows what it names; where it asks for more the operator's
// value holds and the request is noted. Grant changes none of its arguments.
func Grant(ceiling, operator, declared *Policy) (*Granted, error) {
	if operator == nil {
		operator = Default()
	}
	g := &granting{ceiling: orEmpty(ceiling), operator: operator, declared: orEmpty(declared)}
	g.out = operator.clone()
	g.pointless()
	each(g.scalar)
	g.base()
	g.command()
	g.network()
	g.ingress()
	g.binds()
	g.lists()
	if len(g.errs) == 0 {
		g.recheck()
	}
	if len(g.errs) > 0 {
		g.errs.sort()
		return nil, g.errs
	}
	return &Granted{g.out, g.clamped, g.narrowed, g.requested}, nil
}

func orEmpty(p *Policy) *Policy {
	if p == nil {
		return Default()
	}
	return p
}

// granting is one decision in the making. Of ceiling and declared only what
// they name counts.
type granting struct {
	ceiling, operator, declared, out *Policy

	clamped, narrowed, requested []Note
	errs                         Errors
}

// pointless refuses a ceiling that says what a ceiling cannot bound, rather
// than ignoring it.
func (g *granting) pointless() {
	for _, field := range []string{"command", "env.set"} {
		if g.ceiling.Named(field) {
			at := g.ceiling.Position(field)
			g.errs = append(g.errs, &Error{
				File: at.File, Line: at.Line, Column: at.Column, Field: field,
				Message: "is not a limit, so a ceiling cannot hold it", Hint: "move it to the policies",
			})
		}
	}
}

// scalar decides a value whose possible values have an order.
func (g *granting) scalar(path string, k key) {
	if k.shape.rank == nil {
		return
	}
	wide := func(a, b *Policy) bool { // a reaches further than b
		x, y := k.shape.rank(k.field(a)), k.shape.rank(k.field(b))
		return x > y && !k.floor || x < y && k.floor
	}
	value := func(p *Policy) string { return cmp.Or(k.shape.text(k.field(p)), "no value") }
	bound, beyond := "at most ", "more"
	if k.floor {
		bound, beyond = "at least ", "less"
	}
	if g.ceiling.Named(path) {
		switch over := wide(g.out, g.ceiling); {
		case over && g.operator.Named(path):
			g.refuse(path, path, value(g.out), bound+value(g.ceiling))
		case over:
			g.clamp(path, value(g.out), value(g.ceiling), beyond)
			k.shape.copy(k.field(g.out), k.field(g.ceiling))
		}
		if !g.out.Named(path) {
			g.out.positions[path] = g.ceiling.Position(path)
		}
	}
	if !g.declared.Named(path) || value(g.declared) == value(g.out) {
		return
	}
	if k.wish {
		g.wish(path, k, g.ceiling.Named(path) && wide(g.declared, g.ceiling), value)
		return
	}
	// More audit costs the host, so a skill cannot turn it up either.
	if k.floor || wide(g.declared, g.out) {
		g.request(path, value(g.declared), value(g.out))
		return
	}
	g.narrow(path, value(g.out), value(g.declared))
	k.shape.copy(k.field(g.out), k.field(g.declared))
}

// wish lets the skill's own word hold where the operator has none: what is kept ready for it grants it nothing. Beyond the
// ceiling, the ceiling's holds.
func (g *granting) wish(path string, k key, over bool, value func(*Policy) string) {
	switch {
	case g.operator.Named(path):
		g.request(path, value(g.declared), value(g.out))
		return
	case !over:
		k.shape.copy(k.field(g.out), k.field(g.declared))
		g.out.positions[path] = g.declared.Position(path)
		return
	}
	k.shape.copy(k.field(g.out), k.field(g.ceiling))
	why := "the ceiling at " + g.ceiling.Position(path).String() + " permits no more"
	g.requested = append(g.requested, Note{path, value(g.declared), value(g.out), g.declared.Position(path).String(), why})
}

// base compares what has no order: a ceiling's base is the only one, or the
// directory that holds all that are permitted.
func (g *granting) base() {
	const path = "rootfs.base"
	limit, asked := g.ceiling.Rootfs.Base, g.out.Rootfs.Base
	if g.ceiling.Named(path) {
		if !(asked == limit || len(limit) > 4 && limit[:4] == "dir:" && beneath(limit, asked)) {
			if g.operator.Named(path) {
				g.refuse(path, path, asked, limit)
			} else {
				g.clamp(path, asked, limit, "other")
				g.out.Rootfs.Base = limit
			}
		}
		if !g.out.Named(path) {
			g.out.positions[path] = g.ceiling.Position(path)
		}
	}
	if g.declared.Named(path) && g.declared.Rootfs.Base != g.out.Rootfs.Base {
		g.request(path, g.declared.Rootfs.Base, g.out.Rootfs.Base)
	}
}

// command takes the skill's own word where the operator has none: what a
// skill runs inside its box is its own affair.
func (g *granting) command() {
	declared := g.declared.Command
	switch {
	case len(declared) == 0:
	case len(g.out.Command) == 0:
		g.out.Command = slices.Clone(declared)
		g.out.positions["command"] = g.declared.Position("command")
	case !slices.Equal(declared, g.out.Command):
		g.request("command", fmt.Sprintf("%q", declared), fmt.Sprintf("%q", g.out.Command))
	}
}

// recheck reads the outcome as a policy file would be read: values that flags
// set have not been, and an intersection may have grown too large.
func (g *granting) recheck() {
	_, err := parseUpTo(4*maxFile, g.out.File, g.out.YAML()) // written in full, it is longer than what was read
	var problems Errors
	if !errors.As(err, &problems) {
		return // Parse fails with nothing else
	}
	for _, e := range problems {
		at := g.operator.Position(e.Field)
		e.File, e.Line, e.Column = at.File, at.Line, at.Column
		g.errs = append(g.errs, e)
	}
}

// refuse notes that the operator's field asks for more than the ceiling's key permits.
func (g *granting) refuse(field, limit, asked, permitted string) {
	at, by := g.operator.Position(field), g.ceiling.Position(limit)
	g.errs = append(g.errs, &Error{
		File: at.File, Line: at.Line, Column: at.Column, Field: field,
		Message: asked + " is not permitted on this host",
		Hint:    fmt.Sprintf("%s permits %s", by, permitted),
	})
}

func (g *granting) clamp(field, asked, got, beyond string) {
	why := "the ceiling at " + g.ceiling.Position(field).String() + " permits no " + beyond
	g.clamped = append(g.clamped, Note{field, asked, got, "default", why})
}

func (g *granting) narrow(field, asked, got string) {
	why := "the skill declares less at " + g.declared.Position(field).String()
	source := g.operator.Position(field).String()
	if source == "" {
		source = "default"
	}
	g.narrowed = append(g.narrowed, Note{field, asked, got, source, why})
}

func (g *granting) request(field, asked, got string) {
	why := "the operator's policy does not grant it"
	g.requested = append(g.requested, Note{field, asked, got, g.declared.Position(field).String(), why})
}
