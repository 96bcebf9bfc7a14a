package hello

import (
	"bufio"
	"bytes"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"strings"
	"testing"
	"testing/iotest"
	"time"

	"skillbox/policy"
)

func read(r io.Reader, port uint16) (*Requests, error) {
	return HTTP(bufio.NewReader(r), port, policy.NormalizeName)
}

// request is a GET with these lines below the first.
func request(lines ...string) string {
	return "GET / HTTP/1.1\r\n" + strings.Join(append(lines, "", ""), "\r\n")
}

const host = "Host: api.example.com"

func TestTheFirstRequest(t *testing.T) {
	const malformed = "the client's HTTP request is not well formed"
	const target = "the client's HTTP request has a target that is neither a path nor an http address"
	long := strings.Repeat("x", MaxHead)
	for _, c := range []struct {
		what, sent, want string // the name, or how the error begins
	}{
		{"a plain Host", request(host), "api.example.com"},
		{"upper case", request("HOST: API.Example.com"), "api.example.com"},
		{"a trailing dot", request("Host: api.example.com."), "api.example.com"},
		{"the port that was dialled", request("Host: api.example.com:8080"), "api.example.com"},
		{"blanks around the name", request("Host: \t api.example.com \t"), "api.example.com"},
		{"HTTP/1.0", "GET / HTTP/1.0\r\n" + host + "\r\n\r\n", "api.example.com"},
		{"OPTIONS *", "OPTIONS * HTTP/1.1\r\n" + host + "\r\n\r\n", "api.example.com"},
		{"a path that begins like an authority", "GET //evil.example/ HTTP/1.1\r\n" + host + "\r\n\r\n", "api.example.com"},
		{"a head of 60 KiB", request(host, "Cookie: "+long[:60000]), "api.example.com"},
		{"an absolute target", "GET http://API.example.com/x?y HTTP/1.1\r\n" + host + "\r\n\r\n", "api.example.com"},
		{"an absolute target with the port", "GET http://api.example.com:8080 HTTP/1.1\r\n" + host + "\r\n\r\n", "api.example.com"},
		{"an h2c upgrade, which is only a request", request(host, "Connection: Upgrade, HTTP2-Settings", "Upgrade: h2c", "HTTP2-Settings: AAMAAABk"), "api.example.com"},

		{"no Host", request("Accept: */*"), "the client names no server (Host)"},
		{"an empty Host", request("Host:"), "the client names no server (Host)"},
		{"HTTP/1.0 without Host", "GET / HTTP/1.0\r\n\r\n", "the client names no server (Host)"},
		{"an absolute target without Host", "GET http://api.example.com/ HTTP/1.1\r\n\r\n", "the client names no server (Host)"},
		{"two Host", request(host, "Host: evil.example"), "the client's HTTP request has several Host"},
		{"the same Host twice", request(host, host), "the client's HTTP request has several Host"},
		{"two names in one Host", request("Host: api.example.com, evil.example"), "the client asks for"},
		{"another port", request("Host: api.example.com:443"), `the client asks for "api.example.com:443" on a connection to port 8080`},
		{"an empty port", request("Host: api.example.com:"), "the client asks for"},
		{"a port with a zero before it", request("Host: api.example.com:08080"), "the client asks for"},
		{"a user name", request("Host: api.example.com@evil.example"), "the client's HTTP request has a user name"},
		{"a password", request("Host: api.example.com:secret@evil.example"), "the client's HTTP request has a user name"},
		{"a path in Host", request("Host: api.example.com/evil"), "the client asks for"},
		{"an underscore", request("Host: a_b.example.com"), "the client asks for"},
		{"a name still to be mapped", request("Host: bücher.example"), "the client asks for"},
		{"an escape", request("Host: api%2eexample.com"), "the client asks for"},
		{"NUL", request("Host: api.example.com\x00.evil.example"), "the client sent a line of HTTP with the control byte 0x00"},
		{"an IPv4 literal", request("Host: 93.184.215.14"), "the client asks for"},
		{"hexadecimal", request("Host: 0x7f.1"), "the client asks for"},
		{"an IPv6 literal", request("Host: [::1]"), "the client asks for"},
		{"an IPv6 literal with the port", request("Host: [::1]:8080"), "the client asks for"},

		{"an absolute target and another Host", "GET http://evil.example/ HTTP/1.1\r\n" + host + "\r\n\r\n", "the client's HTTP request names evil.example in its target and api.example.com in its Host"},
		{"an absolute target with a user", "GET http://api.example.com@evil.example/ HTTP/1.1\r\n" + host + "\r\n\r\n", "the client's HTTP request has a user name"},
		{"an absolute target on another port", "GET http://api.example.com:81/ HTTP/1.1\r\n" + host + "\r\n\r\n", "the client asks for"},
		{"an absolute target with an escape", "GET http://api%2eexample.com/ HTTP/1.1\r\n" + host + "\r\n\r\n", malformed},
		{"an absolute target with a backslash", "GET http://api.example.com\\.evil.example/ HTTP/1.1\r\n" + host + "\r\n\r\n", malformed},
		{"an absolute target without a host", "GET http:///x HTTP/1.1\r\n" + host + "\r\n\r\n", "the client asks for"},
		{"https", "GET https://api.example.com/ HTTP/1.1\r\n" + host + "\r\n\r\n", target},
		{"an opaque target", "GET http:evil.example HTTP/1.1\r\n" + host + "\r\n\r\n", target},
		{"a target that is a name", "GET evil.example HTTP/1.1\r\n" + host + "\r\n\r\n", malformed},
		{"GET *", "GET * HTTP/1.1\r\n" + host + "\r\n\r\n", target},
		{"a fragment", "GET /#http://evil.example HTTP/1.1\r\n" + host + "\r\n\r\n", "the client's HTTP request has a fragment"},
		{"CONNECT", "CONNECT api.example.com:8080 HTTP/1.1\r\n" + host + "\r\n\r\n", "the client asks for a tunnel (CONNECT)"},

		{"h2c", "PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n", "the client speaks HTTP/2 without TLS (h2c)"},
		{"HTTP/0.9", "GET /\r\n", "the client does not speak HTTP/1"},
		{"HTTP/1.2", "GET / HTTP/1.2\r\n" + host + "\r\n\r\n", "the client does not speak HTTP/1"},
		{"HTTP/2 as text", "GET / HTTP/2.0\r\n" + host + "\r\n\r\n", "the client does not speak HTTP/1"},
		{"two blanks", "GET  / HTTP/1.1\r\n" + host + "\r\n\r\n", "the client does not speak HTTP/1"},
		{"an empty target", "GET  HTTP/1.1\r\n" + host + "\r\n\r\n", "the client does not speak HTTP/1"},
		{"an empty line first", "\r\n" + request(host), "the client does not speak HTTP/1"},
		{"TLS", "\x16\x03\x01\x00\x05hello", "the client does not speak HTTP/1"},
		{"a bare LF", "GET / HTTP/1.1\n" + host + "\n\n", "the client sent a line of HTTP that does not end in CRLF"},
		{"a bare LF at the end", "GET / HTTP/1.1\r\n" + host + "\r\n\n", "the client sent a line of HTTP that does not end in CRLF"},
		{"a bare CR", request(host + "\rHost: evil.example"), "the client sent a line of HTTP with the control byte 0x0d"},
		{"a folded Host", request("Host:", " api.example.com"), "the client sent an HTTP field that is folded"},
		{"a folded field", request(host, "X: a", "\tHost: evil.example"), "the client sent an HTTP field that is folded"},
		{"a blank before the colon", request(host, "Host : evil.example"), "the client sent an HTTP field without a proper name"},
		{"a field without a colon", request(host, "secret"), "the client sent an HTTP field without a proper name"},
		{"a field without a name", request(host, ": x"), "the client sent an HTTP field without a proper name"},

		{"both lengths", request(host, "Content-Length: 5", "Transfer-Encoding: chunked"), "the client's HTTP request has both"},
		{"two lengths", request(host, "Content-Length: 5", "Content-Length: 6"), "the client's HTTP request has several Content-Length"},
		{"one length twice", request(host, "Content-Length: 5", "content-length: 5"), "the client's HTTP request has several Content-Length"},
		{"a list of lengths", request(host, "Content-Length: 5, 5"), malformed},
		{"a signed length", request(host, "Content-Length: +5"), malformed},
		{"a huge length", request(host, "Content-Length: 99999999999999999999"), malformed},
		{"gzip, chunked", request(host, "Transfer-Encoding: gzip, chunked"), malformed},
		{"chunked twice", request(host, "Transfer-Encoding: chunked", "Transfer-Encoding: chunked"), malformed},
		{"xchunked", request(host, "Transfer-Encoding: xchunked"), malformed},
		{"identity", request(host, "Transfer-Encoding: identity"), malformed},
		{"chunked in HTTP/1.0", "POST / HTTP/1.0\r\n" + host + "\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n", "the client's HTTP/1.0 request has Transfer-Encoding"},

		{"a long head", request(host, "Cookie: "+long), "the client sent more than 65536 bytes"},
		{"a long line without end", "GET /" + long, "the client sent more than 65536 bytes"},
		{"half a head", "GET / HTTP/1.1\r\nHo", "the client sent no whole HTTP request: unexpected EOF"},
		{"nothing", "", "the client sent no HTTP request: unexpected EOF"},
	} {
		t.Run(c.what, func(t *testing.T) {
			for _, r := range []io.Reader{strings.NewReader(c.sent), iotest.OneByteReader(strings.NewReader(c.sent))} {
				q, err := read(r, 8080)
				switch {
				case err != nil && !strings.HasPrefix(err.Error(), c.want):
					t.Errorf("error %v, want %q", err, c.want)
				case err == nil && q.Name() != c.want:
					t.Errorf("accepted as %s, want %q", q.Name(), c.want)
				case err != nil && strings.Contains(err.Error(), "secret"):
					t.Errorf("the error says what the client sent: %v", err)
				case errors.Is(err, ErrNoName) != (c.want == "the client names no server (Host)"):
					t.Errorf("%v is ErrNoName: %v", err, errors.Is(err, ErrNoName))
				}
			}
		})
	}
}

