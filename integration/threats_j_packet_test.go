//go:build linux

package integration

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"skillbox/helper"
)

// Sockets that would carry something past rules for TCP and UDP do not exist in a box.
func TestThreat204ICMPTunnel(t *testing.T) {
	inEachWay(t, func(t *testing.T, w *world, y way) {
		for _, addr := range []string{apiAddr, "8.8.8.8"} {
			got := map[string]string{}
			w.probe(t, y, y.policy(usual), &got, nil, "sockets", addr)
			for what, a := range got {
				if want := map[string]string{"MPTCP": "EPROTONOSUPPORT"}[what]; a != "EAFNOSUPPORT" && a != want {
					t.Errorf("%s: %s", what, a)
				}
			}
		}
		ping := w.run(t, y, call{mode: y.mode, policy: y.policy(usual), words: []string{"/bin/sh", "-c", "command -v ping >/dev/null || exit 1; ping -c 1 -W 1 " + apiAddr}})
		if ping.ExitCode == 0 {
			t.Errorf("ping: %s", ping.Stdout)
		}
		w.only(t)
	})
}

// No variable has to be heeded: raw system calls find the same rules as everybody, and programs find no proxy.
func TestThreat205ProxyEnvIgnored(t *testing.T) {
	inEachWay(t, func(t *testing.T, w *world, y way) {
		var env []string
		w.probe(t, y, y.policy(usual), &env, nil, "environ")
		for _, v := range env {
			if strings.Contains(strings.ToLower(v), "proxy") {
				t.Errorf("the environment has %s", v)
			}
		}
		got := map[string]string{}
		set := `env: {set: {HTTP_PROXY: "http://11.22.33.1:8080", ALL_PROXY: "socks5://11.22.33.1:8080", NO_PROXY: "*"}}`
		r := w.probe(t, y, y.policy(usual, set), &got, nil, "socket-options", join(otherAddr, 443))
		if a := got["nothing, tcp"]; a != "connect: ECONNREFUSED" {
			t.Errorf("a plain connection: %s", a)
		}
		denied(t, r, "connection", join(otherAddr, 443)+"/tcp", "")
		w.only(t)
	})
}

// Nothing that a skill may set on a socket changes where its packets come from or go to.
func TestThreat208SpoofSrcIPMAC(t *testing.T) {
	inEachWay(t, func(t *testing.T, w *world, y way) {
		got := map[string]string{}
		for _, addr := range []string{otherAddr, apiAddr, "10.1.2.3", hostAddr} {
			w.probe(t, y, y.policy(usual), &got, nil, "socket-options", join(addr, 9999))
			for what, a := range got {
				if strings.HasSuffix(a, "sent") {
					t.Errorf("%s to %s: %s", what, addr, a)
				}
			}
		}
		for _, what := range []string{"IP_TRANSPARENT", "SO_MARK", "SO_BINDTODEVICE eth0"} {
			a := got[what+", tcp"]
			if strings.HasSuffix(what, "eth0") && a == "connect: ECONNREFUSED" {
				continue // its own interface, by which the same rules hold
			}
			if !strings.HasPrefix(a, "set: E") {
				t.Errorf("%s: %s", what, a)
			}
		}
		changes := map[string]string{}
		w.probe(t, y, y.policy(usual), &changes, nil, "rtnetlink")
		for what, a := range changes {
			if !slices.Contains([]string{"EPERM", "EAFNOSUPPORT"}, a) {
				t.Errorf("%s: %s", what, a)
			}
		}
		w.only(t)
	})
}

