package bundle

import (
	"bytes"
	"encoding/json"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
)

const python = "/usr/bin/python3"

// shimRun starts the shim on a skill.py as the box does, but for the directory.
type shimRun struct {
	skill  string
	tree   map[string]string // other files of the bundle
	params string            // to SKILLBOX_PARAMS_FILE
	stdin  string
	result bool // whether SKILLBOX_RESULT_FILE is set
}

func (r shimRun) run(t *testing.T) (stdout, stderr, result string, code int) {
	t.Helper()
	if _, err := os.Stat(python); err != nil {
		t.Skipf("needs %s", python)
	}
	tree := map[string]string{"manifest.yaml": "name: x\n"}
	for name, content := range r.tree {
		tree[name] = content
	}
	if r.skill != "" {
		tree["skill.py"] = r.skill
	}
	dir, box := files(t, tree), t.TempDir()
	word := &Bundle{Shim: skillwareShim, Document: []byte(`{"name":"x","version":"1.10"}`), EnvVars: []string{"SKW_KEY"}}
	for name, content := range word.ShimFiles() {
		must(t, os.WriteFile(filepath.Join(box, name), content, 0o644))
	}
	cmd := exec.Command(python, filepath.Join(box, "skillware.py"), "ignored", "words")
	cmd.Dir = dir.Name()
	cmd.Env = []string{"PATH=/usr/bin:/bin", "SKILLBOX_SKILL_DIR=" + dir.Name(), "LANG=C.UTF-8", "SKW_KEY=of the environment"}
	cmd.Stdin = strings.NewReader(r.stdin)
	if r.params != "" {
		must(t, os.WriteFile(box+"/params.json", []byte(r.params), 0o644))
		cmd.Env = append(cmd.Env, "SKILLBOX_PARAMS_FILE="+box+"/params.json")
	}
	if r.result {
		cmd.Env = append(cmd.Env, "SKILLBOX_RESULT_FILE="+box+"/result.json")
	}
	var out, errs bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &errs
	if err := cmd.Run(); err != nil && cmd.ProcessState == nil {
		t.Fatal(err)
	}
	if r.result {
		data, _ := os.ReadFile(box + "/result.json")
		result = string(data)
	}
	if left, _ := filepath.Glob(dir.Name() + "/__pycache__"); left != nil {
		t.Error("byte code was written into the bundle")
	}
	return out.String(), errs.String(), result, cmd.ProcessState.ExitCode()
}

