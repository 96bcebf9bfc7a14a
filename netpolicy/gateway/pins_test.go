package gateway

import (
	"errors"
	"net/netip"
	"slices"
	"testing"
	"time"

	"skillbox/netpolicy"
)

// kernel is a set of ports by address, which refuses what the kernel's refuses.
type kernel struct {
	t    *testing.T
	open map[netip.Addr][]netpolicy.Ports
	fail error
}

func (k *kernel) pin(addr netip.Addr, before, after []netpolicy.Ports) error {
	if k.fail != nil {
		return k.fail
	}
	if !slices.Equal(k.open[addr], before) {
		k.t.Errorf("%s has %v, not %v", addr, k.open[addr], before)
	}
	for i, a := range after {
		for _, b := range after[i+1:] {
			if a.Proto == b.Proto && a.From <= b.To && b.From <= a.To {
				k.t.Errorf("%s and %s overlap", a, b)
			}
		}
	}
	if k.open[addr] = after; len(after) == 0 {
		delete(k.open, addr)
	}
	return nil
}

func newPins(t *testing.T) (*pins, *kernel) {
	k := &kernel{t: t, open: map[netip.Addr][]netpolicy.Ports{}}
	return &pins{kernel: k.pin, of: map[netip.Addr]*pinned{}}, k
}

var (
	addr  = netip.MustParseAddr("93.184.215.14")
	https = []netpolicy.Ports{{From: 443, To: 443, Proto: "tcp"}}
	many  = []netpolicy.Ports{{From: 400, To: 500, Proto: "tcp"}, {From: 443, To: 443, Proto: "udp"}}
)

func TestAnAddressOfSeveralNamesIsOpenForAll(t *testing.T) {
	p, k := newPins(t)
	for name, ports := range map[string][]netpolicy.Ports{"a.example": https, "b.example": many} {
		if err := p.add(name, addr, ports, time.Minute); err != nil {
			t.Fatal(err)
		}
	}
	if got := p.names(netip.AddrPortFrom(addr, 443), "tcp"); len(got) != 2 {
		t.Errorf("names %q", got)
	}
	if got := p.names(netip.AddrPortFrom(addr, 401), "tcp"); !slices.Equal(got, []string{"b.example"}) {
		t.Errorf("names %q", got)
	}
	if got := p.names(netip.AddrPortFrom(addr, 401), "udp"); got != nil {
		t.Errorf("names %q", got)
	}
	if want := union(append(slices.Clone(https), many...)); !slices.Equal(k.open[addr], want) {
		t.Errorf("open %v, want %v", k.open[addr], want)
	}
}

func TestAPinEndsByItselfAndWithTheKernels(t *testing.T) {
	p, k := newPins(t)
	if err := errors.Join(p.add("a.example", addr, https, -time.Second), p.add("b.example", addr, many, time.Hour)); err != nil {
		t.Fatal(err)
	}
	if got := p.names(netip.AddrPortFrom(addr, 443), "tcp"); !slices.Equal(got, []string{"b.example"}) {
		t.Errorf("names %q", got)
	}
	p.expire(time.Now())
	if !slices.Equal(k.open[addr], union(slices.Clone(many))) {
		t.Errorf("open %v", k.open[addr])
	}
	p.expire(time.Now().Add(2 * time.Hour))
	if len(k.open) != 0 || len(p.of) != 0 {
		t.Errorf("left: %v, %v", k.open, p.of)
	}
}

func TestAnAddressThatTheKernelDidNotTakeIsNotPinned(t *testing.T) {
	p, k := newPins(t)
	k.fail = errors.New("no memory")
	if err := p.add("a.example", addr, https, time.Minute); err == nil {
		t.Error("no error")
	}
	if got := p.names(netip.AddrPortFrom(addr, 443), "tcp"); got != nil {
		t.Errorf("names %q", got)
	}
}

func TestPinsAreBounded(t *testing.T) {
	p, k := newPins(t)
	a := addr
	for range maxPinned {
		if err := p.add("a.example", a, https, time.Minute); err != nil {
			t.Fatal(err)
		}
		a = a.Next()
	}
	if err := p.add("a.example", a, https, time.Minute); err == nil || len(k.open) != maxPinned {
		t.Errorf("%d addresses are open, error %v", len(k.open), err)
	}
}

