package main

import (
	"context"
	"errors"
	"fmt"
	"os"

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
		return helper.CodeFailed
	}
	return 0
}

// rootCommand is named as the program that people call.
func rootCommand() *cobra.Command {
	root := &cobra.Command{
		Use:   "skillbox",
		Short: "Connect skillbox with MCP",
		Long: `skillbox-mcp is what the program skillbox becomes for the commands below: they connect it with
clients and servers of the Model Context Protocol.`,
		Example:       `  skillbox mcp serve examples/word-count`,
		SilenceErrors: true,
		SilenceUsage:  true,
	}
	mcp := &cobra.Command{
		Use: "mcp", Short: "Offer skills to MCP clients, and run MCP servers in boxes",
		Long: `Clients of the Model Context Protocol (MCP), such as Claude Desktop, VS Code and Cursor, start servers
as programs and talk with them over stdin and stdout. serve is such a server, whose tools are skills;
wrap runs a server in a box, in its place.`,
		Example: `  skillbox mcp serve examples/word-count
  skillbox mcp wrap --bundle servers -- npx -y @modelcontextprotocol/server-everything`,
		Args: cobra.NoArgs,
	}
	mcp.AddCommand(serveCommand(), wrapCommand())
	root.AddCommand(mcp)
	root.CompletionOptions.DisableDefaultCmd = true
	return root
}

// complain is the one place where an error is shown to a person.
func complain(err error) {
	fmt.Fprintf(os.Stderr, "skillbox: %v\n", err)
	var e *helper.Error
	if errors.As(err, &e) && e.Hint != "" {
		fmt.Fprintf(os.Stderr, "skillbox: hint: %s\n", e.Hint)
	}
}

// complete sets what a shell is offered as a flag's value.
func complete(c *cobra.Command, name string, values []string, directive cobra.ShellCompDirective) {
	err := c.RegisterFlagCompletionFunc(name, func(*cobra.Command, []string, string) ([]string, cobra.ShellCompDirective) { return values, directive })
	if err != nil {
		panic(err) // a flag that this program does not have
	}
}
