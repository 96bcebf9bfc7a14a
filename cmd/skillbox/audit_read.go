package main

import (
	"bufio"
	"context"
	"fmt"
	"iter"
	"os"
	"os/signal"
	"slices"
	"strings"
	"syscall"
	"time"

	"github.com/spf13/cobra"

	"skillbox/audit"
	"skillbox/cmd/cli"
	"skillbox/helper"
)

func auditTailCommand() *cobra.Command {
	var dir logDir
	var lines int
	var follow, asJSON bool
	c := &cobra.Command{
		Use:   "tail",
		Short: "Show the newest records",
		Long: `Show the newest records, one to a line: when, which run, of what kind, and what it says. What a
skill said is shown with everything written out that a terminal would obey.`,
		Example: `  skillbox audit tail
  skillbox audit tail -f
  skillbox audit tail -n 1000 --json | jq 'select(.kind == "dns")'`,
		Args:              cobra.NoArgs,
		ValidArgsFunction: cobra.NoFileCompletions,
		RunE: func(c *cobra.Command, _ []string) error {
			if lines < 0 {
				return &helper.Error{Message: "-n must not be negative"}
			}
			at, err := dir.find()
			if err != nil {
				return err
			}
			ctx, stop := signal.NotifyContext(c.Context(), os.Interrupt, syscall.SIGTERM)
			defer stop()
			return tailLog(ctx, at, lines, follow, asJSON)
		},
	}
	dir.register(c)
	c.Flags().IntVarP(&lines, "lines", "n", 20, "show the last `N` records")
	completeFlag(c, "lines", nothing)
	c.Flags().BoolVarP(&follow, "follow", "f", false, "go on with what is recorded from now on, until Ctrl-C")
	c.Flags().BoolVar(&asJSON, "json", false, "print the records themselves, one JSON object to a line")
	return c
}

func tailLog(ctx context.Context, dir string, lines int, follow, asJSON bool) error {
	records, err := audit.Tail(dir, audit.Query{}, max(lines, 1)) // one at least, to know where to go on
	if err != nil {
		return err
	}
	var seq uint64
	if len(records) > 0 {
		seq = records[len(records)-1].Seq
	}
	for _, r := range records[max(len(records)-lines, 0):] {
		if _, err := fmt.Println(recordLine(&r, asJSON)); err != nil {
			return err
		}
	}
	if !follow {
		return nil
	}
	for r, err := range audit.Follow(ctx, dir, audit.Query{}, seq) {
		if err != nil {
			return err
		}
		if _, err := fmt.Println(recordLine(&r, asJSON)); err != nil {
			return err
		}
	}
	return cli.Exit(helper.CodeCanceled)
}

// recordLine is one record on one line.
func recordLine(r *audit.Record, asJSON bool) string {
	if asJSON {
		return string(r.Line)
	}
	run := r.Run
	if run == "" {
		run = "-"
	}
	return cli.Visible(fmt.Sprintf("%s  %-16s  %-14s  %s", r.Time.Format("2006-01-02T15:04:05.000Z"), run, r.Kind, r.Summary()))
}

// printRecords prints records as they come, and tells how many there were.
func printRecords(records iter.Seq2[audit.Record, error], asJSON bool) (n int, err error) {
	w := bufio.NewWriter(os.Stdout)
	for r, err := range records {
		if err == nil {
			_, err = fmt.Fprintln(w, recordLine(&r, asJSON))
		}
		if err != nil {
			w.Flush() // what was good is shown; the error is the first one's
			return n, err
		}
		n++
	}
	return n, w.Flush()
}

func auditShowCommand() *cobra.Command {
	var dir logDir
	var asJSON bool
	c := &cobra.Command{
		Use:   "show RUN",
		Short: "Show everything that is recorded of a run",
		Long: `Show the records of a run in their order: who asked for it, what was granted, what the skill tried
and what became of it, and how it ended. RUN is the id in the run's result.

Exit code: 0, or 1 if the log has no such run.`,
		Example: `  skillbox audit show 0123456789abcdef
  skillbox audit show --json 0123456789abcdef | jq .detail`,
		Args: cobra.ExactArgs(1),
		ValidArgsFunction: completeOne(func() ([]string, cobra.ShellCompDirective) {
			return latestRuns(&dir), cobra.ShellCompDirectiveNoFileComp
		}),
		RunE: func(_ *cobra.Command, args []string) error {
			at, err := dir.find()
			if err != nil {
				return err
			}
			n, err := printRecords(audit.Read(at, audit.Query{Run: args[0]}), asJSON)
			if err == nil && n == 0 {
				cli.Complain(&helper.Error{Message: fmt.Sprintf("the log has no run %q", args[0]), Hint: "skillbox audit search --kind run.granted lists runs"})
				return cli.Exit(1)
			}
			return err
		},
	}
	dir.register(c)
	c.Flags().BoolVar(&asJSON, "json", false, "print the records themselves, one JSON object to a line")
	return c
}

