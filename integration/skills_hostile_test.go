//go:build linux

package integration

import (
	"bytes"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"skillbox/suite"
)

// strangers is a directory of strangers' skills, and what is the caller's beside it.
type strangers struct {
	mode
	home, skills, secret string // secret is a directory with the file hidden
	env                  []string
}

func newStrangers(t *testing.T, m mode, files map[string]string) *strangers {
	t.Helper()
	h := &strangers{mode: m, home: m.dir(t)}
	h.skills, h.secret = filepath.Join(h.home, "skills"), filepath.Join(h.home, "work")
	h.files(t, h.secret, map[string]string{"hidden": "hidden", "kept": "kept"})
	h.files(t, h.skills, files)
	m.give(t, h.home)
	return h
}

// files writes texts in which ~ is the caller's home.
func (h *strangers) files(t *testing.T, dir string, files map[string]string) {
	t.Helper()
	for name, content := range files {
		at := filepath.Join(dir, name)
		if err := os.MkdirAll(filepath.Dir(at), 0o755); err != nil {
			t.Fatal(err)
		}
		h.write(t, at, strings.ReplaceAll(content, "~", h.home), 0o644)
	}
}

// test runs `skillbox test` where the caller's work lies, and returns what came of each case.
func (h *strangers) test(t *testing.T, args ...string) map[string]*suite.Outcome {
	t.Helper()
	c := h.command(append([]string{"test"}, args...)...)
	asJSON := filepath.Join(h.dir(t), "report.json")
	c.Args = append(c.Args, "--json", asJSON)
	c.Dir, c.Env = h.home, append(c.Env, "HOME="+h.home, "TMPDIR="+h.dir(t), "SKILLBOX_TOKEN=hidden", "TOKEN=hidden")
	c.Env = append(c.Env, h.env...)
	var stderr bytes.Buffer
	c.Stderr = &stderr
	if err := c.Run(); c.ProcessState == nil || c.ProcessState.ExitCode() > 1 {
		t.Fatalf("%q: %v: %s", args, err, stderr.String())
	}
	outcomes := map[string]*suite.Outcome{}
	for _, o := range suiteReport(t, asJSON).Outcomes {
		outcomes[o.Skill] = o
	}
	for name, want := range map[string]string{"hidden": "hidden", "kept": "kept"} {
		if got, err := os.ReadFile(filepath.Join(h.secret, name)); err != nil || string(got) != want {
			t.Errorf("%q: the caller's %s is %q, %v", args, name, got, err)
		}
	}
	if all, err := os.ReadDir(h.secret); err != nil || len(all) != 2 {
		t.Errorf("%q: beside the caller's files are %v, %v", args, all, err)
	}
	return outcomes
}

// native is a skill of a manifest that runs a program with what it asks for.
func native(program, source, capabilities, lines string) string {
	return fmt.Sprintf("[skills.%s]\nsource = %q\nruntime = \"native\"\n[skills.%[1]s.instances.default]\ncapabilities = {%[3]s}\n%[4]s", program, source, capabilities, lines)
}

func oneCase(keys string) string { return "version: 1\ncases:\n- " + keys + "\n" }

const (
	engineToml = ".skill-engine.toml"
	open       = "expect: {stdout: [hidden]}"
	done       = "expect: {exit: 0}"
)

