package resolver

import (
	"fmt"
	"maps"
	"net"
	"net/netip"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/miekg/dns"

	"skillbox/netpolicy"
	"skillbox/policy"
)

// world is an upstream on loopback that the test answers for, on UDP and TCP of one port.
type world struct {
	addr   netip.AddrPort
	answer func(q *dns.Msg, network string) [][]byte

	mu    sync.Mutex
	asked []string
	wires [][]byte
	ports map[string]bool
}

// sockets are of one port, which may be free for the one protocol and taken for the other.
func sockets(t testing.TB) (u net.PacketConn, l net.Listener) {
	for range 50 {
		var err error
		l, err = net.Listen("tcp", "127.0.0.1:0")
		fatal(t, err)
		if u, err = net.ListenPacket("udp", l.Addr().String()); err == nil {
			return u, l
		}
		l.Close()
	}
	t.Fatal("no port is free for UDP and TCP")
	return nil, nil
}

func newWorld(t testing.TB, answer func(q *dns.Msg, network string) [][]byte) *world {
	u, l := sockets(t)
	w := &world{addr: netip.MustParseAddrPort(u.LocalAddr().String()), answer: answer, ports: map[string]bool{}}
	var wg sync.WaitGroup
	wg.Go(func() {
		buf := make([]byte, 4096)
		for {
			n, from, err := u.ReadFrom(buf)
			if err != nil {
				return
			}
			for _, m := range w.reply(slices.Clone(buf[:n]), "udp", from.String()) {
				u.WriteTo(m, from)
			}
		}
	})
	wg.Go(func() {
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			c.SetDeadline(time.Now().Add(5 * time.Second))
			if wire, err := readFrame(c, 65535); err == nil {
				for _, m := range w.reply(wire, "tcp", c.RemoteAddr().String()) {
					writeFrame(c, m)
				}
			}
			c.Close()
		}
	})
	t.Cleanup(func() { u.Close(); l.Close(); wg.Wait() })
	return w
}

func (w *world) reply(wire []byte, network, from string) [][]byte {
	q := new(dns.Msg)
	if q.Unpack(wire) != nil || len(q.Question) != 1 {
		return nil
	}
	w.mu.Lock()
	w.asked = append(w.asked, fmt.Sprintf("%s %s", q.Question[0].Name, dns.Type(q.Question[0].Qtype)))
	w.wires = append(w.wires, wire)
	w.ports[from] = true
	answer := w.answer
	w.mu.Unlock()
	return answer(q, network)
}

// sent are the messages that came, and the sources that they came from.
func (w *world) sent() (wires [][]byte, from map[string]bool) {
	w.mu.Lock()
	defer w.mu.Unlock()
	return slices.Clone(w.wires), maps.Clone(w.ports)
}

func (w *world) questions() []string {
	w.mu.Lock()
	defer w.mu.Unlock()
	return slices.Clone(w.asked)
}

// zone answers with the records of a master file whose owner and type are asked for, and the CNAMEs on the way.
func zone(records ...string) func(*dns.Msg, string) [][]byte {
	return func(q *dns.Msg, _ string) [][]byte {
		m := new(dns.Msg).SetReply(q)
		for name, again := q.Question[0].Name, true; again; {
			again = false
			for _, text := range records {
				r, err := dns.NewRR(text)
				if err != nil {
					return nil
				}
				if h := r.Header(); h.Name == name && h.Rrtype == q.Question[0].Qtype {
					m.Answer = append(m.Answer, r)
				} else if c, ok := r.(*dns.CNAME); ok && h.Name == name && len(m.Answer) < 50 {
					m.Answer = append(m.Answer, r)
					name, again = c.Target, true
				}
			}
		}
		return pack(m)
	}
}

// answers gives the same records to whatever is asked.
func answers(records ...string) func(*dns.Msg, string) [][]byte {
	return func(q *dns.Msg, _ string) [][]byte {
		m := new(dns.Msg).SetReply(q)
		for _, text := range records {
			r, err := dns.NewRR(text)
			if err != nil {
				return nil
			}
			m.Answer = append(m.Answer, r)
		}
		return pack(m)
	}
}

