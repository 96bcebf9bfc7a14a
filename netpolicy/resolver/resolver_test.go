package resolver

import (
	"errors"
	"fmt"
	"io"
	"net"
	"net/netip"
	"runtime"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/miekg/dns"

	"skillbox/netpolicy"
	"skillbox/policy"
)

const good = "allowed.example. 60 IN A 93.184.216.34"

func TestAnAllowedNameIsAnsweredAndPinned(t *testing.T) {
	w := newWorld(t, zone(good, "allowed.example. 60 IN AAAA 2606:2800:220:1::1"))
	b := newBox(t, w, nil)
	for _, network := range []string{"udp", "tcp"} {
		want(t, b.send(t, network, new(dns.Msg).SetQuestion("allowed.example.", dns.TypeA)), "NOERROR 93.184.216.34")
	}
	want(t, b.ask(t, "AlLoWeD.example", dns.TypeAAAA), "NOERROR 2606:2800:220:1::1")
	if got := fmt.Sprint(b.pinned()); got != "[allowed.example 93.184.216.34 [443] 1m0s allowed.example 2606:2800:220:1::1 [443] 1m0s]" {
		t.Error(got)
	}
	e := b.events()[0]
	if e.Name != "allowed.example" || e.Type != "A" || e.Verdict.Rule != "p:1" || !e.Verdict.Allowed || e.Answer != "NOERROR" || e.Duration <= 0 || len(e.Addrs) != 1 {
		t.Errorf("%+v", e)
	}
	if !b.events()[1].Cached {
		t.Error("the second lookup was not answered from the cache")
	}
}

func TestARefusedNameIsNeverForwarded(t *testing.T) {
	w := newWorld(t, answers("x. 60 IN A 93.184.216.34"))
	b := newBox(t, w, nil)
	for _, name := range []string{
		"evil.example", "allowed.example.evil.com", "notallowed.example", "wild.example", "denied.wild.example", "a_b.wild.example", ".", "*.wild.example",
		`evil\000.wild.example`, `a\.wild.example`, `\097b@.wild.example`, "2130706433", "127.0.0.1", "-a.wild.example", `b\195\188cher.wild.example`,
	} {
		for _, qtype := range []uint16{dns.TypeA, dns.TypeAAAA, dns.TypeTXT, dns.TypeANY} {
			m := b.ask(t, name, qtype)
			want(t, m, "NXDOMAIN")
			if len(m.Ns) != 1 || m.Ns[0].(*dns.SOA).Minttl != 5 {
				t.Errorf("%s: no SOA for a short time: %v", name, m.Ns)
			}
		}
	}
	if len(w.questions()) != 0 {
		t.Error(w.questions())
	}
	for _, e := range b.events() {
		if e.Verdict.Allowed || e.Verdict.Why == "" || e.Answer != "NXDOMAIN" || e.Type == "" {
			t.Errorf("%+v", e)
		}
	}
}

func TestANameIsNotAnotherSpellingOfAnAllowedOne(t *testing.T) {
	w := newWorld(t, answers(good))
	b := newBox(t, w, func(o *Options) { o.Normalize = func(string) (string, error) { return "allowed.example", nil } })
	want(t, b.ask(t, "all0wed.example", dns.TypeA), "NXDOMAIN")
	want(t, b.ask(t, "ALLOWED.example", dns.TypeA), "NOERROR 93.184.216.34")
}

func TestOtherTypesOfAnAllowedNameAreAbsent(t *testing.T) {
	w := newWorld(t, zone(good))
	b := newBox(t, w, nil)
	for _, qtype := range []uint16{dns.TypeTXT, dns.TypeHTTPS, dns.TypeSVCB, dns.TypeCNAME, dns.TypeMX, dns.TypeANY, dns.TypeNULL, dns.TypeAXFR, dns.TypeNS, 65280} {
		m := b.ask(t, "allowed.example", qtype)
		want(t, m, "NOERROR")
		if len(m.Ns) != 1 {
			t.Errorf("%d: no SOA", qtype)
		}
	}
	if len(w.questions()) != 0 {
		t.Error(w.questions())
	}
}

