package main

import (
	"testing"

	"skillbox/helper"
)

func TestCountsReadAsWords(t *testing.T) {
	for want, s := range map[string]*helper.Stats{
		"none": {},
		"9: 5 succeeded, 2 timed_out, 1 exited otherwise, 1 refused": {Calls: map[string]int64{"exited": 6, "timed_out": 2, "refused": 1, "failed": 0}, Succeeded: 5},
		"2: 2 failed": {Calls: map[string]int64{"failed": 2}},
	} {
		if got := callsLine(s); got != want {
			t.Errorf("%q, want %q", got, want)
		}
	}
	if got := rate(2, 3); got != "67 % (2 of 3)" {
		t.Error(got)
	}
}

func TestALogLineOrdersNoTerminalAbout(t *testing.T) {
	for line, want := range map[string]string{
		`{"skill":"wörd"}`: `{"skill":"wörd"}`,
		"a\tb":             "a\tb",
		"\x1b[31mred":      `\x1b[31mred`,
		"\u009b31m\u202e":  `\u009b31m\u202e`,
		"\xff":             `\ufffd`,
		"panic: \r\a":      `panic: \r\a`,
	} {
		if got := visible(line); got != want {
			t.Errorf("%q: %q, want %q", line, got, want)
		}
	}
}
