package main

import (
	"fmt"
	"runtime"

	"github.com/spf13/cobra"
)

// version is set by the linker.
var version = "dev"

func versionCommand() *cobra.Command {
	return &cobra.Command{
		Use:   "version",
		Short: "Print the version",
		Args:  cobra.NoArgs,
		RunE: func(*cobra.Command, []string) error {
			_, err := fmt.Printf("skillbox %s %s/%s\n", version, runtime.GOOS, runtime.GOARCH)
			return err
		},
	}
}
