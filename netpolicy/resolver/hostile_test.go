package resolver

import (
	"fmt"
	"net"
	"net/netip"
	"strings"
	"testing"
	"time"

	"github.com/miekg/dns"
)

func TestAForgedAnswerIsNotTaken(t *testing.T) {
	forge := func(change func(*dns.Msg)) func(*dns.Msg, string) [][]byte {
		return func(q *dns.Msg, network string) [][]byte {
			forged := new(dns.Msg).SetReply(q)
			r, _ := dns.NewRR("allowed.example. 60 IN A 6.6.6.6")
			forged.Answer = []dns.RR{r}
			change(forged)
			return append(pack(forged), answers(good)(q, network)...)
		}
	}
	for what, answer := range map[string]func(*dns.Msg, string) [][]byte{
		"wrong ID":        forge(func(m *dns.Msg) { m.Id++ }),
		"wrong name":      forge(func(m *dns.Msg) { m.Question[0].Name = "evil.example." }),
		"wrong type":      forge(func(m *dns.Msg) { m.Question[0].Qtype = dns.TypeAAAA }),
		"wrong class":     forge(func(m *dns.Msg) { m.Question[0].Qclass = dns.ClassCHAOS }),
		"no question":     forge(func(m *dns.Msg) { m.Question = nil }),
		"two questions":   forge(func(m *dns.Msg) { m.Question = append(m.Question, m.Question[0]) }),
		"a query":         forge(func(m *dns.Msg) { m.Response = false }),
		"another opcode":  forge(func(m *dns.Msg) { m.Opcode = dns.OpcodeUpdate }),
		"noise before it": func(q *dns.Msg, n string) [][]byte { return append([][]byte{{1, 2, 3}, {}}, answers(good)(q, n)...) },
		"huge before it": func(q *dns.Msg, n string) [][]byte {
			return append([][]byte{make([]byte, 60000)}, answers(good)(q, n)...)
		},
	} {
		t.Run(what, func(t *testing.T) {
			b := newBox(t, newWorld(t, answer), nil)
			want(t, b.ask(t, "allowed.example", dns.TypeA), "NOERROR 93.184.216.34")
		})
	}
}

func TestAnotherUpstreamIsAsked(t *testing.T) {
	rcode := func(code int) func(*dns.Msg, string) [][]byte {
		return func(q *dns.Msg, _ string) [][]byte { return pack(new(dns.Msg).SetRcode(q, code)) }
	}
	for what, first := range map[string]func(*dns.Msg, string) [][]byte{
		"silent": func(*dns.Msg, string) [][]byte { return nil }, "SERVFAIL": rcode(dns.RcodeServerFailure), "REFUSED": rcode(dns.RcodeRefused),
		"FORMERR": rcode(dns.RcodeFormatError),
		"flooding": func(q *dns.Msg, _ string) (wires [][]byte) {
			for range 200 {
				wires = append(wires, []byte("noise"))
			}
			return wires
		},
	} {
		t.Run(what, func(t *testing.T) {
			bad, second := newWorld(t, first), newWorld(t, answers(good, "a.wild.example. 60 IN A 93.184.216.34"))
			b := newBox(t, second, func(o *Options) {
				o.Upstream.Servers, o.Upstream.Timeout = []netip.AddrPort{bad.addr, second.addr}, 300*time.Millisecond
			})
			want(t, b.ask(t, "allowed.example", dns.TypeA), "NOERROR 93.184.216.34")
			asked := len(bad.questions())
			want(t, b.ask(t, "a.wild.example", dns.TypeA), "NOERROR 93.184.216.34")
			if len(bad.questions()) != asked {
				t.Error("the one that failed is asked first again")
			}
		})
	}
}

func TestAServerWithoutEDNSIsAskedPlainly(t *testing.T) {
	w := newWorld(t, func(q *dns.Msg, n string) [][]byte {
		if q.IsEdns0() != nil {
			return pack(new(dns.Msg).SetRcode(q, dns.RcodeFormatError))
		}
		return answers(good)(q, n)
	})
	want(t, newBox(t, w, nil).ask(t, "allowed.example", dns.TypeA), "NOERROR 93.184.216.34")
}

