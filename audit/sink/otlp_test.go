package sink

import (
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"
	"time"

	"skillbox/audit"
)

// These types are the messages of opentelemetry-proto as ProtoJSON has them; a key that is not in them fails the test.
type (
	exportRequest struct {
		ResourceLogs []struct {
			Resource  struct{ Attributes []keyValue }
			ScopeLogs []struct {
				Scope      struct{ Name, Version string }
				LogRecords []protoRecord
			}
		}
	}
	protoRecord struct {
		TimeUnixNano, ObservedTimeUnixNano string // fixed64
		SeverityNumber                     int    // an enumeration
		SeverityText, EventName            string
		Body                               anyValue
		Attributes                         []keyValue
	}
	keyValue struct {
		Key   string
		Value anyValue
	}
	anyValue struct {
		StringValue *string
		IntValue    *string // int64
	}
)

// collector answers as a test says, and keeps what it accepts.
type collector struct {
	*httptest.Server
	mu      sync.Mutex
	answers []func(w http.ResponseWriter) // one for each request; then 200
	times   []time.Time
	headers http.Header
	got     []protoRecord
	host    string
	wrong   error
}

func collect(t *testing.T, answers ...func(w http.ResponseWriter)) *collector {
	c := &collector{answers: answers}
	c.Server = httptest.NewServer(c)
	t.Cleanup(c.Server.Close)
	return c
}

func status(code int, text string) func(w http.ResponseWriter) {
	return func(w http.ResponseWriter) {
		w.WriteHeader(code)
		fmt.Fprint(w, text)
	}
}

func (c *collector) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.times, c.headers = append(c.times, time.Now()), r.Header
	var request exportRequest
	d := json.NewDecoder(r.Body)
	d.DisallowUnknownFields()
	if err := d.Decode(&request); err != nil || r.Method != http.MethodPost || r.URL.Path != "/v1/logs" {
		c.wrong = fmt.Errorf("%s %s: %w", r.Method, r.URL, err)
	}
	if len(c.answers) > 0 {
		answer := c.answers[0]
		c.answers = c.answers[1:]
		if answer != nil {
			answer(w)
			return
		}
	}
	for _, resource := range request.ResourceLogs {
		c.host = attribute(resource.Resource.Attributes, "host.name")
		for _, scope := range resource.ScopeLogs {
			c.got = append(c.got, scope.LogRecords...)
		}
	}
	w.Header().Set("Content-Type", "application/json")
	_, _ = io.WriteString(w, "{}")
}

func (c *collector) count() int {
	c.mu.Lock()
	defer c.mu.Unlock()
	return len(c.got)
}

func attribute(all []keyValue, key string) string {
	for _, a := range all {
		if a.Key == key && a.Value.StringValue != nil {
			return *a.Value.StringValue
		}
		if a.Key == key && a.Value.IntValue != nil {
			return *a.Value.IntValue
		}
	}
	return ""
}

func TestACollectorGetsLogRecords(t *testing.T) {
	c := collect(t)
	l, dir := opened(t, &told{}, Config{Type: "otlp", Endpoint: c.URL + "/v1/logs", Token: "s3cret"})
	if err := l.Append(hostile("run-1")...); err != nil {
		t.Fatal(err)
	}
	if err := l.Checkpoint(); err != nil {
		t.Fatal(err)
	}
	all := records(t, dir, audit.Query{})
	eventually(t, "all records", func() bool { return c.count() == len(all) })
	if c.wrong != nil || c.headers.Get("Content-Type") != "application/json" || c.headers.Get("Authorization") != "Bearer s3cret" || c.host != all[0].Host {
		t.Errorf("%v, %v, %q", c.wrong, c.headers, c.host)
	}
	for i, r := range all {
		got := c.got[i]
		severity, word := 9, "INFO"
		if r.Kind == audit.DNSKind {
			severity, word = 13, "WARN"
		}
		if got.TimeUnixNano != fmt.Sprint(r.Time.UnixNano()) || got.ObservedTimeUnixNano != got.TimeUnixNano || got.SeverityNumber != severity || got.SeverityText != word ||
			got.EventName != "skillbox."+string(r.Kind) || got.Body.StringValue == nil || *got.Body.StringValue != string(r.Kind)+": "+r.Summary() {
			t.Errorf("%s: %+v", r.Kind, got)
		}
		for key, want := range map[string]string{
			"skillbox.kind": string(r.Kind), "skillbox.seq": fmt.Sprint(r.Seq), "skillbox.run": r.Run, "skillbox.verdict": r.Verdict(), "log.record.original": string(r.Line),
		} {
			if have := attribute(got.Attributes, key); have != want {
				t.Errorf("%s: %s is %q, want %q", r.Kind, key, have, want)
			}
		}
		if r.Run != "" && (attribute(got.Attributes, "skillbox.caller.uid") != "1000" || attribute(got.Attributes, "skillbox.skill.digest") != "sha256:00") {
			t.Errorf("%s: %+v", r.Kind, got.Attributes)
		}
		if strings.ContainsAny(*got.Body.StringValue, "\x1b\n\u009b") {
			t.Errorf("%q", *got.Body.StringValue)
		}
	}
	// A checkpoint there is a head that was exported.
	last := c.got[len(c.got)-1]
	r, err := audit.Verify(dir, audit.VerifyOptions{Head: []byte(attribute(last.Attributes, "log.record.original") + "\n")})
	if err != nil || !r.Whole {
		t.Errorf("%+v, %v", r.Broken, err)
	}
}

