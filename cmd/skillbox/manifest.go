package main

import (
	"os"
	"path/filepath"
	"runtime"

	"skillbox/client"
	"skillbox/cmd/cli"
	"skillbox/engine"
	"skillbox/helper"
)

// fromManifest reads --manifest, and has the request ask for what it says of the skill. done takes away what was made for the call.
func (o *options) fromManifest(r *helper.Request, skill string) (bundle string, done func() error, err error) {
	done = func() error { return nil }
	f, err := os.Open(o.manifest)
	if err != nil {
		return "", done, err
	}
	defer f.Close()
	m, err := engine.Read(o.manifest, f, os.LookupEnv)
	if err != nil {
		return "", done, err
	}
	h := engine.Host{Arch: runtime.GOARCH, Env: os.LookupEnv, Real: engine.Real, Home: engine.Home()}
	if h.Dir, err = filepath.Abs(filepath.Dir(o.manifest)); err == nil {
		h.WorkDir, err = os.Getwd()
	}
	if err != nil {
		return "", done, err
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
