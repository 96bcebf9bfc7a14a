package trust

import (
	"bytes"
	"encoding/base64"
	"encoding/binary"
	"slices"
	"strings"
	"testing"

	"aead.dev/minisign"

	"skillbox/policy"
)

func newKey(t *testing.T) (minisign.PublicKey, minisign.PrivateKey) {
	t.Helper()
	public, secret, err := minisign.GenerateKey(nil)
	if err != nil {
		t.Fatal(err)
	}
	return public, secret
}

var one = Statement{Name: "word-count", Bundle: "sha256:" + strings.Repeat("1", 64), Policy: "sha256:" + strings.Repeat("2", 64)}

const when = "2026-11-22T12:00:00Z"

func TestASignatureIsOfOneBundleUnderOnePolicyByOneKey(t *testing.T) {
	public, secret := newKey(t)
	other, _ := newKey(t)
	s, err := ParseSignature(Sign(secret, one, when))
	if err != nil {
		t.Fatal(err)
	}
	if !s.By(public, one) {
		t.Error("the signature does not hold")
	}
	if s.By(other, one) {
		t.Error("it holds by another key")
	}
	for name, change := range map[string]func(*Statement){
		"another bundle": func(s *Statement) { s.Bundle = s.Policy },
		"another policy": func(s *Statement) { s.Policy = s.Bundle },
		"both swapped":   func(s *Statement) { s.Policy, s.Bundle = s.Bundle, s.Policy },
		"another name":   func(s *Statement) { s.Name += " " },
	} {
		changed := one
		change(&changed)
		if s.By(public, changed) {
			t.Errorf("it holds for %s", name)
		}
	}
}

// What minisign does not write, or wrote once, is no signature.
func TestWhatIsNotWrittenAsMinisignWritesItIsNoSignature(t *testing.T) {
	public, secret := newKey(t)
	good := string(Sign(secret, one, when))
	lines := strings.SplitAfter(good, "\n")
	raw := func(line string) []byte {
		b, err := base64.StdEncoding.DecodeString(strings.TrimSpace(line))
		if err != nil {
			t.Fatal(err)
		}
		return b
	}
	relabeled := raw(lines[1]) // says of a signature of the hash that it is one of the message
	binary.LittleEndian.PutUint16(relabeled, minisign.EdDSA)
	for name, text := range map[string]string{
		"nothing":                    "",
		"a line behind it":           good + "extra\n",
		"an empty line behind it":    good + "\n",
		"a second signature":         good + good,
		"no last line break":         strings.TrimSuffix(good, "\n"),
		"other line ends":            strings.ReplaceAll(good, "\n", "\r\n"),
		"a break within base64":      lines[0] + lines[1][:20] + "\r" + lines[1][20:] + lines[2] + lines[3],
		"three lines":                lines[0] + lines[1] + lines[2],
		"a trusted comment cut off":  lines[0] + lines[1] + "trusted comment: x\n" + lines[3][:40] + "\n",
		"no untrusted comment":       lines[1] + lines[2] + lines[3],
		"a NUL in front":             "\x00" + good,
		"the older kind":             string(minisign.SignWithComments(secret, one.Bytes(), one.Comment(when), "x")),
		"relabeled to the older one": lines[0] + base64.StdEncoding.EncodeToString(relabeled) + "\n" + lines[2] + lines[3],
		"too long":                   "untrusted comment: " + strings.Repeat("x", MaxSignature) + "\n" + lines[1] + lines[2] + lines[3],
	} {
		if _, err := ParseSignature([]byte(text)); err == nil {
			t.Errorf("%s is taken", name)
		}
	}
	for i := range len(good) { // cut short anywhere
		if _, err := ParseSignature([]byte(good[:i])); err == nil {
			t.Fatalf("the first %d of %d bytes are taken", i, len(good))
		}
	}
	for i := range good { // any byte changed: refused as text, or not signed
		changed := []byte(good)
		changed[i] ^= 1
		s, err := ParseSignature(changed)
		if err != nil || i < len(lines[0])-1 { // the untrusted comment is nobody's word
			continue
		}
		if s.By(public, one) {
			t.Fatalf("it holds with byte %d changed", i)
		}
	}
}

