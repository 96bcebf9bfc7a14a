package main

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"

	"skillbox/helper"
)

// addMappedParams adds the parameters with the paths in them as the skill finds them. Only what the command line names is mapped: no
// file comes into the box because a parameter says so.
func (o *options) addMappedParams(add func(string, int)) error {
	text, err := o.readParams()
	if err != nil {
		return err
	}
	paths, err := o.pathsInBox()
	if err != nil {
		return err
	}
	d := json.NewDecoder(bytes.NewReader(text))
	d.UseNumber()
	var params any
	if err := d.Decode(&params); err != nil {
		return &helper.Error{Message: fmt.Sprintf("--params is not JSON: %v", err), Hint: "a file is given as @FILE"}
	}
	if text, err = json.Marshal(paths.mapped(params)); err != nil {
		return fmt.Errorf("params: %w", err)
	}
	return addText(text, add)
}

func (o *options) readParams() ([]byte, error) {
	switch {
	case o.params == "":
		return nil, &helper.Error{Message: "--map-paths is about the paths in --params, and there are none"}
	case o.params == "-":
		return io.ReadAll(os.Stdin)
	case strings.HasPrefix(o.params, "@"):
		return os.ReadFile(o.params[1:])
	}
	return []byte(o.params), nil
}

// boxPaths say what paths of the caller's are called in the box.
type boxPaths struct {
	inputs map[string]string // by absolute path
	output string            // the directory that takes /output, absolute; "" is none
}

func (o *options) pathsInBox() (p boxPaths, err error) {
	p.inputs = map[string]string{}
	for _, input := range o.inputs {
		path, name := splitInput(input)
		if path, err = filepath.Abs(path); err != nil {
			return p, err
		}
		p.inputs[path] = "/input/" + name
	}
	if o.output != "" {
		p.output, err = filepath.Abs(o.output)
	}
	return p, err
}

// mapped is v with every text in it that is one of the paths replaced.
func (p boxPaths) mapped(v any) any {
	switch v := v.(type) {
	case string:
		return p.name(v)
	case []any:
		for i := range v {
			v[i] = p.mapped(v[i])
		}
	case map[string]any:
		for key := range v {
			v[key] = p.mapped(v[key])
		}
	}
	return v
}

func (p boxPaths) name(text string) string {
	path, err := filepath.Abs(text)
	if text == "" || err != nil {
		return text
	}
	if name, ok := p.inputs[path]; ok {
		return name
	}
	if p.output == "" {
		return text
	}
	if rest, err := filepath.Rel(p.output, path); err == nil && filepath.IsLocal(rest) {
		return filepath.Join("/output", rest)
	}
	return text
}
