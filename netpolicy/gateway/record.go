package gateway

import (
	"fmt"
	"net/netip"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"skillbox/netpolicy"
	"skillbox/netpolicy/resolver"
)

// Event is a decision: a lookup, a connection that has ended, or a refusal. It holds no URL, no header and nothing that was said, but for
// what a sinkhole has heard. There everything is an event that was not beyond a limit, and Verdict is what the rules would have said.
type Event struct {
	Time     time.Time
	Kind     string         // "dns" or "connection"
	Name     string         // asked for, or spoken by the client; normal, or quoted; "" for a plain address
	To       netip.AddrPort // the zero value for lookups
	In       bool           // somebody outside made it, and To is the box's own
	Proto    string         // "tcp", "udp"; the type of a lookup ("A")
	Verdict  netpolicy.Verdict
	Err      string // why what was allowed did not succeed
	Sent     int64  // bytes, by the box
	Received int64
	Duration time.Duration
	Count    int64  // of equal refusals, and of datagrams that a sinkhole has heard
	First    []byte // what the box said first, of a sinkhole: at most 4 KiB
}

// Totals of one box.
type Totals struct{ Lookups, Connections, Refused, Sent, Received int64 }

// Bounds of what one run may make us remember.
const (
	maxEvents  = 1000
	maxDenials = 200
)

// record keeps what happened.
type record struct {
	mu      sync.Mutex
	totals  Totals
	events  []Event
	denials []Event // refusals, equal ones once
	dropped int64
}

// Report is what a gateway did until now.
type Report struct {
	Totals  Totals
	Events  []Event // what was allowed, in order of their end
	Denials []Event // what was refused, in order of the first time
	Dropped int64   // events and denials beyond the number that is kept
}

// With is both reports as one.
func (r Report) With(other Report) Report {
	r.Totals.Lookups += other.Totals.Lookups
	r.Totals.Connections += other.Totals.Connections
	r.Totals.Refused += other.Totals.Refused
	r.Totals.Sent += other.Totals.Sent
	r.Totals.Received += other.Totals.Received
	r.Events, r.Denials = slices.Concat(r.Events, other.Events), slices.Concat(r.Denials, other.Denials)
	r.Dropped += other.Dropped
	return r
}

// Report returns what happened so far.
func (g *Gateway) Report() Report {
	r := &g.record
	r.mu.Lock()
	defer r.mu.Unlock()
	return Report{r.totals, slices.Clone(r.events), slices.Clone(r.denials), r.dropped}
}

func (r *record) allowed(e Event) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.totals.Sent += e.Sent
	r.totals.Received += e.Received
	if len(r.events) >= maxEvents {
		r.dropped++
		return
	}
	r.events = append(r.events, e)
}

// datagram adds to what went to the same place before.
func (r *record) datagram(e Event) {
	r.mu.Lock()
	for i := range r.events {
		if d := &r.events[i]; d.Kind == e.Kind && d.Proto == e.Proto && d.To == e.To && d.Name == e.Name {
			d.Count++
			d.Sent += e.Sent
			d.First = append(d.First, e.First[:min(len(e.First), maxFirst-len(d.First))]...)
			r.totals.Sent += e.Sent
			r.mu.Unlock()
			return
		}
	}
	r.totals.Connections++
	r.mu.Unlock()
	r.allowed(e)
}

func (r *record) refused(e Event) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.totals.Refused++
	r.totals.Sent += e.Sent
	r.totals.Received += e.Received
	for i := range r.denials {
		if d := &r.denials[i]; d.Kind == e.Kind && d.In == e.In && d.Name == e.Name && d.To == e.To && d.Verdict == e.Verdict && (d.Proto == e.Proto || d.Kind == "dns") {
			d.Count++
			return
		}
	}
	if len(r.denials) >= maxDenials {
		r.dropped++
		return
	}
	e.Count = 1
	r.denials = append(r.denials, e)
}

// lookedUp takes the resolver's events.
func (g *Gateway) lookedUp(l resolver.Event) {
	if l.Answer != "" {
		g.record.mu.Lock()
		g.record.totals.Lookups++
		g.record.mu.Unlock()
	}
	e := Event{Time: l.Time, Kind: "dns", Name: l.Name, Proto: l.Type, Verdict: l.Verdict, Err: l.Err, Duration: l.Duration}
	switch {
	case g.opts.Sinkhole && l.Answer != "REFUSED" && l.Answer != "":
		if len(l.Addrs) > 0 {
			e.To = netip.AddrPortFrom(l.Addrs[0], 0)
		}
		if !l.Cached {
			g.record.allowed(e)
		}
	case !l.Verdict.Allowed:
		if len(l.Addrs) > 0 {
			e.To = netip.AddrPortFrom(l.Addrs[0], 0)
		}
		g.record.refused(e)
	case !l.Cached:
		g.record.allowed(e)
	}
}

