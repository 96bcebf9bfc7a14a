package learn

import (
	"fmt"
	"maps"
	"slices"

	"skillbox/audit"
	"skillbox/policy"
)

// maxNames is for how many names rules are written. A skill that turns to more does not tell anybody where it goes.
const maxNames = 100

// network writes rules for the names that were connected to. What speaks against others is written beside them.
func (l *learning) network() {
	connected, asked, addresses := l.seen.destinations()
	l.draft.Network.Egress = nil
	l.wishes = slices.DeleteFunc(l.wishes, func(w Wish) bool { return w.Key == "network.egress" })
	many := map[string]bool{}
	for _, r := range connected {
		many[r.name] = true
	}
	for _, r := range group(connected) {
		switch {
		case len(many) > maxNames:
			l.wish("network.egress", r.String(), fmt.Sprintf("risky: %d names, too many to tell where it goes", len(many)), r.at)
		case !wellFormed(r.Rule):
			l.wish("network.egress", r.String(), "risky: no rule can be written for such a name", r.at)
		case !l.mayReach(r.Rule):
			l.wish("network.egress", r.String(), "beyond the ceiling or --allow-network", r.at)
		default:
			l.draft.Network.Egress = append(l.draft.Network.Egress, r.Rule)
		}
	}
	for _, r := range asked {
		one := policy.Rule{Domains: []string{r.name}, Ports: []policy.Port{{From: 443, To: 443, Proto: "tcp"}}}
		why := "risky: looked up and never connected to, and a name can carry data out"
		if !l.mayReach(one) {
			why = "beyond the ceiling or --allow-network"
		}
		l.wish("network.egress", one.String(), why, r.at)
	}
	for _, r := range addresses {
		one := policy.Rule{CIDRs: prefixes(r), Ports: []policy.Port{{From: r.port, To: r.port, Proto: r.proto}}}
		if r.port != 0 && vouched(l.vouched, one) && l.mayReach(one) {
			l.draft.Network.Egress = append(l.draft.Network.Egress, one)
			continue
		}
		l.wish("network.egress", one.String(), "risky: "+riskOfAddress(r.addr), r.at)
	}
}

// mayReach tells whether neither the ceiling nor --allow-network rules a destination out.
func (l *learning) mayReach(r policy.Rule) bool {
	if c := l.ceiling; c != nil && c.Named("network.egress") && !policy.Contains(c.Network.Egress, r) {
		return false
	}
	return len(l.options.Network) == 0 || policy.Contains(l.widest.Network.Egress, r)
}

func (l *learning) wish(key, value, why string, at cite) {
	w := Wish{Key: key, Value: value, Why: why, Run: at.run, Seq: at.seq}
	if !slices.ContainsFunc(l.wishes, func(o Wish) bool { return o.Key == key && o.Value == value }) {
		l.wishes = append(l.wishes, w)
	}
}

// risks writes down what was refused, or would have been, and should not be granted by a program.
func (l *learning) risks() {
	for _, name := range slices.Sorted(maps.Keys(l.seen.calls)) {
		r := l.seen.calls[name]
		if why := l.riskOfCall(name); why != "" {
			l.wish("syscalls.allow", name, "risky: "+why, r.at)
			l.excused[r.what] = leftToAPerson
		} else if !l.mayAllow(name) {
			l.wish("syscalls.allow", name, "beyond the ceiling", r.at)
		}
	}
	for _, what := range slices.Sorted(maps.Keys(l.seen.refused)) {
		if r := l.seen.refused[what]; r.kind == audit.FileKind {
			l.outside(r)
		}
	}
}
