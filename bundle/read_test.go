package bundle

import (
	"errors"
	"fmt"
	"os"
	"reflect"
	"strings"
	"testing"
	"time"
	"unicode/utf8"
)

func TestReadTellsTheKindsApart(t *testing.T) {
	const skill = "---\nname: pdf\ndescription: Reads PDF.\nlicense: MIT\nallowed-tools: Bash Read\nmetadata:\n  version: 1.10\nx-new: [1]\n---\n# PDF\n"
	for name, c := range map[string]struct {
		tree map[string]string
		want Bundle
	}{
		"our own": {
			map[string]string{"skillbox.yaml": "version: 1\nname: word-count\ndescription: Counts.\ncommand: [python3, main.py, '']\n" +
				"params_schema: {type: object, required: [text], minimum: 0x10, n: null, o: true, d: 2024-01-02, f: 1.5}\n", "SKILL.md": "broken"},
			Bundle{
				Kind: Skillbox, Name: "word-count", Description: "Counts.", Manifest: "skillbox.yaml", Command: []string{"python3", "main.py", ""},
				ParamsSchema: []byte(`{"type":"object","required":["text"],"minimum":16,"n":null,"o":true,"d":"2024-01-02","f":1.5}`),
			},
		},
		"our own without a command": {
			map[string]string{"skillbox.yaml": "version: 1\nname: a\n", "scripts/x.py": ""},
			Bundle{Kind: Skillbox, Name: "a", Manifest: "skillbox.yaml"},
		},
		"agent skill with one script": {
			map[string]string{"SKILL.md": skill, "scripts/run.py": "", "scripts/README.md": "", "scripts/lib/x.py": "", "scripts/__init__.py": ""},
			Bundle{
				Kind: AgentSkill, Name: "pdf", Version: "1.10", Description: "Reads PDF.", Manifest: "SKILL.md", License: "MIT", AllowedTools: []string{"Bash", "Read"}, Metadata: map[string]string{"version": "1.10"},
				Command: []string{"/skill/scripts/run.py"}, Scripts: []string{"scripts/run.py"},
			},
		},
		"agent skill with several": {
			map[string]string{
				"SKILL.md": skill, "manifest.yaml": "x", "skill.py": "", "scripts/b.sh": "", "scripts/a": "#!/bin/sh\n", "scripts/data.csv": "", "scripts/.x.py": "",
				"scripts/l.py": "-> b.sh",
			},
			Bundle{
				Kind: AgentSkill, Name: "pdf", Version: "1.10", Description: "Reads PDF.", Manifest: "SKILL.md", License: "MIT", AllowedTools: []string{"Bash", "Read"}, Metadata: map[string]string{"version": "1.10"}, Scripts: []string{"scripts/a", "scripts/b.sh"},
			},
		},
		"agent skill with Windows line ends and a byte order mark": {
			map[string]string{"SKILL.md": "\ufeff" + strings.ReplaceAll(skill, "\n", "\r\n")},
			Bundle{Kind: AgentSkill, Name: "pdf", Version: "1.10", Description: "Reads PDF.", Manifest: "SKILL.md", License: "MIT", AllowedTools: []string{"Bash", "Read"}, Metadata: map[string]string{"version": "1.10"}},
		},
		"Skillware": {
			map[string]string{"manifest.yaml": "name: utilities/unit\nversion: 0.1\ndescription: |\n  Two\n  lines.\nparameters: {type: object}\nrequirements: [requests, 'pandas>=2']\n" +
				"constitution: |\n  1. Be kind.\nenv_vars:\n  B_KEY: {required: true}\n  A_KEY:\n", "skill.py": ""},
			Bundle{
				Kind: Skillware, Name: "utilities/unit", Version: "0.1", Description: "Two\nlines.", Manifest: "manifest.yaml",
				Command: []string{"python3", "/run/skillbox/skillware.py"}, Shim: "skillware", ParamsSchema: []byte(`{"type":"object"}`),
				Document: []byte(`{"name":"utilities/unit","version":0.1,"description":"Two\nlines.\n","parameters":{"type":"object"},` +
					`"requirements":["requests","pandas\u003e=2"],"constitution":"1. Be kind.\n","env_vars":{"B_KEY":{"required":true},"A_KEY":null}}`),
				Requirements: []string{"requests", "pandas>=2"}, EnvVars: []string{"A_KEY", "B_KEY"},
			},
		},
		"a manifest.yaml of something else": {map[string]string{"manifest.yaml": ": ["}, Bundle{Kind: Command}},
		"nothing":                           {nil, Bundle{Kind: Command}},
		"scripts alone":                     {map[string]string{"scripts/x": "#!/bin/sh"}, Bundle{Kind: Command, Scripts: []string{"scripts/x"}}},
		"scripts that is no directory":      {map[string]string{"scripts": "-> /bin"}, Bundle{Kind: Command}},
	} {
		t.Run(name, func(t *testing.T) {
			got, err := Read(files(t, c.tree))
			must(t, err)
			if !reflect.DeepEqual(*got, c.want) {
				t.Errorf("got  %+v\nwant %+v", *got, c.want)
			}
		})
	}
}

