// go-host is an agent host in Go: it runs a skill with parameters and prints what the skill answered. Several parameters are the turns of one
// conversation, which has a sandbox that lasts: a session. Its skillboxd lies beside it or where
// packages put it.
//
//	go-host SKILL [JSON…]
package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/signal"

	"skillbox/client"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	defer stop()
	if err := run(ctx, os.Args[1:]); err != nil {
		fmt.Fprintln(os.Stderr, "go-host:", err)
		os.Exit(1)
	}
}

func run(ctx context.Context, args []string) error {
	if len(args) < 1 {
		return fmt.Errorf("usage: go-host SKILL [JSON…]")
	}
	if len(args) > 2 {
		return converse(ctx, args[0], args[1:])
	}
	call := client.Call{Bundle: args[0], Mode: "user"}
	if len(args) == 2 {
		call.Params = []byte(args[1])
	}
	result, err := client.Exec(ctx, call)
	if err != nil {
		return err
	}
	return show(args[0], result)
}

// converse has one sandbox for all turns: what the skill leaves in /tmp in one is there in the next.
func converse(ctx context.Context, skill string, turns []string) (err error) {
	session, err := client.StartSession(ctx, client.SessionOptions{Bundle: skill, Mode: "user"})
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, session.Stop(context.WithoutCancel(ctx))) }()
	for _, params := range turns {
		result, err := session.Exec(ctx, client.Call{Params: []byte(params)})
		if err == nil {
			err = show(skill, result)
		}
		if err != nil {
			return err
		}
	}
	return nil
}

func show(skill string, result *client.Result) error {
	for _, d := range result.Denials {
		fmt.Fprintf(os.Stderr, "go-host: the skill was refused %s; %s\n", d.What, d.Hint)
	}
	if result.Error != nil {
		return result.Error
	}
	if !result.Success {
		return fmt.Errorf("%s %s with %d", skill, result.Verdict, result.ExitCode)
	}
	fmt.Printf("%s\n", result.Result)
	return nil
}
