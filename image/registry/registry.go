// Package registry brings images from where they lie (a registry, an OCI layout, an archive of docker save) into a store. It alone speaks the
// protocol of registries. What comes is held against the digests that name it, from the reference or the configuration down to each file's
// bytes; nothing that does not fit is kept.
package registry

import (
	"archive/tar"
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"path"
	"path/filepath"
	"strings"
	"sync/atomic"

	"github.com/google/go-containerregistry/pkg/authn"
	"github.com/google/go-containerregistry/pkg/name"
	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/layout"
	"github.com/google/go-containerregistry/pkg/v1/remote"
	"github.com/google/go-containerregistry/pkg/v1/tarball"

	"skillbox/image"
	"skillbox/image/unpack"
)

// Options say how an image is fetched. The zero value is this machine's platform, https, no mirrors and the default limits.
type Options struct {
	Platform  string // os/architecture[/variant]
	PlainHTTP bool   // also speak http, with whoever does not speak https
	Mirrors   []Mirror
	Limits    unpack.Limits
	Name      string // of an import: the reference that it gets; of several images in it, which one is meant
	Agent     string // how we name ourselves to a registry

	Progress *Progress         // nil is nobody's
	Notice   func(string)      // gets what the caller should know although it works; nil drops it
	Keychain authn.Keychain    // nil is docker's configuration file, else podman's
	Client   http.RoundTripper // nil is the usual one
}

// Mirror is asked before the registry that it stands for.
type Mirror struct {
	Registry string // such as docker.io
	Place    string // host[:port][/prefix]
}

// Progress counts while an image comes. Anybody may read it at any time.
type Progress struct {
	Done, Total   atomic.Int64 // bytes as they are transferred
	Layers, Ready atomic.Int64
}

func (o *Options) notice(format string, a ...any) {
	if o.Notice != nil {
		o.Notice(fmt.Sprintf(format, a...))
	}
}

// Pull fetches the image of a reference, or only what the store lacks of it, and names it.
func Pull(ctx context.Context, s *image.Store, ref string, o Options) (*image.Image, error) {
	key, err := image.Normalize(strings.TrimPrefix(ref, "image:"))
	if err != nil {
		return nil, err
	}
	if image.IsDigest(key) {
		return nil, fmt.Errorf("registry: %s names no registry: write it as REPOSITORY@%s", ref, key)
	}
	begun, err := s.Begin(ctx)
	if err != nil {
		return nil, err
	}
	defer begun.Close()
	// Who comes second finds the image made, and asks the registry for its digest only.
	lock, err := s.Lock(ctx, "pull "+key, false)
	if err != nil {
		return nil, err
	}
	defer lock.Close()
	var errs []error
	for _, place := range o.places(key) {
		found, err := pullFrom(ctx, s, key, place, &o)
		if err == nil {
			return found, nil
		}
		errs = append(errs, fmt.Errorf("registry: %s: %w", place, err))
		if context.Cause(ctx) != nil {
			break
		}
		if place != key {
			o.notice("mirror %s: %v", place, err)
		}
	}
	return nil, errs[len(errs)-1]
}

// places are where a reference's image may lie: at its registry's mirrors, and there.
func (o *Options) places(key string) []string {
	var places []string
	host, rest, _ := strings.Cut(key, "/")
	for _, m := range o.Mirrors {
		if m.Registry == host {
			places = append(places, strings.TrimSuffix(m.Place, "/")+"/"+rest)
		}
	}
	return append(places, key)
}

func pullFrom(ctx context.Context, s *image.Store, key, place string, o *Options) (*image.Image, error) {
	options := []name.Option{name.StrictValidation}
	if o.PlainHTTP {
		options = append(options, name.Insecure)
	}
	ref, err := name.ParseReference(place, options...)
	if err != nil {
		return nil, err
	}
	transport := o.Client
	if transport == nil {
		transport = remote.DefaultTransport
	}
	keychain := o.Keychain
	if keychain == nil {
		keychain = authn.DefaultKeychain
	}
	described, err := remote.Get(ref, remote.WithContext(ctx), remote.WithTransport(scheme{transport, o.PlainHTTP}), remote.WithAuthFromKeychain(keychain), remote.WithUserAgent(o.Agent))
	if err != nil {
		return nil, err
	}
	c := &choice{o: o, names: []string{described.Digest.String()}}
	switch {
	case described.MediaType.IsIndex():
		index, err := described.ImageIndex()
		if err != nil {
			return nil, err
		}
		if err := c.fromIndex(index, 0); err != nil {
			return nil, err
		}
	case described.MediaType.IsImage():
		if c.image, err = described.Image(); err != nil {
			return nil, err
		}
	default:
		return nil, fmt.Errorf("media type %q is no image's", described.MediaType)
	}
	return c.keep(ctx, s, image.Name{Ref: key})
}

