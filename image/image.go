// Package image is a store of OCI images: directories that boxes mount as their root, by digest. It reads and looks after a store; package
// unpack puts images into one, and package registry fetches them. The client and skillboxd link this half, which is small.
//
// A store is a directory:
//
//	layers/HEX/     a layer by its diff id (the digest of its tar stream): fs/ holds its files, removed lists what it takes away
//	images/HEX/     an image by the digest of its configuration: image.json, and tree/ with hard links to its layers' files
//	names/HEX.json  a name (a reference, a digest) by its own hash, and the image that it means
//	locks/          one file for each thing that only one process may make
//	tmp/            what is being made; its maker holds a lock on it, and what nobody holds is swept
//
// What has its final name is whole: everything is made in tmp/ and renamed. A box holds a lock for reading on its image's image.json (F_OFD_SETLK
// of fcntl(2)), and whoever removes an image needs one for writing. Unlike flock(2) it needs the file open for writing, which only the store's
// owner can have: whoever may use the images cannot keep others from them.
package image

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"sync"
	"time"
)

// Image is one that a store has, whole.
type Image struct {
	Digest   string    `json:"digest"` // "sha256:…" of the manifest; of an archive, which has none, it is ID
	ID       string    `json:"id"`     // "sha256:…" of the configuration, which names the layers: what lies in Tree
	Ref      string    `json:"ref"`    // the name that it was found by, written in full
	Size     int64     `json:"size"`   // bytes of all files
	Files    int64     `json:"files"`
	Platform string    `json:"platform"` // such as linux/arm64/v8
	Created  time.Time `json:"created,omitzero"`
	Layers   []Layer   `json:"layers"` // lowest first
	Config   Config    `json:"config"`
	Skipped  []string  `json:"skipped,omitempty"` // the first of what was left out, such as device nodes

	Tree string `json:"tree"` // host path of the root directory
}

// Layer is one of an image's.
type Layer struct {
	DiffID string `json:"diff_id"` // "sha256:…" of the tar stream
	Size   int64  `json:"size"`    // bytes of its files
}

// Config is what an image says about running it.
type Config struct {
	Env        []string `json:"env,omitempty"` // NAME=VALUE
	Entrypoint []string `json:"entrypoint,omitempty"`
	Cmd        []string `json:"cmd,omitempty"`
	User       string   `json:"user,omitempty"` // never honoured: the skill's user is the box's
	WorkingDir string   `json:"working_dir,omitempty"`
}

// Name is one that an image has.
type Name struct {
	Ref    string `json:"ref"`    // see Normalize
	Image  string `json:"image"`  // its ID
	Digest string `json:"digest"` // of the manifest that this name stood for
	// Hidden names were not given by anybody: the digests by which an image can be found.
	Hidden bool `json:"hidden,omitempty"`
}

// Missing says that a store has no such image.
type Missing struct {
	Base   string // as in rootfs.base
	Import bool   // a file or directory that lies here, and can be imported
}

func (m *Missing) Error() string {
	if m.Import {
		return fmt.Sprintf("image: %s is not in the store", m.Base)
	}
	return fmt.Sprintf("image: no image %s in the store", strings.TrimPrefix(m.Base, "image:"))
}

// Hint is the command that gets it.
func (m *Missing) Hint() string {
	if m.Import {
		return "skillbox image import " + m.Base
	}
	return "skillbox image pull " + strings.TrimPrefix(m.Base, "image:") + ", or skillbox image import an archive of it"
}

// SystemDir is the store of root and of the system service. Everybody may use its images, unless the administrator closes the directory.
const SystemDir = "/var/lib/skillbox/images"

// DefaultDir is the caller's store: root's is SystemDir, another's $XDG_DATA_HOME/skillbox/images, by default ~/.local/share; "" where neither
// that nor HOME says where. SKILLBOX_IMAGES names another.
func DefaultDir() string { return dirOf(os.Geteuid(), os.Getenv) }

func dirOf(uid int, getenv func(string) string) string {
	if dir := getenv("SKILLBOX_IMAGES"); filepath.IsAbs(dir) {
		return dir
	}
	if uid == 0 {
		return SystemDir
	}
	// A relative path is to be ignored, says the XDG Base Directory Specification.
	if data := getenv("XDG_DATA_HOME"); filepath.IsAbs(data) {
		return filepath.Join(data, "skillbox", "images")
	}
	if home := getenv("HOME"); filepath.IsAbs(home) {
		return filepath.Join(home, ".local", "share", "skillbox", "images")
	}
	return ""
}

// Store is a directory with images. Its methods may be called by several processes at once.
type Store struct{ Dir string }

