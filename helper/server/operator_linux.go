package server

import (
	"fmt"
	"syscall"

	"skillbox/helper"
	"skillbox/policy"
)

const maxPolicyBytes = 256 << 10

func operatorPolicy(r *helper.Request, f *files) (*policy.Policy, error) {
	text, err := readOperator(r, f)
	if err != nil {
		return nil, err
	}
	return parseOperator(r, text)
}

func parseOperator(r *helper.Request, text []byte) (*policy.Policy, error) {
	if text == nil {
		return policy.Default(), nil
	}
	return policy.Parse(r.PolicyName, text)
}

func readOperator(r *helper.Request, f *files) ([]byte, error) {
	if f.policy == nil {
		return nil, nil
	}
	info, err := f.policy.Stat()
	if err != nil {
		return nil, fmt.Errorf("%s: %w", r.PolicyName, err)
	}
	// A file without a name (a memfd has mode 0777) is only its holder's to write.
	if st, ok := info.Sys().(*syscall.Stat_t); ok && info.Mode().IsRegular() && info.Mode().Perm()&0o002 != 0 && st.Nlink > 0 {
		return nil, &helper.Error{Message: "everybody may write this policy, so it is nobody's word", File: r.PolicyName, Hint: "chmod o-w " + r.PolicyName}
	}
	data, err := readAll(f.policy, maxPolicyBytes)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", r.PolicyName, err)
	}
	return data, nil
}

// applyFlags writes the command line into the operator's policy.
func applyFlags(p *policy.Policy, r *helper.Request) error {
	if r.TimeoutMS > 0 {
		if err := p.Assign("timeout", "--timeout", fmt.Sprintf("%dms", r.TimeoutMS)); err != nil {
			return err
		}
	}
	for field, value := range r.Defaults {
		if err := p.Presume(field, value); err != nil {
			return err
		}
	}
	addBinds(p, r.Binds)
	for name, value := range r.EnvSet {
		if err := policy.CheckEnvName(name); err != nil {
			return refused("--env %s: %v", name, err)
		}
		if p.Env.Set == nil {
			p.Env.Set = map[string]string{}
		}
		p.Env.Set[name] = value
		p.Set("env.set", "--env")
		p.Set("env.set."+name, "--env")
	}
	for _, name := range r.EnvPass {
		if err := policy.CheckEnvName(name); err != nil {
			return refused("--env %s: %v", name, err)
		}
		p.Env.Pass = append(p.Env.Pass, name)
		p.Set("env.pass", "--env")
		p.Set(fmt.Sprintf("env.pass[%d]", len(p.Env.Pass)-1), "--env")
	}
	return nil
}

// addBinds adds binds to the operator's policy. Whether they may be is judged with those that it has.
func addBinds(p *policy.Policy, binds []helper.Bind) {
	for _, b := range binds {
		list, field := &p.Filesystem.Read, "filesystem.read"
		if b.Write {
			list, field = &p.Filesystem.Write, "filesystem.write"
		}
		*list = append(*list, policy.Bind{Host: b.Host, Path: b.Path})
		item := fmt.Sprintf("%s[%d]", field, len(*list)-1)
		for _, named := range []string{field, item, item + ".host", item + ".path"} {
			if !p.Named(named) {
				p.Set(named, b.Flag)
			}
		}
	}
}
