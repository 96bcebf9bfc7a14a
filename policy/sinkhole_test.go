package policy

import (
	"strings"
	"testing"
)

func TestNoCeilingForbidsASinkholeAndOneMayDemandIt(t *testing.T) {
	for name, c := range map[string]struct{ ceiling, operator, declared, want string }{
		"a ceiling that says false":      {"network: {egress: [], sinkhole: false}", "network: {sinkhole: true}", "", "true"},
		"a ceiling that demands it":      {"network: {sinkhole: true}", "timeout: 5s", "", "true"},
		"a skill that asks for it":       {"", "timeout: 5s", "network: {sinkhole: true}", "false"},
		"a skill that would do without":  {"", "network: {sinkhole: true}", "network: {sinkhole: false}", "true"},
		"an operator against a ceiling":  {"network: {sinkhole: true}", "network: {sinkhole: false}", "", "policy.yaml:2:21: network.sinkhole: false is not permitted on this host (host.yaml:2:21 permits at least true)"},
		"a way out and none":             {"", "network: {sinkhole: true, path: capture}", "", "true"},
		"a ceiling that takes away veth": {"network: {sinkhole: true}", "network: {path: veth}", "", "policy.yaml:2:17: network.path: veth is a way out, and network.sinkhole lets nothing out (leave it out: a sinkhole has no path)"},
	} {
		var policies [3]*Policy
		for i, lines := range []string{c.ceiling, c.operator, c.declared} {
			if lines != "" {
				policies[i] = named(t, []string{"host.yaml", "policy.yaml", "SKILL.md"}[i], lines)
			}
		}
		g, err := Grant(policies[0], policies[1], policies[2])
		got := ""
		if err != nil {
			got = err.Error()
		} else if got = "false"; g.Policy.Network.Sinkhole {
			got = "true"
		}
		if got != c.want {
			t.Errorf("%s: %s, want %s", name, got, c.want)
		}
	}
}

func TestASinkholeHasNoLink(t *testing.T) {
	_, err := Parse("policy.yaml", []byte(body("network:\n  sinkhole: true\n  path: veth")))
	if err == nil || !strings.HasPrefix(err.Error(), "policy.yaml:4:9: network.path: veth is a way out") {
		t.Error(err)
	}
}
