//go:build linux

package integration

import (
	"strings"
	"testing"
)

// requests are first messages on port 80 and the verdict on each. A request that must not arrive has a path that says so.
func requests() []try {
	const api, shop, no = "api.allowed.example", "shop.cdn.example", "GET /" + mustNotArrive + " HTTP/1.1\r\n"
	at := func(name, addr, want, rule, send string) try {
		return try{name, talk{To: "tcp " + join(addr, 80), Send: once(send), Hold: 300}, want, rule}
	}
	post := func(fields, body string) string {
		return "POST /" + mustNotArrive + " HTTP/1.1\r\nHost: api.allowed.example\r\n" + fields + "\r\n\r\n" + body
	}
	get := func(host string) string { return "GET / HTTP/1.1\r\nHost: " + host + "\r\n\r\n" }
	bad := func(host string) string { return no + "Host: " + host + "\r\n\r\n" }
	const notName, unnamed, twice = "which is not a name", "names no server", "several Host"
	tries := []try{
		at("the name", apiAddr, reached, "", get(api)),
		at("the name and the port", apiAddr, reached, "", get(api+":80")),
		at("another letter case", apiAddr, reached, "", get("API.Allowed.EXAMPLE")),
		at("a dot at the end", apiAddr, reached, "", get(api+".")),
		at("an absolute target", apiAddr, reached, "", "GET http://api.allowed.example/ HTTP/1.1\r\nHost: api.allowed.example\r\n\r\n"),
		at("a body", apiAddr, reached, "", "POST / HTTP/1.1\r\nHost: api.allowed.example\r\nContent-Length: 5\r\n\r\nhello"),
		at("a chunked body", apiAddr, reached, "", "POST / HTTP/1.1\r\nHost: api.allowed.example\r\nTransfer-Encoding: chunked\r\n\r\n5\r\nhello\r\n0\r\n\r\n"),
		at("two requests", apiAddr, reached, "", get(api)+get(api)),
		at("HTTP/1.0 with a name", apiAddr, reached, "", "GET / HTTP/1.0\r\nHost: api.allowed.example\r\n\r\n"),
		at("the shared address's own", sharedAddr, reached, "", get(shop)),

		at("no Host", apiAddr, reset, unnamed, no+"\r\n"),
		at("an empty Host", apiAddr, reset, unnamed, bad("")),
		at("HTTP/1.0 without a name", apiAddr, reset, unnamed, "GET /"+mustNotArrive+" HTTP/1.0\r\n\r\n"),
		at("HTTP/0.9", apiAddr, reset, "", "GET /"+mustNotArrive+"\r\n"),
		at("another name", apiAddr, reset, "", bad("other.example")),
		at("a co-tenant's name", sharedAddr, reset, "", bad("evil.cdn.example")),
		at("the name of another address", sharedAddr, reset, "was not given out for", bad(api)),
		at("the name at an attacker's address", otherAddr, refused, "", bad(api)),
		at("another port", apiAddr, reset, "on a connection to port 80", bad(api+":8080")),
		at("two Hosts", apiAddr, reset, twice, no+"Host: api.allowed.example\r\nHost: other.example\r\n\r\n"),
		at("two Hosts in another order", apiAddr, reset, twice, no+"Host: other.example\r\nhost: api.allowed.example\r\n\r\n"),
		at("an address", apiAddr, reset, notName, bad(apiAddr)),
		at("a v6 address", apiAddr, reset, notName, bad("["+apiAddr6+"]")),
		at("a user", apiAddr, reset, "user name", bad("api.allowed.example@other.example")),
		at("a NUL", apiAddr, reset, "control byte", bad(api+"\x00.evil.example")),
		at("a folded Host", apiAddr, reset, "folded", no+"Host: other.example\r\n api.allowed.example\r\n\r\n"),
		at("a blank before the colon", apiAddr, reset, "proper name", no+"Host : other.example\r\nHost: api.allowed.example\r\n\r\n"),
		at("a bare line feed", apiAddr, reset, "CRLF", "GET /"+mustNotArrive+" HTTP/1.1\nHost: api.allowed.example\nHost: other.example\n\n"),
		at("a bare carriage return", apiAddr, reset, "control byte", no+"X: a\rHost: other.example\r\nHost: api.allowed.example\r\n\r\n"),
		at("an absolute target and another Host", apiAddr, reset, "names api.allowed.example in its target and other.example in its Host",
			"GET http://api.allowed.example/"+mustNotArrive+" HTTP/1.1\r\nHost: other.example\r\n\r\n"),
		at("another absolute target", apiAddr, reset, "names other.example in its target", "GET http://other.example/"+mustNotArrive+" HTTP/1.1\r\nHost: api.allowed.example\r\n\r\n"),
		at("a target with a user", apiAddr, reset, "user name", "GET http://api.allowed.example@other.example/"+mustNotArrive+" HTTP/1.1\r\nHost: other.example\r\n\r\n"),
		at("CONNECT", apiAddr, reset, "tunnel", "CONNECT api.allowed.example:80 HTTP/1.1\r\nHost: api.allowed.example\r\n\r\n"),
		at("CONNECT to another", apiAddr, reset, "tunnel", "CONNECT other.example:443 HTTP/1.1\r\nHost: api.allowed.example\r\n\r\n"),
		at("HTTP/2 from the start", apiAddr, reset, "h2c", "PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n\x00\x00\x00\x04\x00\x00\x00\x00\x00"),
		at("a length and chunks", apiAddr, reset, "both Content-Length and Transfer-Encoding", post("Content-Length: 5\r\nTransfer-Encoding: chunked", "0\r\n\r\n")),
		at("two lengths", apiAddr, reset, "several Content-Length", post("Content-Length: 5\r\nContent-Length: 0", "hello")),
		at("two lengths in one", apiAddr, reset, "not well formed", post("Content-Length: 5, 6", "hello")),
		at("an unknown encoding", apiAddr, reset, "not well formed", post("Transfer-Encoding: xchunked", "0\r\n\r\n")),
		at("chunks in HTTP/1.0", apiAddr, reset, "HTTP/1.0", "POST /"+mustNotArrive+" HTTP/1.0\r\nHost: api.allowed.example\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n"),
		at("SMTP", apiAddr, reset, "speaks neither", "EHLO "+mustNotArrive+"\r\n"),
		at("a head of 70 KiB", apiAddr, reset, "more than", no+"Host: api.allowed.example\r\nX: "+strings.Repeat("x", 70<<10)+"\r\n\r\n"),

		at("a second request to another name", apiAddr, cut, "the connection was made for api.allowed.example", get(api)+bad("other.example")),
		at("a second request to an allowed name of another address", apiAddr, cut, "the connection was made for", get(api)+bad(shop)),
		at("a second request without a name", apiAddr, cut, unnamed, get(api)+no+"\r\n"),
		at("CONNECT second", apiAddr, cut, "tunnel", get(api)+"CONNECT "+mustNotArrive+":443 HTTP/1.1\r\nHost: api.allowed.example\r\n\r\n"),
		at("HTTP/2 by an upgrade", apiAddr, cut, "h2c",
			"GET / HTTP/1.1\r\nHost: api.allowed.example\r\nConnection: Upgrade, HTTP2-Settings\r\nUpgrade: h2c\r\nHTTP2-Settings: AAMAAABkAAQAoAAAAAIAAAAA\r\n\r\nPRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"+mustNotArrive),
		at("a request behind a body's end", apiAddr, cut, "the connection was made for",
			"POST / HTTP/1.1\r\nHost: api.allowed.example\r\nContent-Length: 5\r\n\r\nhello"+bad("other.example")),
		at("a request behind the last chunk", apiAddr, cut, "the connection was made for",
			"POST / HTTP/1.1\r\nHost: api.allowed.example\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n"+bad("other.example")),
		at("a chunk with an extension", apiAddr, cut, "plain number",
			"POST / HTTP/1.1\r\nHost: api.allowed.example\r\nTransfer-Encoding: chunked\r\n\r\n5;x=\""+mustNotArrive+"\r\nhello\r\n0\r\n\r\n"),
		at("a chunk that is too long", apiAddr, cut, "longer than its size",
			"POST / HTTP/1.1\r\nHost: api.allowed.example\r\nTransfer-Encoding: chunked\r\n\r\n2\r\nhe"+mustNotArrive+"\r\n0\r\n\r\n"),
		at("a WebSocket that the server declines", apiAddr, cut, "the connection was made for",
			"GET / HTTP/1.1\r\nHost: api.allowed.example\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n\r\n"+bad("other.example")),
	}
	tries[0].talk.Look = []string{api, shop}
	return tries
}

