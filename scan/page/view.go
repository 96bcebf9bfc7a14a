package page

import (
	"html/template"

	"skillbox/scan"
)

// view is what the page's layout is filled with. Texts are as short as they may be; the template escapes them.
type view struct {
	Policy string
	Style  template.CSS
	Script template.JS

	Title, Kicker, Name string
	Verdict             badge
	Line                string // what the verdict rests on
	Tally               []badge
	Facts               []fact
	IsScan              bool

	Findings   []*group
	Found      string // how many
	Refused    []*refusal
	Compared   []difference
	Unobserved []string
	Incomplete []string
	Runs       []*runView
	Kinds      []kindCount
	Verdicts   []kindCount
	Recorded   string // how many events
	Shown      string // how many of them are in the page

	MoreFindings, MoreRefused, MoreCompared, MoreUnobserved, MoreRuns int
	Left                                                              string // which events are not in the page
}

// badge is a shape and a word; the shape's name is a class too.
type badge struct {
	Shape, Word, Count string
}

func severityBadge(s scan.Severity) badge {
	switch s {
	case scan.Critical:
		return badge{Shape: "critical", Word: "Critical"}
	case scan.High:
		return badge{Shape: "high", Word: "High"}
	case scan.Medium:
		return badge{Shape: "medium", Word: "Medium"}
	case scan.Low:
		return badge{Shape: "low", Word: "Low"}
	case scan.Info:
		return badge{Shape: "info", Word: "Info"}
	}
	return badge{Shape: "none", Word: "None"}
}

type fact struct {
	Name, Value string
	Code        bool // digests and the like
}

// Wide is what needs two columns.
func (f fact) Wide() bool { return len(f.Value) > 32 }

// group is what one rule says, once for all the findings that differ only in what they are about.
type group struct {
	badge
	Rule, Category     string
	Title, Remediation text
	Number             string // of findings; "" for one
	Items, Folded      []finding
}

// foldAfter is how many findings of a group are seen at a glance.
const foldAfter = 4

type finding struct {
	Description text
	Place       string // file and line
	Snippet     text
	Seen        string // how often
	Run         string // ID of its run's section; "" where there is none
	RunName     string
	Evidence    []evidence
}

// evidence is a record, with the ID of its row where that is in the page.
type evidence struct {
	Row, At, Kind, What string
}

// refusal is what was refused, once for all the times that it was.
type refusal struct {
	Kind    string
	What    text
	Note    string
	Verdict string
	Error   string
	Count   int64
	Rows    []evidence
	decision

	rows  []key // where it was refused, some of them
	order int
}

type difference struct {
	Key, Value string
	Declared   bool
}

// Unseen is how many lines the section about that has.
func (v *view) Unseen() int { return len(v.Unobserved) + len(v.Incomplete) }

type kindCount struct {
	Name, Count string
}

// runView is one run in the page.
type runView struct {
	ID        string // of its section
	Name      string // such as Run 2
	Command   text
	Params    text
	Ended     string
	Bad       bool // it did not end by itself
	Facts     []fact
	Layers    []fact
	Processes []*process
	More      int // processes
	Rows      []*row
	Recorded  int64
}

// Many tells whether laying all rows out would be felt.
func (v *runView) Many() bool { return len(v.Rows) > 1000 }

// Few tells whether the processes are seen at a glance.
func (v *runView) Few() bool { return len(v.Processes) <= 40 && v.More == 0 }
