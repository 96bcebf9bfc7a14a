package wrap

import (
	"errors"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"skillbox/helper"
)

func installed(t *testing.T, packages map[string]string) string {
	t.Helper()
	dir := t.TempDir()
	for name, text := range packages {
		at := filepath.Join(dir, "node_modules", name)
		if err := os.MkdirAll(at, 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(filepath.Join(at, "package.json"), []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	return dir
}

func TestNpxIsTheProgramThatIsInstalled(t *testing.T) {
	dir := installed(t, map[string]string{
		"@scope/server": `{"version": "1.2.3", "bin": {"mcp-server": "dist/index.js"}}`,
		"plain":         `{"version": "2.0.0", "bin": "cli.mjs"}`,
		"many":          `{"version": "1.0.0", "bin": {"many": "./bin/many.cjs", "other": "bin/other"}}`,
		"up":            `{"version": "1.0.0", "bin": "../../../../etc/x.js"}`,
	})
	for line, want := range map[string]string{
		"npx @scope/server /a b":                       "node /skill/node_modules/@scope/server/dist/index.js /a b",
		"npx -y @scope/server@1.2.3":                   "node /skill/node_modules/@scope/server/dist/index.js",
		"npx --yes @scope/server@latest -- -x":         "node /skill/node_modules/@scope/server/dist/index.js -- -x",
		"/usr/bin/npx -q plain@^2":                     "node /skill/node_modules/plain/cli.mjs",
		"npx many --help":                              "node /skill/node_modules/many/bin/many.cjs --help",
		"npx -p many other -y":                         "/skill/node_modules/many/bin/other -y",
		"npx --package=many -y -- other":               "/skill/node_modules/many/bin/other",
		"npx --package=@scope/server@1.2.3 mcp-server": "node /skill/node_modules/@scope/server/dist/index.js",
		"npx up":          "node /skill/node_modules/up/etc/x.js",
		"node server.js":  "node server.js",
		"./npx-server -y": "./npx-server -y",
	} {
		s := Server{Bundle: dir, Command: strings.Fields(line)}
		if note, err := s.Resolve(); err != nil || !slices.Equal(s.Command, strings.Fields(want)) || (note == "") != (line[:4] == "node" || line[0] == '.') {
			t.Errorf("%s: %q, %q, %v", line, s.Command, note, err)
		}
	}
}

func TestWhatWouldBeFetchedSaysHowToInstallIt(t *testing.T) {
	dir := installed(t, map[string]string{
		"server": `{"version": "1.2.3", "bin": "x.js"}`, "none": `{"version": "1.2.3"}`, "odd": `{"bin": 7}`, "bad": `{`, "many": `{"bin": {"a": "a.js", "b": "b.js"}}`,
	})
	for line, want := range map[string][2]string{
		"npx -y @scope/missing":  {"not installed", "npm install --prefix " + dir + " @scope/missing"},
		"npx server@1.2.4":       {"version 1.2.3 is installed", "npm install --prefix " + dir + " server@1.2.4"},
		"npx":                    {"which package", "npx -y PACKAGE"},
		"npx -y":                 {"which package", "npx -y PACKAGE"},
		"npx -c x":               {"-c is not understood", "node SCRIPT"},
		"npx ../evil":            {"no package of a registry", "installed"},
		"npx /etc":               {"no package of a registry", "installed"},
		"npx none":               {"has no program", "--package"},
		"npx odd":                {"neither a path", "--package"},
		"npx bad":                {"package.json", ""},
		"npx many":               {"but a, b", "--package many PROGRAM"},
		"npx -p server other":    {"", ""}, // a package with one path has it under every name
		"uvx mcp-server-git":     {"would fetch", "pip install --target"},
		"docker run -i mcp/time": {"cannot be run in a box", "container's place"},
	} {
		s := Server{Bundle: dir, Command: strings.Fields(line)}
		_, err := s.Resolve()
		var told *helper.Error
		if want[0] == "" {
			if err != nil {
				t.Errorf("%s: %v", line, err)
			}
		} else if !errors.As(err, &told) || !strings.Contains(told.Message, want[0]) || !strings.Contains(told.Hint, want[1]) {
			t.Errorf("%s: %v, %+v", line, err, told)
		}
	}
	s := Server{Command: []string{"npx", "@scope/missing"}}
	var told *helper.Error
	if _, err := s.Resolve(); !errors.As(err, &told) || !strings.Contains(told.Hint, "npm install --prefix DIR @scope/missing, and --bundle DIR") {
		t.Errorf("without a bundle: %+v", told)
	}
}
