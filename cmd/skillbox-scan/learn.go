package main

import (
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/signal"
	"path/filepath"
	"strings"
	"syscall"

	"github.com/spf13/cobra"

	"skillbox/audit"
	"skillbox/cmd/cli"
	"skillbox/helper"
	"skillbox/scan"
	"skillbox/scan/learn"
)

// Exit codes of policy learn.
const (
	codeNotConverged = 1
	codeUnlearned    = 2 // the skill could not be run: nothing is known about it
)

// learning are the flags of policy learn.
type learning struct {
	options                       learn.Options
	params, commands, inputs, env []string
	json                          bool
	output                        string
}

func learnCommand() *cobra.Command {
	var l learning
	c := &cobra.Command{
		Use:   "learn BUNDLE",
		Short: "Run a skill, and write the smallest policy under which it works",
		Long: `Run the skill in BUNDLE several times with nothing real behind it, and print the smallest policy
under which the same runs are refused nothing and give the same results. What a policy should not
say unless a person has thought about it stands in it commented out, with the reason.

The skill has no file of the host's but those that --policy or --ceiling name, and of directories
that it may change it gets copies. Names and connections end in a sinkhole, unless --allow-network
names what may really be reached.

Exit code: 0 if a policy was learned; 1 if the one that is printed is not enough, which stderr
explains; 2 if the skill could not be run.`,
		Example: `  skillbox policy learn --params '{"text":"a b a"}' examples/word-count
  skillbox policy learn --env API_KEY --policy policy.yaml --output learned.yaml bundle/
  skillbox policy learn --allow-network api.example.com:443 --params @one.json --params @two.json bundle/`,
		Args: cobra.MaximumNArgs(1),
		ValidArgsFunction: func(_ *cobra.Command, args []string, _ string) ([]string, cobra.ShellCompDirective) {
			if len(args) > 0 {
				return nil, cobra.ShellCompDirectiveNoFileComp
			}
			return nil, cobra.ShellCompDirectiveFilterDirs
		},
		RunE: func(c *cobra.Command, args []string) error { return l.run(c, args) },
	}
	f := c.Flags()
	f.StringArrayVar(&l.params, "params", nil, "parameters: a `JSON` text or @FILE; repeatable (default: what the bundle's schema suggests)")
	f.StringArrayVar(&l.commands, "command", nil, "`words` to run in the bundle, quoted as for a shell; repeatable (default: what the bundle names)")
	f.StringArrayVar(&l.inputs, "input", nil, "`file` that the skill finds in /input; repeatable")
	f.StringArrayVar(&l.env, "env", nil, "`NAME=VALUE` that the skill may need, or NAME for a value that is nobody's; repeatable")
	f.StringArrayVar(&l.options.Network, "allow-network", nil, "`destination` that may really be reached, NAME:PORT or CIDR:PORT; repeatable (default: a sinkhole)")
	f.IntVar(&l.options.Runs, "runs", learn.DefaultRuns, "how often each way to start the skill is run to see what it does")
	f.StringVarP(&l.options.Current, "policy", "p", "", "`file` with the policy that holds now: a diff to it is printed too")
	f.StringVar(&l.options.Ceiling, "ceiling", "", "`file` with a policy beyond which nothing is tried (default: generous, without a way out)")
	f.StringVarP(&l.output, "output", "o", "", "`file` to write the policy to; what differs from --policy is printed then")
	f.BoolVar(&l.json, "json", false, "print one JSON object with everything")
	for _, name := range []string{"policy", "ceiling"} {
		complete(c, name, []string{"yaml", "yml"}, cobra.ShellCompDirectiveFilterFileExt)
	}
	for _, name := range []string{"command", "env", "allow-network", "runs"} {
		complete(c, name, nil, cobra.ShellCompDirectiveNoFileComp)
	}
	return c
}

// run prints what was learned. Every error means that nothing is known.
func (l *learning) run(c *cobra.Command, args []string) error {
	result, err := l.learn(c, args)
	if err == nil {
		err = l.print(result)
	}
	if err != nil {
		cli.Complain(err)
		return cli.Exit(codeUnlearned)
	}
	if result.Converged {
		return nil
	}
	for _, why := range result.Failing {
		cli.Complain(errors.New(audit.Clean(why, 500)))
	}
	return cli.Exit(codeNotConverged)
}

func (l *learning) learn(c *cobra.Command, args []string) (*learn.Result, error) {
	if len(args) == 0 {
		return nil, &helper.Error{Message: "nothing says which skill to run", Hint: "skillbox policy learn BUNDLE"}
	}
	l.options.Bundle = args[0]
	if err := l.prepare(); err != nil {
		return nil, err
	}
	ctx, stop := signal.NotifyContext(c.Context(), os.Interrupt, syscall.SIGTERM, syscall.SIGHUP)
	defer stop()
	result, err := learn.Learn(ctx, l.options)
	if ctx.Err() != nil {
		return nil, errors.Join(errors.New("interrupted"), err)
	}
	return result, err
}

// prepare reads the flags.
func (l *learning) prepare() (err error) {
	if l.options.Runs < 1 || l.options.Runs > 100 {
		return &helper.Error{Message: fmt.Sprintf("--runs %d is not from 1 to 100", l.options.Runs)}
	}
	if l.options.Params, err = readParams(l.params); err != nil {
		return err
	}
	if l.options.Commands, err = readCommands(l.commands); err != nil {
		return err
	}
	l.options.Inputs, l.options.Env = map[string]string{}, map[string]string{}
	for _, path := range l.inputs {
		name := filepath.Base(path)
		if _, twice := l.options.Inputs[name]; twice {
			return &helper.Error{Message: fmt.Sprintf("--input: two files are named %s", name)}
		}
		l.options.Inputs[name] = path
	}
	for _, one := range l.env {
		name, value, _ := strings.Cut(one, "=")
		if name == "" {
			return &helper.Error{Message: fmt.Sprintf("--env %q names no variable", one)}
		}
		l.options.Env[name] = value
	}
	return nil
}

// readParams reads JSON texts and @FILEs.
func readParams(given []string) (all []string, err error) {
	for _, p := range given {
		if path, ok := strings.CutPrefix(p, "@"); ok {
			text, err := os.ReadFile(path)
			if err != nil {
				return nil, err
			}
			p = string(text)
		}
		if !json.Valid([]byte(p)) {
			return nil, &helper.Error{Message: "--params is not JSON: " + p, Hint: "a file is given as @FILE"}
		}
		all = append(all, p)
	}
	return all, nil
}

func readCommands(given []string) (all [][]string, err error) {
	for _, text := range given {
		argv, err := scan.Words(text)
		if err != nil {
			return nil, &helper.Error{Message: fmt.Sprintf("--command %q: %v", text, err)}
		}
		all = append(all, argv)
	}
	return all, nil
}

func (l *learning) print(r *learn.Result) error {
	if l.output != "" {
		if err := os.WriteFile(l.output, []byte(r.Policy), 0o644); err != nil {
			return err
		}
	}
	switch {
	case l.json:
		encoder := json.NewEncoder(cli.JSONOut{})
		encoder.SetEscapeHTML(false)
		return encoder.Encode(r)
	case l.output != "":
		_, err := fmt.Print(r.Comparison())
		return err
	}
	text := r.Policy
	for line := range strings.Lines(r.Comparison()) {
		text += "# " + line
	}
	_, err := fmt.Print(text)
	return err
}
