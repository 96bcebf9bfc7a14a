package wrap

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strings"

	"skillbox/bundle"
	"skillbox/helper"
)

// Resolve replaces a command that would fetch its program from a registry by the program that is there already: in a box there is nothing to
// fetch from. The note says what was found, "" where the command was left alone.
func (s *Server) Resolve() (note string, err error) {
	if len(s.Command) == 0 {
		return "", nil
	}
	switch name := path.Base(s.Command[0]); name {
	case "npx":
		return s.npx(s.Command[1:])
	case "uvx", "pipx", "bunx", "pnpx":
		return "", &helper.Error{Message: name + " would fetch the server, and a box has nothing to fetch it from", Hint: fetched(name)}
	case "docker", "podman":
		return "", &helper.Error{Message: name + " cannot be run in a box", Hint: "wrap the server itself: the box takes the container's place"}
	}
	return "", nil
}

func fetched(name string) string {
	if name == "uvx" || name == "pipx" {
		return "python3 -m pip install --target DIR PACKAGE, then skillbox mcp wrap --bundle DIR -- python3 -m MODULE"
	}
	return "npm install --prefix DIR PACKAGE, then skillbox mcp wrap --bundle DIR -- npx PACKAGE"
}

// modules is a directory of packages, on the host and in the box.
type modules struct{ host, box string }

// modules are where packages are looked for: the bundle's come before those that were installed for the whole machine.
func (s *Server) modules() []modules {
	all := []modules{{"/usr/local/lib/node_modules", "/usr/local/lib/node_modules"}, {"/usr/lib/node_modules", "/usr/lib/node_modules"}}
	if s.Bundle != "" {
		all = slices.Insert(all, 0, modules{filepath.Join(s.Bundle, "node_modules"), bundle.Dir + "/node_modules"})
	}
	return all
}

// npx resolves what comes after the word npx (docs.npmjs.com/cli/commands/npx).
func (s *Server) npx(words []string) (note string, err error) {
	spec, program := "", ""
	for len(words) > 0 && strings.HasPrefix(words[0], "-") {
		word := words[0]
		words = words[1:]
		name, value, given := strings.Cut(word, "=")
		switch {
		case word == "--":
			goto named
		case slices.Contains([]string{"-y", "--yes", "--no", "-q", "--quiet", "--offline", "--prefer-offline"}, word):
		case name == "-p" || name == "--package":
			if !given && len(words) > 0 {
				value, words = words[0], words[1:]
			}
			spec = value
		default:
			return "", &helper.Error{Message: "npx " + word + " is not understood", Hint: "-y, --package and the server's own words are; node SCRIPT works without npx"}
		}
	}
named:
	if len(words) == 0 {
		return "", &helper.Error{Message: "npx: nothing says which package", Hint: "npx -y PACKAGE"}
	}
	if spec == "" {
		spec = words[0]
	} else {
		program = words[0]
	}
	name, wanted := splitSpec(spec)
	for _, m := range s.modules() {
		argv, version, err := m.find(name, program)
		if errors.Is(err, fs.ErrNotExist) {
			continue
		}
		if err != nil {
			return "", err
		}
		if exact(wanted) && wanted != version {
			return "", &helper.Error{Message: fmt.Sprintf("npx %s: version %s is installed in %s", spec, version, m.host), Hint: s.install(spec)}
		}
		s.Command = append(argv, words[1:]...)
		return fmt.Sprintf("npx %s is version %s in %s", spec, version, m.host), nil
	}
	return "", &helper.Error{Message: fmt.Sprintf("npx %s: the package is not installed, and a box has nothing to fetch it from", spec), Hint: s.install(spec)}
}

func (s *Server) install(spec string) string {
	if s.Bundle == "" {
		return fmt.Sprintf("npm install --prefix DIR %s, and --bundle DIR before the --", spec)
	}
	return fmt.Sprintf("npm install --prefix %s %s", s.Bundle, spec)
}

// splitSpec takes a version or tag from a package's name: "@scope/name@1.2.3".
func splitSpec(spec string) (name, version string) {
	if at := strings.LastIndex(spec, "@"); at > 0 {
		return spec[:at], spec[at+1:]
	}
	return spec, ""
}

// exact says that a version is one, and no range or tag, which say nothing that an installed one could contradict.
func exact(version string) bool {
	return strings.Count(version, ".") == 2 && strings.IndexFunc(version, func(r rune) bool { return (r < '0' || r > '9') && r != '.' }) < 0
}

// maxPackage is the largest package.json in bytes.
const maxPackage = 1 << 20

// find returns the command of a package's program, by name, and its version; fs.ErrNotExist where the package is not here.
func (m modules) find(name, program string) (argv []string, version string, err error) {
	if !fs.ValidPath(name) || strings.Contains(name, "..") {
		return nil, "", &helper.Error{Message: fmt.Sprintf("npx %q: that is no package of a registry", name), Hint: "name an installed one"}
	}
	root, err := os.OpenRoot(m.host)
	if err != nil {
		return nil, "", err
	}
	defer root.Close()
	file := path.Join(name, "package.json")
	info, err := root.Stat(file)
	if err != nil {
		return nil, "", err
	}
	at := path.Join(m.host, file)
	if !info.Mode().IsRegular() || info.Size() > maxPackage {
		return nil, "", &helper.Error{Message: at + ": is no file of at most 1 MiB"}
	}
	text, err := root.ReadFile(file)
	if err != nil {
		return nil, "", err
	}
	var p struct {
		Version string          `json:"version"`
		Bin     json.RawMessage `json:"bin"`
	}
	if err := json.Unmarshal(text, &p); err != nil {
		return nil, "", &helper.Error{Message: fmt.Sprintf("%s: %v", at, err)}
	}
	script, err := choose(p.Bin, cmpBase(program, name), program != "")
	if err != nil {
		return nil, "", &helper.Error{Message: fmt.Sprintf("%s: %v", at, err), Hint: "npx --package " + name + " PROGRAM"}
	}
	script = path.Join(m.box, name, path.Join("/", script))
	if slices.Contains([]string{".js", ".mjs", ".cjs"}, path.Ext(script)) {
		return []string{"node", script}, p.Version, nil
	}
	return []string{script}, p.Version, nil
}

// cmpBase is the program that is meant: the one that is named, or that which is called as its package is.
func cmpBase(program, name string) string {
	if program != "" {
		return program
	}
	return path.Base(name)
}

// choose takes one of the programs of a package: the only one, unless another is named, or the one with this name.
func choose(bin json.RawMessage, name string, named bool) (script string, err error) {
	if json.Unmarshal(bin, &script) == nil && script != "" {
		return script, nil
	}
	var all map[string]string
	if len(bin) > 0 {
		if err := json.Unmarshal(bin, &all); err != nil {
			return "", errors.New("bin: is neither a path nor a list of them")
		}
	}
	if script, there := all[name]; there {
		return script, nil
	}
	names := slices.Sorted(maps.Keys(all))
	switch {
	case len(names) == 0:
		return "", errors.New("bin: the package has no program")
	case len(names) == 1 && !named:
		return all[names[0]], nil
	}
	return "", fmt.Errorf("bin: the package has no program %s, but %s", name, strings.Join(names, ", "))
}
