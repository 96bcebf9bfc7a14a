//go:build linux

package integration

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"skillbox/helper"
)

// A refused name and a refused connection fail at once, and each leaves a denial that names the rule or its absence.
func TestRefusalsComeAtOnceAndAreTold(t *testing.T) {
	inEveryWay(t, func(t *testing.T, w *world, y way) {
		names := []string{"other.example", "wild.example", "tracker.wild.example", "a.tracker.wild.example", "nowhere.invalid"}
		policy := y.policy("egress:\n  - {domains: [\"*.wild.example\"], ports: [443]}\n  - {cidrs: [20.1.1.0/24], except: [20.1.1.30/32], ports: [9999]}\n" +
			"deny:\n  - {domains: [tracker.wild.example, \"*.tracker.wild.example\"]}\n  - {cidrs: [20.1.1.50/32]}\nlimits: {connections: 1000, rate: 1000}")
		rules := map[string]string{"tracker.wild.example": "policy.yaml:", "a.tracker.wild.example": "policy.yaml:"}
		var asked []question
		for _, name := range names {
			for range 5 {
				asked = append(asked, question{Labels: strings.Split(name, ".")})
			}
		}
		var replies []reply
		r := w.probe(t, y, policy, &replies, asked, "dns")
		var times []float64
		for i, a := range replies {
			times = append(times, a.MS)
			if a.Code != "NameError" {
				t.Errorf("%q: %+v", asked[i].Labels, a)
			}
		}
		atOnce(t, "refused names", times)
		for _, name := range names {
			denied(t, r, "dns", name, rules[name])
			told := func(d helper.Denial) bool {
				return d.What == name && strings.Contains(d.Hint, "add {domains: ["+name+"], ports: [443]} to network.egress")
			}
			if rules[name] == "" && !slices.ContainsFunc(r.Denials, told) {
				t.Errorf("no hint says how to allow %s: %+v", name, r.Denials)
			}
		}
		if r.Usage.Net == nil || r.Usage.Net.Lookups == 0 || r.Usage.Net.Refused == 0 || r.Usage.Net.Connections != 0 || r.Usage.Net.Sent+r.Usage.Net.Received != 0 {
			t.Errorf("usage of lookups alone: %+v", r.Usage.Net)
		}
		var tries []try
		for addr, rule := range map[string]string{
			otherAddr: "", otherAddr6: "", "8.8.8.8": "", aliasAddr: "policy.yaml:",
			"10.1.2.3": "the floor: private", "169.254.169.254": "the floor: ", "240.0.0.7": "the floor: reserved",
		} {
			for range 5 { // the first may find a cold cache
				tries = append(tries, try{addr, talk{To: "tcp " + join(addr, 9999)}, refused, rule})
			}
		}
		r = w.judge(t, y, policy, tries)
		for _, d := range r.Denials {
			if d.Count != 5 {
				t.Errorf("%d times %+v", d.Count, d)
			}
		}
		if r.Usage.Net == nil || r.Usage.Net.Refused != int64(len(tries)) {
			t.Errorf("usage of %d refusals: %+v", len(tries), r.Usage.Net)
		}
	})
}

// A secret may go to whoever is allowed: what went and where is on record, and there is a limit.
func TestThreat216AllowedHostExfil(t *testing.T) {
	inEachWay(t, func(t *testing.T, w *world, y way) {
		const size = 100_000
		secret := strings.Repeat("s", size)
		request := fmt.Sprintf("POST /%s HTTP/1.1\r\nHost: api.allowed.example\r\nX-Token: also-secret\r\nContent-Length: %d\r\n\r\n", "secret-path", size)
		send := append(once(request), segments([]byte(secret), 10_000)...)
		r := w.judge(t, y, y.policy(usual), []try{{"a POST", talk{Look: []string{"api.allowed.example"}, To: "tcp " + join(apiAddr, 80), Send: send}, reached, ""}})
		if n := r.Usage.Net; n == nil || n.Sent != int64(len(request)+size) || n.Received == 0 || n.Connections != 1 {
			t.Errorf("usage: %+v, want %d bytes out", n, len(request)+size)
		}
		told := false
		for _, f := range r.Network {
			told = told || f.Kind == "connection" && f.Name == "api.allowed.example" && f.Address == apiAddr && f.Port == 80 && f.Sent == int64(len(request)+size)
		}
		if !told {
			t.Errorf("no record of the connection in %+v", r.Network)
		}
		envelope := asJSON(t, r)
		for _, s := range []string{"secret-path", "also-secret", "ssssss"} {
			if strings.Contains(envelope, s) {
				t.Errorf("the envelope quotes %s", s)
			}
		}
		// Above the limit the connection ends, and there is no other.
		w.forget()
		limited := y.policy("egress:\n  - {domains: [services.example], ports: [9, 9999]}\nlimits: {bytes: 64Ki, connections: 3}")
		bulk := segments(make([]byte, 4<<20), 64<<10)
		got, r := w.talks(t, y, limited, []talk{
			{Look: []string{"services.example"}, To: "tcp " + join(servicesAddr, 9), Send: bulk}, {To: "tcp " + join(servicesAddr, 9999), Send: once("a line\n"), Count: 1},
		})
		if got[0].End != "ECONNRESET" && got[0].End != "EPIPE" || got[1].Bytes > 0 {
			t.Errorf("%v", got)
		}
		denied(t, r, "connection", join(servicesAddr, 9)+"/tcp", "network.limits.bytes")
		var came int64
		for _, v := range w.visits(nil) {
			came += v.bytes
		}
		if came > 64<<10 {
			t.Errorf("%d bytes left, 64 KiB are allowed", came)
		}
		got, r = w.talks(t, y, limited, []talk{
			{Look: []string{"services.example"}, To: "tcp " + join(servicesAddr, 9999), Send: once("1\n"), Count: 1},
			{To: "tcp " + join(servicesAddr, 9999), Send: once("2\n"), Count: 1},
			{To: "tcp " + join(servicesAddr, 9999), Send: once("3\n"), Count: 1},
			{To: "tcp " + join(servicesAddr, 9999), Send: once("4\n"), Count: 1},
		})
		for i, o := range got {
			if (o.verdict() == reached) != (i < 3) {
				t.Errorf("connection %d of 3: %v", i+1, o)
			}
		}
		denied(t, r, "connection", join(servicesAddr, 9999)+"/tcp", "network.limits.connections")
	})
}
