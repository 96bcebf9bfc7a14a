//go:build linux

package integration

import (
	"slices"
	"strings"
	"testing"

	"skillbox/audit"
	"skillbox/helper"
)

// Each call of a session has what it said itself, and the box goes on.
func TestASinkholeTellsEachCallOfASession(t *testing.T) {
	inWays(t, sinkable(ways()), func(t *testing.T, w *world, y way) {
		s := y.mode.service(t)
		s.within = w.host.Run
		var one *session
		policy := y.mode.file(t, "policy.yaml", "version: 1\nnetwork: {sinkhole: true}\n")
		_ = s.within(func() error { one = s.session(t, y.mode.sharedBundle(t), "--policy", policy); return nil })
		const script = "import socket, sys\ns = socket.create_connection((sys.argv[1] + '.example', 4444), 5)\ns.sendall(sys.argv[1].encode())\ns.close()\n" +
			"socket.socket(socket.AF_INET, socket.SOCK_DGRAM).sendto(sys.argv[1].encode(), ('203.0.113.9', 99))"
		for _, word := range []string{"first", "second", "third"} {
			c := one.command([]string{"--json"}, "/usr/bin/python3", "-c", script, word)
			var r *helper.Result
			if err := s.within(func() (err error) { r, err = envelope(c); return err }); err != nil || !r.Success {
				t.Fatalf("%v, %+v", err, r)
			}
			records := recorded(t, y.mode, r.ID)
			var names, said []string
			for _, d := range details[audit.DNS](records) {
				if d.Type == "A" {
					names = append(names, d.Name)
				}
			}
			for _, c := range details[audit.Connection](records) {
				said = append(said, c.Proto+" "+c.FirstBytes)
			}
			slices.Sort(said)
			if !slices.Equal(names, []string{word + ".example"}) || !slices.Equal(said, []string{"tcp " + word, "udp " + word}) {
				t.Errorf("call %d: %q %q", r.Call, names, said)
			}
			if n := r.Usage.Net; n == nil || n.Connections != 2 || n.Sent != int64(2*len(word)) || n.Refused != 0 || !strings.Contains(asJSON(t, r.Network), word) {
				t.Errorf("call %d: %+v", r.Call, n)
			}
		}
		_ = s.within(func() error {
			if out, errs, code := tell(s.sessionCommand("stop", one.id)); code != 0 {
				t.Errorf("stop: %q, %q, %d", out, errs, code)
			}
			return nil
		})
		w.only(t)
		if asked := w.asked(); len(asked) > 0 {
			t.Errorf("questions left the box: %q", asked)
		}
	})
}
