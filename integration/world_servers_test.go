//go:build linux

package integration

import (
	"bufio"
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"strconv"
	"strings"
)

// Ports of the internet, on every address of it alike. 443 and 8443 speak TLS, with a certificate for whatever name is asked for.
var services = map[int]func(net.Conn){
	22:   speakFirst("SSH-2.0-world\r\n"),
	25:   speakFirst("220 world ESMTP\r\n"),
	5432: postgres,
	9999: echo,
	5353: echo,
	9:    func(c net.Conn) { _, _ = io.Copy(io.Discard, c) },
	19:   source,
}

// datagrams are the ports on which addresses echo datagrams, the public ones and the withheld ones alike.
var datagrams = []int{7, 443, 5000, 5353}

// Ports of the host's own services: on all its addresses, and on its loopback.
const openPort, loopbackPort = 7001, 7002

const abstractSocket = "@world"

// serveInternet starts all servers of the internet. It runs there.
func (w *world) serveInternet() error {
	var failed []error
	listen := func(port int, serve func(net.Listener)) {
		l, err := net.Listen("tcp", fmt.Sprintf(":%d", port))
		if err != nil {
			failed = append(failed, err)
			return
		}
		go serve(&listener{l, w.book})
	}
	for port, speak := range services {
		listen(port, each(speak))
	}
	for _, port := range []int{80, 8080} {
		listen(port, func(l net.Listener) { _ = w.web().Serve(l) })
	}
	for _, port := range []int{443, 8443, 853} {
		listen(port, func(l net.Listener) { _ = w.web().ServeTLS(l, "", "") })
	}
	for _, addr := range append(append([]string{gatewayAddr, gatewayAddr6}, public...), withheld...) {
		for _, port := range datagrams {
			failed = append(failed, w.echoDatagrams(addr, port))
		}
		if addr == resolverAddr || addr == "8.8.8.8" || addr == "1.1.1.1" || addr == "169.254.169.254" || addr == "10.1.2.3" {
			failed = append(failed, w.serveDNS(addr))
		}
	}
	return errors.Join(failed...)
}

// serveHost starts the host's own services.
func (w *world) serveHost() error {
	var failed []error
	for _, at := range []struct{ network, addr string }{
		{"tcp4", join("0.0.0.0", openPort)},
		{"tcp6", join("::", openPort)},
		{"tcp4", join("127.0.0.1", loopbackPort)},
		{"tcp6", join("::1", loopbackPort)},
		{"unix", abstractSocket},
	} {
		l, err := net.Listen(at.network, at.addr)
		if err != nil {
			failed = append(failed, err)
			continue
		}
		if at.network == "unix" {
			go each(func(net.Conn) { w.book.write(func() { w.book.unixes++ }) })(l)
			continue
		}
		go each(speakFirst("the host\r\n"))(&listener{l, w.book})
	}
	for _, at := range []string{"127.0.0.1", "::1", hostAddr, hostAddr6} {
		failed = append(failed, w.echoDatagrams(at, openPort))
	}
	return errors.Join(append(failed, w.serveDNS("127.0.0.53"))...)
}

// listener writes connections and what comes over them into the book.
type listener struct {
	net.Listener
	book *book
}

type conn struct {
	net.Conn
	book  *book
	visit *visit
}

func (l *listener) Accept() (net.Conn, error) {
	c, err := l.Listener.Accept()
	if err != nil {
		return nil, err
	}
	return &conn{c, l.book, l.book.enter(c.LocalAddr(), c.RemoteAddr())}, nil
}

func (c *conn) Read(p []byte) (int, error) {
	n, err := c.Conn.Read(p)
	c.book.receive(c.visit, p[:n])
	return n, err
}

// each serves every connection in a goroutine of its own.
func each(speak func(net.Conn)) func(net.Listener) {
	return func(l net.Listener) {
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			go func() {
				defer c.Close()
				speak(c)
			}()
		}
	}
}

func speakFirst(banner string) func(net.Conn) {
	return func(c net.Conn) {
		_, _ = io.WriteString(c, banner)
		echo(c)
	}
}

func echo(c net.Conn) { _, _ = io.Copy(c, c) }

// postgres answers the eight bytes by which a client asks for TLS with one byte: no.
func postgres(c net.Conn) {
	if _, err := io.ReadFull(c, make([]byte, 8)); err == nil {
		_, _ = io.WriteString(c, "N")
		echo(c)
	}
}

// source sends as many bytes as the client's line says.
func source(c net.Conn) {
	line, _ := bufio.NewReader(c).ReadString('\n')
	n, _ := strconv.ParseInt(strings.TrimSpace(line), 10, 64)
	_, _ = io.CopyN(c, zeros{}, n)
}

type zeros struct{}

func (zeros) Read(p []byte) (int, error) { return len(p), nil }

type visitKey struct{}

// web is a server that answers every request, HTTP/2 without TLS and CONNECT among them, with what it was asked for.
func (w *world) web() *http.Server {
	protocols := new(http.Protocols)
	protocols.SetHTTP1(true)
	protocols.SetHTTP2(true)
	protocols.SetUnencryptedHTTP2(true)
	return &http.Server{
		Handler: http.HandlerFunc(w.page), ErrorLog: silent, Protocols: protocols,
		ConnContext: func(ctx context.Context, c net.Conn) context.Context {
			if t, ok := c.(*tls.Conn); ok {
				c = t.NetConn()
			}
			return context.WithValue(ctx, visitKey{}, c.(*conn).visit)
		},
		TLSConfig: &tls.Config{GetConfigForClient: func(h *tls.ClientHelloInfo) (*tls.Config, error) {
			v := h.Conn.(*conn).visit
			w.book.write(func() { v.names = append(v.names, h.ServerName) })
			return nil, nil
		}, GetCertificate: w.ca.certificate},
	}
}

// page says which page it is. /to leads to the address in its query, /bytes has as many as its query says, /git has what w.files names.
func (w *world) page(rw http.ResponseWriter, r *http.Request) {
	v := r.Context().Value(visitKey{}).(*visit)
	w.book.write(func() { v.hosts = append(v.hosts, r.Host+r.URL.Path) })
	switch {
	case r.URL.Path == "/to":
		http.Redirect(rw, r, r.URL.RawQuery, http.StatusFound)
	case r.URL.Path == "/bytes":
		n, _ := strconv.ParseInt(r.URL.RawQuery, 10, 64)
		_, _ = io.CopyN(rw, zeros{}, n)
	case strings.HasPrefix(r.URL.Path, "/git/"):
		http.StripPrefix("/git/", http.FileServer(http.Dir(w.repository))).ServeHTTP(rw, r)
	default:
		n, _ := io.Copy(io.Discard, r.Body)
		fmt.Fprintf(rw, "page %s of %s, %d bytes came\n", r.URL.Path, r.Host, n)
	}
}

// echoDatagrams answers on a port of one address: answers must come from where the question went.
func (w *world) echoDatagrams(addr string, port int) error {
	u, err := net.ListenPacket("udp", join(addr, port))
	if err != nil {
		return err
	}
	go func() {
		buffer := make([]byte, 64<<10)
		for {
			n, from, err := u.ReadFrom(buffer)
			if err != nil {
				return
			}
			w.book.receive(w.book.enter(u.LocalAddr(), from), buffer[:n])
			_, _ = u.WriteTo(buffer[:n], from)
		}
	}()
	return nil
}
