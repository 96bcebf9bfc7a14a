//go:build linux

package integration

import (
	"encoding/json"
	"net/netip"
	"strings"
	"testing"

	"skillbox/helper"
)

// The first lookup of each name has a public address, later ones do not. What the skill keeps asking for is never opened.
func TestThreat190DNSRebinding(t *testing.T) {
	inEachWay(t, func(t *testing.T, w *world, y way) {
		names := []string{"loop.flip.example", "meta.flip.example", "ten.flip.example", "cname.flip.example", "six.flip.example", "mixed.flip.example"}
		addrs := []string{"127.0.0.1", "169.254.169.254", "10.1.2.3"}
		var talks []talk
		talks = append(talks, talk{Look: names, To: "tcp " + join(apiAddr, 9999), Send: once("a line\n"), Hold: 100})
		talks = append(talks, talk{To: "tcp " + join(apiAddr6, 9999), Send: once("a line\n"), Hold: 6500}) // the least time to live is 5 s
		talks = append(talks, talk{Look: names, To: "tcp " + join(servicesAddr, 9999)})
		for _, a := range addrs {
			talks = append(talks, talk{To: "tcp " + join(a, 80), Send: spoken(t, "meta.flip.example", 80)}, talk{To: "tcp " + join(a, openPort)}, talk{To: "tcp " + join(a, loopbackPort)})
		}
		got, r := w.talks(t, y, y.policy(badNames), talks)
		for i, name := range names {
			first := got[0].Looked[name]
			if first != apiAddr && !(name == "six.flip.example" && first == apiAddr6) {
				t.Errorf("%s is first %q", name, first)
			}
			then := got[2].Looked[name]
			if want := map[bool]string{true: apiAddr, false: "no such host"}[name == "mixed.flip.example"]; then != want {
				t.Errorf("%s is then %q, want %q", name, then, want)
			}
			if i < 5 {
				denied(t, r, "dns", name, "the floor: ", "an IPv4 address as an IPv6 one")
			}
		}
		for i := range talks {
			want := map[bool]string{true: reached, false: refused}[i < 2]
			if got[i].verdict() != want {
				t.Errorf("%s: %v, want %s", talks[i].To, got[i], want)
			}
		}
		w.only(t, "tcp "+join(apiAddr, 9999), "tcp "+join(apiAddr6, 9999))
	})
}

// A connection outlives the time for which its name's address holds; a new one to the old address is refused, half a minute later: programs
// connect some time after they have looked up. All ways wait together.
func TestThreat193StaleIP(t *testing.T) {
	inTheWorld(t, func(t *testing.T, w *world) {
		leavesNothing(t)
		w.forget()
		got, ends := map[way]map[string]string{}, map[way]func(any) *helper.Result{}
		for _, y := range ways() {
			name := y.String() + ".moved.example"
			ends[y] = w.beginProbe(t, y, y.policy("egress:\n  - {domains: ["+name+"], ports: [9999]}"), nil, "outlive", name, "9999", "100")
		}
		for y, end := range ends {
			answers := map[string]string{}
			end(&answers)
			got[y] = answers
		}
		for y, answers := range got {
			t.Logf("%s: %v", y, answers)
			wantAnswers(t, answers, map[string]string{
				"first": apiAddr, "then": nextAddr, "reach then": "ok", "echo at first": "ok", "echo at last": "ok",
			})
			if a := answers["reach first"]; a != "ECONNREFUSED" && a != "ECONNRESET" { // by the kernel, or by skillbox in the seconds before
				t.Errorf("the old address: %s", a)
			}
		}
		w.only(t, "tcp "+join(apiAddr, 9999), "tcp "+join(nextAddr, 9999))
	})
}

