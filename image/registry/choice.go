package registry

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"sync"

	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/types"

	"skillbox/image"
	"skillbox/image/unpack"
)

const (
	maxManifest = 4 << 20 // what registries take
	maxConfig   = 8 << 20
	maxNested   = 2 // indexes in indexes
	maxListed   = 1000
	maxLayers   = 1000
	maxArriving = 1 << 44 // bytes of all layers as they come: sums of them do not wrap
)

// choice is the one image of all that lie somewhere.
type choice struct {
	o        *Options
	image    v1.Image
	names    []string // digests by which it was found, outermost first
	archived bool     // it has no manifest, and its layers no digests but their diff ids
	expected string   // ID that an archive claims; "" is none
	layout   string   // directory of an OCI image layout; "" is none
}

// fits refuses what a descriptor leads to before it is read: go-containerregistry reads all of it, where the size is negative without bound, and
// in a layout whatever the size is.
func (c *choice) fits(what string, d *v1.Descriptor, most int64) error {
	if d.Size < 0 {
		return fmt.Errorf("%s %s is said to have %d bytes", what, d.Digest, d.Size)
	}
	size := d.Size
	if c.layout != "" {
		info, err := os.Stat(filepath.Join(c.layout, "blobs", d.Digest.Algorithm, d.Digest.Hex))
		if err != nil {
			return err
		}
		size = max(size, info.Size())
	}
	if size > most {
		return fmt.Errorf("%s %s has %d bytes, more than %d", what, d.Digest, size, most)
	}
	return nil
}

// fromIndex looks for this platform's image.
func (c *choice) fromIndex(index v1.ImageIndex, depth int) error {
	if depth > maxNested {
		return fmt.Errorf("its indexes are nested deeper than %d", maxNested)
	}
	raw, err := index.RawManifest()
	if err != nil {
		return err
	}
	if err := plain(raw, types.OCIImageIndex); err != nil {
		return err
	}
	manifest, err := index.IndexManifest()
	if err != nil {
		return err
	}
	if len(manifest.Manifests) > maxListed {
		return fmt.Errorf("its index names %d images, more than %d", len(manifest.Manifests), maxListed)
	}
	wanted, err := c.platform()
	if err != nil {
		return err
	}
	var there []string
	var nested []v1.Descriptor
	for _, d := range manifest.Manifests {
		switch {
		case d.MediaType.IsIndex():
			nested = append(nested, d)
		case d.Platform == nil || !d.MediaType.IsImage():
		case satisfies(d.Platform, wanted):
			return c.descend(index, d, depth)
		default:
			there = append(there, d.Platform.String())
		}
	}
	for _, d := range nested {
		var none *noPlatform
		err := c.descend(index, d, depth)
		if !errors.As(err, &none) {
			return err
		}
		there = append(there, none.there...)
	}
	return &noPlatform{wanted.String(), there}
}

type noPlatform struct {
	wanted string
	there  []string
}

func (n *noPlatform) Error() string {
	slices.Sort(n.there)
	return fmt.Sprintf("there is no image for %s, but for: %s (--platform chooses)", n.wanted, strings.Join(slices.Compact(n.there), ", "))
}

// descend follows one descriptor of an index, after holding what it leads to against it.
func (c *choice) descend(index v1.ImageIndex, d v1.Descriptor, depth int) (err error) {
	if err := c.fits("manifest", &d, maxManifest); err != nil {
		return err
	}
	var raw []byte
	switch {
	case d.MediaType.IsIndex():
		var inner v1.ImageIndex
		if inner, err = index.ImageIndex(d.Digest); err != nil {
			return err
		}
		if raw, err = inner.RawManifest(); err == nil {
			err = matches("manifest", raw, d.Digest.String(), d.Size)
		}
		if err != nil {
			return err
		}
		return c.fromIndex(inner, depth+1)
	case d.MediaType.IsImage():
		if c.image, err = index.Image(d.Digest); err != nil {
			return err
		}
		if raw, err = c.image.RawManifest(); err == nil {
			err = matches("manifest", raw, d.Digest.String(), d.Size)
		}
		return err
	}
	return fmt.Errorf("media type %q is no image's", d.MediaType)
}

func (c *choice) platform() (*v1.Platform, error) {
	if c.o.Platform == "" {
		return v1.ParsePlatform(image.Platform())
	}
	return v1.ParsePlatform(c.o.Platform)
}

// platformText is what a platform's name may hold; people are shown it.
var platformText = sync.OnceValue(func() *regexp.Regexp { return regexp.MustCompile(`^[A-Za-z0-9._/-]{0,100}$`) })

// satisfies compares as registries do: what is not wanted explicitly may be anything.
func satisfies(has, wanted *v1.Platform) bool {
	return has.OS == wanted.OS && has.Architecture == wanted.Architecture && (wanted.Variant == "" || has.Variant == wanted.Variant)
}

