package page

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
	"time"

	"skillbox/audit"
	"skillbox/scan"
)

// builder goes through the records once and then makes a view of what it kept.
type builder struct {
	evidence map[key]bool
	runs     []*runBuilder
	choice   choice
	rows     map[key]*row // that are in the page
	events   int64
	refusals refusals
}

func newBuilder(evidence map[key]bool) *builder {
	return &builder{evidence: evidence, rows: map[key]*row{}, refusals: refusals{byWhat: map[string]*refusal{}}}
}

// runBuilder collects one run.
type runBuilder struct {
	page     *builder
	of       *scan.Run
	number   int // from 1
	first    *audit.Event
	granted  audit.Granted
	started  audit.Started
	ended    *audit.Ended
	refused  string
	layers   []fact
	tree     tree
	rows     []*row
	recorded int64
}

func (b *builder) run(r *scan.Run) *runBuilder {
	one := &runBuilder{page: b, of: r, number: len(b.runs) + 1}
	b.runs = append(b.runs, one)
	return one
}

func (r *runBuilder) add(e audit.Record) {
	if r.first == nil {
		first := e.Event
		r.first = &first
	}
	b := r.page
	switch d := e.Detail.(type) {
	case audit.Granted:
		r.granted = d
	case audit.Started:
		r.started = d
	case audit.Refused:
		r.refused = d.Message
	case audit.Ended:
		r.ended = &d
	case audit.Layer:
		if len(r.layers) < maxLines {
			r.layers = append(r.layers, fact{short(d.Layer, 64), short(d.State, 600), false})
		}
		return // it stands with the run, as the box that the skill ran in
	}
	b.events++
	r.recorded++
	if o := e.Outcome(); o != nil && o.Verdict == audit.Denied {
		b.refusals.add(&e)
	}
	r.tree.add(&e.Event, keyOf(&e))
	b.choice.add(candidate{run: r, order: b.events, sort: b.sortOf(&e), record: e})
}

// rowOf makes a record's row and remembers it for those who link to it.
func (r *runBuilder) rowOf(e *audit.Record) *row {
	one := rowOf(&e.Event)
	one.ID = fmt.Sprintf("e%d-%d", r.number, e.Seq)
	one.time, one.At = e.Time, r.at(e.Time)
	one.Depth = r.tree.depth(one.PID)
	r.page.rows[keyOf(e)] = &one
	return &one
}

// at is a time as seconds since the run's first record.
func (r *runBuilder) at(t time.Time) string {
	return fmt.Sprintf("%.3f", t.Sub(r.first.Time).Seconds())
}

func (r *runBuilder) id() string { return fmt.Sprintf("run-%d", r.number) }

// finish makes what a scan's page and a run's have in common.
func (b *builder) finish() *view {
	shown := b.choice.rows()
	v := &view{Recorded: number(b.events), Shown: number(shown)}
	for _, r := range b.runs {
		slices.SortFunc(r.rows, func(a, b *row) int { return cmp.Or(a.time.Compare(b.time), cmp.Compare(a.order, b.order)) })
	}
	v.Left = b.leftOut(shown)
	v.Refused, v.MoreRefused = b.refusals.list(b)
	b.chips(v)
	v.MoreRuns = max(len(b.runs)-maxRuns, 0)
	for _, r := range b.runs[:len(b.runs)-v.MoreRuns] {
		v.Runs = append(v.Runs, r.view())
	}
	return v
}

// chips are what the timeline can be filtered by, with how many rows each would leave.
func (b *builder) chips(v *view) {
	kinds, verdicts := map[string]int{}, map[string]int{}
	for _, run := range b.runs {
		for _, r := range run.rows {
			kinds[r.Kind]++
			verdicts[r.Verdict]++
		}
	}
	for _, k := range audit.Kinds() {
		if n := kinds[string(k)]; n > 0 {
			v.Kinds = append(v.Kinds, kindCount{string(k), number(n)})
		}
	}
	for _, verdict := range []string{audit.Denied, audit.Failed, audit.Allowed} {
		if n := verdicts[verdict]; n > 0 {
			v.Verdicts = append(v.Verdicts, kindCount{verdict, number(n)})
		}
	}
}