// Two boxes at a time, of one user and of two: neither hears the other, whatever addresses they have.
func TestThreat210CrossSandbox(t *testing.T) {
	const port = 7100
	inEachWay(t, func(t *testing.T, w *world, y way) {
		dir := y.mode.dir(t)
		bind := "filesystem: {write: [{host: " + dir + ", path: /shared}]}"
		end := w.beginProbe(t, y, y.policy(usual, bind), nil, "serve", "/shared", fmt.Sprint(port))
		appears(t, filepath.Join(dir, "got"))
		text, err := os.ReadFile(filepath.Join(dir, "got"))
		var addrs []string
		if err == nil {
			err = json.Unmarshal(text, &addrs)
		}
		if err != nil {
			t.Fatal(err)
		}
		t.Logf("the sibling has %v", addrs)
		for _, other := range ways() {
			targets := []string{}
			for _, a := range append([]string{"127.0.0.1", "::1"}, addrs...) {
				targets = append(targets, "tcp "+join(a, port), "udp "+join(a, port))
			}
			got := map[string]outcome{}
			w.probe(t, other, other.policy(usual), &got, nil, append([]string{"reach"}, targets...)...)
			for to, o := range got {
				if strings.HasPrefix(to, "tcp") && o.Connect == "ok" || o.Bytes > 0 {
					t.Errorf("from %s: %s: %v", other, to, o)
				}
			}
		}
		y.mode.write(t, filepath.Join(dir, "stop"), "", 0o644)
		came := -1
		end(&came)
		if came != 0 {
			t.Errorf("%d came to the sibling", came)
		}
		w.only(t)
	})
}

// The namespace belongs to another user namespace: whatever a skill is in its own, it has no say there.
func TestThreat211NFTFromInside(t *testing.T) {
	inEveryWay(t, func(t *testing.T, w *world, y way) {
		got := map[string]string{}
		w.probe(t, y, y.policy(usual), &got, nil, "rtnetlink")
		for what, a := range got {
			want := "EPERM"
			if strings.HasPrefix(what, "nft") || strings.Contains(what, "nftables") {
				want = "EAFNOSUPPORT" // there is no such socket
			}
			if a != want {
				t.Errorf("%s: %s, want %s", what, a, want)
			}
		}
		script := `
import json, os
r = {}
for p in ('ipv4/ip_forward', 'ipv4/conf/all/route_localnet', 'ipv4/ping_group_range', 'ipv6/conf/all/accept_ra'):
    try:
        os.write(os.open('/proc/sys/net/' + p, os.O_WRONLY), b'1')
        r[p] = 'written'
    except OSError as e: r[p] = str(e.errno)
print(json.dumps(r))
`
		settings := map[string]string{}
		w.python(t, y, y.policy(usual), &settings, script)
		all(t, settings, "1", "2", "13", "30") // EPERM, ENOENT, EACCES, EROFS
	})
}

// The rules are there before the skill is: from its first instruction on it finds them, in every one of many boxes.
func TestThreat213RaceBeforeRules(t *testing.T) {
	inEveryWay(t, func(t *testing.T, w *world, y way) {
		for range load(5) {
			var ends []func(any) *helper.Result
			for range 4 {
				ends = append(ends, w.beginProbe(t, y, y.policy(usual), nil, "race", "tcp "+join(otherAddr, 443), "tcp "+join(otherAddr6, 443),
					"udp "+join(otherAddr, 7), "tcp 169.254.169.254:80", "tcp "+join(hostAddr, openPort)))
			}
			for _, end := range ends {
				got := map[string]int{}
				end(&got)
				for what, n := range got {
					if !strings.HasSuffix(strings.TrimSpace(what), "ECONNREFUSED") && !strings.HasSuffix(what, "EPERM") {
						t.Errorf("%d times %s", n, what)
					}
				}
			}
		}
		w.only(t)
	})
}

// What an unprivileged program can do to the form of its packets: fragments, options, data in the first packet.
func TestThreat214FragmentsAndOptions(t *testing.T) {
	inEachWay(t, func(t *testing.T, w *world, y way) {
		for _, to := range []string{join(otherAddr, 443), join(otherAddr, 5000), join(apiAddr, 5000), join("8.8.8.8", 53)} {
			got := map[string]string{}
			w.probe(t, y, y.policy(usual), &got, nil, "socket-options", to)
			for what, a := range got {
				if strings.HasSuffix(a, "sent") {
					t.Errorf("%s to %s: %s", what, to, a)
				}
			}
			if len(got) < 30 {
				t.Errorf("only %d were tried", len(got))
			}
		}
		w.only(t)
		w.forget()
		// Where the destination is allowed, options and early data change nothing about the check of the name.
		policy := y.policy("egress:\n  - {cidrs: [20.1.1.60/32], ports: [9999]}\nlimits: {connections: 10000, rate: 10000}")
		got := map[string]string{}
		w.probe(t, y, policy, &got, nil, "socket-options", join(servicesAddr, 9999))
		t.Logf("to an allowed address: %v", got)
		w.only(t, "tcp "+join(servicesAddr, 9999))
	})
}
