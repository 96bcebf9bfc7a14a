package mcpb

import (
	"errors"
	"maps"
	"slices"
	"strings"
	"testing"
)

// manifest has a server with these keys, and options.
func manifest(server, rest string) string {
	return `{"manifest_version": "0.3", "name": "x", "version": "1.0.0", "description": "d", "author": {"name": "a"}, "server": {` + server + `}` + rest + `}`
}

const config = `"type": "node", "entry_point": "server/index.js", "mcp_config": {"command": "node", "args": ["${__dirname}/server/index.js", "${user_config.dirs}", "--n=${user_config.n}"],
	"env": {"KEY": "${user_config.key}", "MODE": "a"}, "platform_overrides": {"linux": {"env": {"MODE": "linux"}}, "win32": {"command": "node.exe"}}}`

const options = `, "user_config": {"dirs": {"type": "directory", "title": "Dirs", "multiple": true, "required": true, "default": ["${HOME}/Desktop"]},
	"n": {"type": "number", "default": 10, "min": 1, "max": 100}, "key": {"type": "string", "sensitive": true}}`

var place = Place{Dir: "/skill", Home: "/state"}

func TestAManifestIsACommand(t *testing.T) {
	for name, c := range map[string]struct {
		text   string
		values map[string][]string
		argv   string
		env    map[string]string
	}{
		"all of it": {
			manifest(config, options),
			map[string][]string{"dirs": {"/a", "/b c"}, "key": {"secret"}},
			"node|/skill/server/index.js|/a|/b c|--n=10",
			map[string]string{"KEY": "secret", "MODE": "linux"},
		},
		"what nobody gave": {manifest(config, options), map[string][]string{"dirs": {"/a"}, "n": {"7"}}, "node|/skill/server/index.js|/a|--n=7", map[string]string{"MODE": "linux"}},
		"an entry point":   {manifest(`"type": "python", "entry_point": "main.py"`, ""), nil, "python3|/skill/main.py", nil},
		"a program":        {manifest(`"type": "binary", "entry_point": "bin/x"`, ""), nil, "/skill/bin/x", nil},
		"a relative one":   {manifest(`"type": "binary", "entry_point": "x", "mcp_config": {"command": "server/x", "args": ["${HOME}${/}y"]}`, ""), nil, "/skill/server/x|/state/y", nil},
		"the old name":     {strings.Replace(manifest(`"type": "node", "entry_point": "x.js"`, ""), "manifest_version", "dxt_version", 1), nil, "node|/skill/x.js", nil},
		"other keys":       {manifest(`"type": "node", "entry_point": "x.js"`, `, "tools": [{"name": "a"}], "_meta": {"x": 1}`), nil, "node|/skill/x.js", nil},
	} {
		m, err := Read([]byte(c.text))
		if err != nil {
			t.Errorf("%s: %v", name, err)
			continue
		}
		argv, env, err := m.Command(place, c.values)
		if err != nil || !slices.Equal(argv, strings.Split(c.argv, "|")) || len(env)+len(c.env) > 0 && !maps.Equal(env, c.env) {
			t.Errorf("%s: %q, %v, %v", name, argv, env, err)
		}
	}
}

func TestWhatCannotBeRunIsNamed(t *testing.T) {
	plain := `"type": "node", "entry_point": "x.js"`
	for name, c := range map[string]struct {
		text   string
		values map[string][]string
		want   string
	}{
		"no JSON":             {"{\n\n,}", nil, "manifest.json:3: "},
		"another kind":        {`{"manifest_version": 3, "name": "a browser's extension"}`, nil, "manifest_version: is a number"},
		"another file":        {`{"name": "x"}`, nil, "no manifest of an MCP bundle"},
		"no server":           {`{"manifest_version": "0.2", "name": "x"}`, nil, "server: is missing"},
		"uv":                  {manifest(`"type": "uv", "entry_point": "x.py"`, ""), nil, "fetches its packages"},
		"a type":              {manifest(`"type": "java"`, ""), nil, "none of node, python and binary"},
		"nothing to run":      {manifest(`"type": "node"`, ""), nil, "what to run"},
		"another system":      {manifest(plain, `, "compatibility": {"platforms": ["darwin", "win32"]}`), nil, "for darwin, win32"},
		"a required value":    {manifest(config, options), nil, `user_config.dirs: the server needs a value ("Dirs")`},
		"an unknown value":    {manifest(plain, options), map[string][]string{"dir": {"/a"}}, `no option "dir"`},
		"two of one":          {manifest(plain, options), map[string][]string{"dirs": {"/a"}, "n": {"1", "2"}}, "takes one value"},
		"no number":           {manifest(plain, options), map[string][]string{"dirs": {"/a"}, "n": {"x"}}, "is no number"},
		"out of range":        {manifest(plain, options), map[string][]string{"dirs": {"/a"}, "n": {"101"}}, "out of range"},
		"neither":             {manifest(plain, `, "user_config": {"b": {"type": "boolean", "default": 7}}`), nil, "neither true nor false"},
		"an unknown variable": {manifest(`"type": "node", "mcp_config": {"command": "node", "args": ["${SECRET}"]}`, ""), nil, "${SECRET} is not known"},
		"an unknown option":   {manifest(`"type": "node", "mcp_config": {"command": "node", "args": ["${user_config.x}"]}`, ""), nil, "${user_config.x} is not known"},
		"no word":             {manifest(`"type": "node", "mcp_config": {"command": "${user_config.key}"}`, options), map[string][]string{"dirs": {"/a"}}, "is not one word"},
	} {
		m, err := Read([]byte(c.text))
		if err == nil {
			_, _, err = m.Command(place, c.values)
		}
		var told *Error
		if !errors.As(err, &told) || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s: %v", name, err)
		}
	}
}

func FuzzManifest(f *testing.F) {
	f.Add([]byte(manifest(config, options)))
	f.Add([]byte(manifest(`"type": "binary", "entry_point": "../x"`, "")))
	f.Fuzz(func(t *testing.T, data []byte) {
		m, err := Read(data)
		if err != nil {
			return
		}
		argv, env, err := m.Command(place, nil)
		if err != nil {
			return
		}
		if len(argv) == 0 || argv[0] == "" {
			t.Fatalf("no command: %q", argv)
		}
		for _, word := range append(argv, slices.Collect(maps.Values(env))...) {
			if strings.Contains(word, "${__dirname}") {
				t.Fatalf("not expanded: %q", word)
			}
		}
	})
}
