package policy

import (
	"go.yaml.in/yaml/v4"
)

// Ceiling is one of the administrator's files, such as /etc/skillbox/host.yaml: the most that policies may grant, and which bundles are
// trusted with how much of it.
type Ceiling struct {
	*Policy
	Trust Trust
}

// Trust says which bundles may run, and how far each is trusted. Its zero value says nothing.
type Trust struct {
	RequireSignatureBy []string // public keys, as minisign writes them: one of them must have signed
	DenyDigests        []string // bundles that do not run, whoever signed them
	Tiers              *Tiers   // nil is that the host tells no tiers apart
}

// Tiers are how far a bundle is trusted. It belongs to the first of Trusted and Reviewed that names its digest or a key of its signature,
// else to Untrusted, whose SignedBy and Digests are empty.
type Tiers struct{ Trusted, Reviewed, Untrusted Tier }

// Tier is which bundles belong to it, and how much they may have at most.
type Tier struct {
	SignedBy []string
	Digests  []string
	Ceiling  *Policy // further to the host's own; nil is the tier's default
}

// Empty says that nothing is to be judged.
func (t *Trust) Empty() bool {
	return len(t.RequireSignatureBy) == 0 && len(t.DenyDigests) == 0 && t.Tiers == nil
}

// Signed says that what is decided depends on a signature or on what a bundle is, so that the bundle must stay what it was.
func (t *Trust) Signed() bool { return len(t.RequireSignatureBy) > 0 || t.Tiers != nil }

// ParseCeiling reads a file of the administrator's as strictly as Parse reads a policy, whose keys it has all of. The error is an Errors.
func ParseCeiling(file string, data []byte) (*Ceiling, error) {
	r := &reader{file: file, most: maxFile, positions: map[string]Position{}, root: ceilingKeys}
	root := r.load(data)
	if root == nil {
		return nil, r.sorted()
	}
	c := &Ceiling{Policy: Default()}
	c.File, c.positions = file, r.positions
	r.strict(root, 1)
	r.mapping("", root, ceilingKeys, c)
	if err := r.complete(root, c.Policy, true); err != nil {
		return nil, err
	}
	return c, nil
}

var ceilingKeys = append(partOf(keys, func(c *Ceiling) any { return c.Policy }), trustKeys...)

var trustKeys = []key{
	{name: "require_signature_by", doc: "Public keys, as minisign writes them: a bundle runs only with a valid signature by one of them, for this very bundle and policy.", shape: words(publicKeys, publicKey), field: in(func(c *Ceiling) any { return &c.Trust.RequireSignatureBy })},
	{name: "deny_digests", doc: "Bundles that do not run, whoever signed them.", shape: words(digests, bundleDigest), field: in(func(c *Ceiling) any { return &c.Trust.DenyDigests })},
	{name: "tiers", doc: "How far bundles are trusted; without it no tiers are told apart.", shape: tiers(), field: in(func(c *Ceiling) any { return &c.Trust.Tiers })},
}

var tierKeys = []key{
	{name: "trusted", doc: "Those that may have all that the host grants.", keys: partOf(namedTierKeys, func(t *Tiers) any { return &t.Trusted })},
	{name: "reviewed", doc: "Those that somebody has looked at.", keys: partOf(namedTierKeys, func(t *Tiers) any { return &t.Reviewed })},
	{name: "untrusted", doc: "All others.", keys: partOf(namedTierKeys[2:], func(t *Tiers) any { return &t.Untrusted })},
}

var namedTierKeys = []key{
	{name: "signed_by", doc: "Public keys whose signature puts a bundle here.", shape: words(publicKeys, publicKey), field: in(func(t *Tier) any { return &t.SignedBy })},
	{name: "digests", doc: "Bundles that belong here by what they are.", shape: words(digests, bundleDigest), field: in(func(t *Tier) any { return &t.Digests })},
	{name: "ceiling", doc: "What they may have at most, in a policy's words; the default is in docs/trust.md.", shape: nested(), field: in(func(t *Tier) any { return &t.Ceiling })},
}

var (
	publicKeys = listing{what: "public keys", least: 1, most: 256, item: object{"type": "string", "pattern": publicKeyForm.String()}}
	digests    = listing{what: "digests of bundles", least: 1, most: 10_000, item: object{"type": "string", "pattern": digestForm.String()}}

	// 42 bytes in base64: "Ed", the key's id, the key.
	publicKeyForm = lazily(`^RW[QRST][A-Za-z0-9+/]{53}$`)
	digestForm    = lazily(`^sha256:[0-9a-f]{64}$`)
)

func publicKey(s string) (string, error) {
	if !publicKeyForm.MatchString(s) {
		return "", bad("it is the second line of minisign's .pub file, and begins with RW", "%s is no public key", show(s))
	}
	return s, nil
}

func bundleDigest(s string) (string, error) {
	if !digestForm.MatchString(s) {
		return "", bad("`skillbox bundle digest` prints it: sha256: and 64 hexadecimal digits", "%s is no digest of a bundle", show(s))
	}
	return s, nil
}

// tiers is a mapping that may be empty: that the host tells tiers apart is said by the key itself.
func tiers() shape {
	return shape{
		accepts: "a mapping of tiers",
		schema:  mappingSchema(tierKeys),
		read: func(r *reader, at string, n *yaml.Node, into any) {
			if !r.is(n, at, yaml.MappingNode, "a mapping of tiers") {
				return
			}
			t := &Tiers{}
			if len(n.Content) > 0 {
				r.mapping(at, n, tierKeys, t)
			}
			*into.(**Tiers) = t
		},
	}
}

// nested is a policy within another file, whose version may be left out. Its fields are named as if they stood alone.
func nested() shape {
	return shape{
		accepts: "a policy",
		schema:  mappingSchema(keys),
		read: func(r *reader, at string, n *yaml.Node, into any) {
			inner := &reader{file: r.file, positions: map[string]Position{}}
			p, err := inner.policy(n, false)
			if err != nil {
				r.errs = append(r.errs, inner.errs...)
				return
			}
			*into.(**Policy) = p
		},
	}
}