func TestOddQueriesAreRefused(t *testing.T) {
	w := newWorld(t, zone(good))
	b := newBox(t, w, nil)
	query := func(change func(*dns.Msg)) []byte {
		q := new(dns.Msg).SetQuestion("allowed.example.", dns.TypeA)
		q.Id = 7
		change(q)
		return pack(q)[0]
	}
	two := dns.Question{Name: "evil.example.", Qtype: dns.TypeA, Qclass: dns.ClassINET}
	record, _ := dns.NewRR(good)
	opt := &dns.OPT{Hdr: dns.RR_Header{Name: ".", Rrtype: dns.TypeOPT}}
	for what, c := range map[string]struct {
		wire  []byte
		rcode int
	}{
		"two questions": {query(func(q *dns.Msg) { q.Question = append(q.Question, two) }), dns.RcodeFormatError},
		"no question":   {query(func(q *dns.Msg) { q.Question = nil }), dns.RcodeFormatError},
		"an answer":     {query(func(q *dns.Msg) { q.Answer = []dns.RR{record} }), dns.RcodeFormatError},
		"an authority":  {query(func(q *dns.Msg) { q.Ns = []dns.RR{record} }), dns.RcodeFormatError},
		"two OPT":       {query(func(q *dns.Msg) { q.Extra = []dns.RR{opt, opt} }), dns.RcodeFormatError},
		"EDNS 1":        {query(func(q *dns.Msg) { q.SetEdns0(1232, false).IsEdns0().SetVersion(1) }), dns.RcodeBadVers},
		"CHAOS":         {query(func(q *dns.Msg) { q.Question[0].Qclass = dns.ClassCHAOS }), dns.RcodeRefused},
		"class ANY":     {query(func(q *dns.Msg) { q.Question[0].Qclass = dns.ClassANY }), dns.RcodeRefused},
		"NOTIFY":        {query(func(q *dns.Msg) { q.Opcode = dns.OpcodeNotify }), dns.RcodeNotImplemented},
		"UPDATE":        {query(func(q *dns.Msg) { q.Opcode = dns.OpcodeUpdate }), dns.RcodeNotImplemented},
		"cut off":       {query(func(*dns.Msg) {})[:20], dns.RcodeFormatError},
		"too long":      {append(query(func(*dns.Msg) {}), make([]byte, 1300)...), dns.RcodeFormatError},
	} {
		r, l := b.begin(c.wire)
		if l != nil || r == nil || r.msg.Rcode != c.rcode || r.msg.Id != 7 {
			t.Errorf("%s: %v", what, r)
		} else if _, err := r.msg.Pack(); err != nil {
			t.Errorf("%s: %v", what, err)
		}
	}
	for what, wire := range map[string][]byte{"an answer": query(func(q *dns.Msg) { q.Response = true }), "eleven bytes": make([]byte, 11), "nothing": nil} {
		if r, l := b.begin(wire); r != nil || l != nil {
			t.Errorf("%s is answered: %v", what, r)
		}
	}
	if len(w.questions()) != 0 {
		t.Error(w.questions())
	}
}

func TestOnlyNameAndTypeLeave(t *testing.T) {
	w := newWorld(t, zone(good))
	b := newBox(t, w, nil)
	q := new(dns.Msg).SetQuestion("aLLoWeD.eXample.", dns.TypeA)
	q.Id, q.CheckingDisabled, q.AuthenticatedData, q.Zero = 0xBEEF, true, true, true
	q.SetEdns0(4000, true)
	o := q.IsEdns0()
	o.Option = []dns.EDNS0{&dns.EDNS0_COOKIE{Code: dns.EDNS0COOKIE, Cookie: "5ec7e75ec7e75ec7"}, &dns.EDNS0_LOCAL{Code: 65001, Data: []byte("secret")}}
	m := b.send(t, "udp", q)
	want(t, m, "NOERROR 93.184.216.34")
	if e := m.IsEdns0(); e == nil || len(e.Option) != 0 || e.UDPSize() != 1232 || e.Do() {
		t.Error("EDNS is not answered plainly: ", e)
	}
	sent := new(dns.Msg)
	wires, _ := w.sent()
	fatal(t, sent.Unpack(wires[0]))
	id := sent.Id
	wantWire := question("allowed.example.", dns.TypeA, true)
	wantWire.Id = id
	if plain := pack(wantWire)[0]; !slices.Equal(plain, wires[0]) {
		t.Errorf("%v", sent)
	}
}

