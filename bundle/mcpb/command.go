package mcpb

import (
	"encoding/json"
	"fmt"
	"maps"
	"regexp"
	"slices"
	"strconv"
	"strings"
)

// Place is where the server will find things.
type Place struct {
	Dir  string // the bundle
	Home string // its home
}

// Command is the server's command line and its environment, with values for what the manifest asks its user; a value is what the server shall
// see: of a path, the one in the box. Defaults that name the user's own files are not taken: the box does not have them.
func (m *Manifest) Command(p Place, values map[string][]string) (argv []string, env map[string]string, err error) {
	given, err := m.values(p, values)
	if err != nil {
		return nil, nil, err
	}
	command, err := m.expand("server.mcp_config.command", m.command, p, given)
	if err != nil {
		return nil, nil, err
	}
	if len(command) != 1 || command[0] == "" {
		return nil, nil, &Error{Field: "server.mcp_config.command", Message: "is not one word"}
	}
	argv = []string{inside(p.Dir, command[0])}
	for i, arg := range m.args {
		words, err := m.expand(fmt.Sprintf("server.mcp_config.args[%d]", i), arg, p, given)
		if err != nil {
			return nil, nil, err
		}
		argv = append(argv, words...)
	}
	env = map[string]string{}
	for _, name := range slices.Sorted(maps.Keys(m.env)) {
		words, err := m.expand("server.mcp_config.env."+name, m.env[name], p, given)
		if err != nil {
			return nil, nil, err
		}
		if len(words) > 0 { // else it is a value that nobody gave
			env[name] = strings.Join(words, ",")
		}
	}
	return argv, env, nil
}

// values are those that were given, and defaults.
func (m *Manifest) values(p Place, values map[string][]string) (map[string][]string, error) {
	for name := range values {
		if _, there := m.options[name]; !there {
			e := &Error{Field: "user_config", Message: fmt.Sprintf("there is no option %q", name)}
			if len(m.options) > 0 {
				e.Hint = "there are " + strings.Join(slices.Sorted(maps.Keys(m.options)), ", ")
			}
			return nil, e
		}
	}
	all := map[string][]string{}
	for _, name := range slices.Sorted(maps.Keys(m.options)) {
		o := m.options[name]
		v, given := values[name]
		if !given && !o.path() {
			var err error
			if v, err = o.defaults(p); err != nil {
				return nil, &Error{Field: "user_config." + name + ".default", Message: err.Error()}
			}
		}
		if len(v) == 0 && o.Required {
			e := &Error{Field: "user_config." + name, Message: "the server needs a value"}
			if o.Title != "" {
				e.Message += fmt.Sprintf(" (%.100q)", o.Title)
			}
			e.Hint = "--config " + name + "=VALUE"
			if o.path() {
				e.Hint = "--config " + name + "=/PATH, which the policy, or --rw HOST:/PATH, puts into the box"
			}
			return nil, e
		}
		if len(v) > 1 && !o.Multiple {
			return nil, &Error{Field: "user_config." + name, Message: "takes one value"}
		}
		for _, value := range v {
			if err := o.check(value); err != nil {
				return nil, &Error{Field: "user_config." + name, Message: err.Error()}
			}
		}
		all[name] = v
	}
	return all, nil
}

func (o *option) path() bool { return o.Type == "directory" || o.Type == "file" }

// defaults are the default of an option as words; none where there is none.
func (o *option) defaults(p Place) (words []string, err error) {
	if len(o.Default) == 0 || string(o.Default) == "null" {
		return nil, nil
	}
	list := []json.RawMessage{o.Default}
	if o.Default[0] == '[' {
		if err := json.Unmarshal(o.Default, &list); err != nil {
			return nil, err
		}
	}
	for _, one := range list {
		var text string
		if json.Unmarshal(one, &text) != nil {
			text = string(one) // a number, true or false
		}
		for name, value := range p.variables() {
			text = strings.ReplaceAll(text, "${"+name+"}", value)
		}
		words = append(words, text)
	}
	return words, nil
}

func (o *option) check(value string) error {
	switch o.Type {
	case "number":
		n, err := strconv.ParseFloat(value, 64)
		if err != nil {
			return fmt.Errorf("%q is no number", value)
		}
		if o.Min != nil && n < *o.Min || o.Max != nil && n > *o.Max {
			return fmt.Errorf("%s is out of range", value)
		}
	case "boolean":
		if value != "true" && value != "false" {
			return fmt.Errorf("%q is neither true nor false", value)
		}
	}
	return nil
}

func (p Place) variables() map[string]string {
	return map[string]string{
		"__dirname": p.Dir, "HOME": p.Home, "DESKTOP": p.Home + "/Desktop", "DOCUMENTS": p.Home + "/Documents", "DOWNLOADS": p.Home + "/Downloads",
		"/": "/", "pathSeparator": "/",
	}
}

var variable = regexp.MustCompile(`\$\{([^}]*)\}`)

// expand puts values in the place of variables. A text that is nothing but an option is as many words as the option has values, none included.
func (m *Manifest) expand(field, text string, p Place, given map[string][]string) ([]string, error) {
	if found := variable.FindStringSubmatch(text); found != nil && found[0] == text {
		if name, ok := strings.CutPrefix(found[1], "user_config."); ok {
			if _, there := m.options[name]; there {
				return given[name], nil
			}
		}
	}
	known, unknown := p.variables(), ""
	text = variable.ReplaceAllStringFunc(text, func(found string) string {
		name := found[2 : len(found)-1]
		if value, there := known[name]; there {
			return value
		}
		option, ok := strings.CutPrefix(name, "user_config.")
		if _, there := m.options[option]; !ok || !there {
			unknown = found
		}
		return strings.Join(given[option], ",")
	})
	if unknown != "" {
		return nil, &Error{Field: field, Message: "the variable " + unknown + " is not known"}
	}
	return []string{text}, nil
}
