package gateway

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"time"

	"skillbox/netpolicy"
	"skillbox/netpolicy/hello"
)

const (
	helloTime = 10 * time.Second // for a client's whole first message
	dialTime  = 10 * time.Second
)

// accept takes what the rules in the box's namespace divert to us, until the listener is closed.
func (g *Gateway) accept(l net.Listener) {
	for {
		c, err := l.Accept()
		switch {
		case err == nil:
			g.sending.Add(1)
			serve := g.take
			if g.opts.Sinkhole {
				serve = g.swallow
			}
			g.run(func() { serve(c.(*net.TCPConn)) })
		case errors.Is(err, syscall.EMFILE) || errors.Is(err, syscall.ENFILE) || errors.Is(err, syscall.ENOBUFS) || errors.Is(err, syscall.ENOMEM):
			time.Sleep(50 * time.Millisecond) // the host is short of it, and a box must not lose its network over that
		case !errors.Is(err, syscall.ECONNABORTED):
			return
		}
	}
}

// connection is one of a box's, on its way.
type connection struct {
	g      *Gateway
	box    *net.TCPConn
	reader *bufio.Reader // of box, until the name is known
	server *net.TCPConn
	names  []string // that the address was given out for; none where a rule names the address
	sent   func()   // to be called when the server has got what the client sends
	event  Event
	closed atomic.Bool // we have told the server that nothing more comes
}

// take serves one connection. What is refused is reset, without a byte to anybody.
func (g *Gateway) take(box *net.TCPConn) {
	defer box.Close()
	c := &connection{g: g, box: box, reader: bufio.NewReader(box), event: Event{Time: time.Now(), Kind: "connection", Proto: "tcp"}}
	c.sent = sync.OnceFunc(g.sending.Done)
	defer c.sent()
	defer context.AfterFunc(g.ctx, func() { box.Close() })()
	defer g.live(box)()
	err := c.admit()
	if err == nil {
		g.record.mu.Lock()
		g.record.totals.Connections++
		g.record.mu.Unlock()
		err = c.pass()
	}
	c.event.Duration = time.Since(c.event.Time)
	var no *refusal
	switch {
	case errors.As(err, &no):
		c.event.Verdict = no.verdict
		g.record.refused(c.event)
	default:
		if err != nil {
			c.event.Err = bare(err)
		}
		g.record.allowed(c.event)
	}
	if err != nil {
		// A reset, so that the client neither waits nor takes what it got for all.
		_ = box.SetLinger(0)
	}
}

// refusal ends a connection by decision.
type refusal struct{ verdict netpolicy.Verdict }

func (r *refusal) Error() string { return r.verdict.Why }

func refuse(format string, a ...any) error {
	return &refusal{netpolicy.Verdict{Why: bare(fmt.Errorf(format, a...))}}
}

// bare is an error's text without the two ends of a socket. One of them is another port each time: equal refusals would not count as equal.
func bare(err error) string {
	text := err.Error()
	var op *net.OpError
	if errors.As(err, &op) {
		text = strings.Replace(text, op.Error(), op.Err.Error(), 1)
	}
	return text
}

// admit decides by the address. The rules in the box's namespace said the same before; here a pin also ends on time.
func (c *connection) admit() error {
	to, err := netpolicy.Original(c.box)
	if err != nil {
		return err
	}
	to = netip.AddrPortFrom(to.Addr().Unmap(), to.Port())
	if local := c.box.LocalAddr().(*net.TCPAddr).AddrPort(); to == netip.AddrPortFrom(local.Addr().Unmap(), local.Port()) {
		c.event.To = to
		return refuse("the sandbox's own listener")
	}
	c.event.To = to
	v := c.g.opts.Rules.Address(to.Addr(), to.Port(), "tcp")
	if !v.Allowed {
		if v.Why != noRule {
			return &refusal{v}
		}
		c.names = c.g.pins.names(to, "tcp")
		if len(c.names) == 0 {
			return &refusal{v}
		}
		c.event.Name = c.names[0]
		if v = c.g.opts.Rules.Answer(c.names[0], to.Addr(), to.Port(), "tcp"); !v.Allowed {
			return &refusal{v}
		}
	}
	c.event.Verdict = v
	if err := c.g.left.connect(); err != nil {
		return refuse("%w", err)
	}
	return nil
}

