package mcp

import (
	"bytes"
	"encoding/json"
	"fmt"
	"slices"
	"strings"

	sdk "github.com/modelcontextprotocol/go-sdk/mcp"

	"skillbox/client"
	"skillbox/helper"
)

// Bounds of an answer. Clients read a frame of 16 MiB at most, in which a byte can become six, and their parsers nest less deep than Go's.
const (
	maxText  = 1 << 20  // bytes of output
	maxTail  = 16 << 10 // bytes of the end of stderr
	maxDepth = 100      // levels of a structured result
)

// answer is what a call came to: for the model as text, for programs as structured content.
func answer(r *client.Result) *sdk.CallToolResult {
	a := &sdk.CallToolResult{Meta: sdk.Meta{"skillbox/id": r.ID, "skillbox/duration_ms": r.DurationMS}}
	if len(r.Denials) > 0 {
		a.Meta["skillbox/denials"] = r.Denials
	}
	if !r.Success {
		a.IsError = true
		a.Content = []sdk.Content{&sdk.TextContent{Text: misfortune(r)}}
		a.StructuredContent = map[string]any{"verdict": r.Verdict, "exit_code": r.ExitCode, "denials": r.Denials}
		return a
	}
	text := r.Stdout
	if text == "" && len(r.Result) > 0 && string(r.Result) != "null" {
		text = string(r.Result)
	}
	a.Content = []sdk.Content{&sdk.TextContent{Text: beginning(text, maxText)}}
	if value := structured(r.Result); value != nil {
		a.StructuredContent = value
	}
	return a
}

func failed(format string, args ...any) *sdk.CallToolResult {
	return &sdk.CallToolResult{IsError: true, Content: []sdk.Content{&sdk.TextContent{Text: fmt.Sprintf(format, args...)}}}
}

// structured is a skill's JSON as an object: one of its own, or one that holds the value. It is written anew, so that what only some parsers
// take, such as half of a surrogate pair, does not reach the client; nil where there is none or it is too large.
func structured(value json.RawMessage) json.RawMessage {
	if len(value) == 0 || len(value) > maxText || depth(value) > maxDepth {
		return nil
	}
	decoder := json.NewDecoder(bytes.NewReader(value))
	decoder.UseNumber()
	var v any
	if err := decoder.Decode(&v); err != nil || v == nil || !finite(v) {
		return nil
	}
	if _, object := v.(map[string]any); !object {
		v = map[string]any{"result": v}
	}
	text, err := json.Marshal(v)
	if err != nil {
		return nil
	}
	return text
}

// finite says whether each number is one in the parsers of most languages: 1e999 is none.
func finite(v any) bool {
	switch v := v.(type) {
	case json.Number:
		_, err := v.Float64()
		return err == nil
	case []any:
		return !slices.ContainsFunc(v, func(v any) bool { return !finite(v) })
	case map[string]any:
		for _, v := range v {
			if !finite(v) {
				return false
			}
		}
	}
	return true
}

// depth is how many levels a JSON text nests.
func depth(text []byte) int {
	now, most, quoted, escaped := 0, 0, false, false
	for _, c := range text {
		switch {
		case escaped:
			escaped = false
		case quoted && c == '\\':
			escaped = true
		case c == '"':
			quoted = !quoted
		case quoted:
		case c == '{' || c == '[':
			now++
			most = max(most, now)
		case c == '}' || c == ']':
			now--
		}
	}
	return most
}

// misfortune words a call that did not succeed, with what could be done about it.
func misfortune(r *client.Result) string {
	var b strings.Builder
	switch r.Verdict {
	case helper.Exited:
		fmt.Fprintf(&b, "The skill exited with code %d.\n", r.ExitCode)
	case helper.Signaled:
		fmt.Fprintf(&b, "The skill was killed by %s.\n", r.Signal)
	default:
		fmt.Fprintf(&b, "The call ended: %s.\n", strings.ReplaceAll(r.Verdict, "_", " "))
	}
	if r.Error != nil {
		fmt.Fprintf(&b, "skillbox: %v\n", r.Error)
		if r.Error.Hint != "" {
			fmt.Fprintf(&b, "What would help: %s\n", r.Error.Hint)
		}
	}
	for _, d := range r.Denials {
		fmt.Fprintf(&b, "Refused (%s): %s. %s\n", d.Kind, d.What, d.Rule)
		if d.Hint != "" {
			fmt.Fprintf(&b, "  What would allow it: %s\n", d.Hint)
		}
	}
	if r.Stderr != "" {
		fmt.Fprintf(&b, "\nIts standard error:\n%s\n", tail(r.Stderr, maxTail))
	}
	if r.Stdout != "" {
		fmt.Fprintf(&b, "\nIts output:\n%s\n", beginning(r.Stdout, maxText))
	}
	return strings.TrimRight(strings.ToValidUTF8(b.String(), "\ufffd"), "\n")
}

// beginning is a text cut after so many bytes, with a word about the rest.
func beginning(s string, most int) string {
	s = strings.ToValidUTF8(s, "\ufffd")
	if len(s) <= most {
		return s
	}
	return clipped(s, most) + fmt.Sprintf("\n[%d more bytes are left out]", len(s)-most)
}

// tail is the end of a text.
func tail(s string, most int) string {
	if len(s) <= most {
		return s
	}
	return "…" + strings.ToValidUTF8(s[len(s)-most:], "")
}
