package main

import (
	"bytes"
	"fmt"
	"io"
	"os"
	"strconv"
	"time"
	"unicode/utf8"

	"skillbox/cmd/cli"

	"golang.org/x/sys/unix"
)

// shown is what a skill prints as a terminal gets it: text, tabs and line ends as they are; what a terminal would obey written out, as \x1b or
// \u202e, and so are bytes that are no UTF-8. What looks like a line of skillbox's own has a mark before it.
type shown struct {
	to    io.Writer
	rest  []byte // the beginning of a character, or of a line that may be such a line
	begun bool   // the line has begun
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

func (s *shown) pass(all bool) error {
	var b bytes.Buffer
	i := 0
	for i < len(s.rest) {
		left := s.rest[i:]
		if !s.begun {
			switch {
			case bytes.HasPrefix(left, ours):
				b.WriteString(mark)
			case !all && bytes.HasPrefix(ours, left):
				return s.show(&b, i) // it may become one
			}
			s.begun = true
		}
		r, size := utf8.DecodeRune(left)
		switch {
		case !all && r == utf8.RuneError && !utf8.FullRune(left):
			return s.show(&b, i)
		case r == '\n' || r == '\r' && (len(left) > 1 && left[1] == '\n'):
			b.Write(left[:size])
			s.begun = r != '\n'
		case r == '\r' && len(left) == 1 && !all:
			return s.show(&b, i)
		case r == utf8.RuneError && size == 1:
			fmt.Fprintf(&b, `\x%02x`, left[0])
		case cli.Unprintable(r) && r != utf8.RuneError:
			quoted := strconv.QuoteRuneToASCII(r)
			b.WriteString(quoted[1 : len(quoted)-1])
		default:
			b.Write(left[:size])
		}
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

// showTo gives the skill a pipe in place of a terminal. The returned function waits until what came was shown.
func showTo(terminal *os.File) (pipe *os.File, wait func() error, err error) {
	read, write, err := os.Pipe()
	if err != nil {
		return nil, nil, err
	}
	done := make(chan error, 1)
	go func() {
		s := &shown{to: terminal}
		_, err := io.Copy(s, read)
		if err2 := s.Flush(); err == nil {
			err = err2
		}
		done <- err
	}()
	return write, func() error {
		if err := write.Close(); err != nil {
			return err
		}
		select {
		case err := <-done:
			return err
		case <-time.After(drainTime): // a service that does not close its end
			return nil
		}
	}, nil
}

// drainTime is how long after a call its last output may take to a terminal that somebody has stopped.
const drainTime = 5 * time.Second

func isTerminal(fd int) bool {
	_, err := unix.IoctlGetTermios(fd, unix.TCGETS)
	return err == nil
}

// inertJSON writes out what a terminal would obey within JSON, which has such characters only within texts and lets them stand there: DEL, the C1
// controls and those that turn the direction of text or are not seen. Controls below the space JSON itself does not let stand.
func inertJSON(text []byte) []byte {
	if bytes.IndexFunc(text, inert) < 0 {
		return text
	}
	var b bytes.Buffer
	for _, r := range string(text) {
		switch {
		case !inert(r):
			b.WriteRune(r)
		case r > 0xffff:
			high, low := (r-0x10000)>>10+0xd800, (r-0x10000)&0x3ff+0xdc00
			fmt.Fprintf(&b, `\u%04x\u%04x`, high, low)
		default:
			fmt.Fprintf(&b, `\u%04x`, r)
		}
	}
	return b.Bytes()
}

func inert(r rune) bool { return r > '~' && cli.Unprintable(r) && r != utf8.RuneError }
