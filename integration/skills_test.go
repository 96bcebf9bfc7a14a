//go:build linux

package integration

import (
	"bytes"
	"encoding/json"
	"encoding/xml"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"skillbox/integration/skills"
	"skillbox/suite"
)

// testedSkills runs `skillbox test` with a directory for temporary files of its own, in which nothing may be left.
func (m mode) testedSkills(t *testing.T, args ...string) (code int, stdout, stderr string) {
	t.Helper()
	c := m.command(append([]string{"test"}, args...)...)
	tmp := m.dir(t)
	c.Env = append(c.Env, "TMPDIR="+tmp)
	var out, errs bytes.Buffer
	c.Stdout, c.Stderr = &out, &errs
	if err := c.Run(); c.ProcessState == nil {
		t.Fatal(err)
	}
	if left, err := os.ReadDir(tmp); err != nil || len(left) > 0 {
		t.Errorf("left in the directory for temporary files: %v %v", left, err)
	}
	return c.ProcessState.ExitCode(), out.String(), errs.String()
}

// give makes everything below dir the mode's user's.
func (m mode) give(t *testing.T, dir string) {
	t.Helper()
	cred := m.credential()
	if cred == nil {
		return
	}
	err := filepath.WalkDir(dir, func(path string, _ fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		return os.Lchown(path, int(cred.Uid), int(cred.Gid))
	})
	if err != nil {
		t.Fatal(err)
	}
}

func TestFortySkillsOfFourLayoutsDoAsExpected(t *testing.T) {
	asRootAndRootless(t, func(t *testing.T, m mode) {
		dir := m.dir(t)
		counts, err := skills.Write(dir)
		if err != nil {
			t.Fatal(err)
		}
		m.give(t, dir)
		results := m.dir(t)
		asJSON, asXML := filepath.Join(results, "report.json"), filepath.Join(results, "report.xml")
		code, stdout, stderr := m.testedSkills(t, "-j", "4", "--json", asJSON, "--junit", asXML, "--trust-cases", filepath.Join(dir, suite.TestFile), dir)
		if code != 0 || stderr != "" {
			t.Fatalf("exit %d: %s\n%s", code, stdout, stderr)
		}
		report := suiteReport(t, asJSON)
		layouts := map[suite.Layout]int{}
		seen := map[string]bool{}
		for _, o := range report.Outcomes {
			if !seen[o.Skill] {
				layouts[o.Layout]++
			}
			seen[o.Skill] = true
			if o.Status != suite.Passed {
				t.Errorf("%s, %s: %s: %q", o.Skill, o.Case, o.Status, o.Why)
			}
		}
		all := 0
		for _, n := range counts {
			all += n
		}
		if len(seen) != all || all < 40 || len(layouts) != 4 || report.Skills != all {
			t.Errorf("%d skills were tested, %d written, in the layouts %v", len(seen), all, layouts)
		}
		if !strings.Contains(stdout, "SKILL ") || !strings.Contains(stdout, " 0 failed, 0 errors") {
			t.Errorf("no table: %s", stdout)
		}
		if tests := junitTests(t, asXML); tests != len(report.Outcomes) {
			t.Errorf("JUnit has %d cases, JSON %d", tests, len(report.Outcomes))
		}
	})
}

func suiteReport(t *testing.T, file string) *suite.Report {
	t.Helper()
	text, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	report := &suite.Report{}
	if err := json.Unmarshal(text, report); err != nil {
		t.Fatal(err)
	}
	return report
}

func junitTests(t *testing.T, file string) int {
	t.Helper()
	text, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	var parsed struct {
		Tests  int `xml:"tests,attr"`
		Suites []struct {
			Cases []struct{} `xml:"testcase"`
		} `xml:"testsuite"`
	}
	if err := xml.Unmarshal(text, &parsed); err != nil {
		t.Fatal(err)
	}
	n := 0
	for _, s := range parsed.Suites {
		n += len(s.Cases)
	}
	if n != parsed.Tests {
		t.Errorf("%d cases are announced, %d listed", parsed.Tests, n)
	}
	return n
}

