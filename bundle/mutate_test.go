package bundle

import (
	"errors"
	"fmt"
	"strings"
	"testing"

	"go.yaml.in/yaml/v4"
)

// others are values that nobody expects where they are put.
var others = []string{"null", "3", "-1.5", "true", "''", "text", "[]", "[1, [2]]", "{}", "{a: {b: c}}", "2024-01-02", ".inf", "\"\\u202e\\e[2J\""}

// mutants calls with each way to put another value in the place of one of a manifest's, to leave it out, or to add a key that nobody knows.
func mutants(t *testing.T, text string, with func(how, mutant string)) {
	t.Helper()
	var root yaml.Node
	must(t, yaml.Load([]byte(text), &root))
	top := &root
	if top.Kind == yaml.DocumentNode {
		top = top.Content[0]
	}
	dump := func(how string) {
		mutant, err := yaml.Dump(top)
		must(t, err)
		with(how, string(mutant))
	}
	var walk func(n *yaml.Node, at string)
	walk = func(n *yaml.Node, at string) {
		before := *n
		for _, other := range others {
			var value yaml.Node
			must(t, yaml.Load([]byte(other), &value))
			if value.Kind == yaml.DocumentNode {
				value = *value.Content[0]
			}
			if n != top {
				*n = value
				dump(at + " = " + other)
				*n = before
			}
		}
		if n.Kind == yaml.MappingNode {
			key := &yaml.Node{Kind: yaml.ScalarNode, Tag: "!!str", Value: "x-unknown"}
			n.Content = append(n.Content[:len(n.Content):len(n.Content)], key, &yaml.Node{Kind: yaml.SequenceNode, Tag: "!!seq"})
			dump(at + " with an unknown key")
			*n = before
		}
		for i, c := range n.Content {
			content := n.Content
			if n.Kind == yaml.MappingNode && i%2 == 0 {
				n.Content = append(append([]*yaml.Node{}, content[:i]...), content[i+2:]...)
				dump(at + " without " + c.Value)
				n.Content = content
			}
			walk(c, fmt.Sprintf("%s/%d", at, i))
		}
	}
	walk(top, "")
}

func TestNoManifestHoweverWrongIsMoreThanAnError(t *testing.T) {
	const (
		policy    = "security_policy: {version: 1, timeout: 20s, network: {egress: [{domains: [a.example], ports: [443]}]}}\n"
		agent     = "name: a\ndescription: d\nlicense: MIT\ncompatibility: c\nversion: 1\nallowed-tools: [Read, Bash]\nmetadata: {author: me, tags: [a, b]}\n"
		skillware = "name: a/b\nversion: 1.0\ndescription: d\nparameters: {type: object, properties: {a: {type: string}}, required: [a]}\nrequirements: [x, {name: y}]\n" +
			"env_vars: {A: {required: true}}\nconstitution: c\nissuer: {name: n}\npresentation: {icon: i}\noutputs: {o: p}\n"
		own = "version: 1\nname: a\ndescription: d\ncommand: [sh, main.sh]\nparams_schema: {type: object}\n"
	)
	count := 0
	judge := func(how, mutant string, b *Bundle, err error) {
		count++
		var e *Error
		switch {
		case err != nil && (!errors.As(err, &e) || strings.ContainsAny(err.Error(), "\x1b\u202e")):
			t.Errorf("%s: %v\n%s", how, err, mutant)
		case err == nil && (badWord(b.Name) || strings.ContainsAny(b.Description+b.Version+strings.Join(b.Warnings, ""), "\x1b\u202e")):
			t.Errorf("%s: %+v\n%s", how, b, mutant)
		case err == nil:
			b.Entries()
		}
	}
	mutants(t, agent, func(how, mutant string) {
		b, err := readAgentSkill("SKILL.md", []byte("---\n"+mutant+"---\n# Title\n"), "dir")
		judge("SKILL.md "+how, mutant, b, err)
		if err != nil {
			t.Errorf("SKILL.md %s: is no warning but an error: %v", how, err)
		}
	})
	mutants(t, agent+policy, func(how, mutant string) {
		b, err := readAgentSkill("SKILL.md", []byte("---\n"+mutant+"---\n"), "dir")
		judge("SKILL.md with a policy "+how, mutant, b, err)
		if err == nil && b.Declared == nil && strings.Contains(mutant, "security_policy:") && !strings.Contains(mutant, "security_policy: null") {
			t.Errorf("SKILL.md %s: lost its policy", how)
		}
	})
	mutants(t, skillware+policy, func(how, mutant string) {
		b, err := readSkillware([]byte(mutant))
		judge("manifest.yaml "+how, mutant, b, err)
		if err != nil && strings.HasSuffix(how, "unknown key") {
			t.Errorf("manifest.yaml %s: %v", how, err)
		}
	})
	mutants(t, own+policy, func(how, mutant string) {
		b, err := readSkillbox([]byte(mutant))
		judge("skillbox.yaml "+how, mutant, b, err)
		if how == " with an unknown key" && err == nil {
			t.Errorf("skillbox.yaml: its own manifest has to be strict")
		}
	})
	if count < 1000 {
		t.Errorf("%d mutants", count)
	}
}
