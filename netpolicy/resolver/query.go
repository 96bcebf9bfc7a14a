package resolver

import (
	"encoding/binary"
	"net/netip"

	"github.com/miekg/dns"
)

// reply is an answer to the box, and how long it may be as a datagram.
type reply struct {
	msg     *dns.Msg
	udpSize int
}

// parse reads a query: one question, class IN, opcode QUERY, no records but those of EDNS. Anything else has an rcode and a reason;
// q is then what can be answered to. nil is to be ignored: it is no query, and answering an answer would make a loop.
func parse(wire []byte) (q *dns.Msg, rcode int, why string) {
	if len(wire) < 12 || wire[2]&0x80 != 0 {
		return nil, 0, ""
	}
	bits := binary.BigEndian.Uint16(wire[2:])
	q = &dns.Msg{MsgHdr: dns.MsgHdr{Id: binary.BigEndian.Uint16(wire), Opcode: int(bits >> 11 & 15), RecursionDesired: bits>>8&1 != 0}}
	count := func(i int) uint16 { return binary.BigEndian.Uint16(wire[i:]) }
	switch {
	case q.Opcode != dns.OpcodeQuery:
		return q, dns.RcodeNotImplemented, "the operation is not QUERY"
	case count(4) != 1:
		return q, dns.RcodeFormatError, "it has not one question" // RFC 9619: more were never defined
	case count(6) != 0 || count(8) != 0 || count(10) > 2 || len(wire) > maxQuery:
		return q, dns.RcodeFormatError, "it has more than a question"
	}
	full := new(dns.Msg)
	if full.Unpack(wire) != nil || len(full.Question) != 1 {
		return q, dns.RcodeFormatError, "it is malformed"
	}
	opts := 0
	for _, r := range full.Extra {
		if r.Header().Rrtype == dns.TypeOPT {
			opts++
		}
	}
	switch opt := full.IsEdns0(); {
	case opts > 1: // RFC 6891 section 6.1.1
		return q, dns.RcodeFormatError, "it has two OPT records"
	case opt != nil && opt.Version() != 0:
		return full, dns.RcodeBadVers, "its version of EDNS is unknown"
	case full.Question[0].Qclass != dns.ClassINET:
		return full, dns.RcodeRefused, "its class is not IN"
	}
	return full, dns.RcodeSuccess, ""
}

// answerTo makes a reply. EDNS is answered with EDNS, and no option of it: none is understood (RFC 6891 section 6.1.1).
func answerTo(q *dns.Msg, rcode int) *reply {
	r := &reply{new(dns.Msg), dns.MinMsgSize}
	r.msg.MsgHdr = dns.MsgHdr{
		Id: q.Id, Response: true, Opcode: q.Opcode, RecursionDesired: q.RecursionDesired, CheckingDisabled: q.CheckingDisabled,
		RecursionAvailable: true, Rcode: rcode,
	}
	r.msg.Question = q.Question
	r.msg.Compress = true
	if opt := q.IsEdns0(); opt != nil {
		r.udpSize = min(max(int(opt.UDPSize()), dns.MinMsgSize), maxUDP)
		r.msg.SetEdns0(maxUDP, false)
	}
	return r
}

// empty makes a reply without addresses: NXDOMAIN, or NODATA, which is NOERROR. Its SOA record lets the asker keep it for ttl seconds
// (RFC 2308 sections 3 and 5). The zone is the asked name itself, so that nothing is said about any other name.
func empty(q *dns.Msg, rcode int, ttl uint32) *reply {
	r := answerTo(q, rcode)
	r.msg.Ns = []dns.RR{&dns.SOA{
		Hdr: dns.RR_Header{Name: q.Question[0].Name, Rrtype: dns.TypeSOA, Class: dns.ClassINET, Ttl: ttl},
		Ns:  "ns.invalid.", Mbox: "nobody.invalid.", Serial: 1, Refresh: 3600, Retry: 600, Expire: 86400, Minttl: ttl,
	}}
	return r
}

// addresses makes a reply that holds the asked name with addresses of the asked type, and no chain by which they were found.
func addresses(q *dns.Msg, addrs []netip.Addr, ttl uint32) *reply {
	r := answerTo(q, dns.RcodeSuccess)
	for _, a := range addrs {
		h := dns.RR_Header{Name: q.Question[0].Name, Rrtype: q.Question[0].Qtype, Class: dns.ClassINET, Ttl: ttl}
		if a.Is4() {
			r.msg.Answer = append(r.msg.Answer, &dns.A{Hdr: h, A: a.AsSlice()})
		} else {
			r.msg.Answer = append(r.msg.Answer, &dns.AAAA{Hdr: h, AAAA: a.AsSlice()})
		}
	}
	return r
}
