package boxinit

import (
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

func TestStartCutsBehindTheScript(t *testing.T) {
	for _, c := range []struct {
		line, want string // words apart by blanks; "" is no start
	}{
		{"python3 main.py a b", "python3 main.py"},
		{"python3 main.py -c x", "python3 main.py"},
		{"/usr/bin/python3.11 -u -O main.py -u", "/usr/bin/python3.11 -u -O main.py"},
		{"node app.mjs --inspect", "node app.mjs"},
		{"nodejs --no-warnings app.js", "nodejs --no-warnings app.js"},
		{"./main.py a", "./main.py"},
		{"/skill/main.py", "/skill/main.py"},
		{"./main.sh a", "./main.sh"}, // what that is, is found out in the box
		{"python3", ""},
		{"python3 -", ""},
		{"python3 -c print(1)", ""},
		{"python3 -m this", ""},
		{"python3 -I main.py", ""},
		{"python3 -u", ""},
		{"python3 -W error main.py", ""},
		{"node -e 1", ""},
		{"node --inspect app.js", ""},
		{"python2 main.py", ""},
		{"python main.py", ""},
		{"python3x main.py", ""},
		{"python3.x main.py", ""},
		{"sh main.py", ""},
		{"env python3 main.py", ""},
		{"main.py", ""},
		{"", ""},
	} {
		words, ok := Start(strings.Fields(c.line))
		if ok != (c.want != "") || ok && strings.Join(words, " ") != c.want {
			t.Errorf("%q: %q, %v; want %q", c.line, words, ok, c.want)
		}
	}
}

func TestOnlyInterpretersThatRunAScriptOfTheSkillsAreRecognized(t *testing.T) {
	dir, env := shelf(t)
	elf := func(name string) {
		if err := os.WriteFile(filepath.Join(dir, "bin", name), []byte("\x7fELF"), 0o755); err != nil {
			t.Fatal(err)
		}
	}
	elf("python3.11")
	elf("nodejs")
	elf("busybox")
	for link, target := range map[string]string{"bin/python3": "python3.11", "bin/node": "nodejs", "bin/python3.9": "busybox", "bin/python3.8": "sh"} {
		if err := os.RemoveAll(filepath.Join(dir, link)); err != nil {
			t.Fatal(err)
		}
		if err := os.Symlink(target, filepath.Join(dir, link)); err != nil {
			t.Fatal(err)
		}
	}
	for name, text := range map[string]string{
		"by_env": "#!" + dir + "/bin/env python3\n", "by_path": "#!" + dir + "/bin/python3 -u\n", "by_node": "#!" + dir + "/bin/env node\n",
		"isolated": "#!" + dir + "/bin/python3 -I\n", "split": "#!" + dir + "/bin/env -S python3 -u\n", "assigned": "#!" + dir + "/bin/env A=1 python3\n",
		"shell": "#!" + dir + "/bin/sh\n", "main.js": "",
	} {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o755); err != nil {
			t.Fatal(err)
		}
	}
	for _, c := range []struct{ line, want string }{
		{"python3 plain.py", "python"},
		{"python3 -u ./plain.py", "python"},
		{"./plain.py", "python"},
		{"./by_env", "python"},
		{"./by_path", "python"},
		{"node main.js", "node"},
		{"./by_node", "node"},
		{dir + "/bin/python3.11 plain.py", "python"},
		{"./isolated", "!python -I"},
		{"./split", "!neither"},
		{"./assigned", "!neither"},
		{"./shell", "!neither"},
		{"./program", "!neither"},
		{"python3.9 plain.py", "!neither"},
		{"python3.8 plain.py", "!neither"},
		{"python3 plain.py more", "!a word follows"},
		{"python3 /etc/hostname", "!no file of the skill's"},
		{"python3 ../x.py", "!no file of the skill's"},
		{"python3 bin", "!not a regular file"},
		{"python3 nothing.py", "!no such file"},
		{"python3 -c x", "!python -c"},
	} {
		path, argv, err := resolve(strings.Fields(c.line), env, dir)
		if err != nil {
			t.Fatal(err)
		}
		got, err := recognize(path, argv, env, dir)
		if err != nil {
			got = "!" + err.Error()
		}
		if why, refused := strings.CutPrefix(c.want, "!"); refused && !strings.Contains(got, why) || !refused && got != c.want {
			t.Errorf("%q: %q, want %q", c.line, got, c.want)
		}
	}
}

func TestTheShimsVariablesComeBeforeThePolicys(t *testing.T) {
	env := []string{"A=1", "PYTHONPATH=/skill/lib:/x", "NODE_OPTIONS=--no-warnings"}
	for interpreter, want := range map[string][]string{
		"python": {"SKILLBOX_PRELOAD=B,C", "A=1", "NODE_OPTIONS=--no-warnings", "PYTHONPATH=/run/skillbox:/skill/lib:/x"},
		"node":   {"SKILLBOX_PRELOAD=B,C", "A=1", "PYTHONPATH=/skill/lib:/x", "NODE_OPTIONS=--require=/run/skillbox/preload.cjs --no-warnings"},
	} {
		if got := shimEnv(interpreter, env, []string{"B", "C"}); !slices.Equal(got, want) {
			t.Errorf("%s: %q", interpreter, got)
		}
	}
	if got := string(shimCall([]string{"a", ""}, []string{"B=c d"})); got != "0000000b2\x00a\x00\x00B=c d\x00" {
		t.Errorf("%q", got)
	}
}
