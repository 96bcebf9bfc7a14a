package main

import (
	"context"
	"os"
	"os/signal"
	"syscall"

	"github.com/spf13/cobra"

	"skillbox/cmd/cli"
	"skillbox/helper"
	"skillbox/mcp"
	"skillbox/policy"
)

func serveCommand() *cobra.Command {
	var o mcp.Options
	c := &cobra.Command{
		Use:   "serve [flags] BUNDLE…",
		Short: "Offer skills to an MCP client, as tools",
		Long: `Be an MCP server over stdin and stdout whose tools are what the bundles offer to be called: the command
of a manifest, and each script of scripts/. Each call runs in a sandbox of its own, under the policy,
as exec would run it; prepared ones are used where a service runs. A call that the client cancels is
killed at once. Where a skill fails or is refused something, the model reads what, and what would help.`,
		Example: `  skillbox mcp serve examples/word-count
  skillbox mcp serve -p policy.yaml skills/pdf skills/weather`,
		RunE: func(c *cobra.Command, args []string) error { return serve(c.Context(), args, o) },
	}
	f := c.Flags()
	f.StringVarP(&o.Policy, "policy", "p", "", "`file` with what the skills may have (default: no network, no host files)")
	f.DurationVarP(&o.Timeout, "timeout", "t", 0, "longest `time` that a call may take (default: the policy's, else 30s)")
	f.IntVar(&o.Concurrency, "concurrency", mcp.Concurrency, "most `calls` that run at a time; others wait")
	f.BoolVar(&o.Lines, "lines", false, "send what a skill writes to stderr while it runs, as progress, to a client that asks for progress")
	f.StringVar(&o.Mode, "mode", "auto", "`who` runs the calls: system, user, oneshot or auto, as for exec")
	complete(c, "policy", []string{"yaml", "yml"}, cobra.ShellCompDirectiveFilterFileExt)
	complete(c, "mode", []string{"auto", "system", "user", "oneshot"}, cobra.ShellCompDirectiveNoFileComp)
	c.ValidArgsFunction = func(*cobra.Command, []string, string) ([]string, cobra.ShellCompDirective) {
		return nil, cobra.ShellCompDirectiveFilterDirs
	}
	return c
}

func serve(ctx context.Context, bundles []string, o mcp.Options) error {
	if len(bundles) == 0 {
		return &helper.Error{Message: "nothing says which skills to offer", Hint: "skillbox mcp serve BUNDLE…"}
	}
	if o.Concurrency < 1 || o.Timeout < 0 {
		return &helper.Error{Message: "--concurrency must be at least 1, and --timeout not below 0"}
	}
	if err := checkPolicy(o.Policy); err != nil {
		return err
	}
	o.Version = version
	s, err := mcp.New(bundles, o)
	if err != nil {
		return err
	}
	ctx, stop := signal.NotifyContext(ctx, os.Interrupt, syscall.SIGTERM, syscall.SIGHUP)
	defer stop()
	out, err := mcp.Stdout()
	if err != nil {
		return err
	}
	if cli.IsTerminal(out) {
		return s.Serve(ctx, os.Stdin, inert{out})
	}
	return s.Serve(ctx, os.Stdin, out)
}

// inert is a terminal that gets frames of the protocol, each as a whole: who tries the server by hand is shown what a skill answers, and the terminal obeys none of it.
type inert struct{ to *os.File }

func (i inert) Write(frame []byte) (int, error) {
	if _, err := i.to.Write(cli.InertJSON(frame)); err != nil {
		return 0, err
	}
	return len(frame), nil
}

func (i inert) Close() error { return i.to.Close() }

// checkPolicy finds what is wrong with a policy before the first call does.
func checkPolicy(path string) error {
	if path == "" {
		return nil
	}
	text, err := os.ReadFile(path)
	if err != nil {
		return err
	}
	_, err = policy.Parse(path, text)
	return err
}
