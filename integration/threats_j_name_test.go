//go:build linux

package integration

import (
	"fmt"
	"slices"
	"strings"
	"testing"
)

// The name that is asked for decides; where its owner leads it is the owner's affair, as far as addresses may be reached at all, and on
// the ports of the asked name alone.
func TestThreat192CNAMEChain(t *testing.T) {
	inEachWay(t, func(t *testing.T, w *world, y way) {
		policy := y.policy(`
egress:
  - {domains: ["*.allowed.example"], ports: [443]}
  - {domains: [services.example], ports: [9999]}
deny:
  - {domains: [tracker.elsewhere.example]}
`)
		found := map[string]lookup{}
		r := w.probe(t, y, policy, &found, nil, "resolve", "alias.allowed.example", "four.allowed.example", "loop.allowed.example", "inward.allowed.example", "dangling.allowed.example",
			"target.elsewhere.example", "denied.allowed.example", "tracker.elsewhere.example")
		for name, want := range map[string]string{
			"alias.allowed.example": aliasAddr, "four.allowed.example": aliasAddr, "dangling.allowed.example": "no such host", "inward.allowed.example": "no such host",
			"target.elsewhere.example": "no such host", "tracker.elsewhere.example": "no such host",
		} {
			if found[name].Addrs != want {
				t.Errorf("%s: %v, want %s", name, found[name], want)
			}
		}
		t.Logf("a chain in a circle: %v; a chain to a denied name: %v", found["loop.allowed.example"], found["denied.allowed.example"])
		denied(t, r, "dns", "target.elsewhere.example", "")
		denied(t, r, "dns", "tracker.elsewhere.example", "policy.yaml:")
		look := []string{"alias.allowed.example", "services.example"}
		w.judge(t, y, policy, []try{
			{"the alias", talk{Look: look, To: "tcp " + join(aliasAddr, 443), Send: spoken(t, "alias.allowed.example", 443)}, reached, ""},
			{"the target's name", talk{Look: look, To: "tcp " + join(aliasAddr, 443), Send: spoken(t, "target.elsewhere.example", 443)}, reset, ""},
			{"a port of another rule", talk{Look: look, To: "tcp " + join(aliasAddr, 9999), Send: once("a line\n")}, refused, ""},
			{"port 80 of a name with 443", talk{Look: look, To: "tcp " + join(aliasAddr, 80), Send: spoken(t, "alias.allowed.example", 80)}, refused, ""},
		})
	})
}

