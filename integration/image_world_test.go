//go:build linux

package integration

import (
	"archive/tar"
	"bytes"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-containerregistry/pkg/name"
	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/empty"
	"github.com/google/go-containerregistry/pkg/v1/mutate"
	"github.com/google/go-containerregistry/pkg/v1/tarball"

	"skillbox/image"
)

// file is an entry of a layer: a directory where the name ends with a slash, a symbolic link where it has a target.
type file struct {
	name, content, target string
	mode                  int64
}

func layerOf(t *testing.T, files ...file) v1.Layer {
	t.Helper()
	var text bytes.Buffer
	w := tar.NewWriter(&text)
	for _, f := range files {
		h := &tar.Header{Name: f.name, Typeflag: tar.TypeReg, Mode: f.mode | 0o400, Size: int64(len(f.content))}
		switch {
		case f.target != "":
			h.Typeflag, h.Linkname = tar.TypeSymlink, f.target
		case strings.HasSuffix(f.name, "/"):
			h.Typeflag = tar.TypeDir
		}
		if err := w.WriteHeader(h); err != nil {
			t.Fatal(err)
		}
		if _, err := io.WriteString(w, f.content); err != nil {
			t.Fatal(err)
		}
	}
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	l, err := tarball.LayerFromOpener(func() (io.ReadCloser, error) { return io.NopCloser(bytes.NewReader(text.Bytes())), nil })
	if err != nil {
		t.Fatal(err)
	}
	return l
}

// imageOf is an image for this machine.
func imageOf(t *testing.T, c v1.Config, layers ...v1.Layer) v1.Image {
	t.Helper()
	img, err := mutate.AppendLayers(empty.Image, layers...)
	if err != nil {
		t.Fatal(err)
	}
	config, err := img.ConfigFile()
	if err != nil {
		t.Fatal(err)
	}
	config = config.DeepCopy()
	config.OS, config.Architecture, _ = strings.Cut(image.Platform(), "/")
	config.Config = c
	if img, err = mutate.ConfigFile(img, config); err != nil {
		t.Fatal(err)
	}
	return img
}

// archiveOf writes an image as docker save does.
func (m mode) archiveOf(t *testing.T, img v1.Image) string {
	t.Helper()
	path := filepath.Join(m.dir(t), "image.tar")
	tag, err := name.NewTag("example.com/test:1")
	if err != nil {
		t.Fatal(err)
	}
	if err := tarball.WriteToFile(path, tag, img); err != nil {
		t.Fatal(err)
	}
	m.own(t, path)
	return path
}

// images is a store of a mode's user, and what names it to skillbox.
func (m mode) images(t *testing.T) (dir string, env []string) {
	t.Helper()
	dir = filepath.Join(m.dir(t), "images")
	return dir, []string{"SKILLBOX_IMAGES=" + dir}
}

// image runs `skillbox image`; want is its exit code.
func (m mode) image(t *testing.T, env []string, want int, args ...string) (stdout, stderr string) {
	t.Helper()
	c := m.command(append([]string{"image"}, args...)...)
	c.Env = append(c.Env, env...)
	var out, errs bytes.Buffer
	c.Stdout, c.Stderr = &out, &errs
	if err := c.Run(); c.ProcessState == nil || c.ProcessState.ExitCode() != want {
		t.Fatalf("skillbox image %v: %v, want exit code %d\n%s", args, err, want, errs.String())
	}
	return out.String(), errs.String()
}

// probeFile is the probe as an image's file.
func probeFile(t *testing.T, name string) file {
	t.Helper()
	data, err := os.ReadFile(filepath.Join(binDir, "probe"))
	if err != nil {
		t.Fatal(err)
	}
	return file{name: name, content: string(data), mode: 0o755}
}
