package gateway

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"net"
	"net/netip"
	"time"

	"skillbox/netpolicy"
	"skillbox/netpolicy/hello"
)

// Bounds of one connection to a sinkhole.
const (
	maxFirst  = 4 << 10          // bytes of what the client says first that are kept
	maxHeld   = 16 << 10         // bytes that are looked at for the name in them
	quietTime = 3 * time.Second  // for which a client may say nothing
	sinkTime  = 15 * time.Second // in all
	maxSinks  = 256              // connections at a time
)

// sink is one connection that ends here. It is what the client is read from and answered on.
type sink struct {
	g     *Gateway
	box   *net.TCPConn
	until time.Time
	quiet time.Duration // for the next read
	event Event

	secure bool   // within TLS
	held   []byte // what the client said first, up to maxHeld
	said   []byte // the same within TLS, up to maxFirst
}

// swallow serves one connection of a sinkhole: it listens, is polite so that the client goes on, and records. Nobody else hears of it.
func (g *Gateway) swallow(box *net.TCPConn) {
	defer g.sending.Done()
	defer box.Close()
	defer context.AfterFunc(g.ctx, func() { box.Close() })()
	defer g.live(box)()
	c := &sink{g: g, box: box, event: Event{Time: time.Now(), Kind: "connection", Proto: "tcp"}}
	c.until = c.event.Time.Add(sinkTime)
	err := c.admit()
	if err == nil {
		defer func() { <-g.sinks }()
		g.record.mu.Lock()
		g.record.totals.Connections++
		g.record.mu.Unlock()
		err = c.converse()
	}
	c.event.Duration = time.Since(c.event.Time)
	c.judge()
	var no *refusal
	if errors.As(err, &no) {
		c.event.Verdict = no.verdict
		g.record.refused(c.event)
	} else {
		g.record.allowed(c.event)
	}
	if err != nil {
		_ = box.SetLinger(0) // a reset: it was not heard out
	}
}

// admit takes a connection, if the box may have another one.
func (c *sink) admit() error {
	to, err := netpolicy.Original(c.box)
	if err != nil {
		c.event.Err = bare(err)
		return err
	}
	c.event.To = netip.AddrPortFrom(to.Addr().Unmap(), to.Port())
	if err := c.g.left.connect(); err != nil {
		return refuse("%w", err)
	}
	select {
	case c.g.sinks <- struct{}{}:
		return nil
	default:
		return refuse("more than %d connections at a time", maxSinks)
	}
}

// Read takes what the client says. The client's silence is an error, as is the end of its time.
func (c *sink) Read(p []byte) (int, error) {
	until := time.Now().Add(c.quiet)
	if until.After(c.until) {
		until = c.until
	}
	if err := c.box.SetReadDeadline(until); err != nil {
		return 0, err
	}
	n, err := c.box.Read(p)
	c.event.Sent += int64(n)
	c.held = append(c.held, p[:min(n, maxHeld-len(c.held))]...)
	if c.g.left.bytes.Add(-int64(n)) < 0 && n > 0 {
		return n, refuse("%w", c.g.left.overBytes())
	}
	return n, err
}

// Write answers the client.
func (c *sink) Write(p []byte) (int, error) {
	if c.g.left.bytes.Add(-int64(len(p))) < 0 {
		return 0, refuse("%w", c.g.left.overBytes())
	}
	if err := c.box.SetWriteDeadline(c.until); err != nil {
		return 0, err
	}
	n, err := c.box.Write(p)
	c.event.Received += int64(n)
	return n, err
}

// first is what the client said first, within TLS if it came to that.
func (c *sink) first() []byte {
	if len(c.said) > 0 {
		return c.said
	}
	return bytes.Clone(c.held[:min(len(c.held), maxFirst)])
}

// judge says of a connection what the rules would have said.
func (c *sink) judge() {
	c.event.First = c.first()
	if !c.event.To.IsValid() {
		return // the kernel could not say
	}
	c.event.Name, c.event.Verdict = judge(c.g.opts.Rules, c.event.To, c.g.sunk.of(c.event.To.Addr()), c.held, c.g.opts.Normalize)
}

// judge is what a capture would have decided about a connection to an address that was given out for a name, or for none (""), from what the
// client said first. It returns the name that decided: that which the address was given out for, or the one that the client speaks.
func judge(rules *netpolicy.Ruleset, to netip.AddrPort, given string, first []byte, normalize func(string) (string, error)) (name string, v netpolicy.Verdict) {
	spoken, kind, err := spokenName(first, to.Port(), normalize)
	if given == "" {
		return spoken, rules.Address(to.Addr(), to.Port(), "tcp")
	}
	v = rules.Name(given, to.Port(), "tcp")
	if !v.Allowed {
		return given, v
	}
	web := to.Port() == 80 || to.Port() == 443
	switch {
	case kind == hello.Other && web:
		return given, netpolicy.Verdict{Why: "the client speaks neither TLS nor HTTP"}
	case kind == hello.Other || kind == hello.Undecided:
		return given, v
	case err != nil:
		return given, netpolicy.Verdict{Why: err.Error()}
	case spoken == given:
		return given, v
	}
	if other := rules.Name(spoken, to.Port(), "tcp"); !other.Allowed {
		return spoken, other
	}
	return spoken, netpolicy.Verdict{Why: "the address was given out for " + given}
}

// spokenName is the name that a client asks for by TLS or HTTP; "" with neither.
func spokenName(first []byte, port uint16, normalize func(string) (string, error)) (name string, kind hello.Kind, err error) {
	kind = hello.Sniff(first)
	switch kind {
	case hello.KindTLS:
		name, _, err = hello.TLS(bytes.NewReader(first), normalize)
	case hello.KindHTTP:
		var q *hello.Requests
		if q, err = hello.HTTP(bufio.NewReader(bytes.NewReader(first)), port, normalize); err == nil {
			name = q.Name()
			err = q.Close()
		}
	}
	return name, kind, err
}

// datagram takes what the kernel tells of UDP, which ends in the box. One event stands for all that went to one place.
func (g *Gateway) datagram(d netpolicy.Refused) {
	e := Event{Time: time.Now(), Kind: "connection", To: d.To, Proto: d.Proto, Sent: d.Size, Count: 1}
	if e.Name = g.sunk.of(d.To.Addr()); e.Name == "" {
		e.Verdict = g.opts.Rules.Address(d.To.Addr(), d.To.Port(), d.Proto)
	} else {
		e.Verdict = g.opts.Rules.Name(e.Name, d.To.Port(), d.Proto)
	}
	e.First = d.Data[:min(len(d.Data), maxFirst)]
	g.record.datagram(e)
}
