package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/signal"
	"strings"
	"syscall"

	"github.com/spf13/cobra"

	"skillbox/client"
	"skillbox/cmd/cli"
	"skillbox/helper"
	"skillbox/mcp/wrap"
)

// wrapping are the flags of wrap.
type wrapping struct {
	server wrap.Server
	env    []string
	config []string
	bundle string
	asMCP  bool
	ro, rw []string
	screen cli.Screen
}

func wrapCommand() *cobra.Command {
	var w wrapping
	c := &cobra.Command{
		Use:   "wrap [flags] [BUNDLE] [-- COMMAND [WORD…]]",
		Short: "Run an MCP server in a box",
		Long: `Run an MCP server in a box, for a client that starts this command in its place. Requests and answers
pass byte for byte. The server has no network, no files of the host's and none of its variables, but
what the policy and these flags name.

COMMAND is run as it is, with /skill (the bundle) as its working directory. npx PACKAGE becomes the
program that is installed in the bundle's node_modules: a box has nothing to fetch it from. Without a
command the bundle's own is run; an MCP bundle (a .mcpb file, or a directory with its manifest.json)
says itself what that is, and --config gives what it asks its user.

When its input ends the server has 2 seconds to leave; then it gets SIGTERM, and 2 seconds later
SIGKILL. Exit code: the server's own; 130 where it was told to end; else as of exec.`,
		Example: `  skillbox mcp wrap --bundle servers -- npx -y @modelcontextprotocol/server-everything
  skillbox mcp wrap -p policy.yaml --state ~/.local/state/memory server.mcpb`,
		RunE: func(c *cobra.Command, args []string) error { return w.run(c.Context(), args, c.ArgsLenAtDash()) },
	}
	f := c.Flags()
	f.StringVarP(&w.server.Policy, "policy", "p", "", "`file` with what the server may have (default: no network, no host files)")
	f.StringVarP(&w.bundle, "bundle", "b", "", "`directory` that the server sees as /skill, such as one with node_modules; or a .mcpb file")
	f.StringVar(&w.server.State, "state", "", "`directory` that the server may write to, as /state and as its home; made if it is not there")
	f.StringArrayVar(&w.ro, "ro", nil, "`PATH[:INSIDE]` of the host that the server may read; repeatable")
	f.StringArrayVar(&w.rw, "rw", nil, "`PATH[:INSIDE]` of the host that the server may read and change; repeatable")
	f.StringArrayVarP(&w.env, "env", "e", nil, "`NAME[=VALUE]` for the server's environment; without value, this one's; repeatable")
	f.StringArrayVar(&w.config, "config", nil, "`NAME[=VALUE]` of what the manifest of an MCP bundle asks its user; without value, this environment's; repeatable")
	f.DurationVarP(&w.server.Timeout, "timeout", "t", 0, "longest `time` that the server may run (default: the policy's, else 24h)")
	f.StringVar(&w.server.Mode, "mode", "auto", "`who` runs it: system, user, oneshot or auto, as for exec")
	f.BoolVar(&w.asMCP, "log-denials", false, "write what the server is refused to stderr as MCP log notifications, one JSON object in a line")
	f.IntVar(&w.server.MaxFiles, "max-files", 0, "most `files` that the bundle may have (default 10000)")
	f.Int64Var(&w.server.MaxBytes, "max-bytes", 0, "most `bytes` that the bundle may have (default 512 MiB)")
	complete(c, "policy", []string{"yaml", "yml"}, cobra.ShellCompDirectiveFilterFileExt)
	complete(c, "mode", []string{"auto", "system", "user", "oneshot"}, cobra.ShellCompDirectiveNoFileComp)
	for _, name := range []string{"bundle", "state"} {
		complete(c, name, nil, cobra.ShellCompDirectiveFilterDirs)
	}
	return c
}

func (w *wrapping) run(ctx context.Context, args []string, dash int) error {
	if err := w.read(ctx, args, dash); err != nil {
		return err
	}
	note, err := w.server.Resolve()
	if err != nil {
		return err
	}
	if note != "" {
		fmt.Fprintf(os.Stderr, "skillbox: %s\n", cli.VisibleLines(note))
	}
	ctx, stop := signal.NotifyContext(ctx, os.Interrupt, syscall.SIGTERM, syscall.SIGHUP)
	defer stop()
	stdout, stderr, shown, err := w.screen.Stdio()
	if err != nil {
		return err
	}
	result, err := w.server.Run(ctx, os.Stdin, stdout, stderr)
	if err := errors.Join(err, shown()); err != nil {
		return err
	}
	w.tell(result)
	return cli.Exit(result.ExitCode)
}

// read reads the command line.
func (w *wrapping) read(ctx context.Context, args []string, dash int) error {
	if dash >= 0 {
		args, w.server.Command = args[:dash], args[dash:]
	}
	switch {
	case len(args) > 1 || len(args) == 1 && w.bundle != "":
		return &helper.Error{Message: "one bundle is the most", Hint: "the server's command comes after --"}
	case len(args) == 1:
		w.bundle = args[0]
	case w.bundle == "" && len(w.server.Command) == 0:
		return &helper.Error{Message: "nothing says which server to run", Hint: "skillbox mcp wrap -- COMMAND, or a bundle"}
	}
	w.server.Set = map[string]string{}
	for _, e := range w.env {
		name, value, given := strings.Cut(e, "=")
		if !given {
			if value, given = os.LookupEnv(name); !given {
				return &helper.Error{Message: fmt.Sprintf("--env %s: there is no such variable here", name), Hint: "set it in the client's configuration, or give it as NAME=VALUE"}
			}
		}
		w.server.Set[name] = value
	}
	w.server.Denied = w.refused
	var err error
	if w.server.Binds, err = wrap.Binds(w.ro, w.rw); err != nil || w.bundle == "" {
		return err
	}
	values, err := wrap.Values(w.config)
	if err != nil {
		return err
	}
	return w.server.Open(ctx, w.bundle, values)
}

// refused says on stderr what the server was refused, for a person or for a program. It may quote the server's words.
func (w *wrapping) refused(d helper.Denial) {
	if !w.asMCP {
		w.say(fmt.Sprintf("skillbox: refused (%s): %q; %s", d.Kind, d.What, cli.Visible(d.Rule)))
		if d.Hint != "" {
			w.say(fmt.Sprintf("skillbox: hint: %q", d.Hint))
		}
		return
	}
	line, err := json.Marshal(map[string]any{
		"jsonrpc": "2.0", "method": "notifications/message",
		"params": map[string]any{"level": "warning", "logger": "skillbox", "data": d},
	})
	if err == nil { // it holds nothing that has no form
		w.say(string(cli.InertJSON(line)))
	}
}

// say writes a line to stderr: of a screen, where the server may have begun one.
func (w *wrapping) say(line string) {
	if !cli.IsTerminal(os.Stderr) {
		fmt.Fprintln(os.Stderr, line)
		return
	}
	_ = w.screen.Say(os.Stderr, line) // there is nowhere else to say it
}

// tell says on stderr what a client's log should have of the run.
func (w *wrapping) tell(r *client.Result) {
	for _, warning := range r.Warnings {
		w.say("skillbox: warning: " + cli.VisibleLines(warning))
	}
	if r.Error != nil && r.Verdict != helper.Canceled {
		cli.Complain(r.Error)
	}
}
