package main

import (
	"context"
	"fmt"
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
	var asJSON bool
	var mode string
	c := &cobra.Command{
		Use:   "ps",
		Short: "List your service's calls and sessions, and the boxes that it keeps ready",
		Long: `List what your service runs and keeps ready, its sessions, and what its calls came to: your part of
the system service where there is one, else your own. The latter is not started if it does not run.`,
		Example: `  skillbox ps
  skillbox ps --json`,
		Args:              cobra.NoArgs,
		ValidArgsFunction: cobra.NoFileCompletions,
		RunE: func(c *cobra.Command, _ []string) error {
			s, err := client.Service{Mode: mode}.Status(c.Context())
			if err != nil {
				return err
			}
			if asJSON {
				return printJSON(s)
			}
			return printStatus(s)
		},
	}
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
