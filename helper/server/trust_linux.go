package server

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"slices"
	"time"

	"skillbox/bundle"
	"skillbox/helper"
	"skillbox/policy"
	"skillbox/trust"
)

// trustWords are the keys of a host's file that say something of trust. A file without them need not be parsed to find out that it says nothing.
var trustWords = [][]byte{[]byte("require_signature_by"), []byte("deny_digests"), []byte("tiers")}

func mayTrust(texts []ceiling) bool {
	return slices.ContainsFunc(texts, func(c ceiling) bool {
		return slices.ContainsFunc(trustWords, func(word []byte) bool { return bytes.Contains(c.Text, word) })
	})
}

// readSignature reads no more than a signature may have: a longer one is found to be none.
func readSignature(f *files) ([]byte, error) {
	if f.signed == nil {
		return nil, nil
	}
	text, err := io.ReadAll(io.LimitReader(f.signed, trust.MaxSignature+1))
	if err != nil {
		return nil, fmt.Errorf("server: the bundle's signature: %w", err)
	}
	return text, nil
}

// believe says how far the bundle is trusted, of which about says what flags and policy come to, and puts the ceilings of that to the host's own.
func (d *decision) believe(r *helper.Request, s *said, ceilings []*policy.Ceiling, about trust.Subject, look func() (*bundle.Tree, error)) (all []*policy.Policy, err error) {
	asked := false
	for _, c := range ceilings {
		all = append(all, c.Policy)
		asked = asked || !c.Trust.Empty()
	}
	if !asked && s.signature == nil && !r.TrustRemoteCode {
		return all, nil
	}
	tree, err := look()
	if err != nil {
		return nil, err
	}
	about.Name, about.Bundle, about.Signature, about.RemoteCode = d.bundle.Name, tree.Digest, s.signature, r.TrustRemoteCode
	verdict, err := trust.Judge(ceilings, about)
	var no *trust.Refusal
	if errors.As(err, &no) {
		at := no.Position
		return nil, &helper.Error{Message: no.Message, File: at.File, Line: at.Line, Column: at.Column, Field: no.Field, Hint: no.Hint}
	}
	if err != nil {
		return nil, err
	}
	d.trust = &helper.Trust{Tier: verdict.Tier, Signature: verdict.Signature, KeyID: verdict.KeyID, TrustRemoteCode: r.TrustRemoteCode}
	if verdict.Why != "" {
		d.doubts = append(d.doubts, "the bundle's signature does not hold: "+verdict.Why)
	}
	return slices.Concat(verdict.Defaults, all, verdict.Ceilings), nil
}

// beyond says that flags say more than the policy that was signed. What to run is not the policy's alone, and a shorter time-out is less.
func beyond(operator *policy.Policy, signed string, within time.Duration) bool {
	if operator.Digest() == signed {
		return false
	}
	shorter := *operator
	shorter.Timeout = within
	return operator.Timeout > within || shorter.Digest() != signed
}

// floored tells how an untrusted bundle gets more, where it was refused for being one.
func (d *decision) floored(err error) error {
	var many policy.Errors
	if d.trust == nil || d.trust.Tier != trust.Untrusted || d.trust.TrustRemoteCode || !errors.As(err, &many) {
		return err
	}
	for _, e := range many {
		e.Hint += "; the bundle is of tier untrusted: have it signed or listed, or say --trust-remote-code"
	}
	return many
}

// settle hears what operator and administrator say, and sees to it that the bundle stays what it is where something depends on that.
func (c *connection) settle() error {
	type heard struct {
		said *said
		pin  bool
	}
	h, err := unless(c.link.over, func() (heard, error) {
		s, err := hear(c.host, c.request, c.files, c.groups)
		if err != nil || !mayTrust(s.ceilings) {
			return heard{s, c.request.RequireDigest != ""}, err
		}
		s.parsed, err = parseCeilings(s.ceilings)
		signed := slices.ContainsFunc(s.parsed, func(c *policy.Ceiling) bool { return c.Trust.Signed() })
		return heard{s, signed || c.request.RequireDigest != ""}, err
	})
	if err != nil {
		return err
	}
	c.said = h.said
	if !h.pin {
		return nil
	}
	return c.pinBundle()
}

// meant compares the bundle with the one that the caller means, before anything is made for it.
func (c *connection) meant(d *decision, digesting <-chan digested, phases map[string]float64) error {
	want := c.request.RequireDigest
	if want == "" {
		return nil
	}
	tree, err := c.digested(d, digesting, phases)
	if err != nil || tree.Digest == want {
		return err
	}
	return &helper.Error{
		Message: fmt.Sprintf("the bundle is %s, and --require-digest says %s", tree.Digest, want),
		Field:   "--require-digest", Hint: "it was changed, or is another one: `skillbox bundle digest` prints what a directory is",
	}
}
