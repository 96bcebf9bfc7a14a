package main

import (
	"errors"
	"fmt"
	"io"
	"os"
	"os/signal"
	"regexp"
	"runtime"
	"syscall"
	"time"

	"github.com/spf13/cobra"
	"golang.org/x/sys/unix"

	"skillbox/cmd/cli"
	"skillbox/helper"
	"skillbox/suite"
)

// Exit codes of a test.
const (
	codeUnexpected = 1
	codeUntested   = 2 // nothing is known about some of the skills
)

// tested are the flags of test.
type tested struct {
	options           suite.Options
	only, json, junit string
}

func testCommand() *cobra.Command {
	var t tested
	c := &cobra.Command{
		Use:   "test DIR",
		Short: "Run every skill of a directory, and say which do as expected",
		Long: `Find the skills in DIR and below it (SKILL.md, skillbox.yaml, manifest.yaml with skill.py,
.skill-engine.toml), and run each in a box of its own with the cases that skillbox.test.yaml names,
beside the skill or in a directory above it. A skill without cases is started once for each thing that
it offers, its scripts with --help, and has to end by itself.

What lies in DIR grants nothing, test files and manifests included: their policies narrow --policy, or
the defaults, as those do that a bundle declares. --trust-cases names a test file of your own.

Exit code: 0 if everything was as expected, 1 if something was not, 2 if it could not be found out.`,
		Example: `  skillbox test examples
  skillbox test --run pdf --junit report.xml skills/`,
		Args: cobra.ExactArgs(1),
		ValidArgsFunction: func(_ *cobra.Command, args []string, _ string) ([]string, cobra.ShellCompDirective) {
			if len(args) > 0 {
				return nil, cobra.ShellCompDirectiveNoFileComp
			}
			return nil, cobra.ShellCompDirectiveFilterDirs
		},
		RunE: func(c *cobra.Command, args []string) error { return t.run(c, args[0]) },
	}
	f := c.Flags()
	f.IntVarP(&t.options.Jobs, "jobs", "j", runtime.NumCPU(), "`number` of skills that run at a time")
	f.StringVar(&t.only, "run", "", "try only cases whose SKILL/CASE matches this `regexp`")
	f.StringVarP(&t.options.Policy, "policy", "p", "", "`file` with the policy of every case that names none")
	f.BoolVar(&t.options.Trust, "trust-bundle-policy", false, "let all policies of test files in DIR, and what manifests of skill-engine ask for, count as yours")
	f.StringVar(&t.options.Cases, "trust-cases", "", "`file` in DIR: a test file of your own, whose policies count as yours")
	f.DurationVarP(&t.options.Timeout, "timeout", "t", time.Minute, "longest `time` for a case, all in all")
	f.StringVar(&t.options.Mode, "mode", "oneshot", "`who` runs them: oneshot, user, system or auto, as with exec")
	f.StringVar(&t.json, "json", "", "write the report as JSON to this `file`, - for standard output instead of the table")
	f.StringVar(&t.junit, "junit", "", "write the report as JUnit XML to this `file`")
	complete(c, "policy", []string{"yaml", "yml"}, cobra.ShellCompDirectiveFilterFileExt)
	complete(c, "trust-cases", []string{"yaml"}, cobra.ShellCompDirectiveFilterFileExt)
	complete(c, "json", []string{"json"}, cobra.ShellCompDirectiveFilterFileExt)
	complete(c, "junit", []string{"xml"}, cobra.ShellCompDirectiveFilterFileExt)
	complete(c, "mode", []string{"oneshot", "user", "system", "auto"}, cobra.ShellCompDirectiveNoFileComp)
	for _, name := range []string{"jobs", "run", "timeout"} {
		complete(c, name, nil, cobra.ShellCompDirectiveNoFileComp)
	}
	return c
}

func (t *tested) run(c *cobra.Command, dir string) error {
	if err := t.prepare(dir); err != nil {
		return err
	}
	ctx, stop := signal.NotifyContext(c.Context(), os.Interrupt, syscall.SIGTERM, syscall.SIGHUP)
	defer stop()
	report, err := suite.Run(ctx, t.options)
	if report == nil {
		return err
	}
	if err := errors.Join(t.write(report), err); err != nil {
		return err
	}
	if !report.OK() {
		return cli.Exit(codeUnexpected)
	}
	return nil
}

func (t *tested) prepare(dir string) (err error) {
	t.options.Dir = dir
	if t.only != "" {
		if t.options.Only, err = regexp.Compile(t.only); err != nil {
			return &helper.Error{Message: fmt.Sprintf("--run %q is no regular expression: %v", t.only, err)}
		}
	}
	if t.options.Jobs < 1 || t.options.Jobs > 256 {
		return &helper.Error{Message: "--jobs must be between 1 and 256"}
	}
	if t.options.Timeout < time.Second {
		return &helper.Error{Message: "--timeout must be at least 1s"}
	}
	if _, err := unix.IoctlGetTermios(2, unix.TCGETS); err == nil {
		t.options.Progress = func(done, all int, last *suite.Outcome) {
			fmt.Fprintf(os.Stderr, "\r\x1b[K%d of %d: %.60q", done, all, last.Skill)
			if done == all {
				fmt.Fprint(os.Stderr, "\r\x1b[K")
			}
		}
	}
	return nil
}

// write prints the report, and writes it where it was asked for.
func (t *tested) write(r *suite.Report) error {
	var errs []error
	if t.junit != "" {
		errs = append(errs, writePage(t.junit, r.JUnit))
	}
	switch t.json {
	case "-":
		return errors.Join(append(errs, r.JSON(cli.JSONOut{}))...)
	case "":
	default:
		errs = append(errs, writePage(t.json, r.JSON))
	}
	_, err := io.WriteString(os.Stdout, r.Text())
	return errors.Join(append(errs, err)...)
}
