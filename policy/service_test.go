package policy

import (
	"strings"
	"testing"
)

func TestServiceFile(t *testing.T) {
	s, err := ParseService("service.yaml", []byte("version: 1\nallow:\n  users: [alice, \"1000\"]\n  groups: [skills]\nquota: {calls: 4, memory: 1Gi}\n"))
	if err != nil {
		t.Fatal(err)
	}
	want := DefaultQuota()
	want.Calls, want.Memory = 4, 1<<30
	if s.Quota != want || len(s.Allow.Users) != 2 || len(s.Allow.Groups) != 1 {
		t.Errorf("%+v", s)
	}
	for text, want := range map[string]string{
		"version: 1\nqouta: {calls: 4}\n":           `service.yaml:2:1: unknown key "qouta" (did you mean quota?)`,
		"version: 1\nquota: {cals: 4}\n":            `service.yaml:2:9: quota: unknown key "cals" (did you mean calls?)`,
		"version: 1\nquota: {calls: 0}\n":           "quota.calls",
		"version: 1\nquota: {calls: many}\n":        "quota.calls",
		"version: 1\nquota: {memory: 1}\n":          "quota.memory",
		"version: 1\nallow: {users: []}\n":          "allow.users",
		"version: 1\nallow: {users: [\"../x\"]}\n":  "allow.users[0]",
		"version: 2\n":                              "version",
		"quota: &a {calls: 4}\n":                    "anchor",
		"version: 1\nquota: {calls: 4, calls: 5}\n": "named twice",
		"quota: {calls: 4}\n":                       "begin the file with version: 1",
	} {
		if _, err := ParseService("service.yaml", []byte(text)); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%q: %v, want %q", text, err, want)
		}
	}
}

func TestEveryOneOfSeveralCeilingsHolds(t *testing.T) {
	parse := func(name, text string) *Policy {
		t.Helper()
		p, err := Parse(name, []byte("version: 1\n"+text))
		if err != nil {
			t.Fatal(err)
		}
		return p
	}
	a := parse("a.yaml", "resources: {memory: 128Mi, pids: 32}\ntimeout: 20s\n")
	b := parse("b.yaml", "resources: {memory: 64Mi, cpu: 0.5}\ntimeout: 25s\n")
	for _, both := range [][]*Policy{{a, b}, {b, a}} {
		g, err := GrantAll(both, nil, nil)
		if err != nil {
			t.Fatal(err)
		}
		if r := g.Policy.Resources; r.Memory != 64<<20 || r.Pids != 32 || r.CPU != 0.5 || g.Policy.Timeout.Seconds() != 20 {
			t.Errorf("%+v, %v", r, g.Policy.Timeout)
		}
		if len(g.Clamped) < 4 {
			t.Errorf("%v", g.Clamped)
		}
		for _, asked := range []string{"resources: {memory: 100Mi}\n", "resources: {pids: 33}\n", "timeout: 21s\n"} {
			if _, err := GrantAll(both, parse("policy.yaml", asked), nil); err == nil || !strings.Contains(err.Error(), "not permitted on this host") {
				t.Errorf("%s: %v", asked, err)
			}
		}
		if _, err := GrantAll(both, parse("policy.yaml", "resources: {memory: 64Mi, pids: 32, cpu: 0.5}\ntimeout: 20s\n"), nil); err != nil {
			t.Error(err)
		}
	}
	if g, err := GrantAll(nil, nil, nil); err != nil || g.Policy.Resources.Memory != Default().Resources.Memory {
		t.Errorf("%v, %v", g, err)
	}
}
