package suite

import (
	"encoding/json"
	"fmt"
	"strings"

	"skillbox/engine"
	"skillbox/helper"
	"skillbox/policy"
)

// bound has a run of a skill's own manifest ask for no more than the operator's policy grants, defaults included. What the skill can do without
// it does not get, with a warning. Host paths are its own directory dir, which nothing may be written to, and what the policy grants; any other is
// an error. Where it asks for paths, shown is true and the policy names them, and no others.
func bound(run *engine.Run, operator *policy.Policy, dir string) (shown bool, err error) {
	m := &run.Manifest
	if run.Bundle != "" && !beneath(dir, run.Bundle) {
		return false, refusal(m, "command", run.Bundle+" is not the skill's own", "name a directory of the skill as source, or say --trust-bundle-policy")
	}
	asked, err := policy.Parse(m.File, m.Policy)
	if err != nil {
		asking := policy.Manifest{File: m.File, Text: m.Policy, Places: m.Places, Egress: m.Egress}
		_, err = asking.Below(operator) // the same, with places
		return false, &helper.Error{Message: fmt.Sprint(err)}
	}
	granted, err := policy.Grant(nil, operator, asked)
	if err != nil {
		return false, err
	}
	for _, note := range granted.Requested {
		given, _, _ := strings.Cut(note.Field, ".")
		set, isSet := strings.CutPrefix(note.Field, "env.set.")
		_, operators := operator.Env.Set[set]
		switch {
		case isSet && operators: // a value of its own would take the place of the operator's
		case given == "rootfs", given == "command", given == "env", given == "filesystem", given == "network", given == "devices":
			continue // what runs in the box, or what is looked at below and by policy.Manifest
		}
		if m.Policy, err = without(m.Policy, note.Field); err != nil {
			return false, err
		}
		note.Source = place(m, note.Field)
		run.Warnings = append(run.Warnings, note.String()+" (the skill's own manifest asks for it: --trust-bundle-policy)")
	}
	if len(asked.Filesystem.Read)+len(asked.Filesystem.Write) == 0 {
		return false, nil
	}
	return true, showOwn(run, operator, asked, dir)
}

// showOwn decides about the host paths that a manifest asks for.
func showOwn(run *engine.Run, operator, asked *policy.Policy, dir string) error {
	m, may := &run.Manifest, operator.Filesystem
	var fs policy.Filesystem
	for i, b := range asked.Filesystem.Read {
		if !beneath(dir, b.Host) && !holds(may.Read, b) && !holds(may.Write, b) {
			return foreign(m, fmt.Sprintf("filesystem.read[%d]", i), b)
		}
		fs.Read = append(fs.Read, b)
	}
	places := map[string][2]int{}
	for i, b := range asked.Filesystem.Write {
		field := fmt.Sprintf("filesystem.write[%d]", i)
		at := m.Places[field]
		switch {
		case holds(may.Write, b):
			places[fmt.Sprintf("filesystem.write[%d]", len(fs.Write))] = at
			fs.Write = append(fs.Write, b)
		case beneath(dir, b.Host), holds(may.Read, b):
			// The skill's directory may be a repository: hooks that are written there are run by whoever uses it next.
			run.Warnings = append(run.Warnings, place(m, field)+": "+b.Host+" is read-only here: grant it by filesystem.write in the file of --policy, or say --trust-bundle-policy")
			places[fmt.Sprintf("filesystem.read[%d]", len(fs.Read))] = at
			fs.Read = append(fs.Read, b)
		default:
			return foreign(m, field, b)
		}
	}
	for field := range m.Places {
		if strings.HasPrefix(field, "filesystem.write[") {
			delete(m.Places, field)
		}
	}
	for field, at := range places {
		m.Places[field] = at
	}
	operator.Filesystem.Read, operator.Filesystem.Write = fs.Read, fs.Write
	for _, field := range []string{"filesystem.read", "filesystem.write"} {
		operator.Set(field, operator.File)
	}
	var whole map[string]json.RawMessage
	if err := json.Unmarshal(m.Policy, &whole); err != nil {
		return fmt.Errorf("suite: %w", err)
	}
	binds := func(list []policy.Bind) (out []map[string]string) {
		for _, b := range list {
			out = append(out, map[string]string{"host": b.Host, "path": b.Path})
		}
		return out
	}
	lists := map[string][]map[string]string{}
	for name, list := range map[string][]policy.Bind{"read": fs.Read, "write": fs.Write} {
		if len(list) > 0 {
			lists[name] = binds(list)
		}
	}
	var err error
	if whole["filesystem"], err = json.Marshal(lists); err == nil {
		m.Policy, err = json.Marshal(whole)
	}
	return err
}

func foreign(m *helper.Manifest, field string, b policy.Bind) error {
	return refusal(m, field, b.Host+" is not the skill's own, and the policy does not grant it", "name a directory of the skill, grant it by "+field[:strings.IndexByte(field, '[')]+" in the file of --policy, or say --trust-bundle-policy")
}

// place is where in the manifest a field of the policy stands.
func place(m *helper.Manifest, field string) string {
	at := m.Places[field]
	return fmt.Sprintf("%s:%d:%d", m.File, at[0], at[1])
}

func refusal(m *helper.Manifest, field, message, hint string) error {
	at := m.Places[field]
	return &helper.Error{File: m.File, Line: at[0], Column: at[1], Message: message, Hint: hint}
}

// holds tells whether one of the binds shows what b does.
func holds(binds []policy.Bind, b policy.Bind) bool {
	for _, one := range binds {
		if beneath(one.Host, b.Host) {
			return true
		}
	}
	return false
}

// beneath tells whether p is dir or lies below it; both are clean and absolute.
func beneath(dir, p string) bool {
	return p == dir || strings.HasPrefix(p, strings.TrimSuffix(dir, "/")+"/")
}

// without takes a field out of a policy in JSON, and what holds nothing else. The rest stays as it is written.
func without(text json.RawMessage, field string) (json.RawMessage, error) {
	var members map[string]json.RawMessage
	if err := json.Unmarshal(text, &members); err != nil {
		return nil, fmt.Errorf("suite: %s: %w", field, err)
	}
	name, rest, deeper := strings.Cut(field, ".")
	if _, there := members[name]; !there {
		return text, nil
	}
	if deeper {
		inner, err := without(members[name], rest)
		if err != nil {
			return nil, err
		}
		members[name] = inner
	}
	if !deeper || string(members[name]) == "{}" {
		delete(members, name)
	}
	return json.Marshal(members)
}
