//go:build linux

package integration

import (
	"bytes"
	"encoding/json"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"skillbox/helper"
)

// talks has conversations in one box of a user's, in the world where the service runs.
func (c *systemCaller) talks(t *testing.T, policy string, talks ...talk) ([]outcome, *helper.Result) {
	t.Helper()
	flags := []string{"--json", "--policy", asRoot.file(t, "policy.yaml", policy)}
	cmd := c.call(flags, asRoot.sharedBundle(t), "/skill/probe", "talk")
	cmd.Stdin = strings.NewReader(asJSON(t, talks))
	var out, errs bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &errs
	if err := c.within(cmd.Start); err != nil {
		t.Fatal(err)
	}
	if err := cmd.Wait(); err != nil {
		t.Fatalf("%v: %s%s", err, out.String(), errs.String())
	}
	var r helper.Result
	var got []outcome
	if err := json.Unmarshal(out.Bytes(), &r); err != nil {
		t.Fatal(err)
	}
	if err := json.Unmarshal([]byte(r.Stdout), &got); err != nil || len(got) != len(talks) {
		t.Fatalf("%v: %s, %v, %s%s", err, r.Verdict, r.Error, r.Stdout, r.Stderr)
	}
	return got, &r
}

func TestTheSystemServiceGivesOrdinaryUsersLinks(t *testing.T) {
	inTheWorld(t, func(t *testing.T, w *world) {
		s := theSystem(t)
		w.leavesNothing(t)
		s.within = w.host.Run
		t.Cleanup(func() { s.stop(t) }) // before the host is looked at
		s.begin(t)
		policy := "version: 1\nnetwork:\n  path: veth\n  egress:\n    - {cidrs: [20.1.1.0/24], ports: [9999, 5000/udp]}\n    - {domains: [api.allowed.example], ports: [80]}\n"
		get := once("GET / HTTP/1.1\r\nHost: api.allowed.example\r\n\r\n")
		for _, uid := range []int{alice, bob, alice} {
			w.forget()
			got, r := s.as(uid).talks(t, policy,
				talk{To: "tcp " + join(servicesAddr, 9999), Send: once("hello"), Count: 1},
				talk{To: "udp " + join(servicesAddr, 5000), Send: once("hello"), Count: 1},
				talk{Look: []string{"api.allowed.example"}, To: "tcp " + join(apiAddr, 80), Send: get, Count: 1},
				talk{To: "tcp " + join(servicesAddr, 22)}, talk{To: "tcp 169.254.169.254:80"}, talk{To: "tcp " + join(hostAddr, 22)},
			)
			for i, want := range []string{reached, reached, reached, refused, refused, refused} {
				if v := got[i].verdict(); v != want {
					t.Errorf("user %d: %d: %s: %v", uid, i, v, got[i])
				}
			}
			if layer := r.Sandbox.Layers["network"]; !strings.HasPrefix(layer, "veth") {
				t.Errorf("%s", layer)
			}
		}
		// A worker that dies leaves no link.
		cmd := s.as(carol).call([]string{"--policy", asRoot.file(t, "policy.yaml", policy)}, asRoot.bundleOf(t, map[string]string{"main.sh": lasting}), "./main.sh", "a")
		var b *background
		_ = s.within(func() error { b = asRoot.prepared(t, cmd); return nil })
		b.expect(t, "ready\n")
		if !strings.Contains(w.state(t), "\nsb") {
			t.Error("the box has no link")
		}
		if err := unix.Kill(s.workers(carol)[0], unix.SIGKILL); err != nil {
			t.Error(err)
		}
		if _, code := b.wait(t); code != 125 {
			t.Errorf("exit code %d", code)
		}
	})
}
