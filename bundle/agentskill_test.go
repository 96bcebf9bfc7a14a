package bundle

import (
	"errors"
	"os"
	"path/filepath"
	"reflect"
	"strconv"
	"strings"
	"testing"
	"time"
)

// skillAt reads a bundle in a directory of a name, with one file SKILL.md.
func skillAt(t *testing.T, dir, text string) (*Bundle, error) {
	t.Helper()
	at := filepath.Join(t.TempDir(), dir)
	must(t, os.Mkdir(at, 0o755))
	must(t, os.WriteFile(filepath.Join(at, "SKILL.md"), []byte(text), 0o644))
	return Read(open(t, at))
}

func TestTheWholeSpecificationOfAgentSkillsIsRead(t *testing.T) {
	b, err := skillAt(t, "pdf", "---\nname: pdf\ndescription: |\n  Reads PDF.\n  Use it for forms.\nlicense: Apache-2.0\ncompatibility: Needs poppler, Python 3.8\n"+
		"allowed-tools: Bash(git add:*) Read, Write\nmetadata:\n  author: someone\n  version: 1.10\n  tags: [a, b]\nx-host: {unknown: [1]}\n---\n# PDF\n")
	must(t, err)
	want := &Bundle{
		Kind: AgentSkill, Name: "pdf", Version: "1.10", Description: "Reads PDF.\nUse it for forms.", Manifest: "SKILL.md", License: "Apache-2.0",
		Compatibility: "Needs poppler, Python 3.8", AllowedTools: []string{"Bash(git add:*)", "Read", "Write"},
		Metadata: map[string]string{"author": "someone", "version": "1.10", "tags": `["a","b"]`},
	}
	if !reflect.DeepEqual(b, want) {
		t.Errorf("got  %+v\nwant %+v", b, want)
	}
}

func TestWhatCannotBeReadOfASkillIsAWarning(t *testing.T) {
	for name, c := range map[string]struct {
		text              string
		title, about, has string // a part of a warning
	}{
		"no frontmatter":            {"# PDF\n", "dir", "", "SKILL.md:1:1: has no frontmatter"},
		"an empty file":             {"", "dir", "", "has no frontmatter"},
		"no end":                    {"---\nname: a\ndescription: b\n\n# Title\nname: c\n", "a", "b", "SKILL.md:1:1: the frontmatter does not end"},
		"an unquoted colon":         {"---\nname: a\ndescription: Use it when: always\n---\n", "a", "Use it when: always", "SKILL.md:3:"},
		"a tab":                     {"---\nname: a\n\tx: y\ndescription: b\n---\n", "a x: y", "b", "SKILL.md:3:"},
		"tabs below a key":          {"---\nname: a\ndescription: b\nmetadata:\n\tversion: 2\n---\n", "a", "b", "SKILL.md:5:"},
		"a bracket":                 {"---\nname: a\ndescription: [b\n---\n", "a", "[b", "SKILL.md:"},
		"quotes in a text":          {"---\nname: a\ndescription: \"b\" and 'c'\n---\n", "a", `"b" and 'c'`, "SKILL.md:3:"},
		"an anchor":                 {"---\nname: &n a\ndescription: *n\n---\n", "&n a", "*n", "anchors are not supported"},
		"a key twice":               {"---\nname: a\nname: b\ndescription: c\n---\n", "a", "c", "the key is there twice"},
		"a block beside a colon":    {"---\nname: a\nx: y: z\ndescription: >-\n  first: line\n  second\n---\n", "a", "first: line second", "SKILL.md:3:"},
		"no name":                   {"---\ndescription: b\n---\n", "dir", "b", `the skill is called "dir"`},
		"a name that is a list":     {"---\nname: [a]\ndescription: b\n---\n", "dir", "b", "expected a text, found a list"},
		"a name in upper case":      {"---\nname: PDF Tools\ndescription: b\n---\n", "PDF Tools", "b", "SKILL.md:2:7: name: the specification wants lower-case"},
		"a name with two dashes":    {"---\nname: a--b\ndescription: b\n---\n", "a--b", "b", "single - between them"},
		"a name that is too long":   {"---\nname: " + strings.Repeat("a", 201) + "\ndescription: b\n---\n", "dir", "b", "longer than 200 bytes"},
		"a name that moves cursors": {"---\nname: \"a\\e[2J\"\ndescription: b\n---\n", "dir", "b", "name: contains a control character"},
		"a name that turns round":   {"---\nname: \"a\\u202eb\"\ndescription: b\n---\n", "dir", "b", "cannot be printed"},
		"no description":            {"---\nname: a\n---\n", "a", "", "description: the specification wants one"},
		"a long description":        {"---\nname: a\ndescription: " + strings.Repeat("ä", 1025) + "\n---\n", "a", strings.Repeat("ä", 1025), "has 1025 characters; the specification allows 1024"},
		"an odd description":        {"---\nname: a\ndescription: \"b\\e[2J\"\n---\n", "a", "", "description: contains a control character"},
		"no UTF-8":                  {"---\nname: a\ndescription: caf\xe9\n---\n", "a", "caf\ufffd", "not valid UTF-8"},
		"nothing between":           {"---\n---\n", "dir", "", "the file is empty"},
		"two documents":             {"---\nname: a\n...\ndescription: b\n---\n", "a", "b", "a second document begins here"},
		"metadata that is a list":   {"---\nname: a\ndescription: b\nmetadata: [1]\n---\n", "a", "b", "metadata: expected keys and values, found a list"},
		"tools that are keys":       {"---\nname: a\ndescription: b\nallowed-tools: {a: 1}\n---\n", "a", "b", "expected the name of a tool"},
		"a license that is a list":  {"---\nname: a\ndescription: b\nlicense: [1]\n---\n", "a", "b", "license: expected a text, found a list"},
	} {
		b, err := skillAt(t, "dir", c.text)
		if err != nil {
			t.Errorf("%s: %v", name, err)
			continue
		}
		all := strings.Join(b.Warnings, "\n")
		if b.Kind != AgentSkill || b.Name != c.title || b.Description != c.about || !strings.Contains(all, c.has) {
			t.Errorf("%s: name %q, description %q, warnings:\n%s\nwant %q, %q and %q", name, b.Name, b.Description, all, c.title, c.about, c.has)
		}
	}
}