// OpenStore returns the store in dir, which need not exist: then it has no image. Nothing is made.
func OpenStore(dir string) (*Store, error) {
	if !filepath.IsAbs(dir) {
		return nil, fmt.Errorf("image: store %q: neither XDG_DATA_HOME nor HOME says where images are", dir)
	}
	real, err := filepath.EvalSymlinks(dir)
	if errors.Is(err, fs.ErrNotExist) {
		return &Store{filepath.Clean(dir)}, nil
	}
	if err != nil {
		return nil, fmt.Errorf("image: store %s: %w", dir, err)
	}
	return &Store{real}, nil
}

// Find looks a base ("image:REF", "oci:DIR" or "docker-archive:FILE") up in the stores of these directories, in this order; "" is passed over.
// It fails with *Missing if none has it.
func Find(base string, dirs ...string) (*Image, error) {
	for _, dir := range dirs {
		if dir == "" {
			continue
		}
		s, err := OpenStore(dir)
		if err != nil {
			return nil, err
		}
		found, err := s.Resolve(base)
		var missing *Missing
		// A store that may not be read has nothing for whoever asks.
		if errors.As(err, &missing) || errors.Is(err, fs.ErrPermission) {
			continue
		}
		return found, err
	}
	return nil, missing(base)
}

func missing(base string) *Missing {
	m := &Missing{Base: base}
	kind, _, _ := strings.Cut(base, ":")
	m.Import = kind == "oci" || kind == "docker-archive"
	return m
}

var digest = sync.OnceValue(func() *regexp.Regexp { return regexp.MustCompile(`^sha256:[0-9a-f]{64}$`) })

// IsDigest says that a text is "sha256:" and 64 hexadecimal digits.
func IsDigest(s string) bool { return digest().MatchString(s) }

// Resolve returns the image of a reference, a digest, or a base as in Find.
func (s *Store) Resolve(ref string) (*Image, error) {
	key := strings.TrimPrefix(ref, "image:")
	switch kind, path, _ := strings.Cut(ref, ":"); kind {
	case "oci", "docker-archive":
		id, err := peek(kind, path)
		if err != nil {
			return nil, err
		}
		key = id
	default:
		var err error
		if key, err = Normalize(key); err != nil {
			return nil, err
		}
	}
	name, err := s.name(key)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, missing(ref)
	}
	if err != nil {
		return nil, err
	}
	found, err := s.Image(name.Image)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, missing(ref)
	}
	if err != nil {
		return nil, err
	}
	found.Ref, found.Digest = name.Ref, name.Digest
	return found, nil
}

// Image returns one by its ID.
func (s *Store) Image(id string) (*Image, error) {
	if !digest().MatchString(id) {
		return nil, fmt.Errorf("image: %q is no digest", id)
	}
	dir := s.imageDir(id)
	var found Image
	if err := readJSON(filepath.Join(dir, "image.json"), &found); err != nil {
		return nil, err
	}
	if found.ID != id {
		return nil, fmt.Errorf("image: %s is about %s", dir, found.ID)
	}
	found.Tree = filepath.Join(dir, "tree")
	return &found, nil
}

func (s *Store) imageDir(id string) string {
	return filepath.Join(s.Dir, "images", id[len("sha256:"):])
}

// Names lists all names, those that nobody gave too.
func (s *Store) Names() ([]Name, error) {
	entries, err := os.ReadDir(filepath.Join(s.Dir, "names"))
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, fmt.Errorf("image: %w", err)
	}
	var names []Name
	for _, e := range entries {
		var n Name
		err := readJSON(filepath.Join(s.Dir, "names", e.Name()), &n)
		if errors.Is(err, fs.ErrNotExist) {
			continue // removed meanwhile
		}
		if err != nil {
			return nil, err
		}
		names = append(names, n)
	}
	return names, nil
}

func (s *Store) name(key string) (n Name, err error) {
	err = readJSON(s.namePath(key), &n)
	if err == nil && (n.Ref != key || !digest().MatchString(n.Digest)) {
		err = fmt.Errorf("image: %s is about %s", s.namePath(key), n.Ref)
	}
	return n, err
}

// maxRecord is the largest file of ours about an image; a configuration in a registry has at most 4 MiB.
const maxRecord = 16 << 20

func readJSON(path string, v any) error {
	info, err := os.Lstat(path)
	if err != nil {
		return fmt.Errorf("image: %w", err)
	}
	if !info.Mode().IsRegular() || info.Size() > maxRecord {
		return fmt.Errorf("image: %s is no record of a store", path)
	}
	text, err := os.ReadFile(path)
	if err != nil {
		return fmt.Errorf("image: %w", err)
	}
	if err := json.Unmarshal(text, v); err != nil {
		return fmt.Errorf("image: %s: %w", path, err)
	}
	return nil
}