// Key ids are chosen by whoever makes a key.
func TestAKeyIsNotItsID(t *testing.T) {
	public, secret := newKey(t)
	_, forger := newKey(t)
	text, err := forger.MarshalText()
	if err != nil {
		t.Fatal(err)
	}
	lines := strings.Split(string(text), "\n")
	raw, err := base64.StdEncoding.DecodeString(lines[1])
	if err != nil {
		t.Fatal(err)
	}
	const idAt = 2 + 2 + 2 + 32 + 8 + 8 // algorithms, salt, scrypt's costs
	binary.LittleEndian.PutUint64(raw[idAt:], public.ID())
	lines[1] = base64.StdEncoding.EncodeToString(raw)
	if err := forger.UnmarshalText([]byte(strings.Join(lines, "\n"))); err != nil {
		t.Fatal(err)
	}
	if forger.ID() != public.ID() || forger.Equal(secret) {
		t.Fatal("no key with the other's id was made")
	}
	v, err := Judge(ceilings(t, "tiers: {trusted: {signed_by: ["+public.String()+"]}}"), Subject{Statement: one, Signature: Sign(forger, one, when)})
	if err != nil || v.Tier != Untrusted || v.Signature != Invalid {
		t.Errorf("a forger with the key's id: %+v, %v", v, err)
	}
}

func TestAPublicKeyIsOneLineOrAFileOfMinisigns(t *testing.T) {
	public, _ := newKey(t)
	file, err := public.MarshalText()
	if err != nil {
		t.Fatal(err)
	}
	for _, good := range []string{public.String(), public.String() + "\n", string(file), string(file) + "\n"} {
		if key, err := ParseKey(good); err != nil || !key.Equal(public) {
			t.Errorf("%q: %v", good, err)
		}
	}
	for _, bad := range []string{"", "RW", public.String()[1:], public.String() + "A", public.String()[:30] + "\r" + public.String()[30:], string(file) + "\nx", "x\n" + public.String()} {
		if _, err := ParseKey(bad); err == nil {
			t.Errorf("%q is taken", bad)
		}
	}
}

// A name may hold whatever a manifest may; no two statements are the same bytes.
func TestStatementsDiffer(t *testing.T) {
	a := Statement{Name: "a\npolicy sha256:x", Bundle: "b", Policy: "p"}
	for _, other := range []Statement{{Name: "a", Bundle: "b", Policy: "p"}, {Bundle: "b", Policy: "p"}, {Name: "a", Bundle: "b\npolicy p", Policy: ""}} {
		if bytes.Equal(a.Bytes(), other.Bytes()) {
			t.Errorf("%q is %q", a, other)
		}
	}
}

func ceilings(t *testing.T, texts ...string) (all []*policy.Ceiling) {
	t.Helper()
	for _, text := range texts {
		c, err := policy.ParseCeiling("host.yaml", []byte("version: 1\n"+text+"\n"))
		if err != nil {
			t.Fatal(err)
		}
		all = append(all, c)
	}
	return all
}

func TestTiers(t *testing.T) {
	a, signA := newKey(t)
	b, signB := newKey(t)
	stranger, signC := newKey(t)
	changed := one
	changed.Policy = "sha256:" + strings.Repeat("3", 64)
	host := "tiers: {trusted: {signed_by: [" + a.String() + "]}, reviewed: {signed_by: [" + b.String() + "], digests: [" + changed.Policy + "], ceiling: {timeout: 5s}}, untrusted: {ceiling: {timeout: 20s}}}"
	cases := []struct {
		name               string
		hosts              []string
		signature          []byte
		remote             bool
		beyond             bool
		tier, state, limit string // limit: the time-outs of the ceilings
	}{
		{"no tiers", []string{"timeout: 1m"}, Sign(signA, one, when), false, false, "", UnknownKey, ""},
		{"tiers, all defaults", []string{"tiers: {}"}, nil, false, false, Untrusted, None, "30s"},
		{"unsigned", []string{host}, nil, false, false, Untrusted, None, "30s 20s"},
		{"unsigned, trusted by the caller", []string{host}, nil, true, false, Untrusted, None, "20s"},
		{"trusted", []string{host}, Sign(signA, one, when), false, false, Trusted, Valid, ""},
		{"trusted, but for a flag", []string{host}, Sign(signA, one, when), false, true, Untrusted, Invalid, "30s 20s"},
		{"reviewed", []string{host}, Sign(signB, one, when), true, false, Reviewed, Valid, "5s"},
		{"a stranger's", []string{host}, Sign(signC, one, when), false, false, Untrusted, UnknownKey, "30s 20s"},
		{"of another policy", []string{host}, Sign(signA, changed, when), false, false, Untrusted, Invalid, "30s 20s"},
		{"not a signature", []string{host}, []byte("x"), false, false, Untrusted, Invalid, "30s 20s"},
		{"listed", []string{"tiers: {reviewed: {digests: [" + one.Bundle + "]}}"}, nil, false, false, Reviewed, None, "10m"},
		{"by two files", []string{host, "tiers: {reviewed: {digests: [" + one.Bundle + "]}}"}, Sign(signA, one, when), false, false, Reviewed, Valid, "10m"},
		{"by two files, one of which does not know it", []string{host, "tiers: {trusted: {signed_by: [" + stranger.String() + "]}}"}, Sign(signA, one, when), false, false, Untrusted, Valid, "30s"},
	}
	for _, c := range cases {
		v, err := Judge(ceilings(t, c.hosts...), Subject{Statement: one, Signature: c.signature, RemoteCode: c.remote, Beyond: c.beyond})
		if err != nil {
			t.Errorf("%s: %v", c.name, err)
			continue
		}
		var limits []string
		for _, p := range slices.Concat(v.Defaults, v.Ceilings) {
			limits = append(limits, strings.Replace(p.Timeout.String(), "m0s", "m", 1))
		}
		if got := strings.Join(limits, " "); v.Tier != c.tier || v.Signature != c.state || got != c.limit {
			t.Errorf("%s: tier %q, signature %q, time-outs %q; want %q, %q, %q", c.name, v.Tier, v.Signature, got, c.tier, c.state, c.limit)
		}
	}
}

