package learn

import (
	"encoding/json"
	"slices"
	"testing"

	"skillbox/client"
)

func came(result, stdout string, code int) facts {
	return factsOf(&client.Result{Verdict: "exited", ExitCode: code, Result: json.RawMessage(result), Stdout: stdout})
}

func TestWhatVariesByItselfIsNotCompared(t *testing.T) {
	for name, c := range map[string]struct {
		runs  []facts
		trial facts
		want  []string
	}{
		"the same":                 {[]facts{came(`{"a":1}`, "", 0)}, came(`{"a":1}`, "", 0), nil},
		"spelled in another way":   {[]facts{came(`{"a":1,"b":2}`, "", 0)}, came(`{ "b": 2, "a": 1 }`, "", 0), nil},
		"another value":            {[]facts{came(`{"a":1}`, "", 0)}, came(`{"a":2}`, "", 0), []string{"result.a"}},
		"another exit code":        {[]facts{came(`{"a":1}`, "", 0)}, came(`{"a":1}`, "", 3), []string{"exit code"}},
		"a value that varies":      {[]facts{came(`{"a":1,"b":1}`, "", 0), came(`{"a":2,"b":1}`, "", 0)}, came(`{"a":3,"b":1}`, "", 0), nil},
		"another beside it":        {[]facts{came(`{"a":1,"b":1}`, "", 0), came(`{"a":2,"b":1}`, "", 0)}, came(`{"a":3,"b":2}`, "", 0), []string{"result.b"}},
		"a list of varying length": {[]facts{came(`{"l":[1,2],"b":1}`, "", 0), came(`{"l":[1],"b":1}`, "", 0)}, came(`{"l":[4,5,6],"b":1}`, "", 0), nil},
		"a key that is missing":    {[]facts{came(`{"in":{"a":1,"b":1}}`, "", 0)}, came(`{"in":{"a":1}}`, "", 0), []string{"result.in."}},
		"no JSON any more":         {[]facts{came(`{"a":1}`, "", 0)}, came("", "Traceback", 1), []string{"exit code", "result.", "stdout."}},
		"a line":                   {[]facts{came("", "a\nb\n", 0)}, came("", "a\nc\n", 0), []string{"stdout.line 2"}},
		"a line that varies":       {[]facts{came("", "a\nb\n", 0), came("", "a\nx\n", 0)}, came("", "a\nc\n", 0), nil},
		"large numbers":            {[]facts{came(`12345678901234567890`, "", 0)}, came(`12345678901234567891`, "", 0), []string{"result"}},
	} {
		var e expected
		for _, f := range c.runs {
			e.expect(f)
		}
		if got := e.differing(c.trial); !slices.Equal(got, c.want) {
			t.Errorf("%s: %q, not %q", name, got, c.want)
		}
	}
}
