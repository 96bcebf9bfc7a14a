package main

import (
	"archive/tar"
	"bytes"
	"crypto/rand"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"io"
	"log"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"time"

	"github.com/google/go-containerregistry/pkg/name"
	"github.com/google/go-containerregistry/pkg/registry"
	"github.com/google/go-containerregistry/pkg/v1/empty"
	"github.com/google/go-containerregistry/pkg/v1/mutate"
	"github.com/google/go-containerregistry/pkg/v1/remote"
	"github.com/google/go-containerregistry/pkg/v1/tarball"

	"skillbox/helper"
)

// images measures what an image as the base costs a call, whether its size does, and how long a pull takes.
func (w *work) images(f *figures) error {
	r := &report{}
	defer func() { f.Images = r.lines }()
	data, err := os.ReadFile(filepath.Join(*bin, "skillbox-image"))
	if err != nil {
		return fmt.Errorf("%w: run make build first", err)
	}
	if err := os.WriteFile(filepath.Join(w.bin, "skillbox-image"), data, 0o755); err != nil {
		return err
	}
	if err := os.Setenv("SKILLBOX_IMAGES", filepath.Join(w.dir, "images")); err != nil {
		return err
	}
	bundle := filepath.Join(w.dir, "static") // a program that needs nothing of its base
	if err := os.Mkdir(bundle, 0o755); err != nil {
		return err
	}
	if data, err = os.ReadFile(filepath.Join(*bin, "skillbox")); err == nil {
		err = os.WriteFile(filepath.Join(bundle, "program"), data, 0o755)
	}
	if err != nil {
		return err
	}
	r.title("a static program on an image, cold; load %s", load())
	for _, size := range []struct {
		name  string
		files int
		each  int64
	}{{"small", 10, 1 << 10}, {"large", 20_000, 2 << 30 / 20_000}} {
		if err := w.importImage(size.name, size.files, size.each); err != nil {
			return err
		}
	}
	host, hostTree, err := w.onBase(bundle, "host")
	if err != nil {
		return err
	}
	r.line(host, "ms", "a call on base host, median of %d", *runs)
	r.line(hostTree, "ms", "of that, the whole tree")
	for _, image := range []string{"small", "large"} {
		call, tree, err := w.onBase(bundle, "image:example.com/"+image+":1")
		if err != nil {
			return err
		}
		r.line(call, "ms", "a call on the %s image", image)
		r.bar(fmt.Sprintf("%.2f times base host", call/host), "at most 1.3 times", call <= 1.3*host)
		r.limit(tree, "ms", 20, "of that, the whole tree with the image's mount")
	}
	return w.pulling(r)
}

// onBase are the medians of a call and of making its tree.
func (w *work) onBase(bundle, base string) (call, tree float64, err error) {
	policy := filepath.Join(w.dir, "base.yaml")
	if err := os.WriteFile(policy, fmt.Appendf(nil, "version: 1\nrootfs: {base: %q}\n", base), 0o644); err != nil {
		return 0, 0, err
	}
	var calls, trees []float64
	for range *runs {
		c := exec.Command(filepath.Join(w.bin, "skillbox"), "exec", "--json", "--policy", policy, bundle, "--", "/skill/program", "version")
		text, err := c.Output()
		var result helper.Result
		if err == nil {
			err = json.Unmarshal(text, &result)
		}
		if err != nil {
			return 0, 0, fmt.Errorf("base %s: %w: %s", base, err, text)
		}
		calls, trees = append(calls, result.DurationMS), append(trees, result.Phases["tree_ms"])
	}
	return median(calls), median(trees), nil
}

