package policy

import (
	"strings"
	"testing"
	"time"
)

func TestAuditLogFile(t *testing.T) {
	const log = `on_full: drop-detail
sync: always
max_segment: 1Mi
max_segment_age: 12h
max_total: 2Gi
max_age: 2160h
sinks:
  - {type: journald}
  - {type: syslog, socket: /run/log, queue: 100}
  - {type: otlp, endpoint: "https://collector.example:4318/v1/logs", token_file: /etc/skillbox/token}
  - {type: otlp, endpoint: "http://[::1]:4318/v1/logs"}
`
	want := AuditLog{
		OnFull: "drop-detail", Sync: "always", MaxSegment: 1 << 20, MaxSegmentAge: 12 * time.Hour, MaxTotal: 2 << 30, MaxAge: 90 * 24 * time.Hour,
		Sinks: []Sink{
			{Type: "journald"},
			{Type: "syslog", Socket: "/run/log", Queue: 100},
			{Type: "otlp", Endpoint: "https://collector.example:4318/v1/logs", TokenFile: "/etc/skillbox/token"},
			{Type: "otlp", Endpoint: "http://[::1]:4318/v1/logs"},
		},
	}
	own, err := ParseAuditLog("audit.yaml", []byte("version: 1\n"+log))
	if err != nil {
		t.Fatal(err)
	}
	service, err := ParseService("service.yaml", []byte("version: 1\naudit:\n  "+strings.ReplaceAll(strings.TrimSpace(log), "\n", "\n  ")+"\n"))
	if err != nil {
		t.Fatal(err)
	}
	for name, got := range map[string]*AuditLog{"audit.yaml": own, "service.yaml": &service.Audit} {
		if len(got.Sinks) != len(want.Sinks) {
			t.Fatalf("%s: %+v", name, got)
		}
		for i := range want.Sinks {
			if got.Sinks[i] != want.Sinks[i] {
				t.Errorf("%s: %+v, want %+v", name, got.Sinks[i], want.Sinks[i])
			}
		}
		a, b := *got, want
		a.Sinks, b.Sinks = nil, nil
		if a.OnFull != b.OnFull || a.Sync != b.Sync || a.MaxSegment != b.MaxSegment || a.MaxSegmentAge != b.MaxSegmentAge || a.MaxTotal != b.MaxTotal || a.MaxAge != b.MaxAge {
			t.Errorf("%s: %+v, want %+v", name, a, b)
		}
	}
	if empty, err := ParseAuditLog("audit.yaml", []byte("version: 1\n")); err != nil || empty.OnFull != "" || empty.Sinks != nil {
		t.Errorf("%+v, %v", empty, err)
	}
}

func TestAMistakeInAnAuditLogFileIsToldWithItsPlace(t *testing.T) {
	for text, want := range map[string]string{
		"on_ful: refuse":                          `audit.yaml:2:1: unknown key "on_ful" (did you mean on_full?)`,
		"on_full: drop":                           `audit.yaml:2:10: on_full: "drop" is not known here`,
		"sync: every":                             `audit.yaml:2:7: sync: "every" is not known here (one of none, checkpoint, always)`,
		"max_segment: 0":                          "audit.yaml:2:14: max_segment: 0 is refused",
		"max_segment: 1Ki":                        "audit.yaml:2:14: max_segment",
		"max_segment_age: 30":                     "audit.yaml:2:18: max_segment_age: 30 has no unit",
		"max_total: none":                         "audit.yaml:2:12: max_total",
		"max_age: 1s":                             "audit.yaml:2:10: max_age",
		"sinks: []":                               "audit.yaml:2:8: sinks: the list is empty",
		"sinks: [{socket: /dev/log}]":             "audit.yaml:2:9: sinks[0]: a sink without a type",
		"sinks: [{type: kafka}]":                  `audit.yaml:2:16: sinks[0].type: "kafka" is not known here`,
		"sinks: [{type: otlp}]":                   "audit.yaml:2:9: sinks[0]: otlp needs an endpoint",
		"sinks: [{type: otlp, socket: /dev/log}]": "sinks[0].socket: otlp has no socket",
		"sinks: [{type: syslog, endpoint: \"http://127.0.0.1/v1/logs\"}]":             "sinks[0].endpoint: syslog has no endpoint",
		"sinks: [{type: syslog, socket: log}]":                                        "audit.yaml:2:32: sinks[0].socket",
		"sinks: [{type: syslog, socket: \"/" + strings.Repeat("a", 120) + "\"}]":      "a socket's path has at most 107 bytes",
		"sinks: [{type: otlp, endpoint: \"http://collector.example/v1/logs\"}]":       "sinks[0].endpoint: the records would leave this machine unencrypted (use https, or say insecure: true)",
		"sinks: [{type: otlp, endpoint: \"http://127.0.0.1.example/v1/logs\"}]":       "unencrypted",
		"sinks: [{type: otlp, endpoint: \"https://user:secret@collector/v1/logs\"}]":  "the URL holds a password",
		"sinks: [{type: otlp, endpoint: \"https://collector\"}]":                      "has no path",
		"sinks: [{type: otlp, endpoint: \"ftp://collector/v1/logs\"}]":                "is no URL of a collector",
		"sinks: [{type: otlp, endpoint: \"https://collector/v1/logs?a=b\"}]":          "has more than a host and a path",
		"sinks: [{type: otlp, endpoint: \"https://c/v1/logs\", token_file: \"~/t\"}]": "sinks[0].token_file",
		"sinks: [{type: journald, queue: 1}]":                                         "sinks[0].queue",
		"sinks: {type: journald}":                                                     "must be a list of sinks",
	} {
		_, err := ParseAuditLog("audit.yaml", []byte("version: 1\n"+text+"\n"))
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%q: %v, want %q", text, err, want)
		}
		// In service.yaml it is the same two columns further on.
		if _, err := ParseService("service.yaml", []byte("version: 1\naudit:\n  "+text+"\n")); err == nil {
			t.Errorf("service.yaml takes %q", text)
		}
	}
	if _, err := ParseAuditLog("audit.yaml", []byte("sync: none\n")); err == nil || !strings.Contains(err.Error(), "begin the file with version: 1") {
		t.Error(err)
	}
	if _, err := ParseAuditLog("audit.yaml", []byte("version: 1\nsinks: [{type: otlp, endpoint: \"http://c.example/v1/logs\", insecure: true}]\n")); err != nil {
		t.Error(err)
	}
}
