package gateway

import (
	"bufio"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"io"
	"math/big"
	"net"
	"time"
)

// sinkConn is a connection that is read from r and answered on w. Its own bounds hold, whatever deadlines are set.
type sinkConn struct {
	of *sink
	r  io.Reader
	w  io.Writer
}

func (c sinkConn) Read(p []byte) (int, error)       { return c.r.Read(p) }
func (c sinkConn) Write(p []byte) (int, error)      { return c.w.Write(p) }
func (c sinkConn) Close() error                     { return nil } // swallow does
func (c sinkConn) LocalAddr() net.Addr              { return c.of.box.LocalAddr() }
func (c sinkConn) RemoteAddr() net.Addr             { return c.of.box.RemoteAddr() }
func (c sinkConn) SetDeadline(time.Time) error      { return nil }
func (c sinkConn) SetReadDeadline(time.Time) error  { return nil }
func (c sinkConn) SetWriteDeadline(time.Time) error { return nil }

// serveTLS goes on within TLS, if the client takes whatever certificate it is shown: then what it says inside is heard. One that looks ends
// the connection, and its hello is on record.
func (c *sink) serveTLS(r *bufio.Reader) error {
	inner := tls.Server(sinkConn{c, r, c}, &tls.Config{MinVersion: tls.VersionTLS10, GetCertificate: selfSigned})
	if err := inner.Handshake(); err != nil {
		return err
	}
	if err := c.listen(bufio.NewReader(io.TeeReader(inner, (*plaintext)(c))), inner); err != nil {
		return err
	}
	return inner.CloseWrite()
}

// plaintext takes what the client says within TLS.
type plaintext sink

func (c *plaintext) Write(p []byte) (int, error) {
	c.said = append(c.said, p[:min(len(p), maxFirst-len(c.said))]...)
	return len(p), nil
}

// selfSigned makes a certificate for the name that a client asks for. Its key is nobody's: it is forgotten with the connection.
func selfSigned(hello *tls.ClientHelloInfo) (*tls.Certificate, error) {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return nil, err
	}
	now := time.Now()
	template := &x509.Certificate{
		SerialNumber: big.NewInt(now.UnixNano()), Subject: pkix.Name{CommonName: hello.ServerName},
		NotBefore: now.AddDate(0, -1, 0), NotAfter: now.AddDate(0, 2, 0), ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth},
	}
	if hello.ServerName != "" {
		template.DNSNames = []string{hello.ServerName}
	}
	der, err := x509.CreateCertificate(rand.Reader, template, template, key.Public(), key)
	if err != nil {
		return nil, err
	}
	return &tls.Certificate{Certificate: [][]byte{der}, PrivateKey: key}, nil
}
