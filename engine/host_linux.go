package engine

import (
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"

	"golang.org/x/sys/unix"

	"skillbox/helper"
)

// Read loads the manifest in f, which messages call file. One that everybody may write is refused.
func Read(file string, f *os.File, env func(string) (string, bool)) (*Manifest, error) {
	info, err := f.Stat()
	if err != nil {
		return nil, err
	}
	if info.Mode().IsRegular() && info.Mode().Perm()&0o002 != 0 {
		return nil, &helper.Error{Message: "everybody may write this manifest, so it is nobody's word", File: file, Hint: "chmod o-w " + file}
	}
	data, err := io.ReadAll(io.LimitReader(f, MaxFile+1))
	if err != nil {
		return nil, err
	}
	return Load(file, data, env)
}

// Home is a Host's: the caller's home without links, "" where it is not known.
func Home() string {
	home, err := os.UserHomeDir()
	if err != nil {
		return ""
	}
	if real, err := filepath.EvalSymlinks(home); err == nil {
		return real
	}
	return filepath.Clean(home)
}

// places are directories that are not to be shown by another name either.
var places = []string{"/", "/etc", "/root", "/home", "/var", "/run", "/proc", "/sys", "/dev"}

// engines are the sockets by which container engines are told what to do as root.
var engines = []string{
	"docker.sock", "podman.sock", "containerd.sock", "crio.sock", "buildkitd.sock", "dockershim.sock",
	"docker/docker.sock", "podman/podman.sock", "containerd/containerd.sock", "crio/crio.sock", "buildkit/buildkitd.sock",
}

// Real is a Host's: it follows the links of a path, with the caller's rights.
func Real(path string) (f Found, err error) {
	if f.Path, err = filepath.EvalSymlinks(path); err != nil {
		var e *os.PathError
		if errors.As(err, &e) {
			err = fmt.Errorf("%s: %w", e.Path, e.Err)
		}
		return f, err
	}
	info, err := os.Lstat(f.Path)
	if err != nil {
		return f, err
	}
	for _, place := range places {
		if other, err := os.Stat(place); err == nil && os.SameFile(info, other) {
			f.Path = place
			break
		}
	}
	f.Dir, f.File = info.IsDir(), info.Mode().IsRegular()
	if info.Mode()&os.ModeSocket != 0 {
		f.Socket = f.Path
	}
	for _, name := range engines {
		var st unix.Stat_t
		if at := filepath.Join(f.Path, name); f.Dir && unix.Stat(at, &st) == nil && st.Mode&unix.S_IFMT == unix.S_IFSOCK {
			f.Socket = at
		}
	}
	return f, nil
}