func TestNoUpstreamAnswers(t *testing.T) {
	gone, err := net.ListenPacket("udp", "127.0.0.1:0")
	fatal(t, err)
	addr := netip.MustParseAddrPort(gone.LocalAddr().String())
	gone.Close()
	silent := newWorld(t, func(*dns.Msg, string) [][]byte { return nil })
	b := newBox(t, nil, func(o *Options) {
		o.Upstream.Servers, o.Upstream.Timeout = []netip.AddrPort{addr, silent.addr}, 200*time.Millisecond
	})
	began := time.Now()
	want(t, b.ask(t, "allowed.example", dns.TypeA), "SERVFAIL")
	if d := time.Since(began); d > 3*time.Second {
		t.Errorf("it took %s", d)
	}
	if e := b.events()[0]; e.Answer != "SERVFAIL" || e.Err != "upstream "+silent.addr.String()+": i/o timeout" {
		t.Errorf("%+v", e)
	}
}

func TestTruncatedAnswersComeOverTCP(t *testing.T) {
	cut := func(q *dns.Msg, network string) [][]byte {
		m := new(dns.Msg).SetReply(q)
		m.Truncated = true
		r, _ := dns.NewRR("allowed.example. 60 IN A 6.6.6.6")
		m.Answer = []dns.RR{r}
		return pack(m)
	}
	w := newWorld(t, func(q *dns.Msg, network string) [][]byte {
		if network == "udp" {
			return cut(q, network)
		}
		return answers(good)(q, network)
	})
	want(t, newBox(t, w, nil).ask(t, "allowed.example", dns.TypeA), "NOERROR 93.184.216.34")

	huge := newWorld(t, func(q *dns.Msg, network string) [][]byte {
		if network == "udp" {
			return cut(q, network)
		}
		records := []string{}
		for i := range 3000 {
			records = append(records, fmt.Sprintf("allowed.example. 60 IN A 93.184.%d.%d", i/250, i%250))
		}
		return answers(records...)(q, network)
	})
	b := newBox(t, huge, nil)
	if m := b.ask(t, "allowed.example", dns.TypeA); len(m.Answer) != 16 || len(b.pinned()) != 16 {
		t.Errorf("%d addresses, %d pins", len(m.Answer), len(b.pinned()))
	}
}

func TestAnAbsentNameIsAbsentForAShortTime(t *testing.T) {
	w := newWorld(t, func(q *dns.Msg, _ string) [][]byte { return pack(new(dns.Msg).SetRcode(q, dns.RcodeNameError)) })
	b := newBox(t, w, nil)
	for range 3 {
		m := b.ask(t, "allowed.example", dns.TypeA)
		want(t, m, "NXDOMAIN")
		if m.Ns[0].Header().Ttl > 5 {
			t.Error(m.Ns)
		}
	}
	if len(w.questions()) != 1 {
		t.Error(w.questions())
	}
}

func TestSecretsInLabelsHaveLittleRoom(t *testing.T) {
	w := newWorld(t, answers())
	b := newBox(t, w, func(o *Options) { o.Limits.WildcardNames, o.Limits.Burst = 10, 1000 })
	label := strings.Repeat("s", 50)
	for below, ok := range map[string]bool{
		"a.b.c.d.e": true, "a.b.c.d.e.f": false, label + "." + label[:49]: true, label + "." + label: false, strings.Repeat("s", 63): true,
	} {
		before := len(w.questions())
		b.ask(t, below+".wild.example", dns.TypeA)
		if asked := len(w.questions()) > before; asked != ok {
			t.Errorf("%s: asked %v", below, asked)
		}
	}
	for i := range 30 {
		for _, qtype := range []uint16{dns.TypeA, dns.TypeAAAA} {
			b.ask(t, fmt.Sprintf("secret%d.wild.example", i), qtype)
		}
	}
	names := map[string]bool{}
	for _, q := range w.questions() {
		names[strings.Fields(q)[0]] = true
	}
	if len(names) != 10 {
		t.Errorf("%d names were asked for", len(names))
	}
	want(t, b.ask(t, "secret0.wild.example", dns.TypeA), "NOERROR") // one of the ten
	want(t, b.ask(t, "secret29.wild.example", dns.TypeA), "NXDOMAIN")
	last := b.events()[len(b.events())-1]
	if last.Verdict.Why != "more than 10 names for *.wild.example" || last.Verdict.Rule != "p:1" {
		t.Errorf("%+v", last)
	}
	before := len(w.questions())
	b.ask(t, "allowed.example", dns.TypeA)
	if len(w.questions()) == before {
		t.Error("a name that the policy spells out has no room either")
	}
}

