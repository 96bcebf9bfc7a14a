package resolver

import (
	"context"
	"fmt"
	"net/netip"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/miekg/dns"

	"skillbox/netpolicy"
)

const (
	minTTL, maxTTL = 5 * time.Second, 300 * time.Second
	// negativeTTL is how long a refusal or an absence is kept, in the box and here.
	negativeTTL = minTTL
	maxAddrs    = 16
	// maxRecords are looked at in one answer: enough for any real one, little to decide on.
	maxRecords = 64
	// budget is the time for a lookup with all its upstreams and its chain. The box's own resolver gave up by then.
	budget = 10 * time.Second
)

// lookup is a query that is allowed and that no cache answers.
type lookup struct {
	q     *dns.Msg
	event Event
	key   key
}

// key is a question: a normal name and A or AAAA.
type key struct {
	name  string
	qtype uint16
}

// begin decides on a query. It has a reply at once, or a lookup to finish, or neither for what is to be ignored.
func (s *Server) begin(wire []byte) (*reply, *lookup) {
	e := Event{Time: s.now()}
	if !s.every.take(e.Time) {
		s.flood(e)
		return nil, nil
	}
	q, rcode, why := parse(wire)
	if q == nil {
		return nil, nil
	}
	if len(q.Question) == 1 {
		e.Name, e.Type = show(q.Question[0].Name), dns.Type(q.Question[0].Qtype).String()
	}
	if rcode == dns.RcodeSuccess {
		return s.decide(q, e)
	}
	if !s.unknown.take(e.Time) {
		return s.flooded(q, e), nil
	}
	e.Verdict.Why = "the query is refused: " + why
	return s.refuse(q, e, rcode), nil
}

// decide is begin for a well-formed query: the name first.
func (s *Server) decide(q *dns.Msg, e Event) (*reply, *lookup) {
	if s.opts.Sink != nil {
		return s.sink(q, e), nil
	}
	name, err := s.normal(q.Question[0].Name)
	if err != nil {
		e.Verdict.Why = "not a name: " + err.Error()
	} else {
		e.Name, e.Verdict = name, s.opts.Rules.Lookup(name)
	}
	k := key{name, q.Question[0].Qtype}
	address := k.qtype == dns.TypeA || k.qtype == dns.TypeAAAA
	if e.Verdict.Allowed && address {
		if r, ok := s.cache.get(k, e.Time); ok {
			e.Cached = true
			return s.replyWith(q, e, r), nil
		}
	}
	if !s.unknown.take(e.Time) {
		return s.flooded(q, e), nil
	}
	if !e.Verdict.Allowed {
		return s.refuse(q, e, dns.RcodeNameError), nil
	}
	if !address {
		// What such a record says could name other hosts and ports, or carry data; that there is none is always a valid answer.
		return s.replyWith(q, e, result{expires: e.Time.Add(negativeTTL)}), nil
	}
	if why := s.names.admit(name, s.opts.Rules.Wildcard(name)); why != "" {
		e.Verdict.Why = why
		return s.refuse(q, e, dns.RcodeNameError), nil
	}
	return nil, &lookup{q, e, k}
}

// normal makes the normal name of one in presentation form. Whatever else a normaliser maps, the asked name must already be that, but for
// case: what reads as one name here and as another elsewhere is refused.
func (s *Server) normal(asked string) (string, error) {
	name, err := s.opts.Normalize(asked)
	if err != nil {
		return "", err
	}
	if !strings.EqualFold(name, strings.TrimSuffix(asked, ".")) {
		return "", fmt.Errorf("%s is another spelling of %s", show(asked), name)
	}
	return name, nil
}

// refuse answers at once, without anybody being asked. Names are refused with NXDOMAIN: a program gives up then, and does not try
// again as after SERVFAIL.
func (s *Server) refuse(q *dns.Msg, e Event, rcode int) *reply {
	e.Verdict.Allowed = false
	e.Answer = dns.RcodeToString[rcode]
	s.tell(e)
	if rcode == dns.RcodeNameError {
		return empty(q, rcode, seconds(negativeTTL))
	}
	return answerTo(q, rcode)
}

// flooded answers a query over the rate; REFUSED is not kept by the asker, and comes at once.
func (s *Server) flooded(q *dns.Msg, e Event) *reply {
	s.flood(e)
	return answerTo(q, dns.RcodeRefused)
}

