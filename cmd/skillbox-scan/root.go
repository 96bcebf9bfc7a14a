package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"strings"

	"github.com/spf13/cobra"

	"skillbox/helper"
)

// version is set by the linker.
var version = "dev"

// exitCode is what a command wants the process to exit with, after it has said everything itself.
type exitCode int

func (c exitCode) Error() string { return fmt.Sprintf("exit %d", int(c)) }

func run(args []string) int {
	if len(args) == 1 && args[0] == "version" {
		fmt.Println(version)
		return 0
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
	return 0
}

// rootCommand is named as the program that people call.
func rootCommand() *cobra.Command {
	root := &cobra.Command{
		Use:   "skillbox",
		Short: "Look into a skill",
		Long: `skillbox-scan is what the program skillbox becomes for the commands below: they run skills under
observation, and say what they did.`,
		Example:       `  skillbox scan --runtime examples/word-count`,
		SilenceErrors: true,
		SilenceUsage:  true,
	}
	policy := group("policy", "Write policies from what skills did")
	audit := group("audit", "Show what runs did")
	audit.AddCommand(auditReportCommand())
	policy.AddCommand(learnCommand())
	// Commands below policy and audit have a file each, and are added here.
	bundle := group("bundle", "Name and sign bundles")
	bundle.AddCommand(bundleDigestCommand(), bundleSignCommand(), bundleVerifyCommand(), bundleKeyCommand())
	root.AddCommand(scanCommand(), testCommand(), policy, audit, bundle)
	root.CompletionOptions.DisableDefaultCmd = true
	return root
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

// complain is the one place where an error is shown to a person.
func complain(err error) {
	fmt.Fprintf(os.Stderr, "skillbox: %v\n", err)
	var e *helper.Error
	if errors.As(err, &e) && e.Hint != "" {
		fmt.Fprintf(os.Stderr, "skillbox: hint: %s\n", e.Hint)
	}
}
