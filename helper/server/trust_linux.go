package server

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"time"

	"golang.org/x/sys/unix"

	"skillbox/bundle"
	"skillbox/helper"
	"skillbox/policy"
	"skillbox/sandbox"
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

// pinned is a copy of a bundle that only this skillboxd can change. What is checked is then what runs: the caller may write to the original.
type pinned struct {
	path string
	dir  *os.File
}

// pin copies the bundle to a file system of its own. A box that is made from it keeps that; what is said here of it is to be closed.
func pin(ctx context.Context, h *sandbox.Host, from *os.File, limits bundle.Limits) (_ *pinned, err error) {
	p := &pinned{path: filepath.Join(h.Dir, "bundle-"+sandbox.NewID())}
	defer func() {
		if err != nil {
			err = errors.Join(err, p.close())
		}
	}()
	if err := os.Mkdir(p.path, 0o700); err != nil {
		return nil, fmt.Errorf("server: %w", err)
	}
	// The limits are the caller's flags; memory is the machine's. Each file takes whole pages.
	limits.Files = min(limits.Files, bundle.DefaultFiles)
	limits.Bytes = min(limits.Bytes, bundle.DefaultBytes)
	options := fmt.Sprintf("mode=0755,size=%d,nr_inodes=%d", bundle.DefaultBytes+int64(bundle.DefaultFiles)*int64(os.Getpagesize()), 2*bundle.DefaultFiles+16)
	if err := unix.Mount("bundle", p.path, "tmpfs", unix.MS_NOSUID|unix.MS_NODEV, options); err != nil {
		return nil, fmt.Errorf("server: a place for a copy of the bundle: %w", err)
	}
	if p.dir, err = os.Open(p.path); err != nil {
		return nil, fmt.Errorf("server: %w", err)
	}
	return p, bundle.Copy(ctx, from, p.dir, limits, h.Mode == "root")
}

// close takes the copy out of sight. It is gone when no box has it any more.
func (p *pinned) close() error {
	if p == nil {
		return nil
	}
	var errs []error
	if p.dir != nil {
		errs = append(errs, p.dir.Close())
	}
	if err := unix.Unmount(p.path, unix.MNT_DETACH); err != nil && err != unix.EINVAL && err != unix.ENOENT { // not mounted; never made
		errs = append(errs, fmt.Errorf("server: unmount the copy of a bundle: %w", err))
	}
	if err := os.Remove(p.path); err != nil && !errors.Is(err, os.ErrNotExist) {
		errs = append(errs, fmt.Errorf("server: %w", err))
	}
	return errors.Join(errs...)
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

// pinBundle has everything that follows look at a copy of the bundle.
func (c *connection) pinBundle() error {
	own, err := again(c.files.bundle) // the original may be closed while the copying hangs
	if err != nil {
		return err
	}
	ctx, cancel := context.WithCancelCause(context.Background())
	defer cancel(nil)
	ended := make(chan struct{})
	defer close(ended)
	go func() {
		select {
		case <-c.link.over:
			cancel(errCanceled)
		case <-ended:
		}
	}()
	limits := bundle.Limits{Files: c.request.MaxFiles, Bytes: c.request.MaxBytes}
	c.pinned, err = inTime(func() (*pinned, error) {
		defer own.Close()
		return pin(ctx, c.host, own, limits)
	}, func(late *pinned) {
		_ = late.close() // the client was told of the failure
	})
	if err != nil {
		return err
	}
	c.files.bundle = c.pinned.dir
	return nil
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
