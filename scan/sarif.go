package scan

import (
	"encoding/json"
	"io"
	"net/url"
	"strings"
)

// SARIF writes a report in the Static Analysis Results Interchange Format 2.1.0 (OASIS), as viewers of code scanning read it. Paths are
// relative to the bundle. Where a finding has no place in the bundle, it is at the manifest, for viewers show nothing without a place.
func (r *Report) SARIF(w io.Writer, version string) error {
	rules, index := []any{}, map[string]int{}
	for i, rule := range Rules() {
		index[rule.ID] = i
		rules = append(rules, map[string]any{
			"id": rule.ID, "name": pascal(rule.ID),
			"shortDescription":     text(rule.Title),
			"fullDescription":      text(rule.Description),
			"help":                 map[string]any{"text": rule.Remediation, "markdown": rule.Remediation},
			"defaultConfiguration": map[string]any{"level": rule.Severity.level()},
			"properties":           map[string]any{"security-severity": rule.Severity.score(), "tags": []string{"security", rule.Category}},
		})
	}
	results := []any{}
	for _, f := range r.Findings {
		results = append(results, f.sarif(index[f.Rule], r.Manifest))
	}
	notices := []any{}
	for _, u := range r.Unobserved {
		notices = append(notices, map[string]any{"level": "note", "message": text(u)})
	}
	for _, i := range r.Incomplete {
		notices = append(notices, map[string]any{"level": "error", "message": text(i)})
	}
	encoder := json.NewEncoder(w)
	encoder.SetIndent("", "  ")
	return encoder.Encode(map[string]any{
		"$schema": "https://json.schemastore.org/sarif-2.1.0.json", "version": "2.1.0",
		"runs": []any{map[string]any{
			"tool": map[string]any{"driver": map[string]any{"name": "skillbox", "version": version, "rules": rules}},
			"invocations": []any{map[string]any{
				"executionSuccessful": len(r.Incomplete) == 0, "startTimeUtc": r.Time.UTC().Format("2006-01-02T15:04:05.000Z"),
				"toolExecutionNotifications": notices,
			}},
			"results": results, "columnKind": "unicodeCodePoints",
			"properties": map[string]any{"skill": r.Skill, "compared": r.Compared},
		}},
	})
}

// text is a message, in which brackets would make a link (SARIF 2.1.0, section 3.11.6). It may quote a skill's words.
func text(s string) map[string]any { return map[string]any{"text": links.Replace(s)} }

var links = strings.NewReplacer(`\`, `\\`, `[`, `\[`, `]`, `\]`)

func (f *Finding) sarif(rule int, manifest string) map[string]any {
	file, line := f.File, f.Line
	if file == "" {
		file, line = manifest, 1
	}
	physical := map[string]any{"artifactLocation": map[string]any{"uri": (&url.URL{Path: file}).EscapedPath(), "uriBaseId": "%SRCROOT%"}}
	region := map[string]any{"startLine": max(line, 1)}
	if f.Snippet != "" && f.File != "" {
		region["snippet"] = map[string]any{"text": f.Snippet} // which is no message
	}
	physical["region"] = region
	evidence := []string{}
	for _, e := range f.Evidence {
		evidence = append(evidence, string(e.Line))
	}
	one := map[string]any{
		"ruleId": f.Rule, "ruleIndex": rule, "level": f.Severity.level(), "message": text(f.Description),
		"occurrenceCount": max(f.Count, 1),
		"properties":      map[string]any{"severity": f.Severity.String(), "category": f.Category, "run": f.Run, "evidence": evidence, "remediation": f.Remediation},
	}
	if file != "" {
		one["locations"] = []any{map[string]any{"physicalLocation": physical}}
	}
	return one
}

// level is SARIF's word.
func (s Severity) level() string {
	switch {
	case s >= High:
		return "error"
	case s == Medium:
		return "warning"
	case s == None:
		return "none"
	}
	return "note"
}

// score is from 0 to 10, as code-scanning viewers sort by.
func (s Severity) score() string {
	return [...]string{"0.0", "1.0", "3.0", "5.5", "8.0", "9.5"}[max(min(s, Critical), None)]
}

// pascal is a name as SARIF wants rules' to be: SKILLBOX_SECRET_EXFIL is SecretExfil.
func pascal(id string) string {
	var b strings.Builder
	for word := range strings.SplitSeq(strings.TrimPrefix(id, "SKILLBOX_"), "_") {
		b.WriteString(word[:1] + strings.ToLower(word[1:]))
	}
	return b.String()
}
