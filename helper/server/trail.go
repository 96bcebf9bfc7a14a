package server

import (
	"errors"
	"fmt"
	"maps"
	"slices"
	"time"

	"skillbox/audit"
	"skillbox/bundle"
	"skillbox/helper"
	"skillbox/policy"
	"skillbox/sandbox"
)

// trail is what the audit log gets of one call: that it may run, before anything of the skill does, and all the rest when it has ended.
type trail struct {
	log     func() (Appender, error)
	helper  string // who serves: see mode
	caller  audit.Caller
	session string
	call    int

	began   time.Time // the skill, about
	run     string    // "" before granted
	skill   *audit.Skill
	plan    *sandbox.Plan
	policy  *policy.Policy
	command []string
	box     string        // what was ready before the call
	started bool          // as the log has it
	lost    uint64        // details that it did not take
	took    time.Duration // what the grant and the end took, which a call waits for
}

// Appender takes records, all of them or none.
type Appender interface {
	Append(events ...audit.Event) error
}

// unrecorded is a call that does not start because nobody could tell of it afterwards.
type unrecorded struct{ why error }

func (u *unrecorded) Error() string {
	return fmt.Sprintf("the run cannot be recorded, so it does not start: %v", u.why)
}

func (u *unrecorded) Unwrap() error { return u.why }

func (u *unrecorded) hint() string {
	var said *helper.Error
	switch {
	case errors.As(u.why, &said):
		return said.Hint
	case audit.IsFull(u.why):
		return "make room on the log's file system, or in its user's quota there"
	}
	return "`skillbox audit verify` says where the log is broken; another begins when its directory is moved away"
}

// open opens the log while a box is made. What goes wrong is said when something is to be written, which tries again.
func (t *trail) open() {
	if t != nil {
		_, _ = t.log()
	}
}

func (t *trail) clock(began time.Time) { t.took += time.Since(began) }

// misconfigured tells an error of whoever wrote a file about the log, which has its place there.
func misconfigured(err error) bool {
	var many policy.Errors
	var one *helper.Error
	return errors.As(err, &many) || errors.As(err, &one) && one.File != ""
}

// granted records that a call may run, under what, and that every layer of its box holds.
func (t *trail) granted(id string, d *decision, tree *bundle.Tree) error {
	if t == nil {
		return nil
	}
	defer t.clock(time.Now())
	log, err := t.log()
	if misconfigured(err) {
		return err
	}
	if err != nil {
		return &unrecorded{err}
	}
	plan, err := d.planDigest()
	if err != nil {
		return err
	}
	t.skill, t.command = &audit.Skill{Name: d.bundle.Name, Digest: tree.Digest}, d.argv
	grant := audit.Granted{
		Mode: d.plan.Mode, Helper: t.helper, Policy: d.policy.Name, PolicyDigest: d.policy.Digest, CeilingDigest: d.ceilings, PlanDigest: plan, Image: d.plan.ImageDigest(), Session: t.session, Call: t.call,
	}
	if b := d.trust; b != nil {
		grant.Trust = &audit.Trust{Tier: b.Tier, Signature: b.Signature, KeyID: b.KeyID, RemoteCode: b.TrustRemoteCode}
	}
	events := []audit.Event{t.event(id, grant)}
	for _, name := range slices.Sorted(maps.Keys(d.plan.Layers)) {
		events = append(events, t.event(id, audit.Layer{Layer: name, State: d.plan.Layers[name]}))
	}
	if err := log.Append(events...); err != nil {
		return &unrecorded{err}
	}
	t.run, t.began, t.plan, t.policy = id, time.Now(), d.plan, d.granted.Policy
	return nil
}

// recorder takes what the skill does in a box.
func (t *trail) recorder(box *sandbox.Box) func([]sandbox.Observed) {
	if t == nil {
		return nil
	}
	t.box = box.Start
	return t.observed
}

// observed records what the skill does meanwhile. What the log does not take is counted: the skill is not made to wait for a disk.
func (t *trail) observed(seen []sandbox.Observed) {
	var events []audit.Event
	if !t.started {
		events = append(events, t.start())
	}
	for _, s := range seen {
		e := t.event(t.run, s.Detail)
		e.Time = s.Time
		events = append(events, e)
	}
	log, err := t.log()
	if err == nil {
		err = log.Append(events...)
	}
	if err != nil {
		t.lost += uint64(len(seen))
		return
	}
	t.started = true
}

func (t *trail) start() audit.Event {
	e := t.event(t.run, audit.Started{Box: t.box, Command: t.command})
	e.Time = t.began
	return e
}

// ended records what a call came to. What goes wrong is a warning in its result: it has run.
func (t *trail) ended(r *helper.Result) {
	if t == nil {
		return
	}
	began := time.Now()
	log, err := t.log()
	if err == nil {
		err = log.Append(t.end(r)...)
	}
	t.clock(began)
	r.Phases["audit_ms"] = float64(t.took.Microseconds()) / 1000
	if err != nil && t.run != "" {
		r.Warnings = append(r.Warnings, fmt.Sprintf("the audit log does not have this run's end: %v", err))
	} else if err != nil {
		r.Warnings = append(r.Warnings, fmt.Sprintf("the audit log does not have this refusal: %v", err))
	}
}

