// Package gateway is the way out of a box: it answers the names that a box asks for, takes the connections that the rules in the box's
// namespace divert to it, decides on the name that the client itself speaks, and passes the rest on. Each decision is on record.
package gateway

import (
	"context"
	"errors"
	"net"
	"net/netip"
	"sync"
	"time"

	"skillbox/netpolicy"
	"skillbox/netpolicy/resolver"
)

// Options of a box's gateway. With the zero value everything is refused.
type Options struct {
	Rules     *netpolicy.Ruleset
	Normalize func(string) (string, error) // makes a normal name or refuses it
	Upstream  resolver.Upstream
	Budget    Budget
	Sinkhole  bool // nothing is asked, dialled or passed on: everything ends here, see netpolicy.Description
}

// Budget is what one box may use up. Zero is none of it.
type Budget struct {
	Bytes       int64 // both directions together; what is still in the kernel's buffers is not counted
	Connections int64 // in all
	Rate        int64 // connections per second, and at once
}

// Gateway serves one box until Close.
type Gateway struct {
	opts     Options
	net      *netpolicy.Handle
	resolver *resolver.Server
	pins     pins
	left     budget
	pipes    pipePool
	record   record
	sunk     sunkNames
	sinks    chan struct{} // holds one for each connection of a sinkhole
	ctx      context.Context
	cancel   context.CancelFunc
	dialer   net.Dialer

	flowsErr error // of EachFlow

	livingMu sync.Mutex
	living   map[*net.TCPConn]bool // boxes' ends of connections

	wg      sync.WaitGroup // of everything but EachRefused
	told    sync.WaitGroup // of EachRefused and EachFlow
	sending sync.WaitGroup // of connections whose client may have sent what the server has not got
}

// Start serves the sockets of a box's network.
func Start(h *netpolicy.Handle, o Options) *Gateway {
	g := &Gateway{opts: o, net: h}
	g.left.start(o.Budget)
	g.pins = pins{kernel: h.Pin, of: map[netip.Addr]*pinned{}}
	g.ctx, g.cancel = context.WithCancel(context.Background())
	names := resolver.Options{Rules: o.Rules, Normalize: o.Normalize, Upstream: o.Upstream, Pin: g.pin, Event: g.lookedUp}
	if o.Sinkhole {
		g.sunk.six, g.sinks = h.DNS6 != nil, make(chan struct{}, maxSinks)
		names.Upstream, names.Pin, names.Sink = resolver.Upstream{}, nil, g.sunk.address
		names.Dial = func(context.Context, string, string) (net.Conn, error) {
			return nil, errors.New("a sinkhole dials nobody")
		}
	}
	g.resolver = resolver.New(names)
	// Errors of a server are those of a socket that is gone: nothing is reached then.
	g.run(func() { _ = g.resolver.ServeUDP(h.DNS) })
	g.run(func() { _ = g.resolver.ServeTCP(h.DNS2) })
	if h.DNS6 != nil {
		g.run(func() { _ = g.resolver.ServeUDP(h.DNS6) })
	}
	for _, l := range h.TCP {
		g.run(func() { g.accept(l) })
	}
	if !o.Sinkhole {
		g.run(g.expire)
	}
	g.follow()
	return g
}

// follow takes what the kernel tells, until Quiet.
func (g *Gateway) follow() {
	g.told.Add(2)
	go func() {
		defer g.told.Done()
		g.net.EachRefused(g.refused)
	}()
	go func() {
		defer g.told.Done()
		g.flowsErr = g.net.EachFlow(g.carried)
	}()
}

func (g *Gateway) run(f func()) {
	g.wg.Add(1)
	go func() {
		defer g.wg.Done()
		f()
	}()
}

// lastWords is what servers get to take what a box has sent before its end.
const lastWords = 200 * time.Millisecond

// Close ends everything. It is called when no process of the box is left; the record is then whole.
func (g *Gateway) Close() error {
	errs := []error{g.net.Quiet()}
	g.told.Wait()
	errs = append(errs, g.flowsErr)
	for _, l := range g.net.TCP {
		errs = append(errs, l.Close())
	}
	sent := make(chan struct{})
	go func() {
		g.sending.Wait()
		close(sent)
	}()
	select {
	case <-sent:
	case <-time.After(lastWords):
	}
	g.cancel()
	errs = append(errs, g.resolver.Close())
	g.wg.Wait()
	return errors.Join(append(errs, g.pipes.Close())...)
}

// connectTime is what a program may take from its lookup to its last attempt to connect, beyond the time for which the answer holds.
const connectTime = 30 * time.Second

// pin opens an address for a name, unless the machine has no way there: a box would not find out before it had connected to us.
func (g *Gateway) pin(name string, addr netip.Addr, ports []netpolicy.Ports, ttl time.Duration) error {
	route, err := g.dialer.DialContext(g.ctx, "udp", netip.AddrPortFrom(addr, 9).String()) // sends nothing
	if err != nil {
		return err
	}
	route.Close()
	return g.pins.add(name, addr, ports, ttl+connectTime)
}

// expire takes back what was pinned; connections that live go on.
func (g *Gateway) expire() {
	for tick := time.NewTicker(5 * time.Second); ; {
		select {
		case <-g.ctx.Done():
			tick.Stop()
			return
		case now := <-tick.C:
			g.pins.expire(now)
		}
	}
}
