package main

import (
	"regexp"
	"strings"
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
	for want, starts := range map[string]map[string]int64{
		"no call needed a box": {helper.InSession: 2},
		"75 % (6 of 8): 5 preloaded, 3 session, 2 cold, 1 prepared": {helper.Cold: 2, helper.Prepared: 1, helper.Preloaded: 5, helper.InSession: 3},
		"0 % (0 of 1): 1 cold": {helper.Cold: 1},
	} {
		if got := foundReady(starts); got != want {
			t.Errorf("%q, want %q", got, want)
		}
	}
}

func TestEachBoxHasALineOfItsOwn(t *testing.T) {
	memory := int64(3 << 19)
	var out strings.Builder
	err := printBoxes(&out, []helper.BoxStatus{
		{ID: "a", Kind: helper.CallBox, Skill: "x\x1b[31m", Policy: "p", Command: []string{"sh", "a\nb"}, MemoryBytes: &memory},
		{ID: "b", Kind: helper.SessionBox, Skill: "y", State: "idle"},
		{ID: "c", Kind: helper.Preloaded, Skill: "z", Bundle: "/b"},
	})
	text := regexp.MustCompile(`  [0-9a-z.]+[0-9]s  `).ReplaceAllString(regexp.MustCompile(` +`).ReplaceAllString(out.String(), "  "), "  AGO  ")
	want := `BOX  KIND  SKILL  POLICY  AGE  MEMORY  WHAT
a  call  "x\x1b[31m"  p  AGO  1.5  MiB  "sh  a\nb"
b  session  y  -  AGO  -  idle
c  preloaded  z  -  AGO  -  for  calls  of  /b
`
	if err != nil || text != want {
		t.Errorf("%v:\n%s", err, text)
	}
}