// leftOut says which events are not in the page, the most frequent first.
func (b *builder) leftOut(shown int) string {
	left := b.choice.left
	if len(left) == 0 {
		return ""
	}
	names := make([]string, 0, len(left))
	for name := range left {
		names = append(names, name)
	}
	slices.SortFunc(names, func(a, b string) int { return cmp.Or(cmp.Compare(left[b], left[a]), cmp.Compare(a, b)) })
	words := make([]string, 0, len(names))
	for _, name := range names[:min(len(names), 12)] {
		words = append(words, fmt.Sprintf("%s (%s)", number(left[name]), name))
	}
	if len(names) > 12 {
		words = append(words, "others")
	}
	return fmt.Sprintf("%s of %s events are shown. Left out: %s.", number(shown), number(b.events), listed(words))
}

func (r *runBuilder) view() *runView {
	v := &runView{ID: r.id(), Name: fmt.Sprintf("Run %d", r.number), Layers: r.layers, Rows: r.rows, Recorded: r.recorded}
	command := r.of.Command
	if len(command) == 0 {
		command = r.started.Command
	}
	v.Command, v.Params = textOf(strings.Join(command, " ")), textOf(r.of.Params)
	v.Ended, v.Bad = r.ending()
	v.Facts = r.facts()
	v.Processes, v.More = r.tree.list(r.page.rows)
	return v
}

// ending is how a run ended, and whether that was not by itself.
func (r *runBuilder) ending() (text string, bad bool) {
	switch {
	case r.ended != nil:
		return short(ended(r.ended), 300), r.ended.Verdict != "exited"
	case r.refused != "":
		return "refused: nothing ran", true
	case r.of.Verdict != "":
		return short(fmt.Sprintf("%s, exit code %d, after %s", r.of.Verdict, r.of.ExitCode, duration(r.of.Duration)), 300), r.of.Verdict != "exited"
	}
	return "no end is recorded: it goes on, or skillboxd was killed", true
}

func (r *runBuilder) facts() []fact {
	var facts []fact
	add := func(name, value string, code bool) {
		if value != "" {
			facts = append(facts, fact{name, short(value, 600), code})
		}
	}
	g := &r.granted
	add("Run", r.of.ID, true)
	if r.first != nil {
		add("Began", clock(r.first.Time), false)
		add("Host", r.first.Host, false)
		if c := r.first.Caller; c != nil {
			add("Caller", fmt.Sprintf("user %d, process %d (%s)", c.UID, c.PID, c.Process), false)
		}
	}
	if g.PlanDigest != "" {
		add("Served", joined(g.Mode, g.Helper+" helper", orElse(r.started.Box, "no")+" box"), false)
	}
	add("Policy", joined(g.Policy, g.PolicyDigest), true)
	add("Ceiling", g.CeilingDigest, true)
	add("Plan", g.PlanDigest, true)
	add("Session", g.Session, true)
	if r.ended != nil {
		add("Used", usage(&r.ended.Usage), false)
	}
	if r.of.Clock != 0 {
		add("Clock", "ahead by "+duration(r.of.Clock), false)
	}
	if n := r.dropped(); n > 0 {
		add("Not recorded", some(n, "detail", "details")+": there were too many, or the disk was full", false)
	}
	return facts
}

func (r *runBuilder) dropped() uint64 {
	if r.ended != nil {
		return max(r.ended.Dropped, r.of.Dropped)
	}
	return r.of.Dropped
}

func usage(u *audit.Usage) string {
	var words []string
	if ms := u.UserMS + u.SystemMS; ms > 0 {
		words = append(words, milliseconds(ms)+" of processor time")
	}
	if u.MemoryPeak > 0 {
		words = append(words, bytesOf(u.MemoryPeak)+" of memory")
	}
	if u.PidsPeak > 0 {
		words = append(words, some(u.PidsPeak, "process", "processes"))
	}
	if n := u.StdoutBytes + u.StderrBytes; n > 0 {
		words = append(words, bytesOf(n)+" of output")
	}
	return joined(append(words, traffic(u.BytesOut, u.BytesIn))...)
}

// clock is a time for a person who may be anywhere.
func clock(t time.Time) string { return t.UTC().Format("2006-01-02 15:04:05 UTC") }
