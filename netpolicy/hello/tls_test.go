package hello

import (
	"bytes"
	"crypto/ecdh"
	"crypto/rand"
	"crypto/tls"
	"encoding/binary"
	"errors"
	"io"
	"net"
	"os"
	"runtime"
	"strings"
	"testing"
	"testing/iotest"
	"time"

	"skillbox/policy"
)

// helloOf is what a real client sends first.
func helloOf(t testing.TB, config *tls.Config) []byte {
	t.Helper()
	here, there := net.Pipe()
	defer here.Close()
	go func() {
		_ = tls.Client(there, config).Handshake()
		there.Close()
	}()
	header := make([]byte, 5)
	if _, err := io.ReadFull(here, header); err != nil {
		t.Fatal(err)
	}
	body := make([]byte, binary.BigEndian.Uint16(header[3:]))
	if _, err := io.ReadFull(here, body); err != nil {
		t.Fatal(err)
	}
	return append(header, body...)
}

// sized is data with its length before it, in so many bytes.
func sized(bytes int, data ...[]byte) []byte {
	var all []byte
	for _, d := range data {
		all = append(all, d...)
	}
	length := binary.BigEndian.AppendUint32(nil, uint32(len(all)))
	return append(length[4-bytes:], all...)
}

func extension(kind uint16, data ...[]byte) []byte {
	return append(binary.BigEndian.AppendUint16(nil, kind), sized(2, data...)...)
}

func hostName(kind byte, name string) []byte { return append([]byte{kind}, sized(2, []byte(name))...) }

func sni(names ...[]byte) []byte { return extension(0, sized(2, names...)) }

// message is a ClientHello of nothing but the extensions.
func message(extensions ...[]byte) []byte {
	body := append([]byte{3, 3}, make([]byte, 32)...)                          // version and random
	body = append(body, 0, 0, 4, 0x0a, 0x0a, 0x13, 0x01, 1, 0)                 // session, suites with GREASE (RFC 8701), compression
	body = append(body, sized(2, append(extensions, extension(0x0a0a))...)...) // GREASE too
	return append([]byte{1}, sized(3, body)...)
}

// records is a message in records of so many bytes.
func records(message []byte, size int) (all []byte) {
	for len(message) > 0 {
		n := min(size, len(message))
		all = append(append(all, 22, 3, 1), sized(2, message[:n])...)
		message = message[n:]
	}
	return all
}

func named(name string) []byte { return records(message(sni(hostName(0, name))), 1<<14) }

