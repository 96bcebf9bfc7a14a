package server

import (
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"

	"skillbox/bundle"
	"skillbox/bundle/schema"
	"skillbox/helper"
)

// limitEnv gives a skill whose manifest lists the variables that it reads those of them that the policy passes, and no others.
func (d *decision) limitEnv(r *helper.Request) (warnings []string) {
	if d.bundle.Kind != bundle.Skillware || r.IgnoreBundlePolicy {
		return nil
	}
	source := d.bundle.Manifest + ": env_vars"
	without := d.granted.LimitEnv(append(slices.Clone(d.bundle.EnvVars), bundle.ConfigVariable), source)
	var needed []string
	for _, name := range without {
		if name == bundle.ConfigVariable {
			continue
		}
		d.unpassed = append(d.unpassed, helper.Denial{
			Kind: "env", Name: name, What: fmt.Sprintf("variable %s, for which the skill asks in %s", name, source),
			Rule: "env.pass does not name it" + written(d.granted.Policy, "env.pass"), Hint: fmt.Sprintf("env: {pass: [%s]}", name), Count: 1,
		})
		if !slices.Contains(d.bundle.EnvOptional, name) {
			needed = append(needed, name)
		}
	}
	if len(needed) > 0 && slices.Contains(without, bundle.ConfigVariable) { // else they may be in it
		list := strings.Join(needed, ", ")
		warnings = append(warnings, fmt.Sprintf("the skill runs without %s, which it names in %s: `env: {pass: [%s]}` in the policy passes the caller's", list, source, list))
	}
	for _, name := range r.EnvPass {
		if !slices.Contains(d.bundle.EnvVars, name) && name != bundle.ConfigVariable {
			warnings = append(warnings, fmt.Sprintf("--env %s: the skill does not get it, for %s does not name it", name, source))
		}
	}
	return warnings
}

// readSchema compiles the schema of the parameters where the bundle's own command is what runs: nothing is said of what others take.
func (d *decision) readSchema(r *helper.Request) (warnings []string, err error) {
	if d.bundle.ParamsSchema == nil || r.IgnoreBundlePolicy || r.Entry != "" || len(d.granted.Policy.Command) > 0 || len(d.bundle.Command) == 0 {
		return nil, nil
	}
	if d.params, err = schema.Compile(d.bundle.ParamsSchema); err != nil {
		return nil, &helper.Error{Message: err.Error(), File: d.bundle.Manifest}
	}
	if len(d.params.Unchecked) > 0 {
		warnings = []string{fmt.Sprintf("%s: parameters are not checked for all that their schema says: %s", d.bundle.Manifest, strings.Join(d.params.Unchecked, "; "))}
	}
	return warnings, nil
}

// maxChecked is how large parameters may be that are checked: they are read whole.
const maxChecked = 8 << 20

// checkParams refuses parameters that do not fit the schema that the bundle has for them, before there is a box for them. What comes by the
// skill's standard input is not looked at.
func (d *decision) checkParams(f *files) error {
	if d.params == nil || f.params == nil {
		return nil
	}
	text, err := io.ReadAll(io.LimitReader(f.params, maxChecked+1))
	if err != nil {
		return fmt.Errorf("server: params: %w", err)
	}
	f.read = text
	if len(text) > maxChecked {
		return &helper.Error{
			Message: fmt.Sprintf("the parameters are larger than the %d MiB up to which they are checked by the skill's schema", maxChecked>>20),
			Hint:    "give large data as a file: --input",
		}
	}
	err = d.params.Check(text)
	var mismatch *schema.Error
	switch {
	case err == nil:
		return nil
	case errors.As(err, &mismatch):
		return &helper.Error{Message: fmt.Sprintf("they do not fit the schema in %s: %v", d.bundle.Manifest, mismatch), Field: "params"}
	case errors.Is(err, schema.ErrCostly):
		return &helper.Error{Message: err.Error(), File: d.bundle.Manifest, Hint: "the skill's schema has too many alternatives or patterns for parameters of this size, or refers to itself"}
	}
	return &helper.Error{Message: fmt.Sprintf("the parameters are not JSON: %v", err), Hint: "other input goes to the skill's standard input, or to --input"}
}