// What passes before the second request is refused, and why.
func TestFurtherRequests(t *testing.T) {
	get, evil := request(host), request("Host: evil.example")
	post := "POST / HTTP/1.1\r\n" + host + "\r\nContent-Length: 5\r\n\r\nhello"
	chunked := "POST / HTTP/1.1\r\n" + host + "\r\nTransfer-Encoding: chunked\r\n\r\n"
	const other = "the client asks for evil.example on a connection to api.example.com"
	for _, c := range []struct {
		what, passed, held, want string
	}{
		{"one request", get, "", ""},
		{"two", get + get, "", ""},
		{"a body each", post + post + get, "", ""},
		{"the same name in another form", get + request("Host: API.EXAMPLE.COM.:80"), "", ""},
		{"chunks", chunked + "5\r\nhello\r\nA\r\n0123456789\r\n0\r\n\r\n" + get, "", ""},
		{"chunks with trailers", chunked + "5\r\nhello\r\n0\r\nDigest: x\r\n\r\n" + get, "", ""},
		{"a large chunk", chunked + "20000\r\n" + strings.Repeat("x", 0x20000) + "\r\n0\r\n\r\n" + get, "", ""},
		{"a body that looks like a request", strings.Replace(post, "5\r\n\r\nhello", fmt.Sprint(len(evil))+"\r\n\r\n"+evil, 1) + get, "", ""},

		{"a second Host", get, evil, other},
		{"a second Host after a body", post, evil, other},
		{"a second Host after chunks", chunked + "5\r\nhello\r\n0\r\n\r\n", evil, other},
		{"a second Host after Connection: close", request(host, "Connection: close"), evil, other},
		{"a second Host after 100 requests", strings.Repeat(get, 100), evil, other},
		{"a second request without Host", get, request("Accept: */*"), "the client names no server (Host)"},
		{"a second absolute target", get, "GET http://evil.example/ HTTP/1.1\r\n" + host + "\r\n\r\n", "the client's HTTP request names evil.example in its target"},
		{"CONNECT and CONNECT", get, "CONNECT evil.example:80 HTTP/1.1\r\n" + host + "\r\n\r\nCONNECT evil.example:80 HTTP/1.1\r\n", "the client asks for a tunnel"},
		{"a body longer than its length", post + "x" + get, evil, other}, // xGET is a method
		{"a body without a length", "POST / HTTP/1.1\r\n" + host + "\r\n\r\n", "hello\r\n", "the client does not speak HTTP/1"},
		{"h2c after an upgrade", request(host, "Connection: Upgrade", "Upgrade: h2c"), "PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n", "the client speaks HTTP/2 without TLS"},
		{"TLS after an upgrade", request(host, "Connection: Upgrade", "Upgrade: TLS/1.2"), "\x16\x03\x01\x00\x0a", "the client does not speak HTTP/1"},
		{"WebSocket in a later request", get + request(host, "Connection: Upgrade", "Upgrade: websocket"), "\x81\x05hello", "the client does not speak HTTP/1"},
		{"a half request", get, get[:10], "the client sent no whole HTTP request: unexpected EOF"},
		{"a half body", post[:len(post)-1], "", "the client sent no whole HTTP request: unexpected EOF"},
		{"a half chunk", chunked + "5\r\nhel", "", "the client sent no whole HTTP request: unexpected EOF"},
		{"half of what ends a chunk", chunked + "5\r\nhello", "\r", "the client sent no whole HTTP request: unexpected EOF"},
		{"no trailers", chunked, "0\r\n", "the client sent no whole HTTP request: unexpected EOF"},

		{"a chunk longer than its size", chunked, "5\r\nhello!\r\n0\r\n\r\n", "the client sent a chunk that is longer"},
		{"a chunk extension", chunked, "5;x=y\r\nhello\r\n0\r\n\r\n", "the client sent a chunk whose size is not a plain number"},
		{"a chunk size with a blank", chunked, "5 \r\nhello\r\n0\r\n\r\n", "the client sent a chunk whose size is not a plain number"},
		{"a chunk size with 0x", chunked, "0x5\r\nhello\r\n0\r\n\r\n", "the client sent a chunk whose size is not a plain number"},
		{"a negative chunk size", chunked, "-5\r\nhello\r\n0\r\n\r\n", "the client sent a chunk whose size is not a plain number"},
		{"no chunk size", chunked, "\r\nhello\r\n0\r\n\r\n", "the client sent a chunk whose size is not a plain number"},
		{"a chunk size that overflows", chunked, "10000000000000005\r\nhello\r\n0\r\n\r\n", "the client sent a chunk whose size is not a plain number"},
		{"the largest chunk size", chunked + "7fffffffffffffff\r\nhello", "", "the client sent no whole HTTP request: unexpected EOF"},
		{"a chunk size after a bare LF", chunked, "5\nhello\r\n0\r\n\r\n", "the client sent a line of HTTP that does not end in CRLF"},
		{"Host as a trailer", chunked, "0\r\nHost: evil.example\r\n\r\n", "the client sent host as a trailer"},
		{"Content-Length as a trailer", chunked, "0\r\nContent-Length: 99\r\n\r\n", "the client sent content-length as a trailer"},
		{"a folded trailer", chunked, "0\r\nX: a\r\n b\r\n\r\n", "the client sent an HTTP field that is folded"},
		{"trailers without end", chunked, "0\r\n" + strings.Repeat("X: y\r\n", MaxHead/6+1), "the client sent more than 65536 bytes"},
	} {
		t.Run(c.what, func(t *testing.T) {
			sent := c.passed + c.held
			for _, r := range []io.Reader{strings.NewReader(sent), iotest.OneByteReader(strings.NewReader(sent)), iotest.DataErrReader(strings.NewReader(sent))} {
				q, err := read(r, 80)
				if err != nil {
					t.Fatal(err)
				}
				var passed bytes.Buffer
				n, err := q.WriteTo(&passed)
				if int(n) != passed.Len() {
					t.Errorf("says %d bytes for %d", n, passed.Len())
				}
				if got := fmt.Sprint(err); c.want == "" && err != nil || c.want != "" && !strings.HasPrefix(got, c.want) {
					t.Errorf("error %v, want %q", err, c.want)
				}
				// The data of a chunk may pass before what is wrong after it comes.
				if got := passed.String(); !strings.HasPrefix(got, c.passed) || !strings.HasPrefix(sent, got) {
					t.Errorf("passed %.200q, want %.200q", got, c.passed)
				}
				var to *OtherHost
				if errors.As(err, &to) != (c.want == other) || to != nil && (to.Name != "evil.example" || to.Checked != "api.example.com") {
					t.Errorf("%#v", err)
				}
				if strings.Contains(passed.String(), "Host: evil.example") && !strings.HasSuffix(c.what, "looks like a request") {
					t.Errorf("another Host was passed on")
				}
			}
		})
	}
}

