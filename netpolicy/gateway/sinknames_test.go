package gateway

import (
	"fmt"
	"net/netip"
	"testing"

	"skillbox/netpolicy"
	"skillbox/policy"
)

func TestEachNameHasAnAddressOfItsOwn(t *testing.T) {
	n, again := sunkNames{six: true}, sunkNames{six: true}
	seen := map[netip.Addr]string{}
	for i := range maxSunk {
		name := fmt.Sprintf("n%d.example", i)
		four, six := n.address(name, false), n.address(name, true)
		for _, a := range []netip.Addr{four, six} {
			if other, taken := seen[a]; taken || a == common4 || a == common6 || n.of(a) != name {
				t.Fatalf("%s: %s is %q's, and stands for %q", name, a, other, n.of(a))
			}
			seen[a] = name
		}
		if !four.Is4() || !six.Is6() || four.IsPrivate() || !four.IsGlobalUnicast() || !six.IsGlobalUnicast() {
			t.Fatalf("%s: %s %s", name, four, six)
		}
		if again.address(name, true) != six || again.address(name, false) != four || n.address(name, false) != four {
			t.Errorf("%s: not the same the next time", name)
		}
	}
	for _, name := range []string{"one.more.example", "another.example"} {
		if a := n.address(name, false); a != common4 || n.of(a) != "" {
			t.Errorf("%s: %s stands for %q", name, a, n.of(a))
		}
	}
	if len(n.addrs) != maxSunk || len(n.byAddr) != 2*maxSunk {
		t.Errorf("%d names and %d addresses are kept", len(n.addrs), len(n.byAddr))
	}
	without := sunkNames{}
	if a := without.address("n.example", true); a.IsValid() {
		t.Errorf("a box without IPv6 is told %s", a)
	}
}

// What the record of a sinkhole says is what a capture would have decided.
func TestASinkholeSaysWhatTheRulesWouldHave(t *testing.T) {
	ports := []netpolicy.Ports{{From: 80, To: 80, Proto: "tcp"}, {From: 443, To: 443, Proto: "tcp"}, {From: 5000, To: 5000, Proto: "tcp"}}
	rules := netpolicy.Compile([]netpolicy.Rule{
		{Domains: []string{"api.example", "www.example"}, Ports: ports, Line: "p:1"},
		{CIDRs: []netip.Prefix{netip.MustParsePrefix("20.1.1.0/24")}, Ports: ports, Line: "p:2"},
	}, []netpolicy.Rule{{Domains: []string{"bad.example"}, Line: "p:3"}})
	get := func(host string) string { return "GET / HTTP/1.1\r\nHost: " + host + "\r\n\r\n" }
	for _, c := range []struct{ to, given, first, name, verdict string }{
		{"192.31.196.1:80", "api.example", get("api.example"), "api.example", "allowed p:1"},
		{"192.31.196.1:80", "api.example", get("www.example"), "www.example", "the address was given out for api.example"},
		{"192.31.196.1:80", "api.example", get("evil.example"), "evil.example", "no rule of network.egress"},
		{"192.31.196.1:80", "api.example", get("bad.example"), "bad.example", "network.deny p:3"},
		{"192.31.196.1:80", "api.example", "\x00\x01", "api.example", "the client speaks neither TLS nor HTTP"},
		{"192.31.196.1:5000", "api.example", "\x00\x01", "api.example", "allowed p:1"},
		{"192.31.196.1:5000", "api.example", "", "api.example", "allowed p:1"},
		{"192.31.196.1:80", "api.example", "GET / HTTP/1.1\r\n\r\n", "api.example", "the client names no server (Host)"},
		{"192.31.196.1:22", "api.example", "SSH-2.0-x\r\n", "api.example", "no rule of network.egress"},
		{"192.31.196.9:80", "evil.example", get("evil.example"), "evil.example", "no rule of network.egress"},
		{"192.31.196.9:80", "evil.example", get("api.example"), "evil.example", "no rule of network.egress"},
		{"20.1.1.7:80", "", get("anything.example"), "anything.example", "allowed p:2"},
		{"20.1.1.7:81", "", "", "", "no rule of network.egress"},
		{"10.0.0.1:80", "", get("api.example"), "api.example", "the floor: private"},
		{"169.254.169.254:80", "", "", "", "the floor: metadata"},
	} {
		name, v := judge(rules, netip.MustParseAddrPort(c.to), c.given, []byte(c.first), policy.NormalizeName)
		verdict := v.Why
		if v.Allowed {
			verdict = "allowed"
		}
		if v.Rule != "" {
			verdict += " " + v.Rule
		}
		if name != c.name || verdict != c.verdict {
			t.Errorf("%s for %q, %.20q: %q %q, want %q %q", c.to, c.given, c.first, name, verdict, c.name, c.verdict)
		}
	}
}
