// Package doctor finds out what of skillbox works on this machine, for this user, by trying it: Look gathers Facts, each in a
// short-lived process or a real box; Judge turns them into findings with the command that helps. Judge is pure.
//
// Nothing is left behind, and no try takes longer than Deadline.
package doctor

import "time"

// Deadline is the longest that one try may take.
const Deadline = 20 * time.Second

// Statuses of a Finding.
const (
	OK   = "ok"
	Warn = "warn" // something is refused or weaker, most skills run
	Fail = "fail" // no skill runs in this user's mode
)

// Finding is the judgement on one thing.
type Finding struct {
	Name   string `json:"name"`
	Status string `json:"status"`
	Detail string `json:"detail"`
	Remedy string `json:"remedy"` // commands to run, one to a line; "" if nothing is to be done
	Need   string `json:"need"`   // what of skillbox depends on it
}

// States of a Mode.
const (
	Works    = "works"
	Broken   = "does not work"
	NotTried = "not tried"
)

// Mode is the verdict on one way to run skillbox: "root" or "rootless".
type Mode struct {
	State     string  `json:"state"`
	Detail    string  `json:"detail"`
	PrepareMS float64 `json:"prepare_ms"` // of a real box that ran `true`; 0 without one
	RunMS     float64 `json:"run_ms"`
}

// Report is everything.
type Report struct {
	Version  string          `json:"version"`
	Mode     string          `json:"mode"` // this user's
	Modes    map[string]Mode `json:"modes"`
	Findings []Finding       `json:"findings"`
}

// Works tells whether this user can run a skill at all.
func (r *Report) Works() bool { return r.Modes[r.Mode].State == Works }

// Examine judges facts and gives each mode its verdict.
func Examine(version string, f *Facts) *Report {
	r := &Report{Version: version, Mode: f.mode(), Findings: Judge(f), Modes: map[string]Mode{
		modeRoot:     {State: NotTried, Detail: "run as root"},
		modeRootless: {State: NotTried, Detail: "run as an ordinary user"},
	}}
	m := Mode{State: Works, PrepareMS: f.Box.PrepareMS, RunMS: f.Box.RunMS}
	switch {
	case !f.Box.worked():
		m.State, m.Detail = Broken, "see FAIL above"
	case f.Box.Single:
		m.Detail = "with a single id"
	}
	r.Modes[r.Mode] = m
	return r
}
