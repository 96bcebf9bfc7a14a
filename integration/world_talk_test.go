//go:build linux

package integration

import (
	"fmt"
	"testing"

	"skillbox/helper"
)

// talk, outcome, question, reply and lookup are the probe's, which says what they are.
type talk struct {
	Look    []string `json:"look"`
	To      string   `json:"to"`
	Wait    int      `json:"wait"`
	Send    [][]byte `json:"send"`
	Pause   int      `json:"pause"`
	After   []byte   `json:"after"`
	Hold    int      `json:"hold"`
	Count   int      `json:"count"`
	Nothing bool     `json:"nothing"`
}

type outcome struct {
	Looked  map[string]string `json:"looked"`
	Connect string            `json:"connect"`
	ConnMS  float64           `json:"conn_ms"`
	Got     []byte            `json:"got"`
	Bytes   int               `json:"bytes"`
	End     string            `json:"end"`
	EndMS   float64           `json:"end_ms"`
}

func (o outcome) String() string {
	return fmt.Sprintf("looked up %v, connect: %s in %.1f ms, then %d bytes %.60q, end: %s after %.1f ms", o.Looked, o.Connect, o.ConnMS, o.Bytes, o.Got, o.End, o.EndMS)
}

type question struct {
	Via    string   `json:"via"`
	Labels []string `json:"labels"`
	Type   uint16   `json:"type"`
	Raw    []byte   `json:"raw"`
}

type reply struct {
	Error   string   `json:"error"`
	Code    string   `json:"code"`
	Answers []string `json:"answers"`
	Cut     bool     `json:"cut"`
	TTL     uint32   `json:"ttl"`
	MS      float64  `json:"ms"`
}

type lookup struct {
	Addrs string  `json:"addrs"`
	MS    float64 `json:"ms"`
}

// talks has conversations in one box, one after the other; or all at once with the word "together".
func (w *world) talks(t *testing.T, y way, policy string, talks []talk, words ...string) ([]outcome, *helper.Result) {
	t.Helper()
	var got []outcome
	r := w.probe(t, y, policy, &got, talks, append([]string{"talk"}, words...)...)
	if len(got) != len(talks) {
		t.Fatalf("%d of %d conversations", len(got), len(talks))
	}
	return got, r
}

// once is data in one write.
func once(text string) [][]byte { return [][]byte{[]byte(text)} }
