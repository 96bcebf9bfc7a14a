package learn

import (
	"cmp"
	"fmt"
	"maps"
	"net/netip"
	"slices"
	"strings"

	"skillbox/policy"
)

// siblings is how many names below one name must have been seen before a wildcard stands for them.
const siblings = 3

// reached is a destination that runs turned to.
type reached struct {
	name  string       // normal; "" where the skill named the address itself
	addr  netip.Addr   // of one without a name
	port  uint16       // 0 is that the name was only looked up
	proto string       // "tcp" or "udp"
	runs  map[int]bool // in which
	at    cite         // the first record
}

// pattern is a name or a wildcard, with what speaks for it.
type pattern struct {
	text string
	why  string
}

// patterns are the names as rules have them. Where the names below one name are not the same in all runs that turned there, no list of them
// would be enough for the next: from three on, a wildcard stands for them, unless it would reach names of unrelated owners.
func patterns(names map[string]map[int]bool) map[string]pattern {
	below := map[string][]string{}
	for name := range names {
		if _, parent, ok := strings.Cut(name, "."); ok {
			below[parent] = append(below[parent], name)
		}
	}
	all := map[string]pattern{}
	for parent, children := range below {
		slices.Sort(children)
		there := map[int]bool{}
		for _, c := range children {
			maps.Copy(there, names[c])
		}
		varying := slices.ContainsFunc(children, func(c string) bool { return len(names[c]) < len(there) })
		wide := "*." + parent
		if len(children) >= siblings && varying && wellFormed(policy.Rule{Domains: []string{wide}, Ports: []policy.Port{{From: 443, To: 443, Proto: "tcp"}}}) {
			shown := strings.Join(children[:siblings], ", ")
			why := fmt.Sprintf("a wildcard: %d names below %s were seen, not the same ones in each run: %s", len(children), parent, shown)
			if len(children) > siblings {
				why += " …"
			}
			for _, c := range children {
				all[c] = pattern{wide, why}
			}
			continue
		}
		for _, c := range children {
			all[c] = pattern{text: c}
		}
	}
	return all
}

// rule is an egress rule with what speaks for it.
type rule struct {
	policy.Rule
	why string
	at  cite // of its first name
}

// group makes rules of destinations with names: one for each set of ports, its names in order. A name is only grouped with names on the same ports,
// because a rule allows each of its names on each of its ports.
func group(all []reached) []rule {
	names, ports := map[string]map[int]bool{}, map[string][]policy.Port{}
	for _, r := range all {
		if names[r.name] == nil {
			names[r.name] = map[int]bool{}
		}
		maps.Copy(names[r.name], r.runs)
	}
	as := patterns(names)
	why, cites := map[string]string{}, map[string]cite{}
	for _, r := range all {
		p := as[r.name]
		if p.text == "" {
			p.text = r.name // of one label
		}
		port := policy.Port{From: r.port, To: r.port, Proto: r.proto}
		if !slices.Contains(ports[p.text], port) {
			ports[p.text] = append(ports[p.text], port)
		}
		if _, twice := cites[p.text]; !twice {
			why[p.text], cites[p.text] = p.why, r.at
		}
	}
	rules := map[string]*rule{}
	for _, text := range slices.Sorted(maps.Keys(ports)) {
		list := ports[text]
		slices.SortFunc(list, func(a, b policy.Port) int { return cmp.Or(cmp.Compare(a.Proto, b.Proto), cmp.Compare(a.From, b.From)) })
		key := fmt.Sprint(list)
		if strings.HasPrefix(text, "*.") {
			key += text // a line of its own, for its reason
		}
		if rules[key] == nil {
			rules[key] = &rule{Rule: policy.Rule{Ports: list}, why: why[text], at: cites[text]}
		}
		rules[key].Domains = append(rules[key].Domains, text)
	}
	var out []rule
	for _, key := range slices.Sorted(maps.Keys(rules)) {
		out = append(out, *rules[key])
	}
	slices.SortStableFunc(out, func(a, b rule) int { return cmp.Compare(a.Domains[0], b.Domains[0]) })
	return out
}

// prefixes is the range that an address is.
func prefixes(r reached) []netip.Prefix {
	if !r.addr.IsValid() {
		return nil
	}
	return []netip.Prefix{netip.PrefixFrom(r.addr, r.addr.BitLen())}
}

// wellFormed tells whether a policy may hold the rule as it stands.
func wellFormed(r policy.Rule) bool {
	_, err := policy.Parse("", []byte("version: 1\nnetwork: {egress: ["+r.String()+"]}\n"))
	return err == nil
}
