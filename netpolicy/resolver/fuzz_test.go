package resolver

import (
	"context"
	"encoding/binary"
	"errors"
	"net"
	"net/netip"
	"slices"
	"testing"
	"time"

	"github.com/miekg/dns"

	"skillbox/netpolicy"
	"skillbox/policy"
)

// FuzzQuery: whatever a skill sends, only allowed names are asked for, in normal form, and every reply can be read.
func FuzzQuery(f *testing.F) {
	for _, name := range []string{"allowed.example.", "x.wild.example.", "evil.example.", `a\000.wild.example.`, "."} {
		for _, qtype := range []uint16{dns.TypeA, dns.TypeANY} {
			f.Add(pack(new(dns.Msg).SetQuestion(name, qtype).SetEdns0(1232, true))[0])
		}
	}
	f.Add(make([]byte, 12))
	r := rules()
	f.Fuzz(func(t *testing.T, wire []byte) {
		var asked []*dns.Msg
		s := New(Options{
			Rules: r, Normalize: policy.NormalizeName, Upstream: Upstream{Servers: []netip.AddrPort{netip.MustParseAddrPort("127.0.0.1:53")}, Attempts: 1},
			Pin:  func(string, netip.Addr, []netpolicy.Ports, time.Duration) error { return nil },
			Dial: func(context.Context, string, string) (net.Conn, error) { return &script{asked: &asked, tail: nil}, nil },
		})
		defer s.Close()
		reply, l := s.begin(wire)
		if l != nil {
			reply = s.finish(l)
		}
		for _, q := range asked {
			name := q.Question[0].Name
			normal, err := policy.NormalizeName(name)
			if err != nil || normal+"." != name || !r.Lookup(normal).Allowed || len(q.Extra) > 1 {
				t.Fatalf("asked for %v", q)
			}
		}
		if reply == nil {
			return
		}
		reply.msg.Truncate(reply.udpSize)
		out, err := reply.msg.Pack()
		if err != nil || len(out) > maxUDP || new(dns.Msg).Unpack(out) != nil || binary.BigEndian.Uint16(out) != binary.BigEndian.Uint16(wire) {
			t.Fatalf("%v\n%v", err, reply.msg)
		}
	})
}

// FuzzAnswer: whatever an upstream sends, the box learns nothing but addresses of the asked name that it may reach, and each is pinned.
func FuzzAnswer(f *testing.F) {
	q := new(dns.Msg).SetQuestion("allowed.example.", dns.TypeA)
	for _, a := range []func(*dns.Msg, string) [][]byte{
		answers(good), answers("allowed.example. 60 IN CNAME b.example.", "b.example. 60 IN A 127.0.0.1"), answers("allowed.example. 60 IN CNAME b.example."),
		answers("allowed.example. 60 IN AAAA ::1", "allowed.example. 60 IN AAAA 2606:2800::1"),
	} {
		for _, qtype := range []uint16{dns.TypeA, dns.TypeAAAA} {
			q.Question[0].Qtype = qtype
			f.Add(a(q, "")[0][2:], qtype == dns.TypeA)
		}
	}
	f.Fuzz(func(t *testing.T, tail []byte, four bool) {
		pinned, asked := map[netip.Addr]bool{}, []*dns.Msg{}
		s := New(Options{
			Rules: rules(), Normalize: policy.NormalizeName, Upstream: Upstream{Servers: []netip.AddrPort{netip.MustParseAddrPort("127.0.0.1:53")}, Attempts: 1},
			Pin: func(_ string, a netip.Addr, _ []netpolicy.Ports, _ time.Duration) error { pinned[a] = true; return nil },
			Dial: func(context.Context, string, string) (net.Conn, error) {
				return &script{asked: &asked, tail: tail}, nil
			},
		})
		defer s.Close()
		qtype := uint16(dns.TypeA)
		if !four {
			qtype = dns.TypeAAAA
		}
		_, l := s.begin(pack(new(dns.Msg).SetQuestion("allowed.example.", qtype))[0])
		m := s.finish(l).msg
		if len(m.Answer) > maxAddrs || len(asked) > 4*(maxChain+1) {
			t.Fatalf("%d addresses, %d questions", len(m.Answer), len(asked))
		}
		for _, r := range m.Answer {
			a, ok := address(r, qtype)
			if ports, _ := rules().Open("allowed.example", a); !ok || !pinned[a] || len(ports) == 0 || r.Header().Name != "allowed.example." {
				t.Fatal(r)
			}
			if ttl := r.Header().Ttl; ttl < 1 || ttl > 300 {
				t.Fatal(r)
			}
		}
	})
}

// script is a connection to an upstream that answers a question with its ID and a tail, once.
type script struct {
	net.Conn
	asked *[]*dns.Msg
	tail  []byte
	reply []byte
	tcp   bool
}

func (c *script) Write(b []byte) (int, error) {
	wire := b
	if len(b) > 2 && int(binary.BigEndian.Uint16(b)) == len(b)-2 {
		wire, c.tcp = b[2:], true
	}
	q := new(dns.Msg)
	if q.Unpack(wire) != nil {
		return 0, errors.New("the question cannot be read")
	}
	*c.asked = append(*c.asked, q)
	c.reply = slices.Concat(wire[:2], c.tail)
	if c.tcp {
		c.reply = slices.Concat(binary.BigEndian.AppendUint16(nil, uint16(len(c.reply))), c.reply)
	}
	return len(b), nil
}

func (c *script) Read(b []byte) (int, error) {
	if len(c.reply) == 0 {
		return 0, net.ErrClosed
	}
	n := copy(b, c.reply)
	c.reply = c.reply[n:]
	if !c.tcp {
		c.reply = nil
	}
	return n, nil
}

func (c *script) SetDeadline(time.Time) error { return nil }
func (c *script) Close() error                { return nil }