// importImage makes an image of so many files with nothing but zeros, which take no room.
func (w *work) importImage(name string, files int, each int64) error {
	path := filepath.Join(w.dir, name+".tar")
	defer os.Remove(path)
	layer, err := os.CreateTemp(w.dir, "layer-")
	if err != nil {
		return err
	}
	defer os.Remove(layer.Name())
	defer layer.Close()
	content, sum := make([]byte, each), sha256.New()
	out := tar.NewWriter(io.MultiWriter(&holes{layer}, sum))
	for i := range files {
		if err := out.WriteHeader(&tar.Header{Name: fmt.Sprintf("d%d/f%d", i/100, i), Typeflag: tar.TypeReg, Mode: 0o644, Size: each}); err != nil {
			return err
		}
		if _, err := out.Write(content); err != nil {
			return err
		}
	}
	if err := out.Close(); err != nil {
		return err
	}
	length, err := layer.Seek(0, io.SeekCurrent)
	if err == nil {
		_, err = layer.Seek(0, io.SeekStart)
	}
	if err != nil {
		return err
	}
	config := fmt.Appendf(nil, `{"os":"linux","architecture":%q,"rootfs":{"type":"layers","diff_ids":["sha256:%s"]}}`, runtime.GOARCH, hex.EncodeToString(sum.Sum(nil)))
	id := sha256.Sum256(config)
	archive, err := os.Create(path)
	if err != nil {
		return err
	}
	defer archive.Close()
	inside := tar.NewWriter(&holes{archive})
	manifest := fmt.Appendf(nil, `[{"Config":"%s.json","Layers":["layer.tar"]}]`, hex.EncodeToString(id[:]))
	for _, part := range []struct {
		name    string
		size    int64
		content io.Reader
	}{
		{"manifest.json", int64(len(manifest)), bytes.NewReader(manifest)}, {hex.EncodeToString(id[:]) + ".json", int64(len(config)), bytes.NewReader(config)}, {"layer.tar", length, layer},
	} {
		if err := inside.WriteHeader(&tar.Header{Name: part.name, Typeflag: tar.TypeReg, Mode: 0o644, Size: part.size}); err != nil {
			return err
		}
		if _, err := io.CopyBuffer(struct{ io.Writer }{inside}, struct{ io.Reader }{part.content}, make([]byte, 1<<20)); err != nil {
			return err
		}
	}
	if err := inside.Close(); err != nil {
		return err
	}
	c := exec.Command(filepath.Join(w.bin, "skillbox"), "image", "import", "--name", "example.com/"+name+":1", "docker-archive:"+path)
	if text, err := c.CombinedOutput(); err != nil {
		return fmt.Errorf("import: %w: %s", err, text)
	}
	return nil
}

// holes writes zeros as holes: a file ends in something else.
type holes struct{ *os.File }

func (h *holes) Write(p []byte) (int, error) {
	if len(bytes.Trim(p, "\x00")) > 0 || len(p) < 64<<10 {
		return h.File.Write(p)
	}
	_, err := h.Seek(int64(len(p)), io.SeekCurrent)
	return len(p), err
}

// pulling measures a pull from a registry on loopback, whose layers do not compress.
func (w *work) pulling(r *report) error {
	s := httptest.NewServer(registry.New(registry.Logger(log.New(io.Discard, "", 0))))
	defer s.Close()
	const layers, size = 4, 32 << 20
	img := empty.Image
	for i := range layers {
		var text bytes.Buffer
		out := tar.NewWriter(&text)
		content := make([]byte, size)
		if _, err := rand.Read(content); err != nil {
			return err
		}
		if err := out.WriteHeader(&tar.Header{Name: fmt.Sprintf("f%d", i), Typeflag: tar.TypeReg, Mode: 0o644, Size: size}); err != nil {
			return err
		}
		if _, err := out.Write(content); err != nil {
			return err
		}
		if err := out.Close(); err != nil {
			return err
		}
		layer, err := tarball.LayerFromOpener(func() (io.ReadCloser, error) { return io.NopCloser(bytes.NewReader(text.Bytes())), nil })
		if err != nil {
			return err
		}
		if img, err = mutate.AppendLayers(img, layer); err != nil {
			return err
		}
	}
	config, err := img.ConfigFile()
	if err != nil {
		return err
	}
	config = config.DeepCopy()
	config.OS, config.Architecture = "linux", runtime.GOARCH
	if img, err = mutate.ConfigFile(img, config); err != nil {
		return err
	}
	ref, err := name.ParseReference(strings.TrimPrefix(s.URL, "http://")+"/tool:1", name.Insecure)
	if err != nil {
		return err
	}
	if err := remote.Write(ref, img); err != nil {
		return err
	}
	for _, what := range []string{"a pull of 128 MiB in 4 layers from loopback", "the same again, when the store has it"} {
		began := time.Now()
		c := exec.Command(filepath.Join(w.bin, "skillbox"), "image", "pull", "--plain-http", ref.Name())
		if text, err := c.CombinedOutput(); err != nil {
			return fmt.Errorf("pull: %w: %s", err, text)
		}
		r.line(float64(time.Since(began).Microseconds())/1000, "ms", "%s", what)
	}
	return nil
}
