//go:build linux

package integration

import (
	"strings"
	"testing"
)

// Group J: the network. Every test runs in the world of world_test.go, in which all that a skill must not reach is there to be
// reached; what counts is what the world's servers and its cable saw.

// Without egress there is nothing but a loopback of the box's own.
func TestThreat184NetNone(t *testing.T) {
	inEveryWay(t, func(t *testing.T, w *world, y way) {
		targets := []string{
			"tcp " + join(apiAddr, 443), "tcp " + join(apiAddr6, 443), "udp " + join(apiAddr, 7), "udp " + join(apiAddr6, 7), "tcp " + join("169.254.169.254", 80),
			"udp " + join("8.8.8.8", 53), "tcp " + join(hostAddr, openPort), "udp " + join("224.0.0.251", 5353), "tcp " + join(gatewayAddr, 80),
		}
		got := map[string]outcome{}
		w.probe(t, y, "", &got, nil, append([]string{"reach"}, targets...)...)
		for _, to := range targets {
			o := got[to]
			if o.Connect != "ENETUNREACH" {
				t.Errorf("%s: %v", to, o)
			}
		}
		got = map[string]outcome{}
		own := []string{
			"tcp " + join("127.0.0.1", openPort), "tcp " + join("::1", openPort), "tcp " + join("127.0.0.1", loopbackPort), "tcp 127.0.0.53:53", "tcp 127.0.0.1:53",
		}
		w.probe(t, y, "", &got, nil, append([]string{"reach"}, own...)...)
		for _, to := range own {
			if got[to].Connect != "ECONNREFUSED" {
				t.Errorf("%s: %v", to, got[to])
			}
		}
		names := map[string]lookup{}
		w.probe(t, y, "", &names, nil, "resolve", "api.allowed.example", "localhost.example")
		for name, l := range names {
			if l.Addrs != "no such host" && !strings.Contains(l.Addrs, "connection refused") {
				t.Errorf("%s: %v", name, l)
			}
		}
		sockets := map[string]string{}
		w.probe(t, y, "", &sockets, nil, "unix-sockets", abstractSocket)
		all(t, sockets, "ECONNREFUSED")
		script := "import socket\ntry:\n socket.getaddrinfo('api.allowed.example', 443)\n print('found')\nexcept socket.gaierror as e:\n print(e.errno)\n"
		r := w.run(t, y, call{mode: y.mode, words: []string{"/usr/bin/python3", "-c", script}})
		if r.Stdout != "-3\n" && r.Stdout != "-2\n" { // EAI_AGAIN, EAI_NONAME
			t.Errorf("getaddrinfo: %q %s", r.Stdout, r.Stderr)
		}
		w.only(t)
		if asked := w.asked(); len(asked) > 0 {
			t.Errorf("questions left the box: %q", asked)
		}
	})
}
