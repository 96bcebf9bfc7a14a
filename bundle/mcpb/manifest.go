// Package mcpb reads the manifest of an MCP bundle (MCPB, formerly DXT): a server of the Model Context Protocol with what it needs, as a directory
// or a zip. What a manifest says is a stranger's word; here it becomes the words of a command and variables for a box, and nothing else.
//
// The format is that of github.com/anthropics/mcpb, MANIFEST.md, versions 0.1 to 0.4.
package mcpb

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"path"
	"slices"
	"strings"
)

// File is the manifest's name in a bundle.
const File = "manifest.json"

// MaxFile is the largest manifest in bytes.
const MaxFile = 1 << 20

// Manifest is what is needed to run the server.
type Manifest struct {
	Name, Version, Description string

	command string
	args    []string
	env     map[string]string
	options map[string]option
}

// option is a value that a user may have to give.
type option struct {
	Type     string          `json:"type"`
	Title    string          `json:"title"`
	Required bool            `json:"required"`
	Multiple bool            `json:"multiple"`
	Default  json.RawMessage `json:"default"`
	Min      *float64        `json:"min"`
	Max      *float64        `json:"max"`
}

// Error says what is wrong with a manifest, or with what was given for it.
type Error struct {
	Line           int // in the manifest; 0 where none is to blame
	Field, Message string
	Hint           string // "" for none; not part of Error()
}

func (e *Error) Error() string {
	text := e.Message
	if e.Field != "" {
		text = e.Field + ": " + text
	}
	if e.Line > 0 {
		return fmt.Sprintf("%s:%d: %s", File, e.Line, text)
	}
	return File + ": " + text
}

// written is a manifest as it stands in the file.
type written struct {
	Format      string `json:"manifest_version"`
	OldFormat   string `json:"dxt_version"`
	Name        string `json:"name"`
	Version     string `json:"version"`
	Description string `json:"description"`
	Server      *struct {
		Type   string `json:"type"`
		Entry  string `json:"entry_point"`
		Config struct {
			start
			Platforms map[string]start `json:"platform_overrides"`
		} `json:"mcp_config"`
	} `json:"server"`
	Compatibility struct {
		Platforms []string `json:"platforms"`
	} `json:"compatibility"`
	Options map[string]option `json:"user_config"`
}

type start struct {
	Command string            `json:"command"`
	Args    []string          `json:"args"`
	Env     map[string]string `json:"env"`
}

// Read reads a manifest. Keys that it does not know are let be: hosts add their own.
func Read(data []byte) (*Manifest, error) {
	var w written
	if err := json.Unmarshal(data, &w); err != nil {
		return nil, unreadable(data, err)
	}
	if w.Format == "" && w.OldFormat == "" {
		return nil, &Error{Field: "manifest_version", Message: "is missing, so this is no manifest of an MCP bundle"}
	}
	if w.Name == "" {
		return nil, &Error{Field: "name", Message: "is missing"}
	}
	if w.Server == nil {
		return nil, &Error{Field: "server", Message: "is missing"}
	}
	if p := w.Compatibility.Platforms; len(p) > 0 && !slices.Contains(p, "linux") {
		return nil, &Error{Field: "compatibility.platforms", Message: "the server is for " + strings.Join(p, ", ") + ", and this is linux"}
	}
	m := &Manifest{Name: w.Name, Version: w.Version, Description: w.Description, options: w.Options}
	m.command, m.args, m.env = w.Server.Config.Command, w.Server.Config.Args, map[string]string{}
	over := w.Server.Config.Platforms["linux"]
	if over.Command != "" {
		m.command = over.Command
	}
	if over.Args != nil {
		m.args = over.Args
	}
	for _, env := range []map[string]string{w.Server.Config.Env, over.Env} {
		for name, value := range env {
			m.env[name] = value
		}
	}
	return m, m.start(w.Server.Type, w.Server.Entry)
}

// start fills in how a server of a type is started where the manifest does not say.
func (m *Manifest) start(kind, entry string) error {
	program, known := map[string]string{"node": "node", "python": "python3", "binary": ""}[kind]
	switch {
	case kind == "uv":
		return &Error{Field: "server.type", Message: "a server of the type uv fetches its packages when it starts, and a box has nothing to fetch them from", Hint: "python3 -m pip install --target DIR … and wrap --bundle DIR -- python3 …"}
	case !known:
		return &Error{Field: "server.type", Message: fmt.Sprintf("%q is none of node, python and binary", kind)}
	case m.command != "":
		return nil
	case entry == "":
		return &Error{Field: "server", Message: "neither mcp_config.command nor entry_point says what to run"}
	}
	m.command = "${__dirname}/" + entry
	if program != "" {
		m.command, m.args = program, []string{"${__dirname}/" + entry}
	}
	return nil
}

func unreadable(data []byte, err error) error {
	e := &Error{Message: err.Error()}
	var syntax *json.SyntaxError
	var kind *json.UnmarshalTypeError
	switch {
	case errors.As(err, &syntax):
		e.Line = 1 + bytes.Count(data[:min(int(syntax.Offset), len(data))], []byte("\n"))
	case errors.As(err, &kind):
		e.Line, e.Field, e.Message = 1+bytes.Count(data[:min(int(kind.Offset), len(data))], []byte("\n")), kind.Field, "is a "+kind.Value
	}
	return e
}

// inside makes a program's relative path one below the bundle.
func inside(dir, command string) string {
	if strings.Contains(command, "/") && !path.IsAbs(command) {
		return path.Join(dir, command)
	}
	return command
}
