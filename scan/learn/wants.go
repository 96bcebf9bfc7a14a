package learn

import (
	"fmt"
	"maps"
	"net/netip"
	"slices"
	"strings"

	"skillbox/audit"
	"skillbox/bundle"
	"skillbox/policy"
	"skillbox/scan"
)

// wants is what runs turned to, by their records.
type wants struct {
	runs    int
	reached map[string]*reached
	calls   map[string]refusal // refused ones that a policy can allow, by name
	refused map[string]refusal // everything that was refused, by what it was
	ownFile bool               // a file of the bundle was changed
	read    map[string]bool    // files that were opened or tried
	written map[string]cite    // files that were changed or were to be
	usage   []audit.Usage
	taken   []int64 // milliseconds that runs took
}

// refusal is something that was refused.
type refusal struct {
	what   string // for a person
	remedy string // as the record has it
	kind   audit.Kind
	at     cite
}

func newWants() *wants {
	return &wants{reached: map[string]*reached{}, calls: map[string]refusal{}, refused: map[string]refusal{}, read: map[string]bool{}, written: map[string]cite{}}
}

// add takes the records of a run.
func (w *wants) add(run *scan.Run) {
	for _, e := range run.Events {
		at := cite{run.ID, e.Seq}
		switch d := e.Detail.(type) {
		case audit.DNS:
			w.lookup(d, at)
		case audit.Connection:
			w.connection(d, at)
		case audit.Syscall:
			w.call(d, at)
		case audit.File:
			w.file(d, at)
		case audit.Exec:
			if d.Verdict == audit.Denied && d.Remedy != "" {
				w.refuse(refusal{"start " + d.Path + ": " + d.Error, d.Remedy, audit.ExecKind, at})
			}
		case audit.Limit:
			w.refuse(refusal{fmt.Sprintf("more than %s %d", d.Limit, d.Value), d.Limit, audit.LimitKind, at})
		case audit.Ended:
			w.usage, w.taken = append(w.usage, d.Usage), append(w.taken, int64(d.DurationMS))
		}
	}
	w.runs++
}

func (w *wants) refuse(r refusal) {
	if _, twice := w.refused[r.what]; !twice {
		w.refused[r.what] = r
	}
}

func (w *wants) reach(name string, addr netip.Addr, port int, proto string, at cite) {
	key := fmt.Sprintf("%s %s %d %s", name, addr, port, proto)
	r := w.reached[key]
	if r == nil {
		r = &reached{name: name, addr: addr, port: uint16(port), proto: proto, runs: map[int]bool{}, at: at}
		w.reached[key] = r
	}
	r.runs[w.runs] = true
}

func (w *wants) lookup(d audit.DNS, at cite) {
	name := d.Name
	if normal, err := policy.NormalizeName(name); err == nil {
		name = normal
	}
	w.reach(name, netip.Addr{}, 0, "", at)
	if d.Verdict == audit.Denied {
		w.refuse(refusal{"look up " + name, d.Remedy, audit.DNSKind, at})
	}
}

// connection takes what the network saw, and of what only the system call shows that it was refused.
func (w *wants) connection(d audit.Connection, at cite) {
	addr, err := netip.ParseAddr(d.Address)
	if d.Proto == "unix" || err == nil && inTheBox(addr) || d.Op == "bind" || d.Op == "listen" || d.Op == "accept" {
		return
	}
	seen := d.Layer == "sinkhole" || d.Layer == "network"
	if !seen && (d.Verdict != audit.Denied || d.Remedy == "") {
		return
	}
	to := d.Name
	if normal, bad := policy.NormalizeName(to); bad == nil {
		to, addr = normal, netip.Addr{}
	}
	if to != "" || err == nil {
		w.reach(to, addr, d.Port, d.Proto, at)
	}
	if to == "" {
		to = d.Address
	}
	if d.Verdict == audit.Denied {
		w.refuse(refusal{fmt.Sprintf("connect to %s port %d/%s", to, d.Port, d.Proto), d.Remedy, audit.ConnKind, at})
	}
}

func (w *wants) call(d audit.Syscall, at cite) {
	if d.Verdict != audit.Denied {
		return
	}
	what := d.Name
	if len(d.Args) > 0 {
		what += "(" + strings.Join(d.Args, ", ") + ")"
	}
	r := refusal{"call " + what, d.Remedy, audit.SyscallKind, at}
	w.refuse(r)
	if strings.HasPrefix(d.Remedy, "syscalls: {allow:") {
		if _, twice := w.calls[d.Name]; !twice {
			w.calls[d.Name] = r
		}
	}
}

func (w *wants) file(d audit.File, at cite) {
	changes := d.Op != "open" || slices.ContainsFunc(d.Flags, func(f string) bool { return f == "O_WRONLY" || f == "O_RDWR" || f == "O_CREAT" || f == "O_TRUNC" })
	for _, p := range []string{d.Path, d.To} {
		switch {
		case p == "":
		case changes && within(p, bundle.Dir):
			w.ownFile = true
		case changes:
			if _, twice := w.written[p]; !twice {
				w.written[p] = at
			}
		default:
			w.read[p] = true
		}
	}
	if d.Verdict == audit.Denied || d.Remedy != "" && !within(d.Path, "/etc") {
		w.refuse(refusal{d.Op + " " + d.Path + ": " + d.Error, d.Remedy, audit.FileKind, at})
	}
}

// within tells whether a path is dir or lies below it.
func within(p, dir string) bool {
	return p == dir || strings.HasPrefix(p, strings.TrimSuffix(dir, "/")+"/")
}

// touched tells whether anything at or below dir is among the paths.
func touched[V any](paths map[string]V, dir string) bool {
	for p := range paths {
		if within(p, dir) {
			return true
		}
	}
	return false
}

// destinations are what was reached, in an order that does not change: with the names that were connected to, those that were only looked up,
// and addresses.
func (w *wants) destinations() (connected, asked, addresses []reached) {
	by := map[string]bool{}
	for _, r := range w.reached {
		if r.port != 0 && r.name != "" {
			by[r.name] = true
		}
	}
	for _, key := range slices.Sorted(maps.Keys(w.reached)) {
		switch r := w.reached[key]; {
		case r.name == "":
			addresses = append(addresses, *r)
		case r.port != 0:
			connected = append(connected, *r)
		case !by[r.name]:
			asked = append(asked, *r)
		}
	}
	return connected, asked, addresses
}
