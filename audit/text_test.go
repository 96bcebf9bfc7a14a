package audit

import (
	"bytes"
	"strings"
	"testing"
	"time"
	"unicode/utf8"
)

func TestWhatATerminalWouldObeyIsWrittenOut(t *testing.T) {
	for text, want := range map[string]string{
		"":                         "",
		"plain, wörter, 漢字, 👍":     "plain, wörter, 漢字, 👍",
		"\x1b[31mred\x1b[0m":       `\u001b[31mred\u001b[0m`,
		"one\ntwo\r\ttab\x00":      `one\u000atwo\u000d\u0009tab\u0000`,
		"\u009b31m":                `\u009b31m`,
		"\xff\xfe":                 `\xff\xfe`,
		"\ufffd":                   "\ufffd",
		"a\u202eb\u2066c":          `a\u202eb\u2066c`,
		"zero\u200bwidth\ufeff":    `zero\u200bwidth\ufeff`,
		"\u3164\u115f\u2800\u00a0": `\u3164\u115f\u2800\u00a0`,
		"\u2028\u2029":             `\u2028\u2029`,
		"\ufe0f\U000e0041":         `\ufe0f\U000e0041`,
		`\u001b is text`:           `\\u001b is text`,
		"0123456789abc":            `0123456789\…(13 bytes)`,
		"12345678é":                "12345678é",
		"123456789é":               `123456789\…(11 bytes)`,
		`123456789\`:               `123456789\…(10 bytes)`,
		"<script>":                 "<script>",
	} {
		max := 100
		if strings.HasPrefix(text, "0123") || strings.HasPrefix(text, "1234") {
			max = 10
		}
		if got := Clean(text, max); got != want {
			t.Errorf("%q: got %s, want %s", text, got, want)
		}
	}
}

func TestWhatIsCleanIsShownAsItIs(t *testing.T) {
	for _, text := range []string{"", "plain", `C:\`, "\x1b[31mred", "a\u202eb", "\xff", "漢字"} {
		clean := Clean(text, 100)
		if got := Show(clean); got != clean {
			t.Errorf("%q: got %s, want %s", text, got, clean)
		}
		if got := Show(text); !utf8.ValidString(got) || strings.IndexFunc(got, unsafeRune) >= 0 {
			t.Errorf("%q is shown as %q", text, got)
		}
	}
}

func TestParseTakesOnlyWhatAppendWrites(t *testing.T) {
	dir := small(t)
	_, all := seqs(t, dir)
	line := strings.TrimSpace(string(all[0][1]))
	if _, err := Parse([]byte(line)); err != nil {
		t.Fatal(err)
	}
	for what, changed := range map[string]string{
		"a space":         strings.Replace(line, `,"seq"`, `, "seq"`, 1),
		"a key twice":     strings.Replace(line, `"seq":2`, `"seq":3,"seq":2`, 1),
		"an unknown key":  strings.Replace(line, `"seq":2`, `"seq":2,"x":1`, 1),
		"another case":    strings.Replace(line, `"host"`, `"Host"`, 1),
		"another version": strings.Replace(line, `"v":1`, `"v":2`, 1),
		"another kind":    strings.Replace(line, `run.granted`, `run.ended`, 1),
		"no kind":         strings.Replace(line, `run.granted`, `run`, 1),
		"another writing": strings.Replace(line, `agent`, `\u0061gent`, 1),
		"an escape":       strings.Replace(line, `agent`, `\u001bgent`, 1),
		"more":            line + "{}",
		"nothing":         "",
		"null":            "null",
		"no detail":       line[:strings.Index(line, `,"detail"`)] + "}",
	} {
		if changed == line {
			t.Errorf("%s: nothing was changed", what)
		}
		if e, err := Parse([]byte(changed)); err == nil {
			t.Errorf("%s: %+v", what, e)
		}
	}
}

func FuzzClean(f *testing.F) {
	for _, text := range []string{"", "a\x1b[0m", "\xff", "\u202e", `\…(5 bytes)`, strings.Repeat("é", 50)} {
		f.Add(text, 20)
	}
	f.Fuzz(func(t *testing.T, text string, max int) {
		if max < 0 || max > 10_000 {
			return
		}
		clean := Clean(text, max)
		if !utf8.ValidString(clean) || strings.IndexFunc(clean, unsafeRune) >= 0 || len(clean) > max+markLength {
			t.Errorf("%q becomes %q", text, clean)
		}
		if len(text) <= max && plain(text) != (clean == text) && !strings.ContainsFunc(text, func(r rune) bool { return r > '~' }) {
			t.Errorf("%q becomes %q", text, clean)
		}
	})
}

// Whatever a skill says, its record can be written, and is read as it was written.
func FuzzRecord(f *testing.F) {
	f.Add("a\x1b[0m", 3)
	f.Add(strings.Repeat(`"`, 2000), 0)
	f.Fuzz(func(t *testing.T, text string, which int) {
		all := filled(text)
		e := all[uint(which)%uint(len(all))]
		var clean Event
		if err := complete(&e, &clean, text, time.Now(), boottime()); err != nil {
			t.Fatal(err)
		}
		var b batch
		if err := b.add(clean); err != nil {
			t.Fatal(err)
		}
		if _, err := Parse(b.text[:len(b.text)-1]); err != nil {
			t.Errorf("%v: %s", err, b.text)
		}
	})
}

// Whatever Parse takes is written again byte for byte, and its header is the one that the chain reads.
func FuzzParse(f *testing.F) {
	for _, e := range filled("a\x1b") {
		var clean Event
		if err := complete(&e, &clean, "host", time.Now(), boottime()); err != nil {
			f.Fatal(err)
		}
		var b batch
		if err := b.add(clean); err != nil {
			f.Fatal(err)
		}
		f.Add(b.text[:len(b.text)-1])
	}
	f.Add([]byte(`{"v":1,"seq":1,"prev":"`))
	f.Add(withPrev(f, strings.Repeat("0", 9)+`\u001b`+strings.Repeat("0", 54)))
	f.Fuzz(func(t *testing.T, line []byte) {
		h, headerErr := readHeader(line)
		e, err := Parse(line)
		if err != nil {
			return
		}
		again, err := encode(&e)
		if err != nil || string(again) != string(line) {
			t.Errorf("%s %v", again, err)
		}
		if headerErr == nil && (h.seq != e.Seq || h.prev != e.Prev || h.kind != e.Kind) {
			t.Errorf("%+v of %s", h, line)
		}
	})
}

// What stands in a record for the hash of the line before is one, or nothing reads the record: its header is read as bytes, and the record as JSON.
func TestParseRefusesWhatIsNoHash(t *testing.T) {
	zeros := strings.Repeat("0", 64)
	if _, err := Parse(withPrev(t, zeros)); err != nil {
		t.Fatal(err)
	}
	for _, prev := range []string{"", zeros[1:], zeros + "0", zeros[1:] + "A", zeros[1:] + "g", zeros[9:] + `\u001b` + "00000000", zeros[58:] + zeros[:57] + "é"} {
		if _, err := Parse(withPrev(t, prev)); err == nil || !strings.Contains(err.Error(), "hash of the line before") {
			t.Errorf("%q: %v", prev, err)
		}
	}
}

// withPrev is a record as skillbox writes it but for the hash of the line before, which is put in as it is.
func withPrev(tb testing.TB, prev string) []byte {
	tb.Helper()
	e := filled("a")[0]
	var clean Event
	if err := complete(&e, &clean, "host", time.Now(), boottime()); err != nil {
		tb.Fatal(err)
	}
	clean.Prev = strings.Repeat("0", 64)
	var b batch
	if err := b.add(clean); err != nil {
		tb.Fatal(err)
	}
	return bytes.Replace(b.text[:len(b.text)-1], []byte(`"prev":"`+clean.Prev), []byte(`"prev":"`+prev), 1)
}