// No question but for an allowed name leaves the box, whatever its bytes are.
func TestThreat198HostnameParser(t *testing.T) {
	long := strings.Repeat("a", 63)
	names := []struct {
		labels []string
		code   string // of the answer, "" for none
	}{
		{[]string{"api", "allowed", "example"}, "Success"},
		{[]string{"API", "aLLowed", "Example"}, "Success"},
		{[]string{"www", "wild", "example"}, "Success"},
		{[]string{"evil.com\x00", "allowed", "example"}, "NameError"},
		{[]string{"evil", "com\x00api", "allowed", "example"}, "NameError"},
		{[]string{"api.allowed.example"}, "NameError"}, // one label with dots in it
		{[]string{"api.allowed", "example"}, "NameError"},
		{[]string{"api", "allowed", "example", "evil", "com"}, "NameError"},
		{[]string{"notapi", "allowed", "example"}, "NameError"},
		{[]string{"xapi", "allowed", "example"}, "NameError"},
		{[]string{"wild", "example"}, "NameError"}, // a wildcard is not the name itself
		{[]string{"notwild", "example"}, "NameError"},
		{[]string{"a@b", "wild", "example"}, "NameError"},
		{[]string{"a b", "wild", "example"}, "NameError"},
		{[]string{"*", "wild", "example"}, "NameError"},
		{[]string{"_srv", "wild", "example"}, "NameError"},
		{[]string{"-a", "wild", "example"}, "NameError"},
		{[]string{"xn--zckzah", "wild", "example"}, "Success"},
		{[]string{"xn--a\xff", "wild", "example"}, "NameError"},
		{[]string{"\xe2\x98\x83", "wild", "example"}, "NameError"},
		{[]string{"аpi", "allowed", "example"}, "NameError"}, // a Cyrillic а
		{[]string{"tracker", "wild", "example"}, "NameError"},
		{[]string{"TRACKER", "wild", "example"}, "NameError"},
		{[]string{"a\nb", "wild", "example"}, "NameError"},
		{[]string{"a\x1b[31m", "wild", "example"}, "NameError"},
		{[]string{long, long, long, "wild", "example"}, "NameError"}, // longer than a wildcard may stand for
		{[]string{"other", "example"}, "NameError"},
		{[]string{"localhost"}, "NameError"},
		{[]string{}, "NameError"},
	}
	inEachWay(t, func(t *testing.T, w *world, y way) {
		var asked []question
		for _, n := range names {
			asked = append(asked, question{Labels: n.labels}, question{Labels: n.labels, Via: "tcp 127.0.0.1:53"})
		}
		first := len(asked)
		asked = append(asked, // what is no query
			question{Labels: []string{strings.Repeat("a", 300)}}, // its length byte says 44
			question{Raw: []byte{1, 2, 1, 0, 0, 1, 0, 0, 0, 0, 0, 0, 0xc0, 12, 0, 1, 0, 1}},
			question{Raw: []byte{1, 2, 1, 0, 0, 1, 0, 0, 0, 0, 0, 0, 63, 'a', 0, 1}},
			question{Raw: []byte{1, 2, 1, 0, 0, 0, 0, 0, 0, 0, 0, 0}},
			question{Raw: []byte{1, 2, 0x29, 0, 0, 1, 0, 0, 0, 0, 0, 0, 3, 'a', 'p', 'i', 0, 0, 1, 0, 1}}) // an UPDATE
		var replies []reply
		r := w.probe(t, y, y.policy(usual), &replies, asked, "dns")
		for i, a := range replies {
			switch {
			case i >= first:
				if a.Code == "Success" || len(a.Answers) > 0 {
					t.Errorf("%q %v: %+v", asked[i].Labels, asked[i].Raw, a)
				}
			case a.Code != names[i/2].code || (a.Code == "Success") != (len(a.Answers) > 0):
				t.Errorf("%q by %s: %+v, want %s", asked[i].Labels, asked[i].Via, a, names[i/2].code)
			}
		}
		for _, q := range w.asked() {
			if !slices.Contains([]string{"udp A api.allowed.example.", "udp A www.wild.example.", "udp A xn--zckzah.wild.example."}, q) {
				t.Errorf("asked %q", q)
			}
		}
		denied(t, r, "dns", "tracker.wild.example", "policy.yaml:")
		for _, d := range r.Denials {
			if strings.ContainsAny(d.What+d.Hint, "\x00\n\x1b") {
				t.Errorf("a denial carries what a terminal obeys: %+q", d.What+d.Hint)
			}
		}
		w.only(t)
	})
}

// A name opens its rule's ports, and no other.
func TestThreat199PortScope(t *testing.T) {
	inEachWay(t, func(t *testing.T, w *world, y way) {
		policy := y.policy("egress:\n  - {domains: [api.allowed.example]}\n  - {domains: [services.example], ports: [9999]}")
		var tries []try
		for _, port := range []int{22, 25, 80, 444, 5432, 8080, 8443, 9999, 53, 853} {
			tries = append(tries, direct(t, port, apiAddr, apiAddr6)...)
		}
		for i := range tries {
			tries[i].talk.Look = []string{"api.allowed.example", "services.example"}
		}
		tries = append(tries, try{"the port that is open", talk{To: "tcp " + join(apiAddr, 443), Send: spoken(t, "api.allowed.example", 443)}, reached, ""})
		tries = append(tries, direct(t, 443, servicesAddr, otherAddr)...)
		w.judge(t, y, policy, tries)
		got := map[string]outcome{}
		w.probe(t, y, policy, &got, nil, "reach", "udp "+join(apiAddr, 443), "udp "+join(apiAddr6, 443), "udp "+join(servicesAddr, 9999), "udp "+join(apiAddr, 7))
		for to, o := range got {
			if o.End != "EPERM" {
				t.Errorf("%s: %v", to, o)
			}
		}
	})
}

