package main

import (
	"context"
	"fmt"
	"os"
	"strings"

	"github.com/spf13/cobra"

	"skillbox/cmd/cli"
	"skillbox/helper"
	"skillbox/image"
	"skillbox/image/registry"
	"skillbox/image/unpack"
)

// fetching are the flags of pull and import.
type fetching struct {
	registry.Options
	mirrors []string
	quiet   bool
}

func (f *fetching) register(c *cobra.Command) {
	l := c.Flags()
	l.StringVar(&f.Platform, "platform", "", "`os/arch[/variant]` of the image (default "+image.Platform()+")")
	l.Int64Var(&f.Limits.Bytes, "max-bytes", unpack.DefaultBytes, "most `bytes` that all its files may have")
	l.Int64Var(&f.Limits.Entries, "max-entries", unpack.DefaultEntries, "most `entries` that all its layers may have")
	l.Int64Var(&f.Limits.Ratio, "max-ratio", unpack.DefaultRatio, "most `times` that a layer may be as large as compressed, above 64 MiB")
	l.BoolVarP(&f.quiet, "quiet", "q", false, "say nothing but errors")
}

func (f *fetching) do(ctx context.Context, get func(context.Context, registry.Options) (*image.Image, error)) error {
	if err := withoutRights(); err != nil {
		return err
	}
	f.Agent = "skillbox/" + version
	f.Notice = func(text string) { fmt.Fprintln(os.Stderr, "skillbox: "+cli.VisibleLines(text)) }
	f.Progress = &registry.Progress{}
	stop := f.show()
	found, err := get(ctx, f.Options)
	stop()
	if err != nil {
		return err
	}
	if !f.quiet {
		fmt.Println(found.Digest)
		for _, what := range found.Skipped {
			fmt.Fprintf(os.Stderr, "skillbox: left out: %s\n", cli.VisibleLines(what))
		}
	}
	return nil
}

func pullCommand(s *store) *cobra.Command {
	f := &fetching{}
	c := &cobra.Command{
		Use:   "pull REF",
		Short: "Fetch an image from a registry",
		Long: `Fetch an image from its registry, or what the store does not have of it, and print its digest. Names and
passwords come from docker's configuration file (~/.docker/config.json with its helpers), else from
podman's. A reference with a digest is held against it.`,
		Example: `  skillbox image pull debian:stable-slim
  skillbox image pull --mirror docker.io=mirror.example.com/hub python:3.13-slim
  skillbox image pull --platform linux/arm64 example.com/tool@sha256:…`,
		Args: oneArgument("REF"),
		RunE: func(c *cobra.Command, args []string) error {
			for _, m := range f.mirrors {
				registryOf, place, ok := strings.Cut(m, "=")
				if !ok || registryOf == "" || place == "" {
					return &helper.Error{Message: fmt.Sprintf("--mirror %s: it is REGISTRY=HOST[:PORT][/PREFIX]", m)}
				}
				f.Mirrors = append(f.Mirrors, registry.Mirror{Registry: registryOf, Place: place})
			}
			st, err := s.open()
			if err != nil {
				return err
			}
			return f.do(c.Context(), func(ctx context.Context, o registry.Options) (*image.Image, error) {
				return registry.Pull(ctx, st, args[0], o)
			})
		},
	}
	f.register(c)
	c.Flags().BoolVar(&f.PlainHTTP, "plain-http", false, "speak http with a registry that does not speak https")
	c.Flags().StringArrayVar(&f.mirrors, "mirror", nil, "`REGISTRY=HOST[/PREFIX]` to ask first; repeatable")
	return c
}

func importCommand(s *store) *cobra.Command {
	f := &fetching{}
	c := &cobra.Command{
		Use:   "import oci:DIR|docker-archive:FILE",
		Short: "Take an image from a directory or an archive",
		Long: `Take an image from an OCI image layout (a directory with index.json) or from an archive that docker save
or podman save wrote, and print its digest.`,
		Example: `  skillbox image import docker-archive:tool.tar --name example.com/tool:1
  skillbox image import oci:layout/`,
		Args: oneArgument("oci:DIR or docker-archive:FILE"),
		RunE: func(c *cobra.Command, args []string) error {
			st, err := s.open()
			if err != nil {
				return err
			}
			return f.do(c.Context(), func(ctx context.Context, o registry.Options) (*image.Image, error) {
				return registry.Import(ctx, st, args[0], o)
			})
		},
	}
	f.register(c)
	c.Flags().StringVar(&f.Name, "name", "", "`REF` that it gets; where there are several images, which one")
	return c
}

func oneArgument(what string) cobra.PositionalArgs {
	return func(_ *cobra.Command, args []string) error {
		if len(args) != 1 {
			return &helper.Error{Message: fmt.Sprintf("one argument is needed, %s; got %d", what, len(args))}
		}
		return nil
	}
}
