//go:build linux

package integration

import (
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"skillbox/helper"
)

// skillware copies the skills of testdata/skillware, in the layout of a registry, to where the mode's user can read them.
func (m mode) skillware(t *testing.T) string {
	t.Helper()
	dir := filepath.Join(m.dir(t), "skills")
	err := os.CopyFS(dir, os.DirFS("testdata/skillware"))
	if err == nil {
		err = filepath.WalkDir(dir, func(path string, _ os.DirEntry, err error) error {
			m.own(t, path)
			return err
		})
	}
	if err != nil {
		t.Fatal(err)
	}
	return dir
}

const (
	rulesQuestion = `{"question": "custody provider segregates assets", "limit": 1}`
	screened      = `{"address": "0x00000000000000000000000000000000000000AB"}`
)

func TestSkillwareSkillsOfThreeKindsRunUnmodified(t *testing.T) {
	inEachMode(t, func(t *testing.T, m mode) {
		root := m.skillware(t)
		invoice := m.file(t, "invoice.csv", "item,quantity,price\nscrew,100,0.10\nhammer,2,12.50\n")
		out := filepath.Join(m.dir(t), "out")
		params, err := json.Marshal(map[string]string{"csv_path": invoice, "output_path": filepath.Join(out, "sums", "totals.csv")})
		if err != nil {
			t.Fatal(err)
		}

		// Paths of the host mean nothing in a box, unless the caller names the files and asks for them to be mapped.
		files := call{mode: m, bundle: filepath.Join(root, "office/invoice_totals"), flags: []string{"--params", string(params)}}
		files.runs(t, `{"error": "File not found: `+invoice+`"}`)
		beside, err := json.Marshal(map[string]string{"csv_path": invoice})
		if err != nil {
			t.Fatal(err)
		}
		files.flags = []string{"--params", string(beside), "--map-paths", "--input", invoice}
		if r := files.run(t); r.ExitCode != 1 || !strings.Contains(r.Stderr, "Read-only file system: '/input/invoice_totals.csv'") {
			t.Errorf("%d %s", r.ExitCode, r.Stderr)
		}
		params = []byte(strings.Replace(string(params), "/sums/", "/", 1))
		files.flags = []string{"--params", string(params), "--map-paths", "--input", invoice, "--output", out}
		files.runs(t, `{"net": "35.00", "gross": "41.6500", "output_path": "/output/totals.csv"}`)
		if text, err := os.ReadFile(filepath.Join(out, "totals.csv")); err != nil || !strings.Contains(string(text), "hammer,25.00,29.7500") {
			t.Errorf("%v %s", err, text)
		}

		// What a corpus in memory costs is paid by each call; what a module counts starts anew.
		corpus := call{mode: m, bundle: filepath.Join(root, "compliance/rule_finder"), flags: []string{"--params", rulesQuestion}}
		for range 2 {
			r := corpus.run(t)
			if !r.Success || !strings.Contains(string(r.Result), `"calls":1}`) || !strings.Contains(string(r.Result), "segregate the assets") || r.Stderr != "indexed 4000 articles\n" {
				t.Errorf("%s %s", r.Result, r.Stderr)
			}
		}

		// A data set beside the skill is read; a cache beside it is not written.
		data := call{mode: m, bundle: filepath.Join(root, "finance/address_screening"), flags: []string{"--params", screened}}
		for policy, cached := range map[string]string{"": `"cached":false`, "version: 1\nrootfs: {bundle: copy-on-write}\n": `"cached":true`} {
			data.policy = policy
			r := data.run(t)
			for _, want := range []string{`"reason":"theft"`, `"entries":3`, `"history":"offline"`, cached} {
				if !strings.Contains(string(r.Result), want) {
					t.Errorf("%s: no %s; %s", r.Result, want, r.Stderr)
				}
			}
		}
	})
}

