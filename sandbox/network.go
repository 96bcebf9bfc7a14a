package sandbox

import (
	"fmt"
	"slices"
	"strings"

	"skillbox/netpolicy"
	"skillbox/netpolicy/gateway"
	"skillbox/policy"
)

// Network is how a box reaches the world.
type Network struct {
	Path   string          `json:"path"`  // "none", "capture" or "veth"
	Rules  []string        `json:"rules"` // who may reach what, by which line
	Budget *gateway.Budget `json:"budget,omitempty"`

	ruleset  *netpolicy.Ruleset
	resolves bool // a rule names domains
}

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

// connect decides by which path the box's packets leave.
func (plan *Plan) connect(_ *Host, p *policy.Policy) error {
	plan.Network.Path, plan.Network.Rules = "none", []string{}
	if len(p.Network.Egress) == 0 {
		return nil
	}
	refusal := func(field, message, hint string) error {
		return &Refusal{Field: field, Message: message, Hint: hint, Position: p.Position(field)}
	}
	if p.Syscalls.Profile == "strict" && !slices.Contains(p.Syscalls.Allow, "socket") {
		return refusal("syscalls.profile", "strict has no network sockets, and network.egress asks for a way out", "use the default profile, or remove the rules")
	}
	if p.Network.Path == "veth" {
		return refusal("network.path", "veth is not available yet", "use auto or capture")
	}
	for i, r := range p.Network.Egress {
		if slices.ContainsFunc(r.Ports, func(p policy.Port) bool { return p.Proto == "udp" }) {
			return refusal(fmt.Sprintf("network.egress[%d].ports", i), "UDP cannot be let out here: capture carries TCP only", "remove the /udp ports; names are resolved without them")
		}
	}
	plan.Network = Network{
		Path: "capture", ruleset: Ruleset(p), resolves: slices.ContainsFunc(p.Network.Egress, func(r policy.Rule) bool { return len(r.Domains) > 0 }),
		Budget: &gateway.Budget{Bytes: p.Network.Limits.Bytes, Connections: p.Network.Limits.Connections, Rate: p.Network.Limits.Rate},
	}
	plan.Network.Rules = strings.Split(strings.TrimSuffix(plan.Network.ruleset.String(), "\n"), "\n")
	return nil
}

func (n *Network) layer() string {
	if n.Path == "none" {
		return "loopback only"
	}
	return n.Path + ": what network.egress names, by rules in a namespace that the skill does not own"
}
