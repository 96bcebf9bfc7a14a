// Package bundle reads a skill directory: what kind of skill it is, how it says it is started, which policy it declares for itself,
// and the digest that names its contents. Nothing in a bundle is executed here, and of its files only the manifests are parsed.
//
// A bundle is written by a stranger. Everything is reached through the descriptor of its root directory, by openat2(2) beneath it,
// without following a link or crossing a mount.
package bundle

import (
	"encoding/json"
	"path"
	"slices"
	"strings"

	"go.yaml.in/yaml/v4"
)

// Dir is where the bundle lies inside the box; it is the skill's working directory too.
const Dir = "/skill"

// Kind tells by which convention a bundle says what it is.
type Kind string

// The kinds, in the order in which Read looks for them.
const (
	Skillbox   Kind = "skillbox"    // skillbox.yaml, our own manifest
	AgentSkill Kind = "agent-skill" // SKILL.md with YAML frontmatter (agentskills.io/specification)
	Skillware  Kind = "skillware"   // manifest.yaml beside skill.py
	Command    Kind = "command"     // none of these: the caller must say what to run
)

// Bundle is what a skill directory says about itself. It is the skill's own word: it grants nothing.
type Bundle struct {
	Kind        Kind
	Name        string // "" for Command; without control characters, at most 200 bytes
	Version     string // the skill's own, as written; "" when it has none
	Description string
	Manifest    string // path of the manifest in the bundle, "" for Command

	// Command is the bundle's own entry: argv as the box sees it, with the working directory Dir. It is nil when the bundle
	// names none, or, for an agent skill, when scripts/ holds none or several.
	Command []string
	// Scripts are the files directly in scripts/ that look runnable, as paths in the bundle, sorted. For an agent skill and a plain
	// command only: these are the candidates for WithEntry.
	Scripts []string

	// Of an agent skill, as agentskills.io/specification has them; the zero values are keys that are not there.
	License       string
	Compatibility string            // what it needs, in words for people
	AllowedTools  []string          // of the agent that uses it; they are no business of the sandbox
	Metadata      map[string]string // whatever else its author wanted to say

	// Warnings are what could not be read of a manifest and was left out, or is not as its specification wants it: a line each.
	Warnings []string

	ParamsSchema json.RawMessage // JSON Schema of the parameters, nil when the manifest declares none

	// Declared is the policy the skill asks for: the `security_policy` mapping of its manifest or the whole of a policy.yaml
	// at the bundle's root, nil for none. It holds no alias, no anchor and no duplicate key; positions are those in DeclaredFile.
	Declared     *yaml.Node
	DeclaredFile string

	Document     json.RawMessage // Skillware: the manifest as JSON; nil where it says what JSON cannot, such as .inf
	Requirements []string        // Skillware: Python packages that it wants, informational
	EnvVars      []string        // Skillware: names of all variables of the caller's environment that it may get, sorted
	EnvOptional  []string        // Skillware: those of EnvVars without which it works

	Shim string // "" or the name of the shim that Command runs, which must be present at ShimDir
}

// WithEntry returns the argv that starts one file of the bundle: entry is its path in the bundle, with or without Dir before it.
// Whether the file exists and can be run is found out inside the box.
func (b *Bundle) WithEntry(entry string) ([]string, error) {
	p := path.Clean(entry)
	if path.IsAbs(p) {
		rest, ok := strings.CutPrefix(p, Dir+"/")
		if !ok {
			return nil, entryError(b, entry, "the entry is a path in the bundle, and this one is absolute")
		}
		p = rest
	}
	if p == "." || p == ".." || strings.HasPrefix(p, "../") {
		return nil, entryError(b, entry, "the entry must be a file inside the bundle")
	}
	for name := range strings.SplitSeq(p, "/") {
		if why := BadName(name); why != "" {
			return nil, entryError(b, entry, why)
		}
	}
	return []string{Dir + "/" + p}, nil
}

// IsScript tells whether a word of a command line names one of the bundle's scripts, by its path in the bundle or in the box.
func (b *Bundle) IsScript(word string) bool {
	return slices.Contains(b.Scripts, strings.TrimPrefix(path.Clean(word), Dir+"/"))
}

func entryError(b *Bundle, entry, message string) *Error {
	e := &Error{Path: escape(entry), Field: "entry", Message: message}
	if len(b.Scripts) > 0 {
		e.Hint = "it has " + strings.Join(b.Scripts, ", ")
	}
	return e
}
