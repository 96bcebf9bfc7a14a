package scan

import (
	"cmp"
	"fmt"
	"net/netip"
	"slices"
	"strings"

	"skillbox/audit"
	"skillbox/policy"
)

// metadata are the addresses and names by which clouds give machines their credentials.
var metadata = []string{
	"169.254.169.254", "169.254.170.2", "169.254.170.23", "fd00:ec2::254", "fd20:ce::254", "100.100.100.200", "192.0.0.192", "168.63.129.16",
	"metadata.google.internal", "metadata", "metadata.azure.internal", "instance-data", "instance-data.ec2.internal",
}

// target is a name or an address that a skill turned to, with the records that show it.
type target struct {
	what    string
	ports   []string // such as 443/tcp; none where it was looked up alone
	records []audit.Record
}

// connections judges lookups and connections.
func (s *sight) connections() {
	for _, e := range s.run.Events {
		if d, ok := e.Detail.(audit.Connection); ok && d.Proto == "unix" {
			s.socket(e, d)
		} else if ok && waits(d) {
			s.listens(e, d)
		}
	}
	undeclared, clouds := s.targets()
	for _, t := range clouds {
		s.note(MetadataAccess, None, s.text.holding(t.what), fmt.Sprintf("The skill turned to %s, where clouds keep machines' credentials.", seen(t.what)), t.records...)
	}
	for _, t := range together(undeclared) {
		what := fmt.Sprintf("The skill looked %s up, which its policy does not allow.", seen(t.what))
		if len(t.ports) > 0 {
			what = fmt.Sprintf("The skill turned to %s (%s), which its policy does not allow.", seen(t.what), strings.Join(t.ports[:min(len(t.ports), 8)], ", "))
		}
		s.note(EgressUndeclared, None, s.text.holding(strings.TrimPrefix(t.what, "*."), t.what), what, t.records...)
	}
}

func waits(d audit.Connection) bool { return d.Op == "bind" || d.Op == "listen" || d.Op == "accept" }

// targets are where the skill turned to without its policy's leave, the clouds' own services apart.
func (s *sight) targets() (undeclared, clouds []target) {
	names := s.answers()
	for _, e := range s.run.Events {
		what, port := "", ""
		switch d := e.Detail.(type) {
		case audit.DNS:
			if !s.allows(d.Name, "", 0, "") {
				what = d.Name
			}
		case audit.Connection:
			name := cmp.Or(d.Name, names[d.Address])
			switch {
			case d.Proto == "unix", waits(d), name == "" && own(d.Address), s.allows(name, d.Address, d.Port, d.Proto):
			case name != "" && d.PID != 0 && d.Proto == "udp":
				// A resolver asks the kernel so which way an address lies.
			default:
				what, port = cmp.Or(name, d.Address), fmt.Sprintf("%d/%s", d.Port, d.Proto)
			}
		}
		switch {
		case what == "":
		case slices.Contains(metadata, strings.TrimSuffix(strings.ToLower(what), ".")):
			clouds = collect(clouds, what, port, e)
		default:
			undeclared = collect(undeclared, what, port, e)
		}
	}
	return undeclared, clouds
}

// answers are the names that this run's lookups gave addresses for, by address.
func (s *sight) answers() map[string]string {
	names := map[string]string{}
	for _, e := range s.run.Events {
		if d, ok := e.Detail.(audit.DNS); ok {
			for _, address := range d.Addresses {
				names[address] = d.Name
			}
		}
	}
	return names
}

func collect(all []target, what, port string, e audit.Record) []target {
	i := slices.IndexFunc(all, func(t target) bool { return t.what == what })
	if i < 0 {
		all, i = append(all, target{what: what}), len(all)
	}
	if all[i].records = append(all[i].records, e); port != "" && !slices.Contains(all[i].ports, port) {
		all[i].ports = append(all[i].ports, port)
	}
	return all
}

// manyNames is how many names below one are told as that one.
const manyNames = 4

// together tells many names below one as one: they carry something, and are no services of their own.
func together(all []target) (grouped []target) {
	below := map[string]int{}
	for _, t := range all {
		below[parent(t.what)]++
	}
	for _, t := range all {
		name := t.what
		if p := parent(name); p != "" && below[p] > manyNames {
			name = "*." + p
		}
		for i, e := range t.records {
			port := ""
			if i < len(t.ports) {
				port = t.ports[i]
			}
			grouped = collect(grouped, name, port, e)
		}
	}
	return grouped
}

// parent is the last two labels of a name with more of them; "" of an address.
func parent(name string) string {
	if _, err := netip.ParseAddr(name); err == nil {
		return ""
	}
	labels := strings.Split(strings.TrimSuffix(name, "."), ".")
	if len(labels) < 3 {
		return ""
	}
	return strings.Join(labels[len(labels)-2:], ".")
}

// own tells an address of the box itself.
func own(address string) bool {
	a, err := netip.ParseAddr(address)
	return err == nil && (a.IsLoopback() || a.IsUnspecified())
}

// allows tells whether the declared policy lets a skill go there. A name that is looked up has no port: any rule with the name will do.
func (s *sight) allows(name, address string, port int, proto string) bool {
	if name != "" {
		normal, err := policy.NormalizeName(name)
		if err != nil {
			return false
		}
		name = normal
	}
	a, _ := netip.ParseAddr(address)
	matches := func(r policy.Rule) bool {
		here := port == 0 || slices.ContainsFunc(r.Ports, func(p policy.Port) bool {
			return int(p.From) <= port && port <= int(p.To) && p.Proto == proto
		})
		if len(r.CIDRs) > 0 {
			in := func(p netip.Prefix) bool { return a.IsValid() && p.Contains(a) }
			return here && slices.ContainsFunc(r.CIDRs, in) && !slices.ContainsFunc(r.Except, in)
		}
		return here && name != "" && slices.ContainsFunc(r.Domains, func(p string) bool { return p == "*" || policy.MatchName(p, name) })
	}
	denies := func(r policy.Rule) bool {
		return len(r.Ports) == 0 && matches(policy.Rule{Domains: r.Domains, CIDRs: r.CIDRs, Ports: anyPort}) || matches(r)
	}
	return slices.ContainsFunc(s.declared.Network.Egress, matches) && !slices.ContainsFunc(s.declared.Network.Deny, denies)
}

var anyPort = []policy.Port{{From: 0, To: 65535, Proto: "tcp"}, {From: 0, To: 65535, Proto: "udp"}}

func (s *sight) listens(e audit.Record, d audit.Connection) {
	if d.Proto != "tcp" && d.Proto != "udp" || d.Port == 0 {
		return // a client's port is the kernel's choice
	}
	severity := Low
	if a, err := netip.ParseAddr(d.Address); err == nil && !a.IsLoopback() {
		severity = Medium
	}
	s.note(Listens, severity, s.text.holding(fmt.Sprint(d.Port)), fmt.Sprintf("The skill waits for connections at %s.", seen(fmt.Sprintf("%s:%d/%s", d.Address, d.Port, d.Proto))), e)
}

// daemons are sockets of a host's services; who reaches one is that service.
var daemons = []string{"docker.sock", "containerd.sock", "podman.sock", "crio.sock", "system_bus_socket", "ssh-agent", "S.gpg-agent", "/run/user/", "X11-unix"}

func (s *sight) socket(e audit.Record, d audit.Connection) {
	for _, name := range daemons {
		if strings.Contains(d.Address, name) {
			s.note(SecretRead, High, s.text.holding(name), fmt.Sprintf("The skill tried to reach a service of the host at %s.", seen(d.Address)), e)
			return
		}
	}
}
