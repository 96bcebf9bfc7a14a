package resolver

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"time"

	"github.com/miekg/dns"
)

// Upstream says who is asked about allowed names. Without servers nobody is, and every lookup fails.
type Upstream struct {
	Servers  []netip.AddrPort
	Timeout  time.Duration // of one try; zero is 2 s, and never more than 5 s
	Attempts int           // rounds through all servers; zero is 2, and never more than 5
}

func (u Upstream) timeout() time.Duration {
	if u.Timeout <= 0 {
		return 2 * time.Second
	}
	return min(u.Timeout, 5*time.Second)
}

func (u Upstream) attempts() int {
	if u.Attempts <= 0 {
		return 2
	}
	return min(u.Attempts, 5)
}

// ask puts a question to one server after the other, beginning with the one that answered last, until one says NOERROR or NXDOMAIN.
func (s *Server) ask(ctx context.Context, name string, qtype uint16) (*dns.Msg, error) {
	servers := s.opts.Upstream.Servers
	if len(servers) == 0 {
		return nil, errors.New("no upstream server is known")
	}
	var last error
	first := int(s.preferred.Load())
	for i := range s.opts.Upstream.attempts() * len(servers) {
		at := (first + i) % len(servers)
		m, err := s.try(ctx, servers[at], name, qtype)
		if err == nil {
			s.preferred.Store(int64(at))
			return m, nil
		}
		var op *net.OpError
		if errors.As(err, &op) {
			err = op.Err // it would name the server once more, and a port of ours that says nothing
		}
		last = fmt.Errorf("upstream %s: %w", servers[at], err)
		if ctx.Err() != nil {
			break
		}
	}
	return nil, last
}

// try asks one server: with EDNS, for its answers need TCP less often, and without where the server knows none (RFC 6891 section 7).
func (s *Server) try(ctx context.Context, server netip.AddrPort, name string, qtype uint16) (*dns.Msg, error) {
	ctx, cancel := context.WithTimeout(ctx, s.opts.Upstream.timeout())
	defer cancel()
	for _, edns := range []bool{true, false} {
		q := question(name, qtype, edns)
		m, err := s.exchange(ctx, "udp", server, q)
		if err == nil && m.Truncated {
			m, err = s.exchange(ctx, "tcp", server, q)
		}
		switch {
		case err != nil:
			return nil, err
		case m.Rcode == dns.RcodeSuccess || m.Rcode == dns.RcodeNameError:
			return m, nil
		case m.Rcode != dns.RcodeFormatError && m.Rcode != dns.RcodeNotImplemented || !edns:
			return nil, fmt.Errorf("it says %s", dns.RcodeToString[m.Rcode])
		}
	}
	return nil, errBadAnswer // not reached: the second round returns
}

// question is all that leaves: a name in normal form and a type, under an ID of ours. Nothing of the box's message is in it, neither
// the case of letters nor EDNS options.
func question(name string, qtype uint16, edns bool) *dns.Msg {
	q := new(dns.Msg)
	q.SetQuestion(name, qtype)
	if edns {
		q.SetEdns0(maxUDP, false)
	}
	return q
}

// exchange sends a question from a socket of its own, so from a random port (RFC 5452 section 9.2), and reads until an answer to it comes.
func (s *Server) exchange(ctx context.Context, network string, server netip.AddrPort, q *dns.Msg) (*dns.Msg, error) {
	wire, err := q.Pack()
	if err != nil {
		return nil, err
	}
	c, err := s.opts.Dial(ctx, network, server.String())
	if err != nil {
		return nil, err
	}
	defer c.Close()
	stop := context.AfterFunc(ctx, func() { c.SetDeadline(time.Unix(1, 0)) })
	defer stop()
	if network == "tcp" {
		return overTCP(c, wire, q)
	}
	return overUDP(c, wire, q)
}

// overUDP takes the first datagram that is an answer to q. Others are ignored, for a forger must not be able to end the wait (RFC 5452
// section 9.1), until there are more than chance brings.
func overUDP(c net.Conn, wire []byte, q *dns.Msg) (*dns.Msg, error) {
	if _, err := c.Write(wire); err != nil {
		return nil, err
	}
	buf := make([]byte, 4096)
	for range 100 {
		n, err := c.Read(buf)
		if err != nil {
			return nil, err
		}
		if m, err := read(buf[:n], q); err == nil {
			return m, nil
		}
	}
	return nil, errBadAnswer
}

func overTCP(c net.Conn, wire []byte, q *dns.Msg) (*dns.Msg, error) {
	if err := writeFrame(c, wire); err != nil {
		return nil, err
	}
	answer, err := readFrame(c, dns.MaxMsgSize)
	if err != nil {
		return nil, err
	}
	return read(answer, q)
}

// read reads an upstream's message. One that is cut off counts as truncated if it says so itself.
func read(wire []byte, q *dns.Msg) (*dns.Msg, error) {
	m := new(dns.Msg)
	if err := m.Unpack(wire); err != nil && !m.Truncated {
		return nil, errBadAnswer
	}
	if err := check(q, m); err != nil {
		return nil, err
	}
	return m, nil
}
