package bundle

import (
	"slices"
	"strings"

	"go.yaml.in/yaml/v4"
)

// The files that tell the kinds apart, and the policy a bundle of any kind may bring.
const (
	skillboxFile   = "skillbox.yaml"
	agentSkillFile = "SKILL.md"
	agentSkillLow  = "skill.md" // as the specification's own parser takes it where there is no other
	skillwareFile  = "manifest.yaml"
	skillwareCode  = "skill.py"
	policyFile     = "policy.yaml"
	scriptsDir     = "scripts"
)

// readSkillbox reads our own manifest. It is as strict as a policy: there is one way to write it, and a typing error is not a default.
//
//	version: 1                       # of this format, required
//	name: word-count                 # required: lower-case letters, digits and . _ - between them, at most 64
//	description: Counts words.       # optional
//	command: [python3, main.py]      # optional, argv with the working directory /skill; without it the policy or the caller says what to run
//	params_schema: {type: object}    # optional, JSON Schema of the parameters
//	security_policy: {version: 1}    # optional, the policy the skill asks for
func readSkillbox(data []byte) (*Bundle, error) {
	d, err := parse(skillboxFile, data)
	if err != nil {
		return nil, err
	}
	if err := d.known("version", "name", "description", "command", "params_schema", "security_policy"); err != nil {
		return nil, err
	}
	if v := d.get("version"); v == nil || v.Kind != yaml.ScalarNode || v.ShortTag() != "!!int" || v.Value != "1" {
		e := d.errorf(v, "version", "must be 1")
		e.Hint = "this is the version of the format: write `version: 1`"
		return nil, e
	}
	b := &Bundle{Kind: Skillbox, Manifest: skillboxFile}
	if b.Name, err = d.title("name", true); err != nil {
		return nil, err
	}
	if !slug(b.Name) {
		return nil, d.errorf(d.get("name"), "name", "must be lower-case letters, digits and . _ - between them, at most 64")
	}
	if b.Description, err = d.text("description", false); err != nil {
		return nil, err
	}
	if b.Command, err = d.command("command"); err != nil {
		return nil, err
	}
	if b.ParamsSchema, err = d.schema("params_schema"); err != nil {
		return nil, err
	}
	return b, d.declared(b)
}

// slug tells whether s fits into a path, a label and a command line as it is.
func slug(s string) bool {
	if s == "" || len(s) > 64 {
		return false
	}
	for i := range len(s) {
		c := s[i]
		alnum := 'a' <= c && c <= 'z' || '0' <= c && c <= '9'
		inner := i > 0 && i < len(s)-1 && (c == '.' || c == '_' || c == '-')
		if !alnum && !inner {
			return false
		}
	}
	return true
}

// readSkillware reads the manifest.yaml of a Skillware skill: name, version, description, parameters (JSON Schema), requirements,
// env_vars. What else it holds (constitution, issuer, presentation, outputs …) addresses the model or a person, not the sandbox.
func readSkillware(data []byte) (*Bundle, error) {
	d, err := parse(skillwareFile, data)
	if err != nil {
		return nil, err
	}
	b := &Bundle{
		Kind: Skillware, Manifest: skillwareFile,
		Command: []string{"python3", ShimDir + "/" + skillwareShim + ".py"}, Shim: skillwareShim,
	}
	if b.Name, err = d.title("name", true); err != nil {
		return nil, err
	}
	if b.Version, err = d.title("version", false); err != nil {
		return nil, err
	}
	if b.Description, err = d.text("description", false); err != nil {
		return nil, err
	}
	if b.ParamsSchema, err = d.schema("parameters"); err != nil {
		return nil, err
	}
	if b.Requirements, err = d.words("requirements"); err != nil {
		return nil, err
	}
	if b.EnvVars, err = d.words("env_vars"); err != nil {
		return nil, err
	}
	slices.Sort(b.EnvVars)
	b.EnvOptional = d.optional("env_vars", b.EnvVars)
	if b.Document, err = d.json(nil, d.root, ""); err != nil {
		b.Document = nil // the parts that matter are read
	}
	return b, d.declared(b)
}

// declared notes the manifest's security_policy, unread: it is judged by package policy, with the positions of this file.
func (d *doc) declared(b *Bundle) error {
	n := d.get("security_policy")
	if n == nil {
		return nil
	}
	if n.Kind != yaml.MappingNode {
		return d.errorf(n, "security_policy", "expected a policy, found %s", kindName(n))
	}
	b.Declared, b.DeclaredFile = n, d.file
	return nil
}

// command reads an argv: a list of texts without NUL, the first of them not empty. Absent is nil.
func (d *doc) command(key string) ([]string, error) {
	n := d.get(key)
	if n == nil {
		return nil, nil
	}
	if n.Kind != yaml.SequenceNode {
		e := d.errorf(n, key, "expected a list of words, found %s", kindName(n))
		e.Hint = "there is no shell: write each word on its own, as in [python3, main.py]"
		return nil, e
	}
	if len(n.Content) == 0 {
		return nil, d.errorf(n, key, "must not be empty")
	}
	argv := make([]string, len(n.Content))
	for i, c := range n.Content {
		switch {
		case c.Kind != yaml.ScalarNode || c.ShortTag() == "!!null":
			return nil, d.errorf(c, key, "word %d: expected a text, found %s", i+1, kindName(c))
		case strings.IndexByte(c.Value, 0) >= 0:
			return nil, d.errorf(c, key, "word %d contains a NUL", i+1)
		case i == 0 && c.Value == "":
			return nil, d.errorf(c, key, "the first word must not be empty")
		}
		argv[i] = c.Value
	}
	return argv, nil
}

// optional returns those of the words of a key that are said not to be needed: `NAME: {required: false}`, or the same in a list.
func (d *doc) optional(key string, words []string) (names []string) {
	n := d.get(key)
	for i, name := range words {
		is := lookup(n, name)
		if n != nil && n.Kind == yaml.SequenceNode {
			for _, c := range n.Content {
				if of := lookup(c, "name"); of != nil && of.Value == name {
					is = c
				}
			}
		}
		if required := lookup(is, "required"); required != nil && required.ShortTag() == "!!bool" && strings.EqualFold(required.Value, "false") {
			names = append(names, words[i])
		}
	}
	return names
}

// words reads a list of texts, or of mappings with a name, or the keys of a mapping: the forms in which Skillware manifests list
// requirements and environment variables.
func (d *doc) words(key string) ([]string, error) {
	n := d.get(key)
	if n == nil {
		return nil, nil
	}
	var found []*yaml.Node
	switch n.Kind {
	case yaml.MappingNode:
		for i := 0; i < len(n.Content); i += 2 {
			found = append(found, n.Content[i])
		}
	case yaml.SequenceNode:
		for _, c := range n.Content {
			if name := lookup(c, "name"); name != nil {
				c = name
			}
			found = append(found, c)
		}
	default:
		return nil, d.errorf(n, key, "expected a list, found %s", kindName(n))
	}
	var words []string
	for _, w := range found {
		if w.Kind != yaml.ScalarNode || w.ShortTag() == "!!null" {
			return nil, d.errorf(w, key, "expected a text, found %s", kindName(w))
		}
		if badWord(w.Value) {
			return nil, d.errorf(w, key, "is empty, longer than %d bytes or cannot be printed", maxName)
		}
		words = append(words, w.Value)
	}
	return words, nil
}