func matches(what string, text []byte, digest string, size int64) error {
	sum := sha256.Sum256(text)
	if got := "sha256:" + hex.EncodeToString(sum[:]); got != digest || size != int64(len(text)) {
		return fmt.Errorf("its %s is %s with %d bytes, and not %s with %d", what, got, len(text), digest, size)
	}
	return nil
}

// plain refuses a manifest that could be read as another kind (CVE-2021-41190).
func plain(raw []byte, kind types.MediaType) error {
	var fields struct {
		MediaType                 types.MediaType
		Manifests, Layers, Config json.RawMessage
	}
	if len(raw) > maxManifest {
		return fmt.Errorf("its manifest has %d bytes, more than %d", len(raw), maxManifest)
	}
	if err := json.NewDecoder(bytes.NewReader(raw)).Decode(&fields); err != nil {
		return fmt.Errorf("its manifest is no JSON object: %w", err)
	}
	image := kind.IsImage()
	if image && fields.Manifests != nil || !image && (fields.Layers != nil || fields.Config != nil) {
		return errors.New("its manifest could be read as an index and as an image")
	}
	if m := fields.MediaType; m != "" && (m.IsImage() != image || m.IsIndex() == image) {
		return fmt.Errorf("its manifest says of itself that it is %q, and came as another kind", m)
	}
	return nil
}

// keep verifies what the manifest says, unpacks, and names.
func (c *choice) keep(ctx context.Context, s *image.Store, wanted image.Name) (*image.Image, error) {
	about, layers, err := c.read()
	if err != nil {
		return nil, err
	}
	found, err := unpack.Put(ctx, s, about, layers, c.o.Limits)
	if err != nil {
		return nil, err
	}
	wanted.Image, wanted.Digest = found.ID, about.Digest
	hidden := append([]string{about.ID, about.Digest}, c.names...)
	slices.Sort(hidden)
	for _, d := range slices.Compact(hidden) {
		if err := s.Give(image.Name{Ref: d, Image: found.ID, Digest: about.Digest, Hidden: true}); err != nil {
			return nil, err
		}
	}
	if err := s.Give(wanted); err != nil { // last: by this name it will be looked for
		return nil, err
	}
	found.Ref, found.Digest = wanted.Ref, wanted.Digest
	return found, nil
}

// read is what manifest and configuration say, and where the layers come from.
func (c *choice) read() (*image.Image, []unpack.Source, error) {
	config, digest, err := c.config()
	if err != nil {
		return nil, nil, err
	}
	sum := sha256.Sum256(config)
	id := "sha256:" + hex.EncodeToString(sum[:])
	if c.expected != "" && c.expected != id {
		return nil, nil, fmt.Errorf("its configuration is %s, and not what its name says", id)
	}
	if digest == "" {
		digest = id
	}
	file, err := v1.ParseConfigFile(bytes.NewReader(config))
	if err != nil {
		return nil, nil, fmt.Errorf("its configuration: %w", err)
	}
	wanted, err := c.platform()
	if err != nil {
		return nil, nil, err
	}
	is := &v1.Platform{OS: file.OS, Architecture: file.Architecture, Variant: file.Variant}
	if !platformText().MatchString(is.String()) {
		return nil, nil, fmt.Errorf("its configuration is for %q, which is the name of no platform", is)
	}
	if is.OS != "" && !satisfies(is, &v1.Platform{OS: wanted.OS, Architecture: wanted.Architecture}) {
		return nil, nil, &noPlatform{wanted.String(), []string{is.String()}}
	}
	about := &image.Image{
		Digest: digest, ID: id, Platform: is.String(), Created: file.Created.Time,
		Config: image.Config{
			Env: file.Config.Env, Entrypoint: file.Config.Entrypoint, Cmd: file.Config.Cmd, User: file.Config.User, WorkingDir: file.Config.WorkingDir,
		},
	}
	layers, err := c.sources(file)
	return about, layers, err
}

// config is the configuration's text and the manifest's digest, if there is one.
func (c *choice) config() (text []byte, digest string, err error) {
	if c.archived {
		text, err = c.image.RawConfigFile()
		return text, "", err
	}
	raw, err := c.image.RawManifest()
	if err != nil {
		return nil, "", err
	}
	if err := plain(raw, types.OCIManifestSchema1); err != nil {
		return nil, "", err
	}
	manifest, err := c.image.Manifest()
	if err != nil {
		return nil, "", err
	}
	if kind := manifest.Config.MediaType; kind != types.OCIConfigJSON && kind != types.DockerConfigJSON {
		return nil, "", fmt.Errorf("its configuration has media type %q: it is something else than an image", kind)
	}
	if err := c.fits("configuration", &manifest.Config, maxConfig); err != nil {
		return nil, "", err
	}
	if text, err = c.image.RawConfigFile(); err != nil {
		return nil, "", err
	}
	sum := sha256.Sum256(raw)
	return text, "sha256:" + hex.EncodeToString(sum[:]), matches("configuration", text, manifest.Config.Digest.String(), manifest.Config.Size)
}
