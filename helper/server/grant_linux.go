package server

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"slices"

	"skillbox/bundle"
	"skillbox/bundle/schema"
	"skillbox/helper"
	"skillbox/image"
	"skillbox/policy"
	"skillbox/sandbox"
	"skillbox/trust"
)

// decision is everything that was judged before anything is made.
type decision struct {
	bundle   *bundle.Bundle
	granted  *policy.Granted
	sources  sandbox.Sources
	plan     *sandbox.Plan
	original string // where the bundle comes from, if the plan's is a copy
	argv     []string
	dir      string // where it starts if the request does not say; "" is the bundle
	policy   helper.Named
	id       string // see key

	trust  *helper.Trust // nil where nothing asks for it
	doubts []string      // about the signature: warnings

	ceilings string // digest of what the administrator says, "" for nothing
	planned  string // see planDigest
	unpassed []helper.Denial
	params   *schema.Schema // nil where parameters are not checked
}

// said is what the operator and the administrator say, as they wrote it; nil is nothing.
type said struct {
	operator  []byte
	ceilings  []ceiling
	signature []byte
	parsed    []*policy.Ceiling // the ceilings, where somebody has parsed them
}

func hear(h *sandbox.Host, r *helper.Request, f *files, groups []uint32) (s *said, err error) {
	s = &said{}
	if s.operator, err = readOperator(r, f); err == nil {
		s.ceilings, err = readCeilings(h.Caller(), groups)
	}
	if err == nil {
		s.signature, err = readSignature(f)
	}
	return s, err
}

// asks says that the call needs values that only the client has.
func (d *decision) asks() bool { return len(d.plan.Pass)+len(d.plan.Secrets) > 0 }

// key names everything that a box depends on, so that calls with equal keys can be served by boxes prepared alike.
func (d *decision) key() (string, error) {
	if d.id != "" {
		return d.id, nil
	}
	plan, err := d.planDigest()
	if err != nil {
		return "", err
	}
	d.id = plan + d.policy.Digest
	return d.id, nil
}

// planDigest is over the plan as JSON.
func (d *decision) planDigest() (string, error) {
	if d.planned != "" {
		return d.planned, nil
	}
	plan, err := json.Marshal(d.plan)
	if err != nil {
		return "", fmt.Errorf("server: plan: %w", err)
	}
	d.planned = digest(plan)
	return d.planned, nil
}

func digest(text []byte) string {
	sum := sha256.Sum256(text)
	return "sha256:" + hex.EncodeToString(sum[:])
}

// decide reads what the three sources say and lets the pure parts judge.
func decide(h *sandbox.Host, r *helper.Request, f *files, groups []uint32) (*decision, error) {
	s, err := hear(h, r, f, groups)
	if err != nil {
		return nil, err
	}
	return judge(h, r, f, s, func() (*bundle.Tree, error) {
		ctx, cancel := context.WithTimeout(context.Background(), prepareTime)
		defer cancel()
		return bundle.Digest(ctx, f.bundle, bundle.Limits{Files: r.MaxFiles, Bytes: r.MaxBytes}, bundle.OpenCache(r.CacheDir))
	})
}

