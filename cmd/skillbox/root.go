package main

import (
	"context"

	"github.com/spf13/cobra"

	"skillbox/cmd/cli"
	"skillbox/doctor"
	"skillbox/helper"
)

func run(args []string) int {
	if len(args) > 0 && args[0] == doctor.ChildArg {
		return doctor.Child(args[1:])
	}
	return cli.Run(context.Background(), rootCommand(), args, helper.CodeFailed)
}

// rootCommand is the whole tree of commands.
func rootCommand() *cobra.Command {
	return cli.Root(&cobra.Command{
		Short: "Run an untrusted agent skill in a sandbox",
		Long: `skillbox runs one third-party agent skill (a folder of scripts with a manifest) in a sandbox
made of Linux namespaces, seccomp filters and resource limits: no Docker, no VM, as root or
as an ordinary user. What the skill may see and do is said in a policy; everything else is
refused, and the result says what was.`,
		Example: `  skillbox exec --params '{"text":"a b a"}' examples/word-count
  skillbox exec --policy policy.yaml --json bundle/
  skillbox exec bundle/ -- python3 scripts/report.py --help
  skillbox doctor`,
	}, execCommand(), sessionCommand(), planCommand(), bundleCommand(), policyCommand(), psCommand(), killCommand(), logsCommand(), statsCommand(), auditCommand(), explainCommand(), scanCommand(), testCommand(), mcpCommand(), imageCommand(), doctorCommand(), versionCommand(), completionCommand())
}
