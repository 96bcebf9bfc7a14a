// go-host is an agent host in Go: it runs a skill with parameters and prints what the skill answered. Its skillboxd lies beside it or where
// packages put it.
//
//	go-host SKILL [JSON]
package main

import (
	"context"
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
	if len(args) < 1 || len(args) > 2 {
		return fmt.Errorf("usage: go-host SKILL [JSON]")
	}
	call := client.Call{Bundle: args[0], Mode: "user"}
	if len(args) == 2 {
		call.Params = []byte(args[1])
	}
	result, err := client.Exec(ctx, call)
	if err != nil {
		return err
	}
	for _, d := range result.Denials {
		fmt.Fprintf(os.Stderr, "go-host: the skill was refused %s; %s\n", d.What, d.Hint)
	}
	if result.Error != nil {
		return result.Error
	}
	if !result.Success {
		return fmt.Errorf("%s %s with %d", args[0], result.Verdict, result.ExitCode)
	}
	fmt.Printf("%s\n", result.Result)
	return nil
}
