package netpolicy

import (
	"fmt"
	"math/rand/v2"
	"net/netip"
	"slices"
	"strings"
	"testing"
)

func tcp(ports ...uint16) (all []Ports) {
	for _, p := range ports {
		all = append(all, Ports{p, p, "tcp"})
	}
	return all
}

func prefixes(list ...string) []netip.Prefix {
	all := make([]netip.Prefix, len(list))
	for i, s := range list {
		all[i] = netip.MustParsePrefix(s)
	}
	return all
}

var office = Compile(
	[]Rule{
		{Domains: []string{"api.example.com"}, Ports: tcp(443), Line: "p.yaml:4"},
		{Domains: []string{"*.cdn.example"}, Ports: tcp(80, 443), Line: "p.yaml:5"},
		{CIDRs: prefixes("10.20.0.0/16", "2001:db8:1::/48"), Except: prefixes("10.20.9.0/24"), Ports: []Ports{{8000, 8100, "tcp"}}, Line: "p.yaml:6"},
		{CIDRs: prefixes("198.51.100.53/32"), Ports: []Ports{{53, 53, "udp"}}, Line: "p.yaml:7"},
		{Domains: []string{"intra.example"}, Ports: tcp(443), Line: "p.yaml:8"},
	},
	[]Rule{
		{Domains: []string{"ads.cdn.example", "*.ads.cdn.example"}, Line: "p.yaml:10"},
		{CIDRs: prefixes("10.20.30.0/24"), Line: "p.yaml:11"},
		{Domains: []string{"img.cdn.example"}, Ports: tcp(80), Line: "p.yaml:12"},
	},
)

func TestNamesAreDecidedByDenyThenEgress(t *testing.T) {
	for _, c := range []struct {
		name  string
		port  uint16
		proto string
		want  Verdict
	}{
		{"api.example.com", 443, "tcp", Verdict{true, "p.yaml:4", "network.egress"}},
		{"api.example.com", 443, "udp", Verdict{Why: noRule}},
		{"api.example.com", 22, "tcp", Verdict{Why: noRule}},
		{"example.com", 443, "tcp", Verdict{Why: noRule}},
		{"api.example.com.evil.org", 443, "tcp", Verdict{Why: noRule}},
		{"notapi.example.com", 443, "tcp", Verdict{Why: noRule}},
		{"a.b.cdn.example", 80, "tcp", Verdict{true, "p.yaml:5", "network.egress"}},
		{"cdn.example", 80, "tcp", Verdict{Why: noRule}},
		{"ads.cdn.example", 443, "tcp", Verdict{false, "p.yaml:10", "network.deny"}},
		{"x.ads.cdn.example", 443, "tcp", Verdict{false, "p.yaml:10", "network.deny"}},
		{"img.cdn.example", 80, "tcp", Verdict{false, "p.yaml:12", "network.deny"}},
		{"img.cdn.example", 443, "tcp", Verdict{true, "p.yaml:5", "network.egress"}},
	} {
		if got := office.Name(c.name, c.port, c.proto); got != c.want {
			t.Errorf("%s:%d/%s: %+v, want %+v", c.name, c.port, c.proto, got, c.want)
		}
	}
	for name, want := range map[string]bool{"api.example.com": true, "x.cdn.example": true, "ads.cdn.example": false, "img.cdn.example": true, "evil.org": false} {
		if got := office.Lookup(name); got.Allowed != want {
			t.Errorf("lookup of %s: %+v", name, got)
		}
	}
}

func TestAddressesAreDecidedByDenyThenCIDRsThenTheFloor(t *testing.T) {
	for _, c := range []struct {
		addr string
		port uint16
		want Verdict
	}{
		{"10.20.1.1", 8080, Verdict{true, "p.yaml:6", "network.egress"}},
		{"10.20.1.1", 80, Verdict{Why: "the floor: private"}},
		{"10.20.9.1", 8080, Verdict{Why: "the floor: private"}},
		{"10.20.30.1", 8080, Verdict{false, "p.yaml:11", "network.deny"}},
		{"::ffff:10.20.1.1", 8080, Verdict{true, "p.yaml:6", "network.egress"}},
		{"64:ff9b::10.20.1.1", 8080, Verdict{Why: "the floor: private"}},
		{"64:ff9b::10.20.30.1", 8080, Verdict{false, "p.yaml:11", "network.deny"}},
		{"2001:db8:1::5", 8000, Verdict{true, "p.yaml:6", "network.egress"}},
		{"2001:db8:2::5", 8000, Verdict{Why: "the floor: reserved"}},
		{"8.8.8.8", 443, Verdict{Why: noRule}},
		{"2606:4700::1111", 443, Verdict{Why: noRule}},
	} {
		if got := office.Address(netip.MustParseAddr(c.addr), c.port, "tcp"); got != c.want {
			t.Errorf("%s:%d: %+v, want %+v", c.addr, c.port, got, c.want)
		}
	}
}