func TestEachQuestionHasItsPortAndID(t *testing.T) {
	w := newWorld(t, answers())
	b := newBox(t, w, nil)
	for i := range 20 {
		b.ask(t, fmt.Sprint("a", i, ".wild.example"), dns.TypeA)
	}
	ids := map[string]bool{}
	wires, from := w.sent()
	for _, wire := range wires {
		ids[string(wire[:2])] = true
	}
	if len(from) < 15 || len(ids) < 15 {
		t.Errorf("%d ports and %d IDs in 20 questions", len(from), len(ids))
	}
}

func TestChains(t *testing.T) {
	long := func(n int) (records []string) {
		records = []string{"allowed.example. 60 IN CNAME c1.cdn.example."}
		for i := 1; i < n; i++ {
			records = append(records, fmt.Sprintf("c%d.cdn.example. 60 IN CNAME c%d.cdn.example.", i, i+1))
		}
		return append(records, fmt.Sprintf("c%d.cdn.example. 7 IN A 93.184.216.34", n))
	}
	step := func(q *dns.Msg, _ string) [][]byte { // an upstream that leaves the chain to us
		name := q.Question[0].Name
		next := map[string]string{"allowed.example.": "allowed.example. 60 IN CNAME a.cdn.example.", "a.cdn.example.": "a.cdn.example. 60 IN CNAME b.cdn.example."}[name]
		if next == "" {
			next = name + " 9 IN A 93.184.216.34"
		}
		return answers(next)(q, "")
	}
	reversed := long(3)
	slices.Reverse(reversed)
	for what, c := range map[string]struct {
		answer func(*dns.Msg, string) [][]byte
		want   string
		asked  int
	}{
		"a chain":                      {zone(long(3)...), "NOERROR 93.184.216.34", 1},
		"a chain in another order":     {answers(reversed...), "NOERROR 93.184.216.34", 1},
		"a chain that we follow":       {step, "NOERROR 93.184.216.34", 3},
		"eight links":                  {zone(long(8)...), "NOERROR 93.184.216.34", 1},
		"nine links":                   {zone(long(9)...), "SERVFAIL", 1},
		"a loop":                       {answers("allowed.example. 60 IN CNAME b.example.", "b.example. 60 IN CNAME allowed.example."), "SERVFAIL", 1},
		"a loop over answers":          {answers("allowed.example. 60 IN CNAME b.example."), "NOERROR", 2},
		"itself":                       {answers("allowed.example. 60 IN CNAME allowed.example."), "SERVFAIL", 1},
		"addresses of another name":    {answers("evil.example. 60 IN A 93.184.216.34"), "NOERROR", 1},
		"of another name as well":      {answers(good, "evil.example. 60 IN A 93.184.216.35"), "NOERROR 93.184.216.34", 1},
		"another class":                {answers("allowed.example. 60 CH A 93.184.216.34", "allowed.example. 60 IN TXT x"), "NOERROR", 1},
		"another type":                 {answers("allowed.example. 60 IN AAAA 2606:2800::1"), "NOERROR", 1},
		"beside the chain":             {answers("allowed.example. 60 IN CNAME b.example.", "c.example. 60 IN A 93.184.216.35", "b.example. 60 IN A 93.184.216.34"), "NOERROR 93.184.216.34", 1},
		"the same address three times": {answers(good, good, good), "NOERROR 93.184.216.34", 1},
	} {
		t.Run(what, func(t *testing.T) {
			w := newWorld(t, c.answer)
			b := newBox(t, w, nil)
			want(t, b.ask(t, "allowed.example", dns.TypeA), c.want)
			if got := len(w.questions()); got != c.asked {
				t.Errorf("asked %d times, not %d: %v", got, c.asked, w.questions())
			}
		})
	}
}

func TestAChainWhoseEndHasNoAddressIsNotAskedAgain(t *testing.T) {
	w := newWorld(t, func(q *dns.Msg, _ string) [][]byte {
		m := new(dns.Msg).SetReply(q)
		c, _ := dns.NewRR("allowed.example. 60 IN CNAME b.example.")
		soa, _ := dns.NewRR("example. 60 IN SOA a. b. 1 2 3 4 5")
		m.Answer, m.Ns = []dns.RR{c}, []dns.RR{soa}
		return pack(m)
	})
	b := newBox(t, w, nil)
	want(t, b.ask(t, "allowed.example", dns.TypeAAAA), "NOERROR")
	if len(w.questions()) != 1 {
		t.Error(w.questions())
	}
}