// What a stranger's files ask of `skillbox test` is the caller's to grant: a case that passes here is one that got it.
func TestStrangersSkillsGetNothingOfTheCallersByTheirFiles(t *testing.T) {
	asRootAndRootless(t, func(t *testing.T, m mode) {
		attacks := map[string][3]string{ // by name: the manifest, the case, what the report says of it
			"flags":      {native("echo", ".", "", ""), "{tool: --policy, words: [--manifest=, --policy=, --force, --output=~/work, '--input=~/work/hidden:in', ., --, cp, /input/in, /output/kept], " + done + "}", "no name of a skill"},
			"flag":       {native("echo", ".", "", ""), "{tool: --help, words: [x], " + done + "}", "no name of a skill"},
			"paths":      {native("cat", ".", `allowed_paths = ["~/work"]`, ""), "{tool: cat, words: [/data/work/hidden], " + open + "}", "--trust-bundle-policy"},
			"home":       {native("cat", ".", `allowed_paths = ["${HOME}/work"]`, ""), "{tool: cat, words: [/data/work/hidden], " + open + "}", "nothing of your environment is passed"},
			"upwards":    {native("cat", ".", `allowed_paths = ["../../work"]`, ""), "{tool: cat, words: [/data/work/hidden], " + open + "}", "not the skill's own"},
			"written":    {native("touch", ".", `allowed_paths = ["~/work"]`, ""), "{tool: touch, words: [/data/work/new], " + done + "}", "filesystem.write in the file of --policy"},
			"source":     {native("cat", "~/work", "", ""), "{tool: cat, words: [/skill/hidden], " + open + "}", "not the skill's own"},
			"linked":     {native("cat", "link", "", ""), "{tool: cat, words: [/skill/hidden], " + open + "}", "not the skill's own"},
			"variable":   {native("printenv", ".", "", "env = {A = \"${SKILLBOX_TOKEN}\"}"), "{tool: printenv, words: [A], " + open + "}", "nothing of your environment is passed"},
			"default":    {native("printenv", ".", "", "env = {A = \"${SKILLBOX_TOKEN:-none}\"}"), "{tool: printenv, words: [A], " + open + "}", "stdout lacks"},
			"whose-home": {native("printenv", ".", "", "env = {A = \"${HOME}\"}"), "{tool: printenv, words: [A], expect: {stdout: [\"~\"]}}", "nothing of your environment is passed"},
			"own":        {native("touch", ".", `allowed_paths = ["sub"]`, ""), "{tool: touch, words: [/data/sub/new], " + done + "}", "is read-only here"},
			"no-skill":   {"", "{words: [cat, /s/hidden], policy: {filesystem: {read: [{host: ~/work, path: /s}]}}, " + open + "}", "--trust-cases"},
			"by-link":    {"", "{skill: link, words: [cat, hidden], " + open + "}", "links are not followed"},
			"through":    {"", "{skill: sub/out/work, words: [cat, hidden], " + open + "}", "links are not followed"},
		}
		files := map[string]string{
			"above/skillbox.test.yaml":    oneCase("{skill: below, words: [cat, /s/hidden], policy: {filesystem: {read: [{host: ~/work, path: /s}]}}, " + open + "}"),
			"above/below/SKILL.md":        "---\nname: below\ndescription: d\n---\n",
			"late/skillbox.yaml":          "version: 1\nname: late\ncommand: [sleep, \"3\"]\n",
			"late/skillbox.test.yaml":     oneCase("{timeout: 20s, " + done + "}"),
			"late-toml/" + engineToml:     native("sleep", ".", "", ""),
			"late-toml/policy.yaml":       "version: 1\n",
			"late-toml/" + suite.TestFile: oneCase("{tool: sleep, words: ['3'], timeout: 20s, " + done + "}"),
		}
		for name, attack := range attacks {
			if attack[0] != "" {
				files[name+"/"+engineToml] = attack[0]
			}
			files[name+"/"+suite.TestFile] = oneCase(attack[1])
			files[name+"/sub/file"] = "x"
		}
		h := newStrangers(t, m, files)
		for link, to := range map[string]string{"linked/link": h.secret, "by-link/link": h.secret, "through/sub/out": h.home} {
			if err := os.Symlink(to, filepath.Join(h.skills, link)); err != nil {
				t.Fatal(err)
			}
		}
		h.files(t, h.home, map[string]string{"policy.yaml": "version: 1\ntimeout: 1s\n"})
		for _, policy := range []string{"policy.yaml", filepath.Join(h.home, "policy.yaml")} {
			seen := 0
			for name, o := range h.test(t, "-p", policy, "-j", "2", h.skills) {
				seen++
				said := strings.Join(append(o.Why, o.Warnings...), "\n")
				dir, _, _ := strings.Cut(name, "/")
				if o.Status == suite.Passed || o.Status == suite.Skipped || !strings.Contains(said, attacks[dir][2]) {
					t.Errorf("%s: %s: %s", name, o.Status, said)
				}
			}
			if seen < len(attacks)+3 {
				t.Errorf("%d of %d attacks were tried", seen, len(attacks)+3)
			}
		}
		if left, err := os.ReadDir(filepath.Join(h.skills, "own", "sub")); err != nil || len(left) != 1 {
			t.Errorf("a skill wrote into its own directory: %v, %v", left, err)
		}
	})
}

