//go:build linux

package integration

import (
	"errors"
	"fmt"
	"net"
	"strings"
	"sync"
	"time"

	"github.com/miekg/dns"
)

// names is what the internet's names stand for. "*." is every name below that has no record of its own. Behind "| " stand the records
// that a name has from the second query on: it flips.
const names = `
api.allowed.example.      60 A     20.1.1.10
api.allowed.example.      60 AAAA  2a10:1::10
api.allowed.example.      60 TXT   "a text that must not come in"
api.allowed.example.      60 MX    10 other.example.
api.allowed.example.      60 HTTPS 1 . ipv4hint=20.1.1.30
www.allowed.example.      60 A     20.1.1.10
shop.cdn.example.         60 A     20.1.1.20
news.cdn.example.         60 A     20.1.1.20
evil.cdn.example.         60 A     20.1.1.20
other.example.            60 A     20.1.1.30
other.example.            60 AAAA  2a10:1::30
*.wild.example.           60 A     20.1.1.40
wild.example.             60 A     20.1.1.40
services.example.         60 A     20.1.1.60
services.example.         60 AAAA  2a10:1::60
v4only.example.           60 A     20.1.1.10

; chains
alias.allowed.example.    60 CNAME target.elsewhere.example.
target.elsewhere.example. 60 A     20.1.1.50
denied.allowed.example.   60 CNAME tracker.elsewhere.example.
tracker.elsewhere.example. 60 A    20.1.1.50
four.allowed.example.     60 CNAME c3.elsewhere.example.
c3.elsewhere.example.     60 CNAME c2.elsewhere.example.
c2.elsewhere.example.     60 CNAME c1.elsewhere.example.
c1.elsewhere.example.     60 CNAME target.elsewhere.example.
loop.allowed.example.     60 CNAME loop2.elsewhere.example.
loop2.elsewhere.example.  60 CNAME loop.allowed.example.
inward.allowed.example.   60 CNAME meta.bad.example.
dangling.allowed.example. 60 CNAME nowhere.elsewhere.example.

; addresses that no name may stand for
meta.bad.example.         60 A     169.254.169.254
ecs.bad.example.          60 A     169.254.170.2
alibaba.bad.example.      60 A     100.100.100.200
azure.bad.example.        60 A     168.63.129.16
metadata.google.internal. 60 A     169.254.169.254
ec2six.bad.example.       60 AAAA  fd00:ec2::254
gcesix.bad.example.       60 AAAA  fd20:ce::254
loop.bad.example.         60 A     127.0.0.1
stub.bad.example.         60 A     127.0.0.53
loopsix.bad.example.      60 AAAA  ::1
zero.bad.example.         60 A     0.0.0.0
zerosix.bad.example.      60 AAAA  ::
ten.bad.example.          60 A     10.1.2.3
onesevenwo.bad.example.   60 A     172.16.5.5
onenine.bad.example.      60 A     192.168.7.7
cgnat.bad.example.        60 A     100.64.0.9
tailscale.bad.example.    60 A     100.100.100.100
linklocal.bad.example.    60 A     169.254.7.7
multicast.bad.example.    60 A     224.0.0.251
reserved.bad.example.     60 A     240.0.0.7
broadcast.bad.example.    60 A     255.255.255.255
documentation.bad.example. 60 A    192.0.2.7
ula.bad.example.          60 AAAA  fd12:3456::7
linklocalsix.bad.example. 60 AAAA  fe80::1
multicastsix.bad.example. 60 AAAA  ff02::1
mapped.bad.example.       60 AAAA  ::ffff:169.254.169.254
mappedten.bad.example.    60 AAAA  ::ffff:10.1.2.3
compatible.bad.example.   60 AAAA  ::10.1.2.3
translated.bad.example.   60 AAAA  ::ffff:0:10.1.2.3
nat64.bad.example.        60 AAAA  64:ff9b::169.254.169.254
nat64ten.bad.example.     60 AAAA  64:ff9b::10.1.2.3
sixtofour.bad.example.    60 AAAA  2002:a9fe:a9fe::1
sixtofourloop.bad.example. 60 AAAA 2002:7f00:1::1
host.bad.example.         60 A     11.22.33.2
hostsix.bad.example.      60 AAAA  2a11:22:33::2
mixed.bad.example.        60 A     20.1.1.10
mixed.bad.example.        60 A     10.1.2.3
mixed.bad.example.        60 A     169.254.169.254

; rebinding
loop.flip.example.        0 A      20.1.1.10
| loop.flip.example.      0 A      127.0.0.1
meta.flip.example.        0 A      20.1.1.10
| meta.flip.example.      0 A      169.254.169.254
ten.flip.example.         0 A      20.1.1.10
| ten.flip.example.       0 A      10.1.2.3
cname.flip.example.       0 A      20.1.1.10
| cname.flip.example.     0 CNAME  ten.bad.example.
mixed.flip.example.       0 A      20.1.1.10
| mixed.flip.example.     0 A      10.1.2.3
| mixed.flip.example.     0 A      20.1.1.10
six.flip.example.         0 AAAA   2a10:1::10
| six.flip.example.       0 AAAA   ::ffff:127.0.0.1
root-capture.moved.example. 0 A 20.1.1.10
| root-capture.moved.example. 0 A 20.1.1.70
root-veth.moved.example. 0 A 20.1.1.10
| root-veth.moved.example. 0 A 20.1.1.70
rootless-capture.moved.example. 0 A 20.1.1.10
| rootless-capture.moved.example. 0 A 20.1.1.70
single-id-capture.moved.example. 0 A 20.1.1.10
| single-id-capture.moved.example. 0 A 20.1.1.70

; odd answers
zero.ttl.example.         0 A      20.1.1.10
huge.ttl.example.         2147483647 A 20.1.1.10
cut.allowed.example.      60 A     20.1.1.10
long.allowed.example.     60 TXT   "nothing"
`

