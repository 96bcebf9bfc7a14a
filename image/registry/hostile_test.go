package registry

import (
	"archive/tar"
	"bytes"
	"compress/gzip"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-containerregistry/pkg/authn"

	"skillbox/image"
	"skillbox/image/unpack"
)

// written is an OCI image layout, written by hand so that it can lie.
type written struct {
	t   *testing.T
	dir string
}

func (l written) blob(text []byte) (digest string, size int) {
	l.t.Helper()
	sum := sha256.Sum256(text)
	name := hex.EncodeToString(sum[:])
	l.write("blobs/sha256/"+name, text)
	return "sha256:" + name, len(text)
}

func (l written) write(name string, text []byte) {
	l.t.Helper()
	path := filepath.Join(l.dir, name)
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		l.t.Fatal(err)
	}
	if err := os.WriteFile(path, text, 0o644); err != nil {
		l.t.Fatal(err)
	}
}

// said is what a layout says of its one image; the zero value is the truth.
type said struct {
	layerType, layerDigest, configType, configDigest, diffID, manifestType, manifestDigest, manifestMore, platform, variant string
	layerSize, configSize, manifestSize                                                                                     int
	raw                                                                                                                     []byte // the layer as it is stored
	overwrite                                                                                                               string // "layer", "config" or "manifest": the blob is not what it is named by
	nested                                                                                                                  int
}

func or[T comparable](v, otherwise T) T {
	var zero T
	if v == zero {
		return otherwise
	}
	return v
}

func tarOf(t *testing.T) []byte {
	t.Helper()
	r, err := layer(t, map[string][]byte{"f": []byte("content")}).Uncompressed()
	if err != nil {
		t.Fatal(err)
	}
	text, err := io.ReadAll(r)
	if err != nil {
		t.Fatal(err)
	}
	return text
}

func zipped(t *testing.T, text []byte) []byte {
	t.Helper()
	var b bytes.Buffer
	w := gzip.NewWriter(&b)
	if _, err := w.Write(text); err != nil {
		t.Fatal(err)
	}
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	return b.Bytes()
}

const oci = "application/vnd.oci.image."

func (s said) write(t *testing.T) string {
	l := written{t, t.TempDir()}
	text := tarOf(t)
	if s.raw == nil {
		s.raw = zipped(t, text)
	}
	sum := sha256.Sum256(text)
	layerDigest, layerSize := l.blob(s.raw)
	os_, arch, _ := strings.Cut(or(s.platform, image.Platform()), "/")
	config := fmt.Appendf(nil, `{"os":%q,"architecture":%q,"variant":"%s","rootfs":{"type":"layers","diff_ids":[%q]}}`, os_, arch, s.variant, or(s.diffID, "sha256:"+hex.EncodeToString(sum[:])))
	configDigest, configSize := l.blob(config)
	manifest := fmt.Appendf(nil, `{"schemaVersion":2,"mediaType":%q,"config":{"mediaType":%q,"digest":%q,"size":%d},"layers":[{"mediaType":%q,"digest":%q,"size":%d}]%s}`,
		oci+"manifest.v1+json", or(s.configType, oci+"config.v1+json"), or(s.configDigest, configDigest), or(s.configSize, configSize),
		or(s.layerType, oci+"layer.v1.tar+gzip"), or(s.layerDigest, layerDigest), or(s.layerSize, layerSize), s.manifestMore)
	digest, size := l.blob(manifest)
	for what, name := range map[string]string{"layer": layerDigest, "config": configDigest, "manifest": digest} {
		if s.overwrite == what {
			l.write("blobs/sha256/"+strings.TrimPrefix(name, "sha256:"), append([]byte(" "), manifest...))
		}
	}
	kind := or(s.manifestType, oci+"manifest.v1+json")
	digest, size = or(s.manifestDigest, digest), or(s.manifestSize, size)
	for range s.nested {
		digest, size = l.blob(fmt.Appendf(nil, `{"schemaVersion":2,"manifests":[{"mediaType":%q,"digest":%q,"size":%d,"platform":{"os":%q,"architecture":%q}}]}`, kind, digest, size, os_, arch))
		kind = oci + "index.v1+json"
	}
	l.write("oci-layout", []byte(`{"imageLayoutVersion":"1.0.0"}`))
	l.write("index.json", fmt.Appendf(nil, `{"schemaVersion":2,"manifests":[{"mediaType":%q,"digest":%q,"size":%d}]}`, kind, digest, size))
	return l.dir
}

