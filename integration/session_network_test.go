//go:build linux

package integration

import (
	"encoding/json"
	"slices"
	"strings"
	"testing"
	"time"

	"skillbox/helper"
)

func TestEachCallOfASessionHasItsOwnRecordOfTheNetwork(t *testing.T) {
	inEachWay(t, func(t *testing.T, w *world, y way) {
		s := y.mode.service(t)
		s.within = w.host.Run
		var one *session
		policy := y.mode.file(t, "policy.yaml", y.policy(usual))
		_ = s.within(func() error { one = s.session(t, y.mode.sharedBundle(t), "--policy", policy); return nil })
		call := func(stdin string, words ...string) (r *helper.Result) {
			t.Helper()
			c := one.command([]string{"--json"}, words...)
			c.Stdin = strings.NewReader(stdin)
			err := s.within(func() (err error) { r, err = envelope(c); return err })
			if err != nil || !r.Success {
				t.Fatalf("%v, %+v", err, r)
			}
			return r
		}
		quiet := func() {
			t.Helper()
			if r := call("", "true"); len(r.Network)+len(r.Denials) != 0 || r.Usage.Net == nil || *r.Usage.Net != (helper.Net{}) {
				t.Errorf("call %d: %+v, %+v, %+v", r.Call, r.Network, r.Denials, r.Usage.Net)
			}
		}
		hello := talk{To: "tcp " + join(apiAddr, 80), Send: once("GET / HTTP/1.1\r\nHost: api.allowed.example\r\n\r\n"), Count: 1}
		looked := hello
		looked.Look = []string{"api.allowed.example"}
		connections := func(r *helper.Result) int {
			return len(slices.DeleteFunc(slices.Clone(r.Network), func(f helper.Flow) bool { return f.Kind != "connection" }))
		}
		quiet()
		for range 3 {
			r := call(asJSON(t, []talk{looked, hello, {To: "tcp " + join(otherAddr, 9999)}, {To: "tcp 169.254.169.254:80"}}), "/skill/probe", "talk")
			var got []outcome
			if err := json.Unmarshal([]byte(r.Stdout), &got); err != nil || len(got) != 4 || got[0].verdict() != reached || got[1].verdict() != reached || got[2].verdict() != refused || got[3].verdict() != refused {
				t.Errorf("%v: %v", err, got)
			}
			if n := r.Usage.Net; n == nil || n.Connections != 2 || n.Refused != 2 || n.Sent == 0 || n.Received == 0 || connections(r) != 2 || len(r.Denials) != 2 {
				t.Errorf("call %d: %+v, %+v, %+v", r.Call, r.Network, r.Denials, n)
			}
			denied(t, r, "connection", join(otherAddr, 9999)+"/tcp", "")
			quiet()
		}
		// What a process does that was left behind is told by the call in which it ends, or by the stop.
		call("", "sh", "-c", "(sleep 1; echo '"+asJSON(t, []talk{{To: "tcp " + join(otherAddr, 9999)}})+"' | /skill/probe talk) >/tmp/out 2>&1 </dev/null &")
		quiet()
		if r := call("", "sh", "-c", "while ! test -s /tmp/out; do sleep 0.01; done"); len(r.Denials) != 1 || r.Usage.Net.Refused != 1 {
			t.Errorf("%+v, %+v", r.Denials, r.Usage.Net)
		}
		call("", "sh", "-c", "(sleep 0.1; echo '"+asJSON(t, []talk{{To: "tcp " + join(otherAddr, 9999)}})+"' | /skill/probe talk; sleep 100) >/tmp/out2 2>&1 </dev/null &")
		call("", "true")
		var stopped helper.SessionStopped
		_ = s.within(func() error {
			time.Sleep(time.Second)
			out, errs, code := tell(s.sessionCommand("stop", "--json", one.id))
			if err := json.Unmarshal([]byte(out), &stopped); err != nil || code != 0 {
				t.Errorf("%v: %q, %q, %d", err, out, errs, code)
			}
			return nil
		})
		if len(stopped.Denials) != 1 || stopped.Calls == 0 {
			t.Errorf("%+v", stopped)
		}
	})
}

// The kernel remembers an exchange over UDP for longer than the call that had it, and tells of it again when it forgets.
func TestAnExchangeOverUDPIsToldOnce(t *testing.T) {
	linked := slices.DeleteFunc(ways(), func(y way) bool { return y.path != "veth" })
	inWays(t, linked, func(t *testing.T, w *world, y way) {
		s := y.mode.service(t)
		s.within = w.host.Run
		policy := y.mode.file(t, "policy.yaml", y.policy(`egress: [{cidrs: [`+apiAddr+`/32], ports: ["7/udp"]}]`))
		send := "import socket; s = socket.socket(type=socket.SOCK_DGRAM); s.bind(('', 5000)); s.sendto(b'x' * 100, ('" + apiAddr + "', 7))"
		_ = s.within(func() error {
			one := s.session(t, y.mode.sharedBundle(t), "--policy", policy)
			for range 3 {
				r := one.call(t, nil, "/usr/bin/python3", "-c", send)
				if len(r.Network) != 1 || r.Network[0].Proto != "udp" || r.Network[0].Sent != 128 {
					t.Errorf("call %d: %+v, %+v: %s", r.Call, r.Network, r.Denials, r.Stderr)
				}
				if r := one.says(t, "", "true"); len(r.Network) != 0 || r.Usage.Net.Sent != 0 {
					t.Errorf("call %d: %+v", r.Call, r.Network)
				}
			}
			return nil
		})
	})
}
