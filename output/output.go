// Package output takes what a skill left in /output out of its box: Collect reads the hostile side, Extract writes the caller's.
// In between lies a tar stream, so that the one needs no right over the caller's directory and the other none over the box's.
package output

import (
	"fmt"
	"strings"
	"unicode"
	"unicode/utf8"
)

// Limits bound what is collected; zero is refused, not unlimited.
type Limits struct {
	Files int   // regular files
	Bytes int64 // their contents together
	Depth int   // directory levels; zero means 32
}

// Item is one collected file.
type Item struct {
	Name   string // slash-separated path below /output
	Bytes  int64
	SHA256 string // hexadecimal
}

// Skipped is something that was left behind, and why.
type Skipped struct {
	Name   string // quoted where it holds control characters
	Reason string
}

func (s Skipped) String() string {
	return fmt.Sprintf("output %s was left behind: %s", s.Name, s.Reason)
}

// unfitName says why a name is not given to the caller: what cannot be shown on a terminal or in JSON as it is cannot be trusted
// to mean what it looks like.
func unfitName(name string) string {
	switch {
	case name == "" || name == "." || name == ".." || strings.ContainsAny(name, "/\x00"):
		return "not a file name"
	case !utf8.ValidString(name):
		return "its name is not UTF-8"
	}
	for _, r := range name {
		if !unicode.IsPrint(r) {
			return "its name holds characters that cannot be shown"
		}
	}
	return ""
}
