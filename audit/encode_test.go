package audit

import (
	"bytes"
	"encoding/json"
	"math"
	"strings"
	"testing"
	"time"
)

// likeJSON is the encoding that this package's own must equal.
func likeJSON(e *Event) ([]byte, error) {
	var b bytes.Buffer
	encoder := json.NewEncoder(&b)
	encoder.SetEscapeHTML(false)
	err := encoder.Encode(e)
	return bytes.TrimSuffix(b.Bytes(), []byte("\n")), err
}

func TestARecordIsWhatEncodingJSONMakesOfIt(t *testing.T) {
	var all []Event
	for _, text := range []string{"", "a", "<&>\"\\/'", "\x1b[31m\n\t\u202e\u2028\xff\u200b\x7f", "é日\U0001f600", strings.Repeat("x", 9000)} {
		all = append(all, filled(text)...)
		all = append(all, Event{V: 1, Seq: math.MaxInt64, Prev: text, Kind: Kind(text), Run: text, Host: text, Mono: -1, Time: time.Unix(1, 5).UTC(), Detail: Syscall{Args: []string{}}})
	}
	for _, f := range []float64{0, 1, -1.5, 1e21, 1e-7, 0.1, math.MaxFloat64} {
		all = append(all, Event{Detail: DNS{DurationMS: f}}, Event{Detail: Ended{DurationMS: f, Denials: map[string]int64{"b": 1, "a": 2}, Usage: Usage{UserMS: f, PidsPeak: -1}}}, Event{Detail: Ended{Denials: map[string]int64{}}})
	}
	all = append(all, run("one")...)
	all = append(all, Event{Caller: &Caller{}, Skill: &Skill{}, Detail: Undelivered{Records: math.MaxUint64}}, Event{})
	one := new(encoder)
	for _, e := range all {
		want, refused := likeJSON(&e)
		for name, how := range map[string]func(*Event) ([]byte, error){"alone": encode, "after others": one.encode} {
			if got, err := how(&e); (err != nil) != (refused != nil) || err == nil && !bytes.Equal(got, want) {
				t.Fatalf("%s, %T: %v\n%s\n%s", name, e.Detail, err, got, want)
			}
		}
	}
}
