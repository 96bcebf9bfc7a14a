package gateway

import (
	"errors"
	"fmt"
	"io"
	"net"
	"net/netip"
	"os"
	"strings"
	"syscall"
	"testing"

	"skillbox/netpolicy"
	"skillbox/policy"
)

// Whoever follows a hint puts its rule into the policy as it stands.
func TestTheRuleOfAHintIsOneOfAPolicy(t *testing.T) {
	const floor = "the floor: private"
	asked := func(name string) Event {
		return Event{Kind: "dns", Name: name, Proto: "A", Verdict: netpolicy.Verdict{Why: noRule}}
	}
	tried := func(name, to, proto, why string) Event {
		return Event{Kind: "connection", Name: name, To: netip.MustParseAddrPort(to), Proto: proto, Verdict: netpolicy.Verdict{Why: why}}
	}
	for _, c := range []struct {
		e    Event
		want string // the rule in canonical form
	}{
		{asked("evil.example"), `{domains: [evil.example], ports: [443]}`},
		{tried("evil.example", "93.184.215.14:8443", "tcp", noRule), `{domains: [evil.example], ports: [8443]}`},
		{tried("evil.example", "93.184.215.14:53", "udp", noRule), `{domains: [evil.example], ports: ["53/udp"]}`},
		{tried("", "1.2.3.4:443", "tcp", noRule), `{cidrs: ["1.2.3.4/32"], ports: [443]}`},
		{tried("", "1.2.3.4:443", "udp", noRule), `{cidrs: ["1.2.3.4/32"], ports: ["443/udp"]}`},
		{tried("", "[2606:4700::1111]:443", "tcp", noRule), `{cidrs: ["2606:4700::1111/128"], ports: [443]}`},
		{tried("", "[::1]:65535", "udp", floor), `{cidrs: ["::1/128"], ports: ["65535/udp"]}`},
		{tried("", "[::ffff:10.1.2.3]:1", "tcp", floor), `{cidrs: ["10.1.2.3/32"], ports: [1]}`},
		{tried("", "[fe80::1%eth0]:80", "tcp", floor), `{cidrs: ["fe80::1/128"], ports: [80]}`},
		{Event{Kind: "dns", Name: "intra.example", To: netip.MustParseAddrPort("10.1.2.3:0"), Proto: "A", Verdict: netpolicy.Verdict{Why: floor}}, `{cidrs: ["10.1.2.3/32"], ports: [443]}`},
		// Names that YAML takes for a number, a date and the like.
		{asked("1.5e3"), `{domains: ["1.5e3"], ports: [443]}`},
		{asked("2026-01-01"), `{domains: ["2026-01-01"], ports: [443]}`},
		{asked("no"), `{domains: ["no"], ports: [443]}`},
		{asked("null"), `{domains: ["null"], ports: [443]}`},
		{asked("xn--bcher-kva.example"), `{domains: [xn--bcher-kva.example], ports: [443]}`},
	} {
		hint := c.e.Hint()
		from, to := strings.Index(hint, "{"), strings.LastIndex(hint, "}")
		if from < 0 || to < from {
			t.Errorf("no rule in %q", hint)
			continue
		}
		p, err := policy.Parse("policy.yaml", []byte("version: 1\nnetwork:\n  egress:\n    - "+hint[from:to+1]+"\n"))
		if err != nil {
			t.Errorf("%q: %v", hint, err)
			continue
		}
		if got := p.Network.Egress[0].String(); got != c.want {
			t.Errorf("%q is read as %s", hint, got)
		}
	}
}

func TestErrorsDoNotNameTheEndsOfASocket(t *testing.T) {
	box, ours := &net.TCPAddr{IP: net.IPv4(127, 0, 0, 1), Port: 40312}, &net.TCPAddr{IP: net.IPv4(127, 0, 0, 1), Port: 1}
	read := &net.OpError{Op: "read", Net: "tcp", Source: ours, Addr: box, Err: os.ErrDeadlineExceeded}
	for _, c := range []struct {
		err  error
		want string
	}{
		{read, "i/o timeout"},
		{fmt.Errorf("the client sent no whole TLS hello: %w", read), "the client sent no whole TLS hello: i/o timeout"},
		{&net.OpError{Op: "dial", Net: "tcp", Addr: box, Err: os.NewSyscallError("connect", syscall.ECONNREFUSED)}, "connect: connection refused"},
		{io.ErrUnexpectedEOF, "unexpected EOF"},
	} {
		if got := bare(c.err); got != c.want {
			t.Errorf("%v: %q, want %q", c.err, got, c.want)
		}
		var no *refusal
		if err := refuse("no: %w", c.err); !errors.As(err, &no) || no.verdict.Why != "no: "+c.want {
			t.Errorf("refused: %v", err)
		}
	}
}
