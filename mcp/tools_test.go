package mcp

import (
	"encoding/json"
	"slices"
	"strings"
	"testing"

	"skillbox/bundle"
	"skillbox/client"
)

func TestNamesAreUniqueAndShort(t *testing.T) {
	taken := map[string]bool{}
	long := strings.Repeat("n", 70)
	var got []string
	for _, name := range []string{"a", "a", "a_2", "a", long, long} {
		got = append(got, unique(name, taken))
	}
	if want := []string{"a", "a_2", "a_2_2", "a_3", long[:64], long[:62] + "_2"}; !slices.Equal(got, want) {
		t.Errorf("%q", got)
	}
}

func TestASchemaThatIsOfNoObjectIsOneOfAnObject(t *testing.T) {
	for name, c := range map[string]struct {
		entry  bundle.Entry
		sent   string
		params string
		words  []string
		want   string // in the error
	}{
		"an object":               {bundle.Entry{Schema: json.RawMessage(`{"type": "object"}`)}, `{"params": 1}`, `{"params": 1}`, nil, ""},
		"an object of nothing":    {bundle.Entry{Schema: json.RawMessage(`{"type": "object"}`)}, ``, `{}`, nil, ""},
		"a list":                  {bundle.Entry{Schema: json.RawMessage(`{"type": "array"}`)}, `{"params": [1]}`, `[1]`, nil, ""},
		"a list with words":       {bundle.Entry{Schema: json.RawMessage(`{"type": "array"}`)}, `{"args": []}`, ``, nil, `no argument "args"`},
		"nothing known":           {bundle.Entry{}, `{"params": {"a": 1}, "args": ["-x", "y z"]}`, `{"a": 1}`, []string{"-x", "y z"}, ""},
		"nothing known nor given": {bundle.Entry{}, `null`, ``, nil, ""},
		"words that are none":     {bundle.Entry{}, `{"args": "rm -rf"}`, ``, nil, "list of texts"},
		"another argument":        {bundle.Entry{}, `{"entry": "x"}`, ``, nil, `no argument "entry"`},
		"no object":               {bundle.Entry{}, `[1]`, ``, nil, "not an object"},
	} {
		tool := &tool{entry: c.entry}
		if err := tool.schema(); err != nil {
			t.Errorf("%s: %v", name, err)
			continue
		}
		var input struct{ Type string }
		if err := json.Unmarshal(tool.input, &input); err != nil || input.Type != "object" {
			t.Errorf("%s: %s, %v", name, tool.input, err)
		}
		var call client.Call
		err := tool.arguments(json.RawMessage(c.sent), &call)
		if c.want != "" {
			if err == nil || !strings.Contains(err.Error(), c.want) {
				t.Errorf("%s: %v", name, err)
			}
			continue
		}
		if err != nil || string(call.Params) != c.params || !slices.Equal(call.Words, c.words) {
			t.Errorf("%s: %s, %q, %v", name, call.Params, call.Words, err)
		}
	}
}