func TestATestOfSkillsTellsWhatIsNotAsExpected(t *testing.T) {
	asRootAndRootless(t, func(t *testing.T, m mode) {
		dir, secret := m.dir(t), filepath.Join(m.dir(t), "secret")
		m.write(t, secret, "hidden", 0o644)
		for name, content := range map[string]string{
			"good/SKILL.md": "---\nname: good\ndescription: d\n---\n", "good/scripts/a.sh": "echo $1\n",
			"bad/skillbox.yaml":      "version: 1\nname: bad\ncommand: [sh, -c, 'printf \"\\033[31mred\\001]]>\"; exit 3']\n",
			"bad/skillbox.test.yaml": "version: 1\ncases:\n- name: \"\\e[2J\\u009b2J\\u202e\"\n  expect: {stdout: green}\n",
			// The skill's own word: it would like to read a file of the host's and to be given one of another directory.
			"greedy/skillbox.yaml": "version: 1\nname: greedy\ncommand: [cat, /secret]\n",
			"greedy/skillbox.test.yaml": "version: 1\ncases:\n- name: bind\n  policy: {filesystem: {read: [{host: " + secret + ", path: /secret}]}}\n  expect: {exit: 1, stderr: [No such file]}\n" +
				"- name: out\n  inputs: {a: ../good/SKILL.md}\n",
			"linked/skillbox.yaml": "version: 1\nname: linked\ncommand: [cat, /input/a]\n", "linked/skillbox.test.yaml": "version: 1\ncases:\n- name: link\n  inputs: {a: link}\n",
			"odd/skillbox.yaml": "version: 1\nname: odd\n", "odd/skillbox.test.yaml": "version: 1\ncases:\n- wrods: [a]\n",
			"slow/skillbox.yaml": "version: 1\nname: slow\ncommand: [sleep, \"60\"]\n", "slow/skillbox.test.yaml": "version: 1\ncases:\n- timeout: 200ms\n",
		} {
			if err := os.MkdirAll(filepath.Dir(filepath.Join(dir, name)), 0o755); err != nil {
				t.Fatal(err)
			}
			m.write(t, filepath.Join(dir, name), content, 0o644)
		}
		if err := os.Symlink(secret, filepath.Join(dir, "linked", "link")); err != nil {
			t.Fatal(err)
		}
		m.give(t, dir)
		asXML := filepath.Join(m.dir(t), "report.xml")
		code, stdout, _ := m.testedSkills(t, "--json", "-", "--junit", asXML, dir)
		report := &suite.Report{}
		if err := json.Unmarshal([]byte(stdout), report); err != nil || code != 1 {
			t.Fatalf("exit %d, %v: %s", code, err, stdout)
		}
		if strings.ContainsAny(stdout, "\x1b\u009b\u202e") {
			t.Errorf("a terminal would obey %q", stdout)
		}
		got := map[string]string{}
		for _, o := range report.Outcomes {
			got[o.Skill+" "+o.Case] = string(o.Status) + " " + strings.Join(o.Why, "; ")
		}
		for key, want := range map[string]string{
			"good smoke a": "passed ", "bad \x1b[2J\u009b2J\u202e": `failed exit code 3, expected 0; stdout is "\x1b[31mred\x01]]>", expected "green"`, "greedy bind": "passed ",
			"greedy out": "error inputs: ", "linked link": "error inputs: ", "odd the test file": "error ", "slow case 1": "failed exit code 124, expected 0",
		} {
			if !strings.HasPrefix(got[key], want) {
				t.Errorf("%q: %q, want %q", key, got[key], want)
			}
		}
		junitTests(t, asXML)
		code, stdout, _ = m.testedSkills(t, "--run", "good", dir)
		if code != 0 || !strings.Contains(stdout, "1 cases: 1 passed") || strings.Contains(stdout, "greedy") {
			t.Errorf("--run: exit %d: %s", code, stdout)
		}
		code, stdout, _ = m.testedSkills(t, "--run", "bind", "--trust-bundle-policy", dir)
		if code != 1 || !strings.Contains(stdout, "exit code 0, expected 1") {
			t.Errorf("a trusted test file's policy does not count: exit %d: %s", code, stdout)
		}
		for _, args := range [][]string{{filepath.Join(dir, "nothing")}, {m.dir(t)}, {"--run", "[", dir}, {"--jobs", "0", dir}} {
			if code, _, stderr := m.testedSkills(t, args...); code != 2 || stderr == "" {
				t.Errorf("%q: exit %d: %s", args, code, stderr)
			}
		}
	})
}

func TestWhatASkillChangesOfItselfIsToldAndNotKept(t *testing.T) {
	inEachMode(t, func(t *testing.T, m mode) {
		policy := m.file(t, "policy.yaml", "version: 1\nrootfs: {bundle: copy-on-write}\n")
		bundle := m.bundleOf(t, map[string]string{"keep.txt": "kept\n", "gone/a": "1", "gone/b": "2", "run.sh": `
echo more >> keep.txt; rm -r gone; mkdir -p new/deep; echo x > new/deep/f; ln -s /etc/passwd link; mkfifo pipe; mv run.sh moved.sh; printf x > "$(printf 'odd\033[2J')"
`, "many.sh": "i=0; while [ $i -lt 1500 ]; do : > f$i; i=$((i+1)); done\n"})
		changed := maps.Clone(shape)
		changed["changes"] = "array"
		exec := func(shape map[string]string, words ...string) map[string]any {
			args := append([]string{"--policy", policy, bundle, "--"}, words...)
			return checkEnvelope(t, args, plain(t, m.command(append([]string{"exec", "--json"}, args...)...), nil), 0, shape)
		}
		r := exec(changed, "sh", "run.sh")
		got := map[string]string{}
		listed, _ := r["changes"].([]any)
		for _, c := range listed {
			one := c.(map[string]any)
			got[one["path"].(string)] = one["kind"].(string)
		}
		want := map[string]string{
			"keep.txt": "changed", "gone": "removed", "new/": "added", "new/deep/": "added", "new/deep/f": "added", "link": "added", "pipe": "added",
			"run.sh": "removed", "moved.sh": "added", `odd\x1b[2J`: "added",
		}
		if !maps.Equal(got, want) {
			t.Errorf("got  %v\nwant %v", got, want)
		}
		if text, err := os.ReadFile(filepath.Join(bundle, "keep.txt")); string(text) != "kept\n" {
			t.Errorf("the bundle was changed: %q, %v", text, err)
		}
		r = exec(changed, "sh", "many.sh")
		warned := fmt.Sprint(r["warnings"])
		listed, _ = r["changes"].([]any)
		if n := len(listed); n != 1000 || !strings.Contains(warned, "more of its bundle than changes lists") {
			t.Errorf("%d changes, warnings %s", n, warned)
		}
		r = exec(shape, "true")
		if r["changes"] != nil {
			t.Errorf("nothing was changed: %v", r["changes"])
		}
	})
}
