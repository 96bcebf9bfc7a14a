package policy

import (
	"net/netip"
	"net/url"
	"strings"
	"time"

	"go.yaml.in/yaml/v4"
)

// AuditLog is what an administrator says of an audit log: how it is kept, and where its records go besides. The words are those of audit.Options,
// and what is zero is that package's default.
type AuditLog struct {
	OnFull        string
	Sync          string
	MaxSegment    int64 // bytes
	MaxSegmentAge time.Duration
	MaxTotal      int64 // bytes
	MaxAge        time.Duration
	Sinks         []Sink
}

// Sink is one place where copies of the log's records go.
type Sink struct {
	Type      string // journald, syslog or otlp
	Socket    string // of the first two; "" is the usual one
	Endpoint  string // of otlp: the whole URL
	Insecure  bool   // http is meant although it leaves the machine
	TokenFile string // whose content goes along as a bearer token; "" is none
	Queue     int64  // records that may wait; 0 is 8192
}

// ParseAuditLog reads audit.yaml as strictly as Parse reads a policy. The error is an Errors.
func ParseAuditLog(file string, data []byte) (*AuditLog, error) {
	var whole struct {
		version int
		log     AuditLog
	}
	table := append([]key{{name: "version", doc: "The version of this format.", def: "1", shape: version(), field: func(any) any { return &whole.version }}},
		partOf(auditLogKeys, func(w *AuditLog) any { return w })...)
	r := &reader{file: file, most: maxFile, positions: map[string]Position{}, root: table}
	root := r.load(data)
	if root == nil {
		return nil, r.sorted()
	}
	r.strict(root, 1)
	r.mapping("", root, table, &whole.log)
	if _, named := r.positions["version"]; !named && len(r.errs) == 0 {
		r.fail(root, "version", bad("begin the file with version: 1", "is missing"))
	}
	if len(r.errs) > 0 {
		return nil, r.sorted()
	}
	return &whole.log, nil
}

var auditLogKeys = []key{
	{name: "on_full", doc: "What happens when the disk is full: refuse the run, or drop-detail, which keeps grants, refusals and ends.", def: "refuse", shape: choice("refuse", "drop-detail"), field: in(func(a *AuditLog) any { return &a.OnFull })},
	{name: "sync", doc: "When the disk has it for sure: when the kernel writes it, with each checkpoint, or before the run goes on.", def: "checkpoint", shape: choice("none", "checkpoint", "always"), field: in(func(a *AuditLog) any { return &a.Sync })},
	{name: "max_segment", doc: "The size at which another segment begins.", def: "64Mi", shape: size(64*kib, tib), field: in(func(a *AuditLog) any { return &a.MaxSegment })},
	{name: "max_segment_age", doc: "The age at which another segment begins.", def: "24h", shape: duration(time.Minute, tenYears), field: in(func(a *AuditLog) any { return &a.MaxSegmentAge })},
	{name: "max_total", doc: "The size of all segments together: above it the oldest go.", def: "1Gi", shape: size(64*kib, 64*tib), field: in(func(a *AuditLog) any { return &a.MaxTotal })},
	{name: "max_age", doc: "The age at which segments go; as old as max_total lets them become if left out.", shape: duration(time.Minute, tenYears), field: in(func(a *AuditLog) any { return &a.MaxAge })},
	{name: "sinks", doc: "Where else records go.", shape: structs(listing{what: "sinks", least: 1, most: 8}, sinkKeys, (*reader).sink), field: in(func(a *AuditLog) any { return &a.Sinks })},
}

const tenYears = 87_600 * time.Hour

var sinkKeys = []key{
	{name: "type", doc: "What it is.", shape: choice("journald", "syslog", "otlp"), field: in(func(s *Sink) any { return &s.Type })},
	{name: "socket", doc: "Of journald or syslog: its datagram socket.", def: "/run/systemd/journal/socket or /dev/log", shape: text("an absolute path", `^/.+$`, checkSocket), field: in(func(s *Sink) any { return &s.Socket })},
	{name: "endpoint", doc: "Of otlp: the whole URL, such as https://collector.example:4318/v1/logs.", shape: text("a URL", `^https?://`, checkEndpoint), field: in(func(s *Sink) any { return &s.Endpoint })},
	{name: "insecure", doc: "Says that http is meant although it leaves the machine.", def: "false", shape: boolean(), field: in(func(s *Sink) any { return &s.Insecure })},
	{name: "token_file", doc: "A file with the token that otlp sends along (Authorization: Bearer).", shape: text("an absolute path", `^/.+$`, checkAbsolute), field: in(func(s *Sink) any { return &s.TokenFile })},
	{name: "queue", doc: "Records that may wait for it; what is more is dropped and counted.", def: "8192", shape: integer(64, 1_000_000), field: in(func(s *Sink) any { return &s.Queue })},
}

// checkSocket refuses what no address of a socket can hold: unix(7), with the byte that ends it.
func checkSocket(s string) error {
	if len(s) > 107 {
		return bad("", "a socket's path has at most 107 bytes, and this one %d", len(s))
	}
	return checkAbsolute(s)
}

func checkEndpoint(s string) error {
	const hint = "such as https://collector.example:4318/v1/logs"
	u, err := url.Parse(s)
	switch {
	case err != nil || u.Scheme != "http" && u.Scheme != "https" || u.Hostname() == "":
		return bad(hint, "%s is no URL of a collector", show(s))
	case u.User != nil:
		return bad("put it into a file, and name that in token_file", "the URL holds a password")
	case u.Path == "" || u.Path == "/":
		return bad("add it, most often /v1/logs", "%s has no path", show(s))
	case u.Fragment != "" || u.RawQuery != "" || u.ForceQuery:
		return bad(hint, "%s has more than a host and a path", show(s))
	}
	return nil
}

// sink checks what its keys mean together.
func (r *reader) sink(at string, n *yaml.Node, s *Sink) {
	named := func(key string) bool { _, ok := r.positions[join(at, key)]; return ok }
	mine := map[string]bool{"type": true, "queue": true}
	switch s.Type {
	case "":
		r.fail(n, at, bad("type: journald, syslog or otlp", "a sink without a type"))
		return
	case "otlp":
		mine["endpoint"], mine["insecure"], mine["token_file"] = true, true, true
		if s.Endpoint == "" {
			r.fail(n, at, bad("endpoint: https://collector.example:4318/v1/logs", "otlp needs an endpoint"))
		} else if !s.Insecure && leavesInTheClear(s.Endpoint) {
			r.fail(n, join(at, "endpoint"), bad("use https, or say insecure: true", "the records would leave this machine unencrypted"))
		}
	default:
		mine["socket"] = true
	}
	for _, k := range sinkKeys {
		if named(k.name) && !mine[k.name] {
			r.fail(n, join(at, k.name), bad("leave the key out", "%s has no %s", s.Type, k.name))
		}
	}
}

func leavesInTheClear(endpoint string) bool {
	u, err := url.Parse(endpoint)
	if err != nil || u.Scheme != "http" {
		return false
	}
	host := strings.ToLower(u.Hostname())
	ip, err := netip.ParseAddr(host)
	return host != "localhost" && (err != nil || !ip.IsLoopback())
}
