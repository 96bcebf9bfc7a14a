package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/signal"
	"path/filepath"
	"strings"
	"syscall"
	"time"

	"github.com/spf13/cobra"

	"skillbox/cmd/cli"
	"skillbox/helper"
)

func logsCommand() *cobra.Command {
	var lines int
	var follow bool
	c := &cobra.Command{
		Use:   "logs",
		Short: "Show the log of your service",
		Long: `Show the log of your own service (exec --mode user), one JSON object to a line: each call with its
skill, policy, verdict and duration, and when the service started, left or refused somebody. What
callers pass to skills and what skills say is not in it. The log lies beside the service's socket;
when it is 4 MiB long another is begun, and one old one is kept. The system service, where there
is one, logs to the journal: journalctl -u skillboxd.`,
		Example: `  skillbox logs
  skillbox logs -n 1000 | jq 'select(.verdict == "timed_out")'
  skillbox logs -f`,
		Args:              cobra.NoArgs,
		ValidArgsFunction: cobra.NoFileCompletions,
		RunE: func(c *cobra.Command, _ []string) error {
			if lines < 0 {
				return &helper.Error{Message: "-n must not be negative"}
			}
			ctx, stop := signal.NotifyContext(c.Context(), os.Interrupt, syscall.SIGTERM)
			defer stop()
			return showLog(ctx, helper.ServiceDir(), lines, follow)
		},
	}
	c.Flags().IntVarP(&lines, "lines", "n", 100, "show the last `N` lines")
	completeFlag(c, "lines", nothing)
	c.Flags().BoolVarP(&follow, "follow", "f", false, "go on with what is logged from now on, until Ctrl-C")
	return c
}

// showLog prints the last lines of a log, and what comes after them.
func showLog(ctx context.Context, dir string, lines int, follow bool) error {
	path := filepath.Join(dir, helper.ServiceLog)
	log, err := os.Open(path)
	if errors.Is(err, os.ErrNotExist) {
		hint := "`skillbox exec --mode user` starts a service"
		if systemServes() {
			hint = journal
		}
		return &helper.Error{Message: "there is no log of a service in " + dir, Hint: hint}
	}
	if err != nil {
		return err
	}
	defer func() { log.Close() }()
	if systemServes() {
		fmt.Fprintln(os.Stderr, "skillbox:", journal)
	}
	recent, rest, err := split(log)
	if err != nil {
		return err
	}
	if len(recent) < lines {
		earlier, err := oldLines(filepath.Join(dir, helper.OldServiceLog))
		if err != nil {
			return err
		}
		recent = append(earlier, recent...)
	}
	for _, line := range recent[max(len(recent)-lines, 0):] {
		fmt.Println(cli.Visible(line))
	}
	for follow {
		select {
		case <-ctx.Done():
			return cli.Exit(helper.CodeCanceled)
		case <-time.After(followTime):
		}
		// First: what was written before another was begun is still in this one.
		renewed := isRenewed(log, path)
		var more []string
		if more, rest, err = splitAfter(log, rest); err != nil {
			return err
		}
		for _, line := range more {
			fmt.Println(cli.Visible(line))
		}
		if !renewed {
			continue
		}
		next, err := os.Open(path)
		if errors.Is(err, os.ErrNotExist) {
			continue // it is being renamed, or was removed
		}
		if err != nil {
			return err
		}
		log.Close()
		log, rest = next, ""
	}
	return nil
}

// The system service, where there is one, is root's and logs to the journal.
const (
	systemSocket = "/run/skillboxd/skillboxd.sock"
	journal      = "the system service's log is shown by journalctl -u skillboxd"
)

func systemServes() bool {
	_, err := os.Lstat(systemSocket)
	return err == nil
}

// followTime is how often is looked for more.
const followTime = 200 * time.Millisecond

// split reads to the end: whole lines, and what comes after them.
func split(f io.Reader) (lines []string, rest string, err error) { return splitAfter(f, "") }

func splitAfter(f io.Reader, before string) (lines []string, rest string, err error) {
	text, err := io.ReadAll(f)
	if err != nil {
		return nil, before, err
	}
	lines = strings.Split(before+string(text), "\n")
	return lines[:len(lines)-1], lines[len(lines)-1], nil
}

func oldLines(path string) ([]string, error) {
	f, err := os.Open(path)
	if errors.Is(err, os.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	defer f.Close()
	lines, _, err := split(f)
	return lines, err
}

// isRenewed says that another log has the name now.
func isRenewed(f *os.File, path string) bool {
	ours, err := f.Stat()
	if err != nil {
		return false
	}
	now, err := os.Stat(path)
	return err == nil && !os.SameFile(ours, now)
}
