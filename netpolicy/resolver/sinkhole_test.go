package resolver

import (
	"context"
	"errors"
	"net"
	"net/netip"
	"strings"
	"testing"

	"github.com/miekg/dns"

	"skillbox/netpolicy"
	"skillbox/policy"
)

// In a sinkhole every name has its address, whatever the rules say, and nobody is asked; the event says what they would have said.
func TestASinkAnswersEveryNameItself(t *testing.T) {
	four, six := netip.MustParseAddr("192.31.196.7"), netip.MustParseAddr("2001:20::7")
	var events []Event
	rules := netpolicy.Compile([]netpolicy.Rule{
		{Domains: []string{"api.example"}, Ports: []netpolicy.Ports{{From: 443, To: 443, Proto: "tcp"}}, Line: "p:1"},
		{Domains: []string{"*.wild.example"}, Ports: []netpolicy.Ports{{From: 443, To: 443, Proto: "tcp"}}, Line: "p:2"},
	}, []netpolicy.Rule{{Domains: []string{"bad.wild.example"}, Line: "p:3"}})
	s := New(Options{
		Rules: rules, Normalize: policy.NormalizeName, Event: func(e Event) { events = append(events, e) },
		Upstream: Upstream{Servers: []netip.AddrPort{netip.MustParseAddrPort("192.0.2.1:53")}},
		Dial: func(context.Context, string, string) (net.Conn, error) {
			t.Error("somebody was asked")
			return nil, errors.New("nobody")
		},
		Sink: func(_ string, v6 bool) netip.Addr {
			if v6 {
				return six
			}
			return four
		},
	})
	defer s.Close()
	long := strings.Repeat("a", 60) + "." + strings.Repeat("b", 60) + ".wild.example"
	for _, c := range []struct {
		name    string
		qtype   uint16
		answer  string
		event   string
		verdict string
	}{
		{"api.example.", dns.TypeA, "192.31.196.7", "api.example", "allowed p:1"},
		{"API.Example.", dns.TypeAAAA, "2001:20::7", "api.example", "allowed p:1"},
		{"evil.example.", dns.TypeA, "192.31.196.7", "evil.example", "no rule of network.egress"},
		{"x.wild.example.", dns.TypeA, "192.31.196.7", "x.wild.example", "allowed p:2"},
		{"bad.wild.example.", dns.TypeA, "192.31.196.7", "bad.wild.example", "network.deny p:3"},
		{long + ".", dns.TypeA, "192.31.196.7", long, "more than 100 bytes or 5 labels in place of the * of *.wild.example p:2"},
		{"_under.example.", dns.TypeA, "192.31.196.7", "_under.example", "not a name: "},
		{"a\\001b.example.", dns.TypeA, "192.31.196.7", "a\\001b.example", "not a name: "},
		{"evil.example.", dns.TypeTXT, "", "evil.example", "no rule of network.egress"},
		{"7.196.31.192.in-addr.arpa.", dns.TypePTR, "", "7.196.31.192.in-addr.arpa", "no rule of network.egress"},
		{".", dns.TypeA, "", "", "not a name: "},
	} {
		events = nil
		wire, err := question(c.name, c.qtype, true).Pack()
		if err != nil {
			t.Fatal(err)
		}
		reply, l := s.begin(wire)
		if reply == nil || l != nil || reply.msg.Rcode != dns.RcodeSuccess {
			t.Fatalf("%s: %+v %+v", c.name, reply, l)
		}
		got := ""
		for _, r := range reply.msg.Answer {
			a, _ := address(r, c.qtype)
			got += a.String()
		}
		if got != c.answer || len(events) != 1 {
			t.Fatalf("%s: %q, %+v", c.name, got, events)
		}
		verdict := events[0].Verdict.Why
		if events[0].Verdict.Allowed {
			verdict = "allowed"
		}
		if events[0].Verdict.Rule != "" {
			verdict += " " + events[0].Verdict.Rule
		}
		if events[0].Name != c.event || !strings.HasPrefix(verdict, c.verdict) || events[0].Cached {
			t.Errorf("%s: %q %q %+v", c.name, events[0].Name, verdict, events[0])
		}
		if again, _ := s.begin(wire); again == nil || !events[1].Cached || events[1].Verdict != events[0].Verdict {
			t.Errorf("%s again: %+v", c.name, events)
		}
	}
}