func TestWebSocket(t *testing.T) {
	ask := request(host, "Connection: Upgrade", "Upgrade: WebSocket", "Sec-WebSocket-Key: x")
	evil := request("Host: evil.example")
	const agreed = "HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n\r\n"
	for _, c := range []struct {
		what, answer string
		passes       bool
	}{
		{"agreed", agreed, true},
		{"agreed after a hint", "HTTP/1.1 103 Early Hints\r\nLink: x\r\n\r\n" + agreed, true},
		{"not agreed", "HTTP/1.1 200 OK\r\nContent-Length: 80\r\n\r\n" + agreed, false},
		{"agreed to something else", strings.Replace(agreed, "websocket", "h2c", 1), false},
		{"no HTTP", "hello\r\n\r\n" + agreed, false},
		{"half an answer", agreed[:30], false},
		{"no answer", "", false},
	} {
		t.Run(c.what, func(t *testing.T) {
			client, here := net.Pipe()
			defer client.Close()
			go func() {
				_, _ = io.WriteString(client, ask)
				_, _ = io.WriteString(client, evil)
				client.Close()
			}()
			q, err := read(here, 80)
			if err != nil {
				t.Fatal(err)
			}
			var passed bytes.Buffer
			done := make(chan error)
			go func() {
				_, err := q.WriteTo(&passed)
				done <- err
			}()
			select {
			case err := <-done:
				t.Fatalf("it did not wait for the answer: %v", err)
			case <-time.After(5 * time.Millisecond):
			}
			answer := bufio.NewReader(strings.NewReader(c.answer))
			raw, _ := q.Answer(answer)
			rest, _ := io.ReadAll(answer)
			if string(raw)+string(rest) != c.answer {
				t.Errorf("the answer became %q", string(raw)+string(rest))
			}
			err = <-done
			if c.passes && (err != nil || passed.String() != ask+evil) || !c.passes && (err == nil || passed.String() != ask) {
				t.Errorf("error %v, passed %q", err, passed.String())
			}
		})
	}
}

