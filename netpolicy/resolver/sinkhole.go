package resolver

import (
	"net/netip"
	"strings"

	"github.com/miekg/dns"
)

// sink answers every name without anybody being asked: with its address of the asked type, and of any other type with nothing. The event
// says what the rules would have said. What is no name to them has an address all the same: a program must go on to show what it does.
func (s *Server) sink(q *dns.Msg, e Event) *reply {
	asked := q.Question[0]
	k := key{strings.TrimSuffix(strings.ToLower(asked.Name), "."), asked.Qtype}
	if name, err := s.normal(asked.Name); err != nil {
		e.Verdict.Why = "not a name: " + err.Error()
	} else {
		k.name, e.Verdict = name, s.opts.Rules.Lookup(name)
		if why := s.names.admit(name, s.opts.Rules.Wildcard(name)); why != "" {
			e.Verdict.Allowed, e.Verdict.Why = false, why
		}
	}
	e.Name = k.name
	r, again := s.cache.get(k, e.Time)
	if e.Cached = again; !again {
		r.expires = e.Time.Add(maxTTL)
		if k.name != "" && (k.qtype == dns.TypeA || k.qtype == dns.TypeAAAA) {
			if a := s.opts.Sink(k.name, k.qtype == dns.TypeAAAA); a.IsValid() {
				r.addrs = []netip.Addr{a}
			}
		}
		s.cache.put(k, r, e.Time)
	}
	return s.replyWith(q, e, r)
}
