//go:build linux

package scan

import (
	"slices"
	"strings"
	"testing"
	"time"

	"skillbox/audit"
	"skillbox/policy"
)

func TestTheWorldsPolicyIsOne(t *testing.T) {
	declared, err := policy.Parse("declared.yaml", []byte(`version: 1
enforcement: best-effort
rootfs: {bundle: copy-on-write}
filesystem: {read: [{host: /srv/ref, path: /ref}], write: [{host: /srv/out}]}
env: {pass: [MY_KEY], secrets: [TOKEN], set: {MODE: "a \"quoted\" $x # no: {comment}", HOME: /elsewhere}}
network: {egress: [{domains: [api.example.com, "*.cdn.example.com"], ports: [443, "8000-8100"]}, {cidrs: [192.0.2.0/24], except: [192.0.2.7/32], ports: [53/udp]}], deny: [{domains: [bad.cdn.example.com]}]}
resources: {memory: 1Gi, pids: 10}
syscalls: {profile: strict, allow: [ptrace]}
`))
	do(t, err)
	for name, c := range map[string]struct {
		declared *policy.Policy
		world    world
	}{
		"of the default": {policy.Default(), world{home: "/tmp/x/home", timeout: 1500 * time.Millisecond}},
		"of all": {declared, world{
			command: []string{"sh", "-c", `echo "$A" # 'x'`}, home: "/tmp/it's \"here\"/home", names: []string{"MY_KEY"}, secrets: []string{"TOKEN"}, timeout: time.Second,
			binds: []policy.Bind{{Host: "/tmp/x/0", Path: "/ref"}, {Host: "/tmp/x/1", Path: "/srv/out"}},
		}},
	} {
		text := c.world.policyText(c.declared)
		p, err := policy.Parse("scan.yaml", []byte(text))
		if err != nil {
			t.Errorf("%s: %v\n%s", name, err, text)
			continue
		}
		if !slices.Equal(p.Command, c.world.command) || p.Timeout != c.world.timeout || p.Rootfs.Bundle != "copy-on-write" || p.Audit.Syscalls != "security" || p.Audit.Files != "all" {
			t.Errorf("%s: %s", name, text)
		}
		if p.Env.Set["HOME"] != homeDir || p.Filesystem.Write[0].Host != c.world.home || !p.Network.Sinkhole {
			t.Errorf("%s: %s", name, text)
		}
		if len(p.Network.Egress) != len(c.declared.Network.Egress) || len(p.Network.Deny) != len(c.declared.Network.Deny) || len(p.Filesystem.Read) > 0 {
			t.Errorf("%s: %s", name, text)
		}
		for _, b := range p.Filesystem.Write { // of the host, nothing but what was made for it
			if !strings.HasPrefix(b.Host, "/tmp/") {
				t.Errorf("%s: shows %s", name, b.Host)
			}
		}
		for _, key := range []string{"resources.memory", "resources.pids", "resources.cpu"} {
			if p.Named(key) != c.declared.Named(key) {
				t.Errorf("%s: %s named: %v", name, key, p.Named(key))
			}
		}
	}
}

func TestAClockIsReadOrRefused(t *testing.T) {
	for text, want := range map[string]time.Duration{
		"": 0, "+30d": 30 * 24 * time.Hour, "1d": 24 * time.Hour, "+36h": 36 * time.Hour, "90m": 90 * time.Minute,
		"-1d": -1, "tomorrow": -1, "0s": -1, "+999999d": -1, "1.5d": -1,
	} {
		got, err := ParseClock(text)
		if err != nil {
			got = -1
		}
		if got != want {
			t.Errorf("%q: %v, %v", text, got, err)
		}
	}
}

func TestDeclaredIsComparedWithSeen(t *testing.T) {
	declared, err := policy.Parse("declared.yaml", []byte(`version: 1
filesystem: {read: [{host: /srv/ref, path: /ref}, {host: /srv/used, path: /used}]}
env: {secrets: [TOKEN, USED]}
network: {egress: [{domains: [api.example.com, "*.cdn.example.com"], ports: [443]}, {cidrs: [192.0.2.0/24, 198.51.100.0/24], ports: [53/udp, 25]}]}
syscalls: {allow: [ptrace]}
`))
	do(t, err)
	s := sightOf("", "",
		opens("/used/a"), opens("/run/secrets/USED"), opens("/run/secrets/OTHER"), audit.Syscall{Name: "mount", Outcome: denied}, audit.Syscall{Name: "ptrace", Outcome: denied},
		connects("a.cdn.example.com", "203.0.113.1", 443), connects("", "198.51.100.2", 25), connects("evil.example", "203.0.113.2", 80), connects("api.example.com", "203.0.113.3", 80),
	)
	s.declared = declared
	var got []string
	for _, d := range (&scanning{subject: s.subject, report: &Report{Runs: []Run{*s.run}}}).compare() {
		got = append(got, d.String())
	}
	slices.Sort(got)
	want := []string{
		"env.secrets: OTHER was tried, and is not declared",
		"env.secrets: TOKEN is declared, and no run used it",
		"filesystem.read: /ref is declared, and no run used it",
		"network.egress: 192.0.2.0/24 is declared, and no run used it",
		"network.egress: api.example.com 80/tcp was tried, and is not declared",
		"network.egress: evil.example 80/tcp was tried, and is not declared",
		"syscalls.allow: mount was tried, and is not declared",
	}
	if !slices.Equal(got, want) {
		t.Errorf("got  %q\nwant %q", got, want)
	}
}
