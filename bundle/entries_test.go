package bundle

import (
	"fmt"
	"strings"
	"testing"
)

func TestEntriesAreWhatABundleOffers(t *testing.T) {
	const skill = "---\nname: pdf\ndescription: Reads PDF.\n---\n"
	for name, c := range map[string]struct {
		tree map[string]string
		want []string
	}{
		"a manifest's command":        {map[string]string{"skillbox.yaml": "version: 1\nname: word.count\ncommand: [python3, main.py]\nparams_schema: {type: object}\n"}, []string{`word_count: [python3 main.py] {"type":"object"}`}},
		"a declared one before it":    {map[string]string{"skillbox.yaml": "version: 1\nname: a\ncommand: [x]\n", "policy.yaml": "version: 1\ncommand: [y, z]\n"}, []string{"a: [y z]"}},
		"a declared one without kind": {map[string]string{"policy.yaml": "version: 1\ncommand: [y]\n"}, []string{"run: [y]"}},
		"a Skillware skill":           {map[string]string{"manifest.yaml": "name: office/pdf\nparameters: {}\n", "skill.py": ""}, []string{"office_pdf: [python3 /run/skillbox/skillware.py] {}"}},
		"one script":                  {map[string]string{"SKILL.md": skill, "scripts/a b.py": ""}, []string{"a_b: [/skill/scripts/a b.py]"}},
		"several":                     {map[string]string{"SKILL.md": skill, "scripts/x.py": "", "scripts/x.sh": "", "scripts/y.pl": ""}, []string{"x_py: [/skill/scripts/x.py]", "x_sh: [/skill/scripts/x.sh]", "y: [/skill/scripts/y.pl]"}},
		"a declared one that is one":  {map[string]string{"SKILL.md": skill, "scripts/x.py": "", "scripts/y.py": "", "policy.yaml": "command: [/skill/scripts/y.py]\n"}, []string{"x: [/skill/scripts/x.py]", "y: [/skill/scripts/y.py]"}},
		"names that look alike":       {map[string]string{"SKILL.md": skill, "scripts/ä.py": "", "scripts/ö.py": "", "policy.yaml": "command: [run]\n"}, []string{"pdf: [run]", "_: [/skill/scripts/ä.py]", "__2: [/skill/scripts/ö.py]"}},
		"instructions alone":          {map[string]string{"SKILL.md": skill}, nil},
		"nothing":                     {nil, nil},
		"a command that is none":      {map[string]string{"policy.yaml": "command: [[a]]\n"}, nil},
	} {
		b, err := Read(files(t, c.tree))
		must(t, err)
		var got []string
		for _, e := range b.Entries() {
			got = append(got, strings.TrimSpace(fmt.Sprintf("%s: %v %s", e.Name, e.Command, e.Schema)))
			if e.Description != b.Description {
				t.Errorf("%s: described as %q", name, e.Description)
			}
		}
		if fmt.Sprintf("%q", got) != fmt.Sprintf("%q", c.want) {
			t.Errorf("%s:\ngot  %q\nwant %q", name, got, c.want)
		}
	}
}

func TestManyEntriesHaveNamesOfTheirOwn(t *testing.T) {
	b := &Bundle{}
	for i := range 200 {
		b.Scripts = append(b.Scripts, fmt.Sprintf("scripts/%s%c.py", strings.Repeat("x", 70), rune(0x100+i)))
	}
	seen := map[string]bool{}
	for _, e := range b.Entries() {
		if seen[e.Name] || len(e.Name) > 64 {
			t.Errorf("%q, seen before: %v", e.Name, seen[e.Name])
		}
		seen[e.Name] = true
	}
}
