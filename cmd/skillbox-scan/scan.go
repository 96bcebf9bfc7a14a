package main

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/signal"
	"strings"
	"syscall"
	"time"

	"github.com/spf13/cobra"

	"skillbox/cmd/cli"
	"skillbox/helper"
	"skillbox/scan"
	"skillbox/scan/page"
)

// Exit codes of a scan.
const (
	codeFound     = 1
	codeUnscanned = 2 // the skill could not be run, or not be observed: nothing is known about it
)

// scanning are the flags of scan.
type scanning struct {
	options               scan.Options
	params, commands      []string
	clock, failOn, html   string
	json, sarif, markdown bool
}

func scanCommand() *cobra.Command {
	var s scanning
	c := &cobra.Command{
		Use:   "scan --runtime BUNDLE",
		Short: "Run a skill under observation, and say what speaks against it",
		Long: `Run the skill in BUNDLE with nothing real behind it, and say what it did that speaks against it: where
it turned to, what it read, changed and started, and whether a secret that was laid out for it came
out again. Its home, its credentials and its network are decoys; nothing that it sends goes anywhere.

Each command that the bundle names is run with each set of parameters; --command runs others. What
the skill does is compared with the policy that it declares, or with another one (--policy).

Exit code: 0 if nothing was found, 1 if something at or above --fail-on was, 2 if the skill could not
be scanned. A skill of which nothing was found is not safe: see what the report says was not seen.`,
		Example: `  skillbox scan --runtime examples/word-count
  skillbox scan --runtime bundle/ --params '{"url":"https://example.com/"}' --clock +30d
  skillbox scan --runtime bundle/ --sarif > scan.sarif`,
		Args:              cobra.NoArgs,
		ValidArgsFunction: cobra.NoFileCompletions,
		RunE:              func(c *cobra.Command, _ []string) error { return s.run(c) },
	}
	f := c.Flags()
	f.StringVar(&s.options.Bundle, "runtime", "", "run the skill in this `directory`")
	f.StringVarP(&s.options.Policy, "policy", "p", "", "`file` with the policy to compare with (default: what the bundle declares)")
	f.StringArrayVar(&s.params, "params", nil, "parameters: a `JSON` text or @FILE; repeatable (default: what the bundle's schema suggests)")
	f.StringArrayVar(&s.commands, "command", nil, "`words` to run in the bundle, quoted as for a shell; repeatable (default: what the bundle names)")
	f.DurationVar(&s.options.Budget, "budget", scan.DefaultBudget, "longest `time` for all runs together")
	f.StringVar(&s.clock, "clock", "", "run everything again with the clock ahead by this `time`, such as +30d; needs libfaketime")
	f.StringVar(&s.failOn, "fail-on", scan.Medium.String(), "least `severity` that counts: INFO, LOW, MEDIUM, HIGH or CRITICAL")
	f.BoolVar(&s.json, "json", false, "print one JSON object with everything")
	f.BoolVar(&s.sarif, "sarif", false, "print SARIF 2.1.0 for code-scanning viewers")
	f.BoolVar(&s.markdown, "markdown", false, "print Markdown")
	f.StringVar(&s.html, "html", "", "write a page to look at to this `file` too; one that is there is replaced")
	complete(c, "runtime", nil, cobra.ShellCompDirectiveFilterDirs)
	complete(c, "policy", []string{"yaml", "yml"}, cobra.ShellCompDirectiveFilterFileExt)
	complete(c, "fail-on", []string{"INFO", "LOW", "MEDIUM", "HIGH", "CRITICAL"}, cobra.ShellCompDirectiveNoFileComp)
	complete(c, "html", []string{"html"}, cobra.ShellCompDirectiveFilterFileExt)
	for _, name := range []string{"command", "budget", "clock"} {
		complete(c, name, nil, cobra.ShellCompDirectiveNoFileComp)
	}
	c.MarkFlagsMutuallyExclusive("json", "sarif", "markdown")
	c.AddCommand(serveCommand())
	return c
}

// complete sets what a shell is offered as a flag's value.
func complete(c *cobra.Command, name string, values []string, directive cobra.ShellCompDirective) {
	err := c.RegisterFlagCompletionFunc(name, func(*cobra.Command, []string, string) ([]string, cobra.ShellCompDirective) { return values, directive })
	if err != nil {
		panic(err) // a flag that this program does not have
	}
}

func (s *scanning) run(c *cobra.Command) error {
	least, err := s.prepare()
	if err != nil {
		return err
	}
	ctx, stop := signal.NotifyContext(c.Context(), os.Interrupt, syscall.SIGTERM, syscall.SIGHUP)
	defer stop()
	report, err := scan.Scan(ctx, s.options)
	if ctx.Err() != nil {
		return errors.Join(errors.New("interrupted"), err)
	}
	if err != nil {
		return err
	}
	if err := s.print(report); err != nil {
		return err
	}
	if s.html != "" {
		if err := writePage(s.html, func(w io.Writer) error { return page.Write(w, report) }); err != nil {
			return err
		}
	}
	if report.Worst() >= least {
		return cli.Exit(codeFound)
	}
	if len(report.Incomplete) > 0 {
		return &helper.Error{Message: "the skill could not be scanned wholly: " + report.Incomplete[0], Hint: "the report has all reasons under incomplete"}
	}
	return nil
}

// prepare reads the flags.
func (s *scanning) prepare() (least scan.Severity, err error) {
	if s.options.Bundle == "" {
		return 0, &helper.Error{Message: "nothing says which skill to run", Hint: "skillbox scan --runtime BUNDLE"}
	}
	if least, err = scan.ParseSeverity(strings.ToUpper(s.failOn)); err != nil || least == scan.None {
		return 0, &helper.Error{Message: fmt.Sprintf("--fail-on %q is no severity", s.failOn), Hint: "INFO, LOW, MEDIUM, HIGH or CRITICAL"}
	}
	if s.options.Budget < time.Second {
		return 0, &helper.Error{Message: "--budget must be at least 1s"}
	}
	if s.options.Clock, err = scan.ParseClock(s.clock); err != nil {
		return 0, err
	}
	for _, p := range s.params {
		if path, ok := strings.CutPrefix(p, "@"); ok {
			text, err := os.ReadFile(path)
			if err != nil {
				return 0, err
			}
			p = string(text)
		}
		if !json.Valid([]byte(p)) {
			return 0, &helper.Error{Message: "--params is not JSON: " + p, Hint: "a file is given as @FILE"}
		}
		s.options.Params = append(s.options.Params, p)
	}
	for _, text := range s.commands {
		argv, err := scan.Words(text)
		if err != nil {
			return 0, &helper.Error{Message: fmt.Sprintf("--command %q: %v", text, err)}
		}
		s.options.Commands = append(s.options.Commands, argv)
	}
	return least, nil
}

func (s *scanning) print(r *scan.Report) error {
	switch {
	case s.json:
		encoder := json.NewEncoder(cli.JSONOut{})
		encoder.SetEscapeHTML(false)
		return encoder.Encode(r)
	case s.sarif:
		return r.SARIF(cli.JSONOut{}, version)
	case s.markdown:
		_, err := fmt.Print(r.Markdown())
		return err
	}
	_, err := fmt.Print(r.Text())
	return err
}
