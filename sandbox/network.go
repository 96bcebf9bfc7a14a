package sandbox

import (
	"errors"
	"fmt"
	"net/netip"
	"slices"
	"strings"

	"skillbox/netpolicy"
	"skillbox/netpolicy/gateway"
	"skillbox/policy"
)

// Network is how a box reaches the world.
type Network struct {
	Path   string          `json:"path"`           // "none", "capture", "veth" or "sinkhole"
	IPv6   bool            `json:"ipv6,omitempty"` // the link carries it
	Rules  []string        `json:"rules"`          // who may reach what, by which line
	Budget *gateway.Budget `json:"budget,omitempty"`
	// Ingress are the ports of the box at which the caller may ask to reach it.
	Ingress []Ingress `json:"ingress,omitempty"`

	ruleset  *netpolicy.Ruleset
	resolves bool // a rule names domains
}

// Ingress is a port of a box, with the line that allows it.
type Ingress struct {
	Port uint16 `json:"port"`
	Name string `json:"name,omitempty"`
	Rule string `json:"rule"`
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

// connect decides by which path the box's packets leave. What skillboxd carries looks the same from inside as what a link does, but for UDP.
func (plan *Plan) connect(h *Host, p *policy.Policy) error {
	plan.Network.Path, plan.Network.Rules = "none", []string{}
	if len(p.Network.Egress) == 0 && !p.Network.Sinkhole {
		return plan.admit(p)
	}
	if len(p.Network.Egress) > 0 && p.Syscalls.Profile == "strict" && !slices.Contains(p.Syscalls.Allow, "socket") {
		return &Refusal{
			Field: "syscalls.profile", Message: "strict has no network sockets, and network.egress asks for a way out", Hint: "use the default profile, or remove the rules",
			Position: p.Position("syscalls.profile"),
		}
	}
	plan.Network = Network{
		Path: "capture", ruleset: Ruleset(p), resolves: slices.ContainsFunc(p.Network.Egress, func(r policy.Rule) bool { return len(r.Domains) > 0 }),
		Budget: budget(p),
	}
	if err := plan.admit(p); err != nil {
		return err
	}
	plan.Network.Rules = strings.Split(strings.TrimSuffix(plan.Network.ruleset.String(), "\n"), "\n")
	if p.Network.Sinkhole {
		plan.Network.Path, plan.Network.resolves = "sinkhole", false
		return nil
	}
	return plan.link(h, p)
}

func budget(p *policy.Policy) *gateway.Budget {
	return &gateway.Budget{Bytes: p.Network.Limits.Bytes, Connections: p.Network.Limits.Connections, Rate: p.Network.Limits.Rate}
}

// admit notes at which ports the box may be reached.
func (plan *Plan) admit(p *policy.Policy) error {
	if len(p.Network.Ingress) == 0 {
		return nil
	}
	if p.Syscalls.Profile == "strict" && !slices.Contains(p.Syscalls.Allow, "socket") {
		return &Refusal{
			Field: "syscalls.profile", Message: "strict has no network sockets, and network.ingress asks for a listener", Hint: "use the default profile, or remove the ports",
			Position: p.Position("syscalls.profile"),
		}
	}
	for _, i := range p.Network.Ingress {
		plan.Network.Ingress = append(plan.Network.Ingress, Ingress{uint16(i.Port), i.Name, fmt.Sprintf("%s:%d", i.At.File, i.At.Line)})
	}
	plan.Network.Budget = budget(p)
	return nil
}

// link gives the box a link if rules need one that skillboxd cannot replace, or could do with one.
func (plan *Plan) link(h *Host, p *policy.Policy) error {
	useful := slices.ContainsFunc(p.Network.Egress, func(r policy.Rule) bool { return len(r.CIDRs) > 0 || udp(r) })
	no4, no6 := error(&netpolicy.NoForwarding{Message: "capture carries TCP only", Hint: "use network.path: auto or veth"}), error(nil)
	if p.Network.Path != "capture" && (useful || p.Network.Path == "veth") {
		no4, no6 = h.Linkable()
	}
	if no4 == nil {
		plan.Network.Path, plan.Network.IPv6 = "veth", no6 == nil
	} else if p.Network.Path == "veth" {
		return unlinked("network.path", p.Position("network.path"), "veth cannot be had", no4)
	}
	for i, r := range p.Network.Egress {
		six := slices.ContainsFunc(r.CIDRs, func(p netip.Prefix) bool { return p.Addr().Is6() })
		field := fmt.Sprintf("network.egress[%d].ports", i)
		switch {
		case udp(r) && no4 != nil:
			return unlinked(field, p.Position(field), "UDP cannot be let out", no4)
		case udp(r) && six && no6 != nil:
			return unlinked(field, p.Position(field), "UDP over IPv6 cannot be let out", no6)
		}
	}
	return nil
}

func udp(r policy.Rule) bool {
	return slices.ContainsFunc(r.Ports, func(p policy.Port) bool { return p.Proto == "udp" })
}

func unlinked(field string, at policy.Position, what string, why error) error {
	refusal := &Refusal{Field: field, Message: fmt.Sprintf("%s: %v", what, why), Hint: "remove it", Position: at}
	var no *netpolicy.NoForwarding
	if errors.As(why, &no) {
		refusal.Message, refusal.Hint = what+": "+no.Message, no.Hint
	}
	return refusal
}

func (n *Network) layer() string {
	if len(n.Ingress) == 0 {
		return n.wayOut()
	}
	var ports []string
	for _, i := range n.Ingress {
		ports = append(ports, fmt.Sprint(i.Port))
	}
	return n.wayOut() + "; the caller may reach port " + strings.Join(ports, ", ")
}

func (n *Network) wayOut() string {
	switch n.Path {
	case "none":
		return "loopback only"
	case "sinkhole":
		return "sinkhole: names and connections end in skillboxd, which answers and records them; nothing leaves"
	}
	return n.Path + ": what network.egress names, by rules in a namespace that the skill does not own"
}

// interfaces are those that a box has.
func (n *Network) interfaces() []string {
	if n.Path == "veth" {
		return []string{"lo", "eth0"}
	}
	return []string{"lo"}
}
