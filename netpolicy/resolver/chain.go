package resolver

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"strings"

	"github.com/miekg/dns"
)

// maxChain is the number of CNAME records between a name and its addresses.
const maxChain = 8

// found is what the world says of a name: NOERROR or NXDOMAIN, addresses, and the least time to live on the way to them.
type found struct {
	rcode int
	addrs []netip.Addr
	ttl   uint32
}

// chase asks for a name, and again where a chain of CNAMEs leaves the answer. The targets are not decided on: the asked name
// stands for whatever its owner says, as far as the addresses are allowed.
func (s *Server) chase(ctx context.Context, k key) (found, error) {
	f := found{ttl: uint32(maxTTL.Seconds())}
	name := dns.Fqdn(k.name)
	for links := 0; ; {
		m, err := s.ask(ctx, name, k.qtype)
		if err != nil {
			return f, err
		}
		end, addrs, ttl, n := follow(m.Answer, name, k.qtype, maxChain-links)
		links += n
		f.rcode, f.ttl = m.Rcode, min(f.ttl, ttl)
		switch {
		case n < 0:
			return f, errTooLong
		case len(addrs) > 0:
			f.rcode, f.addrs = dns.RcodeSuccess, addrs
			return f, nil
		case n == 0 || m.Rcode == dns.RcodeNameError || said(m):
			return f, nil
		}
		name = end
	}
}

var errTooLong = fmt.Errorf("a chain of more than %d CNAME records", maxChain)

// follow goes from a name along an answer's CNAMEs, in whatever order they stand, to the addresses at the end. Records that the chain
// does not lead to are as if they were not there. links is the length of the chain, negative if it is longer than most.
func follow(answer []dns.RR, name string, qtype uint16, most int) (end string, addrs []netip.Addr, ttl uint32, links int) {
	end, ttl = dns.CanonicalName(name), ^uint32(0)
	answer = answer[:min(len(answer), maxRecords)]
	for {
		var next string
		for _, r := range answer {
			h := r.Header()
			if h.Class != dns.ClassINET || dns.CanonicalName(h.Name) != end {
				continue
			}
			if a, ok := address(r, qtype); ok {
				addrs = append(addrs, a)
				ttl = min(ttl, h.Ttl)
			}
			if c, ok := r.(*dns.CNAME); ok && next == "" {
				next = dns.CanonicalName(c.Target)
				ttl = min(ttl, h.Ttl)
			}
		}
		if len(addrs) > 0 || next == "" {
			return end, addrs, ttl, links
		}
		if links++; links > most {
			return end, nil, 0, -1
		}
		end = next
	}
}

// address is the address in a record of the asked type.
func address(r dns.RR, qtype uint16) (netip.Addr, bool) {
	switch r := r.(type) {
	case *dns.A:
		a, ok := netip.AddrFromSlice(r.A.To4())
		return a, ok && qtype == dns.TypeA
	case *dns.AAAA:
		a, ok := netip.AddrFromSlice(r.AAAA)
		return a, ok && qtype == dns.TypeAAAA && a.Is6()
	}
	return netip.Addr{}, false
}

// said tells that an answer without addresses is complete: it names the zone in which there are none (RFC 2308 section 2.2).
func said(m *dns.Msg) bool {
	for _, r := range m.Ns {
		if r.Header().Rrtype == dns.TypeSOA {
			return true
		}
	}
	return false
}

// errBadAnswer is what an upstream says that no other question could have had.
var errBadAnswer = errors.New("not an answer to the question")

// check accepts an upstream's message as the answer to a query: same ID, same question, nothing else would be safe to believe.
func check(query, m *dns.Msg) error {
	if !m.Response || m.Id != query.Id || m.Opcode != dns.OpcodeQuery || len(m.Question) != 1 {
		return errBadAnswer
	}
	asked, said := query.Question[0], m.Question[0]
	if said.Qtype != asked.Qtype || said.Qclass != asked.Qclass || !strings.EqualFold(said.Name, asked.Name) {
		return errBadAnswer
	}
	return nil
}