func TestTheShimRunsASkill(t *testing.T) {
	const base = "from skillware.core.base_skill import BaseSkill\n"
	for name, c := range map[string]struct {
		run  shimRun
		want string
		errs string
	}{
		"a plain class":             {shimRun{skill: "class S:\n  def execute(self, params): return params\n", params: `{"a":[1,"ä"]}`}, `{"a":[1,"ä"]}`, ""},
		"parameters on stdin":       {shimRun{skill: "class S:\n  def execute(self, params): return params\n", stdin: `{"a":1}`}, `{"a":1}`, ""},
		"the file before stdin":     {shimRun{skill: "class S:\n  def execute(self, params): return params\n", stdin: "x", params: `{"a":2}`}, `{"a":2}`, ""},
		"no parameters":             {shimRun{skill: "class S:\n  def execute(self, params): return params\n"}, `{}`, ""},
		"an async one":              {shimRun{skill: "import asyncio\nclass S:\n  async def aexecute(self, p):\n    await asyncio.sleep(0)\n    return 1\n"}, `1`, ""},
		"execute that is async":     {shimRun{skill: "class S:\n  async def execute(self, p): return 1\n"}, `1`, ""},
		"on a base not installed":   {shimRun{skill: base + "class S(BaseSkill):\n  @property\n  def manifest(self): return {}\n  def execute(self, p): return [self.config, self.credential('NO')]\n"}, `[{"SKW_KEY":"of the environment"},null]`, ""},
		"a constructor with config": {shimRun{skill: base + "class S(BaseSkill):\n  def __init__(self, config):\n    super().__init__(config)\n  def execute(self, p): return self.config\n"}, `{"SKW_KEY":"of the environment"}`, ""},
		"a constructor without":     {shimRun{skill: "class S:\n  def __init__(self): self.x = 3\n  def execute(self, p): return self.x\n"}, `3`, ""},
		"its prints go to stderr": {
			shimRun{skill: "import os, sys, subprocess\nprint('loading')\nclass S:\n  def execute(self, p):\n    print('noise'); os.write(1, b'raw'); subprocess.run(['echo', 'child'])\n    return 1\n"},
			`1`, "child",
		},
		"what JSON does not know becomes a text": {shimRun{skill: "import pathlib\nclass S:\n  def execute(self, p): return {'p': pathlib.PurePosixPath('/x')}\n"}, `{"p":"/x"}`, ""},
		"a lone surrogate":                       {shimRun{skill: "class S:\n  def execute(self, p): return 'a\\udc80'\n"}, `"a\udc80"`, ""},
		"siblings can be imported":               {shimRun{skill: "from helper import f\nclass S:\n  def execute(self, p): return f()\n", tree: map[string]string{"helper.py": "def f(): return 7\n"}}, `7`, ""},
		"imported and inherited classes do not count": {
			shimRun{skill: "from helper import H\nclass Base(H):\n  def execute(self, p): return 0\nclass S(Base):\n  def execute(self, p): return 5\nAlias = S\n", tree: map[string]string{"helper.py": "class H:\n  def execute(self, p): return 9\n"}},
			`5`, "",
		},
		"helpers with execute do not count beside a BaseSkill": {shimRun{skill: base + "class Query:\n  def execute(self, sql): return 0\nclass S(BaseSkill):\n  def execute(self, p): return 6\n"}, `6`, ""},
		"a base not installed can what it must": {
			shimRun{skill: base + "class S(BaseSkill):\n  async def aexecute(self, p): return [self.manifest['version'], self.validate_params(p), self.credential('SKW_KEY')]\n"},
			`["1.10",true,"of the environment"]`, "",
		},
		"a manifest is read without PyYAML": {
			shimRun{skill: "import sys\nsys.modules.pop('yaml', None)\nsys.path[:] = [p for p in sys.path if 'packages' not in p]\nimport os, yaml\nclass S:\n  def execute(self, p):\n" +
				"    with open(os.path.join(os.path.dirname(__file__), 'manifest.yaml')) as f: m = yaml.safe_load(f)\n    try: yaml.safe_load('a: b')\n    except yaml.YAMLError as e: return [m, yaml.safe_load('[1]'), str(e)]\n"},
			`[{"name":"x","version":"1.10"},[1],"PyYAML is not installed here: without it only the skill's own manifest can be read"]`, "",
		},
		"a skillware of the bundle's own is used": {
			shimRun{skill: base + "class S(BaseSkill):\n  def execute(self, p): return self.mine\n", tree: map[string]string{"skillware/core/base_skill.py": "class BaseSkill:\n  mine = 4\n"}},
			`4`, "",
		},
	} {
		t.Run(name, func(t *testing.T) {
			c.run.result = true
			stdout, stderr, result, code := c.run.run(t)
			var compact bytes.Buffer
			if err := json.Compact(&compact, []byte(stdout)); err != nil {
				t.Fatalf("stdout is not JSON: %q, stderr %s", stdout, stderr)
			}
			if code != 0 || compact.String() != c.want || result != stdout || !strings.Contains(stderr, c.errs) {
				t.Errorf("exit %d, stdout %q, result %q, stderr %s; want %s", code, stdout, result, stderr, c.want)
			}
		})
	}
}

func TestTheShimSaysWhatIsWrong(t *testing.T) {
	for name, c := range map[string]struct {
		run  shimRun
		want string
		code int
	}{
		"no class":                 {shimRun{skill: "x = 1\n"}, "defines no class with a method execute(params)", 1},
		"two classes":              {shimRun{skill: "class A:\n  def execute(self, p): pass\nclass B:\n  def execute(self, p): pass\n"}, "several classes with a method execute: A, B", 1},
		"an exception":             {shimRun{skill: "class A:\n  def execute(self, p): raise ValueError('boom')\n"}, "ValueError: boom", 1},
		"an exception at import":   {shimRun{skill: "import not_installed\n"}, "No module named 'not_installed'", 1},
		"a syntax error":           {shimRun{skill: "class A(:\n"}, "SyntaxError", 1},
		"no skill.py":              {shimRun{}, "no skill.py", 1},
		"parameters no JSON":       {shimRun{skill: "", params: "{", tree: map[string]string{"skill.py": "x=1"}}, "the parameters are not JSON", 1},
		"parameters no object":     {shimRun{skill: "x=1\n", params: "[1]"}, "must be a JSON object, not list", 1},
		"exit(0) before a result":  {shimRun{skill: "import sys\nclass A:\n  def execute(self, p): sys.exit(0)\n"}, "called sys.exit(0)", 1},
		"exit(3)":                  {shimRun{skill: "import sys\nclass A:\n  def execute(self, p): sys.exit(3)\n"}, "called sys.exit(3)", 3},
		"a result that is no JSON": {shimRun{skill: "class A:\n  def execute(self, p): return float('nan')\n"}, "the result has no form in JSON", 1},
	} {
		t.Run(name, func(t *testing.T) {
			c.run.result = true
			stdout, stderr, result, code := c.run.run(t)
			if code != c.code || stdout != "" || result != "" || !strings.Contains(stderr, c.want) {
				t.Errorf("exit %d, stdout %q, result %q, stderr %s; want exit %d and %q", code, stdout, result, stderr, c.code, c.want)
			}
		})
	}
}
