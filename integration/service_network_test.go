//go:build linux

package integration

import (
	"encoding/json"
	"slices"
	"testing"

	"skillbox/helper"
)

func TestAReadyBoxReachesWhatItMayAndNothingElse(t *testing.T) {
	inEachWay(t, func(t *testing.T, w *world, y way) {
		s := y.mode.service(t)
		s.within = w.host.Run
		flags := []string{"--mode", "user", "--policy", y.mode.file(t, "policy.yaml", y.policy(usual))}
		has := func(talks ...talk) ([]outcome, *helper.Result) {
			t.Helper()
			w.forget()
			c := call{mode: y.mode, flags: flags, env: s.env(), words: []string{"/skill/probe", "talk"}, stdin: asJSON(t, talks)}
			r := w.run(t, y, c)
			var got []outcome
			if err := json.Unmarshal([]byte(r.Stdout), &got); err != nil || len(got) != len(talks) {
				t.Fatalf("%v: %s, %v, %s%s", err, r.Verdict, r.Error, r.Stdout, r.Stderr)
			}
			return got, r
		}
		hello := talk{To: "tcp " + join(apiAddr, 80), Send: once("GET / HTTP/1.1\r\nHost: api.allowed.example\r\n\r\n"), Count: 1}
		looked := hello
		looked.Look = []string{"api.allowed.example"}
		s.warm(t, 3, func() *helper.Result {
			got, r := has(looked, talk{To: "tcp " + join(otherAddr, 9999)}, talk{To: "tcp 169.254.169.254:80"})
			if got[0].verdict() != reached || got[1].verdict() != refused || got[2].verdict() != refused {
				t.Errorf("%v", got)
			}
			if n := len(w.visits(nil)); n != 1 {
				t.Errorf("%d visits", n)
			}
			told := func(f helper.Flow) bool {
				return f.Kind == "connection" && f.Name == "api.allowed.example" && f.Address == apiAddr && f.Port == 80 && f.Sent > 0 && f.Received > 0
			}
			if !slices.ContainsFunc(r.Network, told) || r.Usage.Net == nil || r.Usage.Net.Connections != 1 || r.Usage.Net.Refused != 2 {
				t.Errorf("%+v, %+v", r.Network, r.Usage.Net)
			}
			denied(t, r, "connection", join(otherAddr, 9999)+"/tcp", "")
			denied(t, r, "connection", "169.254.169.254:80/tcp", "the floor: ")
			return r
		})
		// What one call looked up opens nothing to the next.
		s.warm(t, 1, func() *helper.Result {
			got, r := has(hello)
			if got[0].verdict() != refused || len(r.Network) != 0 || len(w.visits(nil)) != 0 {
				t.Errorf("without a lookup: %v, %+v", got, r.Network)
			}
			return r
		})
	})
}