// What a skill can put into names stays here, but for what an allowed wildcard lets through, which is bounded.
func TestThreat201DNSExfil(t *testing.T) {
	inEachWay(t, func(t *testing.T, w *world, y way) {
		secret := strings.Repeat("mfzwizltoq", 6)
		asked := []question{}
		for _, kind := range []uint16{1, 2, 5, 6, 10, 12, 15, 16, 28, 33, 35, 64, 65, 99, 251, 252, 255, 256, 65280} {
			asked = append(asked, question{Labels: []string{secret, "evil", "example"}, Type: kind}, question{Labels: []string{secret, "api", "allowed", "example"}, Type: kind},
				question{Labels: []string{"api", "allowed", "example"}, Type: kind})
		}
		var replies []reply
		r := w.probe(t, y, y.policy(usual), &replies, asked, "dns")
		for i, a := range replies {
			switch q := asked[i]; {
			case len(q.Labels) == 3 && q.Labels[0] == "api" && q.Type != 1 && q.Type != 28 && (a.Code != "Success" || len(a.Answers) > 0): // NODATA
				t.Errorf("%v: %+v", q, a)
			case q.Labels[0] == secret && a.Code != "NameError":
				t.Errorf("%v: %+v", q, a)
			}
		}
		for _, q := range w.asked() {
			if q != "udp A api.allowed.example." && q != "udp AAAA api.allowed.example." {
				t.Errorf("asked %q", q)
			}
		}
		denied(t, r, "dns", secret+".evil.example", "")

		w.forget()
		counts := map[string]int{}
		n := load(2000)
		w.probe(t, y, y.policy(usual), &counts, nil, "dns-flood", "x", "wild.example", fmt.Sprint(n))
		different := map[string]bool{}
		for _, q := range w.asked() {
			different[q] = true
		}
		t.Logf("of %d names %v; %d left", n, counts, len(different))
		if len(different) > 200 || n > 1000 && counts["Success"] > 200 {
			t.Errorf("%d different names of a wildcard left, %v", len(different), counts)
		}
		if counts["Success"] == 0 {
			t.Errorf("no name of the wildcard was answered: %v", counts)
		}
	})
}

// There is one DNS server, the box's own. Others are no way, by whatever protocol.
func TestThreat202DNSDirect(t *testing.T) {
	inEachWay(t, func(t *testing.T, w *world, y way) {
		var asked []question
		for _, server := range []string{"8.8.8.8", "1.1.1.1", "2001:4860:4860::8888", resolverAddr, gatewayAddr, "10.1.2.3", "127.0.0.53"} {
			for _, network := range []string{"udp", "tcp"} {
				asked = append(asked, question{Via: network + " " + join(server, 53), Labels: []string{"api", "allowed", "example"}})
			}
		}
		asked = append(asked, question{Via: "udp 224.0.0.251:5353", Labels: []string{"host", "local"}}, question{Via: "udp [ff02::fb%lo]:5353", Labels: []string{"host", "local"}},
			question{Via: "udp 224.0.0.252:5355", Labels: []string{"host"}}, question{Via: "udp " + join(servicesAddr, 5353), Labels: []string{"host"}})
		var replies []reply
		w.probe(t, y, y.policy(usual), &replies, asked, "dns")
		var times []float64
		for i, a := range replies {
			times = append(times, a.MS)
			if a.Code != "" {
				t.Errorf("%s: %+v", asked[i].Via, a)
			}
			if strings.HasPrefix(asked[i].Via, "udp 8.") && a.Error != "EPERM" || strings.HasPrefix(asked[i].Via, "tcp 8.") && a.Error != "ECONNREFUSED" {
				t.Errorf("%s: %+v", asked[i].Via, a)
			}
		}
		atOnce(t, "refused servers", times)
		w.only(t)
		tries := append(direct(t, 853, "8.8.8.8", "1.1.1.1", "2001:4860:4860::8888"), direct(t, 443, "8.8.8.8", "1.1.1.1", "2001:4860:4860::8888")...)
		w.judge(t, y, y.policy(usual), tries)
		if q := w.asked(); len(q) > 0 {
			t.Errorf("asked %q", q)
		}
	})
}