func TestWhatIsGuessedOfAFrontmatterIsItsOwn(t *testing.T) {
	b, err := skillAt(t, "x", "---\nname: a\ndescription: so: it: goes\nlicense: 'MIT'\ncompatibility: \"any\"\nallowed-tools:\n  - Read\n  - Bash(ls:*)\nmetadata:\n  version: 3\n  author: me: myself\n---\n")
	must(t, err)
	b.Warnings = nil
	want := &Bundle{
		Kind: AgentSkill, Name: "a", Description: "so: it: goes", License: "MIT", Compatibility: "any", AllowedTools: []string{"Read", "Bash(ls:*)"},
		Metadata: map[string]string{"version": "3", "author": "me: myself"}, Version: "3", Manifest: "SKILL.md",
	}
	if !reflect.DeepEqual(b, want) {
		t.Errorf("got  %+v\nwant %+v", b, want)
	}
}

func TestAPolicyThatCannotBeReadIsAnErrorAlways(t *testing.T) {
	for name, text := range map[string]string{
		"broken elsewhere":       "---\nname: a\ndescription: b: c\nsecurity_policy:\n  version: 1\n---\n",
		"broken itself":          "---\nname: a\ndescription: b\nsecurity_policy: {network: [\n---\n",
		"no mapping":             "---\nname: a\ndescription: b\nsecurity_policy: strict\n---\n",
		"no end":                 "---\nname: a\ndescription: b\n\nsecurity_policy:\n  version: 1\n",
		"no beginning":           "name: a\nsecurity_policy:\n  version: 1\n---\n",
		"twice":                  "---\nname: a\nsecurity_policy: {version: 1}\nsecurity_policy: {}\n---\n",
		"an alias":               "---\nname: &a b\ndescription: *a\nsecurity_policy: {version: 1}\n---\n",
		"behind a second fence":  "---\nname: [\n---\nsecurity_policy: {}\n",
		"in a file without UTF8": "---\nname: \xff: b\nsecurity_policy: {version: 1}\nx: y: z\n---\n",
	} {
		b, err := skillAt(t, "x", text)
		var e *Error
		if !errors.As(err, &e) || e.File != "SKILL.md" {
			t.Errorf("%s: got %+v, %v", name, b, err)
		}
	}
	b, err := skillAt(t, "x", "---\nname: a\ndescription: b\nsecurity_policy: {version: 1}\nlicense: [x]\n---\nAbout security_policy: it is read.\n")
	if err != nil || b.Declared == nil {
		t.Errorf("one that can be read, beside what cannot: %+v, %v", b, err)
	}
}

func TestNoFrontmatterTakesLongToGuess(t *testing.T) {
	for name, line := range map[string]string{"keys": "k%: [\n", "texts below a key": " some text %\n", "entries": " k%: v\n", "items": " - %\n"} {
		var all strings.Builder
		all.WriteString("---\nname: [\n")
		for i := 0; all.Len() < maxManifest-100; i++ {
			all.WriteString(strings.Replace(line, "%", strconv.Itoa(i), 1))
		}
		start := time.Now()
		b, err := readAgentSkill("SKILL.md", []byte(all.String()), "dir")
		if d := time.Since(start); err != nil || d > 5*time.Second || len(b.Warnings) == 0 {
			t.Errorf("%s: %v, %v", name, d, err)
		}
	}
}

func TestASkillIsCalledAsItsDirectory(t *testing.T) {
	for dir, want := range map[string]string{"My Skill": "My Skill", "a\nb": "a_b", "\xff": "_", "ä": "ä", "over\u202etxt": "over_txt", strings.Repeat("n", 250): strings.Repeat("n", 200)} {
		b, err := skillAt(t, dir, "# no frontmatter\n")
		if err != nil || b.Name != want {
			t.Errorf("%q: %+v, %v", dir, b, err)
		}
	}
	b, err := Read(files(t, map[string]string{"skill.md": "---\nname: low\ndescription: b\n---\n"}))
	if err != nil || b.Name != "low" || b.Manifest != "skill.md" || b.Kind != AgentSkill {
		t.Errorf("skill.md: %+v, %v", b, err)
	}
}