// latestRuns are offered to a shell.
func latestRuns(dir *logDir) (ids []string) {
	at, err := dir.find()
	if err != nil {
		return nil
	}
	records, err := audit.Tail(at, audit.Query{Kinds: []audit.Kind{audit.RunGranted}}, 20)
	if err != nil {
		return nil
	}
	for _, r := range slices.Backward(records) {
		ids = append(ids, r.Run)
	}
	return ids
}

func auditSearchCommand() *cobra.Command {
	var dir logDir
	var q audit.Query
	var kinds []string
	var since string
	var asJSON bool
	c := &cobra.Command{
		Use:   "search",
		Short: "Show the records that fit",
		Long: `Show the records for which all that is asked for holds. A verdict is that of a run's end (exited,
timed_out …), refused for a run that was, or what became of an attempt: allowed, denied, failed.`,
		Example: `  skillbox audit search --verdict denied --since 24h
  skillbox audit search --kind dns --kind connection --skill word-count
  skillbox audit search --text evil.example --json`,
		Args:              cobra.NoArgs,
		ValidArgsFunction: cobra.NoFileCompletions,
		RunE: func(*cobra.Command, []string) error {
			var err error
			if q.Kinds, err = readKinds(kinds); err != nil {
				return err
			}
			if q.Since, err = readSince(since, time.Now()); err != nil {
				return err
			}
			at, err := dir.find()
			if err != nil {
				return err
			}
			_, err = printRecords(audit.Read(at, q), asJSON)
			return err
		},
	}
	dir.register(c)
	f := c.Flags()
	f.StringArrayVar(&kinds, "kind", nil, "`kind` of record, such as dns or run.ended; repeatable")
	f.StringVar(&q.Skill, "skill", "", "`name` of a skill, or the beginning of a bundle's digest")
	f.StringVar(&q.Verdict, "verdict", "", "`verdict` of a run, or what became of an attempt")
	f.StringVar(&since, "since", "", "`time` to begin with: 90m ago, 2026-01-31, or as in RFC 3339")
	f.StringVar(&q.Text, "text", "", "`text` anywhere in the record")
	f.BoolVar(&asJSON, "json", false, "print the records themselves, one JSON object to a line")
	completeFlag(c, "kind", kindNames)
	completeFlag(c, "verdict", verdictNames)
	for _, name := range []string{"skill", "since", "text"} {
		completeFlag(c, name, nothing)
	}
	return c
}

func kindNames() (names []string, _ cobra.ShellCompDirective) {
	for _, k := range audit.Kinds() {
		names = append(names, string(k))
	}
	return names, cobra.ShellCompDirectiveNoFileComp
}

func verdictNames() ([]string, cobra.ShellCompDirective) {
	return []string{
		"allowed", "denied", "failed", helper.Refused, helper.Exited, helper.Signaled, helper.TimedOut, helper.OutOfMemory, helper.PidsLimit, helper.OutputLimit,
		helper.SyscallKilled, helper.Canceled,
	}, cobra.ShellCompDirectiveNoFileComp
}

func readKinds(names []string) (kinds []audit.Kind, err error) {
	for _, name := range names {
		if !slices.Contains(audit.Kinds(), audit.Kind(name)) {
			known, _ := kindNames()
			return nil, &helper.Error{Message: fmt.Sprintf("--kind %q: there is no such kind", name), Hint: "kinds are " + strings.Join(known, ", ")}
		}
		kinds = append(kinds, audit.Kind(name))
	}
	return kinds, nil
}

// readSince reads a time, or how long ago it was.
func readSince(text string, now time.Time) (time.Time, error) {
	if text == "" {
		return time.Time{}, nil
	}
	if ago, err := time.ParseDuration(strings.TrimSpace(strings.TrimSuffix(text, "ago"))); err == nil && ago >= 0 {
		return now.Add(-ago), nil
	}
	if at, err := time.Parse(time.RFC3339, text); err == nil {
		return at, nil
	}
	if day, err := time.ParseInLocation(time.DateOnly, text, time.Local); err == nil {
		return day, nil
	}
	return time.Time{}, &helper.Error{Message: fmt.Sprintf("--since %q is no time", text), Hint: "such as 90m, 2026-01-31 or 2026-01-31T12:00:00Z"}
}