func TestTheNameInAHello(t *testing.T) {
	const unparsed = "the client's TLS hello cannot be parsed"
	good := message(sni(hostName(0, "api.example.com")))
	warning := []byte{21, 3, 1, 0, 2, 1, 90}
	for _, c := range []struct {
		what string
		sent []byte
		want string // the name, or how the error begins
	}{
		{"a plain name", named("api.example.com"), "api.example.com"},
		{"upper case", named("API.Example.COM"), "api.example.com"},
		{"punycode", named("xn--bcher-kva.example"), "xn--bcher-kva.example"},
		{"no extension at all", records(append([]byte{1}, sized(3, append(append([]byte{3, 3}, make([]byte, 32)...), 0, 0, 2, 0x13, 1, 1, 0))...), 1<<14), "the client names no server (SNI)"},
		{"no server_name", records(message(), 1<<14), "the client names no server (SNI)"},
		{"an empty list", records(message(sni()), 1<<14), unparsed},
		{"an empty name", named(""), unparsed},
		{"a name of another type only", records(message(sni(hostName(1, "api.example.com"))), 1<<14), "the client names no server (SNI)"},
		{"two names", records(message(sni(hostName(0, "api.example.com"), hostName(0, "evil.example"))), 1<<14), unparsed},
		{"the same name twice", records(message(sni(hostName(0, "api.example.com"), hostName(0, "api.example.com"))), 1<<14), unparsed},
		{"two server_name extensions", records(message(sni(hostName(0, "api.example.com")), sni(hostName(0, "evil.example"))), 1<<14), unparsed},
		{"a trailing dot", named("api.example.com."), unparsed},
		{"bytes after the list", records(message(extension(0, sized(2, hostName(0, "api.example.com")), []byte{0})), 1<<14), unparsed},
		{"NUL", named("api.example.com\x00.evil.example"), "the client asks for"},
		{"a newline", named("api.example.com\n"), "the client asks for"},
		{"a blank", named(" api.example.com"), "the client asks for"},
		{"an underscore", named("a_b.example.com"), "the client asks for"},
		{"a wildcard", named("*.example.com"), "the client asks for"},
		{"a port", named("api.example.com:443"), "the client asks for"},
		{"an empty label", named("api..example.com"), "the client asks for"},
		{"a long label", named(strings.Repeat("a", 64) + ".example.com"), "the client asks for"},
		{"a long name", named(strings.Repeat("a.", 30000) + "com"), "the client asks for"},
		{"a name still to be mapped", named("bücher.example"), "the client asks for"},
		{"bad punycode", named("xn--0.example"), "the client asks for"},
		{"an IPv4 literal", named("93.184.215.14"), "the client asks for"},
		{"a number", named("2130706433"), "the client asks for"},
		{"hexadecimal", named("0x7f.1"), "the client asks for"},
		{"an IPv6 literal", named("::1"), "the client asks for"},
		{"an IPv6 literal in brackets", named("[::1]"), "the client asks for"},
		{"100 records", records(message(sni(hostName(0, "api.example.com")), extension(21, make([]byte, 100))), 2), "api.example.com"},
		{"a hello of 64 KiB", records(message(extension(21, make([]byte, 65000)), sni(hostName(0, "api.example.com"))), 1<<14), "api.example.com"},
		{"64 KiB in small records", records(message(extension(21, make([]byte, 65000)), sni(hostName(0, "api.example.com"))), 64), "api.example.com"},
		{"64 KiB in tiny records", records(message(extension(21, make([]byte, 65000)), sni(hostName(0, "api.example.com"))), 8), "the client sent no whole TLS hello: it is longer than"},
		{"a message of more than 64 KiB", records(append([]byte{1}, sized(3, make([]byte, 1<<17))...), 1<<14), unparsed},
		{"a warning before it", append(bytes.Clone(warning), records(good, 1<<14)...), "the client's TLS hello is mixed with other records"},
		{"a warning within it", append(append(records(good[:20], 20), warning...), records(good[20:], 1<<14)...), "the client's TLS hello is mixed with other records"},
		{"an empty record", append([]byte{22, 3, 1, 0, 0}, records(good, 1<<14)...), unparsed},
		{"an SSL 2 hello", []byte("\x80\x2e\x01\x03\x01\x00\x15\x00\x00\x00\x10" + strings.Repeat("x", 37)), unparsed},
		{"a ServerHello", records(append([]byte{2}, good[1:]...), 1<<14), unparsed},
		{"HTTP", []byte("GET / HTTP/1.1\r\nHost: api.example.com\r\n\r\n"), unparsed},
		{"half of it", records(good, 1<<14)[:40], "the client sent no whole TLS hello: unexpected EOF"},
		{"nothing", nil, "the client sent no whole TLS hello: unexpected EOF"},
	} {
		t.Run(c.what, func(t *testing.T) {
			for _, r := range []io.Reader{bytes.NewReader(c.sent), iotest.OneByteReader(bytes.NewReader(c.sent)), iotest.DataErrReader(bytes.NewReader(c.sent))} {
				name, read, err := TLS(r, policy.NormalizeName)
				if name != c.want && (err == nil || name != "" || !strings.HasPrefix(err.Error(), c.want)) {
					t.Errorf("got %.80q, error %v; want %q", name, err, c.want)
				}
				if !bytes.HasPrefix(c.sent, read) || err == nil && len(read) < len(c.sent) {
					t.Errorf("%d bytes were read of %d", len(read), len(c.sent))
				}
				if errors.Is(err, ErrNoName) != (c.want == "the client names no server (SNI)") {
					t.Errorf("%v is ErrNoName: %v", err, errors.Is(err, ErrNoName))
				}
			}
		})
	}
}

