package cli

import (
	"bytes"
	"fmt"
	"io"
	"strconv"
	"sync"
	"unicode/utf8"
)

// Screen is a terminal that a skill's output is shown on, by stdout, stderr or both, besides what skillbox itself says there. The zero value is
// one whose line is empty.
type Screen struct {
	mu     sync.Mutex
	within bool // a line has begun and not ended
}

// Say writes a line of skillbox's own between those of the skill: at the beginning of one, wherever the skill has stopped.
func (s *Screen) Say(to io.Writer, line string) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.within {
		line = "\n" + line
	}
	s.within = false
	_, err := io.WriteString(to, line+"\n")
	return err
}

// shown is what a skill prints as a terminal gets it: text, tabs and line ends as they are; what a terminal would obey written out, as \x1b or
// \u202e, and so are bytes that are no UTF-8. What looks like a line of skillbox's own has a mark before it.
type shown struct {
	to    io.Writer
	on    *Screen
	rest  []byte // the beginning of a character, or of a line that may be such a line
	begun bool   // the line has begun, as this stream has it
}

// ours begins each line that skillbox itself writes to stderr.
var ours = []byte("skillbox:")

// mark goes before a skill's line that begins so.
const mark = "skill> "

// Write never says that less was written, for what is kept back comes with the next one, or with Flush.
func (s *shown) Write(p []byte) (int, error) {
	s.rest = append(s.rest, p...)
	return len(p), s.pass(false)
}

// Flush shows what was kept back.
func (s *shown) Flush() error { return s.pass(true) }

// pass looks for a line's beginning in the stream and on the screen, where another stream may have ended the line that this one began.
func (s *shown) pass(all bool) error {
	s.on.mu.Lock()
	defer s.on.mu.Unlock()
	var b bytes.Buffer
	i := 0
	for i < len(s.rest) {
		left := s.rest[i:]
		if !s.begun || !s.on.within {
			switch {
			case bytes.HasPrefix(left, ours):
				b.WriteString(mark)
			case !all && bytes.HasPrefix(ours, left):
				return s.show(&b, i) // it may become one
			}
		}
		r, size := utf8.DecodeRune(left)
		switch {
		case !all && r == utf8.RuneError && !utf8.FullRune(left):
			return s.show(&b, i)
		case r == '\n' || r == '\r' && (len(left) > 1 && left[1] == '\n'):
			b.Write(left[:size])
		case r == '\r' && len(left) == 1 && !all:
			return s.show(&b, i)
		case r == utf8.RuneError && size == 1:
			fmt.Fprintf(&b, `\x%02x`, left[0])
		case Unprintable(r) && r != utf8.RuneError:
			quoted := strconv.QuoteRuneToASCII(r)
			b.WriteString(quoted[1 : len(quoted)-1])
		default:
			b.Write(left[:size])
		}
		s.begun = r != '\n'
		s.on.within = s.begun
		i += size
	}
	return s.show(&b, i)
}

// show writes what is ready and forgets so much of what was kept.
func (s *shown) show(b *bytes.Buffer, done int) error {
	s.rest = append(s.rest[:0], s.rest[done:]...)
	_, err := s.to.Write(b.Bytes())
	return err
}
