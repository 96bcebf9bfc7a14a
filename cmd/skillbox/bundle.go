package main

import (
	"encoding/json"
	"fmt"
	"maps"
	"os"
	"slices"
	"strings"

	"github.com/spf13/cobra"
	"golang.org/x/sys/unix"

	"skillbox/cmd/cli"
	"skillbox/helper"
)

func bundleCommand() *cobra.Command {
	c := &cobra.Command{
		Use:   "bundle",
		Short: "Look at skills without running them, name and sign them",
		Long: `A bundle is a directory with a skill in it: an Agent Skill (SKILL.md), a Skillware skill
(manifest.yaml and skill.py), one with skillbox's own manifest (skillbox.yaml), or any directory.
These commands run nothing of it. It is named by the digest of all that is in it, and vouched
for by a signature that binds it to a policy.`,
		Example: `  skillbox bundle show examples/word-count
  skillbox bundle digest examples/word-count
  skillbox bundle sign --key signer --policy policy.yaml examples/word-count`,
		Args: cobra.NoArgs,
		RunE: func(c *cobra.Command, _ []string) error { return c.Help() },
	}
	c.AddCommand(bundleShowCommand())
	for _, one := range []struct{ use, short string }{
		{"digest BUNDLE", "Print the digest that names a bundle's contents"},
		{"key FILE", "Make a key to sign bundles with"},
		{"sign --key FILE BUNDLE", "Sign a bundle, for one policy"},
		{"verify --pubkey KEY BUNDLE", "Say whether a key has signed a bundle, for one policy"},
	} {
		c.AddCommand(handedOver(looker, helper.CodeFailed, &cobra.Command{
			Use: one.use, Short: one.short, Long: one.short + ".\nThe program skillbox-scan does it, and has the help.",
			Example: "  skillbox bundle " + one.use,
		}))
	}
	return c
}

func bundleShowCommand() *cobra.Command {
	var asJSON bool
	c := &cobra.Command{
		Use:   "show BUNDLE",
		Short: "Say what a skill says about itself",
		Long: `Print what the manifest of a skill says: name, version, license, what it needs, the tools it wants
its agent to have, what it offers to be called, and which policy it declares. It is the skill's own
word, and grants nothing. What could not be read of a manifest is told under warnings.

Exit code: 0, or 125 for a bundle that cannot be read.`,
		Example: `  skillbox bundle show examples/word-count
  skillbox bundle show --json examples/agent-skill-dates`,
		Args:              cobra.ExactArgs(1),
		ValidArgsFunction: completeOne(directories),
		RunE:              func(_ *cobra.Command, args []string) error { return showBundle(args[0], asJSON) },
	}
	c.Flags().BoolVar(&asJSON, "json", false, "print one JSON object")
	return c
}

func showBundle(dir string, asJSON bool) error {
	fd, err := unix.Open(dir, unix.O_RDONLY|unix.O_DIRECTORY|unix.O_CLOEXEC, 0)
	if err != nil {
		return &os.PathError{Op: "open bundle", Path: dir, Err: err}
	}
	document, err := ask(&helper.Request{Version: helper.Version, Op: helper.OpBundleShow, BundleName: dir, Files: []string{"bundle"}}, []int{fd})
	if err != nil {
		return err
	}
	if asJSON {
		return printDocument(document)
	}
	var b helper.BundleShown
	if err := json.Unmarshal(document, &b); err != nil {
		return err
	}
	fmt.Print(cli.VisibleLines(bundleText(&b)))
	warn(b.Warnings)
	return nil
}

// bundleText is a line for each thing that a bundle says, and several for its lists.
func bundleText(b *helper.BundleShown) string {
	var text strings.Builder
	line := func(key, value string) {
		if value != "" {
			fmt.Fprintf(&text, "%-14s %s\n", key, strings.ReplaceAll(strings.TrimSpace(value), "\n", "\n"+strings.Repeat(" ", 15)))
		}
	}
	line("kind", b.Kind)
	line("name", b.Name)
	line("version", b.Version)
	line("description", b.Description)
	line("manifest", b.Manifest)
	line("license", b.License)
	line("compatibility", b.Needs)
	line("allowed-tools", strings.Join(b.AllowedTools, "\n"))
	for _, key := range slices.Sorted(maps.Keys(b.Metadata)) {
		line("metadata", key+": "+b.Metadata[key])
	}
	line("requirements", strings.Join(b.Requirements, "\n"))
	line("env_vars", strings.Join(b.EnvVars, "\n"))
	line("policy", b.Declares)
	for _, e := range b.Entries {
		line("entry", e.Name+": "+strings.Join(e.Command, " "))
	}
	return text.String()
}