// scheme refuses http, to which go-containerregistry falls back by itself for addresses that look local, and registries may redirect.
type scheme struct {
	http.RoundTripper
	plain bool
}

var errPlain = errors.New("http is spoken only with --plain-http")

func (s scheme) RoundTrip(r *http.Request) (*http.Response, error) {
	if r.URL.Scheme != "https" && !s.plain {
		return nil, errPlain
	}
	return s.RoundTripper.RoundTrip(r)
}

// Import brings an image from "oci:DIR" or "docker-archive:FILE" into the store.
func Import(ctx context.Context, s *image.Store, base string, o Options) (*image.Image, error) {
	kind, path, _ := strings.Cut(base, ":")
	path, err := filepath.Abs(path)
	if err != nil {
		return nil, fmt.Errorf("registry: %w", err)
	}
	base = kind + ":" + path
	wanted := image.Name{Ref: base}
	if o.Name != "" {
		if wanted.Ref, err = image.Normalize(o.Name); err != nil {
			return nil, err
		}
	}
	begun, err := s.Begin(ctx)
	if err != nil {
		return nil, err
	}
	defer begun.Close()
	c := &choice{o: &o}
	switch kind {
	case "oci":
		err = c.fromLayout(path)
	case "docker-archive":
		err = c.fromArchive(path)
	default:
		err = errors.New("it is imported from oci:DIR or docker-archive:FILE")
	}
	var found *image.Image
	if err == nil {
		found, err = c.keep(ctx, s, wanted)
	}
	if err != nil {
		return nil, fmt.Errorf("registry: %s: %w", base, err)
	}
	return found, nil
}

func (c *choice) fromLayout(dir string) error {
	root, err := layout.FromPath(dir)
	if err != nil {
		return err
	}
	info, err := os.Stat(filepath.Join(dir, "index.json"))
	if err != nil {
		return err
	}
	if info.Size() > maxManifest {
		return fmt.Errorf("index.json has %d bytes, more than %d", info.Size(), maxManifest)
	}
	c.layout = dir
	index, err := root.ImageIndex()
	if err != nil {
		return err
	}
	manifest, err := index.IndexManifest()
	if err != nil {
		return err
	}
	var chosen []v1.Descriptor
	for _, d := range manifest.Manifests {
		if c.o.Name == "" || d.Annotations["org.opencontainers.image.ref.name"] == c.o.Name || len(manifest.Manifests) == 1 {
			chosen = append(chosen, d)
		}
	}
	if len(chosen) != 1 {
		return fmt.Errorf("index.json names %d images, %d of them %q: choose one with --name", len(manifest.Manifests), len(chosen), c.o.Name)
	}
	c.names = []string{chosen[0].Digest.String()}
	return c.descend(index, chosen[0], 0)
}

func (c *choice) fromArchive(file string) error {
	id, err := image.CheckArchive(file, c.o.Name == "")
	if err != nil {
		return err
	}
	var tag *name.Tag
	if id == "" { // several: --name says which
		parsed, err := name.NewTag(c.o.Name)
		if err != nil {
			return err
		}
		tag = &parsed
	}
	if err := boundConfigs(file); err != nil {
		return err
	}
	c.archived, c.expected = true, id
	c.image, err = tarball.ImageFromPath(file, tag)
	return err
}

// boundConfigs looks at the configurations that an archive's manifest.json names (which image.CheckArchive has bounded) before
// go-containerregistry reads one whole. It follows links in archives, which nobody makes of a configuration.
func boundConfigs(file string) error {
	manifest, err := tarball.LoadManifest(func() (io.ReadCloser, error) { return os.Open(file) })
	if err != nil {
		return err
	}
	configs := map[string]bool{}
	for _, d := range manifest {
		configs[path.Clean(d.Config)] = true
	}
	f, err := os.Open(file)
	if err != nil {
		return err
	}
	defer f.Close()
	archive := tar.NewReader(f) // skips what lies between by seeking
	for {
		h, err := archive.Next()
		if errors.Is(err, io.EOF) {
			return nil
		}
		if err != nil {
			return err
		}
		switch {
		case !configs[path.Clean(h.Name)]:
		case h.Typeflag != tar.TypeReg:
			return fmt.Errorf("its configuration %q is no plain file", h.Name)
		case h.Size > maxConfig:
			return fmt.Errorf("its configuration %q has %d bytes, more than %d", h.Name, h.Size, maxConfig)
		}
	}
}
