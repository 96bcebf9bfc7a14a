package server

import (
	"encoding/json"
	"errors"
	"fmt"

	"skillbox/bundle"
	"skillbox/helper"
	"skillbox/policy"
	"skillbox/sandbox"
	"skillbox/seccomp"
)

// explain answers plan: what would be done, without doing it.
func explain(h *sandbox.Host, r *helper.Request, f *files, groups []uint32) (json.RawMessage, error) {
	d, err := decide(h, r, f, groups)
	if err != nil {
		return nil, err
	}
	if r.OCI {
		return json.Marshal(d.plan.OCI)
	}
	return json.Marshal(struct {
		Argv    []string      `json:"argv"`
		Policy  string        `json:"policy"`
		Granted any           `json:"granted"`
		Skill   any           `json:"skill"`
		Plan    *sandbox.Plan `json:"plan"`
		Trust   *helper.Trust `json:"trust,omitempty"`
	}{d.argv, string(d.granted.Policy.YAML()), d.granted, shown(d.bundle), d.plan, d.trust})
}

// plain answers the operations that need no sandbox, see helper.Plain.
func plain(r *helper.Request, f *files) (json.RawMessage, error) {
	switch r.Op {
	case helper.OpPolicyCheck:
		return checkPolicy(r, f)
	case helper.OpPolicySchema:
		return json.Marshal(helper.Text{Text: string(policy.Schema())})
	case helper.OpPolicyInit:
		return json.Marshal(helper.Text{Text: string(policy.Example())})
	case helper.OpPolicyExplain:
		return explainNetwork(r, f)
	case helper.OpBundleShow:
		return showBundle(f)
	case helper.OpDoctor:
		return json.Marshal(lookAtMachine())
	}
	return nil, refused("unknown operation %q", r.Op)
}

// showBundle reads what a bundle says about itself, and nothing else of it.
func showBundle(f *files) (json.RawMessage, error) {
	if f.bundle == nil {
		return nil, refused("the request passes no bundle")
	}
	b, err := bundle.Read(f.bundle)
	if err != nil {
		return nil, err
	}
	return json.Marshal(shown(b))
}

func shown(b *bundle.Bundle) helper.BundleShown {
	s := helper.BundleShown{
		Kind: string(b.Kind), Name: b.Name, Version: b.Version, Description: b.Description, Manifest: b.Manifest, License: b.License,
		Needs: b.Compatibility, AllowedTools: b.AllowedTools, Metadata: b.Metadata, Requirements: b.Requirements, EnvVars: b.EnvVars,
		Entries: []helper.BundleEntry{}, Declares: b.DeclaredFile, Document: b.Document, Warnings: append([]string{}, b.Warnings...),
	}
	for _, e := range b.Entries() {
		s.Entries = append(s.Entries, helper.BundleEntry{Name: e.Name, Command: e.Command, Script: e.Script, Schema: e.Schema})
	}
	return s
}

// checkPolicy finds everything that is wrong with a policy, whatever the host.
func checkPolicy(r *helper.Request, f *files) (json.RawMessage, error) {
	if f.policy == nil {
		return nil, refused("the request passes no policy")
	}
	answer := helper.PolicyChecked{File: r.PolicyName, Errors: []*helper.Error{}}
	p, err := operatorPolicy(r, f)
	if err == nil {
		err = checkSyscalls(p)
	}
	if answer.Errors = policyErrors(err); err != nil && len(answer.Errors) == 0 {
		return nil, err
	}
	if err == nil {
		answer.Valid, answer.Policy, answer.Digest = true, string(p.YAML()), p.Digest()
	}
	return json.Marshal(answer)
}

// checkSyscalls asks the package that knows the system calls; package policy only knows how a name looks.
func checkSyscalls(p *policy.Policy) error {
	var errs policy.Errors
	check := func(field string, s seccomp.Spec) {
		if err := seccomp.Validate(s); err != nil {
			at := p.Position(field)
			errs = append(errs, &policy.Error{File: at.File, Line: at.Line, Column: at.Column, Field: field, Message: err.Error()})
		}
	}
	profile := p.Syscalls.Profile
	check("syscalls.profile", seccomp.Spec{Profile: profile})
	for i, name := range p.Syscalls.Allow {
		check(fmt.Sprintf("syscalls.allow[%d]", i), seccomp.Spec{Profile: profile, Allow: []string{name}})
	}
	for i, name := range p.Syscalls.Deny {
		check(fmt.Sprintf("syscalls.deny[%d]", i), seccomp.Spec{Profile: profile, Deny: []string{name}})
	}
	if len(errs) == 0 {
		check("syscalls", seccomp.Spec{Profile: profile, Allow: p.Syscalls.Allow, Deny: p.Syscalls.Deny})
	}
	if len(errs) > 0 {
		return errs
	}
	return nil
}

// policyErrors lists what an error says about a policy's text; empty, never nil, for any other error.
func policyErrors(err error) []*helper.Error {
	list := []*helper.Error{}
	var (
		many  policy.Errors
		one   *policy.Error
		other *helper.Error
	)
	switch {
	case errors.As(err, &many):
		for _, e := range many {
			list = append(list, policyError(e))
		}
	case errors.As(err, &one):
		list = append(list, policyError(one))
	case errors.As(err, &other):
		list = append(list, other)
	}
	return list
}

// document is the reply with a document or why there is none.
func document(text json.RawMessage, err error) helper.Reply {
	if err != nil {
		return helper.Reply{Result: failure(err)}
	}
	return helper.Reply{Plan: text}
}
