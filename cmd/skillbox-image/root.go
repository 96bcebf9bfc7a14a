package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"os"
	"os/signal"
	"syscall"

	"github.com/spf13/cobra"

	"skillbox/cmd/cli"
	"skillbox/helper"
	"skillbox/image"
)

// version is set by the linker.
var version = "dev"

func run(args []string) int {
	if len(args) == 1 && args[0] == "version" {
		fmt.Println(version)
		return 0
	}
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM, syscall.SIGHUP)
	defer stop()
	context.AfterFunc(ctx, stop) // a second signal ends the process, whatever it waits for
	root := rootCommand()
	root.SetArgs(args)
	if err := root.ExecuteContext(ctx); err != nil {
		if ctx.Err() != nil {
			err = errors.New("interrupted: what was complete of the image is kept for the next time")
		}
		cli.Complain(err)
		return helper.CodeFailed
	}
	return 0
}

// store is where images are: the same flag for each command.
type store struct{ dir string }

func (s *store) open() (*image.Store, error) { return image.OpenStore(s.path()) }

func (s *store) path() string { return cmp.Or(s.dir, image.DefaultDir()) }

// rootCommand is named as the program that people call.
func rootCommand() *cobra.Command {
	root := &cobra.Command{
		Short: "Look after images", Long: "skillbox-image is what the program skillbox becomes for `skillbox image`.",
		Example: `  skillbox image pull debian:stable-slim`,
	}
	images := &cobra.Command{
		Use:   "image",
		Short: "Fetch and look after images that skills can run in",
		Long: `Fetch OCI images and look after them. A policy uses one with rootfs: {base: "image:REF"}: its files are
then the skill's system, read-only, instead of the host's. No daemon and no other program takes part.

Images are kept in ~/.local/share/skillbox/images ($XDG_DATA_HOME), those of root, which everybody may
use, in ` + image.SystemDir + `.`,
		Example: `  skillbox image pull debian:stable-slim
  skillbox image import docker-archive:tool.tar --name example.com/tool:1
  skillbox image list`,
		Args: cobra.ArbitraryArgs,
		RunE: func(c *cobra.Command, args []string) error {
			if len(args) == 0 {
				return c.Help()
			}
			return &helper.Error{Message: fmt.Sprintf("skillbox image has no command %q", args[0]), Hint: "skillbox image --help lists them"}
		},
	}
	s := &store{}
	for _, c := range []*cobra.Command{pullCommand(s), importCommand(s), listCommand(s), inspectCommand(s), rmCommand(s), gcCommand(s)} {
		c.Flags().StringVar(&s.dir, "store", "", "`directory` with the images (default: yours)")
		images.AddCommand(c)
	}
	return cli.Root(root, images)
}
