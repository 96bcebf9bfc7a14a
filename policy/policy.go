// Package policy is what a person says a skill may have: it reads a policy
// file strictly, knows the default of everything left out, and decides what
// holds where the host's ceiling, the operator's policy and the skill's own
// declaration meet. It touches nothing but its arguments.
package policy

import (
	"crypto/sha256"
	"encoding/hex"
	"maps"
	"slices"
	"strings"
	"time"

	"go.yaml.in/yaml/v4"
)

// Policy is one policy, complete: what the file does not name holds its
// default. Its zero value grants nothing and is refused by Grant; start from
// Default or Parse.
type Policy struct {
	Version     int    // always 1
	Name        string // a label for people and logs; may be empty
	Enforcement string // "strict" or "best-effort"
	Command     []string
	Rootfs      Rootfs
	Filesystem  Filesystem
	Env         Env
	Network     Network
	Resources   Resources
	Devices     Devices
	Timeout     time.Duration // whole milliseconds
	Syscalls    Syscalls
	Audit       Audit
	Warm        Warm
	File        string // where it came from, for messages; empty for the defaults

	positions map[string]Position
}

// Rootfs says what the skill sees as /.
type Rootfs struct {
	Base   string // "host", "dir:/abs", "image:REF", "oci:/layout" or "docker-archive:/file"
	Bundle string // "read-only" or "copy-on-write"
}

// Filesystem says which host paths are visible, and how large the scratch
// file systems are, in bytes.
type Filesystem struct {
	Read, Write       []Bind
	Tmp, Home, Output int64
}

// Bind makes the host path Host visible at Path. Both are absolute and clean.
// Dangerous is the author's word that a sensitive Host is meant.
type Bind struct {
	Host, Path string
	Dangerous  bool
}

// Env says what the skill's environment holds beside the fixed variables.
type Env struct {
	Pass    []string          // names taken from the caller's environment
	Set     map[string]string // literal values; nothing in them is expanded
	Secrets []string          // names whose values become files in /run/secrets
}

// Resources are the limits on one run.
type Resources struct {
	CPU       float64 // cores, in thousandths
	Memory    int64   // bytes
	Pids      int64
	OpenFiles int64
	Output    int64 // bytes of stdout and stderr together

	OutputOverflow  string // what becomes of a skill that writes more: "kill" or "truncate"
	IORead, IOWrite int64  // bytes per second for each disk; 0 is not set, which asks for nothing: a disk's speed has no default
	MustName        bool   // a run is refused where nobody names CPU and Memory
	IOWeight        int64  // share of a busy disk; 0 is not set, which leaves the kernel's 100
}

// Devices are what a skill may use of the host's beside /dev/null and its like.
type Devices struct {
	GPUs string // "none" or "all"
}

// Syscalls picks a seccomp profile and changes single calls of it.
type Syscalls struct {
	Profile     string // "strict", "default" or "debug"
	Allow, Deny []string
}

// Audit says what is recorded.
type Audit struct {
	Syscalls string // "none", "denied", "security" or "all"
	Files    string // "none", "writes" or "all"
}

// Warm says what a service keeps ready. It grants nothing.
type Warm struct {
	Ready   int64 // boxes at least; 0 leaves it to the service
	Preload bool  // interpreters start, and import, before the call
}

// Default returns the policy of a run without any policy: the documented
// defaults, no network, nothing named.
func Default() *Policy {
	p := &Policy{positions: map[string]Position{}}
	each(func(path string, k key) {
		if k.def == "" || strings.ContainsAny(k.def, "[{") {
			return // an empty list or mapping, which the zero value is
		}
		r := &reader{positions: map[string]Position{}}
		k.shape.read(r, path, scalarNode(k.def), k.field(p))
		if len(r.errs) > 0 {
			panic("policy: bad default in the key table: " + r.errs.Error())
		}
	})
	return p
}

// Named tells whether the author of the policy, or a flag, wrote field
// ("resources.memory", "network.egress[0].ports"); a default is not named.
func (p *Policy) Named(field string) bool {
	_, ok := p.positions[field]
	return ok
}

// Position tells where field is written: the value of a scalar, the key of a
// list or mapping, the item of a list. It is zero for what is not named, and
// has no line for what a flag set.
func (p *Policy) Position(field string) Position { return p.positions[field] }

// Set marks field as named by source, such as "--timeout", after the caller
// has changed its value. Grant checks values so changed as if they were read.
func (p *Policy) Set(field, source string) {
	if p.positions == nil {
		p.positions = map[string]Position{}
	}
	p.positions[field] = Position{File: source}
}

// Assign reads text as the value of the scalar field and marks it as named by
// source: Assign("timeout", "--timeout", "10s"). The policy is unchanged if
// the text is refused.
func (p *Policy) Assign(field, source, text string) error {
	if err := p.put(field, source, text); err != nil {
		return err
	}
	p.Set(field, source)
	return nil
}

// Presume replaces the default of a scalar field, where p does not name it. The field stays unnamed: a ceiling lowers it as any default.
func (p *Policy) Presume(field, text string) error {
	if p.Named(field) {
		return nil
	}
	return p.put(field, "default", text)
}

// put reads text as the value of a scalar field.
func (p *Policy) put(field, source, text string) error {
	var found *key
	each(func(path string, k key) {
		if path == field && k.shape.copy != nil {
			found = &k
		}
	})
	if found == nil {
		return &Error{File: source, Field: field, Message: "is not a field that takes one value"}
	}
	r := &reader{file: source, positions: map[string]Position{}}
	fresh := Default()
	found.shape.read(r, field, scalarNode(text), found.field(fresh))
	if len(r.errs) > 0 {
		return r.sorted()
	}
	found.shape.copy(found.field(p), found.field(fresh))
	return nil
}

// Digest returns "sha256:" and the hex digest of every value of the policy in
// canonical form. It does not depend on comments, order of keys, spelling of
// numbers, file names or on whether a value was named or a default.
func (p *Policy) Digest() string {
	sum := sha256.Sum256(p.render(false))
	return "sha256:" + hex.EncodeToString(sum[:])
}

// clone copies p so deep that changing the copy leaves p alone.
func (p *Policy) clone() *Policy {
	c := *p
	c.Command = slices.Clone(p.Command)
	c.Filesystem.Read = slices.Clone(p.Filesystem.Read)
	c.Filesystem.Write = slices.Clone(p.Filesystem.Write)
	c.Env = Env{Pass: slices.Clone(p.Env.Pass), Set: maps.Clone(p.Env.Set), Secrets: slices.Clone(p.Env.Secrets)}
	c.Network.Egress = cloneRules(p.Network.Egress)
	c.Network.Deny = cloneRules(p.Network.Deny)
	c.Network.Ingress = slices.Clone(p.Network.Ingress)
	c.Syscalls.Allow = slices.Clone(p.Syscalls.Allow)
	c.Syscalls.Deny = slices.Clone(p.Syscalls.Deny)
	c.positions = maps.Clone(p.positions)
	if c.positions == nil {
		c.positions = map[string]Position{}
	}
	return &c
}

// scalarNode is the YAML scalar that text would be read as.
func scalarNode(text string) *yaml.Node {
	n := &yaml.Node{Kind: yaml.ScalarNode, Tag: "!!str", Value: text}
	switch {
	case decimal.MatchString(text):
		n.Tag = "!!int"
	case fraction.MatchString(text):
		n.Tag = "!!float"
	case text == "true" || text == "false":
		n.Tag = "!!bool"
	}
	return n
}
