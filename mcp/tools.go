package mcp

import (
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"unicode/utf8"

	"skillbox/bundle"
	"skillbox/client"
	"skillbox/helper"
)

// tool is an entry of a bundle as a client sees it.
type tool struct {
	name, title, description string
	input                    json.RawMessage // JSON Schema of an object
	wrapped                  bool            // the arguments are {params, args}, and not the parameters themselves
	bundle                   string          // directory
	entry                    bundle.Entry
}

const (
	maxName        = 64      // models' interfaces take no longer one, though the protocol does
	maxDescription = 4 << 10 // bytes: it is read by a model with every request
)

// toolsOf are the entries of all bundles, in their order. A bundle with none is refused: its user expects one.
func toolsOf(bundles []string) ([]*tool, error) {
	var all []*tool
	taken := map[string]bool{}
	for _, dir := range bundles {
		b, err := read(dir)
		if err != nil {
			return nil, err
		}
		entries := b.Entries()
		if len(entries) == 0 {
			return nil, &helper.Error{Message: dir + ": the bundle offers nothing to be called", Hint: "it needs a command in its manifest, or files in scripts/ that can be run"}
		}
		for _, e := range entries {
			t, err := toolOf(dir, b, e)
			if err != nil {
				return nil, err
			}
			t.name = unique(t.name, taken)
			all = append(all, t)
		}
	}
	return all, nil
}

func read(dir string) (*bundle.Bundle, error) {
	f, err := os.Open(dir)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	b, err := bundle.Read(f)
	var told *bundle.Error
	if errors.As(err, &told) {
		return nil, &helper.Error{Message: fmt.Sprintf("%s: %v", dir, told), Hint: told.Hint}
	}
	return b, err
}

// toolOf names a script after its bundle too: "extract" alone says little beside other bundles' tools.
func toolOf(dir string, b *bundle.Bundle, e bundle.Entry) (*tool, error) {
	title := b.Name
	if title == "" {
		path, err := filepath.Abs(dir)
		if err != nil {
			return nil, err
		}
		title = filepath.Base(path)
	}
	t := &tool{name: e.Name, title: title, description: clipped(e.Description, maxDescription), bundle: dir, entry: e}
	if e.Script != "" {
		t.name, t.title = plain(title)+"_"+e.Name, title+": "+e.Script
		t.description = strings.TrimSpace(fmt.Sprintf("Runs %s of the skill %s. %s", e.Script, title, t.description))
	}
	return t, t.schema()
}

// plain keeps what a tool's name may hold.
func plain(s string) string {
	return strings.Map(func(r rune) rune {
		if r == '_' || r == '-' || '0' <= r && r <= '9' || 'a' <= r && r <= 'z' || 'A' <= r && r <= 'Z' {
			return r
		}
		return '_'
	}, s)
}

// unique cuts a name to what is taken everywhere, and numbers it where it was taken already.
func unique(name string, taken map[string]bool) string {
	name = name[:min(len(name), maxName)]
	full := name
	for n := 2; taken[name]; n++ {
		suffix := "_" + strconv.Itoa(n)
		name = full[:min(len(full), maxName-len(suffix))] + suffix
	}
	taken[name] = true
	return name
}

// clipped is a text of at most so many bytes.
func clipped(s string, most int) string {
	if len(s) <= most {
		return s
	}
	s = s[:most]
	for len(s) > 0 && !utf8.ValidString(s[max(0, len(s)-utf8.UTFMax):]) {
		s = s[:len(s)-1]
	}
	return s + "…"
}

// schema makes the tool's input schema, which the protocol wants to be of an object. The manifest's is that if it says so.
func (t *tool) schema() error {
	var own struct {
		Type any `json:"type"`
	}
	if len(t.entry.Schema) > 0 {
		if err := json.Unmarshal(t.entry.Schema, &own); err != nil {
			return fmt.Errorf("%s: schema of the parameters: %w", t.bundle, err)
		}
		if own.Type == "object" {
			t.input = t.entry.Schema
			return nil
		}
	}
	type property map[string]any
	params := property{"description": "Parameters: any JSON value. The skill reads it from standard input."}
	args := property{"type": "array", "items": property{"type": "string"}, "description": "Words of the command line."}
	properties, required := property{"params": params, "args": args}, []string{}
	if len(t.entry.Schema) > 0 {
		properties, required = property{"params": t.entry.Schema}, []string{"params"}
	}
	t.wrapped = true
	text, err := json.Marshal(property{"type": "object", "properties": properties, "required": required, "additionalProperties": false})
	t.input = text
	return err
}

// arguments writes what a client sent into a call.
func (t *tool) arguments(sent json.RawMessage, c *client.Call) error {
	c.Entry = t.entry.Script
	if len(sent) == 0 || string(sent) == "null" {
		sent = json.RawMessage("{}")
	}
	if !t.wrapped {
		c.Params = sent
		return nil
	}
	var given map[string]json.RawMessage
	if err := json.Unmarshal(sent, &given); err != nil {
		return fmt.Errorf("the arguments are not an object: %w", err)
	}
	for name, value := range given {
		switch {
		case name == "params":
			c.Params = value
		case name == "args" && len(t.entry.Schema) == 0:
			if err := json.Unmarshal(value, &c.Words); err != nil {
				return errors.New("args: must be a list of texts")
			}
		default:
			return fmt.Errorf("there is no argument %q", name)
		}
	}
	return nil
}
