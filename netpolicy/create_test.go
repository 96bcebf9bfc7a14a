package netpolicy

import (
	"fmt"
	"net/netip"
	"os"
	"testing"
)

func BenchmarkCreate(b *testing.B) {
	if os.Geteuid() != 0 {
		b.Skip("needs root")
	}
	rules := Compile([]Rule{{Domains: []string{"api.example.com"}, Ports: []Ports{{443, 443, "tcp"}}}}, nil)
	for name, d := range map[string]Description{"loopback": {}, "capture": {Rules: rules}} {
		b.Run(name, func(b *testing.B) {
			for b.Loop() {
				h, err := Create(d)
				if err != nil {
					b.Fatal(err)
				}
				if err := h.Close(); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}

// manyRules are n rules for as many addresses and as many domains.
func manyRules(n int) []Rule {
	rules := []Rule{}
	for i := range n {
		rules = append(rules,
			Rule{Domains: []string{fmt.Sprintf("n%d.example.com", i)}, Ports: []Ports{{443, 443, "tcp"}}, Line: fmt.Sprintf("policy.yaml:%d", i)},
			Rule{CIDRs: []netip.Prefix{netip.PrefixFrom(netip.AddrFrom4([4]byte{20, byte(i >> 8), byte(i), 0}), 25)}, Ports: []Ports{{443, 443, "tcp"}}})
	}
	return rules
}

func BenchmarkLoad(b *testing.B) {
	if os.Geteuid() != 0 {
		b.Skip("needs root")
	}
	for _, n := range []int{10, 10_000} {
		rules := Compile(manyRules(n), nil)
		b.Run(fmt.Sprint(n), func(b *testing.B) {
			for b.Loop() {
				h, err := Create(Description{Rules: rules})
				if err != nil {
					b.Fatal(err)
				}
				if err := h.Close(); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}