// Names whose answers are no records: the server fails, cuts off what it sends as a datagram, says nothing.
const (
	failingName = "fails.allowed.example."
	cutName     = "cut.allowed.example."
	silentName  = "silent.allowed.example."
)

// zone answers for all names.
type zone struct {
	before, after map[string][]dns.RR // by name in normal form

	mu    sync.Mutex
	asked map[string]bool // by name and type
}

func newZone(text string) *zone {
	z := &zone{before: map[string][]dns.RR{}, after: map[string][]dns.RR{}, asked: map[string]bool{}}
	for line := range strings.Lines(text) {
		line, flipped := strings.CutPrefix(line, "| ")
		r, err := dns.NewRR(line)
		if err != nil {
			panic(fmt.Sprintf("record %q: %v", line, err))
		}
		if r == nil {
			continue
		}
		to := z.before
		if flipped {
			to = z.after
		}
		to[r.Header().Name] = append(to[r.Header().Name], r)
	}
	return z
}

// forget lets all names begin again.
func (z *zone) forget() {
	z.mu.Lock()
	defer z.mu.Unlock()
	clear(z.asked)
}

// at are the records of a name: its own, or those of the wildcard above it.
func (z *zone) at(name string, qtype uint16) (found []dns.RR) {
	z.mu.Lock()
	defer z.mu.Unlock()
	found = z.before[name]
	key := fmt.Sprint(name, qtype)
	if z.asked[key] && z.after[name] != nil {
		found = z.after[name]
	}
	z.asked[key] = true
	for rest := name; found == nil && rest != ""; {
		_, rest, _ = strings.Cut(rest, ".")
		for _, r := range z.before["*."+rest] {
			r = dns.Copy(r)
			r.Header().Name = name
			found = append(found, r)
		}
	}
	return found
}

// answer follows CNAMEs as a recursive resolver does.
func (z *zone) answer(q *dns.Msg) *dns.Msg {
	m := new(dns.Msg).SetReply(q)
	m.RecursionAvailable = true
	name, qtype := dns.CanonicalName(q.Question[0].Name), q.Question[0].Qtype
	exists := false
	for range 20 {
		next := ""
		for _, r := range z.at(name, qtype) {
			exists = true
			if c, ok := r.(*dns.CNAME); ok {
				next = c.Target
			}
			if h := r.Header().Rrtype; h == qtype || h == dns.TypeCNAME {
				m.Answer = append(m.Answer, r)
			}
		}
		if next == "" {
			break
		}
		name = next
	}
	if !exists {
		m.Rcode = dns.RcodeNameError
	}
	if len(m.Answer) == 0 {
		m.Ns = []dns.RR{&dns.SOA{Hdr: dns.RR_Header{Name: "example.", Rrtype: dns.TypeSOA, Class: dns.ClassINET, Ttl: 5}, Ns: "ns.example.", Mbox: "x.example.", Minttl: 5}}
	}
	return m
}

// serveDNS answers on port 53 of an address of this namespace.
func (w *world) serveDNS(addr string) error {
	u, err := net.ListenPacket("udp", join(addr, 53))
	if err != nil {
		return err
	}
	l, err := net.Listen("tcp", join(addr, 53))
	if err != nil {
		return errors.Join(err, u.Close())
	}
	if addr != resolverAddr {
		l = &listener{l, w.book}
	}
	handler := func(network string) dns.HandlerFunc {
		return func(r dns.ResponseWriter, q *dns.Msg) {
			name := q.Question[0].Name
			w.book.write(func() {
				w.book.asked = append(w.book.asked, fmt.Sprintf("%s %s %s", network, dns.Type(q.Question[0].Qtype), name))
			})
			if addr != resolverAddr && network == "udp" {
				w.book.enter(r.LocalAddr(), r.RemoteAddr())
			}
			m := w.zone.answer(q)
			switch dns.CanonicalName(name) {
			case failingName:
				m.Rcode = dns.RcodeServerFailure
			case cutName:
				if network == "udp" {
					m.Truncated, m.Answer = true, nil
				}
			case silentName:
				return
			}
			_ = r.WriteMsg(m) // the asker may have gone
		}
	}
	for _, s := range []*dns.Server{{PacketConn: u, Handler: handler("udp")}, {Listener: l, Handler: handler("tcp"), IdleTimeout: func() time.Duration { return 2 * time.Second }}} {
		go func() { _ = s.ActivateAndServe() }()
	}
	return nil
}
