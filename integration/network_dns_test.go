//go:build linux

package integration

import (
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"skillbox/helper"
)

// Answers that are odd, but an answer: a time to live of nothing and of 68 years, one that does not fit a datagram, records of other types.
func TestOddAnswersAreSetRight(t *testing.T) {
	inEachWay(t, func(t *testing.T, w *world, y way) {
		policy := y.policy("egress:\n  - {domains: [\"*.ttl.example\", \"*.allowed.example\"], ports: [443]}")
		asked := []question{
			{Labels: []string{"zero", "ttl", "example"}},
			{Labels: []string{"huge", "ttl", "example"}},
			{Labels: []string{"cut", "allowed", "example"}},
			{Labels: []string{"long", "allowed", "example"}},
			{Labels: []string{"none", "allowed", "example"}},
			{Labels: []string{"fails", "allowed", "example"}},
			{Labels: []string{"zero", "ttl", "example"}}, // from the cache
		}
		want := []struct {
			code    string
			answers int
			least   uint32
			most    uint32
		}{{"Success", 1, 5, 5}, {"Success", 1, 300, 300}, {"Success", 1, 50, 60}, {"Success", 0, 0, 0}, {"NameError", 0, 0, 0}, {"ServerFailure", 0, 0, 0}, {"Success", 1, 1, 5}}
		var replies []reply
		w.probe(t, y, policy, &replies, asked, "dns")
		for i, a := range replies {
			if x := want[i]; a.Code != x.code || len(a.Answers) != x.answers || x.answers > 0 && (a.TTL < x.least || a.TTL > x.most) {
				t.Errorf("%v: %+v, want %+v", asked[i].Labels, a, x)
			}
		}
		if n := strings.Count(strings.Join(w.asked(), "\n"), " A zero.ttl.example."); n != 1 {
			t.Errorf("asked %d times for what the cache holds", n)
		}
	})
}

// An address that one box was told is nothing to another one, nor is one to a box that only knows it by heart.
func TestAddressesAreOpenedForOneBox(t *testing.T) {
	inEachWay(t, func(t *testing.T, w *world, y way) {
		dir := y.mode.dir(t)
		end := w.beginProbe(t, y, y.policy(usual, "filesystem: {write: [{host: "+dir+", path: /shared}]}"), nil, "await", "/shared", "services.example")
		appears(t, filepath.Join(dir, "got"))
		w.judge(t, y, y.policy(usual), direct(t, 9999, servicesAddr))
		y.mode.write(t, filepath.Join(dir, "stop"), "", 0o644)
		var looked string
		end(&looked)
		if looked != servicesAddr+" 2a10:1::60" {
			t.Errorf("the other box looked up %s", looked)
		}
	})
}

// An address is open on the ports of the names that it was given out for, each for its own.
func TestPortsBelongToTheirName(t *testing.T) {
	inEachWay(t, func(t *testing.T, w *world, y way) {
		policy := y.policy("egress:\n  - {domains: [api.allowed.example], ports: [443]}\n  - {domains: [www.allowed.example], ports: [80]}\n")
		look := []string{"api.allowed.example", "www.allowed.example"}
		at := func(name string, port int, want string) try {
			return try{name, talk{Look: look, To: "tcp " + join(apiAddr, port), Send: spoken(t, name, port)}, want, ""}
		}
		w.judge(t, y, policy, []try{at("api.allowed.example", 443, reached), at("www.allowed.example", 80, reached), at("api.allowed.example", 80, reset), at("www.allowed.example", 443, reset)})
		found := map[string]lookup{}
		r := w.probe(t, y, y.policy("egress:\n  - {domains: [alias.allowed.example]}\ndeny:\n  - {cidrs: [20.1.1.50/32]}"), &found, nil, "resolve", "alias.allowed.example")
		if found["alias.allowed.example"].Addrs != "no such host" {
			t.Errorf("a name leads to a denied address: %v", found)
		}
		denied(t, r, "dns", "alias.allowed.example", "policy.yaml:")
	})
}

// The host's resolvers are asked, wherever they are: a stub on loopback, the second one where the first is silent.
func TestTheHostsResolversAreAsked(t *testing.T) {
	inEachWay(t, func(t *testing.T, w *world, y way) {
		before, err := os.ReadFile(w.conf)
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() {
			if err := os.WriteFile(w.conf, before, 0o644); err != nil {
				t.Error(err)
			}
		})
		for _, c := range []struct{ conf, want string }{
			{"nameserver 127.0.0.53\noptions edns0 trust-ad\nsearch corp.example\n", apiAddr},
			{"nameserver 20.9.9.9\nnameserver " + resolverAddr + "\noptions timeout:1\n", apiAddr},
			{"nameserver 20.9.9.9\noptions timeout:1 attempts:1\n", "server misbehaving"},
			{"# nobody\n", ""},
		} {
			if err := os.WriteFile(w.conf, []byte(c.conf), 0o644); err != nil {
				t.Fatal(err)
			}
			r := w.run(t, y, call{mode: y.mode, policy: y.policy(usual), words: []string{"/skill/probe", "resolve", "www.allowed.example"}})
			switch {
			case c.want == "" && (r.Verdict != helper.Failed && r.Verdict != helper.Refused || r.Error == nil || !strings.Contains(r.Error.Message, "resolv.conf")):
				t.Errorf("without a resolver: %s, %+v", r.Verdict, r.Error)
			case !strings.Contains(r.Stdout, c.want):
				t.Errorf("%q: %s %s, %v", c.conf, r.Stdout, r.Stderr, r.Error)
			}
		}
	})
}

// Ranges open what they name, and nothing of the floor or of the host by being wide.
func TestWideRangesLeaveTheFloorClosed(t *testing.T) {
	inEachWay(t, func(t *testing.T, w *world, y way) {
		policy := y.policy(`
egress:
  - cidrs: [0.0.0.0/0, "::/0", 11.22.33.0/24, 169.254.0.0/16]
    ports: [80, 443, 7001, 7002, 9999]
    unsafe_wildcard: true
limits: {connections: 10000, rate: 10000}
`)
		open := talk{To: "tcp " + join(otherAddr, 9999), Send: once("a line\n")}
		tries := []try{{"a public address", open, reached, ""}, {"a public v6 address", talk{To: "tcp " + join(otherAddr6, 9999), Send: once("a line\n")}, reached, ""}}
		for _, port := range []int{80, openPort} {
			tries = append(tries, direct(t, port, withheld...)...)
			tries = append(tries, direct(t, port, hostAddr, hostAddr6)...)
		}
		// One of the ranges lies within link-local, so it opens that, but not the metadata services in it.
		tries = slices.DeleteFunc(tries, func(x try) bool { return strings.HasPrefix(x.name, "169.254.7.7:") })
		w.judge(t, y, policy, tries)
	})
}