// Whatever way a program writes an address, it is the address that counts. The C library and Go read literals; names that look like one
// are never asked for.
func TestThreat196IPLiterals(t *testing.T) {
	literals := []string{
		"2130706433", "0177.0.0.1", "0x7f.1", "0x7f000001", "127.1", "::ffff:127.0.0.1", "::ffff:169.254.169.254", "64:ff9b::a9fe:a9fe", "2002:7f00:1::1", "2852039166", "0xa9fea9fe", "169.254.43518",
		"10.1.515", "012.1.2.3", "167838211", "::a01:203", "fe80::1%lo", "fe80::1%eth0", "0", "::", "0.0.0.0", "11.22.8450",
	}
	script := `
import socket, json, sys
got = {}
for l in json.load(sys.stdin):
    for port in (80, 443, 7001, 7002):
        try:
            for f, k, p, c, a in socket.getaddrinfo(l, port, 0, socket.SOCK_STREAM):
                s = socket.socket(f, k, p)
                s.settimeout(2)
                try:
                    s.connect(a)
                    s.send(b"GET / HTTP/1.0\r\n\r\n")
                    got["%s %d %s" % (l, port, a[0])] = "ok, " + repr(s.recv(20))
                except OSError as e:
                    got["%s %d %s" % (l, port, a[0])] = str(e.errno)
        except socket.gaierror as e:
            got["%s %d" % (l, port)] = "no address"
print(json.dumps(got))
`
	inEachWay(t, func(t *testing.T, w *world, y way) {
		got := map[string]string{}
		r := w.run(t, y, call{mode: y.mode, policy: y.policy(badNames), words: []string{"/usr/bin/python3", "-c", script}, stdin: asJSON(t, literals)})
		if err := json.Unmarshal([]byte(r.Stdout), &got); err != nil {
			t.Fatalf("%v: %s %s", err, r.Stdout, r.Stderr)
		}
		for what, a := range got {
			if strings.HasPrefix(a, "ok") {
				t.Errorf("%s: %s", what, a)
			}
		}
		if len(got) < len(literals) {
			t.Errorf("only %d were tried", len(got))
		}
		var asked []question
		for _, l := range literals {
			if _, err := netip.ParseAddr(l); err != nil {
				asked = append(asked, question{Labels: strings.Split(l, ".")}, question{Labels: strings.Split(l+".nip.io", ".")})
			}
		}
		var replies []reply
		w.probe(t, y, y.policy(badNames), &replies, asked, "dns")
		for i, a := range replies {
			if a.Code != "NameError" {
				t.Errorf("%q: %+v", asked[i].Labels, a)
			}
		}
		w.only(t)
		if q := w.asked(); len(q) > 0 {
			t.Errorf("questions left the box: %q", q)
		}
	})
}

// With rules for IPv4 alone there is no way by IPv6, neither by address nor by a name that has none, and nobody listens to what a box says
// about routes.
func TestThreat197IPv6Bypass(t *testing.T) {
	inEachWay(t, func(t *testing.T, w *world, y way) {
		policy := y.policy("egress:\n  - {cidrs: [20.1.1.0/24], ports: [443, 9999]}\n  - {domains: [v4only.example], ports: [443]}")
		tries := direct(t, 443, apiAddr6, otherAddr6, "::ffff:8.8.8.8", "64:ff9b::1401:10a", "2002:1401:10a::1", "2a10:1::60", hostAddr6, gatewayAddr6)
		tries[2].rule = ""
		tries[0].talk.Look = []string{"v4only.example"}
		tries = append(tries, try{"an IPv4 address as an IPv6 one", talk{To: "tcp " + join(servicesAddr, 9999), Send: once("a line\n"), Hold: 300}, reached, ""})
		w.judge(t, y, policy, tries)
		got := map[string]string{}
		w.probe(t, y, policy, &got, nil, "sockets", apiAddr6)
		for _, what := range []string{"raw ICMPv6", "raw IPv6", "ping socket, v6"} {
			if got[what] != "EAFNOSUPPORT" {
				t.Errorf("%s: %s", what, got[what])
			}
		}
	})
}
