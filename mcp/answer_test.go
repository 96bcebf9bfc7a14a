package mcp

import (
	"encoding/json"
	"strings"
	"testing"

	sdk "github.com/modelcontextprotocol/go-sdk/mcp"

	"skillbox/client"
	"skillbox/helper"
)

func TestAStructuredResultIsAnObjectThatEveryParserReads(t *testing.T) {
	for value, want := range map[string]string{
		`{"a": 1}`:               `{"a":1}`,
		`[1, "x"]`:               `{"result":[1,"x"]}`,
		`"text"`:                 `{"result":"text"}`,
		`12345678901234567890.5`: `{"result":12345678901234567890.5}`,
		`{"a": "\ud800"}`:        `{"a":"` + "\ufffd" + `"}`,
		`{"a": 1, "a": 2}`:       `{"a":2}`,
		`null`:                   "",
		``:                       "",
		`{"a": [1e999]}`:         "",
		`{"[": "]]]"}`:           `{"[":"]]]"}`,
		`"\"[[["`:                `{"result":"\"[[["}`,
		strings.Repeat("[", 101) + strings.Repeat("]", 101): "",
		`"` + strings.Repeat("x", maxText) + `"`:            "",
	} {
		if got := string(structured(json.RawMessage(value))); got != want {
			t.Errorf("%.60q: %.80q, not %.80q", value, got, want)
		}
	}
}

func TestAnAnswerIsBoundedWhateverASkillWrites(t *testing.T) {
	worst := strings.Repeat("\x01\"", 5<<20)
	for _, success := range []bool{true, false} {
		a := answer(&client.Result{Success: success, Verdict: helper.Exited, Stdout: worst, Stderr: worst, Result: json.RawMessage(`"` + strings.Repeat(`\u0001`, 100_000) + `"`)})
		text, err := json.Marshal(a)
		if err != nil || len(text) > 15<<20 { // the library's clients read 16 MiB at most
			t.Errorf("%d bytes, %v", len(text), err)
		}
		if shown := a.Content[0].(*sdk.TextContent).Text; !strings.Contains(shown, "more bytes are left out]") {
			t.Errorf("does not say what is missing: %.200q", shown[max(0, len(shown)-200):])
		}
	}
}

func TestATextIsCutBetweenItsLetters(t *testing.T) {
	for most := range 8 {
		got, _, _ := strings.Cut(beginning("ä€😀!", most), "…")
		if !strings.HasPrefix("ä€😀!", got) || len(got) > most {
			t.Errorf("%d: %q", most, got)
		}
	}
}

func FuzzStructured(f *testing.F) {
	f.Add([]byte(`{"a": [1, {"b": "\ud800"}]}`))
	f.Add([]byte(`[[["]"]]]`))
	f.Fuzz(func(t *testing.T, data []byte) {
		got := structured(data)
		if got == nil {
			return
		}
		var object map[string]any
		if err := json.Unmarshal(got, &object); err != nil || strings.ContainsAny(string(got), "\n\r") || depth(got) > maxDepth+1 {
			t.Fatalf("%q became %q: %v", data, got, err)
		}
	})
}
