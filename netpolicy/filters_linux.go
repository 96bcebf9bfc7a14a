package netpolicy

import (
	"fmt"
	"slices"
	"strings"

	"github.com/google/nftables"
	"github.com/google/nftables/expr"
)

// unfiltered says that no filter of the host's drops a family's packets of links.
func (ls *links) unfiltered(of byte) error {
	filters, err := ls.table.filters(of)
	if err != nil {
		return err
	}
	legacy, err := legacies[of].filter()
	if err != nil {
		return err
	}
	if legacy != nil {
		filters = append(filters, *legacy)
	}
	for _, f := range filters {
		if err := f.refusal(); err != nil {
			return err
		}
	}
	return nil
}

var families = map[nftables.TableFamily]string{nftables.TableFamilyIPv4: "ip", nftables.TableFamilyIPv6: "ip6", nftables.TableFamilyINet: "inet"}

// filters are the chains of nftables, other than our own, that drop what is forwarded in the end.
func (t *hostTable) filters(of byte) (all []filter, err error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	chains, err := t.conn.ListChains()
	if err != nil {
		return nil, fmt.Errorf("netpolicy: list nftables chains: %w", err)
	}
	for _, c := range chains {
		family := byte(c.Table.Family)
		if c.Hooknum == nil || *c.Hooknum != *nftables.ChainHookForward || families[c.Table.Family] == "" ||
			family != of && c.Table.Family != nftables.TableFamilyINet || *c.Table == *hostOf {
			continue
		}
		rules, err := t.conn.GetRules(c.Table, c)
		if err != nil {
			continue // gone meanwhile
		}
		if (c.Policy == nil || *c.Policy != nftables.ChainPolicyDrop) && (len(rules) == 0 || !refuses(rules[len(rules)-1].Exprs)) {
			continue
		}
		f := filter{family: families[c.Table.Family], table: c.Table.Name, chain: c.Name}
		if f.table == "filter" && f.chain == "FORWARD" {
			f.program = map[string]string{"ip": "iptables", "ip6": "ip6tables"}[f.family]
		}
		t.read(&f, c.Table, chains)
		all = append(all, f)
	}
	return all, nil
}

// read looks through all chains of the filter's table.
func (t *hostTable) read(f *filter, table *nftables.Table, chains []*nftables.Chain) {
	for _, c := range chains {
		if *c.Table != *table {
			continue
		}
		f.docker = f.docker || c.Name == "DOCKER-USER"
		f.ufw = f.ufw || strings.HasPrefix(c.Name, "ufw-") || strings.HasPrefix(c.Name, "ufw6-")
		rules, err := t.conn.GetRules(table, c)
		if err != nil {
			continue
		}
		for _, r := range rules {
			in, back := opens(r.Exprs)
			f.in, f.back = f.in || in, f.back || back
		}
	}
}

// refuses says that a rule drops or rejects whatever comes to it.
func refuses(rule []expr.Any) bool {
	rule = slices.DeleteFunc(slices.Clone(rule), func(e expr.Any) bool { _, counts := e.(*expr.Counter); return counts })
	if len(rule) != 1 {
		return false
	}
	if v, ok := rule[0].(*expr.Verdict); ok {
		return v.Kind == expr.VerdictDrop
	}
	_, rejects := rule[0].(*expr.Reject)
	return rejects
}

// opens says that a rule lets packets from links through, or answers to them.
func opens(rule []expr.Any) (in, back bool) {
	var from, to, another, connection, passes bool
	for i, e := range rule {
		switch e := e.(type) {
		case *expr.Meta:
			if e.Key != expr.MetaKeyIIFNAME && e.Key != expr.MetaKeyOIFNAME && e.Key != expr.MetaKeyIIF && e.Key != expr.MetaKeyOIF {
				continue
			}
			is := false
			if i+1 < len(rule) {
				c, ok := rule[i+1].(*expr.Cmp)
				is = ok && c.Op == expr.CmpOpEq && ours(string(c.Data))
			}
			from = from || is && e.Key == expr.MetaKeyIIFNAME
			to = to || is && e.Key == expr.MetaKeyOIFNAME
			another = another || !is
		case *expr.Ct:
			connection = connection || e.Key == expr.CtKeySTATE
		case *expr.Match:
			connection = connection || e.Name == "conntrack" || e.Name == "state"
		case *expr.Verdict:
			passes = e.Kind == expr.VerdictAccept || e.Kind == expr.VerdictJump || e.Kind == expr.VerdictGoto
		}
	}
	return passes && from, passes && (to || connection && !from && !another)
}