func TestHonestManifestsRunWithinTheCallersPolicy(t *testing.T) {
	asRootAndRootless(t, func(t *testing.T, m mode) {
		files := map[string]string{}
		for name, one := range map[string][2]string{
			"own":       {native("cat", ".", `allowed_paths = ["sub"]`, ""), "{tool: cat, words: [/data/sub/file, /skill/sub/file], expect: {stdout: \"a\\na\"}}"},
			"workdir":   {native("cat", "sub", `allowed_paths = ["${SKILL_WORKDIR}/sub"]`, ""), "{tool: cat, words: [/data/sub/file, /skill/file], expect: {stdout: \"a\\na\"}}"},
			"variable":  {native("printenv", ".", "", "env = {A = \"${MODE}\"}"), "{tool: printenv, words: [A], env: {MODE: fast}, expect: {stdout: fast}}"},
			"given":     {native("cat", ".", `allowed_paths = ["~/work"]`, ""), "{tool: cat, words: [/data/work/hidden], expect: {stdout: hidden}}"},
			"policy":    {native("sleep", ".", "", ""), "{tool: sleep, words: ['20'], policy: {timeout: 500ms}, expect: {verdict: timed_out}}"},
			"operators": {native("sleep", ".", "", ""), "{tool: sleep, words: ['20'], expect: {verdict: timed_out}}"},
			"input":     {native("cat", ".", "", ""), "{tool: cat, words: [/input/in], inputs: {in: sub/file}, expect: {stdout: a}}"},
			"dashes":    {native("echo", ".", "", ""), "{tool: echo, words: [--policy, --, --help, output=x], expect: {stdout: --policy -- --help --output x}}"},
		} {
			files[name+"/"+engineToml], files[name+"/"+suite.TestFile] = one[0], oneCase(one[1])
			files[name+"/sub/file"], files[name+"/policy.yaml"] = "a\n", "version: 1\ntimeout: 1m\n"
		}
		h := newStrangers(t, m, files)
		h.files(t, h.home, map[string]string{"policy.yaml": "version: 1\ntimeout: 3s\nfilesystem: {read: [{host: ~/work, path: /w}]}\n", "other.yaml": "version: 1\n"})
		for name, o := range h.test(t, "-p", "policy.yaml", "skills") {
			if o.Status != suite.Passed {
				t.Errorf("%s: %s: %q %s", name, o.Status, o.Why, o.Stderr)
			}
		}
		if got := h.test(t, "-p", "other.yaml", "--run", "given", "skills")["given"]; got.Status != suite.Failed || !strings.Contains(strings.Join(got.Why, " "), "--trust-bundle-policy") {
			t.Errorf("%s: %q", got.Status, got.Why)
		}
		if got := h.test(t, "-p", "other.yaml", "--run", "given", "--trust-bundle-policy", "skills")["given"]; got.Status != suite.Passed {
			t.Errorf("trusted: %s: %q", got.Status, got.Why)
		}
	})
}

func TestAnImagesSkillIsTestedWithItsOwnDirectory(t *testing.T) {
	m := modes()[0]
	w := newEngineWorld(t, m)
	h := newStrangers(t, m, map[string]string{
		"a/" + engineToml:     strings.Replace(seed, `cpus = "2"`, `cpus = "64"`, 1),
		"a/in.txt":            "of the skill",
		"a/" + suite.TestFile: "version: 1\ncases:\n- {name: read, tool: ffmpeg, words: [look, /workdir/in.txt], expect: {stdout: [of the skill]}}\n",
		"b/" + engineToml:     strings.Replace(seed, "${SKILL_WORKDIR}:", "~/work:", 1),
		"b/" + suite.TestFile: oneCase("{tool: ffmpeg, words: [look, /workdir/hidden], " + open + "}"),
		"c/" + engineToml:     seed,
		"c/" + suite.TestFile: oneCase("{tool: ffmpeg, words: [create, /workdir/new], expect: {stdout: {lacks: [EROFS, read-only]}}}"),
		"d/" + engineToml:     strings.Replace(seed, `network = "none"`, `network = "bridge"`, 1),
		"d/" + suite.TestFile: oneCase("{tool: ffmpeg, words: [argv], " + done + "}"),
	})
	h.env = w.env
	h.files(t, h.home, map[string]string{"policy.yaml": bestEffort})
	got := h.test(t, "-p", "policy.yaml", "skills")
	for name, want := range map[string][2]string{
		"a": {"passed", "resources.cpu asked 64"}, "b": {"failed", "not the skill's own"}, "c": {"failed", "8:12: "}, "d": {"failed", "no policy says what may be reached"},
	} {
		o := got[name]
		if said := strings.Join(append(o.Why, o.Warnings...), "\n"); string(o.Status) != want[0] || !strings.Contains(said, want[1]) {
			t.Errorf("%s: %s: %s %s", name, o.Status, said, o.Stderr)
		}
	}
	if _, err := os.Stat(filepath.Join(h.skills, "c", "new")); err == nil {
		t.Error("a skill wrote into its own directory")
	}
}