func TestAnAnswerIsReadOnlyForWebSocket(t *testing.T) {
	q, err := read(strings.NewReader(request(host, "Upgrade: h2c")), 80)
	if err != nil {
		t.Fatal(err)
	}
	if raw, err := q.Answer(bufio.NewReader(iotest.ErrReader(errors.New("it was read")))); raw != nil || err != nil {
		t.Error(raw, err)
	}
}

// A request passes before anything comes after it, body or not: nothing is kept back for more.
func TestNothingIsHeldBack(t *testing.T) {
	client, here := net.Pipe()
	there, server := net.Pipe()
	for _, c := range []net.Conn{client, here, there, server} {
		defer c.Close()
		_ = c.SetDeadline(time.Now().Add(10 * time.Second))
	}
	go func() {
		if q, err := read(here, 80); err == nil {
			_, _ = q.WriteTo(there)
		}
	}()
	for _, part := range []string{"POST / HTTP/1.1\r\n" + host + "\r\nTransfer-Encoding: chunked\r\n\r\n", "5\r\nhello", "\r\n", "5\r\nhello\r\n", "0\r\n\r\n", request(host)} {
		if _, err := io.WriteString(client, part); err != nil {
			t.Fatal(err)
		}
		got := make([]byte, len(part))
		if _, err := io.ReadFull(server, got); err != nil || string(got) != part {
			t.Fatalf("%q: got %q, error %v", part, got, err)
		}
	}
}

