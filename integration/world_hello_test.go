//go:build linux

package integration

import (
	"crypto/ecdh"
	"crypto/rand"
	"crypto/tls"
	"encoding/binary"
	"io"
	"net"
	"testing"
)

// helloFor is what a TLS client sends first: crypto/tls's own, with this name.
func helloFor(t *testing.T, name string, change ...func(*tls.Config)) []byte {
	t.Helper()
	here, there := net.Pipe()
	defer here.Close()
	c := &tls.Config{ServerName: name, InsecureSkipVerify: true}
	for _, f := range change {
		f(c)
	}
	go func() {
		_ = tls.Client(there, c).Handshake()
		there.Close()
	}()
	head := make([]byte, 5)
	if _, err := io.ReadFull(here, head); err != nil {
		t.Fatal(err)
	}
	body := make([]byte, binary.BigEndian.Uint16(head[3:]))
	if _, err := io.ReadFull(here, body); err != nil {
		t.Fatal(err)
	}
	return append(head, body...)
}

// sized is data behind its length, in so many bytes.
func sized(bytes int, data ...[]byte) []byte {
	var all []byte
	for _, d := range data {
		all = append(all, d...)
	}
	return append(binary.BigEndian.AppendUint32(nil, uint32(len(all)))[4-bytes:], all...)
}

// hostName is a name as the server_name extension lists it (RFC 6066 section 3).
func hostName(name string) []byte { return append([]byte{0}, sized(2, []byte(name))...) }

func extension(kind uint16, data ...[]byte) []byte {
	return append(binary.BigEndian.AppendUint16(nil, kind), sized(2, data...)...)
}

// helloNaming is the hello of a real client with these names in place of its own, and more extensions: what no TLS library writes.
func helloNaming(t *testing.T, name string, more ...[]byte) []byte {
	t.Helper()
	return records(messageNaming(t, []string{name}, more...), 1<<14)
}

// messageNaming is the handshake message in it. It rewrites every length around the names.
func messageNaming(t *testing.T, names []string, more ...[]byte) []byte {
	t.Helper()
	message := helloFor(t, "stand-in.invalid")[5:] // kind, 3 bytes of length, body
	at := 4 + 2 + 32                               // version and random
	at += 1 + int(message[at])
	at += 2 + int(binary.BigEndian.Uint16(message[at:]))
	at += 1 + int(message[at])
	head, extensions := message[4:at], message[at+2:]
	var listed, all []byte
	for _, n := range names {
		listed = append(listed, hostName(n)...)
	}
	for len(extensions) > 0 {
		n := 4 + int(binary.BigEndian.Uint16(extensions[2:]))
		if binary.BigEndian.Uint16(extensions) == 0 {
			all = append(all, extension(0, sized(2, listed))...)
		} else {
			all = append(all, extensions[:n]...)
		}
		extensions = extensions[n:]
	}
	for _, e := range more {
		all = append(all, e...)
	}
	return append([]byte{1}, sized(3, head, sized(2, all))...)
}

// withoutName is a hello that has no name at all.
func withoutName(t *testing.T) []byte {
	return helloFor(t, "20.1.1.10") // crypto/tls sends no address as a name
}

// encryptedHello hides a name in a hello to another (ECH, RFC 9849).
func encryptedHello(t *testing.T, outer, inner string) []byte {
	t.Helper()
	key, err := ecdh.X25519().GenerateKey(rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	config := append([]byte{7, 0, 0x20}, sized(2, key.PublicKey().Bytes())...) // X25519, HKDF-SHA256, AES-128-GCM
	config = append(append(config, sized(2, []byte{0, 1, 0, 1})...), 0)
	config = append(append(config, sized(1, []byte(outer))...), 0, 0)
	return helloFor(t, inner, func(c *tls.Config) {
		c.EncryptedClientHelloConfigList, c.MinVersion = sized(2, extension(0xfe0d, config)), tls.VersionTLS13
	})
}

// records is a handshake message in records of so many bytes.
func records(message []byte, size int) (all []byte) {
	for len(message) > 0 {
		n := min(size, len(message))
		all = append(append(all, 22, 3, 1), sized(2, message[:n])...)
		message = message[n:]
	}
	return all
}

// segments cuts into parts of so many bytes.
func segments(data []byte, size int) (parts [][]byte) {
	for len(data) > 0 {
		n := min(size, len(data))
		parts = append(parts, data[:n])
		data = data[n:]
	}
	return parts
}
