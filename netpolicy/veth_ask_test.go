//go:build linux

package netpolicy

import (
	"context"
	"errors"
	"io"
	"net"
	"os"
	"sync"
	"sync/atomic"
	"time"
)

// echo counts who comes, and tells everybody from where.
type echo struct {
	port  string
	heard atomic.Int32
}

// listen serves TCP and UDP on every address of a namespace.
func (w *world) listen(ns *os.File) *echo {
	w.t.Helper()
	s := &echo{}
	w.in(ns, func() {
		tcp, err := net.Listen("tcp", "[::]:0")
		try(w.t, err)
		_, s.port, _ = net.SplitHostPort(tcp.Addr().String())
		udp, err := net.ListenPacket("udp", "[::]:"+s.port)
		try(w.t, err)
		w.t.Cleanup(func() { tcp.Close(); udp.Close() })
		go func() {
			for c, err := tcp.Accept(); err == nil; c, err = tcp.Accept() {
				s.heard.Add(1)
				host, _, _ := net.SplitHostPort(c.RemoteAddr().String())
				io.WriteString(c, host)
				c.Close()
			}
		}()
		go func() {
			buf := make([]byte, 100)
			for _, from, err := udp.ReadFrom(buf); err == nil; _, from, err = udp.ReadFrom(buf) {
				s.heard.Add(1)
				host, _, _ := net.SplitHostPort(from.String())
				udp.WriteTo([]byte(host), from)
			}
		}()
	})
	return s
}

// How long is waited for an answer that must come, and for one that must not.
const patience, hurry = 5 * time.Second, 150 * time.Millisecond

// ask connects from a namespace, from a source if it is not "", and returns what the listener says.
func (w *world) ask(ns *os.File, patience time.Duration, network, source, host, port string) (answer string, err error) {
	d := net.Dialer{Timeout: patience}
	if source != "" {
		if d.LocalAddr, err = net.ResolveTCPAddr("tcp", net.JoinHostPort(source, "0")); network == "udp" {
			d.LocalAddr, err = net.ResolveUDPAddr("udp", net.JoinHostPort(source, "0"))
		}
		try(w.t, err)
	}
	w.in(ns, func() {
		var c net.Conn
		if c, err = d.DialContext(context.Background(), network, net.JoinHostPort(host, port)); err != nil {
			return
		}
		defer c.Close()
		buf := make([]byte, 100)
		for until := time.Now().Add(patience); ; {
			c.SetDeadline(time.Now().Add(min(time.Until(until), time.Second)))
			if network == "udp" { // which may be lost, as where a neighbour is looked for first
				io.WriteString(c, "hello")
			}
			var n int
			n, err = c.Read(buf)
			answer = string(buf[:n])
			if !errors.Is(err, os.ErrDeadlineExceeded) || time.Now().After(until) {
				return
			}
		}
	})
	return answer, err
}

// refused checks that nothing of these addresses answers or hears.
func (w *world) refused(ns *os.File, s *echo, why string, hosts ...string) {
	w.t.Helper()
	before := s.heard.Load()
	var wg sync.WaitGroup
	for _, host := range hosts {
		for _, network := range []string{"tcp", "udp"} {
			wg.Go(func() {
				if answer, err := w.ask(ns, hurry, network, "", host, s.port); err == nil {
					w.t.Errorf("%s: %s to %s is answered: %q", why, network, host, answer)
				}
			})
		}
	}
	wg.Wait()
	if n := s.heard.Load() - before; n != 0 {
		w.t.Errorf("%s: heard of %d times", why, n)
	}
}
