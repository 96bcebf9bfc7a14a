package page

import (
	"cmp"
	"slices"
	"strings"

	"skillbox/audit"
)

// refusals holds each thing that was refused once.
type refusals struct {
	byWhat map[string]*refusal
	more   int
}

// rowsOfRefusal is how many rows one refusal points to.
const rowsOfRefusal = 3

func (f *refusals) add(e *audit.Record) {
	o := e.Outcome()
	what, note := describe(&e.Event)
	switch e.Kind {
	case audit.DNSKind, audit.ConnKind:
		note = "" // what it took differs from one time to the next
	}
	id := strings.Join([]string{string(e.Kind), what, o.Error, o.Layer, o.Rule, o.Remedy}, "\x00")
	one := f.byWhat[id]
	if one == nil {
		if len(f.byWhat) >= 2*maxRefusals {
			f.more++
			return
		}
		if !strings.Contains(what, o.Subject) {
			note = joined(o.Subject, note)
		}
		one = &refusal{
			Kind: string(e.Kind), What: textOf(what), Note: short(note, 600), Verdict: o.Verdict, Error: short(o.Error, 128),
			decision: decisionOf(o), order: len(f.byWhat),
		}
		f.byWhat[id] = one
	}
	one.Count += max(o.Count, 1)
	if len(one.rows) < rowsOfRefusal {
		one.rows = append(one.rows, keyOf(e))
	}
}

// list gives them in the order in which they first happened; those that a policy could allow come first, for there is something to do.
func (f *refusals) list(b *builder) (list []*refusal, more int) {
	for _, one := range f.byWhat {
		list = append(list, one)
	}
	slices.SortFunc(list, func(a, b *refusal) int {
		return cmp.Or(cmp.Compare(len(a.Never), 0)-cmp.Compare(len(b.Never), 0), cmp.Compare(a.order, b.order))
	})
	room := budget(otherBytes)
	for i, one := range list {
		cost := 2*rowOverhead + one.What.cost() + escaped(one.Note) + one.decision.cost()
		if i == maxRefusals || !room.take(cost) {
			return list[:i], len(list) - i + f.more
		}
		for _, k := range one.rows {
			if r := b.rows[k]; r != nil {
				one.Rows = append(one.Rows, evidence{Row: r.ID, At: r.At})
			}
		}
	}
	return list, f.more
}

// Times is "" for once.
func (r *refusal) Times() string {
	if r.Count < 2 {
		return ""
	}
	return number(r.Count) + " times"
}
