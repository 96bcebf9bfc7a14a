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
		"version: 1\nquota:\n  users:\n    alice: {cals: 4}\n":       `service.yaml:4:13: quota.users.alice: unknown key "cals" (did you mean calls?)`,
		"version: 1\nquota:\n  groups: {agents: {memory: 1}}\n":      "service.yaml:3:29: quota.groups.agents.memory",
		"version: 1\nquota:\n  groups: {a: {users: {b: {}}}}\n":      `service.yaml:3:16: quota.groups.a: unknown key "users"`,
		"version: 1\nquota:\n  users: {\"../x\": {calls: 4}}\n":      "service.yaml:3:11: quota.users: \"../x\" is no name",
		"version: 1\nquota:\n  users: {}\n":                          "service.yaml:3:10: quota.users: 0 names",
		"version: 1\nquota:\n  users: [alice]\n":                     "service.yaml:3:10: quota.users: must be a mapping of users to quotas",
		"version: 1\nquota:\n  users: {alice: 4}\n":                  "service.yaml:3:18: quota.users.alice: must be a mapping of keys",
		"version: 1\nquota:\n  users: {alice: {}}\n":                 "service.yaml:3:18: quota.users.alice: is empty",
		"version: 1\nquota: {users: {a: {pids: 1}, a: {pids: 2}}}\n": "named twice",
		"version: 1\nusers: {alice: {calls: 4}}\n":                   `service.yaml:2:1: unknown key "users"`,
		"version: 1\nqouta: {calls: 4}\n":                            `service.yaml:2:1: unknown key "qouta" (did you mean quota?)`,
		"version: 1\nquota: {cals: 4}\n":                             `service.yaml:2:9: quota: unknown key "cals" (did you mean calls?)`,
		"version: 1\nquota: {calls: 0}\n":                            "quota.calls",
		"version: 1\nquota: {calls: many}\n":                         "quota.calls",
		"version: 1\nquota: {memory: 1}\n":                           "quota.memory",
		"version: 1\nallow: {users: []}\n":                           "allow.users",
		"version: 1\nallow: {users: [\"../x\"]}\n":                   "allow.users[0]",
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

func TestTheQuotaOfAUserIsTheUsersOwnElseThatOfAllGroups(t *testing.T) {
	const file = `version: 1
quota:
  users:
    alice: {calls: 100, memory: 16Gi}
    1007: {pids: 10}
  groups:
    agents: {calls: 4, pids: 100}
    "70001": {calls: 40, connections: 5, ready: 1}
  calls: 8
  memory: 1Gi
`
	s, err := ParseService("service.yaml", []byte(file))
	if err != nil {
		t.Fatal(err)
	}
	if at := s.Users[1].At; len(s.Users) != 2 || len(s.Groups) != 2 || at.Line != 5 || at.Column != 5 || s.Users[1].Name != "1007" {
		t.Fatalf("%+v", s)
	}
	base := DefaultQuota()
	base.Calls, base.Memory = 8, gib
	for _, c := range []struct {
		users, groups []AccountQuota
		change        func(*Quota)
		from          string
	}{
		{nil, nil, func(*Quota) {}, "quota"},
		{s.Users[:1], s.Groups, func(q *Quota) { q.Calls, q.Memory = 100, 16*gib }, "quota.users.alice"},
		{s.Users, nil, func(q *Quota) { q.Pids = 10 }, "quota.users.alice, quota.users.1007"}, // one user by both: each holds
		{nil, s.Groups[:1], func(q *Quota) { q.Calls, q.Pids = 4, 100 }, "quota.groups.agents"},
		{nil, s.Groups[1:], func(q *Quota) { q.Calls, q.Connections, q.Ready = 40, 5, 1 }, "quota.groups.70001"},
		{nil, s.Groups, func(q *Quota) { q.Calls, q.Pids, q.Connections, q.Ready = 4, 100, 5, 1 }, "quota.groups.agents, quota.groups.70001"},
	} {
		want := base
		c.change(&want)
		want.From = c.from
		if got := s.QuotaOf(c.users, c.groups); got != want {
			t.Errorf("%s: %+v, want %+v", c.from, got, want)
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
