//go:build linux

package integration

import (
	"os/exec"
	"path/filepath"
	"testing"

	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/tarball"
)

// A system that has nothing of the host's: Debian's packages as they are unpacked, with a Python that is the image's.
func TestADebianImageRunsItsPython(t *testing.T) {
	_, err := exec.LookPath("mmdebstrap")
	needs(t, "mmdebstrap", err)
	root := filepath.Join(t.TempDir(), "root.tar")
	// As they are unpacked: nothing of them is run here.
	out, err := exec.Command("mmdebstrap", "--quiet", "--variant=extract", "--components=main", "--include=base-files,python3,dash,coreutils",
		"--aptopt=APT::Install-Recommends \"false\"", "--dpkgopt=path-exclude=/usr/share/doc/*", "bookworm", root).CombinedOutput()
	if err != nil {
		t.Fatalf("mmdebstrap: %v: %s", err, out)
	}
	layer, err := tarball.LayerFromFile(root)
	if err != nil {
		t.Fatal(err)
	}
	img := imageOf(t, v1.Config{Entrypoint: []string{"python3"}, Env: []string{"PATH=/usr/bin:/bin"}}, layer)
	asRootAndRootless(t, func(t *testing.T, m mode) {
		_, env := m.images(t)
		c := call{
			mode: m, env: env, bundle: m.bundleOf(t, map[string]string{"main.py": "import json, ssl, sqlite3, sys\nprint(json.dumps([sys.prefix, open('/etc/debian_version').read()[:3]]))\n"}),
			policy: "version: 1\nrootfs: {base: \"docker-archive:" + m.archiveOf(t, img) + "\"}\n", words: []string{"main.py"},
		}
		r := c.run(t)
		if !r.Success || r.Stdout != "[\"/usr\", \"12.\"]\n" || r.Sandbox.Image == "" {
			t.Errorf("%s %q %s %v", r.Verdict, r.Stdout, r.Stderr, r.Error)
		}
		if again := c.run(t); !again.Success || again.Sandbox.Image != r.Sandbox.Image {
			t.Errorf("again: %s %v", again.Verdict, again.Error)
		}
	})
}