func TestEveryShimThatIsNamedIsThere(t *testing.T) {
	b, err := Read(files(t, map[string]string{"manifest.yaml": "name: x", "skill.py": ""}))
	must(t, err)
	if len(b.ShimFiles()[b.Shim+".py"]) == 0 {
		t.Errorf("no shim %q", b.Shim)
	}
}

func TestADeclaredPolicyIsHandedOnWithItsPositions(t *testing.T) {
	const policy = "version: 1\nnetwork: {egress: []}\n"
	for name, c := range map[string]struct {
		tree map[string]string
		file string
		line int
	}{
		"in our manifest":  {map[string]string{"skillbox.yaml": "version: 1\nname: a\nsecurity_policy:\n  version: 1\n"}, "skillbox.yaml", 4},
		"in a frontmatter": {map[string]string{"SKILL.md": "---\nname: a\ndescription: b\nsecurity_policy:\n  version: 1\n---\n"}, "SKILL.md", 5},
		"in Skillware's":   {map[string]string{"manifest.yaml": "name: a\nsecurity_policy: {version: 1}\n", "skill.py": ""}, "manifest.yaml", 2},
		"of its own":       {map[string]string{"policy.yaml": "# p\n" + policy}, "policy.yaml", 2},
	} {
		t.Run(name, func(t *testing.T) {
			b, err := Read(files(t, c.tree))
			must(t, err)
			if b.DeclaredFile != c.file || b.Declared == nil || b.Declared.Line != c.line || b.Declared.Content[0].Value != "version" {
				t.Errorf("got %s, %+v", b.DeclaredFile, b.Declared)
			}
		})
	}
	_, err := Read(files(t, map[string]string{"policy.yaml": policy, "skillbox.yaml": "version: 1\nname: a\nsecurity_policy: {version: 1}\n"}))
	if err == nil || !strings.Contains(err.Error(), "declares a policy twice") {
		t.Errorf("two policies: %v", err)
	}
}

