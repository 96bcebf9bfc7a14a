package netpolicy

import (
	"math/rand/v2"
	"net/netip"
	"testing"
)

func TestOpenAgreesWithAnswerOnEveryPort(t *testing.T) {
	rng := rand.New(rand.NewPCG(1, 2))
	port := func() Ports {
		from := uint16(1 + rng.IntN(40))
		return Ports{from, from + uint16(rng.IntN(20)), []string{"tcp", "udp"}[rng.IntN(2)]}
	}
	rule := func() (r Rule) {
		if rng.IntN(2) == 0 {
			r.Domains = []string{[]string{"a.example", "*.example", "*"}[rng.IntN(3)]}
		} else {
			r.CIDRs = prefixes([]string{"10.0.0.0/8", "0.0.0.0/0", "93.184.0.0/16"}[rng.IntN(3)])
		}
		for range 1 + rng.IntN(3) {
			r.Ports = append(r.Ports, port())
		}
		return r
	}
	for range 300 {
		var egress, deny []Rule
		for range 1 + rng.IntN(4) {
			egress = append(egress, rule())
		}
		for range rng.IntN(4) {
			deny = append(deny, rule())
		}
		s := Compile(egress, deny)
		for _, a := range []string{"10.1.1.1", "93.184.1.1", "::ffff:10.0.0.1", "2606:4700::1"} {
			addr := netip.MustParseAddr(a)
			list, refusal := s.Open("a.example", addr)
			if (len(list) == 0) == (refusal == Verdict{}) {
				t.Fatalf("%v and %+v", list, refusal)
			}
			open, named := Rule{Ports: list}, Rule{Ports: s.PortsOf("a.example")}
			for _, proto := range []string{"tcp", "udp"} {
				for p := uint16(1); p < 70; p++ {
					want := len(named.Ports) > 0 && named.covers(p, proto) && s.Answer("a.example", addr, p, proto).Allowed
					if got := len(list) > 0 && open.covers(p, proto); got != want {
						t.Fatalf("%s %d/%s: open %v, want %v\n%s%v", a, p, proto, got, want, s, list)
					}
				}
			}
		}
	}
}

func TestTheWildcardOfAName(t *testing.T) {
	s := Compile([]Rule{{Domains: []string{"api.example.com", "*.example.com", "*.deep.example.com"}, Ports: []Ports{{443, 443, "tcp"}}}}, nil)
	for name, want := range map[string]string{
		"api.example.com": "", "x.example.com": "*.example.com", "a.b.example.com": "*.example.com",
		"a.deep.example.com": "*.deep.example.com", "example.com": "", "other.org": "",
	} {
		if got := s.Wildcard(name); got != want {
			t.Errorf("%s: %q, want %q", name, got, want)
		}
	}
	if got := Compile([]Rule{{Domains: []string{"*"}}}, nil).Wildcard("a.b"); got != "*" {
		t.Errorf("%q", got)
	}
}
