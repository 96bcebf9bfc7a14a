package main

import (
	"os"

	"github.com/spf13/cobra"
)

// completionCommand stands in for cobra's own, which has no examples and knows shells of other systems.
func completionCommand() *cobra.Command {
	return &cobra.Command{
		Use:   "completion bash|zsh|fish",
		Short: "Print a script that completes skillbox's commands",
		Long: `Print a script for your shell: it completes commands, flags, bundle directories and policy files.
bash needs its package bash-completion.`,
		Example: `  skillbox completion bash > ~/.local/share/bash-completion/completions/skillbox
  skillbox completion zsh > "${fpath[1]}/_skillbox"
  skillbox completion fish > ~/.config/fish/completions/skillbox.fish`,
		Args:                  cobra.MatchAll(cobra.ExactArgs(1), cobra.OnlyValidArgs),
		ValidArgs:             []string{"bash", "zsh", "fish"},
		DisableFlagsInUseLine: true,
		RunE: func(c *cobra.Command, args []string) error {
			switch root := c.Root(); args[0] {
			case "bash":
				return root.GenBashCompletionV2(os.Stdout, true)
			case "zsh":
				return root.GenZshCompletion(os.Stdout)
			default:
				return root.GenFishCompletion(os.Stdout, true)
			}
		},
	}
}

// A completer offers values for one argument.
type completer func() ([]string, cobra.ShellCompDirective)

func directories() ([]string, cobra.ShellCompDirective) {
	return nil, cobra.ShellCompDirectiveFilterDirs
}

func yamlFiles() ([]string, cobra.ShellCompDirective) {
	return []string{"yaml", "yml"}, cobra.ShellCompDirectiveFilterFileExt
}

func tomlFiles() ([]string, cobra.ShellCompDirective) {
	return []string{"toml"}, cobra.ShellCompDirectiveFilterFileExt
}

func skillEngine() ([]string, cobra.ShellCompDirective) {
	return []string{"skill-engine"}, cobra.ShellCompDirectiveNoFileComp
}

func modes() ([]string, cobra.ShellCompDirective) {
	return []string{"auto", "system", "user", "oneshot"}, cobra.ShellCompDirectiveNoFileComp
}

func nothing() ([]string, cobra.ShellCompDirective) {
	return nil, cobra.ShellCompDirectiveNoFileComp
}

func serviceModes() ([]string, cobra.ShellCompDirective) {
	return []string{"auto", "system", "user"}, cobra.ShellCompDirectiveNoFileComp
}

// liveSessions are those of the caller's service.
func liveSessions() ([]string, cobra.ShellCompDirective) {
	var ids []string
	for _, one := range statusForShell().Sessions {
		ids = append(ids, one.ID)
	}
	return ids, cobra.ShellCompDirectiveNoFileComp
}

// completeSession completes ID; what follows is the skill's business.
func completeSession(_ *cobra.Command, args []string, _ string) ([]string, cobra.ShellCompDirective) {
	if len(args) > 0 {
		return nil, cobra.ShellCompDirectiveDefault
	}
	return liveSessions()
}

// completeOne completes the first argument, and nothing after it.
func completeOne(first completer) cobra.CompletionFunc {
	return func(_ *cobra.Command, args []string, _ string) ([]string, cobra.ShellCompDirective) {
		if len(args) > 0 {
			return nil, cobra.ShellCompDirectiveNoFileComp
		}
		return first()
	}
}

// completeBundle completes BUNDLE. What follows is behind a --, and the skill's business: often files.
func completeBundle(_ *cobra.Command, args []string, _ string) ([]string, cobra.ShellCompDirective) {
	if len(args) > 0 {
		return nil, cobra.ShellCompDirectiveDefault
	}
	return directories()
}

// completeFlag sets what completes a flag's value.
func completeFlag(c *cobra.Command, name string, values completer) {
	err := c.RegisterFlagCompletionFunc(name, func(*cobra.Command, []string, string) ([]string, cobra.ShellCompDirective) { return values() })
	if err != nil {
		panic(err) // a flag that this program does not have
	}
}