// A real client and a real server, with all the ways to send a body.
func TestNetHTTPPasses(t *testing.T) {
	for _, body := range []func() io.Reader{
		func() io.Reader { return nil },
		func() io.Reader { return strings.NewReader(strings.Repeat("x", 100_000)) },
		func() io.Reader {
			return io.MultiReader(strings.NewReader(strings.Repeat("x", 100_000)), strings.NewReader("y"))
		},
	} {
		var sent bytes.Buffer
		req, err := http.NewRequest("PUT", "http://api.example.com:80/x?y", body())
		if err != nil {
			t.Fatal(err)
		}
		for range 2 {
			again := req.Clone(t.Context())
			if b := body(); b != nil {
				again.Body = io.NopCloser(b)
			}
			if err := again.Write(&sent); err != nil {
				t.Fatal(err)
			}
		}
		want := sent.String()
		q, err := read(&sent, 80)
		if err != nil {
			t.Fatal(err)
		}
		var passed bytes.Buffer
		if _, err := q.WriteTo(&passed); err != nil || passed.String() != want {
			t.Errorf("error %v, %d of %d bytes", err, passed.Len(), len(want))
		}
	}
}

func BenchmarkHTTP(b *testing.B) {
	sent := request(host, "User-Agent: curl/8.5.0", "Accept: */*")
	for b.Loop() {
		q, err := read(strings.NewReader(sent), 80)
		if err != nil {
			b.Fatal(err)
		}
		if _, err := q.WriteTo(io.Discard); err != nil {
			b.Fatal(err)
		}
	}
}
