package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"skillbox/client"
	"skillbox/cmd/cli"
	"skillbox/helper"
)

func sessionCommand() *cobra.Command {
	c := &cobra.Command{
		Use:   "session",
		Short: "Keep one sandbox for several calls of one conversation",
		Long: `Keep one sandbox for several calls: what a call leaves in /tmp, $HOME, /output and running is there
for the next. Policy and bundle are those of the start. A call that times out, is canceled or
meets a limit ends the session. Your own service holds it (exec --mode user), until it is stopped,
idle for too long (--idle) or old (--total). ps lists sessions, and kill ends them too.`,
		Example: `  id=$(skillbox session start bundle/)
  skillbox session exec $id -- sh -c 'echo 1 > /tmp/state'
  skillbox session exec $id -- cat /tmp/state
  skillbox session stop $id`,
	}
	c.AddCommand(sessionStartCommand(), sessionExecCommand(), sessionStopCommand())
	return c
}

func (o *options) registerMode(c *cobra.Command) {
	c.Flags().StringVar(&o.mode, "mode", "auto", "`who` holds it: system, the service of this machine; user, one of your own; auto is user")
	completeFlag(c, "mode", serviceModes)
}

func sessionStartCommand() *cobra.Command {
	var o options
	var idle, total time.Duration
	c := &cobra.Command{
		Use:   "start [flags] BUNDLE",
		Short: "Start a session, and print its id",
		Long: `Prepare a sandbox for the skill in BUNDLE and print the id of its session. What the policy grants
is granted now, and holds for every call; so is the bundle. Values that the policy passes on, and
secrets, are taken from the caller of each call. --timeout is the most that a call may take.
Exit code 125: refused, or failed.`,
		Example: `  skillbox session start --policy policy.yaml bundle/
  skillbox session start --idle 1m --total 10m --json bundle/`,
		Args: cobra.ExactArgs(1),
		RunE: func(_ *cobra.Command, args []string) error { return o.startSession(args, idle, total) },
	}
	o.registerGrant(c)
	o.registerMode(c)
	o.ports.register(c)
	c.Flags().DurationVar(&idle, "idle", helper.SessionIdle, "longest `time` between two calls")
	c.Flags().DurationVar(&total, "total", helper.SessionTotal, "longest `time` that it lasts")
	c.Flags().BoolVar(&o.json, "json", false, "print one JSON object: the session, or the result that says why there is none")
	c.ValidArgsFunction = completeOne(directories)
	return c
}

// startSession prints the session, or with --json the envelope that says why there is none.
func (o *options) startSession(args []string, idle, total time.Duration) error {
	answer, err := o.askForSession(args, idle, total)
	if err == nil && answer.Result != nil && answer.Result.Error != nil && answer.Result.Error.Import != "" {
		if err = client.ImportImage(context.Background(), answer.Result.Error.Import); err == nil {
			answer, err = o.askForSession(args, idle, total)
		}
	}
	var s helper.SessionStarted
	if err == nil && answer.Plan != nil {
		err = json.Unmarshal(answer.Plan, &s)
	}
	switch {
	case err != nil && o.json:
		return errors.Join(printJSON(helper.Failure(helper.Failed, plainly(err))), cli.Exit(helper.CodeFailed))
	case err != nil:
		return plainly(err)
	case answer.Plan == nil && o.json:
		return errors.Join(printJSON(answer.Result), cli.Exit(answer.Result.ExitCode))
	case answer.Plan == nil:
		return answer.Result.Error
	case o.json:
		return printJSON(s)
	}
	warn(s.Warnings)
	fmt.Println(s.Session)
	return nil
}

func (o *options) askForSession(args []string, idle, total time.Duration) (*helper.Answer, error) {
	r, fds, err := o.request(helper.OpSessionStart, args, -1)
	if err != nil {
		return nil, err
	}
	r.IdleMS, r.TotalMS = client.Milliseconds(idle), client.Milliseconds(total)
	if _, _, err := r.SessionTimes(); err != nil {
		return nil, err
	}
	if err := o.ports.open(); err != nil {
		return nil, errors.Join(err, o.ports.close())
	}
	answer, err := askSession(o.mode, r, o.ports.add(r, fds))
	if err != nil || answer.Plan == nil {
		return answer, errors.Join(err, o.ports.close())
	}
	return answer, o.ports.leave()
}

func warn(warnings []string) {
	for _, w := range warnings {
		// The means by which defaults are held is no news for a person at every run.
		if !strings.HasSuffix(w, helper.LimitsWarning) {
			fmt.Fprintf(os.Stderr, "skillbox: warning: %s\n", cli.VisibleLines(w))
		}
	}
}

func sessionExecCommand() *cobra.Command {
	var o options
	c := &cobra.Command{
		Use:   "exec [flags] ID [-- WORD…]",
		Short: "Run one call of a session",
		Long: `Run the skill in the sandbox of a session, as exec does in one of its own. Parameters, inputs,
secrets and the result file are this call's alone; what is left in /output is taken with --output
and stays. --env NAME[=VALUE] is for names that were passed at the start. The call ends with its
first process: what else it has started lives on, without its input and output.

The exit code is exec's; 125 also where the session is unknown, over or busy.`,
		Example: `  skillbox session exec --params '{"text":"a b a"}' $id
  skillbox session exec --json $id -- python3 scripts/step.py`,
		RunE: func(c *cobra.Command, args []string) error {
			dash := c.ArgsLenAtDash()
			if named := len(args); named == 0 || dash == 0 || dash < 0 && named != 1 || dash > 1 {
				return &helper.Error{Message: "one session's id is needed", Hint: "words for the skill come after --"}
			}
			o.session = args[0]
			return o.exec(args, dash)
		},
	}
	o.registerCall(c)
	c.Flags().StringArrayVarP(&o.env, "env", "e", nil, "`NAME[=VALUE]` for the skill's environment, where the session passes it; repeatable")
	c.Flags().DurationVarP(&o.timeout, "timeout", "t", 0, "longest `time` the call may take, at most the session's (default: the session's)")
	o.registerMode(c)
	c.ValidArgsFunction = completeSession
	return c
}

func sessionStopCommand() *cobra.Command {
	var o options
	c := &cobra.Command{
		Use:   "stop [flags] ID",
		Short: "End a session",
		Long: `End a session, every process of it, and the call that it serves. With --json what its processes
were refused and reached after the last call is told.`,
		Example: `  skillbox session stop $id`,
		Args:    cobra.ExactArgs(1),
		RunE: func(_ *cobra.Command, args []string) error {
			answer, err := askSession(o.mode, &helper.Request{Version: helper.Version, Op: helper.OpSessionStop, Session: args[0]}, nil)
			if err != nil {
				return err
			}
			if answer.Plan == nil {
				return answer.Result.Error
			}
			if o.json {
				return printDocument(answer.Plan)
			}
			return nil
		},
	}
	o.registerMode(c)
	c.Flags().BoolVar(&o.json, "json", false, "print one JSON object")
	c.ValidArgsFunction = completeOne(liveSessions)
	return c
}

// askSession asks the service, and the next one if it leaves.
func askSession(mode string, r *helper.Request, fds []int) (*helper.Answer, error) {
	for tries := 0; ; tries++ {
		peer, err := client.ConnectSession(mode, r)
		if err != nil {
			return nil, err
		}
		answer, err := peer.Do(r, fds, os.LookupEnv)
		closed := peer.Close()
		if errors.Is(err, helper.ErrRetired) && tries < client.Tries {
			continue
		}
		return answer, errors.Join(err, closed)
	}
}