func TestConnectionsAreBudgeted(t *testing.T) {
	var b budget
	b.start(Budget{Bytes: 10, Connections: 3, Rate: 2})
	for i, want := range []bool{true, true, false} { // the third is too fast
		if err := b.connect(); (err == nil) != want {
			t.Errorf("connection %d: %v", i, err)
		}
	}
	b.at = time.Now().Add(-time.Minute)
	if err := b.connect(); err != nil {
		t.Error(err)
	}
	b.at = time.Now().Add(-time.Minute)
	if err := b.connect(); err == nil {
		t.Error("a fourth connection of three")
	}
	b.start(Budget{Bytes: 0, Connections: 3, Rate: 2})
	if err := b.connect(); err == nil {
		t.Error("a connection without bytes")
	}
}

func TestARefusalNamesTheSmallestChange(t *testing.T) {
	to := netip.MustParseAddrPort("93.184.215.14:443")
	for _, c := range []struct {
		e          Event
		what, hint string
	}{
		{Event{Kind: "dns", Name: "api.example.com", Proto: "A", Verdict: netpolicy.Verdict{Why: noRule}}, "api.example.com", "to allow api.example.com:443 add {domains: [api.example.com], ports: [443]} to network.egress"},
		{
			Event{Kind: "connection", Name: "api.example.com", To: netip.AddrPortFrom(to.Addr(), 22), Proto: "tcp", Verdict: netpolicy.Verdict{Why: noRule}},
			"api.example.com (93.184.215.14:22/tcp)", "to allow api.example.com:22 add {domains: [api.example.com], ports: [22]} to network.egress",
		},
		{
			Event{Kind: "connection", To: to, Proto: "udp", Verdict: netpolicy.Verdict{Why: noRule}},
			"93.184.215.14:443/udp", "look up an allowed name first, or add {cidrs: [93.184.215.14/32], ports: [443/udp]} to network.egress",
		},
		{
			Event{Kind: "connection", To: netip.MustParseAddrPort("[fd00::1]:80"), Proto: "tcp", Verdict: netpolicy.Verdict{Why: "the floor: private"}},
			"[fd00::1]:80/tcp", "only a rule that names the address opens it: add {cidrs: [\"fd00::1/128\"], ports: [80]} to network.egress",
		},
		{Event{Kind: "connection", To: to, Proto: "tcp", Verdict: netpolicy.Verdict{Rule: "p.yaml:7", Why: "network.deny"}}, "93.184.215.14:443/tcp", ""},
		{Event{Kind: "connection", To: to, Proto: "tcp", Verdict: netpolicy.Verdict{Why: "network.limits.rate: 50 a second"}}, "93.184.215.14:443/tcp", "raise network.limits.rate"},
		{Event{Kind: "connection", To: netip.AddrPortFrom(to.Addr(), 0), Proto: "icmp", Verdict: netpolicy.Verdict{Why: noRule}}, "93.184.215.14/icmp", ""},
		{Event{Kind: "connection", To: netip.MustParseAddrPort("10.0.0.1:0"), Proto: "icmp", Verdict: netpolicy.Verdict{Why: "the floor: private"}}, "10.0.0.1/icmp", ""},
	} {
		if got := c.e.What(); got != c.what {
			t.Errorf("what %q, want %q", got, c.what)
		}
		if got := c.e.Hint(); got != c.hint {
			t.Errorf("hint %q, want %q", got, c.hint)
		}
	}
}

func TestEqualRefusalsAreOneDenial(t *testing.T) {
	g := &Gateway{opts: Options{Rules: netpolicy.Compile(nil, nil)}}
	for i := range 3 * maxDenials {
		g.refused(netpolicy.Refused{To: netip.AddrPortFrom(addr, uint16(i%2+1)), Proto: "tcp"})
	}
	if r := g.Report(); len(r.Denials) != 2 || r.Denials[0].Count != 3*maxDenials/2 || r.Totals.Refused != 3*maxDenials || r.Dropped != 0 {
		t.Errorf("%+v", r)
	}
	for i := range 2 * maxDenials {
		g.refused(netpolicy.Refused{To: netip.AddrPortFrom(addr, uint16(i+1)), Proto: "tcp"})
	}
	if r := g.Report(); len(r.Denials) != maxDenials || r.Dropped == 0 {
		t.Errorf("%d denials, %d dropped", len(r.Denials), r.Dropped)
	}
}
