package bundle

import (
	"bytes"
	"encoding/json"
	"errors"
	"strings"
	"testing"
	"unicode"
	"unicode/utf8"

	"go.yaml.in/yaml/v4"
)

// holds checks what every reader of a manifest promises, whatever the text.
func holds(t *testing.T, b *Bundle, err error) {
	t.Helper()
	if err != nil {
		var e *Error
		if !errors.As(err, &e) {
			t.Fatalf("%T is not an *Error: %v", err, err)
		}
		if s := e.Error() + e.Hint + e.Field; !utf8.ValidString(s) || strings.ContainsFunc(s, func(r rune) bool { return unicode.IsControl(r) }) {
			t.Fatalf("the error is not fit for a terminal: %q", s)
		}
		if e.File == "" || e.Line < 0 || (e.Line > 0) != (e.Column > 0) {
			t.Fatalf("the error has no position: %+v", e)
		}
		return
	}
	if b.Name == "" || len(b.Name) > maxName || strings.ContainsFunc(b.Name+b.Version, func(r rune) bool { return !unicode.IsPrint(r) }) {
		t.Fatalf("name %q, version %q", b.Name, b.Version)
	}
	if b.ParamsSchema != nil && !json.Valid(b.ParamsSchema) {
		t.Fatalf("the schema is not JSON: %s", b.ParamsSchema)
	}
	for _, word := range b.Command {
		if strings.IndexByte(word, 0) >= 0 {
			t.Fatalf("NUL in %q", b.Command)
		}
	}
	if b.Declared != nil {
		noAlias(t, b.Declared, 0)
	}
}

func noAlias(t *testing.T, n *yaml.Node, depth int) {
	if n.Kind == yaml.AliasNode || n.Anchor != "" || depth > maxDepth {
		t.Fatalf("the declared policy holds %+v at depth %d", n, depth)
	}
	for _, c := range n.Content {
		noAlias(t, c, depth+1)
	}
}

func FuzzManifest(f *testing.F) {
	for _, seed := range []string{
		"version: 1\nname: a\ncommand: [python3, main.py]\nparams_schema: {type: object, n: [1, 0x1F, 1.5e3, ~, yes, 2024-01-01]}\nsecurity_policy: {version: 1}\n",
		"name: x/y\nversion: 1.10\ndescription: |\n  a\nparameters:\n  type: object\nrequirements: [a, {name: b}]\nenv_vars: {K: {required: true}}\n",
		"a: &a [1]\nb: *a\n<<: *a\n", "--- !!map\n? [a]\n: b\n...\n---\n", "a: !!binary aGk=\n", "\"\\x1b\": 'x'\n\x00", "{a: {a: {a: [[[[", "- \t- %\n", "\ufeffname: x",
		"a: 9999999999999999999999\nb: .nan\nc: 1e999\nd: 0b1\ne: 1_000\n",
	} {
		f.Add([]byte(seed))
	}
	f.Fuzz(func(t *testing.T, data []byte) {
		if len(data) > maxManifest {
			return
		}
		b, err := readSkillbox(data)
		holds(t, b, err)
		b, err = readSkillware(data)
		holds(t, b, err)
	})
}

func FuzzFrontmatter(f *testing.F) {
	for _, seed := range []string{
		"---\nname: pdf\ndescription: Reads PDF.\nmetadata:\n  version: \"1.0\"\n---\n# PDF\n", "---\r\nname: a\r\ndescription: b\r\n---\r\n", "---\n---\n", "---",
		"\ufeff--- \nname: x\n---x\n---", "# no\n", "---\nname: a\n...\n---\nb: c\n---\n", "---\nname: |\n  ---\n---\n", "---\nsecurity_policy: {a: *b}\n---\n",
		"---\nname: a: b\nmetadata:\n\tversion: 1\nallowed-tools:\n- Bash(git add:*)\n---\n", "---\nname: \xff\ndescription: >-\n  a: b: c\n d\n\n# body",
		"---\nname: a: b\ndescription: Reads PDF.\nmetadata:\n  version: \"1.0\ta",
	} {
		f.Add([]byte(seed))
	}
	f.Fuzz(func(t *testing.T, data []byte) {
		if len(data) > maxManifest {
			return
		}
		b, err := readAgentSkill("SKILL.md", data, "dir")
		holds(t, b, err)
		if err != nil && !bytes.Contains(data, []byte("security_policy")) {
			t.Fatalf("%q is an error: %v", data, err)
		}
		for _, w := range warningsOf(b) {
			if strings.ContainsFunc(w, unprintable) || !strings.HasPrefix(w, "SKILL.md") {
				t.Fatalf("%q warns %q", data, w)
			}
		}
	})
}

func warningsOf(b *Bundle) []string {
	if b == nil {
		return nil
	}
	return b.Warnings
}

func FuzzNames(f *testing.F) {
	for _, seed := range []string{"a\x00A", "caf\u00e9\x00cafe\u0301", "..\x00-x", "\xff"} {
		f.Add(seed)
	}
	f.Fuzz(func(t *testing.T, text string) {
		names := strings.Split(text, "\x00")
		for _, n := range names {
			if BadName(n) == "" && (escape(n) == "" || strings.ContainsAny(n, "\n\r\x1b\\") || !utf8.ValidString(n)) {
				t.Fatalf("%q passes for a name", n)
			}
			if key := FoldName(n); utf8.ValidString(n) && FoldName(key) != key {
				t.Fatalf("folding %q twice gives another key", n)
			}
		}
		if a, b, found := twins(names); found && FoldName(a) != FoldName(b) {
			t.Fatalf("%q and %q are no twins", a, b)
		}
	})
}
