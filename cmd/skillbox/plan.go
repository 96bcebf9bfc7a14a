package main

import (
	"encoding/json"
	"errors"
	"fmt"
	"os"

	"github.com/spf13/cobra"

	"skillbox/helper"
)

func planCommand() *cobra.Command {
	var o options
	c := &cobra.Command{
		Use:   "plan [flags] BUNDLE [-- WORD…]",
		Short: "Show what exec would do, without doing it",
		Long: `Show the whole plan of a run: the policy that holds where ceiling, operator and skill meet, what
was lowered and why, the tree, the limits and the command. --oci prints the OCI runtime spec.`,
		Example: `  skillbox plan --policy policy.yaml bundle/
  skillbox plan --oci bundle/ -- python3 x.py`,
		RunE: func(c *cobra.Command, args []string) error {
			r, fds, err := o.request(helper.OpPlan, args, c.ArgsLenAtDash())
			var document json.RawMessage
			if err == nil {
				document, err = ask(r, fds)
			}
			if err := errors.Join(err, o.finish()); err != nil {
				return err
			}
			warn(o.warnings)
			return printDocument(document)
		},
	}
	o.register(c)
	c.Flags().BoolVar(&o.oci, "oci", false, "print the OCI runtime spec that will run")
	return c
}

// ask sends a request that is answered with a document.
func ask(r *helper.Request, fds []int) (json.RawMessage, error) {
	spawn := helper.Spawn
	if helper.Plain(r.Op) {
		spawn = helper.SpawnPlain
	}
	process, err := spawn()
	if err != nil {
		return nil, err
	}
	return document(process, r, fds)
}

// document sends a request that is answered with one, and ends the connection.
func document(process *helper.Peer, r *helper.Request, fds []int) (json.RawMessage, error) {
	answer, err := process.Do(r, fds, os.LookupEnv)
	if err := errors.Join(err, process.Close()); err != nil {
		return nil, err
	}
	if answer.Plan == nil {
		return nil, answer.Result.Error
	}
	return answer.Plan, nil
}

func printDocument(document json.RawMessage) error {
	var v any
	if err := json.Unmarshal(document, &v); err != nil {
		return err
	}
	text, err := json.MarshalIndent(v, "", "  ")
	if err != nil {
		return err
	}
	_, err = fmt.Println(string(text))
	return err
}