func TestABadManifestIsAnErrorWithItsPosition(t *testing.T) {
	const head = "version: 1\nname: a\n"
	big := head + "#" + strings.Repeat("x", maxManifest)
	for _, c := range []struct{ file, text, want, hint string }{
		{"skillbox.yaml", "version: 1\nname: a\ncomand: [x]\n", "skillbox.yaml:3:1: comand: unknown key", "did you mean command?"},
		{"skillbox.yaml", head + "zzz: 1\n", "skillbox.yaml:3:1: zzz: unknown key", "the keys are version,"},
		{"skillbox.yaml", head + "name: b\n", "skillbox.yaml:3:1: name: the key is there twice, first in line 2", ""},
		{"skillbox.yaml", head + "params_schema:\n  a: 1\n  a: 2\n", "skillbox.yaml:5:3: params_schema.a: the key is there twice, first in line 4", ""},
		{"skillbox.yaml", head + "params_schema: &x {}\n", "skillbox.yaml:3:16: params_schema: anchors are not supported", ""},
		{"skillbox.yaml", head + "params_schema: {<<: {a: 1}}\n", "skillbox.yaml:3:17: params_schema: merge keys are not supported", ""},
		{"skillbox.yaml", head + "params_schema: {a: !!binary aGk=}\n", "the tag !!binary is not supported", ""},
		{"skillbox.yaml", head + "params_schema: {a: !go x}\n", "the tag !go is not supported", ""},
		{"skillbox.yaml", head + "params_schema: {a: .inf}\n", "params_schema.a: JSON has no such number", ""},
		{"skillbox.yaml", head + "params_schema: []\n", "expected a JSON Schema, found a list", ""},
		{"skillbox.yaml", head + "---\nname: b\n", "a second document begins here", ""},
		{"skillbox.yaml", "", "skillbox.yaml: the file is empty", ""},
		{"skillbox.yaml", "# nothing\n", "skillbox.yaml: the file is empty", ""},
		{"skillbox.yaml", "[a]\n", "skillbox.yaml:1:1: expected keys and values, found a list", ""},
		{"skillbox.yaml", "name: a\n", "version: must be 1", "write `version: 1`"},
		{"skillbox.yaml", "version: '1'\nname: a\n", "skillbox.yaml:1:10: version: must be 1", ""},
		{"skillbox.yaml", "version: 1\n", "skillbox.yaml: name: the key is missing", ""},
		{"skillbox.yaml", "version: 1\nname: A b\n", "skillbox.yaml:2:7: name: must be lower-case", ""},
		{"skillbox.yaml", head + "command: python3 main.py\n", "skillbox.yaml:3:10: command: expected a list of words, found a text", "there is no shell"},
		{"skillbox.yaml", head + "command: []\n", "command: must not be empty", ""},
		{"skillbox.yaml", head + "command: ['']\n", "the first word must not be empty", ""},
		{"skillbox.yaml", head + "command: [a, \"b\\0c\"]\n", "skillbox.yaml:3:14: command: word 2 contains a NUL", ""},
		{"skillbox.yaml", head + "command: [a, [b]]\n", "word 2: expected a text, found a list", ""},
		{"skillbox.yaml", head + "security_policy: strict\n", "expected a policy, found a text", ""},
		{"skillbox.yaml", head + "\tx: 1\n", "skillbox.yaml:3:", ""},
		{"skillbox.yaml", "version: 1\nname: a\xff\n", "not valid UTF-8", ""},
		{"skillbox.yaml", big, "larger than 256 KiB", ""},
		{"skillbox.yaml", head + "params_schema: " + strings.Repeat("[", 100) + "\n", "skillbox.yaml:3:", ""},
		{"manifest.yaml", "description: x\n", "manifest.yaml: name: the key is missing", ""},
		{"manifest.yaml", "name: x\nparameters: no\n", "manifest.yaml:2:13: parameters: expected a JSON Schema", ""},
		{"manifest.yaml", "name: x\nrequirements: {a: 1, b: [}\n", "manifest.yaml:", ""},
		{"manifest.yaml", "name: x\nenv_vars: [[a]]\n", "env_vars: expected a text, found a list", ""},
		{"policy.yaml", "", "policy.yaml: the file is empty", ""},
		{"policy.yaml", "a: *b\n", "policy.yaml:1:4:", ""},
	} {
		tree := map[string]string{c.file: c.text}
		if c.file == "manifest.yaml" {
			tree["skill.py"] = ""
		}
		b, err := Read(files(t, tree))
		var e *Error
		if !errors.As(err, &e) {
			t.Errorf("%s %q: got %+v, %v", c.file, c.text[:min(60, len(c.text))], b, err)
			continue
		}
		if !strings.Contains(err.Error(), c.want) || !strings.Contains(e.Hint, c.hint) || e.File != c.file {
			t.Errorf("%s %q: got %q, hint %q, want %q, hint %q", c.file, c.text[:min(60, len(c.text))], err, e.Hint, c.want, c.hint)
		}
	}
}

