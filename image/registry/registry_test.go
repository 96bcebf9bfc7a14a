package registry

import (
	"archive/tar"
	"bytes"
	"context"
	"fmt"
	"io"
	"log"
	"math/rand/v2"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/google/go-containerregistry/pkg/authn"
	"github.com/google/go-containerregistry/pkg/name"
	server "github.com/google/go-containerregistry/pkg/registry"
	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/empty"
	"github.com/google/go-containerregistry/pkg/v1/mutate"
	"github.com/google/go-containerregistry/pkg/v1/remote"
	"github.com/google/go-containerregistry/pkg/v1/tarball"
	"golang.org/x/sys/unix"

	"skillbox/image"
)

// TestMain is also the process that a test kills while it pulls.
func TestMain(m *testing.M) {
	unix.Umask(0o022)
	if ref := os.Getenv("REGISTRY_TEST_PULL"); ref != "" {
		s, err := image.OpenStore(os.Getenv("REGISTRY_TEST_STORE"))
		if err == nil {
			_, err = Pull(context.Background(), s, ref, Options{PlainHTTP: true})
		}
		if err != nil {
			fmt.Println(err)
			os.Exit(1)
		}
		os.Exit(0)
	}
	os.Exit(m.Run())
}

// place is a registry on loopback, with what was asked of it.
type place struct {
	host  string
	blobs atomic.Int64 // layers and configurations that were fetched
	slow  atomic.Int64 // nanoseconds between two pieces of a blob
	user  string       // who may fetch; "" is anybody
}

func newPlace(t *testing.T) *place {
	t.Helper()
	p := &place{}
	inner := server.New(server.Logger(log.New(io.Discard, "", 0)))
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if user, _, _ := r.BasicAuth(); p.user != "" && r.Method == http.MethodGet && user != p.user {
			w.Header().Set("WWW-Authenticate", `Basic realm="test"`)
			w.WriteHeader(http.StatusUnauthorized)
			return
		}
		if r.Method == http.MethodGet && strings.Contains(r.URL.Path, "/blobs/") {
			p.blobs.Add(1)
			if d := time.Duration(p.slow.Load()); d > 0 {
				w = &slowly{w, d}
			}
		}
		inner.ServeHTTP(w, r)
	}))
	t.Cleanup(s.Close)
	p.host = strings.TrimPrefix(s.URL, "http://")
	return p
}

type slowly struct {
	http.ResponseWriter
	pause time.Duration
}

func (s *slowly) Write(b []byte) (n int, err error) {
	for len(b) > 0 && err == nil {
		piece := b[:min(len(b), 16<<10)]
		var m int
		m, err = s.ResponseWriter.Write(piece)
		n, b = n+m, b[len(piece):]
		time.Sleep(s.pause)
	}
	return n, err
}

