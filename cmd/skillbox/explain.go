package main

import (
	"fmt"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"skillbox/audit"
	"skillbox/cmd/cli"
	"skillbox/helper"
)

func explainCommand() *cobra.Command {
	var dir logDir
	var asJSON bool
	c := &cobra.Command{
		Use:   "explain RUN",
		Short: "Say what a run was refused, by what, and what would allow it",
		Long: `Say how a run ended and what it was refused: which layer did, by which line of which policy or for
want of which, and the smallest change that would allow it. RUN is the id in the run's result.

Exit code: 0, or 1 if the log has no such run.`,
		Example: `  skillbox explain 0123456789abcdef
  skillbox explain --json 0123456789abcdef | jq -r '.refused[].remedy'`,
		Args: cobra.ExactArgs(1),
		ValidArgsFunction: completeOne(func() ([]string, cobra.ShellCompDirective) {
			return latestRuns(&dir), cobra.ShellCompDirectiveNoFileComp
		}),
		RunE: func(_ *cobra.Command, args []string) error {
			at, err := dir.find()
			if err != nil {
				return err
			}
			e, err := explain(at, args[0])
			if err != nil {
				return err
			}
			if e == nil {
				cli.Complain(&helper.Error{Message: fmt.Sprintf("the log has no run %q", args[0]), Hint: "skillbox audit search --kind run.granted lists runs"})
				return cli.Exit(1)
			}
			if asJSON {
				return printJSON(e)
			}
			fmt.Print(e.text())
			return nil
		},
	}
	dir.register(c)
	c.Flags().BoolVar(&asJSON, "json", false, "print one JSON object")
	return c
}

// explanation is a run with what it was refused.
type explanation struct {
	Run     *audit.Run       `json:"run"`
	Refused []explainedEvent `json:"refused"`
}

// explainedEvent is an attempt that came to nothing.
type explainedEvent struct {
	Kind    audit.Kind `json:"kind"`
	What    string     `json:"what"`
	Verdict string     `json:"verdict"` // denied, or failed where nobody forbade it
	Error   string     `json:"error"`   // what the skill was told, "" where that is not known
	Layer   string     `json:"layer"`
	Rule    string     `json:"rule"`
	Remedy  string     `json:"remedy"`
	Count   int64      `json:"count"`
}

// explain returns nil for a run that the log does not have.
func explain(dir, run string) (*explanation, error) {
	e := &explanation{Refused: []explainedEvent{}}
	var records []audit.Record
	for r, err := range audit.Read(dir, audit.Query{Run: run}) {
		if err != nil {
			return nil, err
		}
		records = append(records, r)
		if o := r.Outcome(); o != nil && o.Verdict != audit.Allowed {
			e.Refused = append(e.Refused, explainedEvent{
				Kind: r.Kind, What: r.What(), Verdict: o.Verdict, Error: o.Error, Layer: o.Layer, Rule: o.Rule, Remedy: o.Remedy, Count: max(o.Count, 1),
			})
		}
	}
	for one, err := range audit.Runs(func(yield func(audit.Record, error) bool) {
		for _, r := range records {
			if !yield(r, nil) {
				return
			}
		}
	}) {
		if err != nil {
			return nil, err
		}
		e.Run = one
	}
	if e.Run == nil {
		return nil, nil
	}
	return e, nil
}

// text is for a person. What a skill or a caller chose has been made visible when it was recorded.
func (e *explanation) text() string {
	var b strings.Builder
	line := func(name, value string) {
		if value != "" {
			fmt.Fprintf(&b, "%-9s %s\n", name, value)
		}
	}
	r := e.Run
	line("run", r.ID)
	line("time", r.Time.Format(time.RFC3339))
	if r.Caller != nil {
		line("caller", fmt.Sprintf("user %d, process %d (%s)", r.Caller.UID, r.Caller.PID, r.Caller.Process))
	}
	if r.Skill != nil {
		line("skill", strings.TrimSpace(r.Skill.Name+" "+r.Skill.Digest))
	}
	line("policy", strings.TrimSpace(r.Policy+" "+r.PolicyDigest))
	line("ceiling", r.CeilingDigest)
	line("plan", r.PlanDigest)
	line("ended", e.ended())
	if len(e.Refused) == 0 {
		line("refused", "nothing")
	}
	for i, f := range e.Refused {
		fmt.Fprintf(&b, "\n%d. %s\n", i+1, f.What)
		indented := func(name, value string) {
			if value != "" {
				fmt.Fprintf(&b, "   %-9s %s\n", name, strings.ReplaceAll(value, "\n", "\n             "))
			}
		}
		verdict := f.Verdict
		if f.Layer == "sinkhole" {
			verdict += ", had it not ended in a sinkhole"
		}
		if f.Error != "" {
			verdict += ": " + f.Error
		}
		if f.Count > 1 {
			verdict += fmt.Sprintf(", %d times", f.Count)
		}
		indented("verdict", verdict)
		indented("layer", f.Layer)
		indented("rule", f.Rule)
		indented("remedy", f.Remedy)
	}
	return b.String()
}

func (e *explanation) ended() string {
	switch r := e.Run; {
	case r.Verdict == "":
		return "not yet, or skillboxd was killed"
	case r.Verdict == helper.Refused:
		return "refused: nothing ran"
	case r.Error != "":
		return fmt.Sprintf("%s, exit code %d, after %.1f ms: %s", r.Verdict, r.ExitCode, r.DurationMS, r.Error)
	default:
		return fmt.Sprintf("%s, exit code %d, after %.1f ms", r.Verdict, r.ExitCode, r.DurationMS)
	}
}