func TestNoManifestTakesLongToRead(t *testing.T) {
	numbered := func(format string) string {
		var b strings.Builder
		for i := 0; b.Len() < maxManifest-100; i++ {
			fmt.Fprintf(&b, format, i)
		}
		return b.String()
	}
	for name, text := range map[string]string{
		"keys": numbered("k%d: 1\n"), "a list": "a: [" + numbered("%d,") + "]", "anchors": numbered("k%d: &a%[1]d 1\n"),
		"comments": numbered("# %d\n"), "comments between": numbered("#\nk%d: 1\n"), "brackets": strings.Repeat("[", maxManifest-100),
		"dashes": strings.Repeat("- ", maxManifest/2-100), "digits": "a: " + strings.Repeat("1", maxManifest-100),
		"documents": strings.Repeat("---\n", maxManifest/4-100), "a long key": strings.Repeat("k", maxManifest-100) + ": 1",
	} {
		start := time.Now()
		_, err := readSkillbox([]byte(text))
		if d := time.Since(start); d > 3*time.Second {
			t.Errorf("%s: %v", name, d)
		}
		if err == nil || len(err.Error()) > 1000 {
			t.Errorf("%s: an error of %d bytes", name, len(err.Error()))
		}
	}
}

func TestThreat112AManifestThatIsALinkIsNotFollowed(t *testing.T) {
	for _, target := range []string{"/etc/passwd", "other.yaml", "../other.yaml"} {
		for _, name := range []string{"skillbox.yaml", "SKILL.md", "policy.yaml"} {
			_, err := Read(files(t, map[string]string{name: "-> " + target, "other.yaml": "version: 1\nname: a\n"}))
			if err == nil || !strings.Contains(err.Error(), "is a symbolic link") {
				t.Errorf("%s -> %s: %v", name, target, err)
			}
		}
	}
}

func TestReadLeavesTheDirectoryWhereItWas(t *testing.T) {
	dir := files(t, map[string]string{"a": "", "scripts/b.py": ""})
	for range 2 {
		_, err := Read(dir)
		must(t, err)
		digestOf(t, dir)
	}
	if names, err := dir.Readdirnames(-1); err != nil || len(names) != 2 {
		t.Errorf("%v, %v", names, err)
	}
}

func TestWithEntryStaysInTheBundle(t *testing.T) {
	b := &Bundle{Scripts: []string{"scripts/x.py"}}
	for entry, want := range map[string]string{
		"scripts/x.py": "/skill/scripts/x.py", "./a": "/skill/a", "/skill/a/b": "/skill/a/b", "a/./b//c": "/skill/a/b/c", "a/../b": "/skill/b",
		"$(id)": "/skill/$(id)", ";id": "/skill/;id",
		"": "", ".": "", "..": "", "../x": "", "a/../../x": "", "/etc/passwd": "", "/skill": "", "/skill/../etc/passwd": "", "/skill//etc": "/skill/etc",
		"-rf": "", "a\x00b": "", "a\nb": "", "--bind": "", "a/--bind": "",
	} {
		got, err := b.WithEntry(entry)
		if want == "" {
			var e *Error
			if !errors.As(err, &e) || !strings.Contains(e.Hint, "scripts/x.py") {
				t.Errorf("%q: got %v, %v; want a refusal that names the scripts", entry, got, err)
			}
		} else if err != nil || len(got) != 1 || got[0] != want {
			t.Errorf("%q: got %v, %v; want %s", entry, got, err, want)
		}
	}
}

func TestAnErrorShowsNoControlCharacter(t *testing.T) {
	for _, name := range []string{"\x1b]0;x\x07", "a\nb", "\xff", "\u202e"} {
		e := sysError(name, os.ErrPermission)
		if strings.ContainsAny(e.Error(), "\x1b\x07\n\u202e") || !utf8.ValidString(e.Error()) {
			t.Errorf("%q", e.Error())
		}
		if !errors.Is(e, os.ErrPermission) {
			t.Error("the cause is lost")
		}
	}
}