func TestRebindingAnswersAreDropped(t *testing.T) {
	w := newWorld(t, answers(good))
	b := newBox(t, w, nil)
	b.clock.add(0)
	for _, c := range []struct {
		addrs string
		want  string
	}{
		{"93.184.216.34", "NOERROR 93.184.216.34"},
		{"127.0.0.1", "NOERROR"},
		{"169.254.169.254", "NOERROR"},
		{"10.1.1.1", "NOERROR"},
		{"0.0.0.0", "NOERROR"},
		{"100.64.0.1", "NOERROR"},
		{"224.0.0.1", "NOERROR"},
		{"255.255.255.255", "NOERROR"},
		{"10.5.0.1", "NOERROR 10.5.0.1"},
		{"127.0.0.1 93.184.216.35", "NOERROR 93.184.216.35"},
		{"::1", "NOERROR"},
		{"fe80::1", "NOERROR"},
		{"fd00:ec2::254", "NOERROR"},
		{"64:ff9b::a9fe:a9fe", "NOERROR"},
		{"2002:7f00:1::", "NOERROR"},
		{"2606:2800::1", "NOERROR 2606:2800::1"},
	} {
		qtype, records := uint16(dns.TypeA), []string{}
		for a := range strings.FieldsSeq(c.addrs) {
			if strings.Contains(a, ":") {
				qtype = dns.TypeAAAA
			}
			records = append(records, fmt.Sprintf("allowed.example. 1 IN %s %s", dns.Type(qtype), a))
		}
		w.mu.Lock()
		w.answer = answers(records...)
		w.mu.Unlock()
		b.clock.add(6 * time.Second) // past the shortest time to live
		want(t, b.ask(t, "allowed.example", qtype), c.want)
	}
	why := map[string]bool{}
	for _, e := range b.events() {
		if e.Answer == "" {
			why[fmt.Sprint(e.Addrs[0], " ", e.Verdict.Why)] = true
		}
	}
	for _, want := range []string{"127.0.0.1 the floor: loopback", "169.254.169.254 the floor: metadata", "64:ff9b::a9fe:a9fe the floor: metadata"} {
		if !why[want] {
			t.Errorf("no event %q in %v", want, why)
		}
	}
	if strings.Contains(fmt.Sprint(b.pinned()), "127.0.0.1") {
		t.Error("pinned: ", b.pinned())
	}
}

func TestAMappedAddressIsNoIPv6Address(t *testing.T) {
	w := newWorld(t, func(q *dns.Msg, _ string) [][]byte {
		m := new(dns.Msg).SetReply(q)
		m.Answer = []dns.RR{&dns.AAAA{Hdr: dns.RR_Header{Name: q.Question[0].Name, Rrtype: dns.TypeAAAA, Class: 1, Ttl: 9}, AAAA: net.ParseIP("93.184.216.34").To16()}}
		return pack(m)
	})
	b := newBox(t, w, nil)
	want(t, b.ask(t, "allowed.example", dns.TypeAAAA), "NOERROR")
	if len(b.pinned()) != 0 || b.events()[0].Verdict.Why != "an IPv4 address as an IPv6 one" {
		t.Error(b.pinned(), b.events())
	}
}

func TestTheTimeToLiveIsClampedAndKept(t *testing.T) {
	for ttl, want := range map[int]int{0: 5, 1: 5, 77: 77, 86400: 300, 1 << 31: 300} {
		w := newWorld(t, answers(fmt.Sprintf("allowed.example. %d IN A 93.184.216.34", ttl)))
		b := newBox(t, w, nil)
		b.clock.add(0)
		if got := b.ask(t, "allowed.example", dns.TypeA).Answer[0].Header().Ttl; got != uint32(want) {
			t.Errorf("%d became %d, not %d", ttl, got, want)
		}
		b.clock.add(time.Duration(want)*time.Second - 1500*time.Millisecond)
		if got := b.ask(t, "allowed.example", dns.TypeA).Answer[0].Header().Ttl; got != 2 || len(w.questions()) != 1 {
			t.Errorf("%d s are left, asked %v", got, w.questions())
		}
		b.clock.add(1500 * time.Millisecond)
		b.ask(t, "allowed.example", dns.TypeA)
		if len(w.questions()) != 2 || len(b.pinned()) != 2 {
			t.Errorf("not asked and pinned again after %d s", want)
		}
	}
}

