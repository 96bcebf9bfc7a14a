//go:build linux

package integration

import (
	"fmt"
	"strings"
	"testing"
)

// What goes through arrives whole, in both directions and to the end of each, and nobody can tell that somebody is in between.
func TestBytesArriveWhole(t *testing.T) {
	script := `
import socket, json, hashlib, http.client, os, time
got = {}
def page(path, body=None):
    c = http.client.HTTPConnection("api.allowed.example", timeout=60)
    c.request("POST" if body else "GET", path, body)
    return c.getresponse().read()
got["download"] = len(page("/bytes?30000000"))
got["upload"] = page("/x", b"u" * 20000000).decode()
c = http.client.HTTPConnection("api.allowed.example", timeout=60)
for i in range(200):  # on one connection
    c.request("POST", "/n%d" % i, iter([b"a" * 1000, b"b" * i]), encode_chunked=True, headers={"Transfer-Encoding": "chunked"})
    last = c.getresponse().read().decode()
got["chunks"] = last
s = socket.create_connection(("services.example", 9999), timeout=60)
data = os.urandom(3000000)
import threading
threading.Thread(target=lambda: (s.sendall(data), s.shutdown(socket.SHUT_WR))).start()
back = b""
while part := s.recv(1 << 16): back += part
got["echo after a half close"] = back == data
s = socket.create_connection(("services.example", 9999), timeout=60)
began = time.time()
for i in range(500):
    s.sendall(b"ping\n")
    assert s.recv(100) == b"ping\n"
got["round trip"] = (time.time() - began) / 500 * 1000
s = socket.create_connection(("services.example", 22), timeout=5)
got["banner"] = s.recv(100).decode()
got["peer"], got["self"] = s.getpeername(), s.getsockname()[0]
s = socket.create_connection(("services.example", 5432), timeout=5)
s.sendall(bytes([0, 0, 0, 8, 4, 210, 22, 47]))
got["postgres"] = s.recv(100).decode()
s = socket.create_connection(("services.example", 9), timeout=5)
s.sendall(b"\0last word" * 10000)
print(json.dumps(got), flush=True)
os._exit(0)
`
	inEachWay(t, func(t *testing.T, w *world, y way) {
		got := map[string]any{}
		policy := y.policy("egress:\n  - {domains: [api.allowed.example], ports: [80]}\n  - {domains: [services.example], ports: [9, 22, 5432, 9999]}\nlimits: {bytes: 1Gi}")
		r := w.python(t, y, policy, &got, script)
		t.Logf("%.2f ms for a round trip, from %v", got["round trip"], got["self"])
		for what, want := range map[string]any{
			"download": 30000000.0, "upload": "page /x of api.allowed.example, 20000000 bytes came\n", "chunks": "page /n199 of api.allowed.example, 1199 bytes came\n",
			"echo after a half close": true, "banner": "SSH-2.0-world\r\n", "postgres": "N",
		} {
			if got[what] != want {
				t.Errorf("%s: %v, want %v", what, got[what], want)
			}
		}
		if peer := fmt.Sprint(got["peer"]); !strings.Contains(peer, servicesAddr) && !strings.Contains(peer, "2a10:1::60") {
			t.Errorf("the peer is %s", peer)
		}
		var last int64
		for _, v := range w.visits(func(v *visit) bool { return v.to.Port() == 9 }) {
			last += v.bytes
		}
		if last != 100_000 {
			t.Errorf("of the last words %d bytes came", last)
		}
		var came int64
		for _, v := range w.visits(nil) {
			came += v.bytes
		}
		if n := r.Usage.Net; n == nil || n.Sent != came || n.Received < 30_000_000 || n.Connections != 8 {
			t.Errorf("usage %+v, the servers got %d bytes", n, came)
		}
	})
}

// A server that does not answer ends the connection: the skill sees a reset or an end, not silence.
func TestAServerThatRefusesIsAnEnd(t *testing.T) {
	inEachWay(t, func(t *testing.T, w *world, y way) {
		policy := y.policy("egress:\n  - {cidrs: [20.1.1.0/24, 21.0.0.0/24], ports: [81, 9999]}")
		got, r := w.talks(t, y, policy, []talk{{To: "tcp " + join(apiAddr, 81), Send: once("x"), Hold: 5000}})
		if o := got[0]; o.verdict() != reset && o.verdict() != refused || o.EndMS > float64(patience(1000)) {
			t.Errorf("%v", o)
		}
		if len(r.Denials) > 0 {
			t.Errorf("what a server refuses is no denial: %+v", r.Denials)
		}
	})
}

// Loopback is the box's own: its processes talk to each other there as on any machine.
func TestLoopbackWithinABox(t *testing.T) {
	script := `
import socket, json, threading
got = {}
for family, addr in ((socket.AF_INET, "127.0.0.1"), (socket.AF_INET6, "::1")):
    l = socket.socket(family); l.bind((addr, 8000)); l.listen()
    threading.Thread(target=lambda l=l: (lambda c: c.sendall(c.recv(10)))(l.accept()[0]), daemon=True).start()
    s = socket.create_connection((addr, 8000), timeout=2); s.sendall(b"hello"); got["tcp " + addr] = s.recv(10).decode()
    u = socket.socket(family, socket.SOCK_DGRAM); u.bind((addr, 8000)); u.settimeout(2)
    v = socket.socket(family, socket.SOCK_DGRAM); v.sendto(b"hello", (addr, 8000)); got["udp " + addr] = u.recv(10).decode()
got["localhost"] = sorted({a[4][0] for a in socket.getaddrinfo("localhost", 80)})
for port in (53, 1):
    for kind in (socket.SOCK_STREAM, socket.SOCK_DGRAM):
        s = socket.socket(socket.AF_INET, kind)
        s.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        s.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEPORT, 1)
        try: s.bind(("0.0.0.0", port)); got["bind %d %d" % (port, kind)] = "ok"
        except OSError as e: got["bind %d %d" % (port, kind)] = e.errno
print(json.dumps(got))
`
	inEachWay(t, func(t *testing.T, w *world, y way) {
		got := map[string]any{}
		w.python(t, y, y.policy(usual), &got, script)
		for _, what := range []string{"tcp 127.0.0.1", "udp 127.0.0.1", "tcp ::1", "udp ::1"} {
			if got[what] != "hello" {
				t.Errorf("%s: %v", what, got[what])
			}
		}
		for what, a := range got {
			if strings.HasPrefix(what, "bind") && a == "ok" {
				t.Errorf("%s: a skill sits where skillbox listens: %v", what, a)
			}
		}
		if names := fmt.Sprint(got["localhost"]); !strings.Contains(names, "127.0.0.1") {
			t.Errorf("localhost is %s", names)
		}
		w.only(t)
	})
}
