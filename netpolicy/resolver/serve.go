package resolver

import (
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"net"
	"slices"
	"syscall"
	"time"

	"github.com/miekg/dns"
)

const (
	// maxQuery is more than a name, a type and an OPT record with options take.
	maxQuery = 1232
	// maxUDP is what passes every path unfragmented (DNS flag day 2020). Without EDNS it is 512 (RFC 1035 section 4.2.1).
	maxUDP = 1232
	// idle is the time for a whole query to come over TCP, and to take an answer: RFC 7766 section 6.2.3 leaves it to the server.
	idle = 5 * time.Second
)

// ServeUDP answers datagrams until Close, which also closes the socket. It returns nil then.
func (s *Server) ServeUDP(c net.PacketConn) error {
	if !s.hold(c) {
		return nil
	}
	defer s.drop(c)
	buf := make([]byte, maxQuery+1)
	for {
		n, from, err := c.ReadFrom(buf)
		if err != nil {
			if s.ended() || errors.Is(err, net.ErrClosed) {
				return nil
			}
			return fmt.Errorf("resolver: read a query: %w", err)
		}
		reply, l := s.begin(buf[:n])
		if l == nil {
			s.send(c, from, reply)
			continue
		}
		select {
		case s.pending <- struct{}{}:
			s.wg.Add(1)
			go func() {
				defer s.wg.Done()
				defer func() { <-s.pending }()
				s.send(c, from, s.finish(l))
			}()
		default:
			s.send(c, from, s.busy(l))
		}
	}
}

// send writes an answer no longer than the asker takes. What cannot be sent is lost: a datagram may be.
func (s *Server) send(c net.PacketConn, to net.Addr, reply *reply) {
	if reply == nil {
		return
	}
	reply.msg.Truncate(reply.udpSize)
	if wire, err := reply.msg.Pack(); err == nil {
		c.WriteTo(wire, to)
	}
}

// ServeTCP answers connections until Close, which also closes the listener. It returns nil then.
func (s *Server) ServeTCP(l net.Listener) error {
	if !s.hold(l) {
		return nil
	}
	defer s.drop(l)
	for {
		c, err := l.Accept()
		if err != nil {
			if s.ended() || errors.Is(err, net.ErrClosed) {
				return nil
			}
			if slices.ContainsFunc([]error{syscall.EMFILE, syscall.ENFILE, syscall.ENOBUFS, syscall.ENOMEM}, func(e error) bool { return errors.Is(err, e) }) {
				time.Sleep(50 * time.Millisecond) // the host is short of it, and a box must not lose its resolver over that
				continue
			}
			return fmt.Errorf("resolver: accept a connection: %w", err)
		}
		select {
		case s.connections <- struct{}{}:
			if !s.hold(c) {
				return nil
			}
			go func() {
				defer func() { <-s.connections }()
				defer s.drop(c)
				s.serve(c)
			}()
		default:
			c.Close()
		}
	}
}

// Serve answers the queries of a connection that stays its owner's, until its end or Close.
func (s *Server) Serve(c net.Conn) { s.serve(c) }

// serve answers one query of a connection after the other; one that comes too slowly or is too long ends the connection.
func (s *Server) serve(c net.Conn) {
	for !s.ended() {
		c.SetDeadline(time.Now().Add(idle)) // for all of the message, so that single bytes gain nothing
		wire, err := readFrame(c, maxQuery)
		if err != nil {
			return
		}
		reply, l := s.begin(wire)
		if l != nil {
			reply = s.wait(l)
		}
		if reply == nil {
			return
		}
		wire, err = reply.msg.Pack()
		if err != nil {
			return
		}
		c.SetDeadline(time.Now().Add(idle))
		if writeFrame(c, wire) != nil {
			return
		}
	}
}

func (s *Server) wait(l *lookup) *reply {
	select {
	case s.pending <- struct{}{}:
		defer func() { <-s.pending }()
		return s.finish(l)
	default:
		return s.busy(l)
	}
}

// readFrame reads a message behind its length (RFC 1035 section 4.2.2).
func readFrame(r io.Reader, most int) ([]byte, error) {
	var length [2]byte
	if _, err := io.ReadFull(r, length[:]); err != nil {
		return nil, err
	}
	n := int(binary.BigEndian.Uint16(length[:]))
	if n > most {
		return nil, fmt.Errorf("a message of %d bytes is too long", n)
	}
	wire := make([]byte, n)
	_, err := io.ReadFull(r, wire)
	return wire, err
}

// writeFrame writes length and message at once: some readers take no message in two segments (RFC 7766 section 8).
func writeFrame(w io.Writer, wire []byte) error {
	if len(wire) > dns.MaxMsgSize {
		return fmt.Errorf("a message of %d bytes is too long", len(wire))
	}
	_, err := w.Write(append(binary.BigEndian.AppendUint16(nil, uint16(len(wire))), wire...))
	return err
}
