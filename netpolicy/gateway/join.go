package gateway

import (
	"bufio"
	"errors"
	"io"
	"net"
	"sync/atomic"
	"syscall"

	"skillbox/netpolicy/hello"
)

// join passes both directions on until both have ended. What first returns comes before the rest of what the client sends.
func (c *connection) join(first func() (*hello.Requests, []byte, error)) error {
	down := make(chan error, 1)
	asked := make(chan *hello.Requests, 1)
	var spoken atomic.Bool // by the server, before the client
	go func() { down <- c.abortIf(c.down(asked, &spoken)) }()
	request, data, err := first()
	asked <- request
	if request != nil && spoken.Load() {
		request.Close()
	}
	if err == nil {
		err = c.up(request, data)
	}
	if errors.Is(err, io.EOF) {
		err = nil // the client sent nothing
	}
	c.sent()
	if err == nil {
		c.closed.Store(true)
		_ = c.server.CloseWrite() // it may have gone
	}
	return c.reason(c.abortIf(err), <-down)
}

// abortIf ends both sides, so that neither direction waits for the other, which has failed.
func (c *connection) abortIf(err error) error {
	if err != nil {
		for _, end := range []*net.TCPConn{c.box, c.server} {
			_ = end.SetLinger(0) // a reset; the connection may have gone
			end.Close()
		}
	}
	return err
}

// reason is why a connection ended early: a refusal, or else what failed first that is not the other side's end.
func (c *connection) reason(errs ...error) error {
	var no *refusal
	if errors.As(errors.Join(errs...), &no) {
		return no
	}
	if c.g.ctx.Err() != nil {
		return nil // the run has ended, and with it everything
	}
	for _, err := range errs {
		if err != nil && !errors.Is(err, net.ErrClosed) && !errors.Is(err, syscall.ECONNRESET) && !errors.Is(err, syscall.EPIPE) {
			return err
		}
	}
	return nil
}

// up passes on what the client sends.
func (c *connection) up(request *hello.Requests, data []byte) error {
	to := &payer{to: c.server, left: &c.g.left, pipes: &c.g.pipes, count: &c.event.Sent}
	if request != nil {
		_, err := request.WriteTo(to)
		var other *hello.OtherHost
		var network net.Error
		switch {
		case errors.As(err, &other):
			c.event.Name = other.Name
			return refuse("the connection was made for %s", other.Checked)
		case err != nil && !errors.As(err, &network) && !errors.Is(err, io.ErrUnexpectedEOF):
			return refuse("%w", err)
		}
		return err
	}
	if _, err := to.Write(data); err != nil {
		return err
	}
	if err := flush(to, c.reader); err != nil {
		return err
	}
	return to.splice(c.box)
}

// down passes on what the server sends.
func (c *connection) down(asked <-chan *hello.Requests, spoken *atomic.Bool) error {
	from := bufio.NewReader(c.server)
	_, err := from.Peek(1)
	var request *hello.Requests
	select {
	case request = <-asked:
	default:
		// join and we both look: whoever comes second closes it.
		spoken.Store(true)
		select {
		case late := <-asked:
			if late != nil {
				late.Close()
			}
		default:
		}
	}
	to := &payer{to: c.box, left: &c.g.left, pipes: &c.g.pipes, count: &c.event.Received}
	if request != nil {
		defer request.Close()
		answer, errAnswer := request.Answer(from)
		if _, err := to.Write(answer); err != nil {
			return err
		}
		err = errAnswer
	}
	if err == nil {
		if err = flush(to, from); err == nil {
			err = to.splice(c.server)
		}
	}
	if errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF) {
		err = nil // the client sees an end there, as the server meant it
		if !c.closed.Load() && wasReset(c.server) {
			err = syscall.ECONNRESET // and up was told
		}
	}
	if err == nil {
		_ = c.box.CloseWrite()
	}
	return err
}

// flush passes on what a reader has taken already.
func flush(to *payer, from *bufio.Reader) error {
	held, err := from.Peek(from.Buffered())
	if err != nil {
		return err
	}
	_, err = to.Write(held)
	return err
}
