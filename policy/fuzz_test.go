package policy

import (
	"bytes"
	"errors"
	"strings"
	"testing"
	"unicode/utf8"
)

func FuzzParse(f *testing.F) {
	for _, text := range []string{
		issue, string(Example()), "", "version: 1\n", "version: 1\r\ntimeout: 5s\r\n", "\uFEFFversion: 1", "\xFF\xFEv\x00", "a: &x [*x]", "<<: {a: b}",
		"version: !!int 1", "%YAML 1.1\n---\nversion: 1\n", "version: 1\n---\n", "? [a]\n: b\n", "{version: 1, name: \"\\ud83d\\ude00\"}", "version: 1\ncommand: [\"\\a\\e\\u2028\\x7f\", 'é', yes, ~]\n",
		body("env: {set: {A: |\n  b\n  c\n}}"), body("network: {egress: [{cidrs: [\"::/0\"], ports: [\"1-65535/udp\"], unsafe_wildcard: TRUE}]}"),
		body("filesystem: {read: [{host: /var/run, path: /a, dangerous: true}, {host: /b}]}"), body("resources: {cpu: 1.001, memory: 16Ti}\ntimeout: 1h0.5s"),
		body("network: {deny: [{domains: [\"*\", xn--bcher-kva.de, \"bücher.de\"]}]}"), "version: 1\nname: [[[[[[[[", "version: 1\n\tname: x", "- - - - - a",
	} {
		f.Add([]byte(text))
	}
	f.Fuzz(func(t *testing.T, data []byte) {
		p, err := Parse("p.yaml", data)
		if err != nil {
			inFile(t, data, err)
			return
		}
		printed := p.YAML()
		again, err := Parse("p.yaml", printed)
		if err != nil {
			t.Fatalf("%v\n%s", err, printed)
		}
		if again.Digest() != p.Digest() {
			t.Fatalf("printed:\n%s\nread again:\n%s", printed, again.YAML())
		}
		if g, err := Grant(nil, p, p); err != nil || g.Policy.Digest() != p.Digest() {
			t.Fatalf("a policy that declares itself is not granted whole: %v\n%s", err, printed)
		}
	})
}

func FuzzParseService(f *testing.F) {
	for _, text := range []string{
		"", "version: 1\n", "version: 1\nallow: {users: [a, \"1\"], groups: [b]}\nquota: {calls: 4, memory: 1Gi}\n",
		"version: 1\nquota:\n  users: {a: {calls: 1}, 7: {pids: 3}}\n  groups: {b: {memory: 64Mi}}\n  boxes: 9\n",
		"version: 1\nquota: {users: {~: {calls: 1}, ? [a] : b, <<: {a: {calls: 1}}, \"\": {calls: 1}, a: 1}}\n", "version: 1\nquota: {users: {a: {users: {a: {}}}}}\n",
	} {
		f.Add([]byte(text))
	}
	f.Fuzz(func(t *testing.T, data []byte) {
		s, err := ParseService("p.yaml", data)
		if err != nil {
			inFile(t, data, err)
			return
		}
		for _, q := range []Quota{s.QuotaOf(nil, nil), s.QuotaOf(nil, s.Groups), s.QuotaOf(s.Users, s.Groups)} {
			for _, v := range q.values() {
				if *v < 1 {
					t.Fatalf("%+v of %+v", q, s)
				}
			}
		}
	})
}

func FuzzParseAuditLog(f *testing.F) {
	for _, text := range []string{
		"", "version: 1\n", "version: 1\non_full: refuse\nsync: none\nmax_total: 1Gi\nmax_age: 24h\n", "version: 1\nsinks: [{type: otlp, endpoint: \"https://a/b\", insecure: true, token_file: /t}]\n",
		"version: 1\nsinks:\n  - {type: syslog, socket: /dev/log, queue: 64}\n  - {}\n  - x\n", "version: 1\nsinks: [{type: otlp, endpoint: \"http://[::1%25x]:0/v1\"}]\n",
	} {
		f.Add([]byte(text))
	}
	f.Fuzz(func(t *testing.T, data []byte) {
		a, err := ParseAuditLog("p.yaml", data)
		if err != nil {
			inFile(t, data, err)
			return
		}
		for _, s := range a.Sinks {
			if s.Type == "" || (s.Type == "otlp") != (s.Endpoint != "") || s.Type == "otlp" && !s.Insecure && leavesInTheClear(s.Endpoint) {
				t.Fatalf("%+v", s)
			}
		}
	})
}

// inFile demands that every error stands somewhere in the file, at most right
// behind its end, and is safe to print.
func inFile(t *testing.T, data []byte, err error) {
	var errs Errors
	if !errors.As(err, &errs) || len(errs) == 0 {
		t.Fatalf("%T is not Errors", err)
	}
	lines := bytes.Split(data, []byte("\n"))
	for _, e := range errs {
		if e.File != "p.yaml" || e.Line < 1 || e.Line > len(lines)+1 || e.Column < 1 {
			t.Fatalf("%+v", e)
		}
		if e.Line <= len(lines) && e.Column > utf8.RuneCount(lines[e.Line-1])+1 {
			t.Fatalf("%+v in a line of %d", e, len(lines[e.Line-1]))
		}
		if strings.ContainsFunc(e.Error(), func(r rune) bool { return r < ' ' || r == 0x7F || r == utf8.RuneError }) {
			t.Fatalf("%q", e.Error())
		}
	}
}

func FuzzNormalizeName(f *testing.F) {
	for _, s := range []string{
		"example.com", "EXAMPLE.com.", "bücher.de", "xn--bcher-kva.de", "faß.de", "127.1", "0x7f.1", "2130706433", "１２７.1", "a。b", "*.a", "a_b.c", "r3---sn.x.y",
		"xn--a", "xn--a.de", "a\x00b", "\x80", "\u200d", "ａ.b", "①.①", "-a", "a..b", "xn--0x-x", "\u0660.\u0661",
	} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, s string) {
		name, err := NormalizeName(s)
		if err != nil {
			if name != "" {
				t.Fatalf("%q is refused and is %q", s, name)
			}
			return
		}
		again, err := NormalizeName(name)
		if err != nil || again != name {
			t.Fatalf("%q is %q, which is %q, %v", s, name, again, err)
		}
		if len(name) > 253 || strings.Trim(name, "abcdefghijklmnopqrstuvwxyz0123456789.-") != "" {
			t.Fatalf("%q is %q", s, name)
		}
		if dotted, err := NormalizeName(name + "."); err != nil || dotted != name {
			t.Fatalf("%q with a dot is %q, %v", name, dotted, err)
		}
		for _, l := range strings.Split(name, ".") {
			if l == "" || len(l) > 63 || l[0] == '-' || l[len(l)-1] == '-' {
				t.Fatalf("%q is %q", s, name)
			}
		}
	})
}
