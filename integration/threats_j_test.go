//go:build linux

package integration

import (
	"bytes"
	"fmt"
	"net/netip"
	"slices"
	"strings"
	"testing"
	"time"

	"skillbox/helper"
)

// Ends of a try: a server answered; the kernel of the box refused the connection at once; the connection was there and was cut before
// the server had a byte; it was cut later, and nothing of what begins with mustNotArrive did.
const (
	reached = "reached"
	refused = "refused"
	reset   = "reset"
	cut     = "cut"
)

const mustNotArrive = "must-not-arrive"

// try is one connection, the verdict on it, and of a refusal what the denial's rule must say; "" is the absence of a rule.
type try struct {
	name string
	talk talk
	want string
	rule string
}

// judge has all tries in one box, and compares what the box saw, what the world saw and what the envelope says.
func (w *world) judge(t *testing.T, y way, policy string, tries []try, words ...string) *helper.Result {
	t.Helper()
	w.forget()
	talks := make([]talk, len(tries))
	for i, x := range tries {
		talks[i] = x.talk
		if x.want == reached && x.talk.Count == 0 && x.talk.After == nil {
			talks[i].Count = 1
		}
	}
	got, r := w.talks(t, y, policy, talks, words...)
	want := map[string]int{} // visits with data, by address
	var open []string
	var times []float64
	for i, x := range tries {
		end := got[i].verdict()
		if x.want == cut && got[i].Connect == "ok" && got[i].End == "ECONNRESET" {
			end = cut // whether the answer to what came before was still read is a matter of luck
		}
		if end != x.want {
			t.Errorf("%s: %s, want %s: %v", x.name, end, x.want, got[i])
		}
		if x.want == refused {
			times = append(times, got[i].ConnMS)
		}
		_, addr, _ := strings.Cut(x.talk.To, " ")
		if a, err := netip.ParseAddrPort(addr); err == nil {
			addr = netip.AddrPortFrom(a.Addr().Unmap(), a.Port()).String()
		}
		switch x.want {
		case reached:
			want[addr]++
			open = append(open, "tcp "+addr)
		case cut:
			want[addr]++
			fallthrough
		case reset:
			open = append(open, "tcp "+addr) // skillbox may have connected; only data counts
			denied(t, r, "connection", addr+"/tcp", x.rule)
		default:
			denied(t, r, "connection", addr+"/tcp", x.rule)
		}
	}
	atOnce(t, "refused connections", times)
	w.only(t, open...)
	came := map[string]int{}
	for _, v := range w.visits(func(v *visit) bool { return v.bytes > 0 }) {
		to := v.to.String()
		if came[to]++; came[to] > want[to] {
			t.Errorf("data came where %d of the tries may come: %v", want[to], &v)
		}
		if bytes.Contains(v.received, []byte(mustNotArrive)) {
			t.Errorf("it arrived: %s: %q", to, v.received)
		}
	}
	return r
}

// verdict sums an outcome up. What is none of the three is told as it is.
func (o outcome) verdict() string {
	switch {
	case o.Connect == "ECONNREFUSED":
		return refused
	case o.Connect == "ok" && o.Bytes > 0:
		return reached
	case o.Connect == "ok" && o.End == "ECONNRESET" || o.Connect == "ECONNRESET": // it may come before connect(2) has returned
		return reset
	}
	return "connect " + o.Connect + ", end " + o.End
}

// noRule is why what no rule names is refused.
const noRule = "no rule of network.egress"

// denied demands a denial of a name or an address, with one of the reasons (noRule is "") and, where a rule would help, a hint.
func denied(t *testing.T, r *helper.Result, kind, what string, rules ...string) {
	t.Helper()
	for _, d := range r.Denials {
		is := func(rule string) bool {
			return rule == "" && d.Rule == noRule || rule != "" && strings.Contains(d.Rule, rule)
		}
		if d.Kind != kind || !says(d.What, what) || !slices.ContainsFunc(rules, is) {
			continue
		}
		if d.Count < 1 || d.Rule == noRule && !strings.Contains(d.Hint, "]} to network.egress") {
			t.Errorf("a denial without a count or a hint: %+v", d)
		}
		return
	}
	var others []string
	for _, d := range r.Denials {
		if says(d.What, what) || len(r.Denials) < 4 {
			others = append(others, fmt.Sprintf("%s %s by %q", d.Kind, d.What, d.Rule))
		}
	}
	t.Errorf("no denial of a %s with %q by %q, but %q", kind, what, rules, others)
}

