// Package resolver answers a box's DNS queries: it decides on the name before anybody is asked. What it answers holds addresses of
// the asked name and nothing else, and each is pinned before the answer leaves, so DNS neither carries anything out nor leads a
// skill to where its policy does not.
package resolver

import (
	"context"
	"errors"
	"io"
	"net"
	"net/netip"
	"sync"
	"sync/atomic"
	"time"

	"skillbox/netpolicy"
)

// Rules is what the resolver asks of a policy; *netpolicy.Ruleset has it. Names are normal names.
type Rules interface {
	// Lookup decides whether the name may be asked for.
	Lookup(name string) netpolicy.Verdict
	// Wildcard is the wildcard that allows the name, "*" or "*.example.com"; "" for a name that the policy spells out.
	Wildcard(name string) string
	// Open are the ports on which the address may stand for the name; without any, the reason.
	Open(name string, addr netip.Addr) ([]netpolicy.Ports, netpolicy.Verdict)
}

// Options of a box's resolver. With the zero value every name is refused.
type Options struct {
	Rules     Rules                        // nil allows no name
	Normalize func(string) (string, error) // makes a normal name or refuses it; nil refuses every name

	// Pin opens an address for a name. It is called before the answer leaves; an address for which it fails is left out, and
	// nil fails for each. ttl is how long answers with this address are given out: whoever pins adds the time
	// that a program takes from its lookup to its last attempt to connect.
	Pin func(name string, addr netip.Addr, ports []netpolicy.Ports, ttl time.Duration) error

	// Event takes each lookup and each refusal, from several goroutines. Queries wait for it.
	Event func(Event)

	// Sink gives each name an address of its own, of IPv6 if six, or none. With it, every name is answered whatever the rules say, and nobody
	// is asked: what the rules would have said is in the event.
	Sink func(name string, six bool) netip.Addr

	Upstream Upstream
	Dial     func(ctx context.Context, network, address string) (net.Conn, error) // nil is net.Dialer's
	Limits   Limits
}

// Limits of one box. Zero is the default that stands beside each.
type Limits struct {
	Pending       int // lookups that wait for an upstream, 64
	Connections   int // TCP connections, 16
	Rate, Burst   int // queries per second that no cache answers, 50, and at once, 100
	Cached        int // queries of any kind per second, and at once, 1000; more get no answer
	WildcardNames int // different names below one wildcard, over the box's life, 200
}

func (l Limits) withDefaults() Limits {
	for _, f := range []struct {
		value *int
		zero  int
	}{{&l.Pending, 64}, {&l.Connections, 16}, {&l.Rate, 50}, {&l.Burst, 100}, {&l.Cached, 1000}, {&l.WildcardNames, 200}} {
		if *f.value <= 0 {
			*f.value = f.zero
		}
	}
	return l
}

// Event is a lookup, or the refusal of a query or of addresses.
type Event struct {
	Time     time.Time
	Name     string // normal; what is not a name is quoted and cut
	Type     string // "A", "AAAA", "TXT", "TYPE65280"
	Verdict  netpolicy.Verdict
	Answer   string       // "NOERROR", "NODATA", "NXDOMAIN", "SERVFAIL", "REFUSED"; "" where the event is about addresses that were left out
	Addrs    []netip.Addr // answered, or left out
	Err      string       // why an allowed name has no answer
	Cached   bool
	Duration time.Duration
	Untold   int // refusals by a rate limit since the last event about one: they are told once a second
}

// Server is the resolver of one box.
type Server struct {
	opts           Options
	ctx            context.Context
	cancel         context.CancelFunc
	now            func() time.Time // tests have their own
	wg             sync.WaitGroup
	pending        chan struct{}
	connections    chan struct{}
	every, unknown bucket
	floods         floods
	names          names
	cache          cache
	flights        flights
	preferred      atomic.Int64 // index of the upstream that answered last

	mu     sync.Mutex
	open   map[io.Closer]bool
	closed bool
}

// New makes a resolver that listens nowhere yet. The caller closes it.
func New(o Options) *Server {
	o.Limits = o.Limits.withDefaults()
	if o.Rules == nil {
		o.Rules = netpolicy.Compile(nil, nil)
	}
	if o.Normalize == nil {
		o.Normalize = func(string) (string, error) { return "", errors.New("nothing makes normal names") }
	}
	if o.Event == nil {
		o.Event = func(Event) {}
	}
	if o.Pin == nil {
		o.Pin = func(string, netip.Addr, []netpolicy.Ports, time.Duration) error {
			return errors.New("nothing opens addresses")
		}
	}
	if o.Dial == nil {
		o.Dial = new(net.Dialer).DialContext
	}
	s := &Server{
		opts: o, now: time.Now, open: map[io.Closer]bool{},
		pending: make(chan struct{}, o.Limits.Pending), connections: make(chan struct{}, o.Limits.Connections),
		every:   bucket{rate: o.Limits.Cached, burst: o.Limits.Cached},
		unknown: bucket{rate: o.Limits.Rate, burst: o.Limits.Burst},
		names:   names{most: o.Limits.WildcardNames},
	}
	s.ctx, s.cancel = context.WithCancel(context.Background())
	return s
}

// Close ends all service, closes the sockets that were given to it and returns when the last query has ended.
func (s *Server) Close() error {
	s.mu.Lock()
	s.closed = true
	var errs []error
	for c := range s.open {
		if err := c.Close(); err != nil && !errors.Is(err, net.ErrClosed) {
			errs = append(errs, err)
		}
	}
	s.mu.Unlock()
	s.cancel()
	s.wg.Wait()
	return errors.Join(errs...)
}

// hold takes a socket over until drop. After Close it closes the socket and says false.
func (s *Server) hold(c io.Closer) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.closed {
		c.Close()
		return false
	}
	s.open[c] = true
	s.wg.Add(1)
	return true
}

func (s *Server) drop(c io.Closer) {
	c.Close()
	s.mu.Lock()
	delete(s.open, c)
	s.mu.Unlock()
	s.wg.Done()
}

func (s *Server) ended() bool { return s.ctx.Err() != nil }
