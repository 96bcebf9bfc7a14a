package page

import (
	"fmt"
	"strconv"
	"strings"

	"skillbox/audit"
	"skillbox/scan"
)

// scan makes the view of a scan whose runs have been added.
func (b *builder) scan(r *scan.Report) *view {
	v := b.finish()
	v.IsScan = true
	v.Kicker = "skillbox scan"
	v.Name = short(orElse(r.Skill.Name, "unnamed skill"), 256)
	v.Title = short(v.Name, 80) + " – skillbox scan"
	v.Verdict, v.Line = verdict(r.Worst(), r)
	for s := scan.Critical; s > scan.None; s-- {
		if n := countOf(r.Findings, s); n > 0 {
			one := severityBadge(s)
			one.Count = number(n)
			v.Tally = append(v.Tally, one)
		}
	}
	v.Facts = []fact{
		{"Digest", short(r.Skill.Digest, 128), true},
		{"Scanned", clock(r.Time), false},
		{"Took", duration(r.Duration), false},
		{"Looked at", some(len(r.Runs), "run", "runs") + ", " + some(b.events, "event", "events"), false},
	}
	b.findings(v, r.Findings)
	b.rest(v, r)
	return v
}

func verdict(worst scan.Severity, r *scan.Report) (badge, string) {
	runs := some(len(r.Runs), "run", "runs")
	partly := ""
	if len(r.Incomplete) > 0 {
		partly = " It could not be scanned wholly: " + short(r.Incomplete[0], 300)
	}
	switch {
	case worst > scan.None:
		return severityBadge(worst), some(len(r.Findings), "finding", "findings") + " in " + runs + "." + partly
	case partly != "":
		return badge{Shape: "high", Word: "Incomplete"}, "Nothing was found in " + runs + "." + partly
	case len(r.Runs) == 0:
		return badge{Shape: "info", Word: "Not run"}, "Nothing is known of what it does."
	}
	return badge{Shape: "none", Word: "No findings"}, "Nothing that it did in " + runs + " speaks against it. That is what was seen, and no promise."
}

func countOf(findings []scan.Finding, s scan.Severity) (n int) {
	for i := range findings {
		if findings[i].Severity == s {
			n++
		}
	}
	return n
}

// findings puts those of one rule together, in the place of the first: they come with the worst first.
func (b *builder) findings(v *view, findings []scan.Finding) {
	v.Found = number(len(findings))
	groups := map[string]*group{}
	room := budget(otherBytes)
	for i := range findings {
		f := &findings[i]
		id := strings.Join([]string{f.Severity.String(), f.Rule, f.Category, f.Title, f.Remediation}, "\x00")
		g, one := groups[id], b.finding(f)
		if g == nil {
			g = &group{badge: severityBadge(f.Severity), Rule: short(f.Rule, 80), Category: short(f.Category, 80), Title: textOf(f.Title), Remediation: textOf(f.Remediation)}
		}
		cost := one.cost()
		if groups[id] == nil {
			cost += g.cost()
		}
		if i == maxFindings || !room.take(cost) {
			v.MoreFindings = len(findings) - i
			break
		}
		if groups[id] == nil {
			groups[id] = g
			v.Findings = append(v.Findings, g)
		}
		g.add(one)
	}
}

func (g *group) add(one finding) {
	if len(g.Items) < foldAfter {
		g.Items = append(g.Items, one)
	} else {
		g.Folded = append(g.Folded, one)
	}
	if n := len(g.Items) + len(g.Folded); n > 1 {
		g.Number = number(n) + " findings"
	}
}

func (g *group) cost() int {
	return 2*rowOverhead + g.Title.cost() + g.Remediation.cost() + escaped(g.Rule+g.Category)
}

func (b *builder) finding(f *scan.Finding) finding {
	one := finding{Description: textOf(f.Description), Snippet: textOf(f.Snippet)}
	if f.File != "" {
		one.Place = short(f.File, 400)
		if f.Line > 0 {
			one.Place += ":" + strconv.Itoa(f.Line)
		}
	}
	if f.Count > 1 {
		one.Seen = number(f.Count) + " times"
	}
	for _, r := range b.runs {
		if len(b.runs) > 1 && f.Run != "" && r.of.ID == f.Run && r.number <= maxRuns {
			one.Run, one.RunName = r.id(), fmt.Sprintf("run %d", r.number)
		}
	}
	for i := range f.Evidence {
		one.Evidence = append(one.Evidence, b.evidenceOf(&f.Evidence[i]))
	}
	return one
}

func (f *finding) cost() int {
	n := rowOverhead + f.Description.cost() + f.Snippet.cost() + escaped(f.Place)
	for _, e := range f.Evidence {
		n += rowOverhead/2 + escaped(e.What)
	}
	return n
}

func (b *builder) evidenceOf(e *audit.Record) evidence {
	what, _ := describe(&e.Event)
	one := evidence{Kind: string(e.Kind), What: short(what, 160)}
	if o := e.Outcome(); o != nil && o.Verdict != audit.Allowed {
		one.Kind += " " + short(o.Verdict, 16)
	}
	if r := b.rows[keyOf(e)]; r != nil {
		one.Row, one.At = r.ID, r.At
	}
	return one
}

// rest is what was compared, and what could not be seen.
func (b *builder) rest(v *view, r *scan.Report) {
	room := budget(otherBytes)
	for i, d := range r.Compared {
		one := difference{short(d.Key, 128), short(d.Value, 600), d.Declared}
		if i == maxLines || !room.take(rowOverhead+escaped(one.Key+one.Value)) {
			v.MoreCompared = len(r.Compared) - i
			break
		}
		v.Compared = append(v.Compared, one)
	}
	for _, s := range r.Incomplete[:min(len(r.Incomplete), maxLines)] {
		v.Incomplete = append(v.Incomplete, short(s, 400))
	}
	for i, s := range r.Unobserved {
		one := short(s, 1000)
		if i == maxLines || !room.take(100+escaped(one)) {
			v.MoreUnobserved = len(r.Unobserved) - i
			break
		}
		v.Unobserved = append(v.Unobserved, one)
	}
}

// single makes the view of one run.
func (b *builder) single(r *runBuilder) *view {
	v := b.finish()
	v.Kicker = "skillbox run"
	if v.Left != "" {
		v.Left += " The log has them: skillbox audit show " + short(r.of.ID, 64)
	}
	id := short(r.of.ID, 64)
	v.Name = id
	if s := r.first.Skill; s != nil {
		v.Name = short(orElse(s.Name, "unnamed skill"), 256)
		v.Facts = append(v.Facts, fact{"Skill", short(s.Digest, 128), true})
	}
	v.Title = short(v.Name, 80) + ", run " + orElse(id, "that did not start") + " – skillbox"
	var refused int64
	for _, one := range b.refusals.byWhat {
		refused += one.Count
	}
	text, bad := r.ending()
	v.Verdict = badge{Shape: "none", Word: "Nothing refused"}
	v.Line = upper(text) + "."
	switch {
	case refused > 0:
		v.Verdict = badge{Shape: "medium", Word: upper(some(refused, "attempt", "attempts")) + " refused"}
	case r.refused != "":
		v.Verdict = badge{Shape: "high", Word: "Did not start"}
	case bad:
		v.Verdict = badge{Shape: "info", Word: "Nothing refused"}
	}
	v.Facts = append(v.Facts, v.Runs[0].Facts...)
	v.Runs[0].Facts = nil
	return v
}

func upper(s string) string {
	if s == "" {
		return s
	}
	return strings.ToUpper(s[:1]) + s[1:]
}
