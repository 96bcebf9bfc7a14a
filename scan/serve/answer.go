package serve

import (
	"context"
	"crypto/rand"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"strconv"
	"time"

	"skillbox/audit"
	"skillbox/bundle"
	"skillbox/helper"
	"skillbox/policy"
	"skillbox/scan"
)

// Answer is what a scan is answered with. Its fields are the API's.
type Answer struct {
	ScanID    string    `json:"scan_id"` // a random UUID
	SkillName string    `json:"skill_name"`
	IsSafe    bool      `json:"is_safe"`      // no finding is as severe as fail_on: nothing more
	Worst     string    `json:"max_severity"` // SAFE where there is no finding, else INFO, LOW, MEDIUM, HIGH or CRITICAL
	Count     int       `json:"findings_count"`
	Findings  []Finding `json:"findings"`              // the worst first
	Seconds   float64   `json:"scan_duration_seconds"` // of the request, with the wait for its turn
	Timestamp string    `json:"timestamp"`             // when it began, RFC 3339, UTC
	About     About     `json:"scan_metadata"`
}

// Finding is one finding with the API's names.
type Finding struct {
	ID          string   `json:"id"` // the rule's, and what tells two findings of one rule apart; the same in every scan
	RuleID      string   `json:"rule_id"`
	Severity    string   `json:"severity"`
	Category    string   `json:"category"`
	Title       string   `json:"title"`
	Description string   `json:"description"`
	File        *string  `json:"file_path"`   // null where it has no place in the bundle
	Line        *int     `json:"line_number"` // likewise
	Snippet     *string  `json:"snippet"`     // null for none
	Remediation string   `json:"remediation"`
	Analyzer    string   `json:"analyzer"`
	Metadata    Evidence `json:"metadata"`
}

// Evidence is what shows a finding.
type Evidence struct {
	Run     string        `json:"run,omitempty"`
	Count   int           `json:"count"`
	Records []audit.Event `json:"evidence"` // of the audit log, whose schema is in docs/audit.md
}

// About says how far the answer reaches.
type About struct {
	FailOn     string            `json:"fail_on"`          // is_safe is that no finding is this severe or worse
	Runs       int               `json:"runs"`             // how often the skill was started
	Compared   []scan.Difference `json:"compared"`         // what was declared and what was seen, where they differ
	Unobserved []string          `json:"unobserved"`       // what the scan could not see or do
	Incomplete []string          `json:"incomplete"`       // what it should have seen or done and did not; only where enough was found all the same
	LeftOut    []string          `json:"left_out"`         // what of an upload is not part of the skill, and was not scanned
	Ignored    []string          `json:"ignored_options"`  // what the caller asked for and this scanner does not know
	Digest     string            `json:"digest,omitempty"` // of the bundle that was scanned
}

// noneFound is the API's word for no finding.
const noneFound = "SAFE"

// scanned has a job scanned, and answers with what was found.
func (s *Server) scanned(ctx context.Context, j job) (*Answer, error) {
	report, err := s.scan(ctx, j)
	if err != nil {
		return nil, scanError(err)
	}
	for _, run := range report.Runs {
		// Such a run says nothing of the skill; the scanner should have failed with it.
		if run.Verdict == helper.Failed || run.Verdict == helper.Refused {
			return nil, fail(http.StatusInternalServerError, "run %s of the skill has the verdict %s: nothing is known about it", run.ID, run.Verdict)
		}
	}
	if len(report.Incomplete) > 0 && report.Worst() < s.FailOn {
		return nil, fail(http.StatusUnprocessableEntity, "the skill could not be scanned wholly, so nothing is known about the rest of it: %s", report.Incomplete[0])
	}
	return s.answer(report, j.name), nil
}

