package engine

import "skillbox/helper"

// text is a value of the manifest with its place. The zero value is not there.
type text struct {
	text  string
	there bool

	file         string
	line, column int
	field        string
}

// or is t, or the other where t is not there.
func (t text) or(other text) text {
	if t.there {
		return t
	}
	return other
}

func (t text) fail(message, hint string) *helper.Error {
	return &helper.Error{File: t.file, Line: t.line, Column: t.column, Field: t.field, Message: message, Hint: hint}
}
