package main

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"

	"github.com/spf13/cobra"

	"skillbox/cmd/cli"
	"skillbox/helper"
)

func policyCommand() *cobra.Command {
	c := &cobra.Command{
		Use:   "policy",
		Short: "Check and write policies",
		Long: `A policy says what a skill may see and do; what it does not mention keeps a safe default. These
commands write a first policy, check one, explain its network rules, and describe every key to an
editor. They run nothing, and work on machines where no sandbox does.`,
		Example: `  skillbox policy init policy.yaml
  skillbox policy check policy.yaml`,
		Args: cobra.NoArgs,
		RunE: func(c *cobra.Command, _ []string) error { return c.Help() },
	}
	c.AddCommand(policyCheckCommand(), policyExplainCommand(), policyInitCommand(), policyLearnCommand(), policySchemaCommand())
	return c
}

func policyCheckCommand() *cobra.Command {
	var asJSON bool
	c := &cobra.Command{
		Use:   "check FILE",
		Short: "Check a policy and print what it says, defaults included",
		Long: `Check a policy, whatever this machine can enforce. A good one is printed with every default
filled in. For a bad one all errors are printed, one to a line, as file:line:column: key:
what is wrong (what to write instead). FILE may be - for standard input.

Exit code: 0 for a good policy, 1 for a bad one, 125 if it could not be checked.`,
		Example: `  skillbox policy check policy.yaml
  skillbox policy check --json policy.yaml
  generate-policy | skillbox policy check -`,
		Args:              cobra.ExactArgs(1),
		ValidArgsFunction: completeOne(yamlFiles),
		RunE:              func(_ *cobra.Command, args []string) error { return checkPolicy(args[0], asJSON) },
	}
	c.Flags().BoolVar(&asJSON, "json", false, "print one JSON object with the errors, or with the policy and its digest")
	return c
}

func checkPolicy(name string, asJSON bool) error {
	fd := 0
	if name == "-" {
		name = "stdin"
	} else {
		var err error
		if fd, err = openRead(name); err != nil {
			return err
		}
	}
	r := &helper.Request{Version: helper.Version, Op: helper.OpPolicyCheck, PolicyName: name, Files: []string{"policy"}}
	document, err := ask(r, []int{fd})
	if err != nil {
		return err
	}
	var checked helper.PolicyChecked
	if err := json.Unmarshal(document, &checked); err != nil {
		return err
	}
	switch {
	case asJSON:
		if err := printDocument(document); err != nil {
			return err
		}
	case checked.Valid:
		fmt.Print(checked.Policy)
	}
	if checked.Valid {
		return nil
	}
	if !asJSON {
		for _, e := range checked.Errors {
			fmt.Println(oneLine(e))
		}
		cli.Complain(errors.New(counted(len(checked.Errors), "error")))
	}
	return cli.Exit(1)
}

// oneLine is an error with its hint, as compilers print them.
func oneLine(e *helper.Error) string {
	if e.Hint == "" {
		return e.Error()
	}
	return e.Error() + " (" + e.Hint + ")"
}

func counted(n int, what string) string {
	if n == 1 {
		return "1 " + what
	}
	return fmt.Sprintf("%d %ss", n, what)
}

func policyExplainCommand() *cobra.Command {
	var name string
	var asJSON bool
	c := &cobra.Command{
		Use:   "explain --policy FILE [NAME:PORT | ADDRESS:PORT]…",
		Short: "Say what a policy lets a skill reach, and by which line",
		Long: `Say of each destination whether the policy lets a skill reach it, and which line decides; without
one, print the table of all rules. Nothing is looked up and nothing is contacted. The exit code is 1
if a destination is refused.`,
		Example: `  skillbox policy explain --policy policy.yaml api.example.com:443
  skillbox policy explain --policy policy.yaml 10.0.0.7:53/udp '[2001:db8::1]:443'
  skillbox policy explain --policy policy.yaml`,
		RunE: func(_ *cobra.Command, args []string) error { return explainPolicy(name, args, asJSON) },
	}
	c.Flags().StringVar(&name, "policy", "", "policy `file`")
	c.Flags().BoolVar(&asJSON, "json", false, "print one JSON document")
	return c
}

