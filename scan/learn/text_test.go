package learn

import (
	"slices"
	"strings"
	"testing"

	"skillbox/policy"
)

func TestAPolicyIsWrittenWithItsReasons(t *testing.T) {
	p := policy.Default()
	p.Name = "odd"
	p.Env.Pass = []string{"KEY", "NO"}
	p.Env.Set = map[string]string{"B": "x\u0085\n\"", "A": "yes"}
	p.Timeout = 90_000_000_000
	d := &document{
		policy: p, head: []string{"Head \x1b[31m\nof all"}, foot: []string{"Foot"}, shown: map[string]bool{"syscalls.profile": true},
		notes: map[string]string{"env.pass KEY": "needed"},
		wishes: []Wish{
			{Key: "network.egress", Value: "{domains: [evil.example], ports: [443]}", Why: "risky: \nversion: 2", Run: "r", Seq: 7},
			{Key: "syscalls.allow", Value: "ptrace", Why: strings.Repeat("long ", 30), Run: "r", Seq: 8},
			{Key: "env.pass", Value: "OTHER\n  - MORE", Why: "risky", Run: "r", Seq: 9},
		},
	}
	want := `# Head \u001b[31m\u000aof all
version: 1
name: odd
env:
  pass:
    - KEY  # needed
    - "NO"
    # - OTHER\u000a  - MORE  # risky (run r, record 9)
  set: {A: "yes", B: "x\u0085\n\""}
# network:
  # egress:
    # - {domains: [evil.example], ports: [443]}  # risky: \u000aversion: 2 (run r, record 7)
timeout: 90s
syscalls:
  profile: default
  # allow:
    # ` + strings.TrimSpace(strings.Repeat("long ", 30)) + `  (run r, record 8)
    # - ptrace
# Foot
`
	got := d.String()
	if got != want {
		t.Errorf("%s\nnot\n%s", got, want)
	}
	again, err := policy.Parse("", []byte(got))
	if err != nil {
		t.Fatal(err)
	}
	if again.Digest() != p.Digest() {
		t.Errorf("%s\nis not\n%s", again.YAML(), p.YAML())
	}
}

// Every key that the policy has can be written: what a policy says is not lost on the way.
func TestEveryKeyIsWritten(t *testing.T) {
	var ours []string
	for _, k := range keys {
		ours = append(ours, k.key)
	}
	path := []string{}
	for line := range strings.Lines(string(policy.Default().YAML())) {
		depth := (len(line) - len(strings.TrimLeft(line, " "))) / 2
		key, rest, _ := strings.Cut(strings.TrimSpace(line), ":")
		path = append(path[:depth], key)
		if at := strings.Join(path, "."); rest != "" && !slices.Contains(ours, at) {
			t.Errorf("%s is not written", at)
		}
	}
}
