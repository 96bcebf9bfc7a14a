// Package scan runs a skill under observation, with nothing real behind it, and says what it found. It decides nothing about other
// runs: a registry or a person does, on its findings.
package scan

import (
	"fmt"
	"time"

	"skillbox/audit"
)

// Severity is how bad a finding is, the worse the larger. The zero value is None.
type Severity int

// Severities, with the names that scanners of skills use.
const (
	None Severity = iota // no finding
	Info
	Low
	Medium
	High
	Critical
)

var severities = [...]string{"NONE", "INFO", "LOW", "MEDIUM", "HIGH", "CRITICAL"}

func (s Severity) String() string {
	if s < 0 || int(s) >= len(severities) {
		return fmt.Sprintf("Severity(%d)", int(s))
	}
	return severities[s]
}

// MarshalText writes the name.
func (s Severity) MarshalText() ([]byte, error) { return []byte(s.String()), nil }

// UnmarshalText reads a name.
func (s *Severity) UnmarshalText(text []byte) error {
	one, err := ParseSeverity(string(text))
	*s = one
	return err
}

// ParseSeverity reads a name in capitals.
func ParseSeverity(name string) (Severity, error) {
	for i, known := range severities {
		if name == known {
			return Severity(i), nil
		}
	}
	return None, fmt.Errorf("no severity is named %q: use INFO, LOW, MEDIUM, HIGH or CRITICAL", name)
}

// Finding is something that a skill did, or has in it, that speaks against it. What a skill chose stands in it as in the audit log:
// escaped (audit.Clean) and bounded.
type Finding struct {
	Rule        string         `json:"rule_id"`     // such as SKILLBOX_SECRET_EXFIL: one of Rules
	Severity    Severity       `json:"severity"`    // of this finding, which may differ from the rule's usual one
	Category    string         `json:"category"`    // of the rule, such as exfiltration
	Title       string         `json:"title"`       // one line
	Description string         `json:"description"` // what happened, for a person
	Remediation string         `json:"remediation"` // what the skill's author can do
	File        string         `json:"file_path"`   // of the bundle, relative; "" where the finding has no place in it
	Line        int            `json:"line_number"` // from 1; 0 with no File
	Snippet     string         `json:"snippet"`     // the line, or what was sent
	Run         string         `json:"run"`         // id of the run; "" where nothing was run for it
	Evidence    []audit.Record `json:"evidence"`    // the records of the audit log that show it, in their order; at most 16
	Count       int            `json:"count"`       // how often it was seen; at least 1
}

// Report is what came of a scan. It never says that a skill is safe: only what was seen.
type Report struct {
	Skill      audit.Skill   `json:"skill"`
	Manifest   string        `json:"manifest"`    // file of the bundle; "" where it has none
	Time       time.Time     `json:"time"`        // when it began
	Duration   time.Duration `json:"duration_ns"` // of the whole scan
	Runs       []Run         `json:"runs"`        // in their order
	Findings   []Finding     `json:"findings"`    // the worst first
	Compared   []Difference  `json:"compared"`    // what was declared and what was seen, where they differ
	Unobserved []string      `json:"unobserved"`  // what no such scan sees, and what this one was not asked to do, each a sentence
	Incomplete []string      `json:"incomplete"`  // what this scan should have seen or done and did not; with any, a report without findings says nothing
}

// Run is one time that the skill was started.
type Run struct {
	ID       string         `json:"id"`
	Command  []string       `json:"command"`
	Params   string         `json:"params"`   // JSON; "" for none
	Clock    time.Duration  `json:"clock_ns"` // by how much the skill's clock was ahead
	Verdict  string         `json:"verdict"`
	ExitCode int            `json:"exit_code"`
	Duration time.Duration  `json:"duration_ns"`
	Dropped  uint64         `json:"dropped"` // details that are not among the events: they were too many, or the disk was full
	Events   []audit.Record `json:"-"`       // all that was recorded
}

// Difference is one thing that the policy grants and no run needed, or that a run tried and the policy does not grant.
type Difference struct {
	Key      string `json:"key"`      // of the policy, such as network.rules
	Value    string `json:"value"`    // such as api.example.com
	Declared bool   `json:"declared"` // false is that it was seen but not declared
}

// Worst is the worst severity of the findings.
func (r *Report) Worst() Severity {
	worst := None
	for _, f := range r.Findings {
		worst = max(worst, f.Severity)
	}
	return worst
}