// What a hostile resolver answers for an allowed name.
func TestNoNameStandsForWhatTheFloorHoldsBack(t *testing.T) {
	for _, a := range []string{
		"127.0.0.1", "127.9.9.9", "0.0.0.0", "169.254.169.254", "10.1.2.3", "192.168.1.1", "172.31.0.1", "100.64.0.1", "100.100.100.200", "168.63.129.16",
		"224.0.0.1", "255.255.255.255", "::1", "::", "fe80::1", "fd00:ec2::254", "fc00::1", "ff02::1", "::ffff:127.0.0.1", "::ffff:169.254.169.254",
		"64:ff9b::a9fe:a9fe", "64:ff9b:1::a9fe:a9fe", "2002:7f00:1::", "2002:a9fe:a9fe::1", "2001:0:1:2:3:4:5601:5601", "::127.0.0.1",
	} {
		if v := office.Answer("api.example.com", netip.MustParseAddr(a), 443, "tcp"); v.Allowed || !strings.HasPrefix(v.Why, "the floor: ") {
			t.Errorf("%s: %+v", a, v)
		}
	}
	for _, a := range []string{"93.184.215.14", "2606:2800:21f:cb07::1", "64:ff9b::93.184.215.14"} {
		if v := office.Answer("api.example.com", netip.MustParseAddr(a), 443, "tcp"); !v.Allowed || v.Rule != "p.yaml:4" {
			t.Errorf("%s: %+v", a, v)
		}
	}
	// A cidrs rule opens it, on its ports, whatever name leads there.
	if v := office.Answer("intra.example", netip.MustParseAddr("10.20.1.1"), 8080, "tcp"); !v.Allowed || v.Rule != "p.yaml:6" {
		t.Errorf("%+v", v)
	}
	if v := office.Answer("intra.example", netip.MustParseAddr("10.20.1.1"), 443, "tcp"); v.Allowed {
		t.Errorf("%+v", v)
	}
}

func TestTheTableSaysByWhichLine(t *testing.T) {
	const want = `deny  ads.cdn.example                          every port           p.yaml:10
deny  *.ads.cdn.example                        every port           p.yaml:10
deny  10.20.30.0/24                            every port           p.yaml:11
deny  img.cdn.example                          80                   p.yaml:12
allow api.example.com                          443                  p.yaml:4
allow *.cdn.example                            80 443               p.yaml:5
allow 10.20.0.0/16                             8000-8100            p.yaml:6
      but not 10.20.9.0/24
allow 2001:db8:1::/48                          8000-8100            p.yaml:6
allow 198.51.100.53/32                         53/udp               p.yaml:7
allow intra.example                            443                  p.yaml:8
deny  everything else
`
	if got := office.String(); got != want {
		t.Errorf("got:\n%s", got)
	}
}