func (s *Server) answer(report *scan.Report, name string) *Answer {
	worst := report.Worst()
	a := &Answer{
		ScanID: newID(), SkillName: report.Skill.Name, IsSafe: worst < s.FailOn && len(report.Incomplete) == 0, Worst: worst.String(), Count: len(report.Findings), Findings: []Finding{},
		About: About{
			FailOn: s.FailOn.String(), Runs: len(report.Runs), Compared: report.Compared, Unobserved: report.Unobserved, Digest: report.Skill.Digest,
			LeftOut: []string{}, Ignored: []string{}, Incomplete: report.Incomplete,
		},
	}
	if a.SkillName == "" {
		a.SkillName = audit.Clean(filepath.Base(name), 200)
	}
	if worst == scan.None {
		a.Worst = noneFound
	}
	seen := map[string]int{}
	for _, f := range report.Findings {
		one := finding(f)
		if seen[one.ID]++; seen[one.ID] > 1 {
			one.ID += "_" + strconv.Itoa(seen[one.ID])
		}
		a.Findings = append(a.Findings, one)
	}
	if a.About.Compared == nil {
		a.About.Compared = []scan.Difference{}
	}
	if a.About.Incomplete == nil {
		a.About.Incomplete = []string{}
	}
	if a.About.Unobserved == nil {
		a.About.Unobserved = []string{}
	}
	return a
}

func finding(f scan.Finding) Finding {
	sum := sha256.Sum256([]byte(f.Rule + "\x00" + f.File + "\x00" + strconv.Itoa(f.Line) + "\x00" + f.Description))
	one := Finding{
		ID: f.Rule + "_" + hex.EncodeToString(sum[:5]), RuleID: f.Rule, Severity: f.Severity.String(), Category: f.Category, Title: f.Title,
		Description: f.Description, Remediation: f.Remediation, Analyzer: Analyzer, Metadata: Evidence{Run: f.Run, Count: max(1, f.Count), Records: []audit.Event{}},
	}
	for _, r := range f.Evidence {
		one.Metadata.Records = append(one.Metadata.Records, r.Event)
	}
	if f.File != "" {
		one.File = &f.File
		if f.Line > 0 {
			one.Line = &f.Line
		}
	}
	if f.Snippet != "" {
		one.Snippet = &f.Snippet
	}
	return one
}

// finish says when the request began, and how long it took.
func (a *Answer) finish(began time.Time) {
	a.Timestamp = began.UTC().Format(time.RFC3339Nano)
	a.Seconds = time.Since(began).Seconds()
}

// scanError says whose fault it is that there was no scan: what is wrong with the skill's own files is the sender's.
func scanError(err error) error {
	var known *failure
	var files *bundle.Error
	var declared *policy.Error
	var machine *helper.Error
	switch {
	case errors.As(err, &known):
		return err
	case errors.As(err, &files):
		return withHint(http.StatusUnprocessableEntity, err, files.Hint)
	case errors.As(err, &declared):
		return fail(http.StatusUnprocessableEntity, "%w", err)
	case errors.Is(err, scan.ErrNothing):
		return fail(http.StatusUnprocessableEntity, "the skill names nothing that could be run, and what it does is all that is judged here: its manifest needs a command, or the skill a script in scripts/")
	case errors.As(err, &machine):
		return withHint(http.StatusServiceUnavailable, err, machine.Hint)
	}
	return fail(http.StatusInternalServerError, "%w", err)
}

// check refuses what is no skill, or one that no box would take, before it waits for its turn.
func check(ctx context.Context, dir *os.File, where string) error {
	b, err := bundle.Read(dir)
	if err == nil && b.Kind == bundle.Command {
		return noManifest(where)
	}
	if err == nil {
		_, err = bundle.Digest(ctx, dir, bundle.Limits{}, nil)
	}
	if ctx.Err() != nil {
		return context.Cause(ctx)
	}
	return err
}

func noManifest(where string) error {
	return fail(http.StatusBadRequest, "%s has no SKILL.md, no skillbox.yaml and no manifest.yaml beside a skill.py: it is no skill", where)
}

func withHint(status int, err error, hint string) *failure {
	if hint == "" {
		return fail(status, "%w", err)
	}
	return fail(status, "%w; %s", err, hint)
}

// newID is a random UUID (RFC 9562, version 4).
func newID() string {
	var b [16]byte
	_, _ = rand.Read(b[:]) // never fails: the program ends instead
	b[6], b[8] = b[6]&0x0f|0x40, b[8]&0x3f|0x80
	return fmt.Sprintf("%x-%x-%x-%x-%x", b[:4], b[4:6], b[6:8], b[8:10], b[10:])
}
