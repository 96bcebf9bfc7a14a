package main

import (
	"bytes"
	"encoding/json"
	"testing"

	"skillbox/cmd/cli"
)

func TestATerminalIsShownWhatItWouldObey(t *testing.T) {
	for text, want := range map[string]string{
		"hello\n\tworld\r\n":                      "hello\n\tworld\r\n",
		"\x1b]52;c;Y2FsYw==\a":                    `\x1b]52;c;Y2FsYw==\a`,
		"\x1b]0;title\x1b\\":                      `\x1b]0;title\x1b\`,
		"\u009b31mred \x9b2J":                     `\u009b31mred \x9b2J`,
		"100%\r  0%":                              `100%\r  0%`,
		"a\bb\x7f":                                `a\bb\x7f`,
		"abc \u202etxt.exe \u200b":                `abc \u202etxt.exe \u200b`,
		"é日\U0001f600":                            "é日\U0001f600",
		"skillbox: all is well\n":                 "skill> skillbox: all is well\n",
		"a\nskillbox: hint: x\nsay skillbox: x\n": "a\nskill> skillbox: hint: x\nsay skillbox: x\n",
		"skillbo":                                 "skillbo",
		"skillboxes\r\nskillbox:":                 "skillboxes\r\nskill> skillbox:",
		"\xe6\x97":                                `\xe6\x97`,
		"\r":                                      `\r`,
		"\ufffd":                                  "\ufffd",
	} {
		// However it comes: as a whole, and byte by byte.
		for _, n := range []int{len(text), 1, 3} {
			var b bytes.Buffer
			s := &shown{to: &b}
			for i := 0; i < len(text); i += n {
				part := text[i:min(i+n, len(text))]
				if m, err := s.Write([]byte(part)); m != len(part) || err != nil {
					t.Fatal(m, err)
				}
			}
			if err := s.Flush(); err != nil {
				t.Fatal(err)
			}
			if b.String() != want {
				t.Errorf("%q by %d: %q, want %q", text, n, b.String(), want)
			}
		}
	}
}

func TestJSONHoldsNothingThatATerminalObeys(t *testing.T) {
	const text = "\x1b[31m \u009b2J \x7f \u202e \u2066 \U000e0041 é\ufffd \xff"
	before, err := json.Marshal(text)
	if err != nil {
		t.Fatal(err)
	}
	after := inertJSON(before)
	var a, b string
	if err := json.Unmarshal(before, &a); err != nil {
		t.Fatal(err)
	}
	if err := json.Unmarshal(after, &b); err != nil || a != b {
		t.Errorf("%q became %q: %v", a, b, err)
	}
	if bytes.ContainsFunc(after, func(r rune) bool { return cli.Unprintable(r) && r != 0xfffd }) {
		t.Errorf("%q", after)
	}
}