// says finds a name or an address in the text of a denial, and not a part of a longer one.
func says(text, what string) bool {
	return text == what || strings.HasPrefix(text, what+" ") || strings.Contains(text, "("+what+")") || strings.HasSuffix(text, " "+what)
}

// atOnce demands that refusals, by their times in ms, come in less than 5 ms. The one in the middle counts: machines that run tests are busy.
func atOnce(t *testing.T, what string, times []float64) {
	t.Helper()
	slices.Sort(times)
	if n := len(times); n > 0 && times[(n-1)/2] > float64(patience(5*time.Millisecond))/float64(time.Millisecond) {
		t.Errorf("%s took %v ms", what, times)
	}
}

// spoken are what clients say first on a port, so that its server answers.
func spoken(t *testing.T, name string, port int) [][]byte {
	t.Helper()
	switch port {
	case 443, 8443, 853:
		return [][]byte{helloNaming(t, name)}
	case 80, 8080:
		return once("GET / HTTP/1.1\r\nHost: " + name + map[int]string{8080: ":8080"}[port] + "\r\n\r\n")
	case 5432:
		return [][]byte{{0, 0, 0, 8, 4, 210, 22, 47}} // SSLRequest
	}
	return once("a line\n")
}

// direct are talks with addresses that no name led to.
func direct(t *testing.T, port int, addrs ...string) (all []try) {
	t.Helper()
	for _, a := range addrs {
		all = append(all, try{join(a, port), talk{To: "tcp " + join(a, port), Send: spoken(t, "api.allowed.example", port)}, refused, floorOf(a)})
	}
	return all
}

// floorOf is how the reason begins for which an address is refused.
func floorOf(addr string) string {
	a := netip.MustParseAddr(addr).Unmap()
	if slices.Contains([]string{hostAddr, hostAddr6}, a.String()) || slices.Contains(withheld, a.String()) ||
		a.IsPrivate() || a.IsLoopback() || a.IsLinkLocalUnicast() || a.IsMulticast() || a.IsUnspecified() {
		return "the floor: "
	}
	return ""
}

// usual is a policy for names that many tests allow.
const usual = `
egress:
  - domains: [api.allowed.example, www.allowed.example, alias.allowed.example, four.allowed.example, shop.cdn.example, news.cdn.example]
    ports: [80, 443]
  - {domains: [services.example], ports: [22, 25, 5432, 9999, 8080, 8443]}
  - {domains: ["*.wild.example"], ports: [443]}
deny:
  - {domains: [tracker.wild.example]}
limits: {connections: 10000, rate: 10000, bytes: 1Gi}
`

// What the tests of group J count on: through the policy of most of them the allowed is reached, on every kind of port, and counted.
func TestTheAllowedIsReached(t *testing.T) {
	inEachWay(t, func(t *testing.T, w *world, y way) {
		var tries []try
		for _, x := range []struct {
			name, addr string
			port       int
		}{
			{"api.allowed.example", apiAddr, 443},
			{"api.allowed.example", apiAddr6, 443},
			{"api.allowed.example", apiAddr, 80},
			{"www.allowed.example", apiAddr, 443},
			{"alias.allowed.example", aliasAddr, 443},
			{"shop.cdn.example", sharedAddr, 443},
			{"news.cdn.example", sharedAddr, 443},
			{"a.b.wild.example", wildAddr, 443},
			{"services.example", servicesAddr, 22},
			{"services.example", servicesAddr, 25},
			{"services.example", servicesAddr, 5432},
			{"services.example", servicesAddr, 9999},
			{"services.example", servicesAddr, 8080},
			{"services.example", servicesAddr, 8443},
			{"services.example", "2a10:1::60", 9999},
		} {
			tries = append(tries, try{
				fmt.Sprintf("%s at %s", x.name, join(x.addr, x.port)), talk{Look: []string{x.name}, To: "tcp " + join(x.addr, x.port), Send: spoken(t, x.name, x.port), Hold: 300}, reached, "",
			})
		}
		r := w.judge(t, y, y.policy(usual), tries)
		if len(r.Denials) > 0 {
			t.Errorf("denials: %+v", r.Denials)
		}
	})
}
