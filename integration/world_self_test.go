//go:build linux

package integration

import (
	"slices"
	"strings"
	"testing"
	"time"
)

// What the tests of the network count on: on the host, without a box, everything answers, and what comes is written down.
func TestTheWorldAnswers(t *testing.T) {
	inEachWay(t, func(t *testing.T, w *world, y way) {
		began := time.Now()
		var want []string
		for _, addr := range slices.Concat(public, withheld, []string{gatewayAddr, gatewayAddr6}) {
			want = append(want, "tcp "+join(addr, 443), "udp "+join(addr, 5000))
		}
		for _, addr := range []string{"127.0.0.1", "::1", hostAddr, hostAddr6} {
			want = append(want, "tcp "+join(addr, openPort), "udp "+join(addr, openPort))
		}
		want = append(want, "tcp "+join("127.0.0.1", loopbackPort), "tcp "+join("::1", loopbackPort), "tcp "+join("127.0.0.53", 53))
		for _, port := range []int{22, 25, 80, 5432, 8080, 8443, 9999, 853} {
			want = append(want, "tcp "+join(servicesAddr, port))
		}
		got := map[string]outcome{}
		w.beside(t, y.mode, &got, nil, append([]string{"reach"}, want...)...)
		visits := w.visits(nil)
		for _, to := range want {
			o := got[to]
			if o.Connect != "ok" || strings.HasPrefix(to, "udp") && o.End != "enough" {
				t.Errorf("%s: %s %s", to, o.Connect, o.End)
			}
			_, addr, _ := strings.Cut(to, " ")
			if !slices.ContainsFunc(visits, func(v visit) bool { return v.to.String() == addr }) {
				t.Errorf("%s: no visit is in the book", to)
			}
		}
		t.Logf("%d connections in %v", len(want), time.Since(began))

		found := map[string]lookup{}
		w.beside(t, y.mode, &found, nil, "resolve", "api.allowed.example", "any.wild.example", "four.allowed.example", "cut.allowed.example", "none.example", "loop.flip.example")
		for name, want := range map[string]string{
			"api.allowed.example": apiAddr + " " + apiAddr6, "any.wild.example": wildAddr, "four.allowed.example": aliasAddr, "cut.allowed.example": apiAddr, "none.example": "no such host",
		} {
			if found[name].Addrs != want {
				t.Errorf("%s: %q, want %q", name, found[name].Addrs, want)
			}
		}
		asked := w.asked()
		for _, q := range []string{"udp A api.allowed.example.", "tcp A cut.allowed.example."} {
			if !slices.Contains(asked, q) {
				t.Errorf("no question %q in %q", q, asked)
			}
		}
		w.forget()
		if v := w.visits(nil); len(v)+len(w.asked()) > 0 {
			t.Errorf("the book is not empty: %v", v)
		}
	})
}