// named says that the client asks for a name that the address was given out for.
func (c *connection) named(name string, err error) error {
	if err != nil {
		return refuse("%w", err)
	}
	if !slices.Contains(c.names, name) {
		other := c.g.opts.Rules.Name(name, c.event.To.Port(), "tcp")
		c.event.Name = name
		if !other.Allowed {
			return &refusal{other}
		}
		return refuse("%s was not given out for %s", c.event.To.Addr(), name)
	}
	c.event.Name = name
	c.event.Verdict = c.g.opts.Rules.Name(name, c.event.To.Port(), "tcp")
	return nil
}

func (c *connection) dial() error {
	d := c.g.dialer
	d.Timeout = dialTime
	server, err := d.DialContext(c.g.ctx, "tcp", c.event.To.String())
	if err != nil {
		return err
	}
	c.server = server.(*net.TCPConn)
	return nil
}

// hangUp ends the server's side with the gateway's; what it returns ends it at once.
func (c *connection) hangUp() func() {
	stop := context.AfterFunc(c.g.ctx, func() { c.server.Close() })
	return func() {
		stop()
		c.server.Close()
	}
}

// pass carries the connection to its end.
func (c *connection) pass() error {
	to := c.event.To.Port()
	if len(c.names) > 0 && (to == 80 || to == 443) {
		// Ports of TLS and HTTP: the name comes before the server hears of us.
		if err := c.box.SetReadDeadline(time.Now().Add(helloTime)); err != nil {
			return err
		}
		request, first, err := c.name(true)
		if err != nil {
			return err
		}
		if err := c.dial(); err != nil {
			return err
		}
		defer c.hangUp()()
		return c.join(func() (*hello.Requests, []byte, error) { return request, first, nil })
	}
	if err := c.dial(); err != nil {
		return err
	}
	defer c.hangUp()()
	if len(c.names) == 0 {
		return c.join(func() (*hello.Requests, []byte, error) { return nil, nil, nil })
	}
	// Other ports: in many protocols the server speaks first. What looks like TLS or HTTP must name its server all the same.
	return c.join(func() (*hello.Requests, []byte, error) {
		if _, err := c.reader.Peek(1); err != nil {
			return nil, nil, err
		}
		if err := c.box.SetReadDeadline(time.Now().Add(helloTime)); err != nil {
			return nil, nil, err
		}
		return c.name(false)
	})
}

// name reads and judges the client's first message. What it returns is to be sent to the server.
func (c *connection) name(required bool) (*hello.Requests, []byte, error) {
	kind := hello.Undecided
	for n := 1; kind == hello.Undecided; n++ {
		first, err := c.reader.Peek(max(n, c.reader.Buffered()))
		if err != nil {
			return nil, nil, refuse("the client sent no whole first message: %w", err)
		}
		kind = hello.Sniff(first)
	}
	switch {
	case kind == hello.KindTLS:
		name, first, err := hello.TLS(c.reader, c.g.opts.Normalize)
		if err := c.named(name, err); err != nil {
			return nil, nil, err
		}
		return nil, first, c.box.SetReadDeadline(time.Time{})
	case kind == hello.KindHTTP:
		request, err := hello.HTTP(c.reader, c.event.To.Port(), c.g.opts.Normalize)
		name := ""
		if err == nil {
			name = request.Name()
		}
		if err := c.named(name, err); err != nil {
			return nil, nil, err
		}
		return request, nil, c.box.SetReadDeadline(time.Time{})
	case required:
		return nil, nil, refuse("the client speaks neither TLS nor HTTP on port %d", c.event.To.Port())
	}
	return nil, nil, c.box.SetReadDeadline(time.Time{})
}