func pack(list ...*dns.Msg) (wires [][]byte) {
	for _, m := range list {
		m.Compress = true
		if wire, err := m.Pack(); err == nil {
			wires = append(wires, wire)
		}
	}
	return wires
}

// box is a resolver under test, and all that it told.
type box struct {
	*Server
	clock
	addr string
	mu   sync.Mutex
	told []Event
	pins []string
}

func rules() *netpolicy.Ruleset {
	https := []netpolicy.Ports{{From: 443, To: 443, Proto: "tcp"}}
	return netpolicy.Compile([]netpolicy.Rule{
		{Domains: []string{"allowed.example", "*.wild.example"}, Ports: https, Line: "p:1"},
		{CIDRs: []netip.Prefix{netip.MustParsePrefix("10.5.0.0/16")}, Ports: https, Line: "p:2"},
	}, []netpolicy.Rule{{Domains: []string{"denied.wild.example"}, Line: "p:3"}})
}

func newBox(t testing.TB, w *world, change func(*Options)) *box {
	b := &box{}
	o := Options{Rules: rules(), Normalize: policy.NormalizeName, Upstream: Upstream{Timeout: 5 * time.Second, Attempts: 1}}
	if w != nil {
		o.Upstream.Servers = []netip.AddrPort{w.addr}
	}
	o.Event = func(e Event) {
		b.mu.Lock()
		defer b.mu.Unlock()
		b.told = append(b.told, e)
	}
	o.Pin = func(name string, addr netip.Addr, ports []netpolicy.Ports, ttl time.Duration) error {
		b.mu.Lock()
		defer b.mu.Unlock()
		b.pins = append(b.pins, fmt.Sprint(name, " ", addr, " ", ports, " ", ttl))
		return nil
	}
	if change != nil {
		change(&o)
	}
	b.Server = New(o)
	b.Server.now = b.clock.now
	u, l := sockets(t)
	b.addr = u.LocalAddr().String()
	var wg sync.WaitGroup
	wg.Go(func() {
		if err := b.ServeUDP(u); err != nil {
			t.Error(err)
		}
	})
	wg.Go(func() {
		if err := b.ServeTCP(l); err != nil {
			t.Error(err)
		}
	})
	t.Cleanup(func() {
		if err := b.Close(); err != nil {
			t.Error(err)
		}
		wg.Wait()
	})
	return b
}

// clock is the time, until a test stops it.
type clock struct {
	mu      sync.Mutex
	stopped time.Time
}

func (c *clock) now() time.Time {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.stopped.IsZero() {
		return time.Now()
	}
	return c.stopped
}

// add stops the clock, at so much later.
func (c *clock) add(d time.Duration) {
	now := c.now()
	c.mu.Lock()
	defer c.mu.Unlock()
	c.stopped = now.Add(d)
}

func (b *box) pinned() []string {
	b.mu.Lock()
	defer b.mu.Unlock()
	return slices.Clone(b.pins)
}

func (b *box) events() []Event {
	b.mu.Lock()
	defer b.mu.Unlock()
	return slices.Clone(b.told)
}

// ask is what a skill does.
func (b *box) ask(t testing.TB, name string, qtype uint16) *dns.Msg {
	return b.send(t, "udp", new(dns.Msg).SetQuestion(dns.Fqdn(name), qtype))
}

func (b *box) send(t testing.TB, network string, q *dns.Msg) *dns.Msg {
	t.Helper()
	m, _, err := (&dns.Client{Net: network, Timeout: 5 * time.Second}).Exchange(q, b.addr)
	fatal(t, err)
	return m
}

// text is an answer for reading: the code and the addresses.
func text(m *dns.Msg) string {
	s := dns.RcodeToString[m.Rcode]
	for _, r := range m.Answer {
		if a, ok := address(r, r.Header().Rrtype); ok && r.Header().Name == m.Question[0].Name {
			s += " " + a.String()
		} else {
			s += " and " + r.String()
		}
	}
	return s
}

func want(t testing.TB, m *dns.Msg, is string) {
	t.Helper()
	if text(m) != is {
		t.Errorf("%s: %q, want %q", m.Question[0].Name, text(m), is)
	}
}

func fatal(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}
