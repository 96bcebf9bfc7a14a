package bundle

import (
	"encoding/json"
	"path"
	"slices"
	"strconv"
	"strings"

	"go.yaml.in/yaml/v4"
)

// Entry is one thing that a bundle offers to be called.
type Entry struct {
	// Name is unique among the bundle's entries: letters, digits, _ and -, at most 64 of them, as agents want tools to be named.
	Name        string
	Description string          // the bundle's own; "" where it says nothing
	Command     []string        // argv as the box sees it; words of the caller's come behind it
	Schema      json.RawMessage // JSON Schema of the parameters, nil where nothing says what they are
	Script      string          // path in the bundle of the one file that it starts, "" where the manifest has a command of its own
}

// Entries are what the bundle offers to be called: the command of the policy that it declares, or else of its manifest, which comes first;
// then each of its scripts. None is no error: such a bundle is run by words of the caller's.
func (b *Bundle) Entries() []Entry {
	var all []Entry
	own := declaredCommand(b.Declared)
	if own == nil {
		own = b.Command
	}
	scripted := slices.ContainsFunc(b.Scripts, func(s string) bool { return slices.Equal(own, []string{Dir + "/" + s}) })
	if len(own) > 0 && !scripted {
		all = append(all, Entry{Name: toolName(b.Name), Description: b.Description, Command: slices.Clone(own), Schema: b.ParamsSchema})
	}
	for _, script := range b.Scripts {
		all = append(all, Entry{
			Name: b.scriptName(script), Description: b.Description, Command: []string{Dir + "/" + script}, Schema: b.ParamsSchema, Script: script,
		})
	}
	distinguish(all)
	return all
}

// scriptName is a script's file name without its extension, and with it where another script differs from it in nothing else.
func (b *Bundle) scriptName(script string) string {
	stem := func(p string) string { return strings.TrimSuffix(path.Base(p), path.Ext(p)) }
	for _, other := range b.Scripts {
		if other != script && stem(other) == stem(script) {
			return toolName(path.Base(script))
		}
	}
	return toolName(stem(script))
}

// toolName makes a name of a manifest's or a file's fit for a tool.
func toolName(s string) string {
	s = strings.Map(func(r rune) rune {
		if r < 0x80 && (r == '_' || r == '-' || '0' <= r && r <= '9' || 'a' <= r && r <= 'z' || 'A' <= r && r <= 'Z') {
			return r
		}
		return '_'
	}, s)
	if s == "" {
		s = "run"
	}
	return s[:min(len(s), 64)]
}

// distinguish numbers those that share a name with one before them.
func distinguish(all []Entry) {
	taken := make(map[string]bool, len(all))
	for i := range all {
		name := all[i].Name
		for n := 2; taken[name]; n++ {
			suffix := "_" + strconv.Itoa(n)
			name = all[i].Name[:min(len(all[i].Name), 64-len(suffix))] + suffix
		}
		all[i].Name, taken[name] = name, true
	}
}

// declaredCommand is the command of a declared policy, nil where there is none or it is no argv: what is wrong with it, a run says.
func declaredCommand(declared *yaml.Node) []string {
	n := lookup(declared, "command")
	if n == nil || n.Kind != yaml.SequenceNode {
		return nil
	}
	var argv []string
	for _, c := range n.Content {
		if c.Kind != yaml.ScalarNode {
			return nil
		}
		argv = append(argv, c.Value)
	}
	return argv
}