func TestTheNameInHTTPIsChecked(t *testing.T) {
	inEachWay(t, func(t *testing.T, w *world, y way) { w.judge(t, y, y.policy(usual), requests()) })
}

// On ports where a name is not required it is checked all the same when the client speaks TLS or HTTP.
func TestTLSAndHTTPAreCheckedOnEveryPort(t *testing.T) {
	inEachWay(t, func(t *testing.T, w *world, y way) {
		at := func(name string, port int, want, rule string, send ...[]byte) try {
			return try{name, talk{Look: []string{"services.example"}, To: "tcp " + join(servicesAddr, port), Send: send, Hold: 500}, want, rule}
		}
		w.judge(t, y, y.policy(usual), []try{
			at("TLS to the name", 8443, reached, "", helloNaming(t, "services.example")),
			at("TLS to another name", 8443, reset, "", helloNaming(t, "other.example")),
			at("TLS without a name", 8443, reset, "names no server", withoutName(t)),
			at("TLS to another name, by byte", 8443, reset, "", segments(helloNaming(t, "other.example"), 1)...),
			at("HTTP to the name", 8080, reached, "", []byte("GET / HTTP/1.1\r\nHost: services.example:8080\r\n\r\n")),
			at("HTTP to another name", 8080, reset, "", []byte("GET /"+mustNotArrive+" HTTP/1.1\r\nHost: other.example\r\n\r\n")),
			at("HTTP behind empty lines", 8080, reset, "", []byte("\r\n\r\nGET /"+mustNotArrive+" HTTP/1.1\r\nHost: other.example\r\n\r\n")),
			at("HTTP/2 from the start", 8080, reset, "h2c", []byte("PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n")),
			at("HTTP on a port of lines", 9999, reset, "", []byte("GET /"+mustNotArrive+" HTTP/1.1\r\nHost: other.example\r\n\r\n")),
			at("lines on a port of lines", 9999, reached, "", []byte("a line\n")),
		})
	})
}

