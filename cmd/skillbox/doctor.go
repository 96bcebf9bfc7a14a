package main

import (
	"errors"
	"fmt"
	"os"
	"os/signal"
	"syscall"

	"github.com/spf13/cobra"
	"golang.org/x/sys/unix"

	"skillbox/cmd/cli"
	"skillbox/doctor"
)

func doctorCommand() *cobra.Command {
	var asJSON bool
	c := &cobra.Command{
		Use:   "doctor",
		Short: "Try what skillbox needs of this machine, and say how to get what is missing",
		Long: `Try each kernel feature, mode and limit for real, as the user who calls it, and say what works,
what does not and which command helps. Root and ordinary users run skillbox in different ways:
call it as the user who will run skills. It changes nothing and takes about a second.

Exit code: 0 if this user can run skills, 1 if not.`,
		Example: `  skillbox doctor
  sudo skillbox doctor
  skillbox doctor --json | jq .modes`,
		Args: cobra.NoArgs,
		RunE: func(c *cobra.Command, _ []string) error {
			// An interrupt ends the tries, and what they made for themselves goes with them.
			ctx, stop := signal.NotifyContext(c.Context(), os.Interrupt, syscall.SIGTERM, syscall.SIGHUP)
			defer stop()
			facts := doctor.Look(ctx, version)
			if ctx.Err() != nil {
				return errors.New("interrupted")
			}
			report := doctor.Examine(version, facts)
			if asJSON {
				if err := printJSON(report); err != nil {
					return err
				}
			} else {
				fmt.Print(report.Text(colourful()))
			}
			if !report.Works() {
				return cli.Exit(1)
			}
			return nil
		},
	}
	c.Flags().BoolVar(&asJSON, "json", false, "print one JSON object")
	return c
}

// colourful tells whether stdout is a terminal whose user has not opted out (no-color.org).
func colourful() bool {
	_, err := unix.IoctlGetTermios(1, unix.TCGETS)
	return err == nil && os.Getenv("NO_COLOR") == "" && os.Getenv("TERM") != "dumb"
}
