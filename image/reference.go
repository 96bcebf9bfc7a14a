package image

import (
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"path/filepath"
	"regexp"
	"strings"
	"sync"
)

var (
	// The grammar of the distribution project's package reference.
	host = sync.OnceValue(func() *regexp.Regexp {
		return regexp.MustCompile(`^(localhost|[A-Za-z0-9]([A-Za-z0-9.-]*[A-Za-z0-9])?|\[[0-9A-Fa-f:]+\])(:[0-9]{1,5})?$`)
	})
	component = sync.OnceValue(func() *regexp.Regexp { return regexp.MustCompile(`^[a-z0-9]+((\.|_|__|-+)[a-z0-9]+)*$`) })
	tag       = sync.OnceValue(func() *regexp.Regexp { return regexp.MustCompile(`^[A-Za-z0-9_][A-Za-z0-9._-]{0,127}$`) })
)

const dockerHub = "docker.io"

// Normalize writes a reference in full, as docker reads it: debian is docker.io/library/debian:latest. What names a digest keeps no tag, for
// the digest alone decides. A bare digest stays one.
func Normalize(ref string) (string, error) {
	if digest().MatchString(ref) {
		return ref, nil
	}
	bad := func(why string) (string, error) { return "", fmt.Errorf("image: %q is no reference: %s", ref, why) }
	name, pin, pinned := strings.Cut(ref, "@")
	if pinned && !digest().MatchString(pin) {
		return bad("its digest is not sha256: and 64 hexadecimal digits")
	}
	label := "latest"
	if i := strings.LastIndexByte(name, ':'); i > strings.LastIndexByte(name, '/') {
		name, label = name[:i], name[i+1:]
		if !tag().MatchString(label) {
			return bad("its tag is not letters, digits, '.', '_' and '-', at most 128")
		}
	}
	registry, repository, found := strings.Cut(name, "/")
	if !found || !strings.ContainsAny(registry, ".:") && registry != "localhost" {
		registry, repository = dockerHub, name
	}
	if registry == "index.docker.io" {
		registry = dockerHub
	}
	if registry == dockerHub && !strings.Contains(repository, "/") {
		repository = "library/" + repository
	}
	if !host().MatchString(registry) {
		return bad("its registry is not a name or address with an optional port")
	}
	for c := range strings.SplitSeq(repository, "/") {
		if !component().MatchString(c) {
			return bad("its repository is not small letters and digits, with '.', '_' and '-' between them")
		}
	}
	if len(repository) > 255 {
		return bad("its repository is longer than 255 characters")
	}
	if pinned {
		return registry + "/" + repository + "@" + pin, nil
	}
	return registry + "/" + repository + ":" + label, nil
}

// namePath is where the record of a name lies.
func (s *Store) namePath(key string) string {
	sum := sha256.Sum256([]byte(key))
	return filepath.Join(s.Dir, "names", hex.EncodeToString(sum[:])+".json")
}
