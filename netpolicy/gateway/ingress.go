package gateway

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/netip"
	"os"
	"sync"
	"syscall"
	"time"

	"skillbox/netpolicy"
)

const (
	// maxGuests are served at a time; who comes then waits to be accepted.
	maxGuests = 64
	// listenTime is what a skill that has just been started has until it listens, and listenTry how often that is tried.
	listenTime, listenTry = 5 * time.Second, 50 * time.Millisecond
)

// Published is a port of a box that somebody outside may reach by a socket of theirs.
type Published struct {
	Port   uint16
	Rule   string // the line that allows it
	Listen net.Listener
	// Welcome says who may come by a connection that Listen has accepted; nil is everybody.
	Welcome func(net.Conn) error
}

// Ingress passes connections on that others make to listeners of a box. The box can make none by it: it is dialled, and dials nobody.
type Ingress struct {
	net    *netpolicy.Handle
	left   *budget
	pipes  pipePool
	record record
	ctx    context.Context
	cancel context.CancelFunc
	all    []Published
	seats  chan struct{}
	wg     sync.WaitGroup
}

// Admit serves the ports until Close. What passes is taken from the gateway's budget, or where there is no gateway, from one of its own.
func Admit(h *netpolicy.Handle, g *Gateway, of Budget, all []Published) *Ingress {
	in := &Ingress{net: h, left: &budget{}, all: all, seats: make(chan struct{}, maxGuests)}
	in.left.start(of)
	if g != nil {
		in.left = &g.left
	}
	in.ctx, in.cancel = context.WithCancel(context.Background())
	for _, p := range all {
		in.wg.Go(func() { in.accept(p) })
	}
	return in
}

// Close ends it, with every connection; the record is then whole.
func (in *Ingress) Close() error {
	var errs []error
	in.cancel()
	for _, p := range in.all {
		if err := p.Listen.Close(); !errors.Is(err, net.ErrClosed) {
			errs = append(errs, err)
		}
	}
	in.wg.Wait()
	return errors.Join(append(errs, in.pipes.Close())...)
}

// Take is what happened so far, which is then forgotten. Connections that live are told when they end.
func (in *Ingress) Take() Report {
	in.record.mu.Lock()
	defer in.record.mu.Unlock()
	r := &in.record
	taken := Report{r.totals, r.events, r.denials, r.dropped}
	r.totals, r.events, r.denials, r.dropped = Totals{}, nil, nil, 0
	return taken
}

func (in *Ingress) accept(p Published) {
	for {
		select {
		case in.seats <- struct{}{}:
		case <-in.ctx.Done():
			return
		}
		c, err := p.Listen.Accept()
		switch {
		case err == nil:
			in.wg.Go(func() {
				defer func() { <-in.seats }()
				in.serve(p, c.(socket))
			})
			continue
		case errors.Is(err, syscall.EMFILE) || errors.Is(err, syscall.ENFILE) || errors.Is(err, syscall.ENOBUFS) || errors.Is(err, syscall.ENOMEM):
			time.Sleep(50 * time.Millisecond) // the host is short of it
		case !errors.Is(err, syscall.ECONNABORTED):
			return
		}
		<-in.seats
	}
}

// serve passes one connection on, and records it. Sent is what the box sends, as of every connection.
func (in *Ingress) serve(p Published, guest socket) {
	defer guest.Close()
	loopback := netip.AddrFrom4([4]byte{127, 0, 0, 1})
	e := Event{Time: time.Now(), Kind: "connection", In: true, Proto: "tcp", To: netip.AddrPortFrom(loopback, p.Port), Verdict: netpolicy.Verdict{Allowed: true, Rule: p.Rule}}
	err := in.admit(p, guest)
	var box *net.TCPConn
	if err == nil {
		in.record.mu.Lock()
		in.record.totals.Connections++
		in.record.mu.Unlock()
		box, err = in.reach(p.Port)
	}
	if err == nil {
		err = in.join(guest, box, &e)
	}
	if err != nil {
		abort(guest)
	}
	e.Duration = time.Since(e.Time)
	var no *refusal
	switch {
	case errors.As(err, &no):
		e.Verdict = no.verdict
		in.record.refused(e)
		return
	case err != nil && in.ctx.Err() == nil:
		e.Err = bare(err)
	}
	in.record.allowed(e)
}

func (in *Ingress) admit(p Published, guest net.Conn) error {
	if p.Welcome != nil {
		if err := p.Welcome(guest); err != nil {
			return refuse("%w", err)
		}
	}
	if err := in.left.connect(); err != nil {
		return refuse("%w", err)
	}
	return nil
}

// reach waits for a skill that does not listen yet.
func (in *Ingress) reach(port uint16) (*net.TCPConn, error) {
	for began := time.Now(); ; {
		c, err := in.net.Dial(in.ctx, port)
		if err == nil {
			return c, nil
		}
		if !errors.Is(err, syscall.ECONNREFUSED) {
			return nil, err
		}
		if time.Since(began) > listenTime {
			return nil, fmt.Errorf("nothing in the box has listened on port %d for %v", port, listenTime)
		}
		select {
		case <-time.After(listenTry):
		case <-in.ctx.Done():
			return nil, in.ctx.Err()
		}
	}
}

// join passes both directions on until both have ended, or one has failed.
func (in *Ingress) join(guest socket, box *net.TCPConn, e *Event) error {
	defer box.Close()
	stop := context.AfterFunc(in.ctx, func() {
		abort(guest)
		abort(box)
	})
	defer stop()
	pass := func(to, from socket, count *int64) error {
		p := &payer{to: to, left: in.left, pipes: &in.pipes, count: count}
		err := p.splice(from)
		if err == nil {
			_ = to.CloseWrite() // it may have gone
			return nil
		}
		abort(guest)
		abort(box)
		return err
	}
	back := make(chan error, 1)
	go func() { back <- pass(guest, box, &e.Sent) }()
	forth := pass(box, guest, &e.Received)
	return first(forth, <-back)
}

// first is a refusal, or else what failed that is not an end's own doing.
func first(errs ...error) error {
	var no *refusal
	if errors.As(errors.Join(errs...), &no) {
		return no
	}
	for _, err := range errs {
		if err != nil && !errors.Is(err, net.ErrClosed) && !errors.Is(err, syscall.ECONNRESET) && !errors.Is(err, syscall.EPIPE) && !errors.Is(err, io.EOF) {
			return err
		}
	}
	return nil
}

// abort ends a connection at once; where there are resets, by one.
func abort(c socket) {
	if t, ok := c.(*net.TCPConn); ok {
		_ = t.SetLinger(0) // it may have gone
	}
	c.Close()
}

// ListenAt takes a socket that listens over from a descriptor, which stays its owner's.
func ListenAt(f *os.File) (net.Listener, error) {
	l, err := net.FileListener(f)
	if err != nil {
		return nil, fmt.Errorf("gateway: %w", err)
	}
	if u, ok := l.(*net.UnixListener); ok {
		u.SetUnlinkOnClose(false) // its name is its maker's
	}
	return l, nil
}
