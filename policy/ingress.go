package policy

import (
	"fmt"
	"slices"
	"strconv"
	"strings"

	"go.yaml.in/yaml/v4"
)

// Ingress is a port of the box's own at which the caller may reach a skill, if the caller also asks for it when the skill is started.
type Ingress struct {
	Port int64  // of TCP, at loopback in the box; below 1024 a box can bind none
	Name string // for people, and to ask for it by; may be empty
	At   Position
}

// String returns the entry as one YAML flow mapping.
func (i Ingress) String() string { return flow(ingressKeys, &i) }

var ingresses = listing{what: "ports", most: 8}

var ingressKeys = []key{
	{name: "port", doc: "The port of TCP on which the skill listens, at 127.0.0.1 or ::1.", shape: integer(1024, 65535), field: in(func(i *Ingress) any { return &i.Port })},
	{name: "name", doc: "A name to ask for it by, beside its number.", shape: text("a word", ingressName.String(), checkIngressName), field: in(func(i *Ingress) any { return &i.Name })},
}

// A name is never a number, which a port is asked for by.
var ingressName = lazily(`^[a-z][a-z0-9-]{0,31}$`)

func checkIngressName(s string) error {
	if !ingressName.MatchString(s) {
		return bad("small letters, digits and -, a letter first, at most 32", "%s is no name of a port", show(s))
	}
	return nil
}

// ingress checks one entry of network.ingress.
func (r *reader) ingress(at string, n *yaml.Node, i *Ingress) {
	i.At = Position{r.file, n.Line, n.Column}
	if i.Port == 0 {
		r.fail(n, at, bad("add port: 8080, for example", "names no port"))
	}
}

// ports refuses what two entries share.
func (r *reader) ports(p *Policy) {
	numbers, names := map[int64]bool{}, map[string]bool{}
	for i, one := range p.Network.Ingress {
		at := fmt.Sprintf("network.ingress[%d]", i)
		switch {
		case numbers[one.Port]:
			r.failAt(r.positions[at], at, bad("", "port %d is listed twice", one.Port))
		case one.Name != "" && names[one.Name]:
			r.failAt(r.positions[at], at, bad("", "the name %s is given twice", one.Name))
		}
		numbers[one.Port], names[one.Name] = true, true
	}
}

// FindIngress returns the entry with this number or name.
func (n *Network) FindIngress(asked string) (Ingress, bool) {
	i := slices.IndexFunc(n.Ingress, func(i Ingress) bool {
		return strconv.FormatInt(i.Port, 10) == asked || i.Name != "" && i.Name == asked
	})
	if i < 0 {
		return Ingress{}, false
	}
	return n.Ingress[i], true
}

func portOf(in []Ingress, port int64) bool {
	return slices.ContainsFunc(in, func(i Ingress) bool { return i.Port == port })
}

// ingress bounds the ports by the ceiling's, and drops those that the skill does not want.
func (g *granting) ingress() {
	const path = "network.ingress"
	asked := g.operator.Network.Ingress
	if g.ceiling.Named(path) {
		for i, one := range asked {
			if !portOf(g.ceiling.Network.Ingress, one.Port) {
				g.refuse(item(path, i), path, strconv.FormatInt(one.Port, 10), numbers(g.ceiling.Network.Ingress))
			}
		}
	}
	if !g.declared.Named(path) {
		return
	}
	var kept []Ingress
	for _, one := range asked {
		if portOf(g.declared.Network.Ingress, one.Port) {
			kept = append(kept, one)
		} else {
			g.narrow(path, strconv.FormatInt(one.Port, 10), nothing)
		}
	}
	for i, wish := range g.declared.Network.Ingress {
		if !portOf(asked, wish.Port) {
			g.request(item(path, i), strconv.FormatInt(wish.Port, 10), nothing)
		}
	}
	g.replace(path)
	g.out.Network.Ingress = kept
}

func numbers(in []Ingress) string {
	if len(in) == 0 {
		return nothing
	}
	var all []string
	for _, i := range in {
		all = append(all, strconv.FormatInt(i.Port, 10))
	}
	return strings.Join(all, ", ")
}
