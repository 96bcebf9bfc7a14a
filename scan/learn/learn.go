// Package learn finds the smallest policy under which a skill works, by running it. It runs the skill in a box that has nothing real in it,
// under a policy that allows more than most skills need and nothing dangerous, and takes away what the same runs do without. What a
// policy should not say without a person having thought about it stays commented out.
package learn

import (
	"strings"
	"time"

	"skillbox/audit"
	"skillbox/scan"
)

// DefaultRuns is how often each set of parameters is run to see what a skill does.
const DefaultRuns = 3

// Options say which skill is looked at, and how. The zero value of each field but Bundle is a default.
type Options struct {
	Bundle   string            // directory
	Params   []string          // sets of parameters, each a JSON value; none is what the bundle's schema suggests
	Commands [][]string        // what to run; none is what the bundle names
	Inputs   map[string]string // files that the skill finds in /input, paths by name
	Env      map[string]string // values of variables and secrets that the skill may be given
	Runs     int               // of each set of parameters; 0 is DefaultRuns
	Current  string            // file with the policy that holds now; "" is none
	Ceiling  string            // file with a policy beyond which nothing is tried; "" is a generous one
	Network  []string          // destinations that may really be reached, as NAME:PORT or CIDR:PORT; none is a sinkhole
}

// Result is what was learned.
type Result struct {
	Skill     audit.Skill       `json:"skill"`
	Policy    string            `json:"policy"`    // YAML with comments; `skillbox policy check` takes it
	Converged bool              `json:"converged"` // under it, runs were refused nothing and gave the same results
	Failing   []string          `json:"failing"`   // why it is not
	Attempts  int               `json:"attempts"`  // ways in which the skill was started
	Runs      int               `json:"runs"`      // all of them
	Wishes    []Wish            `json:"wishes"`    // commented out in the policy
	Varies    []string          `json:"varies"`    // what of the results is not the same in every run, and was not compared
	Compared  []scan.Difference `json:"compared"`  // with the current policy; declared is that it is granted and was not needed
	Diff      string            `json:"diff"`      // unified, from the current policy; "" without one or where both say the same
	Evidence  []audit.Record    `json:"evidence"`  // records that wishes name
	Duration  time.Duration     `json:"duration_ns"`
}

// Comparison is the diff from the current policy, and then a line for each thing that is granted and not needed, or needed and not granted; ""
// without a current policy.
func (r *Result) Comparison() string {
	var b strings.Builder
	b.WriteString(r.Diff)
	for _, d := range r.Compared {
		text := "needed and missing: "
		if d.Declared {
			text = "granted and unused: "
		}
		b.WriteString(text + d.Key + " " + printable(d.Value) + "\n")
	}
	return b.String()
}