func TestALayoutThatLiesIsRefused(t *testing.T) {
	text := tarOf(t)
	gz := zipped(t, text)
	half := len(text) / 2
	zeros := strings.Repeat("0", 64)
	for name, c := range map[string]struct {
		said    said
		refused string // "" is taken
	}{
		"nothing is wrong":                       {said{}, ""},
		"a stream of two members":                {said{raw: append(zipped(t, text[:half]), zipped(t, text[half:])...)}, ""},
		"a plain layer":                          {said{raw: text, layerType: oci + "layer.v1.tar"}, ""},
		"an index in an index":                   {said{nested: 2}, ""},
		"indexes nested deeply":                  {said{nested: 5}, "nested deeper"},
		"another diff id":                        {said{diffID: "sha256:" + zeros}, "not what the image's configuration names"},
		"a diff id that is a path":               {said{diffID: "sha256:../../../../" + zeros}, ""},
		"another layer digest":                   {said{layerDigest: "sha256:" + zeros}, "no such file"},
		"a layer that is not its digest":         {said{overwrite: "layer"}, "is not what it begins with"},
		"a larger layer than said":               {said{layerSize: len(gz) - 1}, "bytes, and not"},
		"a smaller layer than said":              {said{layerSize: len(gz) + 1}, "bytes, and not"},
		"bytes behind the layer":                 {said{raw: append(gz[:len(gz):len(gz)], "more"...)}, "after the archive's end"},
		"a truncated layer":                      {said{raw: gz[:len(gz)-9]}, "unexpected EOF"},
		"gzip that says it is plain":             {said{layerType: oci + "layer.v1.tar"}, "not what it begins with"},
		"gzip that says it is zstd":              {said{layerType: oci + "layer.v1.tar+zstd"}, "not what it begins with"},
		"plain that says it is gzip":             {said{raw: text}, "not what it begins with"},
		"zstd that says it is gzip":              {said{raw: append([]byte("\x28\xb5\x2f\xfd"), gz...)}, "not what it begins with"},
		"a layer of another media type":          {said{layerType: "application/vnd.example"}, "which no image that can be run here has"},
		"a layer that lies elsewhere":            {said{layerType: "application/vnd.oci.image.layer.nondistributable.v1.tar+gzip"}, "which no image that can be run here has"},
		"a configuration that is another digest": {said{overwrite: "config"}, "configuration is sha256"},
		"a configuration of another size":        {said{configSize: 7}, "configuration is sha256"},
		"a huge configuration":                   {said{configSize: 1 << 30}, "more than"},
		"a configuration of another kind":        {said{configType: "application/vnd.example"}, "something else than an image"},
		"a manifest that is another digest":      {said{overwrite: "manifest"}, "manifest is sha256"},
		"a manifest of another size":             {said{manifestSize: 7}, "manifest is sha256"},
		"a huge manifest":                        {said{manifestSize: 1 << 30}, "more than"},
		"a manifest that is an index too":        {said{manifestMore: `,"manifests":[]`}, "as an index and as an image"},
		"a manifest with two layers lists":       {said{manifestMore: `,"layers":[]`}, "it has 0 layers"},
		"a manifest that is called an index":     {said{manifestType: oci + "index.v1+json"}, "as an index and as an image"},
		"a manifest that is nothing":             {said{manifestType: "application/vnd.example"}, "no image's"},
		"another machine's":                      {said{platform: "linux/s390x"}, "linux/s390x"},
		"another system's":                       {said{platform: "windows/amd64"}, "windows/amd64"},
		"a configuration of no size":             {said{configSize: -1}, "is said to have -1 bytes"},
		"a manifest of no size":                  {said{manifestSize: -1}, "is said to have -1 bytes"},
		"an index of no size":                    {said{manifestSize: -1, nested: 1}, "is said to have -1 bytes"},
		"a layer of no size":                     {said{layerSize: -1}, "with -1 bytes"},
		"a layer of all sizes":                   {said{layerSize: 1<<63 - 1}, "all may have"},
		"a variant of a platform":                {said{variant: "v8"}, ""},
		"a variant that a terminal obeys":        {said{variant: `\u001b[2J`}, "is the name of no platform"},
		"a bomb":                                 {said{raw: zipped(t, make([]byte, 80<<20))}, "--max-ratio"},
	} {
		t.Run(name, func(t *testing.T) {
			s := newStore(t)
			_, err := Import(context.Background(), s, "oci:"+c.said.write(t), Options{Limits: unpack.Limits{}})
			if name == "a diff id that is a path" {
				c.refused = "non-hex"
			}
			if c.refused == "" && err != nil || c.refused != "" && (err == nil || !strings.Contains(err.Error(), c.refused)) {
				t.Errorf("%v, want %q in it", err, c.refused)
			}
			if err == nil {
				return
			}
			for _, d := range []string{"images", "names", "tmp"} {
				if left, err := os.ReadDir(filepath.Join(s.Dir, d)); err != nil || len(left) > 0 {
					t.Errorf("left in %s: %v, %v", d, left, err)
				}
			}
		})
	}
}

