package suite

import (
	"errors"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"runtime"
	"strings"

	"skillbox/client"
	"skillbox/engine"
	"skillbox/helper"
)

// byManifest has the call run a tool of a .skill-engine.toml. A refusal is the case's result, as it is of `skillbox exec --manifest`.
func (o *Options) byManifest(t *trial, call *client.Call, files *opened) (refused *helper.Result, err error) {
	run, err := o.resolve(t, call, files)
	if err == nil && !o.Trust {
		err = o.limit(run, t, call, files)
	}
	var reason *helper.Error
	switch {
	case errors.As(err, &reason):
		return helper.Failure(helper.Failed, reason), nil
	case err != nil:
		return nil, err
	}
	t.outcome.Warnings = append(t.outcome.Warnings, run.Warnings...)
	call.Bundle, call.Words, call.WorkDir, call.Manifest = run.Bundle, run.Words, run.WorkDir, &run.Manifest
	maps.Copy(call.Env, run.Env)
	if call.Bundle == "" { // all that runs is in the image
		call.Bundle, err = files.directory()
	}
	return nil, err
}

// resolve reads the manifest. Its variables are those that the case gives: the caller's environment is nothing that it may name, but for HOME
// where it counts as the caller's own.
func (o *Options) resolve(t *trial, call *client.Call, files *opened) (*engine.Run, error) {
	dir, err := filepath.EvalSymlinks(t.skill.dir)
	if err != nil {
		return nil, err
	}
	f, err := files.open(dir, engineFile)
	if err != nil {
		return nil, err
	}
	withheld := ""
	env := func(name string) (string, bool) {
		value, given := call.Env[name]
		if !given {
			caller, set := os.LookupEnv(name)
			if set && name == "HOME" && o.Trust {
				return caller, true
			}
			if set {
				withheld = name
			}
		}
		return value, given
	}
	name := filepath.Join(t.skill.Path, engineFile)
	if o.Trust { // an absolute path is one that nobody may be shown to write, since the next run would believe what is written
		name = filepath.Join(dir, engineFile)
	}
	m, err := engine.Read(name, f, env)
	if err != nil {
		return nil, err
	}
	h := engine.Host{Dir: dir, WorkDir: dir, Home: engine.Home(), Arch: runtime.GOARCH, Env: env, Real: engine.Real}
	run, err := m.Resolve(h, engine.Call{Skill: t.one.Tool, Words: call.Words})
	var reason *helper.Error
	if errors.As(err, &reason) && withheld != "" && strings.HasPrefix(reason.Message, withheld+" is not set") {
		reason.Hint = fmt.Sprintf("nothing of your environment is passed, %s neither: a case gives values by env; --trust-bundle-policy lets HOME be named", withheld)
	}
	return run, err
}

// limit holds the run to the policy of the case, to which it adds the paths that the skill may be shown of its own.
func (o *Options) limit(run *engine.Run, t *trial, call *client.Call, files *opened) error {
	operator, err := parsed(call.Policy, call.PolicyName)
	if err != nil {
		return err
	}
	dir, err := filepath.EvalSymlinks(t.skill.dir)
	if err != nil {
		return err
	}
	shown, err := bound(run, operator, dir)
	if err != nil || !shown {
		return err
	}
	f, err := files.text("policy", string(operator.Stated()))
	if err != nil {
		return err
	}
	call.Policy = fmt.Sprintf("/proc/self/fd/%d", f.Fd())
	return nil
}
