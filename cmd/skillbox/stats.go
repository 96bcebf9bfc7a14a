package main

import (
	"cmp"
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

func statsCommand() *cobra.Command {
	var asJSON, prometheus bool
	c := &cobra.Command{
		Use:   "stats",
		Short: "Show what your service has done, and what it takes",
		Long: `Show figures of your own service (exec --mode user) since it started: calls by what they came to,
how long they and their phases took, how many found a box ready, what was refused to skills, and
the memory and descriptors of the service itself. Medians and 99th percentiles come from
histograms and are off by at most five percent. It is not started if it does not run.

With --prometheus the same and more in Prometheus' text format. SKILLBOX_METRICS in the
environment of whoever starts the service has them served too: unix for a socket beside the
service's, 127.0.0.1:9464 for an address.`,
		Example: `  skillbox stats
  skillbox stats --json | jq .durations
  skillbox stats --prometheus`,
		Args:              cobra.NoArgs,
		ValidArgsFunction: cobra.NoFileCompletions,
		RunE: func(c *cobra.Command, _ []string) error {
			if prometheus {
				text, err := client.Metrics(c.Context())
				if err == nil {
					_, err = os.Stdout.WriteString(text)
				}
				return err
			}
			s, err := client.Stats(c.Context())
			if err != nil {
				return err
			}
			if asJSON {
				return printJSON(s)
			}
			return printStats(s)
		},
	}
	c.Flags().BoolVar(&asJSON, "json", false, "print one JSON object")
	c.Flags().BoolVar(&prometheus, "prometheus", false, "print the metrics as Prometheus reads them")
	c.MarkFlagsMutuallyExclusive("json", "prometheus")
	return c
}

func printStats(s *helper.Stats) error {
	w := tabwriter.NewWriter(os.Stdout, 0, 0, 2, ' ', 0)
	fmt.Fprintf(w, "UP\t%s, version %s\n", time.Since(s.Since).Round(time.Second), s.Version)
	fmt.Fprintf(w, "CALLS\t%s\n", callsLine(s))
	fmt.Fprintf(w, "BOXES\t%d running, %d ready, %d coming\n", s.Boxes.Running, s.Boxes.Ready, s.Boxes.Coming)
	fmt.Fprintf(w, "FOUND READY\t%s\n", foundReady(s.Starts))
	for _, row := range []struct {
		name   string
		counts map[string]int64
	}{{"DISCARDED", s.Discarded}, {"DENIALS", s.Denials}, {"REFUSED", s.Refused}, {"SWEPT", s.Swept}} {
		fmt.Fprintf(w, "%s\t%s\n", row.name, countsLine(row.counts))
	}
	p := &s.Process
	fmt.Fprintf(w, "SERVICE\t%.1f MiB, %d of %d descriptors, %d threads, %.1f s of CPU\n", float64(p.ResidentBytes)/(1<<20), p.Descriptors, p.MaxDescriptors, p.Threads, p.CPUSeconds)
	metrics := s.Metrics
	if metrics == "" {
		metrics = "not served; skillbox stats --prometheus prints them"
	}
	fmt.Fprintf(w, "METRICS\t%s\n", metrics)
	if err := w.Flush(); err != nil {
		return err
	}
	fmt.Fprintln(w, "\nPHASE\tCALLS\tMEDIAN\tP99\tMAX")
	for _, t := range s.Durations {
		printTiming(w, t.Phase, t)
	}
	if s.PreparedAhead.Count > 0 {
		printTiming(w, "ahead of calls", s.PreparedAhead)
	}
	return w.Flush()
}

func printTiming(w *tabwriter.Writer, name string, t helper.Timing) {
	fmt.Fprintf(w, "%s\t%d\t%.2f ms\t%.2f ms\t%.2f ms\n", name, t.Count, t.MedianMS, t.P99MS, t.MaxMS)
}

// callsLine is "5: 3 succeeded, 1 exited otherwise, 1 timed_out".
func callsLine(s *helper.Stats) string {
	counts := map[string]int64{"succeeded": s.Succeeded}
	var all int64
	for verdict, n := range s.Calls {
		all += n
		if verdict == helper.Exited {
			verdict, n = "exited otherwise", n-s.Succeeded
		}
		counts[verdict] = n
	}
	if all == 0 {
		return "none"
	}
	return fmt.Sprintf("%d: %s", all, countsLine(counts))
}

// countsLine lists what is not zero, the most frequent first.
func countsLine(counts map[string]int64) string {
	var words []string
	for _, name := range byCount(counts) {
		words = append(words, fmt.Sprintf("%d %s", counts[name], name))
	}
	if len(words) == 0 {
		return "none"
	}
	return strings.Join(words, ", ")
}

// foundReady is "97 % (119 of 123): 100 preloaded, 19 prepared, 4 cold". Calls of sessions, which have their boxes, are not in the percentage.
func foundReady(starts map[string]int64) string {
	ready := starts[helper.Prepared] + starts[helper.Preloaded]
	all := ready + starts[helper.Cold]
	if all == 0 {
		return "no call needed a box"
	}
	return fmt.Sprintf("%.0f %% (%d of %d): %s", 100*float64(ready)/float64(all), ready, all, countsLine(starts))
}

func byCount(counts map[string]int64) (names []string) {
	for name, n := range counts {
		if n > 0 {
			names = append(names, name)
		}
	}
	slices.SortFunc(names, func(a, b string) int { return cmp.Or(cmp.Compare(counts[b], counts[a]), cmp.Compare(a, b)) })
	return names
}