func TestALayoutsLargeFilesAreNotRead(t *testing.T) {
	dir := said{}.write(t)
	blobs, err := filepath.Glob(filepath.Join(dir, "blobs/sha256/*"))
	if err != nil || len(blobs) != 3 {
		t.Fatal(blobs, err)
	}
	for _, name := range append(blobs, filepath.Join(dir, "index.json")) {
		text, err := os.ReadFile(name)
		if err != nil {
			t.Fatal(err)
		}
		if bytes.HasPrefix(text, []byte("\x1f\x8b")) {
			continue // the layer comes as a stream
		}
		if err := os.Truncate(name, maxConfig+1); err != nil {
			t.Fatal(err)
		}
		if _, err := Import(context.Background(), newStore(t), "oci:"+dir, Options{}); err == nil || !strings.Contains(err.Error(), "more than") {
			t.Errorf("%.40s: %v", text, err)
		}
		if err := os.WriteFile(name, text, 0o644); err != nil {
			t.Fatal(err)
		}
	}
}

// endless is a registry whose image's configuration has no end.
type endless struct {
	t        *testing.T
	manifest []byte
	asked    []string
}

func (e *endless) RoundTrip(r *http.Request) (*http.Response, error) {
	e.asked = append(e.asked, r.URL.Path)
	said := &http.Response{StatusCode: http.StatusOK, Proto: "HTTP/1.1", ProtoMajor: 1, ProtoMinor: 1, Header: http.Header{}, Request: r, ContentLength: -1}
	switch {
	case strings.Contains(r.URL.Path, "/manifests/"):
		said.Header.Set("Content-Type", oci+"manifest.v1+json")
		said.Body = io.NopCloser(bytes.NewReader(e.manifest))
	case strings.Contains(r.URL.Path, "/blobs/"):
		// Without end for whoever reads; the test's machine is spared.
		said.Body = io.NopCloser(io.LimitReader(spaces{}, 64<<20))
	default:
		said.Body = http.NoBody
	}
	return said, nil
}

type spaces struct{}

func (spaces) Read(p []byte) (int, error) {
	for i := range p {
		p[i] = ' '
	}
	return len(p), nil
}

func TestARegistrysConfigurationWithoutSizeIsNotAskedFor(t *testing.T) {
	digest := "sha256:" + strings.Repeat("0", 64)
	e := &endless{t: t, manifest: fmt.Appendf(nil, `{"schemaVersion":2,"mediaType":%q,"config":{"mediaType":%q,"digest":%q,"size":-1},"layers":[]}`, oci+"manifest.v1+json", oci+"config.v1+json", digest)}
	_, err := Pull(context.Background(), newStore(t), "example.com/endless:1", Options{Client: e, Keychain: authn.NewMultiKeychain()})
	if err == nil || !strings.Contains(err.Error(), "is said to have -1 bytes") {
		t.Error(err)
	}
	for _, path := range e.asked {
		if strings.Contains(path, "/blobs/") {
			t.Errorf("asked for %s", path)
		}
	}
}

func TestAnArchivesConfigurationIsBounded(t *testing.T) {
	name := strings.Repeat("0", 64) + ".json"
	for what, c := range map[string]struct {
		entries []*tar.Header
		refused string
	}{
		"a huge one":             {[]*tar.Header{{Name: name, Typeflag: tar.TypeReg, Size: maxConfig + 1}}, "more than"},
		"a huge one by its path": {[]*tar.Header{{Name: "./x/../" + name, Typeflag: tar.TypeReg, Size: maxConfig + 1}}, "more than"},
		"a link to a huge one":   {[]*tar.Header{{Name: name, Typeflag: tar.TypeSymlink, Linkname: "huge"}, {Name: "huge", Typeflag: tar.TypeReg, Size: maxConfig + 1}}, "no plain file"},
		"a hard link to one":     {[]*tar.Header{{Name: "huge", Typeflag: tar.TypeReg, Size: maxConfig + 1}, {Name: name, Typeflag: tar.TypeLink, Linkname: "huge"}}, "no plain file"},
	} {
		var b bytes.Buffer
		w := tar.NewWriter(&b)
		manifest := fmt.Appendf(nil, `[{"Config":%q,"Layers":[]}]`, name)
		for _, h := range append([]*tar.Header{{Name: "manifest.json", Typeflag: tar.TypeReg, Size: int64(len(manifest))}}, c.entries...) {
			content := manifest
			if h.Name != "manifest.json" {
				content = make([]byte, h.Size)
			}
			if err := w.WriteHeader(h); err != nil {
				t.Fatal(err)
			}
			if _, err := w.Write(content); err != nil {
				t.Fatal(err)
			}
		}
		if err := w.Close(); err != nil {
			t.Fatal(err)
		}
		file := filepath.Join(t.TempDir(), "image.tar")
		if err := os.WriteFile(file, b.Bytes(), 0o644); err != nil {
			t.Fatal(err)
		}
		if _, err := Import(context.Background(), newStore(t), "docker-archive:"+file, Options{}); err == nil || !strings.Contains(err.Error(), c.refused) {
			t.Errorf("%s: %v, want %q in it", what, err, c.refused)
		}
	}
}
