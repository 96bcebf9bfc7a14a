package policy

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
)

// Position is a place in a file, counted from 1. Without a line File is the
// flag that set the value.
type Position struct {
	File         string
	Line, Column int
}

// String returns "file:line:column", or what is known of it.
func (p Position) String() string {
	if p.Line == 0 {
		return p.File
	}
	return fmt.Sprintf("%s:%d:%d", p.File, p.Line, p.Column)
}

// Error is one thing wrong with a policy.
type Error struct {
	File         string
	Line, Column int    // 0 if the value came from a flag
	Field        string // "resources.memory"; empty if the file as a whole is meant
	Message      string
	Hint         string // what to write instead; may be empty
}

// Error returns "file:line:column: field: message (hint)".
func (e *Error) Error() string {
	var b strings.Builder
	if at := (Position{e.File, e.Line, e.Column}).String(); at != "" {
		b.WriteString(at + ": ")
	}
	if e.Field != "" {
		b.WriteString(e.Field + ": ")
	}
	b.WriteString(e.Message)
	if e.Hint != "" {
		b.WriteString(" (" + e.Hint + ")")
	}
	return b.String()
}

// Errors is everything wrong with a policy, in the order of the file.
type Errors []*Error

// Error joins the messages, one to a line.
func (e Errors) Error() string {
	lines := make([]string, len(e))
	for i, one := range e {
		lines[i] = one.Error()
	}
	return strings.Join(lines, "\n")
}

// Unwrap gives errors.As each *Error.
func (e Errors) Unwrap() []error {
	out := make([]error, len(e))
	for i, one := range e {
		out[i] = one
	}
	return out
}

func (e Errors) sort() {
	slices.SortStableFunc(e, func(a, b *Error) int {
		return cmp.Or(cmp.Compare(a.File, b.File), cmp.Compare(a.Line, b.Line), cmp.Compare(a.Column, b.Column))
	})
}

// problem is why a value is refused, before it is known where it stands.
type problem struct{ message, hint string }

func (p *problem) Error() string {
	if p.hint == "" {
		return p.message
	}
	return p.message + " (" + p.hint + ")"
}

// bad returns a problem; the hint may be empty.
func bad(hint, format string, args ...any) error {
	return &problem{fmt.Sprintf(format, args...), hint}
}

// show quotes what a stranger wrote, so that it is safe and short on a terminal.
func show(s string) string {
	const most = 60
	if len(s) > most {
		return fmt.Sprintf("%+q…", s[:most])
	}
	return fmt.Sprintf("%+q", s)
}
