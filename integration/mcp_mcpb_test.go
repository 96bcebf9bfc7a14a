//go:build linux

package integration

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"skillbox/bundle/unzip/ziptest"
	"skillbox/helper"
)

// mcpbManifest is of a server that needs a directory and may have a key.
const mcpbManifest = `{
  "manifest_version": "0.3", "name": "shows", "version": "1.0.0", "description": "Shows how it was started.", "author": {"name": "a"},
  "server": {"type": "python", "entry_point": "server/main.py", "mcp_config": {
    "command": "python3", "args": ["${__dirname}/server/main.py", "${user_config.dirs}"], "env": {"KEY": "${user_config.key}", "PYTHONPATH": "${__dirname}/server/lib"}}},
  "user_config": {"dirs": {"type": "directory", "title": "Directories", "multiple": true, "required": true}, "key": {"type": "string", "sensitive": true}}
}`

// mcpbFiles are the bundle's: its program prints its words, its key and what a module of its own says.
var mcpbFiles = map[string]string{
	"manifest.json":                mcpbManifest,
	"server/main.py":               "import os, sys, lib_of_its_own\nprint(sys.argv[1:], os.environ.get('KEY'), lib_of_its_own.word, sorted(os.listdir(sys.argv[1])), flush=True)\nsys.stdin.read()\n",
	"server/lib/lib_of_its_own.py": "word = 'there'\n",
}

// wrapFor runs `skillbox mcp wrap` with a cache of its own until it ends, and returns the first line and all of stderr.
func (m mode) wrapFor(t *testing.T, cache string, env []string, args ...string) (line, stderr string, code int) {
	t.Helper()
	cmd := m.command(append([]string{"mcp", "wrap"}, args...)...)
	cmd.Env = append(append(cmd.Env, "XDG_CACHE_HOME="+cache), env...)
	var text strings.Builder
	cmd.Stderr = &text
	out, _ := outputOf(t, cmd) // its code is looked at
	return strings.TrimSuffix(string(out), "\n"), text.String(), cmd.ProcessState.ExitCode()
}

// mcpbCache is where archives are unpacked; what comes in there is removed when the test ends.
func (m mode) mcpbCache(t *testing.T) (cache, dir string) {
	t.Helper()
	cache = m.dir(t)
	dir = filepath.Join(cache, "skillbox", "mcpb")
	if m.uid() == 0 {
		dir = "/var/cache/skillbox/mcpb"
	}
	before, _ := filepath.Glob(dir + "/*") // none at first
	t.Cleanup(func() {
		now, _ := filepath.Glob(dir + "/*")
		for _, path := range now {
			if !strings.Contains(strings.Join(before, "\n")+"\n", path+"\n") {
				if err := os.RemoveAll(path); err != nil {
					t.Error(err)
				}
			}
		}
	})
	return cache, dir
}

func TestAnMCPBundleSaysHowItIsRun(t *testing.T) {
	inEachMode(t, func(t *testing.T, m mode) {
		cache, unpacked := m.mcpbCache(t)
		var entries []ziptest.Entry
		for name, text := range mcpbFiles {
			entries = append(entries, ziptest.Entry{Name: name, Data: []byte(text)})
		}
		entries = append(entries, ziptest.Entry{Name: "of-this-test", Data: []byte(t.Name() + cache)})
		archive := m.file(t, "shows.mcpb", string(ziptest.Make(entries...)))
		files := m.dir(t)
		m.write(t, filepath.Join(files, "x"), "", 0o644)
		given := []string{"--rw", files + ":/files", "--config", "dirs=/files", "--config", "dirs=/b", "--config", "key"}
		const want = "['/files', '/b'] secret there ['x']"
		for _, bundle := range []string{m.bundleOf(t, mcpbFiles), archive, archive} {
			line, stderr, code := m.wrapFor(t, cache, []string{"key=secret"}, append(given, bundle)...)
			if line != want || code != 0 {
				t.Errorf("%s: %q, exit code %d, %s", bundle, line, code, stderr)
			}
		}
		if left, err := filepath.Glob(unpacked + "/part"); err != nil || len(left) > 0 {
			t.Errorf("%v, %v", left, err)
		}
		if _, stderr, code := m.wrapFor(t, cache, nil, archive); code != helper.CodeFailed || !strings.Contains(stderr, "user_config.dirs: the server needs a value") || !strings.Contains(stderr, "--config dirs=/PATH") {
			t.Errorf("without a value: exit code %d, %s", code, stderr)
		}
		if _, stderr, code := m.wrapFor(t, cache, nil, "--config", "key", archive); code != helper.CodeFailed || !strings.Contains(stderr, "no such variable") {
			t.Errorf("without the variable: exit code %d, %s", code, stderr)
		}
	})
}

func TestAHostileMCPBundleIsRefusedAndLeavesNothing(t *testing.T) {
	asRootAndRootless(t, func(t *testing.T, m mode) {
		cache, unpacked := m.mcpbCache(t)
		before, _ := filepath.Glob(unpacked + "/*")
		for name, e := range map[string]ziptest.Entry{
			"a way out":       {Name: "../../out", Data: []byte("x")},
			"an absolute one": {Name: "/tmp/skillbox-out", Data: []byte("x")},
			"a link":          {Name: "link", Data: []byte("/etc/passwd"), Mode: 0o120777},
			"a bomb":          {Name: "zeros", Data: make([]byte, 64<<20)},
		} {
			archive := m.file(t, "bad.mcpb", string(ziptest.Make(ziptest.Entry{Name: "manifest.json", Data: []byte(mcpbManifest)}, e)))
			if line, stderr, code := m.wrapFor(t, cache, nil, archive); code != helper.CodeFailed || line != "" || !strings.Contains(stderr, "zip: ") {
				t.Errorf("%s: exit code %d, %q, %s", name, code, line, stderr)
			}
		}
		if after, _ := filepath.Glob(unpacked + "/*"); len(after) != len(before) {
			t.Errorf("left: %v", after)
		}
	})
}