func TestParametersThatDoNotFitTheSchemaAreRefused(t *testing.T) {
	inEachMode(t, func(t *testing.T, m mode) {
		leavesNothing(t)
		bundle := filepath.Join(m.skillware(t), "compliance/rule_finder")
		refused := func(r *helper.Result, want string) {
			t.Helper()
			if r.Verdict != helper.Refused || r.ExitCode != 125 || r.Error == nil || r.Error.Field != "params" || r.Error.Message != want || r.Stderr != "" || r.Phases["prepare_ms"] != 0 {
				t.Errorf("%s %d %+v %v, stderr %q", r.Verdict, r.ExitCode, r.Error, r.Phases, r.Stderr)
			}
		}
		const in = "they do not fit the schema in manifest.yaml: "
		c := call{mode: m, bundle: bundle, flags: []string{"--params", `{"question": "ab", "limit": 21, "x": 1}`}}
		refused(c.run(t), in+"/limit: expected at most 20, found 21; /question: expected at least 3 characters, found 2; /x: there is no such key; there are limit, question")
		c.flags = []string{"--params", "-"}
		c.stdin = `{"limit": 1.5}`
		refused(c.run(t), in+"/question: is required and missing; /limit: expected an integer, found 1.5")

		// Our own manifests have a schema too.
		c = call{mode: m, bundle: m.example(t, "word-count"), flags: []string{"--params", `{"text": 7}`}}
		if r := c.run(t); r.ExitCode != 125 || !strings.Contains(r.Error.Message, "in skillbox.yaml: /text: expected a text, found 7") {
			t.Errorf("%+v", r.Error)
		}
		// What else the bundle holds takes what it takes.
		c.words, c.flags = nil, []string{"--params", `{"text": 7}`, "--entry", "none.py"}
		if r := c.run(t); r.ExitCode != 127 {
			t.Errorf("%d %+v", r.ExitCode, r.Error)
		}
		// A call of a service is refused before it takes a box, and one of a session as well.
		s := m.service(t)
		r, err := envelope(s.command([]string{"--json", "--params", `{}`}, bundle))
		if err != nil {
			t.Fatal(err)
		}
		refused(r, in+"/question: is required and missing")
		session := s.session(t, bundle)
		if r, err = session.ask([]string{"--params", `{"question": 1}`}); err != nil {
			t.Fatal(err)
		}
		refused(r, in+"/question: expected a text, found 1")
		if r, err = session.ask([]string{"--params", `{"question": 1}`, "--entry", "corpus.json"}); err != nil || r.ExitCode != 126 {
			t.Errorf("%v %+v", err, r)
		}
		if r, err = session.ask([]string{"--params", rulesQuestion}); err != nil || !r.Success {
			t.Errorf("%v %+v", err, r)
		}
	})
}

const askingSkill = `import json, os
from skillware.core.base_skill import BaseSkill

class Asking(BaseSkill):
    def execute(self, params):
        return {"config": self.config, "environment": sorted(n for n in os.environ if n.startswith("SKW_")), "key": self.credential("SKW_KEY")}
`

func TestASkillwareSkillGetsTheVariablesThatItsManifestNames(t *testing.T) {
	inEachMode(t, func(t *testing.T, m mode) {
		bundle := m.bundleOf(t, map[string]string{
			"skill.py":      askingSkill,
			"manifest.yaml": "name: a/b\nenv_vars:\n  SKW_KEY: {required: true}\n  SKW_MORE: {required: false}\n  SKW_SET: {}\n",
		})
		env := []string{"SKW_KEY=sesame", "SKW_MORE=more", "SKW_OTHER=other", `SKILLWARE_CONFIG={"region": "eu"}`}
		warned := func(r *helper.Result, want string) {
			t.Helper()
			var got []string
			for _, w := range r.Warnings {
				if strings.Contains(w, "env_vars") {
					got = append(got, w)
				}
			}
			if strings.Join(got, "\n") != want {
				t.Errorf("warned of %q", got)
			}
		}
		c := call{mode: m, bundle: bundle, env: env}
		warned(c.runs(t, `{"config": {}, "environment": [], "key": null}`),
			"the skill runs without SKW_KEY, SKW_SET, which it names in manifest.yaml: env_vars: `env: {pass: [SKW_KEY, SKW_SET]}` in the policy passes the caller's")

		c.policy = "version: 1\nenv:\n  pass: [SKW_KEY, SKW_OTHER]\n  set: {SKW_SET: fixed}\n"
		c.flags = []string{"--env", "SKW_OTHER2"}
		r := c.runs(t, `{"config": {"SKW_KEY": "sesame", "SKW_SET": "fixed"}, "environment": ["SKW_KEY", "SKW_SET"], "key": "sesame"}`)
		warned(r, "--env SKW_OTHER2: the skill does not get it, for manifest.yaml: env_vars does not name it")
		var remedies []string
		for _, d := range r.Denials {
			remedies = append(remedies, d.Hint)
		}
		if strings.Join(remedies, ";") != "env: {pass: [SKW_MORE]}" {
			t.Errorf("%+v", r.Denials)
		}

		// A secret is in the config without being in the environment, and the host's own config comes with the call.
		c.policy, c.flags = "version: 1\nenv: {secrets: [SKW_KEY]}\n", []string{"--env", "SKILLWARE_CONFIG"}
		c.runs(t, `{"config": {"SKW_KEY": "sesame", "region": "eu"}, "environment": [], "key": "sesame"}`)
	})
}