func explainPolicy(name string, destinations []string, asJSON bool) error {
	if name == "" {
		return &helper.Error{Message: "no policy is named", Hint: "--policy FILE"}
	}
	fd, err := openRead(name)
	if err != nil {
		return err
	}
	r := &helper.Request{Version: helper.Version, Op: helper.OpPolicyExplain, PolicyName: name, Files: []string{"policy"}, Words: destinations}
	document, err := ask(r, []int{fd})
	if err != nil {
		return err
	}
	var explained helper.Explained
	if err := json.Unmarshal(document, &explained); err != nil {
		return err
	}
	switch {
	case asJSON:
		if err := printDocument(document); err != nil {
			return err
		}
	case len(destinations) == 0:
		fmt.Print(explained.Table)
	}
	refused := false
	for _, d := range explained.Destinations {
		refused = refused || !d.Allowed
		if !asJSON {
			fmt.Println(destinationLine(d))
		}
	}
	if refused {
		return cli.Exit(1)
	}
	return nil
}

// destinationLine is "api.example.com:443 allowed by policy.yaml:4 (network.egress)".
func destinationLine(d helper.Destination) string {
	line := d.To + " refused"
	if d.Allowed {
		line = d.To + " allowed"
	}
	if d.Rule != "" {
		line += " by " + d.Rule + " (" + d.Why + ")"
	} else {
		line += ": " + d.Why
	}
	if d.Hint != "" {
		line += "; " + d.Hint
	}
	return line
}

func policyInitCommand() *cobra.Command {
	return &cobra.Command{
		Use:   "init [FILE]",
		Short: "Write a first policy with comments",
		Long: `Write a valid, commented policy that grants no more than the defaults, to FILE or to standard
output. An existing file is never overwritten.`,
		Example: `  skillbox policy init policy.yaml
  skillbox policy init | less`,
		Args:              cobra.MaximumNArgs(1),
		ValidArgsFunction: completeOne(yamlFiles),
		RunE: func(_ *cobra.Command, args []string) error {
			text, err := askText(helper.OpPolicyInit)
			if err != nil {
				return err
			}
			if len(args) == 0 {
				_, err = os.Stdout.WriteString(text)
				return err
			}
			return writeNew(args[0], text)
		},
	}
}

// writeNew creates a file; one that is there, a link included, stays as it is.
func writeNew(path, text string) error {
	f, err := os.OpenFile(path, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o644)
	if errors.Is(err, fs.ErrExist) {
		return &helper.Error{Message: path + " exists", Hint: "choose another name; nothing is ever overwritten"}
	}
	if err != nil {
		return err
	}
	_, err = f.WriteString(text)
	return errors.Join(err, f.Close())
}

func policySchemaCommand() *cobra.Command {
	return &cobra.Command{
		Use:   "schema",
		Short: "Print the JSON Schema of policies, for editors",
		Long: `Print the JSON Schema (2020-12) of a policy file. Editors that use it complete keys and explain
them; with the YAML language server, put this at the top of a policy:
  # yaml-language-server: $schema=./policy.schema.json`,
		Example: `  skillbox policy schema > policy.schema.json`,
		Args:    cobra.NoArgs,
		RunE: func(*cobra.Command, []string) error {
			text, err := askText(helper.OpPolicySchema)
			if err != nil {
				return err
			}
			_, err = os.Stdout.WriteString(text)
			return err
		},
	}
}

// askText asks for a text that needs nothing to be known.
func askText(op string) (string, error) {
	document, err := ask(&helper.Request{Version: helper.Version, Op: op}, nil)
	if err != nil {
		return "", err
	}
	var answer helper.Text
	if err := json.Unmarshal(document, &answer); err != nil {
		return "", err
	}
	return answer.Text, nil
}
