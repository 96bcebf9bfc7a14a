package registry

import (
	"bufio"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"hash"
	"io"

	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/partial"
	"github.com/google/go-containerregistry/pkg/v1/types"

	"skillbox/image"
	"skillbox/image/unpack"
)

// compressions are how layers come, by media type, with the bytes that such a stream begins with.
var compressions = map[types.MediaType]string{
	types.OCILayer:                "\x1f\x8b",
	types.DockerLayer:             "\x1f\x8b",
	types.OCILayerZStd:            "\x28\xb5\x2f\xfd",
	types.OCIUncompressedLayer:    "",
	types.DockerUncompressedLayer: "",
}

// sources pairs the configuration's diff ids with the layers, which must be as many.
func (c *choice) sources(file *v1.ConfigFile) ([]unpack.Source, error) {
	ids := file.RootFS.DiffIDs
	layers, err := c.image.Layers()
	if err != nil {
		return nil, err
	}
	if len(layers) != len(ids) || len(ids) > maxLayers {
		return nil, fmt.Errorf("it has %d layers, and its configuration names %d (at most %d)", len(layers), len(ids), maxLayers)
	}
	var descriptors []v1.Descriptor
	if !c.archived {
		manifest, err := c.image.Manifest()
		if err != nil {
			return nil, err
		}
		descriptors = manifest.Layers
	}
	var sources []unpack.Source
	var arriving int64
	for i, layer := range layers {
		id := ids[i].String()
		if !image.IsDigest(id) {
			return nil, fmt.Errorf("its configuration names the layer %q, which is no sha256 digest", id)
		}
		if c.archived {
			sources = append(sources, unpack.Source{DiffID: id, Open: func(context.Context) (*unpack.Stream, error) { return c.archivedStream(layer) }})
			continue
		}
		d := descriptors[i]
		if _, known := compressions[d.MediaType]; !known {
			return nil, fmt.Errorf("layer %d has media type %q, which no image that can be run here has", i+1, d.MediaType)
		}
		if d.Size < 0 || d.Size > maxArriving-arriving || !image.IsDigest(d.Digest.String()) {
			return nil, fmt.Errorf("layer %d is named %q with %d bytes; all may have %d", i+1, d.Digest, d.Size, int64(maxArriving))
		}
		arriving += d.Size
		sources = append(sources, unpack.Source{DiffID: id, Open: func(context.Context) (*unpack.Stream, error) { return c.stream(layer, d) }})
	}
	if c.o.Progress != nil {
		c.o.Progress.Total.Add(arriving)
		c.o.Progress.Layers.Store(int64(len(sources)))
	}
	return sources, nil
}

func (c *choice) archivedStream(layer v1.Layer) (*unpack.Stream, error) {
	r, err := layer.Uncompressed()
	if err != nil {
		return nil, err
	}
	return &unpack.Stream{Reader: r, Came: func() int64 { return 0 }, Check: func() error { return nil }, Close: r.Close}, nil
}

// counting hashes and counts what comes.
type counting struct {
	io.Reader
	sum  hash.Hash
	n    int64
	also *Progress
}

func (r *counting) Read(p []byte) (int, error) {
	n, err := r.Reader.Read(p)
	r.sum.Write(p[:n])
	r.n += int64(n)
	if r.also != nil {
		r.also.Done.Add(int64(n))
	}
	return n, err
}

// arriving is a layer whose bytes are looked at on their way to be decompressed.
type arriving struct {
	d    v1.Descriptor
	from *counting
	io.Closer
}

func (a *arriving) Digest() (v1.Hash, error)            { return a.d.Digest, nil }
func (a *arriving) Size() (int64, error)                { return a.d.Size, nil }
func (a *arriving) MediaType() (types.MediaType, error) { return a.d.MediaType, nil }
func (a *arriving) Compressed() (io.ReadCloser, error) {
	return struct {
		io.Reader
		io.Closer
	}{a.from, a.Closer}, nil
}

// stream opens a layer of a manifest. Its bytes are held against the descriptor's digest and size, and what they are against its media type.
func (c *choice) stream(layer v1.Layer, d v1.Descriptor) (*unpack.Stream, error) {
	raw, err := layer.Compressed()
	if err != nil {
		return nil, err
	}
	// One byte more than there should be is enough to know.
	buffered := bufio.NewReaderSize(io.LimitReader(raw, d.Size+1), 64<<10)
	magic := compressions[d.MediaType]
	if begin, _ := buffered.Peek(4); !isCompressed(begin, magic) {
		return nil, errors.Join(fmt.Errorf("its media type %q is not what it begins with (% x)", d.MediaType, begin), raw.Close())
	}
	from := &counting{Reader: buffered, sum: sha256.New(), also: c.o.Progress}
	open, err := partial.CompressedToLayer(&arriving{d: d, from: from, Closer: raw})
	if err != nil {
		return nil, errors.Join(err, raw.Close())
	}
	content, err := open.Uncompressed()
	if err != nil {
		return nil, errors.Join(err, raw.Close())
	}
	check := func() error {
		if _, err := io.Copy(io.Discard, from); err != nil {
			return err
		}
		if got := "sha256:" + hex.EncodeToString(from.sum.Sum(nil)); got != d.Digest.String() || from.n != d.Size {
			return fmt.Errorf("it came as %s with %d bytes, and not %s with %d", got, from.n, d.Digest, d.Size)
		}
		if c.o.Progress != nil {
			c.o.Progress.Ready.Add(1)
		}
		return nil
	}
	return &unpack.Stream{Reader: content, Came: func() int64 { return from.n }, Check: check, Close: func() error { return errors.Join(content.Close(), closed(raw)) }}, nil
}

// closed closes what the reader above it may have closed.
func closed(c io.Closer) error {
	_ = c.Close()
	return nil
}

// isCompressed compares a stream's first bytes with those of a compression; "" is none of them.
func isCompressed(begin []byte, magic string) bool {
	for _, m := range compressions {
		if m != "" && len(begin) >= len(m) && string(begin[:len(m)]) == m {
			return m == magic
		}
	}
	return magic == ""
}