func TestWhatTheHostRefuses(t *testing.T) {
	a, signA := newKey(t)
	b, signB := newKey(t)
	requires := "require_signature_by: [" + a.String() + "]"
	for _, c := range []struct {
		name      string
		hosts     []string
		signature []byte
		beyond    bool
		want      string // "" is that it runs
	}{
		{"signed", []string{requires}, Sign(signA, one, when), false, ""},
		{"unsigned", []string{requires}, nil, false, "there is no signature"},
		{"by another", []string{requires}, Sign(signB, one, when), false, "which is not one of them"},
		{"by one of two files' keys", []string{requires, "require_signature_by: [" + b.String() + "]"}, Sign(signA, one, when), false, "which is not one of them"},
		{"with a flag", []string{requires}, Sign(signA, one, when), true, "say more than the policy that was signed"},
		{"not a signature", []string{requires}, []byte("x"), false, "does not hold: this is no signature"},
		{"revoked, though signed", []string{requires + "\ndeny_digests: [" + one.Bundle + "]"}, Sign(signA, one, when), false, "revoked"},
	} {
		_, err := Judge(ceilings(t, c.hosts...), Subject{Statement: one, Signature: c.signature, Beyond: c.beyond})
		if c.want == "" && err != nil || c.want != "" && (err == nil || !strings.Contains(err.Error(), c.want)) {
			t.Errorf("%s: %v; want %q", c.name, err, c.want)
		}
	}
}

// The defaults are ceilings that a policy without a word fits under, and a policy that asks for anything does not.
func TestTheFloorIsWhatAPolicyWithoutAWordGrants(t *testing.T) {
	g, err := policy.Grant(Floor(), nil, nil)
	if err != nil || len(g.Clamped) > 0 {
		t.Errorf("the defaults below the floor: %v, %v", g, err)
	}
	for _, text := range []string{
		"network: {egress: [{domains: [a.example]}]}", "filesystem: {read: [{host: /srv/x}]}", "filesystem: {write: [{host: /srv/x}]}", "env: {pass: [TOKEN]}", "env: {secrets: [TOKEN]}",
		"timeout: 31s", "resources: {memory: 257Mi}", "resources: {pids: 65}", "resources: {cpu: 1.1}", "syscalls: {profile: debug}", "syscalls: {allow: [ptrace]}", "enforcement: best-effort",
		"rootfs: {base: \"dir:/srv/root\"}", "audit: {syscalls: none}", "warm: {preload: true}",
	} {
		p, err := policy.Parse("p.yaml", []byte("version: 1\n"+text))
		if err != nil {
			t.Fatal(err)
		}
		if _, err := policy.Grant(Floor(), p, nil); err == nil {
			t.Errorf("%s is within the floor", text)
		}
	}
	if p := ReviewedCeiling(); p == nil {
		t.Error("tier reviewed has no default")
	}
}
