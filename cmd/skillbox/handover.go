package main

import (
	"bytes"
	"fmt"
	"os"
	"os/exec"
	"strings"

	"github.com/spf13/cobra"
	"golang.org/x/sys/unix"

	"skillbox/cmd/cli"
	"skillbox/helper"
)

// successor is a program that this one becomes for commands which need what this one does not link.
type successor struct {
	name string
	env  string // variable that says where it lies, instead of beside this one
}

// looker looks into skills: it reads policies and bundles itself. speaker knows MCP. keeper fetches images and looks after them.
var (
	looker  = successor{"skillbox-scan", "SKILLBOX_SCAN"}
	speaker = successor{"skillbox-mcp", "SKILLBOX_MCP"}
	keeper  = successor{"skillbox-image", "SKILLBOX_IMAGE"}
)

// codeUnscanned is what scan exits with where it could not look: 1 would be that something was found.
const codeUnscanned = 2

// handedOver is a command of that program's: this process becomes that one, with the same words, so that its help and its completion are
// that program's too.
//
// failed is the exit code where there is no such program.
func handedOver(to successor, failed cli.Exit, c *cobra.Command) *cobra.Command {
	c.DisableFlagParsing = true
	c.RunE = func(c *cobra.Command, args []string) error {
		program, err := to.find()
		if err == nil {
			argv := append([]string{"skillbox"}, wordsOf(c, args)...)
			err = fmt.Errorf("%s: %w", program, unix.Exec(program, argv, os.Environ()))
		}
		cli.Complain(err)
		return failed
	}
	c.SetHelpFunc(func(c *cobra.Command, _ []string) {
		_ = c.RunE(c, []string{"--help"}) // it has complained
	})
	c.ValidArgsFunction = func(c *cobra.Command, args []string, typed string) ([]string, cobra.ShellCompDirective) {
		return to.complete(wordsOf(c, append(args, typed)))
	}
	return c
}

// wordsOf are the words that led to a command, and those after it.
func wordsOf(c *cobra.Command, args []string) []string {
	return append(strings.Fields(c.CommandPath())[1:], args...)
}

// find returns where the program lies: beside this one, as skillboxd does, or where its variable says.
func (to successor) find() (string, error) {
	if program := os.Getenv(to.env); program != "" {
		return program, nil
	}
	program, err := helper.Find(to.name)
	if err != nil {
		return "", &helper.Error{Message: err.Error(), Hint: "install it from the build that this program is of (make build makes it), or set " + to.env + " to its path"}
	}
	return program, nil
}

// complete completes by that program's answer; without it there is nothing to offer.
func (to successor) complete(words []string) ([]string, cobra.ShellCompDirective) {
	program, err := to.find()
	if err != nil {
		return nil, cobra.ShellCompDirectiveDefault
	}
	answer, err := exec.Command(program, append([]string{cobra.ShellCompNoDescRequestCmd}, words...)...).Output()
	lines := strings.Split(string(bytes.TrimSpace(answer)), "\n")
	last := lines[len(lines)-1]
	var directive int
	if _, scanErr := fmt.Sscanf(last, ":%d", &directive); err != nil || scanErr != nil {
		return nil, cobra.ShellCompDirectiveDefault
	}
	return lines[:len(lines)-1], cobra.ShellCompDirective(directive)
}

func scanCommand() *cobra.Command {
	return handedOver(looker, codeUnscanned, &cobra.Command{
		Use:   "scan --runtime BUNDLE",
		Short: "Run a skill under observation, and say what speaks against it",
		Long: `Run a skill with nothing real behind it, and say what it did that speaks against it. The program
skillbox-scan does it, and has the help.`,
		Example: `  skillbox scan --runtime examples/word-count
  skillbox scan --help`,
	})
}

func testCommand() *cobra.Command {
	return handedOver(looker, codeUnscanned, &cobra.Command{
		Use:   "test DIR",
		Short: "Run every skill of a directory, and say which do as expected",
		Long: `Find the skills in a directory, run each with the cases that its test file names, and say which did
as expected. The program skillbox-scan does it, and has the help.`,
		Example: `  skillbox test examples
  skillbox test --help`,
	})
}

func policyLearnCommand() *cobra.Command {
	return handedOver(looker, helper.CodeFailed, &cobra.Command{
		Use:   "learn BUNDLE",
		Short: "Run a skill, and write the smallest policy under which it works",
		Long: `Run a skill under observation, and print the smallest policy under which the same runs pass. The
program skillbox-scan does it, and has the help.`,
		Example: `  skillbox policy learn --params '{"text":"a"}' examples/word-count
  skillbox policy learn --help`,
	})
}

func auditReportCommand() *cobra.Command {
	return handedOver(looker, helper.CodeFailed, &cobra.Command{
		Use:   "report RUN",
		Short: "Write a page that shows what a run did",
		Long: `Write one HTML page that shows what the log holds of a run. The program skillbox-scan does it, and
has the help.`,
		Example: `  skillbox audit report 0123456789abcdef --html run.html
  skillbox audit report --help`,
	})
}

func mcpCommand() *cobra.Command {
	return handedOver(speaker, helper.CodeFailed, &cobra.Command{
		Use:   "mcp",
		Short: "Offer skills to MCP clients, and run MCP servers in boxes",
		Long: `Be a server of the Model Context Protocol whose tools are skills, or run such a server in a box. The
program skillbox-mcp does it, and has the help.`,
		Example: `  skillbox mcp serve examples/word-count
  skillbox mcp wrap --bundle servers -- npx -y @modelcontextprotocol/server-everything
  skillbox mcp --help`,
	})
}

func imageCommand() *cobra.Command {
	return handedOver(keeper, helper.CodeFailed, &cobra.Command{
		Use:   "image",
		Short: "Fetch and look after images that skills can run in",
		Long:  `Fetch OCI images and look after them. The program skillbox-image does it, and has the help.`,
		Example: `  skillbox image pull debian:stable-slim
  skillbox image --help`,
	})
}