func TestWhatACollectorPutsOffComesAgain(t *testing.T) {
	later := func(w http.ResponseWriter) {
		w.Header().Set("Retry-After", "1")
		w.WriteHeader(http.StatusTooManyRequests)
	}
	c, w := collect(t, later, status(502, ""), status(503, ""), status(504, "")), &told{}
	l, dir := opened(t, w, Config{Type: "otlp", Endpoint: c.URL + "/v1/logs"})
	if err := l.Append(hostile("run-1")...); err != nil {
		t.Fatal(err)
	}
	eventually(t, "all records", func() bool { return c.count() == 5 })
	if wait := c.times[1].Sub(c.times[0]); wait < time.Second {
		t.Errorf("asked to wait for a second, it came again after %s", wait)
	}
	for i := 2; i < len(c.times); i++ {
		if wait, least := c.times[i].Sub(c.times[i-1]), firstPause<<(i-1); wait < least {
			t.Errorf("attempt %d came after %s, want at least %s", i, wait, least)
		}
	}
	if err := l.Close(); err != nil {
		t.Fatal(err)
	}
	if s, err := audit.Count(audit.Read(dir, audit.Query{})); err != nil || len(s.Undelivered) > 0 || w.has("not delivered") {
		t.Errorf("%v, %v", s.Undelivered, err)
	}
}

func TestWhatACollectorRefusesIsCountedAndNotSentAgain(t *testing.T) {
	for name, answer := range map[string]struct {
		give func(w http.ResponseWriter)
		lost uint64
		why  string
	}{
		"400":          {status(400, "bad \x1b[2J request"), 5, `400 Bad Request: bad \u001b[2J request`},
		"500":          {status(500, ""), 5, "500 Internal Server Error"},
		"redirect":     {func(w http.ResponseWriter) { w.Header().Set("Location", "/elsewhere"); w.WriteHeader(307) }, 5, "307"},
		"some, text":   {status(200, `{"partialSuccess":{"rejectedLogRecords":"2","errorMessage":"too\nold"}}`), 2, `too\u000aold`},
		"some, number": {status(200, `{"partialSuccess":{"rejectedLogRecords":3}}`), 3, "rejects"},
		"a warning":    {status(200, `{"partialSuccess":{"rejectedLogRecords":"0","errorMessage":"slow down"}}`), 0, ""},
		"no JSON":      {status(200, `<html>`), 0, ""},
	} {
		t.Run(name, func(t *testing.T) {
			c, w := collect(t, answer.give), &told{}
			l, dir := opened(t, w, Config{Type: "otlp", Endpoint: c.URL + "/v1/logs"})
			if err := l.Append(hostile("run-1")...); err != nil {
				t.Fatal(err)
			}
			eventually(t, "a request", func() bool { c.mu.Lock(); defer c.mu.Unlock(); return len(c.times) > 0 })
			if answer.lost > 0 {
				eventually(t, "a warning", func() bool { return w.has("records not delivered") && w.has(answer.why) })
			}
			if err := l.Close(); err != nil {
				t.Fatal(err)
			}
			s, err := audit.Count(audit.Read(dir, audit.Query{}))
			if err != nil || s.Undelivered["otlp "+c.URL+"/v1/logs"] != answer.lost {
				t.Errorf("%v lost, want %d: %v", s.Undelivered, answer.lost, err)
			}
			for _, r := range c.got {
				if attribute(r.Attributes, "skillbox.seq") == "1" {
					t.Error("it was sent again")
				}
			}
		})
	}
}

// One that takes a connection and says nothing holds up no run, and the end of skillboxd for a second.
func TestACollectorThatDoesNotAnswerHoldsNobodyUp(t *testing.T) {
	let := make(chan struct{})
	c := collect(t, func(http.ResponseWriter) { <-let })
	defer close(let)
	l, dir := opened(t, &told{}, Config{Type: "otlp", Endpoint: c.URL + "/v1/logs"})
	began := time.Now()
	if err := l.Append(hostile("run-1")...); err != nil {
		t.Fatal(err)
	}
	if d := time.Since(began); d > 500*time.Millisecond {
		t.Errorf("an append took %s", d)
	}
	if err := l.Close(); err != nil {
		t.Fatal(err)
	}
	if d := time.Since(began); d > 4*time.Second {
		t.Errorf("closing took %s", d)
	}
	if s, err := audit.Count(audit.Read(dir, audit.Query{})); err != nil || s.Undelivered["otlp "+c.URL+"/v1/logs"] < 5 {
		t.Errorf("%v, %v", s.Undelivered, err)
	}
}

func TestRetryAfterIsSecondsOrADate(t *testing.T) {
	now := time.Date(2026, 11, 22, 9, 0, 0, 0, time.UTC)
	for text, want := range map[string]time.Duration{
		"7": 7 * time.Second, "Sun, 22 Nov 2026 09:00:30 GMT": 30 * time.Second, "Sun, 22 Nov 2026 08:00:00 GMT": 0, "": 0, "soon": 0, "-3": 0, "99999999999": 0,
	} {
		if got := retryAfter(text, now); got != want {
			t.Errorf("%q: %s, want %s", text, got, want)
		}
	}
}
