package server

import (
	"bytes"
	"encoding/json"
	"log/slog"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"skillbox/helper"
	"skillbox/helper/server/metrics"
)

// recorded is a record and what it logs.
func recorded() (*record, *bytes.Buffer) {
	var text bytes.Buffer
	return newRecord("v1", slog.New(slog.NewJSONHandler(&text, &slog.HandlerOptions{ReplaceAttr: clip}))), &text
}

func TestManyRefusalsMakeFewLines(t *testing.T) {
	r, text := recorded()
	for range 1000 {
		r.refuse(metrics.Stranger, unix.Ucred{Uid: 1}, nil)
		r.refuse(metrics.FromBox, unix.Ucred{Uid: 2}, nil)
	}
	if n := strings.Count(text.String(), "\n"); n > 4 { // one of each in a second
		t.Errorf("%d lines", n)
	}
	stats, err := r.Stats(helper.Boxes{})
	if err != nil || stats.Refused[metrics.Stranger] != 1000 || stats.Refused[metrics.FromBox] != 1000 {
		t.Errorf("%v, %v", err, stats.Refused)
	}
}

func TestOneCallIsOneShortLine(t *testing.T) {
	r, text := recorded()
	long := strings.Repeat("\n\x1b[31m\u009b1m", 100_000)
	r.ended(&helper.Result{
		ID: "1", Verdict: helper.Failed, ExitCode: helper.CodeFailed, Error: &helper.Error{Message: long}, Skill: helper.Named{Name: long}, Policy: helper.Named{Name: long},
	})()
	if n := text.Len(); strings.Count(text.String(), "\n") != 1 || n > 25_000 || strings.ContainsAny(text.String(), "\x1b") || !json.Valid(text.Bytes()) {
		t.Errorf("%d bytes: %.300q", n, text.String())
	}
}

// What policy and bundle checks refuse may quote what the caller passed.
func TestTheLogTellsErrorsOfOursAlone(t *testing.T) {
	for _, c := range []struct {
		verdict string
		code    int
		told    bool
	}{
		{helper.Refused, helper.CodeFailed, false}, {helper.Canceled, helper.CodeCanceled, false}, {helper.Failed, helper.CodeNotFound, false}, {helper.Failed, helper.CodeFailed, true},
	} {
		r, text := recorded()
		r.ended(&helper.Result{Verdict: c.verdict, ExitCode: c.code, Error: &helper.Error{Message: "secret"}})()
		if told := strings.Contains(text.String(), "secret"); told != c.told {
			t.Errorf("%s, %d: %s", c.verdict, c.code, text)
		}
	}
}

func TestOnlyACanceledCallIsToldWhy(t *testing.T) {
	var s stopped
	s.because("first")
	s.because("second")
	for verdict, want := range map[string]string{helper.Canceled: "first", helper.TimedOut: "its own"} {
		r := helper.Failure(verdict, &helper.Error{Message: "its own"})
		s.tell(r)
		if r.Error.Message != want {
			t.Errorf("%s: %q", verdict, r.Error.Message)
		}
	}
}
