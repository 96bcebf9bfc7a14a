package main

import (
	"encoding/json"
	"fmt"

	"github.com/spf13/cobra"

	"skillbox/helper"
)

func policyCommand() *cobra.Command {
	c := &cobra.Command{Use: "policy", Short: "Check and write policies"}
	c.AddCommand(&cobra.Command{
		Use:     "check FILE",
		Short:   "Check a policy and print what it says, defaults included",
		Example: "  skillbox policy check policy.yaml",
		Args:    cobra.ExactArgs(1),
		RunE: func(_ *cobra.Command, args []string) error {
			fd, err := openRead(args[0])
			if err != nil {
				return err
			}
			r := &helper.Request{Version: helper.Version, Op: helper.OpPolicyCheck, PolicyName: args[0], Files: []string{"policy"}}
			document, err := ask(r, []int{fd})
			if err != nil {
				return err
			}
			var checked struct{ Policy string }
			if err := json.Unmarshal(document, &checked); err != nil {
				return err
			}
			fmt.Print(checked.Policy)
			return nil
		},
	})
	return c
}
