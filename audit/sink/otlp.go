package sink

import (
	"bytes"
	"context"
	"crypto/tls"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"
	"strconv"
	"time"

	"skillbox/audit"
)

// otlp posts records as OTLP/HTTP with JSON has it (opentelemetry.io/docs/specs/otlp): ProtoJSON with numbers of 64 bits as texts and
// enumerations as numbers.
type otlp struct {
	endpoint *url.URL
	token    string
	client   *http.Client
}

// postTime is how long one request may take.
const postTime = 10 * time.Second

func newOTLP(endpoint, token string) (*otlp, error) {
	u, err := url.Parse(endpoint)
	if err != nil {
		return nil, fmt.Errorf("sink: %w", err)
	}
	return &otlp{u, token, &http.Client{
		Timeout: postTime,
		// No proxy: the environment of who started skillboxd does not decide where records go. Nor does an answer.
		Transport: &http.Transport{
			TLSClientConfig: &tls.Config{MinVersion: tls.VersionTLS12}, ForceAttemptHTTP2: true, DisableCompression: true,
			MaxConnsPerHost: 1, IdleConnTimeout: time.Minute, MaxResponseHeaderBytes: 64 << 10, TLSHandshakeTimeout: postTime,
		},
		CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
	}}, nil
}

func (o *otlp) name() string { return "otlp " + o.endpoint.Redacted() }

func (o *otlp) reach(ctx context.Context) error {
	port := o.endpoint.Port()
	if port == "" {
		port = o.endpoint.Scheme
	}
	ctx, stop := context.WithTimeout(ctx, postTime)
	defer stop()
	conn, err := new(net.Dialer).DialContext(ctx, "tcp", net.JoinHostPort(o.endpoint.Hostname(), port))
	if err != nil {
		return fmt.Errorf("sink: %w", err)
	}
	return conn.Close()
}

func (o *otlp) send(ctx context.Context, batch []audit.Record) outcome {
	all := outcome{done: len(batch)}
	refuse := func(n uint64, format string, a ...any) outcome {
		all.refused, all.why = n, fmt.Errorf("sink: "+format, a...)
		return all
	}
	body, err := json.Marshal(export(batch))
	if err != nil {
		return refuse(uint64(len(batch)), "%w", err)
	}
	request, err := http.NewRequestWithContext(ctx, http.MethodPost, o.endpoint.String(), bytes.NewReader(body))
	if err != nil {
		return refuse(uint64(len(batch)), "%w", err)
	}
	request.Header.Set("Content-Type", "application/json")
	request.Header.Set("User-Agent", "skillbox")
	if o.token != "" {
		request.Header.Set("Authorization", "Bearer "+o.token)
	}
	answer, err := o.client.Do(request)
	if err != nil {
		return outcome{why: fmt.Errorf("sink: %w", err)}
	}
	defer answer.Body.Close()
	text, err := io.ReadAll(io.LimitReader(answer.Body, 64<<10))
	switch code := answer.StatusCode; {
	case code == http.StatusTooManyRequests || code == http.StatusBadGateway || code == http.StatusServiceUnavailable || code == http.StatusGatewayTimeout:
		// The ones that the specification says may be tried again (failures, retryable response codes).
		return outcome{why: fmt.Errorf("sink: the collector answers %s", answer.Status), after: retryAfter(answer.Header.Get("Retry-After"), time.Now())}
	case code/100 != 2:
		return refuse(uint64(len(batch)), "the collector answers %s: %s", answer.Status, text)
	case err != nil:
		return all // it has them, says the status
	}
	var partial struct {
		PartialSuccess struct {
			Rejected json.RawMessage `json:"rejectedLogRecords"`
			Message  string          `json:"errorMessage"`
		} `json:"partialSuccess"`
	}
	if json.Unmarshal(text, &partial) != nil {
		return all // an answer in other words than ours; the status counts
	}
	// ProtoJSON writes such a number as a text, and takes both.
	if n, err := strconv.ParseUint(string(bytes.Trim(partial.PartialSuccess.Rejected, `"`)), 10, 32); err == nil && n > 0 {
		return refuse(min(n, uint64(len(batch))), "the collector rejects records: %s", partial.PartialSuccess.Message)
	}
	return all
}

// retryAfter reads the header of that name: seconds, or a date (RFC 9110, section 10.2.3).
func retryAfter(text string, now time.Time) time.Duration {
	if seconds, err := strconv.ParseUint(text, 10, 31); err == nil {
		return time.Duration(seconds) * time.Second
	}
	if at, err := http.ParseTime(text); err == nil {
		return max(at.Sub(now), 0)
	}
	return 0
}

func (o *otlp) close() error {
	o.client.CloseIdleConnections()
	return nil
}

type (
	object = map[string]any
	list   = []any
)

// export is an ExportLogsServiceRequest (opentelemetry/proto/collector/logs/v1, logs/v1).
func export(batch []audit.Record) object {
	records := make(list, len(batch))
	for i := range batch {
		records[i] = logRecord(&batch[i])
	}
	return object{"resourceLogs": list{object{
		"resource":  object{"attributes": list{text("service.name", "skillbox"), text("host.name", batch[0].Host)}},
		"scopeLogs": list{object{"scope": object{"name": "skillbox/audit", "version": strconv.Itoa(audit.Version)}, "logRecords": records}},
	}}}
}

func logRecord(r *audit.Record) object {
	at := strconv.FormatInt(r.Time.UnixNano(), 10)
	one := object{
		"timeUnixNano": at, "observedTimeUnixNano": at, "eventName": "skillbox." + string(r.Kind),
		"severityNumber": 9, "severityText": "INFO", "body": object{"stringValue": message(r)},
	}
	if severity(r) == warning {
		one["severityNumber"], one["severityText"] = 13, "WARN"
	}
	attributes := list{text("skillbox.kind", string(r.Kind)), number("skillbox.seq", int64(r.Seq))}
	for key, value := range map[string]string{"skillbox.run": r.Run, "skillbox.verdict": r.Verdict()} {
		if value != "" {
			attributes = append(attributes, text(key, value))
		}
	}
	if s := r.Skill; s != nil {
		attributes = append(attributes, text("skillbox.skill.name", s.Name), text("skillbox.skill.digest", s.Digest))
	}
	if c := r.Caller; c != nil {
		attributes = append(attributes, number("skillbox.caller.uid", int64(c.UID)), number("skillbox.caller.pid", int64(c.PID)), text("skillbox.caller.process", c.Process))
	}
	// The name is of OpenTelemetry's semantic conventions.
	one["attributes"] = append(attributes, text("log.record.original", string(r.Line)))
	return one
}

func text(key, value string) object {
	return object{"key": key, "value": object{"stringValue": value}}
}

func number(key string, n int64) object {
	return object{"key": key, "value": object{"intValue": strconv.FormatInt(n, 10)}}
}
