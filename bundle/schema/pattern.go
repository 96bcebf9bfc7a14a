package schema

import (
	"regexp"
	"regexp/syntax"
	"strings"
)

// maxProgram bounds what all patterns of a schema are compiled to, in instructions. A few characters can ask for millions: (a{300}){3}.
const maxProgram = 20_000

// pattern is a regular expression and the instructions it was compiled to, at most.
type pattern struct {
	*regexp.Regexp
	size int
}

// regexp compiles a pattern, whose size is known before there is anything of that size.
func (c *compiler) regexp(at string, v any) *pattern {
	s, ok := v.(string)
	if !ok {
		c.skip(at, "expected a text, found %s", name(v))
		return nil
	}
	if !c.program(at, reading(s)) {
		return nil
	}
	tree, err := syntax.Parse(s, syntax.Perl)
	if err != nil {
		c.skip(at, "the pattern cannot be used: %v", err) // RE2 has no look-around
		return nil
	}
	size := instructions(tree)
	if !c.program(at, size+classes(tree)) {
		return nil
	}
	r, err := regexp.Compile(s)
	if err != nil {
		c.skip(at, "the pattern cannot be used: %v", err)
		return nil
	}
	return &pattern{r, size}
}

func (c *compiler) program(at string, n int) bool {
	if c.programs += n; c.programs > maxProgram {
		c.refuse("%s: its patterns take more than %d instructions; shorten them, or let them repeat less often", at, maxProgram)
	}
	return c.err == nil
}

// reading is what it takes to parse a pattern, in instructions that take as long. Without regard to case, the parser looks at each character
// of a range (some milliseconds for the widest), and a Unicode class has hundreds of ranges that it sorts.
func reading(s string) int {
	n := len(s)/8 + 20*(strings.Count(s, `\p`)+strings.Count(s, `\P`))
	wide := strings.ContainsFunc(s, func(r rune) bool { return r > 127 || r == '\\' })
	if wide && ignoresCase(s) {
		n += 500 * strings.Count(s, "-")
	}
	return n
}

// ignoresCase tells whether a group of a pattern sets the flag i, as (?i) and (?si: do.
func ignoresCase(s string) bool {
	for {
		_, rest, ok := strings.Cut(s, "(?")
		if !ok {
			return false
		}
		flags := rest[:len(rest)-len(strings.TrimLeft(rest, "imsU"))]
		if strings.Contains(flags, "i") {
			return true
		}
		s = rest
	}
}

// instructions is the length of the program that regexp makes of a tree, or somewhat more: repetitions are copies there.
func instructions(re *syntax.Regexp) (n int) {
	for _, sub := range re.Sub {
		n += instructions(sub)
	}
	switch re.Op {
	case syntax.OpLiteral:
		return len(re.Rune)
	case syntax.OpRepeat:
		return max(re.Min, re.Max, 1)*(n+1) + 1
	case syntax.OpAlternate:
		return n + len(re.Sub)
	}
	return n + 2
}

// classes is what the ranges of character classes take besides, which copies share.
func classes(re *syntax.Regexp) (n int) {
	for _, sub := range re.Sub {
		n += classes(sub)
	}
	if re.Op == syntax.OpCharClass {
		n += len(re.Rune) / 16
	}
	return n
}
