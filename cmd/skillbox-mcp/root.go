package main

import (
	"context"
	"fmt"

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
	return cli.Run(context.Background(), rootCommand(), args, helper.CodeFailed)
}

// rootCommand is named as the program that people call.
func rootCommand() *cobra.Command {
	root := &cobra.Command{
		Short: "Connect skillbox with MCP",
		Long: `skillbox-mcp is what the program skillbox becomes for the commands below: they connect it with
clients and servers of the Model Context Protocol.`,
		Example: `  skillbox mcp serve examples/word-count`,
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
	return cli.Root(root, mcp)
}

// complete sets what a shell is offered as a flag's value.
func complete(c *cobra.Command, name string, values []string, directive cobra.ShellCompDirective) {
	err := c.RegisterFlagCompletionFunc(name, func(*cobra.Command, []string, string) ([]string, cobra.ShellCompDirective) { return values, directive })
	if err != nil {
		panic(err) // a flag that this program does not have
	}
}
