package sandbox

import (
	"fmt"

	"skillbox/netpolicy"
	"skillbox/policy"
)

// Ruleset is what a policy says about the network.
func Ruleset(p *policy.Policy) *netpolicy.Ruleset {
	return netpolicy.Compile(netRules(p.Network.Egress), netRules(p.Network.Deny))
}

func netRules(rules []policy.Rule) []netpolicy.Rule {
	all := make([]netpolicy.Rule, len(rules))
	for i, r := range rules {
		all[i] = netpolicy.Rule{Domains: r.Domains, CIDRs: r.CIDRs, Except: r.Except, Line: fmt.Sprintf("%s:%d", r.At.File, r.At.Line)}
		for _, p := range r.Ports {
			all[i].Ports = append(all[i].Ports, netpolicy.Ports(p))
		}
	}
	return all
}
