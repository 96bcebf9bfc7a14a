package scan

import (
	"path/filepath"

	"skillbox/bundle"
)

// Attempt is one way to start a skill.
type Attempt struct {
	Command []string // nil is the bundle's own
	Params  []byte   // one JSON value; nil for none
}

// Attempts are the ways in which a scan starts a bundle whose policy names the command declared (nil for none): the given commands, or else what
// the bundle names, with each of the given parameters, or else what its schema suggests.
func Attempts(b *bundle.Bundle, declared []string, commands [][]string, params []string) ([]Attempt, error) {
	found, err := attempts(b, declared, commands, params)
	all := make([]Attempt, len(found))
	for i, a := range found {
		all[i] = Attempt{a.argv, a.params}
	}
	return all, err
}

// Path is where something of a caller's may lie in the place; Close removes it with the rest.
func (p *Place) Path(name string) string { return filepath.Join(p.dir, name) }

// Remove removes a directory that a skill may have left in any state.
func Remove(dir string) error { return removeHome(dir) }
