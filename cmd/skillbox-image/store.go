package main

import (
	"encoding/json"
	"fmt"
	"os"
	"strings"
	"text/tabwriter"

	"github.com/spf13/cobra"

	"skillbox/cmd/cli"
	"skillbox/helper"
	"skillbox/image"
)

func listCommand(s *store) *cobra.Command {
	var asJSON bool
	c := &cobra.Command{
		Use: "list", Aliases: []string{"ls"}, Short: "List the images of the store", Long: "List the names in the store, and what they stand for.",
		Example: "  skillbox image list --json", Args: cobra.NoArgs,
		RunE: func(*cobra.Command, []string) error {
			st, err := s.open()
			if err != nil {
				return err
			}
			images, err := st.List()
			if err != nil {
				return err
			}
			if asJSON {
				return printJSON(images)
			}
			w := tabwriter.NewWriter(os.Stdout, 0, 4, 2, ' ', 0)
			fmt.Fprintln(w, "NAME\tDIGEST\tSIZE\tPLATFORM")
			for _, i := range images {
				fmt.Fprintf(w, "%s\t%.19s\t%s\t%s\n", cli.Visible(i.Ref), i.Digest, size(i.Size), cli.Visible(i.Platform))
			}
			return w.Flush()
		},
	}
	c.Flags().BoolVar(&asJSON, "json", false, "print a JSON array")
	return c
}

func inspectCommand(s *store) *cobra.Command {
	return &cobra.Command{
		Use: "inspect REF", Short: "Show what the store knows of an image", Long: "Print one JSON object: digests, size, layers, and the image's own configuration.",
		Example: "  skillbox image inspect debian:stable-slim", Args: oneArgument("REF"),
		RunE: func(_ *cobra.Command, args []string) error {
			found, err := image.Find(args[0], s.path(), image.SystemDir)
			if err != nil {
				return err
			}
			return printJSON(found)
		},
	}
}

func rmCommand(s *store) *cobra.Command {
	return &cobra.Command{
		Use: "rm REF…", Short: "Take names away, and images that nothing else names",
		Long:    "Take names away. An image without any other name goes too, and those of its layers that no other image has.\nWhat a sandbox runs in is refused.",
		Example: "  skillbox image rm debian:stable-slim", Args: cobra.MinimumNArgs(1),
		RunE: func(c *cobra.Command, args []string) error {
			st, err := s.open()
			if err != nil {
				return err
			}
			for _, ref := range args {
				if err := st.Remove(c.Context(), ref); err != nil {
					return err
				}
			}
			return nil
		},
	}
}

func gcCommand(s *store) *cobra.Command {
	return &cobra.Command{
		Use: "gc", Short: "Take away what nothing names", Long: "Take away images without a name, layers of no image, and what interrupted pulls have left. What a sandbox runs in stays.",
		Example: "  skillbox image gc", Args: cobra.NoArgs,
		RunE: func(c *cobra.Command, _ []string) error {
			st, err := s.open()
			if err != nil {
				return err
			}
			gone, err := st.Collect(c.Context())
			if err != nil {
				return err
			}
			fmt.Printf("removed: %d images, %d layers, %d unfinished\n", gone.Images, gone.Layers, gone.Unfinished)
			if gone.Busy > 0 {
				return &helper.Error{Message: fmt.Sprintf("%d images stay, for sandboxes run in them, or something else holds them: %s", gone.Busy, strings.Join(gone.Holders, ", ")), Hint: "run it again when these have ended"}
			}
			return nil
		},
	}
}

func printJSON(v any) error {
	e := json.NewEncoder(cli.JSONOut{})
	e.SetIndent("", "  ")
	return e.Encode(v)
}