// flood tells of queries over a rate once a second: a record of each would be the next flood.
func (s *Server) flood(e Event) {
	untold, tell := s.floods.add(e.Time)
	if !tell {
		return
	}
	e.Verdict = netpolicy.Verdict{Why: "too many lookups"}
	e.Answer, e.Untold = "REFUSED", untold
	s.tell(e)
}

// busy refuses a lookup because too many wait for an upstream.
func (s *Server) busy(l *lookup) *reply { return s.flooded(l.q, l.event) }

// finish asks upstream, or joins who does.
func (s *Server) finish(l *lookup) *reply {
	r := s.flights.do(l.key, func() result {
		if r, ok := s.cache.get(l.key, s.now()); ok {
			return r // another flight landed between begin and here
		}
		return s.resolve(l.key)
	})
	return s.replyWith(l.q, l.event, r)
}

// replyWith makes the reply of a result, and the event.
func (s *Server) replyWith(q *dns.Msg, e Event, r result) *reply {
	left := seconds(r.expires.Sub(s.now()))
	e.Addrs, e.Err = slices.Clone(r.addrs), r.err
	defer func() { s.tell(e) }()
	switch {
	case r.rcode == dns.RcodeServerFailure:
		e.Answer = "SERVFAIL"
		return answerTo(q, r.rcode)
	case r.rcode == dns.RcodeNameError:
		e.Answer = "NXDOMAIN"
		return empty(q, r.rcode, left)
	case len(r.addrs) == 0:
		e.Answer = "NODATA"
		return empty(q, r.rcode, left)
	}
	e.Answer = "NOERROR"
	return addresses(q, r.addrs, left)
}

// resolve asks for an allowed name, drops what it may not stand for and pins the rest.
func (s *Server) resolve(k key) result {
	ctx, cancel := context.WithTimeout(s.ctx, budget)
	defer cancel()
	f, err := s.chase(ctx, k)
	if err != nil {
		return result{rcode: dns.RcodeServerFailure, err: err.Error()}
	}
	ttl := min(max(time.Duration(f.ttl)*time.Second, minTTL), maxTTL)
	expires := s.now().Add(ttl) // before the pins', which begin now
	addrs, err := s.pin(k, f.addrs, ttl)
	if err != nil {
		return result{rcode: dns.RcodeServerFailure, err: err.Error()}
	}
	r := result{rcode: f.rcode, addrs: addrs, expires: expires}
	if len(addrs) == 0 {
		r.expires = s.now().Add(negativeTTL)
		if len(f.addrs) > 0 {
			r.err = "no address that the name may stand for"
		}
	}
	s.cache.put(k, r, s.now())
	return r
}

// pin keeps the addresses that the name may stand for, and opens each. An error is that none of them could be opened.
func (s *Server) pin(k key, found []netip.Addr, ttl time.Duration) (kept []netip.Addr, err error) {
	dropped := map[netpolicy.Verdict][]netip.Addr{}
	for _, a := range found {
		if len(kept) == maxAddrs || slices.Contains(kept, a) {
			continue
		}
		ports, refusal := s.opts.Rules.Open(k.name, a)
		if a.Is4In6() { // RFC 4291 section 2.5.5.2 is about sockets: no name has one, and a program would connect with IPv4
			ports, refusal = nil, netpolicy.Verdict{Why: "an IPv4 address as an IPv6 one"}
		}
		if len(ports) == 0 {
			dropped[refusal] = append(dropped[refusal], a)
		} else if e := s.opts.Pin(k.name, a, ports, ttl); e != nil {
			err = fmt.Errorf("open %s for %s: %w", a, k.name, e)
			why := netpolicy.Verdict{Why: "not opened: " + e.Error()}
			dropped[why] = append(dropped[why], a)
		} else {
			kept = append(kept, a)
		}
	}
	for v, addrs := range dropped {
		s.tell(Event{Time: s.now(), Name: k.name, Type: dns.Type(k.qtype).String(), Verdict: v, Addrs: addrs})
	}
	if len(kept) > 0 {
		return kept, nil
	}
	return nil, err
}

func (s *Server) tell(e Event) {
	e.Duration = s.now().Sub(e.Time)
	s.opts.Event(e)
}

// seconds rounds up: what a cache still holds is not zero for the asker.
func seconds(d time.Duration) uint32 {
	return uint32(max(1, (d+time.Second-1)/time.Second))
}

// show quotes what a skill wrote in place of a name, for a log.
func show(s string) string {
	if len(s) > 80 {
		s = s[:80] + "…"
	}
	return strconv.QuoteToASCII(s)
}
