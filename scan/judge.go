package scan

import (
	"cmp"
	"fmt"
	"slices"
	"strings"

	"skillbox/audit"
)

// maxEvidence is how many records a finding has at most.
const maxEvidence = 16

// sight is one run, and what is needed to judge it.
type sight struct {
	*subject
	run            *Run
	stdout, stderr string
	outputs        map[string]string // what was left in /output, by name
	changes        []change          // of the home
	homeFull       bool              // it was ended for what it wrote there
	canaries       *canaries
	noted          []Finding
}

// judges look for one sort of finding each, in this order.
var judges = []func(*sight){
	(*sight).leaks, (*sight).programs, (*sight).connections, (*sight).files, (*sight).home, (*sight).calls, (*sight).limits, (*sight).hidden,
}

// judge says what speaks against a skill in one run. It is pure.
func (s *sight) judge() []Finding {
	for _, look := range judges {
		look(s)
	}
	return s.noted
}

// note makes a finding. What stands in description is clean already; evidence that is not given is the run's start.
func (s *sight) note(id string, severity Severity, at place, description string, evidence ...audit.Record) {
	rule := ruleOf(id)
	if severity == None {
		severity = rule.Severity
	}
	if len(evidence) == 0 {
		evidence = s.of(func(e *audit.Record) bool { return e.Kind == audit.RunStarted || e.Kind == audit.RunEnded })
	}
	count := 0
	for _, e := range evidence {
		n := int64(1)
		if o := e.Outcome(); o != nil {
			n = max(o.Count, 1)
		}
		count += int(n)
	}
	s.noted = append(s.noted, Finding{
		Rule: id, Severity: severity, Category: rule.Category, Title: rule.Title, Description: description, Remediation: rule.Remediation,
		File: at.file, Line: at.line, Snippet: at.snippet, Run: s.run.ID, Evidence: evidence[:min(len(evidence), maxEvidence)], Count: max(count, 1),
	})
}

// noteText makes a finding of the bundle's text, for which nothing was run.
func (s *sight) noteText(id string, severity Severity, at place, description string) {
	s.note(id, severity, at, description)
	last := &s.noted[len(s.noted)-1]
	last.Run, last.Evidence, last.Count = "", []audit.Record{}, 1
}

// of are the records of the run that fit.
func (s *sight) of(fits func(*audit.Record) bool) (all []audit.Record) {
	for i := range s.run.Events {
		if e := &s.run.Events[i]; fits(e) {
			all = append(all, *e)
		}
	}
	return all
}

// maxFindings bounds how many findings of one rule a skill can make us tell.
const maxFindings = 50

// merge puts together what is one thing seen several times, and the worst first. Of one rule, what is more than maxFindings is counted by the
// last one.
func merge(all []Finding) []Finding {
	const more = " There is more of this kind than is told."
	merged, of := []Finding{}, map[string]int{}
	for _, f := range all {
		i := slices.IndexFunc(merged, func(m Finding) bool {
			return m.Rule == f.Rule && m.Description == f.Description && m.File == f.File && m.Line == f.Line
		})
		if i < 0 && of[f.Rule] < maxFindings {
			of[f.Rule]++
			merged = append(merged, f)
			continue
		}
		if i < 0 {
			i = slices.IndexFunc(merged, func(m Finding) bool { return m.Rule == f.Rule && strings.HasSuffix(m.Description, more) })
		}
		if i < 0 {
			f.Description += more
			merged = append(merged, f)
			continue
		}
		merged[i].Count += f.Count
		merged[i].Severity = max(merged[i].Severity, f.Severity)
	}
	slices.SortStableFunc(merged, func(a, b Finding) int {
		return cmp.Or(cmp.Compare(b.Severity, a.Severity), cmp.Compare(ruleOrder(a.Rule), ruleOrder(b.Rule)))
	})
	return merged
}