// end is everything about a call but its grant.
func (t *trail) end(r *helper.Result) []audit.Event {
	if t.run == "" {
		return []audit.Event{t.event(r.ID, refusalOf(r))}
	}
	var all []audit.Event
	add := func(d audit.Detail) { all = append(all, t.event(t.run, d)) }
	if t.box = r.Sandbox.Start; r.Verdict != helper.Failed && !t.started {
		all = append(all, t.start())
	}
	for _, f := range r.Network {
		add(flow(f))
		all[len(all)-1].Time = f.Time
	}
	for _, d := range r.Denials {
		if !d.Recorded {
			add(denial(d))
		}
	}
	if t.plan != nil {
		if key, limit, rule, remedy := met(r.Verdict, t.plan, t.policy); key != "" {
			add(audit.Limit{Limit: key, Value: limit, Outcome: audit.Outcome{Verdict: audit.Denied, Layer: "limits", Rule: rule, Subject: message(r), Remedy: remedy}})
		}
	}
	for _, o := range r.Outputs {
		add(audit.Output{Name: o.Name, Bytes: o.Bytes, SHA256: o.SHA256})
	}
	end := endOf(r)
	end.Dropped = r.Unrecorded + t.lost
	add(end)
	if end.Dropped > 0 {
		r.Warnings = append(r.Warnings, fmt.Sprintf("%d details of what the skill did are not in the audit log", end.Dropped))
	}
	return all
}

func (t *trail) event(run string, d audit.Detail) audit.Event {
	return audit.Event{Run: run, Caller: &t.caller, Skill: t.skill, Detail: d}
}

func message(r *helper.Result) string {
	if r.Error == nil {
		return ""
	}
	return r.Error.Message
}

// refusal is a call of which nothing ran.
func refusalOf(r *helper.Result) audit.Refused {
	one := audit.Refused{Outcome: audit.Outcome{Verdict: audit.Denied, Layer: "policy"}}
	if r.Verdict != helper.Refused {
		one.Verdict, one.Layer = audit.Failed, "skillbox"
	}
	if e := r.Error; e != nil {
		one.Message, one.Subject, one.Remedy = e.Message, e.Field, e.Hint
		if one.Rule = e.File; e.Line > 0 {
			one.Rule = fmt.Sprintf("%s:%d:%d", e.File, e.Line, e.Column)
		}
	}
	return one
}

func flow(f helper.Flow) audit.Detail {
	became := audit.Outcome{Verdict: audit.Allowed, Layer: "network", Rule: f.Rule, Error: f.Error, Count: f.Count}
	if f.Sinkhole {
		became.Layer = "sinkhole"
	}
	if f.Refused {
		became.Verdict, became.Remedy = audit.Denied, f.Hint
	}
	if f.Kind == "dns" {
		one := audit.DNS{Name: f.Name, Type: f.Proto, DurationMS: f.DurationMS, Outcome: became}
		if f.Address != "" {
			one.Addresses = []string{f.Address}
		}
		return one
	}
	op := "connect"
	if f.Direction == "in" {
		op = "accept"
	}
	return audit.Connection{
		Op: op, Direction: f.Direction, Proto: f.Proto, Name: f.Name, Address: f.Address, Port: int(f.Port), BytesOut: f.Sent, BytesIn: f.Received, DurationMS: f.DurationMS,
		FirstBytes: f.First, Outcome: became,
	}
}

func denial(d helper.Denial) audit.Detail {
	became := audit.Outcome{Verdict: audit.Denied, Error: d.Errno, Layer: "network", Subject: d.What, Rule: d.Rule, Remedy: d.Hint, Count: d.Count}
	switch d.Kind {
	case "dns":
		return audit.DNS{Name: d.Name, Type: d.Proto, Outcome: became}
	case "connection":
		return audit.Connection{Op: "connect", Direction: d.Direction, Proto: d.Proto, Name: d.Name, Address: d.Address, Port: int(d.Port), FirstBytes: d.First, Outcome: became}
	}
	if d.Kind == "env" {
		became.Layer, became.Subject = "environment", ""
		return audit.Env{Name: d.Name, Outcome: became}
	}
	became.Layer = "seccomp"
	one := audit.Syscall{Name: d.Name, Outcome: became}
	if d.Detail != "" {
		one.Args = []string{d.Detail}
	}
	return one
}

func endOf(r *helper.Result) audit.Ended {
	one := audit.Ended{
		Verdict: r.Verdict, ExitCode: r.ExitCode, Signal: r.Signal, DurationMS: r.DurationMS, Error: message(r), Denials: map[string]int64{},
		Usage: audit.Usage{UserMS: r.Usage.UserMS, SystemMS: r.Usage.SystemMS, StdoutBytes: r.Usage.StdoutBytes, StderrBytes: r.Usage.StderrBytes},
	}
	for _, d := range r.Denials {
		one.Denials[d.Kind] += max(d.Count, 1)
	}
	if peak := r.Usage.MemoryPeak; peak != nil {
		one.Usage.MemoryPeak = *peak
	}
	if peak := r.Usage.PidsPeak; peak != nil {
		one.Usage.PidsPeak = *peak
	}
	if n := r.Usage.Net; n != nil {
		one.Usage.BytesOut, one.Usage.BytesIn = n.Sent, n.Received
	}
	return one
}
