package bundle

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
)

// standIn runs one of Programs in a bundle, with python3 and node from the system and none of the real programs before it.
func standIn(t *testing.T, tree map[string]string, argv ...string) (output string, code int) {
	t.Helper()
	bin := t.TempDir()
	for name, content := range Programs() {
		must(t, os.WriteFile(filepath.Join(bin, name), content, 0o755))
	}
	for _, name := range []string{"python3", "node", "sh", "env", "echo"} {
		if at, err := exec.LookPath("/usr/bin/" + name); err == nil {
			must(t, os.Symlink(at, filepath.Join(bin, name)))
		}
	}
	dir := files(t, tree)
	c := exec.Command(filepath.Join(bin, argv[0]), argv[1:]...)
	c.Dir, c.Env = dir.Name(), []string{"PATH=" + bin, "LANG=C.UTF-8", "SKILLBOX_SKILL_DIR=" + dir.Name(), "PYTHONDONTWRITEBYTECODE=1"}
	out, err := c.CombinedOutput()
	if err != nil && c.ProcessState == nil {
		t.Fatal(err)
	}
	return string(out), c.ProcessState.ExitCode()
}

func TestStandInsRunWhatIsThereAndSayWhatIsNot(t *testing.T) {
	if _, err := os.Stat(python); err != nil {
		t.Skipf("needs %s", python)
	}
	const print = "import sys\nprint(sys.argv[1:])\n"
	block := func(lines string) string { return "# /// script\n" + lines + "# ///\n" + print }
	node := map[string]string{
		"node_modules/hi/package.json": `{"bin":{"hi":"cli.js"}}`, "node_modules/hi/cli.js": "console.log('hi', process.argv.slice(2).join())",
		"node_modules/@a/b/package.json": `{"bin":"x.js"}`, "node_modules/@a/b/x.js": "process.exit(7)", "package.json": `{"scripts":{"build":"echo built"}}`,
	}
	for name, c := range map[string]struct {
		tree map[string]string
		argv string
		code int
		want string
	}{
		"python":                       {map[string]string{"a.py": print}, "python a.py x", 0, "['x']"},
		"uv without a block":           {map[string]string{"a.py": print}, "uv run a.py --flag x", 0, "['--flag', 'x']"},
		"uv with an empty block":       {map[string]string{"a.py": block("# dependencies = []\n# requires-python = \">=3.6\"\n")}, "uv run --script a.py x", 0, "['x']"},
		"uv by a name without .py":     {map[string]string{"a": block("#\n")}, "uv run -q --script a x", 0, "['x']"},
		"uv with what is lacking":      {map[string]string{"a.py": block("# dependencies = [\n#   \"nosuchthing>=2\",\n#   \"x-y[z]; sys_platform == 'win32'\",\n# ]\n")}, "uv run a.py", 1, "lacks, and it cannot install any: nosuchthing>=2\n"},
		"uv --with what is lacking":    {map[string]string{"a.py": print}, "uv run --with nosuchthing a.py", 1, "nosuchthing"},
		"uv with a module beside it":   {map[string]string{"a.py": block("# dependencies = [\"my-mod\"]\n"), "my_mod.py": ""}, "uv run a.py", 0, "[]"},
		"uv wanting a newer python":    {map[string]string{"a.py": block("# requires-python = \">=4.0\"\n")}, "uv run a.py", 2, "requires Python >=4.0"},
		"uv with a broken block":       {map[string]string{"a.py": block("# dependencies = [\n")}, "uv run a.py", 2, "is no TOML"},
		"uv with a block of odd types": {map[string]string{"a.py": block("# dependencies = 3\n")}, "uv run a.py", 2, "list of texts"},
		"uv run of a command":          {map[string]string{"a.py": print}, "uv run python a.py", 0, "[]"},
		"uv run of nothing there":      {nil, "uv run nosuchprogram", 2, "Failed to spawn"},
		"uv run of nothing":            {nil, "uv run", 2, "Provide a command"},
		"uv sync":                      {nil, "uv sync", 2, "in the sandbox there are only uv run"},
		"uv pip install":               {nil, "uv pip install nosuchthing", 1, "cannot install anything in the sandbox"},
		"uvx":                          {nil, "uvx nosuchthing", 1, "uvx cannot fetch nosuchthing"},
		"pip install":                  {nil, "pip install -q nosuchthing", 1, "Not there: nosuchthing"},
		"pip install -r":               {map[string]string{"r.txt": "# comment\nnosuchthing==1 # why\n"}, "pip3 install -r r.txt", 1, "Not there: nosuchthing==1"},
		"npx of what is there":         {node, "npx -y hi@1.0 a b", 0, "hi a,b"},
		"npx's exit code":              {node, "npx @a/b", 7, ""},
		"npx of what is not":           {node, "npx --yes cowsay", 1, "cowsay is not in the bundle's node_modules, and the sandbox cannot fetch it"},
		"npm exec":                     {node, "npm exec -- hi z", 0, "hi z"},
		"npm run":                      {node, "npm run build -- now", 0, "built now"},
		"npm run of nothing":           {node, "npm run nothing", 1, `Missing script: "nothing"`},
		"npm install":                  {node, "npm install", 1, "nothing can be fetched"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			if _, err := os.Stat("/usr/bin/node"); err != nil && strings.HasPrefix(c.argv, "np") {
				t.Skip("needs node")
			}
			output, code := standIn(t, c.tree, strings.Fields(c.argv)...)
			if code != c.code || !strings.Contains(output, c.want) {
				t.Errorf("%s: exit %d: %s\nwant %d and %q", c.argv, code, output, c.code, c.want)
			}
		})
	}
}
