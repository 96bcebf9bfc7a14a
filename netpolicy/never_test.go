package netpolicy

import (
	"net/netip"
	"os"
	"testing"
)

// widest are rules that leave nothing out: ports of every kind, addresses and names.
func widest(more ...netip.Prefix) *Ruleset {
	all := []Ports{{1, 65535, "tcp"}, {1, 65535, "udp"}}
	return Compile([]Rule{
		{CIDRs: append(prefixes("0.0.0.0/0", "::/0"), more...), Ports: all, Line: "p.yaml:1"},
		{Domains: []string{"*"}, Ports: all, Line: "p.yaml:2"},
	}, nil)
}

// What init tries to see whether the rules are in force is in no range of the widest ones, so that no name leads to it either.
func TestNoRangeReachesTheNeverReached(t *testing.T) {
	rules := widest().OnHost(NeverReached())
	for _, a := range NeverReached() {
		for _, proto := range []string{"tcp", "udp"} {
			for _, port := range []uint16{1, 53, 443, 65535} {
				if v := rules.Address(a, port, proto); v.Allowed {
					t.Errorf("%s:%d/%s: %+v", a, port, proto, v)
				}
				if v := rules.Answer("any.example", a, port, proto); v.Allowed {
					t.Errorf("a name leads to %s:%d/%s: %+v", a, port, proto, v)
				}
			}
			for _, s := range spans(rules.egress.rules, proto) {
				if !a.Less(s.From) && !s.To.Less(a) {
					t.Errorf("the kernel is told to let %s to %s through, and so %s", s.From, s.To, a)
				}
			}
		}
		if open, _ := rules.Open("any.example", a); len(open) > 0 {
			t.Errorf("a name opens %v of %s", open, a)
		}
	}
}

// A rule that names one of them opens it as far as Ruleset goes; the namespace refuses it before it looks at any rule.
func TestTheKernelRefusesTheNeverReachedBeforeAllRules(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Skip("needs root: it makes network namespaces")
	}
	var named []netip.Prefix
	for _, a := range NeverReached() {
		named = append(named, netip.PrefixFrom(a, a.BitLen()))
	}
	h, err := Create(Description{Rules: widest(named...)})
	if err != nil {
		t.Fatal(err)
	}
	defer h.Close()
	inside(t, h, func() {
		for i, a := range NeverReached() {
			for _, port := range []uint16{1, 443} {
				if attempt(t, netip.AddrPortFrom(a, port)) {
					t.Errorf("%s:%d is reached", a, port)
				}
			}
			if near := []string{"93.184.215.14", "2606:2800:21f:cb07::1"}[i]; !attempt(t, netip.AddrPortFrom(netip.MustParseAddr(near), 1)) {
				t.Errorf("%s is not reached, so that the test tests nothing", near)
			}
		}
	})
}

// What is redirected arrives at the listeners; who connects with one would only keep skillboxd busy.
func TestTheListenersAreReachedByRedirectionAlone(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Skip("needs root: it makes network namespaces")
	}
	h, err := Create(Description{Rules: widest(prefixes("127.0.0.0/8", "::1/128")...)})
	if err != nil {
		t.Fatal(err)
	}
	defer h.Close()
	inside(t, h, func() {
		for _, to := range []string{"127.0.0.1:1", "127.5.5.5:1", "[::1]:1"} {
			if attempt(t, netip.MustParseAddrPort(to)) {
				t.Errorf("%s is reached", to)
			}
		}
		for _, to := range []string{"127.0.0.1:53", "93.184.215.14:1"} {
			if !attempt(t, netip.MustParseAddrPort(to)) {
				t.Errorf("%s is not reached, so that the test tests nothing", to)
			}
		}
	})
}
