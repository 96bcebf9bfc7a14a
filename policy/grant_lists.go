package policy

import (
	"fmt"
	"slices"
	"strings"
)

const nothing = "nothing"

// network bounds each egress rule by the ceiling's, meets it with what the
// skill declares, and joins everybody's deny rules.
func (g *granting) network() {
	const egress = "network.egress"
	if g.ceiling.Named(egress) {
		for i, rule := range g.operator.Network.Egress {
			if only := bound(g.ceiling.Network.Egress, rule); only != "" {
				g.refuse(item(egress, i), egress, rule.String(), only)
			}
		}
	}
	if g.declared.Named(egress) {
		var kept []Rule
		for _, rule := range g.operator.Network.Egress {
			var parts []Rule
			for _, wish := range g.declared.Network.Egress {
				if part, ok := intersect(rule, wish); ok {
					parts = append(parts, part)
				}
			}
			if !Contains(parts, rule) {
				g.narrow(egress, rule.String(), g.rules(parts))
			}
			for _, part := range parts {
				if !Contains(kept, part) { // where rules overlap, so do their parts
					kept = append(kept, part)
				}
			}
		}
		for i, wish := range g.declared.Network.Egress {
			if !Contains(g.operator.Network.Egress, wish) {
				g.request(item(egress, i), wish.String(), nothing+" beyond the operator's egress")
			}
		}
		g.replace(egress)
		g.out.Network.Egress = kept
	}
	for _, from := range []*Policy{g.ceiling, g.declared} {
		for _, rule := range cloneRules(from.Network.Deny) {
			same := func(r Rule) bool { return r.String() == rule.String() }
			if !slices.ContainsFunc(g.out.Network.Deny, same) {
				g.out.Network.Deny = append(g.out.Network.Deny, rule)
			}
		}
	}
}

func (g *granting) rules(rules []Rule) string {
	if len(rules) == 0 {
		return nothing
	}
	out := make([]string, len(rules))
	for i, r := range rules {
		out[i] = r.String()
	}
	return strings.Join(out, ", ")
}

// binds bounds host paths by the ceiling's and drops or demotes what the skill
// says, by target, that it does not need. A skill never chooses a host path.
func (g *granting) binds() {
	const read, write = "filesystem.read", "filesystem.write"
	mayRead := slices.Concat(g.ceiling.Filesystem.Read, g.ceiling.Filesystem.Write)
	for i, b := range g.operator.Filesystem.Read {
		if g.ceiling.Named(read) && !holds(mayRead, b) {
			g.refuse(item(read, i), read, b.Host, hostsOf(mayRead))
		}
	}
	for i, b := range g.operator.Filesystem.Write {
		if g.ceiling.Named(write) && !holds(g.ceiling.Filesystem.Write, b) {
			g.refuse(item(write, i), write, b.Host, hostsOf(g.ceiling.Filesystem.Write))
		}
	}
	wanted := func(in []Bind, b Bind) bool {
		return slices.ContainsFunc(in, func(w Bind) bool { return w.Path == b.Path })
	}
	wish := g.declared.Filesystem
	fs := &g.out.Filesystem
	fs.Read, fs.Write = nil, nil
	for _, b := range g.operator.Filesystem.Read {
		if g.declared.Named(read) && !wanted(wish.Read, b) && !wanted(wish.Write, b) {
			g.narrow(read, b.Path, nothing)
			continue
		}
		fs.Read = append(fs.Read, b)
	}
	for _, b := range g.operator.Filesystem.Write {
		switch {
		case g.declared.Named(write) && !wanted(wish.Write, b) && wanted(wish.Read, b):
			g.narrow(write, b.Path, "read only")
			fs.Read = append(fs.Read, b)
		case g.declared.Named(write) && !wanted(wish.Write, b):
			g.narrow(write, b.Path, nothing)
		default:
			fs.Write = append(fs.Write, b)
		}
	}
	either := slices.Concat(fs.Read, fs.Write)
	for i, w := range wish.Read {
		if !shown(either, w) {
			g.request(item(read, i), w.Host+" at "+w.Path, seenAs(either, w.Path))
		}
	}
	for i, w := range wish.Write {
		if !shown(fs.Write, w) {
			g.request(item(write, i), w.Host+" at "+w.Path, seenAs(either, w.Path))
		}
	}
	if g.declared.Named(read) || g.declared.Named(write) {
		g.replace(read)
		g.replace(write)
	}
}

