package policy

import (
	"slices"
	"testing"
)

func TestAManifestsNamesLimitTheEnvironment(t *testing.T) {
	operator, err := Parse("policy.yaml", []byte("version: 1\nenv:\n  pass: [A, B]\n  secrets: [C, D]\n  set: {E: e, F: f}\n"))
	if err != nil {
		t.Fatal(err)
	}
	g, err := Grant(nil, operator, nil)
	if err != nil {
		t.Fatal(err)
	}
	without := g.LimitEnv([]string{"A", "C", "E", "G"}, "manifest.yaml: env_vars")
	env := g.Policy.Env
	if !slices.Equal(env.Pass, []string{"A"}) || !slices.Equal(env.Secrets, []string{"C"}) || len(env.Set) != 2 || !slices.Equal(without, []string{"G"}) {
		t.Errorf("%+v, without %v", env, without)
	}
	if len(g.Narrowed) != 2 || g.Narrowed[1].String() != "policy.yaml:4:3: env.secrets asked D, got nothing: manifest.yaml: env_vars does not name it" {
		t.Errorf("%v", g.Narrowed)
	}
	if slices.Contains(operator.Env.Pass, "A") && len(operator.Env.Pass) != 2 {
		t.Errorf("the operator's own policy was changed: %+v", operator.Env)
	}
	if without := g.LimitEnv(nil, "x"); len(g.Policy.Env.Pass) != 0 || without != nil {
		t.Errorf("%+v", g.Policy.Env)
	}
}
