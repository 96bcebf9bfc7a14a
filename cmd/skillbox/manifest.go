package main

import (
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"runtime"

	"golang.org/x/sys/unix"

	"skillbox/client"
	"skillbox/cmd/cli"
	"skillbox/engine"
	"skillbox/helper"
)

// fromManifest reads --manifest, and has the request ask for what it says of the skill. done takes away what was made for the call.
func (o *options) fromManifest(r *helper.Request, skill string) (bundle string, done func() error, err error) {
	done = func() error { return nil }
	data, err := readManifest(o.manifest)
	if err != nil {
		return "", done, err
	}
	m, err := engine.Load(o.manifest, data, os.LookupEnv)
	if err != nil {
		return "", done, err
	}
	h := engine.Host{Arch: runtime.GOARCH, Env: os.LookupEnv, Real: found}
	if h.Dir, err = filepath.Abs(filepath.Dir(o.manifest)); err == nil {
		h.WorkDir, err = os.Getwd()
	}
	if err != nil {
		return "", done, err
	}
	if home, err := os.UserHomeDir(); err == nil {
		h.Home = filepath.Clean(home)
		if real, err := filepath.EvalSymlinks(home); err == nil {
			h.Home = real
		}
	}
	run, err := m.Resolve(h, engine.Call{Skill: skill, Words: r.Words})
	if err != nil {
		return "", done, err
	}
	if o.workdir == "" {
		r.WorkDir = run.WorkDir
	}
	r.Words, r.Manifest, r.BundleName = run.Words, &run.Manifest, skill
	r.Ways = append(r.Ways, helper.WayTo(o.manifest)...)
	o.values, o.warnings = run.Env, run.Warnings
	if bundle = run.Bundle; bundle == "" {
		bundle, done, err = emptyBundle()
	}
	return bundle, done, err
}

// readManifest reads a file that is somebody's word.
func readManifest(path string) ([]byte, error) {
	f, err := os.Open(path)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	info, err := f.Stat()
	if err != nil {
		return nil, err
	}
	if info.Mode().IsRegular() && info.Mode().Perm()&0o002 != 0 {
		return nil, &helper.Error{Message: "everybody may write this manifest, so it is nobody's word", File: path, Hint: "chmod o-w " + path}
	}
	return io.ReadAll(io.LimitReader(f, engine.MaxFile+1))
}

// lookup is the caller's environment, and the variables of the manifest before it.
func (o *options) lookup(name string) (string, bool) {
	if value, ok := o.values[name]; ok {
		return value, true
	}
	return os.LookupEnv(name)
}

// emptyBundle is the bundle of a skill whose files are all in its image. The same directory serves the next call too, so that boxes may wait for it.
func emptyBundle() (string, func() error, error) {
	if cache := client.CacheDir(); cache != "" {
		dir := filepath.Join(cache, "empty")
		if err := os.MkdirAll(dir, 0o755); err == nil {
			if names, err := os.ReadDir(dir); err == nil && len(names) == 0 {
				return dir, func() error { return nil }, nil
			}
		}
	}
	dir, err := os.MkdirTemp("", "skillbox-empty-")
	return dir, func() error { return os.Remove(dir) }, err
}

// places are directories that are not to be shown by another name either.
var places = []string{"/", "/etc", "/root", "/home", "/var", "/run", "/proc", "/sys", "/dev"}

// engines are the sockets by which container engines are told what to do as root.
var engines = []string{
	"docker.sock", "podman.sock", "containerd.sock", "crio.sock", "buildkitd.sock", "dockershim.sock",
	"docker/docker.sock", "podman/podman.sock", "containerd/containerd.sock", "crio/crio.sock", "buildkit/buildkitd.sock",
}

// found follows the links of a path, with the caller's rights.
func found(path string) (f engine.Found, err error) {
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

// asSkillEngine prints what skill-engine's own runtime answers with. Where skillbox has refused or ended the run, its reason is the last line of stderr.
func asSkillEngine(r *helper.Result) error {
	if r.Error != nil {
		r.Stderr += "skillbox: " + cli.VisibleLines(r.Error.Error()) + "\n"
	}
	return printJSON(struct {
		Success  bool   `json:"success"`
		Stdout   string `json:"stdout"`
		Stderr   string `json:"stderr"`
		ExitCode int    `json:"exit_code"`
	}{r.ExitCode == 0, r.Stdout, r.Stderr, r.ExitCode})
}
