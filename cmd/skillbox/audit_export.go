package main

import (
	"bufio"
	"encoding/json"
	"fmt"
	"maps"
	"os"
	"slices"
	"text/tabwriter"
	"time"

	"github.com/spf13/cobra"

	"skillbox/audit"
	"skillbox/cmd/cli"
	"skillbox/helper"
)

func auditExportCommand() *cobra.Command {
	var dir logDir
	var format, since string
	c := &cobra.Command{
		Use:   "export",
		Short: "Print the log in the form that another program reads",
		Long: `Print the log, one JSON object to a line: jsonl is the records as they are; skillhub is one row for
each run with the columns of that registry's table audit_log; ocsf is the events of the Open
Cybersecurity Schema Framework.`,
		Example: `  skillbox audit export > audit.jsonl
  skillbox audit export --format ocsf --since 1h | vector --config siem.toml
  skillbox audit export --shape skillhub`,
		Args:              cobra.NoArgs,
		ValidArgsFunction: cobra.NoFileCompletions,
		RunE: func(*cobra.Command, []string) error {
			from, err := readSince(since, time.Now())
			if err != nil {
				return err
			}
			at, err := dir.find()
			if err != nil {
				return err
			}
			return export(at, format, audit.Query{Since: from})
		},
	}
	dir.register(c)
	f := c.Flags()
	f.StringVar(&format, "format", "jsonl", "`form`: jsonl, skillhub or ocsf")
	f.StringVar(&format, "shape", "jsonl", "the same as --format `form`")
	f.StringVar(&since, "since", "", "`time` to begin with: 90m ago, 2026-01-31, or as in RFC 3339")
	c.MarkFlagsMutuallyExclusive("format", "shape")
	completeFlag(c, "format", exportForms)
	completeFlag(c, "shape", exportForms)
	completeFlag(c, "since", nothing)
	return c
}

func exportForms() ([]string, cobra.ShellCompDirective) {
	return []string{"jsonl", "skillhub", "ocsf"}, cobra.ShellCompDirectiveNoFileComp
}

func export(dir, format string, q audit.Query) error {
	w := bufio.NewWriter(os.Stdout)
	encoder := json.NewEncoder(w)
	encoder.SetEscapeHTML(false)
	var err error
	switch format {
	case "jsonl", "ocsf":
		for r, e := range audit.Read(dir, q) {
			switch {
			case e != nil:
				err = e
			case format == "ocsf":
				err = encoder.Encode(r.OCSF())
			default:
				_, err = fmt.Fprintf(w, "%s\n", r.Line)
			}
			if err != nil {
				break
			}
		}
	case "skillhub":
		for r, e := range audit.Runs(audit.Read(dir, q)) {
			if err = e; err == nil {
				err = encoder.Encode(r.SkillHub())
			}
			if err != nil {
				break
			}
		}
	default:
		return &helper.Error{Message: fmt.Sprintf("--format %q: there is no such form", format), Hint: "jsonl, skillhub or ocsf"}
	}
	if err != nil {
		w.Flush() // what was good is shown; the error is the first one's
		return err
	}
	return w.Flush()
}

func auditStatsCommand() *cobra.Command {
	var dir logDir
	var since string
	var asJSON bool
	c := &cobra.Command{
		Use:   "stats",
		Short: "Count runs, verdicts and refusals",
		Long: `Count what the log holds: runs by what they came to and by skill, and what was refused, by kind. A
run whose end is not in the log is unknown: it goes on, or its skillboxd was killed.`,
		Example: `  skillbox audit stats
  skillbox audit stats --since 24h --json | jq .denials`,
		Args:              cobra.NoArgs,
		ValidArgsFunction: cobra.NoFileCompletions,
		RunE: func(*cobra.Command, []string) error {
			from, err := readSince(since, time.Now())
			if err != nil {
				return err
			}
			at, err := dir.find()
			if err != nil {
				return err
			}
			s, err := audit.Count(audit.Read(at, audit.Query{Since: from}))
			if err != nil {
				return err
			}
			if asJSON {
				return printJSON(s)
			}
			return printAuditStats(s)
		},
	}
	dir.register(c)
	c.Flags().StringVar(&since, "since", "", "`time` to begin with: 90m ago, 2026-01-31, or as in RFC 3339")
	c.Flags().BoolVar(&asJSON, "json", false, "print one JSON object")
	completeFlag(c, "since", nothing)
	return c
}

func printAuditStats(s *audit.Stats) error {
	w := tabwriter.NewWriter(os.Stdout, 0, 0, 2, ' ', 0)
	span := "none"
	if s.Records > 0 {
		span = fmt.Sprintf("%d, from %s to %s", s.Records, s.First.Format(time.RFC3339), s.Last.Format(time.RFC3339))
	}
	kinds := map[string]int64{}
	for k, n := range s.Kinds {
		kinds[string(k)] = n
	}
	fmt.Fprintf(w, "RECORDS\t%s\n", span)
	fmt.Fprintf(w, "KINDS\t%s\n", countsLine(kinds))
	fmt.Fprintf(w, "RUNS\t%d: %s\n", s.Runs, countsLine(s.Verdicts))
	fmt.Fprintf(w, "DENIALS\t%s\n", countsLine(s.Denials))
	fmt.Fprintf(w, "SKILLS\t%s\n", cli.Visible(countsLine(s.Skills)))
	if s.Dropped > 0 {
		fmt.Fprintf(w, "DROPPED\t%d details: the disk was full\n", s.Dropped)
	}
	for _, sink := range slices.Sorted(maps.Keys(s.Undelivered)) {
		fmt.Fprintf(w, "UNDELIVERED\t%d records to %s\n", s.Undelivered[sink], cli.Visible(sink))
	}
	return w.Flush()
}
