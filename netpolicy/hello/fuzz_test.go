package hello

import (
	"bufio"
	"bytes"
	"crypto/tls"
	"io"
	"net/http"
	"strings"
	"testing"
	"testing/iotest"

	"skillbox/policy"
)

func checkNormal(t *testing.T, name string) {
	t.Helper()
	if again, err := policy.NormalizeName(name); err != nil || again != name {
		t.Fatalf("%q is not in normal form: %q, error %v", name, again, err)
	}
}

func FuzzTLS(f *testing.F) {
	f.Add(helloOf(f, &tls.Config{ServerName: "api.example.com"}))
	f.Add(helloOf(f, &tls.Config{ServerName: "api.example.com", MaxVersion: tls.VersionTLS12}))
	f.Add(records(message(sni(hostName(0, "API.example.com"))), 3))
	f.Add(records(message(sni(hostName(0, "a.example"), hostName(0, "b.example"))), 1<<14))
	f.Fuzz(func(t *testing.T, sent []byte) {
		name, read, err := TLS(bytes.NewReader(sent), policy.NormalizeName)
		if !bytes.HasPrefix(sent, read) || len(read) > MaxTLS {
			t.Fatal("what was read is not what was sent")
		}
		slow, _, slowErr := TLS(iotest.OneByteReader(bytes.NewReader(sent)), policy.NormalizeName)
		if slow != name || (slowErr == nil) != (err == nil) {
			t.Fatalf("%q and %v become %q and %v byte by byte", name, err, slow, slowErr)
		}
		if err != nil {
			return
		}
		checkNormal(t, name)
		if Sniff(sent) != KindTLS {
			t.Fatal("a hello that does not look like TLS")
		}
	})
}

func FuzzHTTP(f *testing.F) {
	for _, s := range []string{
		request(host), request(host) + request("Host: evil.example"), request(host, "Upgrade: websocket") + "\x81\x00",
		"POST http://api.example.com:80/ HTTP/1.1\r\n" + host + "\r\nTransfer-Encoding: chunked\r\n\r\n5\r\nhello\r\n0\r\nX: y\r\n\r\n" + request(host),
		"POST / HTTP/1.0\r\n" + host + "\r\nContent-Length: 5\r\n\r\nhello" + request(host),
	} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, sent string) {
		q, err := read(strings.NewReader(sent), 80)
		if err != nil {
			return
		}
		checkNormal(t, q.Name())
		if Sniff([]byte(sent)) != KindHTTP {
			t.Fatal("a request that does not look like HTTP")
		}
		_ = q.Close() // no server agrees to anything
		var passed bytes.Buffer
		if n, err := q.WriteTo(&passed); int(n) != passed.Len() || !strings.HasPrefix(sent, passed.String()) || err == nil && passed.Len() != len(sent) {
			t.Fatalf("what was passed on is not what was sent: %q, error %v", passed.String(), err)
		}
		checkSeen(t, passed.String(), q.Name())
	})
}

// checkSeen lets net/http's server side read what was passed on: it must see no other name.
func checkSeen(t *testing.T, passed, name string) {
	t.Helper()
	for r := bufio.NewReader(strings.NewReader(passed)); ; {
		req, err := http.ReadRequest(r)
		if err != nil {
			return
		}
		seen := strings.ToLower(strings.TrimSuffix(strings.TrimSuffix(req.Host, ":80"), "."))
		if seen != name {
			t.Fatalf("a server sees %q, not %q", seen, name)
		}
		if _, err := io.Copy(io.Discard, req.Body); err != nil {
			return
		}
	}
}