func layer(t *testing.T, files map[string][]byte) v1.Layer {
	t.Helper()
	var text bytes.Buffer
	w := tar.NewWriter(&text)
	for name, content := range files {
		if err := w.WriteHeader(&tar.Header{Name: name, Typeflag: tar.TypeReg, Mode: 0o644, Size: int64(len(content))}); err != nil {
			t.Fatal(err)
		}
		if _, err := w.Write(content); err != nil {
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

// noise does not compress.
func noise(n int) []byte {
	b := make([]byte, n)
	r := rand.NewChaCha8([32]byte{byte(n)})
	_, _ = r.Read(b)
	return b
}

func build(t *testing.T, platform string, layers ...v1.Layer) v1.Image {
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
	config.OS, config.Architecture, _ = strings.Cut(platform, "/")
	if img, err = mutate.ConfigFile(img, config); err != nil {
		t.Fatal(err)
	}
	return img
}

// push returns the reference of an image in the registry.
func (p *place) push(t *testing.T, as string, what remote.Taggable) string {
	t.Helper()
	ref, err := name.ParseReference(p.host+"/"+as, name.Insecure)
	if err != nil {
		t.Fatal(err)
	}
	if err := remote.Push(ref, what); err != nil {
		t.Fatal(err)
	}
	return ref.Name()
}

func newStore(t *testing.T) *image.Store {
	t.Helper()
	s, err := image.OpenStore(filepath.Join(t.TempDir(), "images"))
	if err != nil {
		t.Fatal(err)
	}
	return s
}

var plainHTTP = Options{PlainHTTP: true, Keychain: authn.NewMultiKeychain()}

func pull(t *testing.T, s *image.Store, ref string, o Options) *image.Image {
	t.Helper()
	found, err := Pull(context.Background(), s, ref, o)
	if err != nil {
		t.Fatal(err)
	}
	return found
}

func TestAPulledImageIsFoundByNameAndDigest(t *testing.T) {
	p, s := newPlace(t), newStore(t)
	img := build(t, image.Platform(), layer(t, map[string][]byte{"etc/a": []byte("1")}), layer(t, map[string][]byte{"b": []byte("2")}))
	ref := p.push(t, "tool:1", img)
	got := pull(t, s, ref, plainHTTP)
	digest, err := img.Digest()
	if err != nil {
		t.Fatal(err)
	}
	if got.Digest != digest.String() || got.Platform != image.Platform() || len(got.Layers) != 2 {
		t.Errorf("got %+v", got)
	}
	for _, by := range []string{ref, "image:" + ref, digest.String(), got.ID} {
		found, err := s.Resolve(by)
		if err != nil || found.ID != got.ID || found.Digest != got.Digest {
			t.Errorf("%s: %v, %v", by, found, err)
		}
	}
	if text, err := os.ReadFile(filepath.Join(got.Tree, "etc/a")); err != nil || string(text) != "1" {
		t.Errorf("%q, %v", text, err)
	}
	before := p.blobs.Load()
	if pull(t, s, ref, plainHTTP); p.blobs.Load() != before+1 { // the configuration
		t.Errorf("a second pull fetched %d blobs", p.blobs.Load()-before)
	}
}

func TestAPinnedReferenceIsHeldAgainstItsDigest(t *testing.T) {
	p, s := newPlace(t), newStore(t)
	first, second := build(t, image.Platform(), layer(t, map[string][]byte{"a": []byte("1")})), build(t, image.Platform(), layer(t, map[string][]byte{"a": []byte("2")}))
	p.push(t, "tool:1", first)
	digest, err := first.Digest()
	if err != nil {
		t.Fatal(err)
	}
	pinned := p.host + "/tool:1@" + digest.String()
	p.push(t, "tool:1", second) // the tag moves on
	if got := pull(t, s, pinned, plainHTTP); got.Digest != digest.String() || !strings.HasSuffix(got.Ref, "@"+digest.String()) {
		t.Errorf("got %s as %s", got.Digest, got.Ref)
	}
	if _, err := Pull(context.Background(), s, p.host+"/tool@sha256:"+strings.Repeat("0", 64), plainHTTP); err == nil {
		t.Error("a digest that the registry does not have was pulled")
	}
}

func TestPlainHTTPIsSpokenOnlyWhenAsked(t *testing.T) {
	p, s := newPlace(t), newStore(t)
	ref := p.push(t, "tool:1", build(t, image.Platform()))
	o := plainHTTP
	o.PlainHTTP = false
	if _, err := Pull(context.Background(), s, ref, o); err == nil || !strings.Contains(err.Error(), "--plain-http") {
		t.Errorf("%v", err)
	}
}

func TestAnIndexHasAnImageForThePlatform(t *testing.T) {
	p, s := newPlace(t), newStore(t)
	index := mutate.AppendManifests(empty.Index,
		mutate.IndexAddendum{Add: build(t, "linux/s390x"), Descriptor: v1.Descriptor{Platform: &v1.Platform{OS: "linux", Architecture: "s390x"}}},
		mutate.IndexAddendum{Add: build(t, "linux/arm", layer(t, map[string][]byte{"arm": nil})), Descriptor: v1.Descriptor{Platform: &v1.Platform{OS: "linux", Architecture: "arm", Variant: "v7"}}})
	ref := p.push(t, "many:1", mutate.AppendManifests(empty.Index, mutate.IndexAddendum{Add: index}))
	if _, err := Pull(context.Background(), s, ref, plainHTTP); err == nil || !strings.Contains(err.Error(), "linux/arm/v7, linux/s390x") {
		t.Errorf("%v", err)
	}
	o := plainHTTP
	o.Platform = "linux/arm/v7"
	got := pull(t, s, ref, o)
	if _, err := os.Stat(filepath.Join(got.Tree, "arm")); err != nil {
		t.Error(err)
	}
}

func TestAMirrorIsAskedFirst(t *testing.T) {
	origin, mirror, s := newPlace(t), newPlace(t), newStore(t)
	img := build(t, image.Platform(), layer(t, map[string][]byte{"a": nil}))
	ref := origin.push(t, "tool:1", img)
	mirror.push(t, "hub/tool:1", img)
	o := plainHTTP
	o.Mirrors = []Mirror{{origin.host, mirror.host + "/hub"}}
	if got := pull(t, s, ref, o); got.Ref != ref || origin.blobs.Load() != 0 || mirror.blobs.Load() == 0 {
		t.Errorf("%s; %d blobs from the registry, %d from the mirror", got.Ref, origin.blobs.Load(), mirror.blobs.Load())
	}
	var said string
	o.Mirrors[0].Place, o.Notice = mirror.host+"/none", func(text string) { said = text }
	if pull(t, newStore(t), ref, o); !strings.Contains(said, "mirror "+mirror.host) || origin.blobs.Load() == 0 {
		t.Errorf("said %q", said)
	}
}

func TestNamesAndPasswordsComeFromTheUsualFiles(t *testing.T) {
	p := newPlace(t)
	ref := p.push(t, "tool:1", build(t, image.Platform()))
	p.user = "somebody"
	config := fmt.Sprintf(`{"auths": {%q: {"auth": "c29tZWJvZHk6c2VjcmV0"}}}`, p.host) // somebody:secret
	for _, file := range []string{"home/.docker/config.json", "run/containers/auth.json", ""} {
		dir := t.TempDir()
		t.Setenv("HOME", dir+"/home")
		t.Setenv("DOCKER_CONFIG", dir+"/home/.docker")
		t.Setenv("XDG_RUNTIME_DIR", dir+"/run")
		t.Setenv("XDG_CONFIG_HOME", dir+"/config")
		if file != "" {
			if err := os.MkdirAll(filepath.Dir(filepath.Join(dir, file)), 0o700); err != nil {
				t.Fatal(err)
			}
			if err := os.WriteFile(filepath.Join(dir, file), []byte(config), 0o600); err != nil {
				t.Fatal(err)
			}
		}
		_, err := Pull(context.Background(), newStore(t), ref, Options{PlainHTTP: true})
		if (err == nil) != (file != "") {
			t.Errorf("%q: %v", file, err)
		}
	}
}

func TestManyPullsOfOneImageDoTheWorkOnce(t *testing.T) {
	p, s := newPlace(t), newStore(t)
	ref := p.push(t, "tool:1", build(t, image.Platform(), layer(t, map[string][]byte{"a": noise(200 << 10)}), layer(t, map[string][]byte{"b": noise(100 << 10)})))
	p.slow.Store(int64(5 * time.Millisecond))
	var group sync.WaitGroup
	for range 8 {
		group.Go(func() {
			if _, err := Pull(context.Background(), s, ref, plainHTTP); err != nil {
				t.Error(err)
			}
		})
	}
	group.Wait()
	if n := p.blobs.Load(); n != 2+8 { // two layers, and the configuration for each
		t.Errorf("%d blobs were fetched", n)
	}
}

func TestAStoreOutlivesFiftyKilledPulls(t *testing.T) {
	if testing.Short() {
		t.Skip("processes are killed")
	}
	p, s := newPlace(t), newStore(t)
	var layers []v1.Layer
	for i := range 4 {
		layers = append(layers, layer(t, map[string][]byte{fmt.Sprintf("f%d", i): noise(256<<10 + i)}))
	}
	ref := p.push(t, "tool:1", build(t, image.Platform(), layers...))
	p.slow.Store(int64(2 * time.Millisecond))
	began := p.blobs.Load()
	for i := range 50 {
		c := exec.Command("/proc/self/exe")
		c.Env = append(os.Environ(), "REGISTRY_TEST_PULL="+ref, "REGISTRY_TEST_STORE="+s.Dir)
		if err := c.Start(); err != nil {
			t.Fatal(err)
		}
		// From before it asks until it is nearly done.
		time.Sleep(time.Duration(10+rand.IntN(60)) * time.Millisecond)
		_ = c.Process.Kill() // it may have ended
		_ = c.Wait()
		names, err := s.Names()
		if err != nil {
			t.Fatalf("after kill %d: %v", i+1, err)
		}
		for _, n := range names {
			if _, err := s.Image(n.Image); err != nil {
				t.Fatalf("after kill %d the name %s has no image: %v", i+1, n.Ref, err)
			}
		}
		if i%10 == 9 { // what came so far must not be all that is ever tried
			if err := os.RemoveAll(filepath.Join(s.Dir, "layers")); err != nil {
				t.Fatal(err)
			}
			if err := os.RemoveAll(filepath.Join(s.Dir, "images")); err != nil {
				t.Fatal(err)
			}
			if err := os.RemoveAll(filepath.Join(s.Dir, "names")); err != nil {
				t.Fatal(err)
			}
		}
	}
	if p.blobs.Load() == began {
		t.Fatal("no pull came so far as to fetch anything")
	}
	p.slow.Store(0)
	got := pull(t, s, ref, plainHTTP)
	for i := range 4 {
		text, err := os.ReadFile(filepath.Join(got.Tree, fmt.Sprintf("f%d", i)))
		if err != nil || !bytes.Equal(text, noise(256<<10+i)) {
			t.Errorf("f%d: %d bytes, %v", i, len(text), err)
		}
	}
	if left, err := os.ReadDir(filepath.Join(s.Dir, "tmp")); err != nil || len(left) > 0 {
		t.Errorf("left in tmp: %d, %v", len(left), err)
	}
	gone, err := s.Collect(context.Background())
	if err != nil || gone.Layers != 0 || gone.Images != 0 {
		t.Errorf("%+v, %v", gone, err)
	}
}
