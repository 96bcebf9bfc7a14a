package cli

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"testing"

	"skillbox/helper"
)

func TestALineOrdersNoTerminalAbout(t *testing.T) {
	for line, want := range map[string]string{
		`{"skill":"wörd"}`: `{"skill":"wörd"}`,
		"a\tb":             "a\tb",
		"\x1b[31mred":      `\x1b[31mred`,
		"\u009b31m\u202e":  `\u009b31m\u202e`,
		"\xff":             `\ufffd`,
		"panic: \r\a":      `panic: \r\a`,
	} {
		if got := Visible(line); got != want {
			t.Errorf("%q: %q, want %q", line, got, want)
		}
	}
	if got := VisibleLines("a\x1b\nb\r\n"); got != "a\\x1b\nb\\r\n" {
		t.Errorf("%q", got)
	}
}

type hinted struct{ error }

func (hinted) Hint() string { return "do this" }

func TestHints(t *testing.T) {
	for want, err := range map[string]error{
		"":        errors.New("x"),
		"do that": fmt.Errorf("x: %w", &helper.Error{Message: "m", Hint: "do that"}),
		"do this": fmt.Errorf("x: %w", hinted{errors.New("y")}),
	} {
		if got := hint(err); got != want {
			t.Errorf("%v: %q, want %q", err, got, want)
		}
	}
}

func TestJSONHoldsNothingThatATerminalObeys(t *testing.T) {
	const text = "\x1b[31m \u009b2J \x7f \u202e \u2066 \U000e0041 é\ufffd \xff"
	before, err := json.Marshal(text)
	if err != nil {
		t.Fatal(err)
	}
	after := InertJSON(before)
	var a, b string
	if err := json.Unmarshal(before, &a); err != nil {
		t.Fatal(err)
	}
	if err := json.Unmarshal(after, &b); err != nil || a != b {
		t.Errorf("%q became %q: %v", a, b, err)
	}
	if bytes.ContainsFunc(after, func(r rune) bool { return Unprintable(r) && r != 0xfffd }) {
		t.Errorf("%q", after)
	}
}
