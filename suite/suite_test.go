package suite

import (
	"bytes"
	"encoding/json"
	"encoding/xml"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"skillbox/helper"
)

// tree writes files below a new directory.
func tree(t testing.TB, files map[string]string) string {
	t.Helper()
	dir := t.TempDir()
	for name, content := range files {
		at := filepath.Join(dir, name)
		if err := os.MkdirAll(filepath.Dir(at), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(at, []byte(content), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	return dir
}

func TestSkillsAreFoundByTheirManifests(t *testing.T) {
	dir := tree(t, map[string]string{
		"a/SKILL.md": "", "b/c/skillbox.yaml": "", "d/manifest.yaml": "", "d/skill.py": "", "e/.skill-engine.toml": "", "f/manifest.json": `{"manifest_version":"0.3","server":{}}`,
		"g/skill.md": "", "no/manifest.yaml": "", "no/manifest.json": `{"name":"web"}`, "node_modules/x/SKILL.md": "", ".git/SKILL.md": "", "a/inner/SKILL.md": "",
		".claude/skills/h/SKILL.md": "", "both/SKILL.md": "", "both/skillbox.yaml": "",
		"skillbox.test.yaml":   "version: 1\ncases:\n- {skill: a, name: top}\n- {skill: plain, words: [x]}\n",
		"a/skillbox.test.yaml": "version: 1\ncases: [{}]\n", "plain/x": "", "broken/skillbox.test.yaml": "cases: 3\n", "up/skillbox.test.yaml": "version: 1\ncases: [{skill: ../a}]\n",
	})
	if err := os.Symlink("../a", filepath.Join(dir, "b", "linked")); err != nil {
		t.Fatal(err)
	}
	found, err := Find(dir)
	if err != nil {
		t.Fatal(err)
	}
	var got []string
	for _, s := range found {
		line := s.Path + " " + string(s.Layout)
		for _, c := range s.Cases {
			line += " " + c.Name
		}
		if s.Err != nil {
			line += " error"
		}
		got = append(got, line)
	}
	want := []string{
		".claude/skills/h agent-skill", "a agent-skill top case 1", "b/c skillbox", "both skillbox", "broken directory error", "d skillware", "e skill-engine", "f mcpb", "g agent-skill",
		"plain directory case 2", "up directory error",
	}
	if strings.Join(got, "\n") != strings.Join(want, "\n") {
		t.Errorf("got\n%s\nwant\n%s", strings.Join(got, "\n"), strings.Join(want, "\n"))
	}
}

func TestATestFileIsStrict(t *testing.T) {
	for text, want := range map[string]string{
		"":                                      "no documents",
		"version: 2\ncases: [{}]\n":             "version: must be 1",
		"version: 1\n":                          "cases: there is none",
		"version: 1\ncases: [null]\n":           "case 1 is empty",
		"version: 1\ncases: [{wrods: []}]\n":    "wrods",
		"version: 1\ncases: [{timeout: 5}]\n":   "timeout: \"5\" is no duration",
		"version: 1\ncases: [{timeout: -1s}]\n": "is no duration",
		"version: 1\ncases: [{expect: {stdout: {has: x}}}]\n":                "unknown key",
		"version: 1\ncases: [{expect: {stdout: {matches: '('}}}]\n":          "matches",
		"version: 1\ncases: [{expect: {stdout: {json: {1: {}}}}}]\n":         "",
		"version: 1\ncases: [{params: 1, stdin: x}]\n":                       "stdin: params are the skill's standard input",
		"version: 1\ncases: [{words: {a: b}}]\n":                             "line",
		"version: 1\ncases: [{skill: /etc}]\n":                               "does not lie below the file",
		"version: 1\ncases: [{params: &a [*a]}]\n":                           "",
		"version: 1\ncases: [{tool: --policy}]\n":                            "tool: \"--policy\" is no name",
		"version: 1\ncases: [{tool: \"a\\nb\"}]\n":                           "is no name",
		"version: 1\ncases: [{tool: a b}]\n":                                 "is no name",
		"version: 1\ncases: [{skill: away}]\n":                               "links are not followed",
		"version: 1\ncases: [{skill: away/x}]\n":                             "links are not followed",
		"version: 1\ncases: [{skill: none}]\n":                               "no such file",
		"version: 1\ncases: [{name: \xff}]\n":                                "UTF-8",
		"version: 1\ncases: " + strings.Repeat("[", 200) + "\n":              "",
		"version: 1\ncases: [{name: a}]\nx: " + strings.Repeat("y", maxFile): "larger than 1 MiB",
	} {
		dir := tree(t, map[string]string{TestFile: text})
		if err := os.Symlink(t.TempDir(), filepath.Join(dir, "away")); err != nil {
			t.Fatal(err)
		}
		found, err := Find(dir)
		if err != nil || len(found) != 1 {
			t.Errorf("%.60q: %v, %v", text, found, err)
			continue
		}
		if err := found[0].Err; want != "" && (err == nil || !strings.Contains(err.Error(), want)) {
			t.Errorf("%.60q: %v, want %q", text, err, want)
		}
	}
}

func FuzzTestFile(f *testing.F) {
	for _, seed := range []string{
		"version: 1\ncases:\n- name: a\n  params: {a: 1}\n  expect: {stdout: x, stderr: [a], result: {json: {a: [1]}, lacks: b}}\n", "version: 1\ncases: [{policy: {version: 1}}]\n",
		"version: 1\ncases: [{expect: {exit: x}}]\n", "version: 1\ncases: [{expect: [1]}]\n",
	} {
		f.Add([]byte(seed))
	}
	f.Fuzz(func(t *testing.T, data []byte) {
		dir := tree(t, map[string]string{TestFile: string(data)})
		cases, err := readCases(dir)
		for _, c := range cases {
			c.Expect.judge(&helper.Result{Stdout: "x", Result: json.RawMessage(`{"a":[1]}`)})
		}
		if err == nil && len(cases) == 0 {
			t.Error("no cases, and no error")
		}
	})
}

func TestExpectationsAreJudged(t *testing.T) {
	result := func() *helper.Result {
		return &helper.Result{
			Verdict: helper.Exited, Stdout: "a\nb\n", Result: json.RawMessage(`{"n": 1, "list": [{"x": true, "y": null}], "s": "t"}`),
			Denials: []helper.Denial{{Kind: "dns", What: "evil.example"}}, Warnings: []string{"first", "second"}, Outputs: []helper.Output{{Name: "o.txt"}},
		}
	}
	for expect, want := range map[string]string{
		"{}":                                    "",
		"{exit: 1}":                             "exit code 0, expected 1",
		"{verdict: timed_out}":                  "verdict exited, expected timed_out",
		"{stdout: \"a\\nb\"}":                   "",
		"{stdout: a}":                           `stdout is "a\nb\n", expected "a"`,
		"{stdout: [a, b]}":                      "",
		"{stdout: {lacks: a}}":                  `stdout contains "a"`,
		"{stdout: {matches: '^a$'}}":            "stdout does not match",
		"{stdout: {matches: '(?m)^b$'}}":        "",
		"{stdout: {json: {}}}":                  "stdout is not JSON",
		"{result: {json: {n: 1}}}":              "",
		"{result: {json: {list: [{x: true}]}}}": "",
		"{result: {json: {n: 2}}}":              `result at "/n" is "1", expected "2"`,
		"{result: {json: {m: 2, k: 1}}}":        `result lacks "/k"; result lacks "/m"`,
		"{result: {json: {list: []}}}":          `at "/list" is`,
		"{result: {json: {list: [{y: 1}]}}}":    `at "/list/0/y" is "null"`,
		"{denials: [dns evil.example]}":         "",
		"{denials: ''}":                         "denials is",
		"{warnings: [second]}":                  "",
		"{warnings: {lacks: [third, first]}}":   `warnings contains "first"`,
		"{outputs: o.txt}":                      "",
		"{error: [x]}":                          `error lacks "x"`,
	} {
		cases, err := readCases(tree(t, map[string]string{TestFile: "version: 1\ncases:\n- expect: " + expect + "\n"}))
		if err != nil {
			t.Errorf("%s: %v", expect, err)
			continue
		}
		got := strings.Join(cases[0].Expect.judge(result()), "; ")
		if (want == "") != (got == "") || !strings.Contains(got, want) {
			t.Errorf("%s: %q, want %q", expect, got, want)
		}
	}
	for r, ok := range map[*helper.Result]bool{
		{Verdict: helper.Exited, ExitCode: 2}: true, {Verdict: helper.Exited, ExitCode: 127}: false, {Verdict: helper.TimedOut, ExitCode: 124}: false, {Verdict: helper.Refused}: false,
	} {
		if (len(smoke(r)) == 0) != ok {
			t.Errorf("a smoke run that came to %s, %d", r.Verdict, r.ExitCode)
		}
	}
}

func TestAReportIsWellFormedWhateverSkillsPrint(t *testing.T) {
	odd := "\x00\x1b[2J\u202e\xff]]>&<\"\ufffe\nline"
	r := &Report{Began: time.Unix(0, 0).UTC(), Skills: 2, Outcomes: []*Outcome{
		{Skill: odd, Case: odd, Layout: Skillbox, Status: Failed, Why: []string{odd, "second"}, Stdout: odd, Stderr: odd, DurationMS: 1},
		{Skill: odd, Case: "b", Status: Errored, Why: []string{odd}},
		{Skill: "z", Case: "c", Status: Skipped, Why: []string{"why"}},
		{Skill: "z", Case: "d", Status: Passed, Why: []string{}},
	}}
	r.count()
	var text bytes.Buffer
	if err := r.JUnit(&text); err != nil {
		t.Fatal(err)
	}
	var parsed junitSuites
	if err := xml.Unmarshal(text.Bytes(), &parsed); err != nil {
		t.Fatalf("%v\n%s", err, text.String())
	}
	if parsed.Tests != 4 || parsed.Failures != 1 || parsed.Errors != 1 || parsed.Skipped != 1 || len(parsed.Suites) != 2 || len(parsed.Suites[0].Cases) != 2 || parsed.Suites[0].Cases[0].Failure == nil {
		t.Errorf("%s", text.String())
	}
	for _, s := range []string{text.String(), r.Text()} {
		if strings.ContainsAny(s, "\x00\x1b\u202e\ufffe") || !strings.Contains(s, `\x1b[2J`) {
			t.Errorf("%q", s)
		}
	}
	text.Reset()
	if err := r.JSON(&text); err != nil || !json.Valid(text.Bytes()) {
		t.Errorf("%v: %s", err, text.String())
	}
}
