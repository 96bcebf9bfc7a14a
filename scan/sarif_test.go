package scan

import (
	"bytes"
	"encoding/json"
	"fmt"
	"net/url"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"skillbox/audit"
)

// reportOf is what a scan of such runs would say.
func reportOf(all ...Finding) *Report {
	return &Report{
		Skill: audit.Skill{Name: "x", Digest: "sha256:00"}, Manifest: "SKILL.md", Time: time.Unix(1_800_000_000, 0), Runs: []Run{{ID: "r", Command: []string{"python3"}, Params: "{}", Verdict: "exited"}},
		Findings: merge(all), Compared: []Difference{{"network.egress", "a.example", true}, {"network.egress", "b.example 443/tcp", false}},
		Unobserved: []string{"Much."}, Incomplete: []string{},
	}
}

// sarif holds what the schema of SARIF 2.1.0 (OASIS, sarif-schema-2.1.0.json) demands of the objects that are written here: which keys they must
// have, which they may have, and what of.
var sarif = map[string]struct {
	required, optional string
}{
	"log":              {"version runs", "$schema"},
	"run":              {"tool", "invocations results columnKind properties"},
	"tool":             {"driver", ""},
	"driver":           {"name", "version rules"},
	"rule":             {"id", "name shortDescription fullDescription help defaultConfiguration properties"},
	"configuration":    {"", "level"},
	"multiformat":      {"text", "markdown"},
	"message":          {"text", ""},
	"invocation":       {"executionSuccessful", "startTimeUtc toolExecutionNotifications"},
	"notification":     {"message", "level"},
	"result":           {"message", "ruleId ruleIndex level occurrenceCount locations properties"},
	"location":         {"", "physicalLocation"},
	"physicalLocation": {"artifactLocation", "region"},
	"artifactLocation": {"", "uri uriBaseId"},
	"region":           {"", "startLine snippet"},
	"snippet":          {"", "text"},
}

// object checks the keys of one.
func object(t *testing.T, kind string, v any) map[string]any {
	t.Helper()
	o, ok := v.(map[string]any)
	if !ok {
		t.Fatalf("%s is %T", kind, v)
	}
	required, optional := strings.Fields(sarif[kind].required), strings.Fields(sarif[kind].optional)
	for _, key := range required {
		if _, ok := o[key]; !ok {
			t.Errorf("%s has no %s", kind, key)
		}
	}
	for key := range o {
		if !slices.Contains(append(required, optional...), key) {
			t.Errorf("%s has %s, which the schema may not know", kind, key)
		}
	}
	return o
}

func list(t *testing.T, v any) []any {
	t.Helper()
	l, ok := v.([]any)
	if !ok {
		t.Fatalf("%T is no list", v)
	}
	return l
}

func level(t *testing.T, v any) {
	t.Helper()
	if !slices.Contains([]string{"none", "note", "warning", "error"}, fmt.Sprint(v)) {
		t.Errorf("level %v", v)
	}
}

func TestSARIFIsAsItsSchemaDemands(t *testing.T) {
	s := sightOf("a dir/main.py", "x = '/etc/shadow'", opens("/etc/shadow"), audit.Syscall{Name: "mount", Outcome: denied}, audit.Limit{Limit: "resources.pids", Value: 1, Outcome: denied})
	r := reportOf(s.judge()...)
	var b bytes.Buffer
	if err := r.SARIF(&b, "v1"); err != nil {
		t.Fatal(err)
	}
	var top any
	if err := json.Unmarshal(b.Bytes(), &top); err != nil {
		t.Fatal(err)
	}
	log := object(t, "log", top)
	if log["version"] != "2.1.0" {
		t.Errorf("version %v", log["version"])
	}
	run := object(t, "run", list(t, log["runs"])[0])
	if run["columnKind"] != "unicodeCodePoints" {
		t.Errorf("columnKind %v", run["columnKind"])
	}
	driver := object(t, "driver", object(t, "tool", run["tool"])["driver"])
	rules := list(t, driver["rules"])
	var ids []string
	for _, v := range rules {
		rule := object(t, "rule", v)
		ids = append(ids, rule["id"].(string))
		object(t, "multiformat", rule["shortDescription"])
		object(t, "multiformat", rule["fullDescription"])
		object(t, "multiformat", rule["help"])
		level(t, object(t, "configuration", rule["defaultConfiguration"])["level"])
	}
	for _, v := range list(t, run["invocations"]) {
		i := object(t, "invocation", v)
		if !regexp.MustCompile(`^\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{3}Z$`).MatchString(i["startTimeUtc"].(string)) || i["executionSuccessful"] != true {
			t.Errorf("%v", i)
		}
		for _, n := range list(t, i["toolExecutionNotifications"]) {
			level(t, object(t, "notification", n)["level"])
			object(t, "message", n.(map[string]any)["message"])
		}
	}
	results := list(t, run["results"])
	if len(results) != len(r.Findings) || len(results) < 3 {
		t.Fatalf("%d results of %d findings", len(results), len(r.Findings))
	}
	for i, v := range results {
		result := object(t, "result", v)
		object(t, "message", result["message"])
		level(t, result["level"])
		if index := int(result["ruleIndex"].(float64)); ids[index] != result["ruleId"] || ids[index] != r.Findings[i].Rule {
			t.Errorf("rule %d is %s, not %v", index, ids[index], result["ruleId"])
		}
		locations := list(t, result["locations"])
		if len(locations) != 1 {
			t.Errorf("%d locations", len(locations))
		}
		at := object(t, "physicalLocation", object(t, "location", locations[0])["physicalLocation"])
		uri := object(t, "artifactLocation", at["artifactLocation"])["uri"].(string)
		if u, err := url.Parse(uri); err != nil || u.IsAbs() || strings.ContainsAny(uri, " \\") {
			t.Errorf("uri %q, %v", uri, err)
		}
		region := object(t, "region", at["region"])
		if region["startLine"].(float64) < 1 {
			t.Errorf("region %v", region)
		}
		if snippet, ok := region["snippet"]; ok {
			object(t, "snippet", snippet)
		}
		if r.Findings[i].Rule == SecretRead && uri != "a%20dir/main.py" {
			t.Errorf("uri %q", uri)
		}
	}
}

