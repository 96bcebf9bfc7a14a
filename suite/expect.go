package suite

import (
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strings"

	"skillbox/helper"
)

// judge lists what a result has that was not expected, a line for each; none is as expected.
func (e *Expect) judge(r *helper.Result) (why []string) {
	switch exit := e.Exit; {
	case exit != nil && *exit != r.ExitCode:
		why = append(why, fmt.Sprintf("exit code %d, expected %d%s", r.ExitCode, *exit, because(r)))
	case exit == nil && e.Verdict == "" && r.ExitCode != 0:
		why = append(why, fmt.Sprintf("exit code %d, expected 0%s", r.ExitCode, because(r)))
	}
	if e.Verdict != "" && e.Verdict != r.Verdict {
		why = append(why, fmt.Sprintf("verdict %s, expected %s%s", r.Verdict, e.Verdict, because(r)))
	}
	for _, part := range []struct {
		name  string
		match *Match
		text  func() string
	}{
		{"stdout", e.Stdout, func() string { return r.Stdout }},
		{"stderr", e.Stderr, func() string { return r.Stderr }},
		{"result", e.Result, func() string { return string(r.Result) }},
		{"error", e.Error, func() string { return errorText(r.Error) }},
		{"denials", e.Denials, func() string { return lines(r.Denials, func(d helper.Denial) string { return d.Kind + " " + d.What }) }},
		{"warnings", e.Warnings, func() string { return strings.Join(r.Warnings, "\n") }},
		{"changes", e.Changes, func() string { return lines(r.Changes, func(c helper.Change) string { return c.Kind + " " + c.Path }) }},
		{"outputs", e.Outputs, func() string { return lines(r.Outputs, func(o helper.Output) string { return o.Name }) }},
	} {
		if part.match != nil {
			why = append(why, part.match.judge(part.name, part.text())...)
		}
	}
	return why
}

// smoke is what a run without any expectation has to come to: the skill was started and ended by itself, as it liked.
func smoke(r *helper.Result) []string {
	if r.Verdict == helper.Exited && r.ExitCode != helper.CodeNotFound && r.ExitCode != helper.CodeNotExecutable {
		return nil
	}
	return []string{fmt.Sprintf("verdict %s, exit code %d%s", r.Verdict, r.ExitCode, because(r))}
}

func because(r *helper.Result) string {
	if r.Error == nil {
		return ""
	}
	if r.Error.Hint != "" {
		return ": " + r.Error.Error() + " (" + r.Error.Hint + ")"
	}
	return ": " + r.Error.Error()
}

func errorText(e *helper.Error) string {
	if e == nil {
		return ""
	}
	return strings.TrimSpace(e.Error() + "\n" + e.Hint)
}

func lines[T any](all []T, line func(T) string) string {
	texts := make([]string, len(all))
	for i, one := range all {
		texts[i] = line(one)
	}
	return strings.Join(texts, "\n")
}

func (m *Match) judge(name, text string) (why []string) {
	no := func(format string, a ...any) { why = append(why, name+" "+fmt.Sprintf(format, a...)) }
	if m.equals != nil && strings.Trim(text, "\n") != strings.Trim(*m.equals, "\n") {
		no("is %s, expected %s", short(text), short(*m.equals))
	}
	for _, part := range m.contains {
		if !strings.Contains(text, part) {
			no("lacks %s: %s", short(part), short(text))
		}
	}
	for _, part := range m.lacks {
		if strings.Contains(text, part) {
			no("contains %s: %s", short(part), short(text))
		}
	}
	if m.matches != nil && !m.matches.MatchString(text) {
		no("does not match %s: %s", short(m.matches.String()), short(text))
	}
	if !m.isJSON {
		return why
	}
	var got any
	if err := json.Unmarshal([]byte(text), &got); err != nil {
		no("is not JSON: %s", short(text))
		return why
	}
	for _, difference := range within(m.json, got, "") {
		no("%s", difference)
	}
	return why
}

// within lists where got lacks something of want: objects may have more members, everything else is equal.
func within(want, got any, at string) []string {
	differ := func() []string {
		return []string{fmt.Sprintf("at %q is %s, expected %s", at, short(jsonText(got)), short(jsonText(want)))}
	}
	switch w := want.(type) {
	case map[string]any:
		g, ok := got.(map[string]any)
		if !ok {
			return differ()
		}
		var why []string
		for _, key := range slices.Sorted(maps.Keys(w)) {
			if _, there := g[key]; !there {
				why = append(why, fmt.Sprintf("lacks %q", at+"/"+key))
				continue
			}
			why = append(why, within(w[key], g[key], at+"/"+key)...)
		}
		return why
	case []any:
		g, ok := got.([]any)
		if !ok || len(g) != len(w) {
			return differ()
		}
		var why []string
		for i := range w {
			why = append(why, within(w[i], g[i], fmt.Sprintf("%s/%d", at, i))...)
		}
		return why
	}
	if want != got {
		return differ()
	}
	return nil
}

func jsonText(v any) string {
	text, err := json.Marshal(v)
	if err != nil {
		return fmt.Sprint(v)
	}
	return string(text)
}

// short quotes a text for one line, cut where a report would drown in it.
func short(s string) string {
	const most = 300
	if len(s) > most {
		return fmt.Sprintf("%q…", strings.ToValidUTF8(s[:most], ""))
	}
	return fmt.Sprintf("%q", s)
}
