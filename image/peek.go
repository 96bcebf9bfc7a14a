package image

import (
	"archive/tar"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"path"
	"path/filepath"
	"regexp"
	"runtime"
	"sync"
)

// maxIndex bounds what is read of a layout's index and of an archive's manifest.json.
const maxIndex = 4 << 20

// peek reads which image lies in a layout or an archive, by the digest that it says. Nothing is believed of it: what the store has by that
// digest was verified when it came.
func peek(kind, path string) (string, error) {
	if kind == "oci" {
		return peekLayout(path)
	}
	return peekArchive(path)
}

// Platform is this machine's, as an index names it.
func Platform() string { return "linux/" + runtime.GOARCH }

func peekLayout(dir string) (string, error) {
	var index struct {
		Manifests []struct {
			Digest string `json:"digest"`
		} `json:"manifests"`
	}
	f, err := os.Open(filepath.Join(dir, "index.json"))
	if err != nil {
		return "", fmt.Errorf("image: oci:%s is no OCI layout: %w", dir, err)
	}
	defer f.Close()
	if err := json.NewDecoder(io.LimitReader(f, maxIndex)).Decode(&index); err != nil {
		return "", fmt.Errorf("image: oci:%s: index.json: %w", dir, err)
	}
	if len(index.Manifests) != 1 || !digest().MatchString(index.Manifests[0].Digest) {
		return "", fmt.Errorf("image: oci:%s: index.json names %d manifests, and not one by its sha256 digest; import one with a name: skillbox image import --name REF oci:%s", dir, len(index.Manifests), dir)
	}
	return index.Manifests[0].Digest, nil
}

// configName is a configuration's in an archive: docker's own since 25, and the one before.
var configName = sync.OnceValue(func() *regexp.Regexp {
	return regexp.MustCompile(`^(?:blobs/sha256/([0-9a-f]{64})|(?:sha256:)?([0-9a-f]{64})(?:\.json)?)$`)
})

func peekArchive(file string) (string, error) {
	id, err := CheckArchive(file, true)
	if err != nil {
		return "", fmt.Errorf("image: docker-archive:%s: %w", file, err)
	}
	return id, nil
}

// CheckArchive reads which image an archive of docker save says it holds. Of several, alone refuses; otherwise the answer is "".
func CheckArchive(file string, alone bool) (id string, err error) {
	f, err := os.Open(file)
	if err != nil {
		return "", err
	}
	defer f.Close()
	archive := tar.NewReader(f) // skips what lies between by seeking
	for range 1 << 16 {
		h, err := archive.Next()
		if errors.Is(err, io.EOF) {
			break
		}
		if err != nil {
			return "", err
		}
		if path.Clean(h.Name) != "manifest.json" {
			continue
		}
		if h.Size > maxIndex {
			return "", fmt.Errorf("manifest.json has %d bytes, more than %d", h.Size, maxIndex)
		}
		var manifest []struct{ Config string }
		if err := json.NewDecoder(archive).Decode(&manifest); err != nil {
			return "", fmt.Errorf("manifest.json: %w", err)
		}
		if len(manifest) != 1 {
			if !alone {
				return "", nil
			}
			return "", fmt.Errorf("it holds %d images; import one of them: skillbox image import --name REF", len(manifest))
		}
		m := configName().FindStringSubmatch(manifest[0].Config)
		if m == nil {
			return "", fmt.Errorf("the configuration %q is not named by its digest", manifest[0].Config)
		}
		return "sha256:" + m[1] + m[2], nil
	}
	return "", errors.New("it has no manifest.json: not an archive of docker save")
}
