package main

import (
	"cmp"
	"context"
	"fmt"
	"io"
	"os"
	"slices"
	"strings"
	"text/tabwriter"
	"time"

	"github.com/spf13/cobra"

	"skillbox/client"
	"skillbox/helper"
)

func psCommand() *cobra.Command {
	var asJSON, all bool
	var mode string
	c := &cobra.Command{
		Use:   "ps",
		Short: "List your service's calls and sessions, and the boxes that it keeps ready",
		Long: `List what your service runs and keeps ready, its sessions, and what its calls came to: your part of
the system service where there is one, else your own. The latter is not started if it does not run.

With --all each box has a line: those that run a call, those of sessions, and those that are ready,
prepared or preloaded, with their age and what they take of memory. That is what the box's control
group counts, or without one what its processes have that is no file's on disk, and its files in
memory; - is that it cannot be told. Boxes of other users are not listed, to root neither.`,
		Example: `  skillbox ps
  skillbox ps --all
  skillbox ps --all --json | jq '.boxes[] | select(.kind == "preloaded")'`,
		Args:              cobra.NoArgs,
		ValidArgsFunction: cobra.NoFileCompletions,
		RunE: func(c *cobra.Command, _ []string) error {
			ask := client.Service{Mode: mode}.Status
			if all {
				ask = client.Service{Mode: mode}.Boxes
			}
			s, err := ask(c.Context())
			switch {
			case err != nil:
				return err
			case asJSON:
				return printJSON(s)
			case all:
				return printBoxes(os.Stdout, s.Boxes)
			}
			return printStatus(s)
		},
	}
	c.Flags().BoolVar(&all, "all", false, "list each box, also those that are ready")
	c.Flags().BoolVar(&asJSON, "json", false, "print one JSON object")
	whose(c, &mode)
	return c
}

func printStatus(s *helper.Status) error {
	w := tabwriter.NewWriter(os.Stdout, 0, 0, 2, ' ', 0)
	fmt.Fprintln(w, "CALL\tSKILL\tPOLICY\tFOR\tCOMMAND")
	for _, r := range s.Running {
		fmt.Fprintf(w, "%s\t%s\t%s\t%s\t%s\n", r.ID, printable(r.Skill), printable(r.Policy), time.Since(r.Since).Round(time.Millisecond), printable(strings.Join(r.Command, " ")))
	}
	fmt.Fprintln(w, "\nSESSION\tSKILL\tPOLICY\tSTATE\tCALLS\tENDS IN")
	for _, one := range s.Sessions {
		fmt.Fprintf(w, "%s\t%s\t%s\t%s\t%d\t%s\n", one.ID, printable(one.Skill), printable(one.Policy), one.State, one.Calls, time.Until(one.Ends).Round(time.Second))
	}
	fmt.Fprintln(w, "\nREADY\tPRELOADED\tWANTED\tBUNDLE")
	for _, r := range s.Ready {
		fmt.Fprintf(w, "%d\t%d\t%d\t%s\n", r.Boxes, r.Preloaded, r.Wanted, printable(r.Bundle))
	}
	return w.Flush()
}

func printBoxes(out io.Writer, boxes []helper.BoxStatus) error {
	w := tabwriter.NewWriter(out, 0, 0, 2, ' ', 0)
	fmt.Fprintln(w, "BOX\tKIND\tSKILL\tPOLICY\tAGE\tMEMORY\tWHAT")
	for _, b := range boxes {
		what := "for calls of " + b.Bundle
		switch b.Kind {
		case helper.CallBox:
			what = strings.Join(b.Command, " ")
		case helper.SessionBox:
			what = b.State
		}
		memory := "-"
		if b.MemoryBytes != nil {
			memory = fmt.Sprintf("%.1f MiB", float64(*b.MemoryBytes)/(1<<20))
		}
		fmt.Fprintf(w, "%s\t%s\t%s\t%s\t%s\t%s\t%s\n", b.ID, b.Kind, printable(cmp.Or(b.Skill, "-")), printable(cmp.Or(b.Policy, "-")), time.Since(b.Since).Round(time.Millisecond), memory, printable(what))
	}
	return w.Flush()
}

// printable shows what strangers named without what a terminal would obey.
func printable(text string) string {
	quoted := fmt.Sprintf("%q", text)
	if quoted == `"`+text+`"` {
		return text
	}
	return quoted
}

// whose adds the flag that says which service is asked.
func whose(c *cobra.Command, mode *string) {
	c.Flags().StringVar(mode, "mode", "auto", "`which` service is asked: system, user, or auto: the first that runs")
	completeFlag(c, "mode", serviceModes)
}

// completionTime is how long a shell waits for the service.
const completionTime = time.Second

// statusForShell is empty where the service does not answer: a shell shows no errors.
func statusForShell() *helper.Status {
	ctx, cancel := context.WithTimeout(context.Background(), completionTime)
	defer cancel()
	s, err := client.Status(ctx)
	if err != nil {
		return &helper.Status{}
	}
	return s
}

// completeCalls offers the calls that run, each with its skill.
func completeCalls(c *cobra.Command, chosen []string, _ string) ([]string, cobra.ShellCompDirective) {
	s := statusForShell()
	var ids []string
	for _, r := range s.Running {
		if !slices.Contains(chosen, r.ID) {
			ids = append(ids, cobra.CompletionWithDesc(r.ID, printable(r.Skill)))
		}
	}
	for _, one := range s.Sessions {
		if !slices.Contains(chosen, one.ID) {
			ids = append(ids, cobra.CompletionWithDesc(one.ID, "session"))
		}
	}
	return ids, cobra.ShellCompDirectiveNoFileComp
}

func killCommand() *cobra.Command {
	var mode string
	c := &cobra.Command{
		Use:   "kill ID…",
		Short: "End calls and sessions of your service, at once",
		Long: `End calls and sessions by the ids that ps lists: every process of theirs is killed, and whoever made
a call gets the verdict canceled. If one of them does not run, none is ended. To end a call of a
session is to end the session.`,
		Example:           `  skillbox kill 5nq0c2v7w3k8m1xa`,
		Args:              cobra.MinimumNArgs(1),
		ValidArgsFunction: completeCalls,
		RunE: func(c *cobra.Command, ids []string) error {
			return client.Service{Mode: mode}.Kill(c.Context(), ids...)
		},
	}
	whose(c, &mode)
	return c
}
