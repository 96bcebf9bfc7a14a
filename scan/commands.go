package scan

import (
	"slices"

	"skillbox/bundle"
	"skillbox/helper"
)

// ErrNothing says that a bundle names nothing to run. A scan does not judge its instructions.
var ErrNothing error = &helper.Error{Message: "the bundle names nothing that could be run", Hint: "say what to run: --command 'python3 main.py'"}

// attempt is one way to start the skill.
type attempt struct {
	argv   []string
	params []byte // nil for none
}

// attempts are the ways in which a bundle is started: the commands that the caller gave, or else the bundle's own and each of its scripts,
// with each set of parameters. Where nobody gave parameters, there are those that the bundle's schema suggests, and for scripts none, and --help.
func attempts(b *bundle.Bundle, declared []string, commands [][]string, params []string) ([]attempt, error) {
	if len(commands) > 0 {
		return withParams(commands, parameters(b, params)), nil
	}
	switch {
	case len(declared) > 0:
		commands = append(commands, declared)
	case len(b.Command) > 0:
		commands = append(commands, b.Command)
	}
	all := withParams(commands, parameters(b, params))
	for _, e := range b.Entries() {
		if e.Script == "" {
			continue // is the bundle's own command, or what the policy says instead
		}
		if !slices.ContainsFunc(commands, func(c []string) bool { return slices.Equal(c, e.Command) }) {
			all = append(all, withParams([][]string{e.Command}, parameters(b, params))...)
		}
		all = append(all, attempt{argv: append(slices.Clone(e.Command), "--help")})
	}
	if len(all) == 0 {
		return nil, ErrNothing
	}
	return all, nil
}

func withParams(commands [][]string, params [][]byte) (all []attempt) {
	for _, argv := range commands {
		for _, p := range params {
			all = append(all, attempt{argv, p})
		}
	}
	return all
}

// parameters are those that were given, or else the least and the most that the bundle's schema suggests; without a schema none.
func parameters(b *bundle.Bundle, given []string) (all [][]byte) {
	for _, p := range given {
		all = append(all, []byte(p))
	}
	if len(all) > 0 {
		return all
	}
	if b.ParamsSchema == nil {
		return [][]byte{nil}
	}
	for _, most := range []bool{false, true} {
		text := bundle.ExampleOf(b.ParamsSchema, most)
		if !slices.ContainsFunc(all, func(other []byte) bool { return string(other) == string(text) }) {
			all = append(all, text)
		}
	}
	return all
}
