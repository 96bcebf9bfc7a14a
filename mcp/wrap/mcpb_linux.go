package wrap

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"strings"

	"golang.org/x/sys/unix"

	"skillbox/bundle"
	"skillbox/bundle/mcpb"
	"skillbox/bundle/unzip"
	"skillbox/client"
	"skillbox/helper"
)

// home is a server's that has no state directory: the box's, which is empty.
const home = "/home/skill"

// Open takes a path as the server's bundle: a directory, or an MCP bundle, which is one with a manifest.json or a .mcpb file. The manifest of one
// says what to run, with values for what it asks its user.
func (s *Server) Open(ctx context.Context, path string, values map[string][]string) error {
	info, err := os.Stat(path)
	if err != nil {
		return err
	}
	if info.Mode().IsRegular() {
		if path, err = s.unpacked(ctx, path); err != nil {
			return err
		}
	}
	s.Bundle = path
	if len(s.Command) > 0 {
		return nil
	}
	m, err := readManifest(path)
	if errors.Is(err, fs.ErrNotExist) && !info.Mode().IsRegular() {
		if len(values) > 0 {
			return &helper.Error{Message: "--config: " + path + " has no " + mcpb.File + ", which could ask for values"}
		}
		return nil // another kind of bundle, which has a command or has none
	}
	if err != nil {
		return described(path, err)
	}
	place := mcpb.Place{Dir: bundle.Dir, Home: home}
	if s.State != "" {
		place.Home = State
	}
	argv, env, err := m.Command(place, values)
	if err != nil {
		return described(path, err)
	}
	s.Command = argv
	for name, value := range env {
		if _, there := s.Set[name]; !there {
			s.Set[name] = value
		}
	}
	return nil
}

// readManifest reads it without following a link out of the bundle.
func readManifest(dir string) (*mcpb.Manifest, error) {
	root, err := os.OpenRoot(dir)
	if err != nil {
		return nil, err
	}
	defer root.Close()
	info, err := root.Stat(mcpb.File)
	if err != nil {
		return nil, err
	}
	if !info.Mode().IsRegular() || info.Size() > mcpb.MaxFile {
		return nil, &mcpb.Error{Message: "is no file of at most 1 MiB"}
	}
	text, err := root.ReadFile(mcpb.File)
	if err != nil {
		return nil, err
	}
	return mcpb.Read(text)
}

func described(path string, err error) error {
	var manifest *mcpb.Error
	var archive *unzip.Error
	switch {
	case errors.As(err, &manifest):
		return &helper.Error{Message: path + ": " + manifest.Error(), Hint: manifest.Hint}
	case errors.As(err, &archive):
		return &helper.Error{Message: path + ": " + archive.Error(), Hint: archive.Hint}
	}
	return err
}

// unpacked returns the directory that holds what is in an archive: in the cache, by the archive's digest, where it stays for the next time.
func (s *Server) unpacked(ctx context.Context, path string) (string, error) {
	f, err := os.Open(path)
	if err != nil {
		return "", err
	}
	defer f.Close()
	info, err := f.Stat()
	if err != nil {
		return "", err
	}
	sum := sha256.New()
	if _, err := io.Copy(sum, f); err != nil {
		return "", err
	}
	cache := client.CacheDir()
	if cache == "" {
		return "", &helper.Error{Message: path + ": there is no place to unpack it: neither XDG_CACHE_HOME nor HOME is set", Hint: "unpack it, and wrap the directory"}
	}
	cache = filepath.Join(cache, "mcpb")
	if err := os.MkdirAll(cache, 0o755); err != nil {
		return "", err
	}
	lock, err := lockDir(cache)
	if err != nil {
		return "", err
	}
	defer lock.Close()
	// A refusal depends on the bounds too, so they are looked at again when they are others.
	name := fmt.Sprintf("%s-%d-%d", hex.EncodeToString(sum.Sum(nil)), s.MaxFiles, s.MaxBytes)
	at := filepath.Join(cache, name)
	if _, err := os.Stat(at); err == nil {
		return at, nil
	}
	return at, described(path, s.unpack(ctx, f, info.Size(), cache, at))
}

// unpack leaves all of an archive at a path or nothing. Nobody else unpacks here meanwhile: what is there in part was left by one who was killed.
func (s *Server) unpack(ctx context.Context, archive io.ReaderAt, size int64, cache, at string) error {
	part := filepath.Join(cache, "part")
	if err := os.RemoveAll(part); err != nil {
		return err
	}
	if err := os.Mkdir(part, 0o755); err != nil {
		return err
	}
	root, err := os.OpenRoot(part)
	if err == nil {
		err = errors.Join(unzip.Extract(ctx, archive, size, root, unzip.Limits{Files: s.MaxFiles, Bytes: s.MaxBytes}), root.Close())
	}
	if err == nil {
		err = os.Rename(part, at)
	}
	if err != nil {
		return errors.Join(err, os.RemoveAll(part))
	}
	return nil
}

// lockDir waits until nobody else has locked a directory; the kernel lets go when the process dies.
func lockDir(dir string) (*os.File, error) {
	f, err := os.Open(dir)
	if err != nil {
		return nil, err
	}
	for {
		err = unix.Flock(int(f.Fd()), unix.LOCK_EX)
		if err != unix.EINTR {
			break
		}
	}
	if err != nil {
		return nil, errors.Join(fmt.Errorf("lock %s: %w", dir, err), f.Close())
	}
	return f, nil
}

// Values are what the flag --config gives: NAME=VALUE, or NAME for the value of the variable that is called so. A name that comes again has
// several values.
func Values(words []string) (map[string][]string, error) {
	all := map[string][]string{}
	for _, word := range words {
		name, value, given := strings.Cut(word, "=")
		if !given {
			if value, given = os.LookupEnv(name); !given {
				return nil, &helper.Error{Message: fmt.Sprintf("--config %s: there is no such variable here", name), Hint: "give it as NAME=VALUE, or set the variable in the client's configuration"}
			}
		}
		all[name] = append(all[name], value)
	}
	return all, nil
}