// Smuggling is in requests; this is what a client is led to by the server it may talk to.
func TestThreat207ProxySmuggling(t *testing.T) {
	script := `
import urllib.request, urllib.error, json
got = {}
for to in ("http://169.254.169.254/", "http://10.1.2.3/", "http://127.0.0.1:7001/", "http://11.22.33.2:7001/", "http://other.example/",
    "http://evil.cdn.example/", "https://20.1.1.10/", "http://[2a10:1::30]/"):
    try:
        got[to] = urllib.request.urlopen("http://api.allowed.example/to?" + to, timeout=3).read().decode()
    except (urllib.error.URLError, OSError) as e:
        got[to] = "error: " + str(e)
got["itself"] = urllib.request.urlopen("http://api.allowed.example/to?http://api.allowed.example/x", timeout=3).read().decode()
print(json.dumps(got))
`
	inEachWay(t, func(t *testing.T, w *world, y way) {
		w.judge(t, y, y.policy(usual), requests())
		w.forget()
		got := map[string]string{}
		w.python(t, y, y.policy(usual), &got, script)
		for to, a := range got {
			if strings.HasPrefix(a, "error: ") == (to == "itself") {
				t.Errorf("led to %s: %s", to, a)
			}
		}
		w.only(t, "tcp "+join(apiAddr, 80), "tcp "+join(apiAddr, 443), "tcp "+join(apiAddr6, 80))
	})
}