// The sets that the kernel gets say the same as the rules, for random rules and random packets.
func TestSpansSayWhatTheRulesSay(t *testing.T) {
	random := rand.New(rand.NewPCG(4, 2))
	for range 300 {
		rules := make([]Rule, 1+random.IntN(5))
		for i := range rules {
			r := &rules[i]
			for range 1 + random.IntN(3) {
				p := randomPrefix(random)
				r.CIDRs = append(r.CIDRs, p)
				if inner, err := p.Addr().Prefix(min(p.Bits()+2, p.Addr().BitLen())); err == nil && random.IntN(2) == 0 {
					r.Except = append(r.Except, inner)
				}
			}
			for range 1 + random.IntN(2) {
				from := uint16(1 + random.IntN(20))
				r.Ports = append(r.Ports, Ports{from, from + uint16(random.IntN(10)), []string{"tcp", "udp"}[random.IntN(2)]})
			}
			r.Line = fmt.Sprint(i)
		}
		set := Compile(rules, nil)
		for _, proto := range []string{"tcp", "udp"} {
			all := spans(rules, proto)
			for i, a := range all {
				for _, b := range all[i+1:] {
					if a.From.Is4() == b.From.Is4() && !a.To.Less(b.From) && !b.To.Less(a.From) && a.FromPort <= b.ToPort && b.FromPort <= a.ToPort {
						t.Fatalf("%+v and %+v overlap; rules %+v", a, b, rules)
					}
				}
			}
			for range 100 {
				a, port := randomPrefix(random).Addr(), uint16(1+random.IntN(32))
				in := slices.ContainsFunc(all, func(s Span) bool {
					return s.From.Is4() == a.Is4() && !a.Less(s.From) && !s.To.Less(a) && s.FromPort <= port && port <= s.ToPort
				})
				if v := set.Address(a, port, proto); v.Allowed != in {
					t.Fatalf("%s:%d/%s: the rules say %+v, the spans %v\nrules %+v\nspans %+v", a, port, proto, v, in, rules, all)
				}
			}
		}
	}
}

// randomPrefix is small enough a world for rules to meet.
func randomPrefix(random *rand.Rand) netip.Prefix {
	if random.IntN(3) == 0 {
		a := netip.AddrFrom16([16]byte{0x26, 0x06, 15: byte(random.IntN(64))})
		p, _ := a.Prefix(120 + random.IntN(9))
		return p
	}
	a := netip.AddrFrom4([4]byte{93, 184, 0, byte(random.IntN(64))})
	p, _ := a.Prefix(24 + random.IntN(9))
	return p
}

func BenchmarkCompile(b *testing.B) {
	var rules []Rule
	for i := range 10_000 {
		rules = append(rules, Rule{CIDRs: []netip.Prefix{netip.PrefixFrom(netip.AddrFrom4([4]byte{11, byte(i >> 8), byte(i), 0}), 25)}, Ports: tcp(443)})
		rules = append(rules, Rule{Domains: []string{fmt.Sprintf("n%d.example.com", i)}, Ports: tcp(443)})
	}
	for b.Loop() {
		Compile(rules, nil)
		spans(rules, "tcp")
	}
}

func TestAHostsOwnAddressIsOpenedByNothingWider(t *testing.T) {
	own := netip.MustParseAddr("93.184.0.7")
	wide := Rule{CIDRs: prefixes("93.184.0.0/24"), Ports: tcp(443), Line: "p:1"}
	exact := Rule{CIDRs: prefixes("93.184.0.7/32"), Ports: tcp(443), Line: "p:2"}
	name := Rule{Domains: []string{"host.example"}, Ports: tcp(443), Line: "p:3"}
	before := Compile([]Rule{wide, name}, nil)
	on := before.OnHost([]netip.Addr{netip.MustParseAddr("::ffff:93.184.0.7")})
	for _, c := range []struct {
		what string
		v    Verdict
		want bool
	}{
		{"a wide range", on.Address(own, 443, "tcp"), false},
		{"its neighbour", on.Address(own.Next(), 443, "tcp"), true},
		{"on another host", before.Address(own, 443, "tcp"), true},
		{"a name", on.Answer("host.example", own, 443, "tcp"), false},
		{"its own range", Compile([]Rule{wide, exact}, nil).OnHost([]netip.Addr{own}).Address(own, 443, "tcp"), true},
	} {
		if c.v.Allowed != c.want {
			t.Errorf("%s: %+v", c.what, c.v)
		}
	}
	for _, s := range spans(on.egress.rules, "tcp") {
		if !own.Less(s.From) && !s.To.Less(own) {
			t.Errorf("span %+v holds it", s)
		}
	}
}

func TestOnTheHostAWideRangeOpensNothingOfTheFloorEither(t *testing.T) {
	rules := Compile([]Rule{{CIDRs: prefixes("0.0.0.0/0", "::/0", "8.0.0.0/6", "10.1.0.0/16", "8.8.8.0/24", "64:ff9b::/96"), Ports: tcp(443)}}, nil)
	if got := fmt.Sprint(rules.opened()); got != "[10.1.0.0/16 64:ff9b::/96]" {
		t.Error(got)
	}
}
