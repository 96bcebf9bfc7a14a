package audit

import (
	"iter"
	"time"
)

// Run is what a log holds of one run, in short. Counts are of records, or of what a record stands for.
type Run struct {
	ID            string           `json:"id"`
	Time          time.Time        `json:"time"` // of its first record
	Caller        *Caller          `json:"caller"`
	Skill         *Skill           `json:"skill"`
	Host          string           `json:"host"`
	Policy        string           `json:"policy"`
	PolicyDigest  string           `json:"policy_digest"`
	CeilingDigest string           `json:"ceiling_digest"`
	PlanDigest    string           `json:"plan_digest"`
	Verdict       string           `json:"verdict"` // "" of a run whose end is not in the log: it goes on, or skillboxd was killed
	ExitCode      int              `json:"exit_code"`
	DurationMS    float64          `json:"duration_ms"`
	Error         string           `json:"error"`
	Usage         Usage            `json:"usage"`
	Denials       map[string]int64 `json:"denials"` // by kind
	Names         []string         `json:"names"`   // that were looked up or connected to, at most 64
	Outputs       int              `json:"outputs"`
	Dropped       uint64           `json:"dropped"`
	First         uint64           `json:"first"` // number of its first record
	Last          uint64           `json:"last"`  // and of its last
}

// Runs sums the records of each run up, and gives it when it ends; those whose end is not there come last. A refusal without a run is one
// of its own.
func Runs(records iter.Seq2[Record, error]) iter.Seq2[*Run, error] {
	return func(yield func(*Run, error) bool) {
		open := map[string]*Run{}
		var order []string
		for r, err := range records {
			if err != nil {
				yield(nil, err)
				return
			}
			if own(r.Kind) {
				continue
			}
			one := open[r.Run]
			if one == nil {
				one = &Run{ID: r.Run, Time: r.Time, Caller: r.Caller, Skill: r.Skill, Host: r.Host, First: r.Seq, Denials: map[string]int64{}, Names: []string{}}
				open[r.Run] = one
				order = append(order, r.Run)
			}
			one.take(&r)
			if r.Kind == RunEnded || r.Kind == RunRefused && r.Run == "" {
				delete(open, r.Run)
				if !yield(one, nil) {
					return
				}
			}
			if len(order) > 2*len(open)+1024 { // forget those that have ended
				order = stillOpen(order, open)
			}
		}
		for _, id := range stillOpen(order, open) {
			if !yield(open[id], nil) {
				return
			}
		}
	}
}

// stillOpen keeps each id once.
func stillOpen(order []string, open map[string]*Run) (kept []string) {
	seen := map[string]bool{}
	for _, id := range order {
		if open[id] != nil && !seen[id] {
			seen[id] = true
			kept = append(kept, id)
		}
	}
	return kept
}

func (r *Run) take(e *Record) {
	r.Last = e.Seq
	switch d := e.Detail.(type) {
	case Granted:
		r.Policy, r.PolicyDigest, r.CeilingDigest, r.PlanDigest = d.Policy, d.PolicyDigest, d.CeilingDigest, d.PlanDigest
	case Refused:
		r.Verdict, r.Error = "refused", d.Message
	case DNS:
		r.name(d.Name)
	case Connection:
		r.name(orNone(d.Name, d.Address))
	case Output:
		r.Outputs++
	case Ended:
		r.Verdict, r.ExitCode, r.DurationMS, r.Error, r.Usage, r.Dropped = d.Verdict, d.ExitCode, d.DurationMS, d.Error, d.Usage, d.Dropped
	}
	if o := e.Outcome(); o != nil && o.Verdict == "denied" {
		r.Denials[string(e.Kind)] += max(o.Count, 1)
	}
}

func (r *Run) name(name string) {
	for _, known := range r.Names {
		if known == name {
			return
		}
	}
	if name != "" && len(r.Names) < maxItems {
		r.Names = append(r.Names, name)
	}
}

// Stats counts what a log holds.
type Stats struct {
	Records  uint64           `json:"records"`
	Kinds    map[Kind]int64   `json:"kinds"`
	Runs     int64            `json:"runs"`
	Verdicts map[string]int64 `json:"verdicts"` // of runs; "unknown" where the end is not there
	Denials  map[string]int64 `json:"denials"`  // by kind
	Skills   map[string]int64 `json:"skills"`   // runs by name
	Dropped  uint64           `json:"dropped"`
	// Undelivered is how many records sinks did not get, by sink.
	Undelivered map[string]uint64 `json:"undelivered"`
	First       time.Time         `json:"first,omitzero"`
	Last        time.Time         `json:"last,omitzero"`
}

// Count goes through records once.
func Count(records iter.Seq2[Record, error]) (*Stats, error) {
	s := &Stats{Kinds: map[Kind]int64{}, Verdicts: map[string]int64{}, Denials: map[string]int64{}, Skills: map[string]int64{}, Undelivered: map[string]uint64{}}
	counted := func(yield func(Record, error) bool) {
		for r, err := range records {
			if err == nil {
				if s.Records == 0 {
					s.First = r.Time
				}
				s.Records, s.Last = s.Records+1, r.Time
				s.Kinds[r.Kind]++
				if u, ok := r.Detail.(Undelivered); ok {
					s.Undelivered[u.Sink] += u.Records
				}
			}
			if !yield(r, err) {
				return
			}
		}
	}
	for r, err := range Runs(counted) {
		if err != nil {
			return nil, err
		}
		s.Runs++
		s.Verdicts[orNone(r.Verdict, "unknown")]++
		if r.Skill != nil {
			s.Skills[r.Skill.Name]++
		}
		for kind, n := range r.Denials {
			s.Denials[kind] += n
		}
		s.Dropped += r.Dropped
	}
	return s, nil
}