// refused takes what the rules in the box's namespace refused.
func (g *Gateway) refused(r netpolicy.Refused) {
	if r.Heard {
		g.datagram(r)
		return
	}
	e := Event{Time: time.Now(), Kind: "connection", To: r.To, Proto: r.Proto, Name: g.pins.anyName(r.To.Addr())}
	e.Verdict = g.opts.Rules.Address(r.To.Addr(), r.To.Port(), r.Proto)
	if e.Name != "" && e.Verdict.Rule == "" {
		e.Verdict = g.opts.Rules.Answer(e.Name, r.To.Addr(), r.To.Port(), r.Proto)
	}
	switch {
	case r.Limit != "":
		e.Verdict = netpolicy.Verdict{Why: r.Limit}
	case e.Verdict.Allowed: // a pin that has run out
		e.Verdict = netpolicy.Verdict{Why: "the name must be looked up again"}
	}
	g.record.refused(e)
}

// carried takes what went over the box's link, unseen by us.
func (g *Gateway) carried(f netpolicy.Flow) {
	e := Event{Time: time.Now(), Kind: "connection", To: f.To, Proto: f.Proto, Sent: f.Sent, Received: f.Received}
	e.Verdict = g.opts.Rules.Address(f.To.Addr(), f.To.Port(), f.Proto)
	if !e.Verdict.Allowed {
		e.Name = g.pins.anyName(f.To.Addr())
		e.Verdict = g.opts.Rules.Name(e.Name, f.To.Port(), f.Proto)
	}
	if f.Again && f.Sent == 0 && f.Received == 0 {
		return
	}
	if !f.Again {
		g.record.mu.Lock()
		g.record.totals.Connections++
		g.record.mu.Unlock()
	}
	g.record.allowed(e)
}

// What names what was tried: "api.example.com", "api.example.com (93.184.215.14:443/tcp)", "93.184.215.14:443/tcp".
func (e Event) What() string {
	to := ""
	switch {
	case e.To.Port() != 0:
		to = fmt.Sprintf("%s/%s", e.To, e.Proto)
	case e.To.IsValid() && e.Kind == "connection":
		to = fmt.Sprintf("%s/%s", e.To.Addr(), e.Proto)
	case e.To.IsValid():
		to = e.To.Addr().String()
	}
	switch {
	case e.Name == "":
		return to
	case to == "":
		return e.Name
	}
	return fmt.Sprintf("%s (%s)", e.Name, to)
}

// Hint is the smallest change of a policy that would allow what was refused; "" where no change would. A rule in it is YAML, to be taken
// over as it stands.
func (e Event) Hint() string {
	v, port := e.Verdict, e.port()
	switch {
	case v.Rule != "":
		return "" // a line says so
	case strings.HasPrefix(v.Why, "network.limits."):
		field, _, _ := strings.Cut(v.Why, ":")
		return "raise " + field
	case port == "":
		return "" // no rule is about it
	case strings.HasPrefix(v.Why, "the floor") && e.To.IsValid():
		return fmt.Sprintf("only a rule that names the address opens it: add {cidrs: [%s], ports: [%s]} to network.egress", e.cidr(), port)
	case v.Why != noRule:
		return ""
	case e.Name != "":
		return fmt.Sprintf("to allow %s:%s add {domains: [%s], ports: [%s]} to network.egress", e.Name, port, e.domain(), port)
	}
	return fmt.Sprintf("look up an allowed name first, or add {cidrs: [%s], ports: [%s]} to network.egress", e.cidr(), port)
}

// port is how a rule says it, "53/udp"; "" is none that a rule could name. A lookup does not say for which it is: most are for 443, as are
// rules without ports.
func (e Event) port() string {
	switch {
	case e.Kind == "dns":
		return "443"
	case e.To.Port() == 0:
		return ""
	case e.Proto == "udp":
		return fmt.Sprintf("%d/udp", e.To.Port())
	}
	return fmt.Sprint(e.To.Port())
}

func (e Event) cidr() string {
	a := e.To.Addr().Unmap().WithZone("")
	p := netip.PrefixFrom(a, a.BitLen()).String()
	if a.Is6() {
		return strconv.Quote(p) // for its colons
	}
	return p
}

func (e Event) domain() string {
	if e.Name[0] <= '9' || !strings.Contains(e.Name, ".") {
		return strconv.Quote(e.Name) // 1.5e3 is a number to YAML, and no may be a boolean
	}
	return e.Name
}

// noRule is netpolicy's word for it.
var noRule = netpolicy.Compile(nil, nil).Lookup("x").Why