func TestAtMostSixteenAddresses(t *testing.T) {
	var records []string
	for i := range 40 {
		records = append(records, fmt.Sprintf("allowed.example. 60 IN AAAA 2606:2800::%d", i+1))
	}
	b := newBox(t, newWorld(t, answers(records...)), nil)
	q := new(dns.Msg).SetQuestion("allowed.example.", dns.TypeAAAA)
	if m := b.send(t, "tcp", q); len(m.Answer) != 16 || len(b.pinned()) != 16 {
		t.Errorf("%d addresses, %d pins", len(m.Answer), len(b.pinned()))
	}
}

func TestAnAnswerThatDoesNotFitIsTruncated(t *testing.T) {
	name := strings.Repeat(strings.Repeat("a", 48)+".", 2) + "wild.example."
	var records []string
	for i := range 16 {
		records = append(records, fmt.Sprintf("%s 60 IN AAAA 2606:2800::%d", name, i+1))
	}
	b := newBox(t, newWorld(t, answers(records...)), nil)
	q := new(dns.Msg).SetQuestion(name, dns.TypeAAAA)
	m := b.send(t, "udp", q)
	if wire := pack(m)[0]; !m.Truncated || len(wire) > 512 {
		t.Errorf("truncated %v, %d bytes", m.Truncated, len(wire))
	}
	if m := b.send(t, "tcp", q); m.Truncated || len(m.Answer) != 16 {
		t.Errorf("over TCP: truncated %v, %d addresses", m.Truncated, len(m.Answer))
	}
	if m := b.send(t, "udp", q.Copy().SetEdns0(1232, false)); m.Truncated || len(m.Answer) != 16 {
		t.Errorf("with EDNS: truncated %v, %d addresses", m.Truncated, len(m.Answer))
	}
}

func TestThePinComesBeforeTheAnswer(t *testing.T) {
	hold, pinning := make(chan struct{}), make(chan struct{})
	b := newBox(t, newWorld(t, answers(good)), func(o *Options) {
		o.Pin = func(string, netip.Addr, []netpolicy.Ports, time.Duration) error { close(pinning); <-hold; return nil }
	})
	c, err := net.Dial("udp", b.addr)
	fatal(t, err)
	defer c.Close()
	c.Write(pack(new(dns.Msg).SetQuestion("allowed.example.", dns.TypeA))[0])
	<-pinning
	c.SetReadDeadline(time.Now().Add(50 * time.Millisecond))
	buf := make([]byte, 512)
	if n, err := c.Read(buf); err == nil {
		t.Fatalf("%d bytes of answer while the pin is not set", n)
	}
	close(hold)
	c.SetReadDeadline(time.Now().Add(5 * time.Second))
	_, err = c.Read(buf)
	fatal(t, err)
}

func TestAnAddressThatCannotBePinnedIsNotAnswered(t *testing.T) {
	w := newWorld(t, answers(good, "allowed.example. 60 IN A 93.184.216.35"))
	b := newBox(t, w, func(o *Options) {
		o.Pin = func(_ string, a netip.Addr, _ []netpolicy.Ports, _ time.Duration) error {
			if a.String() == "93.184.216.34" {
				return errors.New("no room")
			}
			return nil
		}
	})
	want(t, b.ask(t, "allowed.example", dns.TypeA), "NOERROR 93.184.216.35")
	b = newBox(t, w, func(o *Options) { o.Pin = nil })
	want(t, b.ask(t, "allowed.example", dns.TypeA), "SERVFAIL")
	if e := b.events()[0]; e.Verdict.Why != "not opened: nothing opens addresses" || len(e.Addrs) != 1 && len(e.Addrs) != 2 {
		t.Errorf("%+v", e)
	}
	if e := b.events()[1]; e.Err != "open 93.184.216.35 for allowed.example: nothing opens addresses" {
		t.Errorf("%+v", e)
	}
}

