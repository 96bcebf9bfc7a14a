// Package suite tries the skills of a directory: it finds them by their manifests, runs each in a box with the cases that a test file beside
// it names, or else by a smoke run, and says which did as expected.
//
// What lies in the directory may be a stranger's, and grants nothing: policies of test files count as ones that a bundle declares, manifests of
// skill-engine ask for no more than the caller's policy has, and files are those of the directory of who names them. The caller may say otherwise.
package suite

import (
	"time"

	"skillbox/helper"
)

// TestFile is the name of the files that hold cases.
const TestFile = "skillbox.test.yaml"

// Layout tells by which convention a directory is a skill.
type Layout string

// The layouts, in the order in which they are looked for.
const (
	Skillbox    Layout = "skillbox"     // skillbox.yaml
	AgentSkill  Layout = "agent-skill"  // SKILL.md
	Skillware   Layout = "skillware"    // manifest.yaml beside skill.py
	SkillEngine Layout = "skill-engine" // .skill-engine.toml, which names several
	MCPB        Layout = "mcpb"         // manifest.json of an MCP bundle
	Directory   Layout = "directory"    // none of these, but a test file has cases for it
)

// Skill is one that was found.
type Skill struct {
	Path   string // relative to the directory that was looked into, "." for that one
	Layout Layout
	Cases  []*Case // none for a smoke run
	Err    error   // why its cases cannot be known
	dir    string
}

// Status is what came of a case.
type Status string

// What comes of a case.
const (
	Passed  Status = "passed"
	Failed  Status = "failed"  // it did something else than was expected
	Errored Status = "error"   // it could not be tried: the test file is wrong, or skillbox could not be asked
	Skipped Status = "skipped" // there is nothing to run, or not in this build
)

// Outcome is a case that was tried.
type Outcome struct {
	Skill      string         `json:"skill"`
	Layout     Layout         `json:"layout"`
	Case       string         `json:"case"`
	Status     Status         `json:"status"`
	Why        []string       `json:"why"` // one line for each thing that was not as expected, or the reason of a skip
	DurationMS float64        `json:"duration_ms"`
	Verdict    string         `json:"verdict,omitempty"`
	ExitCode   int            `json:"exit_code"`
	Stdout     string         `json:"stdout,omitempty"` // at most 4 KiB of what a case that failed printed
	Stderr     string         `json:"stderr,omitempty"`
	Warnings   []string       `json:"warnings,omitempty"`
	result     *helper.Result // nil where nothing ran
}

// Report is a whole test.
type Report struct {
	Directory  string     `json:"directory"`
	Began      time.Time  `json:"began"`
	DurationMS float64    `json:"duration_ms"`
	Skills     int        `json:"skills"`
	Passed     int        `json:"passed"`
	Failed     int        `json:"failed"`
	Errors     int        `json:"errors"`
	Skipped    int        `json:"skipped"`
	Outcomes   []*Outcome `json:"outcomes"` // in the order of the skills and their cases
}

// OK says that nothing failed.
func (r *Report) OK() bool { return r.Failed+r.Errors == 0 }

func (r *Report) count() {
	for _, o := range r.Outcomes {
		switch o.Status {
		case Passed:
			r.Passed++
		case Failed:
			r.Failed++
		case Errored:
			r.Errors++
		case Skipped:
			r.Skipped++
		}
	}
}
