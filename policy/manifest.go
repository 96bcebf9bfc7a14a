package policy

import (
	"cmp"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
)

// Manifest is what a manifest of another system asks for, in the words of a
// policy. It is the caller's own word and may be refused; it is not the skill's.
type Manifest struct {
	File   string            // for messages
	Text   []byte            // a policy that nobody wrote as it stands: where in it something stands means nothing
	Places map[string][2]int // line and column in File, by field of the policy
	Egress bool              // it asks for a network, without saying to where: the operator says that
	Uses   []string          // the caller's variables whose values it gives the skill under other names, or as part of something
	Bundle string            // the host's directory that it has shown as the bundle, without links; "" is none, or somebody else's word
}

// Below returns the operator's policy with what the manifest asks for in its
// place. What the operator names is the most that may be asked for, as below a
// ceiling; what the operator does not name the manifest may. Of host paths only
// those of the manifest are shown, and of the network nothing where it asks for
// none. Where to, and which devices, is the operator's to say alone.
//
// An error is an Errors with everything that may not be had, by its place in
// the manifest.
func (m *Manifest) Below(operator *Policy) (*Policy, error) {
	asked, err := Parse(m.File, m.Text)
	if err != nil {
		var errs Errors
		if errors.As(err, &errs) {
			for _, e := range errs {
				at := m.place(e.Field)
				e.Line, e.Column = at.Line, at.Column
			}
			errs.sort()
		}
		return nil, err
	}
	for field := range asked.positions {
		asked.positions[field] = m.place(field)
	}
	out := operator.clone()
	m.take(out, asked)
	errs := append(m.alone(operator, asked), m.beyond(operator)...)
	ceiling := operator.clone()
	maps.DeleteFunc(ceiling.positions, func(field string, _ Position) bool {
		return field == "command" || field == "env.set" || strings.HasPrefix(field, "env.set.")
	})
	g, err := Grant(ceiling, out, nil)
	var more Errors
	if err != nil && !errors.As(err, &more) {
		return nil, err
	}
	if errs = append(errs, more...); len(errs) > 0 {
		errs.sort()
		return nil, errs
	}
	return g.Policy, nil
}

// Within refuses values of the caller's variables that a ceiling does not let
// be passed: what Grant sees are the names that the skill has for them. An
// error is an Errors.
func (m *Manifest) Within(ceilings []*Policy) error {
	for _, ceiling := range ceilings {
		if errs := m.beyond(ceiling); len(errs) > 0 {
			errs.sort()
			return errs
		}
	}
	return nil
}

// beyond is which of the caller's variables are used and not named by the limit's env.pass, where it has one.
func (m *Manifest) beyond(limit *Policy) (errs Errors) {
	const pass = "env.pass"
	if !limit.Named(pass) {
		return nil
	}
	permitted := cmp.Or(strings.Join(limit.Env.Pass, ", "), nothing)
	for _, name := range m.Uses {
		if slices.Contains(limit.Env.Pass, name) {
			continue
		}
		at := m.place("uses." + name)
		errs = append(errs, &Error{
			File: at.File, Line: at.Line, Column: at.Column, Field: pass,
			Message: "the value of " + show(name) + " is not passed, by whatever name", Hint: fmt.Sprintf("%s permits %s", limit.Position(pass), permitted),
		})
	}
	return errs
}

// place is where the field stands in the manifest, or what holds it.
func (m *Manifest) place(field string) Position {
	for field != "" {
		if at, ok := m.Places[field]; ok {
			return Position{m.File, at[0], at[1]}
		}
		field = field[:max(strings.LastIndexAny(field, ".["), 0)]
	}
	return Position{File: m.File}
}

// take writes what is asked for into the operator's policy.
func (m *Manifest) take(out, asked *Policy) {
	name := func(path string) { out.positions[path] = asked.positions[path] }
	forget := func(path string) {
		maps.DeleteFunc(out.positions, func(field string, _ Position) bool {
			return field == path || strings.HasPrefix(field, path+"[")
		})
	}
	each(func(path string, k key) {
		if path != "version" && k.shape.copy != nil && asked.Named(path) {
			k.shape.copy(k.field(out), k.field(asked))
			name(path)
		}
	})
	if asked.Named("command") {
		out.Command = asked.Command
		name("command")
	}
	out.Filesystem.Read, out.Filesystem.Write = asked.Filesystem.Read, asked.Filesystem.Write
	forget("filesystem.read")
	forget("filesystem.write")
	for field, at := range asked.positions {
		if strings.HasPrefix(field, "filesystem.read") || strings.HasPrefix(field, "filesystem.write") || strings.HasPrefix(field, "env.set.") {
			out.positions[field] = at
		}
	}
	for _, variable := range asked.Env.Pass {
		if !slices.Contains(out.Env.Pass, variable) {
			out.positions[item("env.pass", len(out.Env.Pass))] = m.place("env.pass." + variable)
			out.Env.Pass = append(out.Env.Pass, variable)
		}
	}
	if out.Env.Set == nil {
		out.Env.Set = map[string]string{}
	}
	maps.Copy(out.Env.Set, asked.Env.Set)
	if !m.Egress {
		out.Network.Egress = nil
		forget("network.egress")
	}
}

// alone refuses what only the operator can give, and has not.
func (m *Manifest) alone(operator, asked *Policy) (errs Errors) {
	refuse := func(field, message, hint string) {
		at := m.place(field)
		errs = append(errs, &Error{File: at.File, Line: at.Line, Column: at.Column, Field: field, Message: message, Hint: hint})
	}
	if m.Bundle != "" {
		if why, _ := hostRisk(m.Bundle); why != "" {
			refuse("bundle", show(m.Bundle)+" may not be shown to a skill: "+why, "name a directory of the skill's own")
		}
	}
	if m.Egress && len(operator.Network.Egress) == 0 {
		refuse("network.egress", "a network is asked for, and no policy says what may be reached", "name it in the file of --policy: network: {egress: [{domains: [api.example.com]}]}")
	}
	if asked.Devices.GPUs != "none" && operator.Devices.GPUs != asked.Devices.GPUs {
		refuse("devices.gpus", "GPUs are asked for, and no policy grants them", "in the file of --policy, devices: {gpus: all}")
	}
	return errs
}
