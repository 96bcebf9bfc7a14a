// Package page writes what a scan found, or what the audit log holds of one run, as one HTML page for a person. The page loads nothing,
// sends nothing and runs nothing but its own script: whatever a skill chose stands in it as text.
package page

import (
	"crypto/sha256"
	_ "embed"
	"encoding/base64"
	"errors"
	"fmt"
	"html/template"
	"io"
	"iter"

	"skillbox/audit"
	"skillbox/scan"
)

// What a page shows at most, so that whoever made the records does not decide how large it is. What is left out is counted on it.
const (
	maxEvents    = 10_000
	maxFindings  = 500
	maxRefusals  = 500
	maxRuns      = 200
	maxProcesses = 300 // of each run
	maxLines     = 500 // of every other list

	eventBytes = 6 << 20 // of the rows of events as they are written, roughly
	otherBytes = 1 << 20 // of each other list
)

var (
	//go:embed page.html
	layout string
	//go:embed page.css
	style string
	//go:embed page.js
	script string

	pageTemplate = template.Must(template.New("page").Parse(layout))
)

// ErrNoRecords says that there was nothing to write a page of; nothing was written.
var ErrNoRecords = errors.New("page: no records of that run")

// Write writes the page of a scan. It may be some 10 MiB long at most.
func Write(w io.Writer, r *scan.Report) error {
	b := newBuilder(evidenceOf(r.Findings))
	for i := range r.Runs {
		one := b.run(&r.Runs[i])
		for _, e := range r.Runs[i].Events {
			one.add(e)
		}
	}
	return write(w, b.scan(r))
}

// WriteRun writes the page of one run from its records. Only what the page will show of them is kept meanwhile.
func WriteRun(w io.Writer, records iter.Seq2[audit.Record, error]) error {
	b := newBuilder(nil)
	var one *runBuilder
	for r, err := range records {
		if err != nil {
			return err
		}
		if one == nil {
			one = b.run(&scan.Run{ID: r.Run})
		}
		one.add(r)
	}
	if one == nil {
		return ErrNoRecords
	}
	return write(w, b.single(one))
}

// write fills in what only the finished page can say. The policy names its style and its script by their hashes: nothing else that
// looks like one has any effect, even if a text came to stand in the page unescaped.
func write(w io.Writer, v *view) error {
	v.Style, v.Script = template.CSS(style), template.JS(script)
	v.Policy = fmt.Sprintf("default-src 'none'; style-src '%s'; script-src '%s'; base-uri 'none'; form-action 'none'", hash(style), hash(script))
	if err := pageTemplate.Execute(w, v); err != nil {
		return fmt.Errorf("page: %w", err)
	}
	return nil
}

// hash is a source as a Content-Security-Policy names it (CSP Level 3, hash-source).
func hash(source string) string {
	sum := sha256.Sum256([]byte(source))
	return "sha256-" + base64.StdEncoding.EncodeToString(sum[:])
}
