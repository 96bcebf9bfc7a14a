package main

import (
	"context"
	"fmt"
	"strings"

	"github.com/spf13/cobra"

	"skillbox/cmd/cli"
	"skillbox/helper"
)

// version is set by the linker.
var version = "dev"

func run(args []string) int {
	if len(args) == 1 && args[0] == "version" {
		fmt.Println(version)
		return 0
	}
	return cli.Run(context.Background(), rootCommand(), args, failed(args))
}

// failed is the exit code of a command that could not do what it is for.
func failed(args []string) int {
	switch words := strings.Join(args[:min(len(args), 2)], " "); {
	case strings.HasPrefix(words, "scan"):
		return codeUnscanned
	case strings.HasPrefix(words, "test"):
		return codeUntested
	case words == "policy learn":
		return codeUnlearned
	}
	return helper.CodeFailed
}

// rootCommand is named as the program that people call.
func rootCommand() *cobra.Command {
	root := &cobra.Command{
		Short: "Look into a skill",
		Long: `skillbox-scan is what the program skillbox becomes for the commands below: they run skills under
observation, and say what they did.`,
		Example: `  skillbox scan --runtime examples/word-count`,
	}
	policy := group("policy", "Write policies from what skills did")
	audit := group("audit", "Show what runs did")
	audit.AddCommand(auditReportCommand())
	policy.AddCommand(learnCommand())
	// Commands below policy and audit have a file each, and are added here.
	bundle := group("bundle", "Name and sign bundles")
	bundle.AddCommand(bundleDigestCommand(), bundleSignCommand(), bundleVerifyCommand(), bundleKeyCommand())
	return cli.Root(root, scanCommand(), testCommand(), policy, audit, bundle)
}

// group holds commands whose siblings are the program skillbox's.
func group(name, short string) *cobra.Command {
	return &cobra.Command{
		Use: name, Short: short, Long: short + ".", Args: cobra.ArbitraryArgs,
		RunE: func(_ *cobra.Command, args []string) error {
			return &helper.Error{Message: fmt.Sprintf("skillbox-scan %s knows no command %q", version, strings.Join(append([]string{name}, args...), " ")), Hint: "install skillbox and skillbox-scan from one build"}
		},
	}
}