// hostile is what a skill would have a terminal, a page or a log viewer do.
const hostile = "\x1b[2J\x1b]0;x\x07<script>alert(1)</script>\r\n# Heading\n| `code` \u202e[x](javascript:y) \u200b\xff"

func TestNoReportObeysASkill(t *testing.T) {
	s := sightOf(hostile+".py", "open('"+hostile+"')")
	event := audit.Event{Run: "r", Kind: audit.FileKind, Detail: audit.File{Op: "open", Path: audit.Clean("/etc/shadow"+hostile, 1000), Outcome: allowed}}
	s.run.Events = append(s.run.Events, audit.Record{Event: event})
	s.outputs = map[string]string{hostile: ""}
	s.canaries.environment(nil)
	s.stdout = secretOf(t, s, "GITHUB_TOKEN") + hostile
	s.changes = []change{{".config/autostart/" + hostile, "made"}}
	r := reportOf(s.judge()...)
	r.Runs[0].Params, r.Runs[0].Command = hostile, cleaned([]string{hostile})
	r.Skill.Name = audit.Clean(hostile, 100)
	var sarif bytes.Buffer
	if err := r.SARIF(&sarif, "v1"); err != nil || len(r.Findings) < 3 {
		t.Fatalf("%v, %q", err, lines(r.Findings))
	}
	encoded, err := json.Marshal(r.Findings)
	if err != nil {
		t.Fatal(err)
	}
	for name, text := range map[string]string{"text": r.Text(), "Markdown": r.Markdown(), "SARIF": sarif.String(), "JSON": string(encoded)} {
		if bad := strings.IndexFunc(text, func(r rune) bool {
			return r < ' ' && r != '\n' || r == 0x7f || r == '\u202e' || r == '\u200b' || r == '\ufffd'
		}); bad >= 0 {
			t.Errorf("%s has %q", name, text[max(bad-20, 0):min(bad+20, len(text))])
		}
		for line := range strings.Lines(text) {
			if strings.HasPrefix(line, "# Heading") || strings.HasPrefix(line, "| `code`") {
				t.Errorf("%s: a line is the skill's: %q", name, line)
			}
		}
	}
	outside := regexp.MustCompile("(?s)(```+)\n.*?\n```+").ReplaceAllString(r.Markdown(), "")
	outside = strings.ReplaceAll(strings.ReplaceAll(outside, "<details><summary>Records</summary>", ""), "</details>", "")
	if strings.Contains(outside, "<") || regexp.MustCompile(`[^\\]\[x\]\(`).MatchString(outside) {
		t.Errorf("Markdown has the skill's markup: %s", outside)
	}
}

// In a message of SARIF's brackets make a link, wherever they come from.
func TestNoMessageOfSARIFHasASkillsLink(t *testing.T) {
	s := sightOf("", "")
	s.run.Events = append(s.run.Events, audit.Record{Event: audit.Event{Run: "r", Kind: audit.FileKind, Detail: audit.File{Op: "open", Path: `/etc/shadow\[Reviewed, safe](https://evil.example)`, Outcome: allowed}}})
	r := reportOf(s.judge()...)
	r.Incomplete = []string{"[x](https://evil.example)"}
	var out bytes.Buffer
	if err := r.SARIF(&out, "v1"); err != nil || !strings.Contains(out.String(), "Reviewed, safe") {
		t.Fatalf("%v: %s", err, out.String())
	}
	var log struct {
		Runs []struct {
			Results     []struct{ Message struct{ Text string } }
			Invocations []struct {
				ToolExecutionNotifications []struct{ Message struct{ Text string } }
			}
		}
	}
	if err := json.Unmarshal(out.Bytes(), &log); err != nil {
		t.Fatal(err)
	}
	var all []string
	for _, one := range log.Runs[0].Results {
		all = append(all, one.Message.Text)
	}
	for _, one := range log.Runs[0].Invocations[0].ToolExecutionNotifications {
		all = append(all, one.Message.Text)
	}
	link := regexp.MustCompile(`(^|[^\\])(\\\\)*\[`)
	for _, text := range all {
		if link.MatchString(text) {
			t.Errorf("a message has a link: %s", text)
		}
	}
	if len(all) < 2 {
		t.Errorf("%q", all)
	}
}

func TestAReportIsReadBack(t *testing.T) {
	r := reportOf(sightOf("", "", opens("/etc/shadow")).judge()...)
	text, err := json.Marshal(r)
	if err != nil {
		t.Fatal(err)
	}
	for _, key := range []string{"skill", "time", "duration_ns", "runs", "findings", "compared", "unobserved", "incomplete", "manifest"} {
		if !strings.Contains(string(text), `"`+key+`":`) {
			t.Errorf("no %s", key)
		}
	}
	if !strings.Contains(string(text), `"rule_id":"SKILLBOX_SECRET_READ","severity":"HIGH"`) || !strings.Contains(string(text), `"path":"/etc/shadow"`) {
		t.Errorf("%s", text)
	}
}