func TestTheZeroValueRefuses(t *testing.T) {
	s := New(Options{})
	defer s.Close()
	r, l := s.begin(pack(new(dns.Msg).SetQuestion("allowed.example.", dns.TypeA))[0])
	if l != nil || r.msg.Rcode != dns.RcodeNameError {
		t.Error(r)
	}
	s = New(Options{Rules: rules(), Normalize: policy.NormalizeName})
	defer s.Close()
	_, l = s.begin(pack(new(dns.Msg).SetQuestion("allowed.example.", dns.TypeA))[0])
	if r := s.finish(l); r.msg.Rcode != dns.RcodeServerFailure {
		t.Error(r)
	}
}

func TestEqualLookupsAskOnce(t *testing.T) {
	go1 := make(chan struct{})
	w := newWorld(t, func(q *dns.Msg, _ string) [][]byte { <-go1; return answers(good)(q, "") })
	b := newBox(t, w, func(o *Options) { o.Upstream.Timeout = 3 * time.Second })
	done := make(chan string)
	for range 20 {
		go func() {
			m, _, err := (&dns.Client{Timeout: 5 * time.Second}).Exchange(new(dns.Msg).SetQuestion("allowed.example.", dns.TypeA), b.addr)
			if err != nil {
				done <- err.Error()
				return
			}
			done <- text(m)
		}()
	}
	for len(b.pending) < 20 {
		time.Sleep(time.Millisecond)
	}
	close(go1)
	for range 20 {
		if got := <-done; got != "NOERROR 93.184.216.34" {
			t.Error(got)
		}
	}
	if len(w.questions()) != 1 || len(b.pinned()) != 1 {
		t.Error(w.questions(), b.pinned())
	}
}

func TestCloseLeavesNothing(t *testing.T) {
	before := runtime.NumGoroutine()
	t.Run("busy", func(t *testing.T) {
		b := newBox(t, newWorld(t, func(*dns.Msg, string) [][]byte { return nil }), func(o *Options) { o.Upstream.Timeout = 5 * time.Second })
		var clients []io.Closer
		for i := range 10 {
			c, err := net.Dial([]string{"udp", "tcp"}[i%2], b.addr)
			fatal(t, err)
			clients = append(clients, c)
			wire := pack(new(dns.Msg).SetQuestion(fmt.Sprint("a", i, ".wild.example."), dns.TypeA))[0]
			if i%2 == 0 {
				c.Write(wire)
			} else {
				writeFrame(c, wire)
			}
		}
		for len(b.pending) < 10 {
			time.Sleep(time.Millisecond)
		}
		began := time.Now()
		fatal(t, b.Close())
		fatal(t, b.Close())
		if d := time.Since(began); d > time.Second {
			t.Errorf("it took %s", d)
		}
		late, err := net.ListenPacket("udp", "127.0.0.1:0")
		fatal(t, err)
		fatal(t, b.ServeUDP(late))
		if _, err := late.WriteTo([]byte{1}, late.LocalAddr()); !errors.Is(err, net.ErrClosed) {
			t.Error("a socket given after Close is open: ", err)
		}
		for _, c := range clients {
			c.Close()
		}
	})
	for range 200 {
		if runtime.NumGoroutine() <= before {
			return
		}
		time.Sleep(5 * time.Millisecond)
	}
	buf := make([]byte, 1<<16)
	t.Errorf("%d goroutines before, %d after\n%s", before, runtime.NumGoroutine(), buf[:runtime.Stack(buf, true)])
}

func BenchmarkFromCache(b *testing.B) {
	x := newBox(b, newWorld(b, answers(good)), func(o *Options) { o.Limits.Cached = 1 << 30 })
	c, err := net.Dial("udp", x.addr)
	fatal(b, err)
	defer c.Close()
	wire, buf := pack(new(dns.Msg).SetQuestion("allowed.example.", dns.TypeA))[0], make([]byte, 512)
	took := make([]time.Duration, 0, b.N)
	for b.Loop() {
		began := time.Now()
		c.Write(wire)
		if _, err := c.Read(buf); err != nil {
			b.Fatal(err)
		}
		took = append(took, time.Since(began))
	}
	slices.Sort(took)
	b.ReportMetric(float64(took[len(took)/2].Microseconds()), "µs/median")
	b.ReportMetric(float64(took[len(took)*99/100].Microseconds()), "µs/p99")
}
