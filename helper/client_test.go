package helper

import (
	"strings"
	"testing"
)

func TestOnlyGrantedValuesLeaveTheClient(t *testing.T) {
	environ := map[string]string{"LANG": "C", "KEY": "k", "OTHER": "o"}
	v, err := valuesFor(&Granted{Env: []string{"LANG", "UNSET"}, Secrets: []string{"KEY"}}, func(name string) (string, bool) {
		value, ok := environ[name]
		return value, ok
	})
	if err != nil {
		t.Fatal(err)
	}
	if len(v.Env) != 1 || v.Env["LANG"] != "C" || len(v.Secrets) != 1 || v.Secrets["KEY"] != "k" {
		t.Errorf("got %v", v)
	}
}

func TestWhatJSONWouldChangeIsRefused(t *testing.T) {
	const bad = "a\xffb"
	for name, r := range map[string]*Request{
		"a word":          {Words: []string{"x", bad}},
		"an entry":        {Entry: bad},
		"an input's name": {Inputs: []string{bad}},
		"a value":         {EnvSet: map[string]string{"A": bad}},
	} {
		if err := r.checkText(); err == nil || strings.Contains(err.Error(), bad) {
			t.Errorf("%s: got %v", name, err)
		}
	}
	_, err := valuesFor(&Granted{Secrets: []string{"KEY"}}, func(string) (string, bool) { return bad, true })
	if err == nil || !strings.Contains(err.Error(), "KEY") {
		t.Errorf("a secret: got %v", err)
	}
}
