package trust

import (
	"fmt"
	"slices"

	"skillbox/policy"
)

// Names of tiers, from the least trusted to the most.
const (
	Untrusted = "untrusted"
	Reviewed  = "reviewed"
	Trusted   = "trusted"
)

// States of a signature.
const (
	None       = "none"        // there is none
	Valid      = "valid"       // by a key that the host names, of this bundle and this policy
	UnknownKey = "unknown-key" // by a key that the host does not name: nobody can say whether it is valid
	Invalid    = "invalid"     // not a signature, or not of this bundle and this policy
)

// Subject is what is judged.
type Subject struct {
	Statement
	Signature  []byte // the file; nil is none
	Beyond     bool   // flags say more than the policy of the statement: nothing that was signed holds
	RemoteCode bool   // the caller says that an untrusted bundle is meant to have more than the floor
}

// Verdict is what came of it.
type Verdict struct {
	Tier       string // "" where the host tells none apart
	Signature  string
	KeyID      string // of the signature; "" where there is none
	Why        string // the signature is invalid
	RemoteCode bool   // the floor was lifted by the caller's word
	// Ceilings are what the host says of the tier, and Defaults what holds where it says nothing. Nobody has named what is in these: they
	// go before the others, see policy.GrantAll.
	Ceilings, Defaults []*policy.Policy
}

// Refusal is why a bundle does not run.
type Refusal struct {
	Message, Hint string
	Position      policy.Position // who says so
	Field         string
}

func (r *Refusal) Error() string { return r.Field + ": " + r.Message }

// Judge says what the host's files make of a bundle; each of them holds. It fails with *Refusal.
func Judge(ceilings []*policy.Ceiling, s Subject) (*Verdict, error) {
	v := &Verdict{Signature: None}
	signature := v.read(s)
	for _, c := range ceilings {
		if c.Trust.Empty() {
			continue
		}
		if slices.Contains(c.Trust.DenyDigests, s.Bundle) {
			return nil, refuse(c, "deny_digests", "the bundle is revoked: "+s.Bundle, "use another version of it; who runs this host has taken this one back")
		}
		if required := c.Trust.RequireSignatureBy; len(required) > 0 && v.signedBy(signature, s, required) == "" {
			return nil, refuse(c, "require_signature_by", v.unsigned(s), "have the bundle signed: skillbox bundle sign --key FILE --policy POLICY BUNDLE")
		}
		if t := c.Trust.Tiers; t != nil {
			v.place(t, signature, s)
		}
	}
	return v, nil
}

// read looks at the signature, which may be anything.
func (v *Verdict) read(s Subject) *Signature {
	if s.Signature == nil {
		return nil
	}
	signature, err := ParseSignature(s.Signature)
	if err != nil {
		v.Signature, v.Why = Invalid, err.Error()
		return nil
	}
	v.Signature, v.KeyID = UnknownKey, KeyID(signature.KeyID)
	return signature
}

// signedBy returns the key that has signed, "" for none of them. What one list finds out about the signature holds for all.
func (v *Verdict) signedBy(signature *Signature, s Subject, keys []string) string {
	if signature == nil {
		return ""
	}
	for _, text := range keys {
		key, err := ParseKey(text)
		if err != nil || key.ID() != signature.KeyID {
			continue
		}
		switch by := signature.By(key, s.Statement); {
		case by && s.Beyond:
			v.Signature, v.Why = Invalid, "flags such as --timeout and --env say more than the policy that was signed"
			return ""
		case by:
			v.Signature, v.Why = Valid, ""
			return text
		}
		if v.Signature != Valid {
			v.Signature, v.Why = Invalid, "it is not one of this bundle, under this policy, by key "+v.KeyID
		}
	}
	return ""
}

func (v *Verdict) unsigned(s Subject) string {
	says := map[string]string{
		None:       "there is no signature of the bundle",
		UnknownKey: "the signature is by key " + v.KeyID + ", which is not one of them",
		Valid:      "the signature is by key " + v.KeyID + ", which is not one of them",
		Invalid:    "the signature does not hold: " + v.Why,
	}
	return fmt.Sprintf("%s (bundle %s, policy %s)", says[v.Signature], s.Bundle, s.Policy)
}

var order = []string{Untrusted, Reviewed, Trusted}

// place finds the tier, and with it what else holds. Where several files tell tiers apart the least counts, and the ceilings of all hold.
func (v *Verdict) place(tiers *policy.Tiers, signature *Signature, s Subject) {
	tier, of := Untrusted, tiers.Untrusted
	for _, one := range []struct {
		name string
		of   policy.Tier
	}{{Trusted, tiers.Trusted}, {Reviewed, tiers.Reviewed}} {
		if v.signedBy(signature, s, one.of.SignedBy) != "" || slices.Contains(one.of.Digests, s.Bundle) {
			tier, of = one.name, one.of
			break
		}
	}
	if v.Tier == "" || slices.Index(order, tier) < slices.Index(order, v.Tier) {
		v.Tier = tier
	}
	switch {
	case tier == Untrusted && s.RemoteCode:
		v.RemoteCode = true
	case tier == Untrusted:
		v.Defaults = append(v.Defaults, Floor())
	case tier == Reviewed && of.Ceiling == nil:
		v.Defaults = append(v.Defaults, ReviewedCeiling())
	}
	if of.Ceiling != nil {
		v.Ceilings = append(v.Ceilings, of.Ceiling)
	}
}

func refuse(c *policy.Ceiling, field, message, hint string) *Refusal {
	return &Refusal{Message: message, Hint: hint, Position: c.Position(field), Field: field}
}
