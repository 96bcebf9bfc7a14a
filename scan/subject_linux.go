package scan

import (
	"fmt"
	"os"
	"path/filepath"

	"skillbox/bundle"
	"skillbox/policy"
)

// subject is the skill that is looked at: what it says about itself, and the policy that its behaviour is compared with.
type subject struct {
	dir      string
	bundle   *bundle.Bundle
	declared *policy.Policy // never nil
	stated   bool           // whether anybody stated a policy, rather than nobody
	text     *source
}

// readSubject reads a bundle and its policy: what the bundle declares for itself, or where policyFile is not "", the operator's word
// as the bundle narrows it.
func readSubject(dir, policyFile string) (*subject, error) {
	root, err := os.Open(dir)
	if err != nil {
		return nil, fmt.Errorf("scan: %w", err)
	}
	defer root.Close()
	s := &subject{dir: dir}
	if s.bundle, err = bundle.Read(root); err != nil {
		return nil, err
	}
	var own, operator *policy.Policy
	if s.bundle.Declared != nil {
		if own, err = policy.ParseDeclared(s.bundle.DeclaredFile, s.bundle.Declared); err != nil {
			return nil, err
		}
	}
	if policyFile != "" {
		if operator, err = readPolicy(policyFile); err != nil {
			return nil, err
		}
	}
	switch {
	case operator != nil:
		granted, err := policy.Grant(nil, operator, own)
		if err != nil {
			return nil, err
		}
		s.declared, s.stated = granted.Policy, true
	case own != nil:
		s.declared, s.stated = own, true
	default:
		s.declared = policy.Default()
	}
	s.text, err = readSource(dir)
	return s, err
}

func readPolicy(path string) (*policy.Policy, error) {
	text, err := os.ReadFile(path)
	if err != nil {
		return nil, fmt.Errorf("scan: %w", err)
	}
	if path, err = filepath.Abs(path); err != nil {
		return nil, fmt.Errorf("scan: %w", err)
	}
	return policy.Parse(path, text)
}
