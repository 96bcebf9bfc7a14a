package main

import (
	"context"
	"errors"
	"fmt"
	"os"

	"github.com/spf13/cobra"

	"skillbox/doctor"
	"skillbox/helper"
)

// exitCode is what a command wants the process to exit with, after it has said everything itself.
type exitCode int

func (c exitCode) Error() string { return fmt.Sprintf("exit %d", int(c)) }

func run(args []string) int {
	if len(args) > 0 && args[0] == doctor.ChildArg {
		return doctor.Child(args[1:])
	}
	root := rootCommand()
	root.SetArgs(args)
	err := root.ExecuteContext(context.Background())
	var code exitCode
	if errors.As(err, &code) {
		return int(code)
	}
	if err != nil {
		complain(err)
		return helper.CodeFailed
	}
	return 0
}

// rootCommand is the whole tree of commands.
func rootCommand() *cobra.Command {
	root := &cobra.Command{
		Use:   "skillbox",
		Short: "Run an untrusted agent skill in a sandbox",
		Long: `skillbox runs one third-party agent skill (a folder of scripts with a manifest) in a sandbox
made of Linux namespaces, seccomp filters and resource limits: no Docker, no VM, as root or
as an ordinary user. What the skill may see and do is said in a policy; everything else is
refused, and the result says what was.`,
		Example: `  skillbox exec --params '{"text":"a b a"}' examples/word-count
  skillbox exec --policy policy.yaml --json bundle/
  skillbox exec bundle/ -- python3 scripts/report.py --help
  skillbox doctor`,
		SilenceErrors: true,
		SilenceUsage:  true,
	}
	root.AddCommand(execCommand(), sessionCommand(), planCommand(), bundleCommand(), policyCommand(), psCommand(), killCommand(), logsCommand(), statsCommand(), auditCommand(), explainCommand(), scanCommand(), testCommand(), mcpCommand(), imageCommand(), doctorCommand(), versionCommand(), completionCommand())
	root.CompletionOptions.DisableDefaultCmd = true
	return root
}

// complain is the one place where an error is shown to a person.
func complain(err error) {
	fmt.Fprintf(os.Stderr, "skillbox: %s\n", visibleLines(err.Error()))
	var e *helper.Error
	if errors.As(err, &e) && e.Hint != "" {
		fmt.Fprintf(os.Stderr, "skillbox: hint: %s\n", visibleLines(e.Hint))
	}
}
