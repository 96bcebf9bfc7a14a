package main

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"

	"github.com/spf13/cobra"

	"skillbox/audit"
	"skillbox/client"
	"skillbox/cmd/cli"
	"skillbox/helper"
	"skillbox/scan/page"
)

func auditReportCommand() *cobra.Command {
	var dir, file string
	c := &cobra.Command{
		Use:   "report RUN --html FILE",
		Short: "Write a page that shows what a run did",
		Long: `Write one HTML page that shows what the log holds of a run: what it was refused and what would allow
that, its processes, and in the order of time what they opened, looked up and connected to. The page
loads nothing and can be opened from a disk, sent and kept. RUN is the id in the run's result.

Exit code: 0, or 1 if the log has no such run.`,
		Example: `  skillbox audit report 0123456789abcdef --html run.html`,
		Args:    cobra.ExactArgs(1),
		ValidArgsFunction: func(_ *cobra.Command, args []string, _ string) ([]string, cobra.ShellCompDirective) {
			if len(args) > 0 {
				return nil, cobra.ShellCompDirectiveNoFileComp
			}
			return latestRuns(dir), cobra.ShellCompDirectiveNoFileComp
		},
		RunE: func(_ *cobra.Command, args []string) error {
			if file == "" {
				return &helper.Error{Message: "nothing says where the page is to be written", Hint: "--html FILE"}
			}
			at, err := findLog(dir)
			if err != nil {
				return err
			}
			err = writePage(file, func(w io.Writer) error { return page.WriteRun(w, audit.Read(at, audit.Query{Run: args[0]})) })
			if errors.Is(err, page.ErrNoRecords) {
				cli.Complain(&helper.Error{Message: fmt.Sprintf("the log has no run %q", args[0]), Hint: "skillbox audit search --kind run.granted lists runs"})
				return cli.Exit(1)
			}
			return err
		},
	}
	c.Flags().StringVar(&dir, "dir", "", "`directory` of the log (default: this user's)")
	c.Flags().StringVar(&file, "html", "", "`file` for the page; one that is there is replaced")
	complete(c, "dir", nil, cobra.ShellCompDirectiveFilterDirs)
	complete(c, "html", []string{"html"}, cobra.ShellCompDirectiveFilterFileExt)
	return c
}

// findLog returns the directory of a log, which must be there.
func findLog(dir string) (string, error) {
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

// latestRuns are ids that a shell is offered, the newest first.
func latestRuns(dir string) (ids []string) {
	at, err := findLog(dir)
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

// writePage writes a file whole or not at all: what was there is replaced when the page is complete. What is no regular file, such as
// /dev/stdout, is written to.
func writePage(file string, write func(io.Writer) error) (err error) {
	if info, statErr := os.Stat(file); statErr == nil && !info.Mode().IsRegular() {
		f, err := os.OpenFile(file, os.O_WRONLY, 0)
		if err != nil {
			return err
		}
		return errors.Join(buffered(f, write), f.Close())
	}
	f, err := os.CreateTemp(filepath.Dir(file), ".skillbox-*.html") // mode 0600: it tells what somebody's skill was given
	if err != nil {
		return err
	}
	err = errors.Join(buffered(f, write), f.Close())
	if err == nil {
		err = os.Rename(f.Name(), file)
	}
	if err != nil {
		return errors.Join(err, os.Remove(f.Name()))
	}
	return nil
}

func buffered(f io.Writer, write func(io.Writer) error) error {
	w := bufio.NewWriterSize(f, 1<<16)
	if err := write(w); err != nil {
		return err
	}
	return w.Flush()
}