func TestASkillwareSkillRunsWithoutARequirementThatItDoesNotReach(t *testing.T) {
	inEachMode(t, func(t *testing.T, m mode) {
		bundle := m.bundleOf(t, map[string]string{
			"manifest.yaml": "name: a/b\nrequirements: ['no_such_package>=2', json, 'also-none[extra]; python_version > \"3\"']\n",
			"skill.py":      "class S:\n    def execute(self, params):\n        if params:\n            import no_such_package\n        return 1\n",
		})
		const named = "skillware: the manifest requires what is not installed here: no_such_package>=2, also-none[extra]; python_version > \"3\"\n"
		c := call{mode: m, bundle: bundle}
		if r := c.runs(t, `1`); r.Stderr != named {
			t.Errorf("%q", r.Stderr)
		}
		c.flags = []string{"--params", `{"x": 1}`}
		if r := c.run(t); r.ExitCode != 1 || !strings.HasPrefix(r.Stderr, named) || !strings.Contains(r.Stderr, "No module named 'no_such_package'") {
			t.Errorf("%d %s", r.ExitCode, r.Stderr)
		}
	})
}

// The package itself may lie among the box's packages; then its own class is what skills are made of.
func TestASkillwareSkillUsesThePackageWhereItIsInstalled(t *testing.T) {
	inEachMode(t, func(t *testing.T, m mode) {
		site := m.bundleOf(t, map[string]string{
			"skillware/__init__.py": "", "skillware/core/__init__.py": "",
			"skillware/core/base_skill.py": "class BaseSkill:\n    def __init__(self, config=None):\n        self.config = config\n    origin = 'installed'\n" +
				"    def execute(self, params):\n        import asyncio\n        return asyncio.run(self.aexecute(params))\n",
		})
		bundle := m.bundleOf(t, map[string]string{
			"manifest.yaml": "name: a/b\n",
			"skill.py":      "from skillware.core.base_skill import BaseSkill\nclass S(BaseSkill):\n    async def aexecute(self, params):\n        return [self.origin, self.config]\n",
		})
		call{
			mode: m, bundle: bundle,
			policy: "version: 1\nfilesystem: {read: [{host: " + site + ", path: /opt/site}]}\nenv: {set: {PYTHONPATH: /opt/site}}\n",
		}.runs(t, `["installed", {}]`)
	})
}

// A preloaded box has imported skill.py, which is most of what a call of a skill with a corpus takes.
func TestASkillwareSkillIsPreloaded(t *testing.T) {
	inEachMode(t, func(t *testing.T, m mode) {
		leavesNothing(t)
		s := m.service(t)
		bundle := filepath.Join(m.skillware(t), "compliance/rule_finder")
		policy := m.file(t, "preload.yaml", preloading)
		r := s.preloaded(t, func() *helper.Result {
			return s.call(t, started{name: "rules", flags: []string{"--params", rulesQuestion}}, policy, bundle)
		})
		if !r.Success || !strings.Contains(string(r.Result), `"calls":1}`) || r.Stderr != "indexed 4000 articles\n" || !json.Valid([]byte(r.Stdout)) {
			t.Errorf("%s %s", r.Result, r.Stderr)
		}
		// One that wants its key as it is imported waits for the call, and works.
		for _, c := range []struct{ list, key, why string }{
			{"pass", "os.environ.get('SKW_KEY')", "reads SKW_KEY, which comes with the call"},
			{"secrets", "open('/run/secrets/SKW_KEY').read()", "No such file or directory: '/run/secrets/SKW_KEY'"},
		} {
			eager := m.bundleOf(t, map[string]string{
				"manifest.yaml": "name: a/eager\nenv_vars: [SKW_KEY]\n",
				"skill.py":      "import os\nKEY = " + c.key + "\nclass S:\n    def execute(self, params):\n        return KEY\n",
			})
			policy = m.file(t, "eager.yaml", preloading+"env: {"+c.list+": [SKW_KEY]}\n")
			var why string
			if !soon(func() bool {
				r = s.call(t, started{name: "eager", env: []string{"SKW_KEY=sesame"}}, policy, eager)
				why = r.Sandbox.NotPreloaded
				if string(r.Result) != `"sesame"` {
					t.Fatalf("%+v %s", r.Result, r.Stderr)
				}
				return why != ""
			}) || !strings.Contains(why, c.why) {
				t.Errorf("%q", why)
			}
		}
	})
}