func ruleOrder(id string) int {
	return slices.IndexFunc(Rules(), func(r Rule) bool { return r.ID == id })
}

// clean makes a stranger's word safe and short enough for a sentence.
func clean(text string) string { return audit.Clean(text, 300) }

// seen is a word of a record, marked as a stranger's. It is clean already.
func seen(text string) string { return "“" + text + "”" }

// way is how canaries got out: in what, and which.
type way struct {
	where    string // in a sentence
	severity Severity
	leaks    []leak
	records  []audit.Record
}

// leaks looks for canaries in all that leaves the box.
func (s *sight) leaks() {
	var ways []way
	add := func(where string, severity Severity, found []leak, records ...audit.Record) {
		if len(found) == 0 {
			return
		}
		i := slices.IndexFunc(ways, func(w way) bool { return w.where == where })
		if i < 0 {
			ways, i = append(ways, way{where: where, severity: severity}), len(ways)
		}
		ways[i].records = append(ways[i].records, records...)
		for _, l := range found {
			if !slices.ContainsFunc(ways[i].leaks, func(o leak) bool { return o.where == l.where }) {
				ways[i].leaks = append(ways[i].leaks, l)
			}
		}
	}
	var pieces strings.Builder // several lookups may carry those of one
	var lookups, ends []audit.Record
	for _, e := range s.run.Events {
		switch d := e.Detail.(type) {
		case audit.DNS:
			add("names that were looked up", Critical, s.canaries.find(d.Name), e)
			first, _, _ := strings.Cut(d.Name, ".")
			pieces.WriteString(first)
			lookups = append(lookups, e)
		case audit.Connection:
			add("what was sent to "+destination(d), Critical, s.canaries.find(d.Name+" "+d.FirstBytes), e)
		case audit.Output, audit.Ended:
			ends = append(ends, e)
		}
	}
	add("names that were looked up", Critical, s.canaries.find(pieces.String()), lookups...)
	add("standard output", High, s.canaries.find(s.stdout), ends...)
	add("standard error", High, s.canaries.find(s.stderr), ends...)
	for _, name := range sortedKeys(s.outputs) {
		add("the output file "+clean(name), High, s.canaries.find(name+" "+s.outputs[name]), ends...)
	}
	for _, w := range ways {
		s.note(SecretExfil, w.severity, s.text.holding(named(w.leaks)...), fmt.Sprintf("In %s: %s.", w.where, secrets(w.leaks)), unique(w.records)...)
	}
}

// secrets lists decoy secrets in a sentence.
func secrets(all []leak) string {
	const most = 6
	var names []string
	for _, l := range all[:min(len(all), most)] {
		names = append(names, fmt.Sprintf("%s (%s)", l.where, l.form))
	}
	text := strings.Join(names, ", ")
	if len(all) > most {
		text += fmt.Sprintf(" and %d more", len(all)-most)
	}
	if len(all) == 1 {
		return "the decoy secret " + text
	}
	return "the decoy secrets " + text
}

// named are what a skill's text would call where canaries are.
func named(all []leak) (words []string) {
	for _, l := range all {
		words = append(words, strings.TrimPrefix(l.where, "~/"))
	}
	return words
}

// unique leaves out what stands twice.
func unique(all []audit.Record) (once []audit.Record) {
	for _, e := range all {
		if !slices.ContainsFunc(once, func(o audit.Record) bool { return o.Seq == e.Seq }) {
			once = append(once, e)
		}
	}
	return once
}

// told tells whether a finding that speaks of this was made already.
func (s *sight) told(id, word string) bool {
	return slices.ContainsFunc(s.noted, func(f Finding) bool { return f.Rule == id && strings.Contains(f.Description, word) })
}

func destination(d audit.Connection) string {
	to := cmp.Or(d.Name, d.Address, "somebody")
	return seen(fmt.Sprintf("%s:%d/%s", to, d.Port, d.Proto))
}