// judge reads the bundle, which is the third to say something. look finds out what it is, which is asked only where something depends on it.
func judge(h *sandbox.Host, r *helper.Request, f *files, s *said, look func() (*bundle.Tree, error)) (*decision, error) {
	operator, err := parseOperator(r, s.operator)
	if err != nil {
		return nil, err
	}
	ceilings := s.parsed
	if ceilings == nil {
		if ceilings, err = parseCeilings(s.ceilings); err != nil {
			return nil, err
		}
	}
	d := &decision{original: f.original}
	if len(s.ceilings) > 0 {
		text, err := json.Marshal(s.ceilings)
		if err != nil {
			return nil, fmt.Errorf("server: ceilings: %w", err)
		}
		d.ceilings = digest(text)
	}
	if d.bundle, err = inTime(func() (*bundle.Bundle, error) { return bundle.Read(f.bundle) }, func(*bundle.Bundle) {}); err != nil {
		return nil, err
	}
	var declared *policy.Policy
	if d.bundle.Declared != nil {
		if declared, err = policy.ParseDeclared(d.bundle.DeclaredFile, d.bundle.Declared); err != nil {
			return nil, err
		}
	}
	if r.TrustBundlePolicy && declared != nil && f.policy == nil {
		operator, declared = declared, nil
	}
	if r.IgnoreBundlePolicy && declared != nil {
		declared = onlyCommand(declared)
	}
	// What a signature covers is the policy as it was signed, and nothing that comes by a manifest or a flag.
	signed, within := operator.Digest(), operator.Timeout
	var below *policy.Manifest
	if m := r.Manifest; m != nil {
		below = &policy.Manifest{File: m.File, Text: m.Policy, Places: m.Places, Egress: m.Egress, Uses: m.Uses}
		if m.Bundle {
			if below.Bundle, err = f.from(); err != nil {
				return nil, err
			}
		}
		if operator, err = below.Below(operator); err != nil {
			return nil, err
		}
	}
	if err := applyFlags(operator, r); err != nil {
		return nil, err
	}
	limits, err := d.believe(r, s, ceilings, trust.Subject{Statement: trust.Statement{Policy: signed}, Beyond: beyond(operator, signed, within)}, look)
	if err != nil {
		return nil, err
	}
	if below != nil {
		if err := below.Within(limits); err != nil {
			return nil, d.floored(err)
		}
	}
	if d.granted, err = policy.GrantAll(limits, operator, declared); err != nil {
		return nil, d.floored(err)
	}
	effective := d.granted.Policy
	if err := allNamed(effective, operator); err != nil {
		return nil, err
	}
	d.unpassed = unpassed(declared, effective)
	warnings := d.limitEnv(r)
	unchecked, err := d.readSchema(r)
	if err != nil {
		return nil, err
	}
	d.policy = helper.Named{Name: effective.Name, Digest: effective.Digest()}
	if d.sources, err = identify(f.bundle, effective, placeOf(r), r.Ways, r.ImageDir); err != nil {
		return nil, err
	}
	if r.MountAt != "" {
		if err := policy.CheckBundlePath(r.MountAt, effective); err != nil {
			return nil, refused("--mount-at: %v", err)
		}
		d.sources.BundleAt = r.MountAt
	}
	if d.plan, err = sandbox.Compile(h, effective, d.bundle, d.sources); err != nil {
		return nil, err
	}
	for _, note := range append(append([]policy.Note{}, d.granted.Clamped...), d.granted.Requested...) {
		d.plan.Warnings = append(d.plan.Warnings, note.String())
	}
	d.plan.Warnings = slices.Concat(d.plan.Warnings, warnings, unchecked, d.doubts)
	if r.Op != helper.OpSessionStart { // whose calls each say what to run
		d.argv, d.dir, err = command(r, effective, d.bundle, d.sources.Image)
	}
	return d, err
}

// allNamed refuses limits that are only defaults where somebody wants them named.
func allNamed(effective, operator *policy.Policy) error {
	if !effective.Resources.MustName {
		return nil
	}
	for _, field := range []string{"resources.memory", "resources.cpu"} {
		if !operator.Named(field) {
			return &sandbox.Refusal{
				Field: field, Message: "nobody names this limit, which resources.named demands", Position: effective.Position("resources.named"),
				Hint: "name it in the policy, or as memory and cpus in the manifest",
			}
		}
	}
	return nil
}

// onlyCommand is a declaration that says nothing but what to run.
func onlyCommand(declared *policy.Policy) *policy.Policy {
	p := policy.Default()
	if declared.Named("command") {
		p.Command = declared.Command
		p.Set("command", declared.Position("command").String())
	}
	return p
}

// command puts the argv together: the entry, the policy's command or the bundle's own, with the words appended; else the words. The first
// word may be one of the bundle's scripts: agents call them by the path that their instructions name.
//
// Where none of them but the words names a command, an image's entrypoint comes before the words, and its own words are there instead of none.
// Then it also says where the command starts: dir, "" for the bundle.
func command(r *helper.Request, p *policy.Policy, b *bundle.Bundle, i *image.Image) (argv []string, dir string, err error) {
	var base []string
	words := r.Words
	switch {
	case len(r.Command) > 0:
		return r.Command, "", nil
	case r.Entry != "":
		if base, err = b.WithEntry(r.Entry); err != nil {
			return nil, "", err
		}
	case len(p.Command) > 0:
		base = p.Command
	case len(words) > 0 && b.IsScript(words[0]):
		if base, err = b.WithEntry(words[0]); err != nil {
			return nil, "", err
		}
		words = words[1:]
	default:
		base = b.Command
	}
	if i != nil && r.Manifest != nil {
		dir = i.Config.WorkingDir // another entrypoint does not change where docker starts it
	}
	if len(base) == 0 && i != nil {
		base, dir = i.Config.Entrypoint, i.Config.WorkingDir
		if len(words) == 0 {
			words = i.Config.Cmd
		}
	}
	argv = append(append([]string{}, base...), words...)
	if len(argv) == 0 {
		e := &helper.Error{Message: "nothing says what to run", Hint: "give a command after --, --entry, or command: in the policy"}
		if len(b.Scripts) > 0 {
			e.Hint = fmt.Sprintf("choose one of the bundle's scripts with --entry: %v", b.Scripts)
		}
		return nil, "", e
	}
	return argv, dir, nil
}
