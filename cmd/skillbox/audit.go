package main

import (
	"fmt"
	"os"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"skillbox/audit"
	"skillbox/client"
	"skillbox/cmd/cli"
	"skillbox/helper"
)

func auditCommand() *cobra.Command {
	c := &cobra.Command{
		Use:   "audit",
		Short: "Read, verify and export the log of what skills did",
		Long: `The audit log says of each run who asked for it, what was granted, what the skill tried, what was
refused by which line of which policy, and how it ended. Each record holds the hash of the one
before, and a signature comes within a second. Root's log lies in /var/log/skillbox/audit, another
user's in $XDG_STATE_HOME/skillbox/audit, by default ~/.local/state/skillbox/audit.`,
		Example: `  skillbox audit verify
  skillbox audit tail -f
  skillbox audit search --verdict denied --since 24h`,
		Args: cobra.NoArgs,
		RunE: func(c *cobra.Command, _ []string) error { return c.Help() },
	}
	c.AddCommand(auditVerifyCommand(), auditHeadCommand(), auditTailCommand(), auditShowCommand(), auditSearchCommand(), auditExportCommand(), auditStatsCommand(), auditReportCommand())
	return c
}

// logDir is the flag that each of these commands has.
type logDir struct{ path string }

func (d *logDir) register(c *cobra.Command) {
	c.Flags().StringVar(&d.path, "dir", "", "`directory` of the log (default: this user's)")
	completeFlag(c, "dir", directories)
}

// find returns the directory, which must be there.
func (d *logDir) find() (string, error) {
	dir := d.path
	if dir == "" {
		if dir = client.AuditDir(); dir == "" {
			return "", &helper.Error{Message: "neither XDG_STATE_HOME nor HOME says where this user's audit log lies", Hint: "--dir DIRECTORY"}
		}
	}
	if _, err := os.Lstat(dir); err != nil {
		return "", &helper.Error{Message: "there is no audit log: " + err.Error(), Hint: "nothing was recorded yet, or it is elsewhere: --dir DIRECTORY"}
	}
	return dir, nil
}

func auditVerifyCommand() *cobra.Command {
	var dir logDir
	var head, key string
	var asJSON bool
	c := &cobra.Command{
		Use:   "verify",
		Short: "Say whether the log is whole, or which record was touched",
		Long: `Go through the whole log and say whether each record is as it was written and none is missing,
or name the first one that was changed, dropped, inserted, moved or cut off.

Whoever can write a log can also write another one in its place, key and all. That shows only
against something that was kept elsewhere: a head (skillbox audit head) or the file key.pub.

Exit code: 0 if the log is whole, 1 if it is not, 125 if it could not be read.`,
		Example: `  skillbox audit verify
  skillbox audit verify --head /mnt/elsewhere/head
  skillbox audit verify --json | jq .broken`,
		Args:              cobra.NoArgs,
		ValidArgsFunction: cobra.NoFileCompletions,
		RunE: func(*cobra.Command, []string) error {
			var o audit.VerifyOptions
			var err error
			if o.Head, err = exported(head); err != nil {
				return err
			}
			if o.Key, err = exported(key); err != nil {
				return err
			}
			at, err := dir.find()
			if err != nil {
				return err
			}
			return verifyLog(at, o, asJSON)
		},
	}
	dir.register(c)
	c.Flags().StringVar(&head, "head", "", "`file` with a head that was exported before")
	c.Flags().StringVar(&key, "key", "", "`file` with the log's key.pub that was exported before")
	c.Flags().BoolVar(&asJSON, "json", false, "print one JSON object")
	return c
}

// exported reads a file that a flag names; an empty one would prove nothing.
func exported(path string) ([]byte, error) {
	if path == "" {
		return nil, nil
	}
	text, err := os.ReadFile(path)
	if err == nil && len(text) == 0 {
		err = &helper.Error{Message: path + ": the file is empty"}
	}
	return text, err
}

func verifyLog(dir string, o audit.VerifyOptions, asJSON bool) error {
	r, err := audit.Verify(dir, o)
	if err != nil {
		return err
	}
	switch {
	case asJSON:
		err = printJSON(r)
	case r.Whole:
		fmt.Println(wholeLine(&r))
	default:
		fmt.Println(cli.Visible(r.Broken.Error()))
		if r.Records > 0 {
			fmt.Printf("records %d to %d are good, and signed up to %d\n", r.First, r.Last, r.Signed)
		}
	}
	if err == nil && !r.Whole {
		return cli.Exit(1)
	}
	return err
}

// wholeLine says how far the proof reaches.
func wholeLine(r *audit.Report) string {
	if r.Records == 0 {
		return "whole: no record yet"
	}
	lines := []string{fmt.Sprintf("whole: %s in %s, signed up to record %d (%s)",
		counted(int(r.Records), "record"), counted(r.Segments, "segment"), r.Signed, r.SignedTime.Format(time.RFC3339))}
	if r.First > 1 {
		lines = append(lines, fmt.Sprintf("it begins with record %d of %s: %s before it became too old or too many, and were removed",
			r.First, r.FirstTime.Format(time.RFC3339), counted(int(r.Removed), "segment")))
	}
	if r.Unsigned > 0 {
		lines = append(lines, counted(int(r.Unsigned), "record")+" after that are not signed yet")
	}
	if r.TornBytes > 0 {
		lines = append(lines, counted(r.TornBytes, "byte")+" at its end are a line that was never finished")
	}
	if r.Torn > 0 {
		lines = append(lines, counted(r.Torn, "unfinished line")+" of processes that were killed were removed; log.torn says where")
	}
	if r.Dropped > 0 {
		lines = append(lines, counted(int(r.Dropped), "detail")+" were not recorded: the disk was full")
	}
	return strings.Join(lines, "\n")
}

func auditHeadCommand() *cobra.Command {
	var dir logDir
	c := &cobra.Command{
		Use:   "head",
		Short: "Print the newest signature, to be kept elsewhere",
		Long: `Print the log's newest checkpoint: one line that pins every record up to it. Kept where the log's
owner cannot write, it later shows with skillbox audit verify --head whether anything was changed,
even by somebody who has the key.`,
		Example: `  skillbox audit head > /mnt/elsewhere/head
  skillbox audit head | ssh logs 'cat >> heads'`,
		Args:              cobra.NoArgs,
		ValidArgsFunction: cobra.NoFileCompletions,
		RunE: func(*cobra.Command, []string) error {
			at, err := dir.find()
			if err != nil {
				return err
			}
			line, err := audit.Head(at)
			if err != nil {
				return err
			}
			_, err = os.Stdout.Write(line)
			return err
		},
	}
	dir.register(c)
	return c
}