// holds tells whether b's host path lies beneath one of binds, one that says
// dangerous if b's path is sensitive.
func holds(binds []Bind, b Bind) bool {
	risk, _ := hostRisk(b.Host)
	return slices.ContainsFunc(binds, func(c Bind) bool {
		return beneath(c.Host, b.Host) && (risk == "" || c.Dangerous)
	})
}

func hostsOf(binds []Bind) string {
	if len(binds) == 0 {
		return nothing
	}
	hosts := make([]string, len(binds))
	for i, b := range binds {
		hosts[i] = b.Host
	}
	return "what lies beneath " + strings.Join(hosts, ", ")
}

func shown(binds []Bind, w Bind) bool {
	return slices.ContainsFunc(binds, func(b Bind) bool { return b.Host == w.Host && b.Path == w.Path })
}

func seenAs(binds []Bind, path string) string {
	for _, b := range binds {
		if b.Path == path {
			return "the operator's " + path
		}
	}
	return nothing
}

// lists decides the lists of plain names.
func (g *granting) lists() {
	g.list("env.pass", func(p *Policy) *[]string { return &p.Env.Pass })
	g.list("env.secrets", func(p *Policy) *[]string { return &p.Env.Secrets })
	g.list("syscalls.allow", func(p *Policy) *[]string { return &p.Syscalls.Allow })
	for _, name := range sortedKeys(g.declared.Env.Set) {
		if got, ok := g.out.Env.Set[name]; !ok {
			g.request("env.set."+name, g.declared.Env.Set[name], nothing)
		} else if got != g.declared.Env.Set[name] {
			g.request("env.set."+name, g.declared.Env.Set[name], got)
		}
	}
	for i, name := range g.operator.Syscalls.Allow {
		if slices.Contains(g.ceiling.Syscalls.Deny, name) {
			g.refuse(item("syscalls.allow", i), "syscalls.deny", name, "no call that it denies")
		}
	}
	for _, name := range slices.Concat(g.ceiling.Syscalls.Deny, g.declared.Syscalls.Deny) {
		if !slices.Contains(g.out.Syscalls.Deny, name) {
			g.out.Syscalls.Deny = append(g.out.Syscalls.Deny, name)
		}
		g.out.Syscalls.Allow = slices.DeleteFunc(g.out.Syscalls.Allow, func(s string) bool { return s == name })
	}
}

func (g *granting) list(path string, field func(*Policy) *[]string) {
	limit, asked, wish := *field(g.ceiling), *field(g.operator), *field(g.declared)
	if g.ceiling.Named(path) {
		for i, name := range asked {
			if !slices.Contains(limit, name) {
				permitted := nothing
				if len(limit) > 0 {
					permitted = strings.Join(limit, ", ")
				}
				g.refuse(item(path, i), path, name, permitted)
			}
		}
	}
	if !g.declared.Named(path) {
		return
	}
	var kept []string
	for _, name := range asked {
		if slices.Contains(wish, name) {
			kept = append(kept, name)
		} else {
			g.narrow(path, name, nothing)
		}
	}
	for i, name := range wish {
		if !slices.Contains(asked, name) {
			g.request(item(path, i), name, nothing)
		}
	}
	g.replace(path)
	*field(g.out) = kept
}

// replace forgets where the items of a list stand, since they are not the
// operator's any more.
func (g *granting) replace(path string) {
	for field := range g.out.positions {
		if strings.HasPrefix(field, path+"[") {
			delete(g.out.positions, field)
		}
	}
}

func item(path string, i int) string { return fmt.Sprintf("%s[%d]", path, i) }
