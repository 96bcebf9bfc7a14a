package hello

import (
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"net"
	"time"
)

// MaxTLS is how much TLS reads: the largest ClientHello of crypto/tls, 64 KiB, in records of at least some 40 bytes.
const MaxTLS = 64<<10 + 8<<10

var (
	errSeen    = errors.New("the hello is seen")
	errTooLong = fmt.Errorf("it is longer than %d bytes", MaxTLS)
)

// TLS reads a whole ClientHello and returns the name in it (SNI, RFC 6066) in its normal form, and everything that it took from r, also
// with an error, and also what follows the hello. It answers the client nothing. crypto/tls is the judge of the hello, in any number of
// records and segments; what it cannot parse is refused, several names with it. With ECH the name is the outer one, which leads to the
// server that decrypts the inner one.
//
// Later names are not seen: that of a second ClientHello, which RFC 8446 section 4.1.2 has the client repeat and not every server
// compares, and what is encrypted (a renegotiation, an HTTP Host). They reach other names of the same server, never another address.
func TLS(r io.Reader, normalize func(string) (string, error)) (name string, read []byte, err error) {
	c := &recorder{from: r}
	seen, raw := false, ""
	err = tls.Server(c, &tls.Config{GetConfigForClient: func(h *tls.ClientHelloInfo) (*tls.Config, error) {
		seen, raw = true, h.ServerName
		return nil, errSeen
	}}).Handshake() // without a context it starts no goroutine
	switch {
	case seen && !handshakeOnly(c.read):
		err = errors.New("the client's TLS hello is mixed with other records")
	case seen && raw == "":
		err = fmt.Errorf("%w (SNI)", ErrNoName)
	case seen:
		name, err = nameOf(raw, normalize)
	case errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF):
		err = fmt.Errorf("the client sent no whole TLS hello: %w", io.ErrUnexpectedEOF)
	case c.err != nil && errors.Is(err, c.err):
		err = fmt.Errorf("the client sent no whole TLS hello: %w", err)
	default:
		err = fmt.Errorf("the client's TLS hello cannot be parsed: %w", err)
	}
	return name, c.read, err
}

// handshakeOnly says that the first message came in handshake records alone. crypto/tls skips warnings before it and within it, and not
// every server does (RFC 8446 section 5.1 forbids them).
func handshakeOnly(read []byte) bool {
	const header, handshake = 5, 22
	var message []byte
	for len(message) < 4 || len(message)-4 < int(message[1])<<16|int(message[2])<<8|int(message[3]) {
		if len(read) < header || read[0] != handshake {
			return false
		}
		end := min(header+(int(read[3])<<8|int(read[4])), len(read))
		message = append(message, read[header:end]...)
		read = read[end:]
	}
	return true
}

// recorder is a connection that keeps what is read from it, up to MaxTLS, and drops what is written to it: the alerts of crypto/tls.
type recorder struct {
	from io.Reader
	read []byte
	err  error // of from
}

func (c *recorder) Read(p []byte) (int, error) {
	left := MaxTLS - len(c.read)
	if left == 0 {
		c.err = errTooLong
	}
	if c.err != nil {
		return 0, c.err
	}
	n, err := c.from.Read(p[:min(len(p), left)])
	c.read = append(c.read, p[:n]...)
	c.err = err
	return n, err
}

func (c *recorder) Write(p []byte) (int, error)      { return len(p), nil }
func (c *recorder) Close() error                     { return nil }
func (c *recorder) LocalAddr() net.Addr              { return nil }
func (c *recorder) RemoteAddr() net.Addr             { return nil }
func (c *recorder) SetDeadline(time.Time) error      { return nil }
func (c *recorder) SetReadDeadline(time.Time) error  { return nil }
func (c *recorder) SetWriteDeadline(time.Time) error { return nil }
