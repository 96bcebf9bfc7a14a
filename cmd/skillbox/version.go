package main

import (
	"fmt"
	"os"
	"runtime"

	"github.com/spf13/cobra"

	"skillbox/doctor"
	"skillbox/helper"
)

// version is set by the linker.
var version = "dev"

// versions is what `version --json` prints; a program that is missing or does not answer has "".
type versions struct {
	Client    string   `json:"client"`
	Skillboxd string   `json:"skillboxd"`
	Init      string   `json:"init"`
	Protocol  int      `json:"protocol"`
	OS        string   `json:"os"`
	Arch      string   `json:"arch"`
	Warnings  []string `json:"warnings"`
}

func versionCommand() *cobra.Command {
	var asJSON bool
	c := &cobra.Command{
		Use:   "version",
		Short: "Print the versions of skillbox's programs",
		Long: `Print the versions of the three programs that make a sandbox: skillbox (this one), skillboxd, which
prepares it, and skillbox-init, which runs inside. They are installed together; where they
differ there is a warning.`,
		Example: `  skillbox version
  skillbox version --json`,
		Args: cobra.NoArgs,
		RunE: func(c *cobra.Command, _ []string) error {
			v := compareVersions(doctor.FindPrograms(c.Context(), version))
			if asJSON {
				return printJSON(v)
			}
			fmt.Printf("skillbox %s %s/%s\nskillboxd %s\nskillbox-init %s\n", v.Client, v.OS, v.Arch, orMissing(v.Skillboxd), orMissing(v.Init))
			for _, w := range v.Warnings {
				fmt.Fprintf(os.Stderr, "skillbox: warning: %s\n", w)
			}
			return nil
		},
	}
	c.Flags().BoolVar(&asJSON, "json", false, "print one JSON object")
	return c
}

func orMissing(version string) string {
	if version == "" {
		return "missing"
	}
	return version
}

// compareVersions judges the three programs, the client first.
func compareVersions(programs []doctor.Program) versions {
	v := versions{Protocol: helper.Version, OS: runtime.GOOS, Arch: runtime.GOARCH, Warnings: []string{}}
	into := map[string]*string{"skillbox": &v.Client, "skillboxd": &v.Skillboxd, "skillbox-init": &v.Init}
	for _, p := range programs {
		*into[p.Name] = p.Version
		switch {
		case p.Error != "":
			v.Warnings = append(v.Warnings, p.Error)
		case p.Version != programs[0].Version:
			v.Warnings = append(v.Warnings, fmt.Sprintf("%s is version %s, skillbox is %s: install all three from one build", p.Path, p.Version, programs[0].Version))
		}
	}
	return v
}
