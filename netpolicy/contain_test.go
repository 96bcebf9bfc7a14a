package netpolicy

import (
	"math/rand/v2"
	"net/netip"
	"slices"
	"testing"

	"skillbox/netpolicy/floor"
	"skillbox/policy"
)

// What a ceiling contains allows no address that the ceiling does not allow, and what it does not contain names or allows one: package
// policy, which compares ranges, says the same as the decisions.
func TestWhatACeilingContainsAllowsNothingBeyondIt(t *testing.T) {
	random := rand.New(rand.NewPCG(7, 1))
	contained := 0
	for range 4000 {
		ceiling, rule := make([]policy.Rule, 1+random.IntN(2)), floorRule(random)
		for i := range ceiling {
			ceiling[i] = floorRule(random)
		}
		outer, inner := compiled(ceiling...), compiled(rule)
		beyond := func(a netip.Addr) bool {
			names := func(r policy.Rule) bool {
				in := func(p netip.Prefix) bool { return p.Contains(a) }
				return slices.ContainsFunc(r.CIDRs, in) && !slices.ContainsFunc(r.Except, in)
			}
			return names(rule) && !slices.ContainsFunc(ceiling, names) ||
				inner.Address(a, 443, "tcp").Allowed && !outer.Address(a, 443, "tcp").Allowed
		}
		at := slices.IndexFunc(edgesOf(append(ceiling, rule)), beyond)
		if policy.Contains(ceiling, rule) != (at < 0) {
			t.Fatalf("%v containing %v is %v; an address beyond: %v", ceiling, rule, at >= 0, edgesOf(append(ceiling, rule))[max(at, 0)])
		}
		if at < 0 {
			contained++
		}
	}
	if contained < 200 {
		t.Errorf("only %d were contained", contained)
	}
}

// What a declaration leaves of a policy allows what both allow, and nothing else.
func TestADeclarationLeavesWhatBothAllow(t *testing.T) {
	random := rand.New(rand.NewPCG(7, 2))
	for range 2000 {
		operator, declared := policy.Default(), policy.Default()
		for _, p := range []*policy.Policy{operator, declared} {
			for range 1 + random.IntN(2) {
				p.Network.Egress = append(p.Network.Egress, floorRule(random))
			}
			p.Set("network.egress", "test")
		}
		g, err := policy.Grant(nil, operator, declared)
		if err != nil {
			t.Fatal(err)
		}
		one, other, both := compiled(operator.Network.Egress...), compiled(declared.Network.Egress...), compiled(g.Policy.Network.Egress...)
		for _, a := range edgesOf(append(operator.Network.Egress, declared.Network.Egress...)) {
			want := one.Address(a, 443, "tcp").Allowed && other.Address(a, 443, "tcp").Allowed
			if got := both.Address(a, 443, "tcp").Allowed; got != want {
				t.Fatalf("%s is allowed: %v, want %v\noperator:\n%s\ndeclared:\n%s\ngranted:\n%s", a, got, want, one, other, both)
			}
		}
	}
}

// floorRule is about a range of the floor or two, each made a little wider or narrower.
func floorRule(random *rand.Rand) policy.Rule {
	r := policy.Rule{Ports: []policy.Port{{From: 443, To: 443, Proto: "tcp"}}, UnsafeWildcard: true}
	for range 1 + random.IntN(2) {
		all := prefixes("10.0.0.0/8", "8.8.8.0/24", "169.254.0.0/16", "169.254.169.254/32", "224.0.0.0/4", "fd00:ec2::/32", "::1/128", "64:ff9b::/96",
			"64:ff9b::a00:0/104", "2002::/16")
		if random.IntN(6) == 0 {
			all = prefixes("0.0.0.0/0", "::/0")
		}
		p := all[random.IntN(len(all))]
		p = netip.PrefixFrom(p.Addr(), min(max(p.Bits()+random.IntN(5)-2, 0), p.Addr().BitLen())).Masked()
		if slices.Contains(r.CIDRs, p) {
			continue
		}
		r.CIDRs = append(r.CIDRs, p)
		if random.IntN(4) == 0 && !p.IsSingleIP() {
			r.Except = append(r.Except, netip.PrefixFrom(p.Addr(), min(p.Bits()+1+random.IntN(3), p.Addr().BitLen())))
		}
	}
	return r
}

func compiled(rules ...policy.Rule) *Ruleset {
	var all []Rule
	for _, r := range rules {
		all = append(all, Rule{CIDRs: r.CIDRs, Except: r.Except, Ports: []Ports{Ports(r.Ports[0])}, Line: "p:1"})
	}
	return Compile(all, nil)
}

// edgesOf are the addresses at which a decision may change: the first of each range, and the one after its last.
func edgesOf(rules []policy.Rule) (edges []netip.Addr) {
	all := prefixes("0.0.0.0/0", "::/0")
	for _, r := range rules {
		all = slices.Concat(all, r.CIDRs, r.Except)
	}
	all = append(all, floor.Held(all[0])...)
	all = append(all, floor.Held(all[1])...)
	for _, p := range all {
		edges = append(edges, p.Addr())
		if next := rangeOf(p).to.Next(); next.IsValid() {
			edges = append(edges, next)
		}
	}
	return slices.DeleteFunc(edges, netip.Addr.Is4In6)
}
