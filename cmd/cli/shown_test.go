package cli

import (
	"bytes"
	"testing"
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
			s := &shown{to: &b, on: &Screen{}}
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

// A line of the screen may begin by one stream and end by another.
func TestNoStreamHelpsAnotherToALineOfSkillboxs(t *testing.T) {
	for want, steps := range map[string][]string{
		"x\nskill> skillbox: y\n":                       {"2x", "1\n", "2skillbox: y\n"},
		"x\nskill> skillbox: y\\xe6":                    {"2x", "1\n", "1\xe6", "2skillbox:", "2 y"},
		"x\nskill> skillbox: y\n\\xe6":                  {"2x", "1\n", "1\xe6", "2skillb", "2ox: y\n"},
		"x\nskill> skillbox: y|":                        {"2x", "1\n", "2skillbox", "2: y", "1|"},
		"x\nskillbox: ours\nskill> skillbox: y":         {"2x", "0skillbox: ours", "2skillbox: y"},
		"x\nskillbox: ours\nskillbox: too\nx\n":         {"1x\n", "0skillbox: ours", "0skillbox: too", "2x\n"},
		"xskillbox: y":                                  {"2x", "2skillbox: y"},
		"skill> skillbox: a\nskill> skillbox: b\nyx: c": {"1skillbox", "2skillbox: a\n", "1: b\n", "2y", "1x: c"},
	} {
		var b bytes.Buffer
		on := &Screen{}
		streams := map[byte]*shown{'1': {to: &b, on: on}, '2': {to: &b, on: on}}
		for _, step := range steps {
			err := error(nil)
			if step[0] == '0' {
				err = on.Say(&b, step[1:])
			} else {
				_, err = streams[step[0]].Write([]byte(step[1:]))
			}
			if err != nil {
				t.Fatal(err)
			}
		}
		for _, of := range "12" {
			if err := streams[byte(of)].Flush(); err != nil {
				t.Fatal(err)
			}
		}
		if b.String() != want {
			t.Errorf("%q: %q, want %q", steps, b.String(), want)
		}
	}
}