func TestRealClients(t *testing.T) {
	inner, public := "secret.example.com", "cdn.example.com"
	key, err := ecdh.X25519().GenerateKey(rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	// ECHConfig of RFC 9849 section 4: X25519, HKDF-SHA256, AES-128-GCM.
	config := append([]byte{7, 0, 0x20}, sized(2, key.PublicKey().Bytes())...)
	config = append(append(config, sized(2, []byte{0, 1, 0, 1})...), 0)
	config = append(append(config, sized(1, []byte(public))...), 0, 0)
	ech := sized(2, extension(0xfe0d, config))
	for _, c := range []struct {
		what   string
		config *tls.Config
		least  int // bytes of the hello
		want   string
	}{
		{"X25519MLKEM768", &tls.Config{ServerName: "api.example.com", CurvePreferences: []tls.CurveID{tls.X25519MLKEM768, tls.X25519}}, 1216, "api.example.com"},
		{"the default", &tls.Config{ServerName: "api.example.com"}, 200, "api.example.com"},
		{"TLS 1.2", &tls.Config{ServerName: "api.example.com", MaxVersion: tls.VersionTLS12}, 100, "api.example.com"},
		{"TLS 1.0", &tls.Config{ServerName: "api.example.com", MinVersion: tls.VersionTLS10, MaxVersion: tls.VersionTLS10}, 100, "api.example.com"},
		{"many protocols", &tls.Config{ServerName: "api.example.com", NextProtos: strings.Split(strings.Repeat("protocol ", 1500), " ")[:1500]}, 13000, "api.example.com"},
		{"an address", &tls.Config{ServerName: "93.184.215.14"}, 100, ""},
		{"ECH", &tls.Config{ServerName: inner, EncryptedClientHelloConfigList: ech, MinVersion: tls.VersionTLS13}, 200, public},
	} {
		t.Run(c.what, func(t *testing.T) {
			sent := helloOf(t, c.config)
			if len(sent) < c.least {
				t.Errorf("the hello has %d bytes", len(sent))
			}
			name, read, err := TLS(bytes.NewReader(sent), policy.NormalizeName)
			if name != c.want || (err != nil) != (c.want == "") || !bytes.Equal(read, sent) {
				t.Errorf("got %q, error %v, %d of %d bytes", name, err, len(read), len(sent))
			}
		})
	}
}

// A hello in 100 segments over a real connection, with early data behind it; no byte comes back.
func TestAHelloInSegments(t *testing.T) {
	before := runtime.NumGoroutine()
	client, server := net.Pipe()
	sent := append(helloOf(t, &tls.Config{ServerName: "api.example.com"}), "early"...)
	go func() {
		for part := sent; len(part) > 0; {
			n := min(1+len(sent)/100, len(part))
			if _, err := client.Write(part[:n]); err != nil {
				return
			}
			part = part[n:]
		}
	}()
	_ = server.SetReadDeadline(time.Now().Add(10 * time.Second))
	name, read, err := TLS(server, policy.NormalizeName)
	if name != "api.example.com" || err != nil || !bytes.HasPrefix(sent, read) {
		t.Errorf("got %q, error %v, %d of %d bytes", name, err, len(read), len(sent))
	}
	client.Close()
	server.Close()
	for end := time.Now().Add(5 * time.Second); runtime.NumGoroutine() > before; time.Sleep(time.Millisecond) {
		if time.Now().After(end) {
			t.Fatalf("%d goroutines, %d before", runtime.NumGoroutine(), before)
		}
	}
}

func TestARefusedClientIsToldNothing(t *testing.T) {
	client, server := net.Pipe()
	defer client.Close()
	go func() { _, _ = client.Write(named("api.example.com.")) }()
	_, _, err := TLS(server, policy.NormalizeName) // a write to the pipe would block
	if err == nil {
		t.Error("it was accepted")
	}
}

func TestASilentClientMeetsTheDeadline(t *testing.T) {
	client, server := net.Pipe()
	defer client.Close()
	_ = server.SetReadDeadline(time.Now().Add(10 * time.Millisecond))
	if _, _, err := TLS(server, policy.NormalizeName); !errors.Is(err, os.ErrDeadlineExceeded) {
		t.Error(err)
	}
}

func BenchmarkTLS(b *testing.B) {
	sent := helloOf(b, &tls.Config{ServerName: "api.example.com"})
	for b.Loop() {
		if _, _, err := TLS(bytes.NewReader(sent), policy.NormalizeName); err != nil {
			b.Fatal(err)
		}
	}
}