func TestAFloodIsRefusedAtOnceAndToldOnce(t *testing.T) {
	w := newWorld(t, answers())
	b := newBox(t, w, nil)
	b.clock.add(0)
	refused := 0
	for i := range 400 {
		if m := b.ask(t, fmt.Sprintf("a%d.evil.example", i), dns.TypeA); m.Rcode == dns.RcodeRefused {
			refused++
		}
	}
	if refused != 300 || len(b.events()) != 101 {
		t.Errorf("%d refused, %d events", refused, len(b.events()))
	}
	b.clock.add(2 * time.Second)
	for i := range 101 {
		b.ask(t, fmt.Sprintf("b%d.evil.example", i), dns.TypeA)
	}
	if last := b.events()[len(b.events())-1]; last.Untold != 299 || last.Verdict.Why != "too many lookups" {
		t.Errorf("%+v", last)
	}
}

func TestRepeatedLookupsAreNotTheFlood(t *testing.T) {
	b := newBox(t, newWorld(t, answers(good)), nil)
	b.clock.add(0)
	for range 500 {
		want(t, b.ask(t, "allowed.example", dns.TypeA), "NOERROR 93.184.216.34")
	}
}

func TestLookupsInFlightAreBounded(t *testing.T) {
	release := make(chan struct{})
	w := newWorld(t, func(*dns.Msg, string) [][]byte { <-release; return nil })
	defer close(release)
	b := newBox(t, w, func(o *Options) { o.Limits.Pending, o.Upstream.Timeout = 4, 5*time.Second })
	c, err := net.Dial("udp", b.addr)
	fatal(t, err)
	defer c.Close()
	for i := range 4 {
		c.Write(pack(new(dns.Msg).SetQuestion(fmt.Sprint("a", i, ".wild.example."), dns.TypeA))[0])
	}
	for len(b.pending) < 4 {
		time.Sleep(time.Millisecond)
	}
	for _, network := range []string{"udp", "tcp"} {
		began := time.Now()
		want(t, b.send(t, network, new(dns.Msg).SetQuestion("b.wild.example.", dns.TypeA)), "REFUSED")
		want(t, b.send(t, network, new(dns.Msg).SetQuestion("evil.example.", dns.TypeA)), "NXDOMAIN")
		if d := time.Since(began); d > time.Second {
			t.Errorf("it took %s", d)
		}
	}
}

func TestTCPIsBounded(t *testing.T) {
	b := newBox(t, newWorld(t, answers(good)), func(o *Options) { o.Limits.Connections = 2 })
	dial := func() net.Conn {
		c, err := net.Dial("tcp", b.addr)
		fatal(t, err)
		t.Cleanup(func() { c.Close() })
		c.SetDeadline(time.Now().Add(8 * time.Second))
		return c
	}
	ended := func(c net.Conn) bool {
		_, err := c.Read(make([]byte, 1))
		return err != nil && !strings.Contains(err.Error(), "timeout")
	}
	long := dial()
	long.Write([]byte{0xFF, 0xFF})
	began := time.Now()
	if !ended(long) || time.Since(began) > 2*time.Second {
		t.Error("a message of 65535 bytes is waited for")
	}
	for len(b.connections) > 0 {
		time.Sleep(time.Millisecond)
	}
	slow, good := dial(), dial()
	for len(b.connections) < 2 {
		time.Sleep(time.Millisecond)
	}
	if !ended(dial()) {
		t.Error("a third connection is served")
	}
	q := pack(new(dns.Msg).SetQuestion("allowed.example.", dns.TypeA))[0]
	for range 3 {
		fatal(t, writeFrame(good, q))
		_, err := readFrame(good, 512)
		fatal(t, err)
	}
	if testing.Short() {
		return
	}
	began = time.Now()
	go func() {
		for range 100 { // a byte at a time does not prolong it
			if _, err := slow.Write([]byte{1}); err != nil {
				return
			}
			time.Sleep(time.Second)
		}
	}()
	slow.SetDeadline(time.Now().Add(8 * time.Second))
	for !ended(slow) && time.Since(began) < 8*time.Second {
	}
	if d := time.Since(began); d > 7*time.Second {
		t.Errorf("a slow client was served for %s", d)
	}
}
