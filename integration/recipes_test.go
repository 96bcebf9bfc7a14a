//go:build linux

package integration

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"golang.org/x/sys/unix"
)

// recipe is the files that docs/hosts.md shows under a name, as they stand there.
func recipe(t *testing.T, name string) map[string]string {
	t.Helper()
	page, err := os.ReadFile("../docs/hosts.md")
	if err != nil {
		t.Fatal(err)
	}
	files := map[string]string{}
	for _, m := range regexp.MustCompile("(?ms)^<!-- recipe: (\\S+) (\\S+) -->\n```\\w+\n(.*?)^```$").FindAllStringSubmatch(string(page), -1) {
		if m[1] == name {
			files[m[2]] = m[3]
		}
	}
	if len(files) == 0 {
		t.Fatalf("docs/hosts.md has no recipe %s", name)
	}
	return files
}

// kitchen is a directory with a recipe's files and a skill, of a user who has a service.
func (m mode) kitchen(t *testing.T, name string) (s *service, dir string) {
	t.Helper()
	s, dir = m.service(t), m.dir(t)
	if err := os.CopyFS(filepath.Join(dir, "skills", "word-count"), os.DirFS("../examples/word-count")); err != nil {
		t.Fatal(err)
	}
	for file, text := range recipe(t, name) {
		m.write(t, filepath.Join(dir, file), text, 0o755)
	}
	return s, dir
}

// cook runs a command in a kitchen, with skillbox in PATH.
func (s *service) cook(t *testing.T, dir string, words ...string) (stdout, stderr string, code int) {
	t.Helper()
	c := s.mode.command()
	program, err := exec.LookPath(words[0])
	if err != nil {
		t.Fatal(err)
	}
	c.Path, c.Args, c.Dir = program, words, dir
	c.Env = append(c.Env, s.env()...)
	c.Env = append(c.Env, "PATH="+binDir+":/usr/bin:/bin", "LANG=C.UTF-8", "PYTHONDONTWRITEBYTECODE=1")
	var out, errs bytes.Buffer
	c.Stdout, c.Stderr = &out, &errs
	err = c.Run()
	var exit *exec.ExitError
	if err != nil && !errors.As(err, &exit) {
		t.Fatal(err)
	}
	return out.String(), errs.String(), c.ProcessState.ExitCode()
}

// answers checks what every recipe promises: the answer, or a failure that says why.
func (s *service) answers(t *testing.T, dir string, words ...string) {
	t.Helper()
	out, errs, code := s.cook(t, dir, append(words, "skills/word-count", `{"text": "a b ä"}`)...)
	var answer struct{ Words, Unique int }
	if err := json.Unmarshal([]byte(out), &answer); err != nil || code != 0 || answer.Words != 3 || answer.Unique != 3 {
		t.Errorf("exit %d: %q %s", code, out, errs)
	}
	out, errs, code = s.cook(t, dir, append(words, "skills/none", "{}")...)
	if code != 1 || out != "" || !strings.Contains(errs, "skills/none") {
		t.Errorf("no skill: exit %d: %q %s", code, out, errs)
	}
	failing := s.mode.bundleOf(t, map[string]string{"skillbox.yaml": "version: 1\nname: failing\ncommand: [./fail]\n", "fail": "#!/bin/sh\ncat >/dev/null; echo sorry >&2; exit 7\n"})
	out, errs, code = s.cook(t, dir, append(words, failing, "{}")...)
	if code != 1 || out != "" || !strings.Contains(errs, "7") || !strings.Contains(errs, "sorry") {
		t.Errorf("a skill that fails: exit %d: %q %s", code, out, errs)
	}
}

func TestHostRecipesInScriptsAndPrograms(t *testing.T) {
	m := rootless
	leavesNothing(t)
	for name, words := range map[string][]string{
		"shell":  {"sh", "run-skill.sh"},
		"python": {"/usr/bin/python3", "run_skill.py"},
		"node":   {"node", "run-skill.mjs"},
	} {
		t.Run(name, func(t *testing.T) {
			s, dir := m.kitchen(t, name)
			s.answers(t, dir, words...)
		})
	}
}

func TestHostRecipeInGo(t *testing.T) {
	if _, err := exec.LookPath("go"); err != nil {
		needs(t, "go", err)
	}
	leavesNothing(t)
	s, dir := rootless.kitchen(t, "go")
	program := filepath.Join(binDir, "recipe") // beside skillboxd
	build := exec.Command("go", "build", "-o", program, filepath.Join(dir, "main.go"))
	build.Env = append(os.Environ(), "CGO_ENABLED=0")
	if out, err := build.CombinedOutput(); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	t.Cleanup(func() { os.Remove(program) })
	s.answers(t, dir, program)
}

// A JDK is larger than all that the other tests need: this one runs where there is one.
func TestHostRecipeInJava(t *testing.T) {
	version, err := exec.Command("java", "-version").CombinedOutput()
	if err == nil && regexp.MustCompile(`version "(1\.|9|10)`).Match(version) {
		err = fmt.Errorf("11 is the first that runs a source file: %s", version)
	}
	if _, jreErr := exec.LookPath("javac"); err == nil {
		err = jreErr // a JRE has no compiler, which a source file takes
	}
	needs(t, "a JDK", err)
	leavesNothing(t)
	s, dir := rootless.kitchen(t, "java")
	out, errs, code := s.cook(t, dir, "java", "RunSkill.java", "skills/word-count", `{"text": "a b ä"}`)
	if code != 0 || !strings.Contains(out, `"words": 3, "unique": 3`) {
		t.Errorf("exit %d: %q %s", code, out, errs)
	}
	failing := s.mode.bundleOf(t, map[string]string{"skillbox.yaml": "version: 1\nname: failing\ncommand: [./fail]\n", "fail": "#!/bin/sh\necho sorry >&2; exit 7\n"})
	out, errs, code = s.cook(t, dir, "java", "RunSkill.java", failing, "{}")
	if code != 1 || out != "" || !strings.Contains(errs, "code 7") || !strings.Contains(errs, "sorry") {
		t.Errorf("a skill that fails: exit %d: %q %s", code, out, errs)
	}
}

// toolRunner does with a function what aisuite's tools do: a schema of its signature and docstring, a call as the model words it, and the
// result back as JSON.
const toolRunner = `
import inspect, json, sys, typing
import tools
kinds = {str: "string", int: "integer", float: "number", bool: "boolean"}
schemas, functions = [], {}
for f in tools.TOOLS:
    hints = typing.get_type_hints(f)
    hints.pop("return", None)
    parameters = {n: {"type": kinds[hints[n]]} for n in inspect.signature(f).parameters}
    described = inspect.getdoc(f)
    for n in parameters:
        parameters[n]["description"] = described.split(n + ":", 1)[1].split("\n")[0].strip()
    required = [n for n, p in inspect.signature(f).parameters.items() if p.default is p.empty]
    schemas.append({"type": "function", "function": {"name": f.__name__, "description": described.split("\n")[0],
        "parameters": {"type": "object", "properties": parameters, "required": required}}})
    functions[f.__name__] = f
answers = [json.dumps(functions[call["name"]](**json.loads(call["arguments"]))) for call in json.loads(sys.argv[1])]
print(json.dumps({"schemas": schemas, "answers": [json.loads(a) for a in answers]}))
`

func TestHostRecipeOfATool(t *testing.T) {
	leavesNothing(t)
	s, dir := rootless.kitchen(t, "tools")
	client, err := os.ReadFile("../clients/python/skillbox.py")
	if err != nil {
		t.Fatal(err)
	}
	s.mode.write(t, filepath.Join(dir, "skillbox.py"), string(client), 0o644)
	s.mode.write(t, filepath.Join(dir, "runner.py"), toolRunner, 0o644)
	calls := `[{"name": "count_words", "arguments": "{\"text\": \"a b a\"}"}, {"name": "count_words", "arguments": "{\"text\": null}"}]`
	out, errs, code := s.cook(t, dir, "/usr/bin/python3", "runner.py", calls)
	var got struct {
		Schemas []struct {
			Function struct {
				Name, Description string
				Parameters        struct {
					Properties map[string]struct{ Type, Description string }
					Required   []string
				}
			}
		}
		Answers []struct {
			Words          int
			Error, Verdict string
		}
	}
	if err := json.Unmarshal([]byte(out), &got); err != nil || code != 0 || len(got.Schemas) != 1 || len(got.Answers) != 2 {
		t.Fatalf("exit %d, %v: %q %s", code, err, out, errs)
	}
	f := got.Schemas[0].Function
	if f.Name != "count_words" || f.Description == "" || f.Parameters.Properties["text"].Type != "string" || f.Parameters.Properties["text"].Description == "" ||
		strings.Join(f.Parameters.Required, " ") != "text" {
		t.Errorf("%+v", f)
	}
	if got.Answers[0].Words != 3 || got.Answers[1].Error == "" || got.Answers[1].Verdict == "" {
		t.Errorf("%+v", got.Answers)
	}
}

// The registry's defaults, /health and /scan-upload, are below the address that the recipe names.
func TestHostRecipeOfARegistry(t *testing.T) {
	const address = "http://127.0.0.1:8000"
	settings := recipe(t, "skillhub")["skillhub.env"]
	for _, line := range []string{"SKILLHUB_SECURITY_SCANNER_ENABLED=true", "SKILLHUB_SECURITY_SCANNER_URL=" + address, "SKILLHUB_SECURITY_SCANNER_MODE=upload"} {
		if !strings.Contains("\n"+settings, "\n"+line+"\n") {
			t.Errorf("no line %s in %s", line, settings)
		}
	}
	help, code := output(t, rootless.command("scan", "serve", "--help"))
	if code != 0 || !strings.Contains(help, strings.TrimPrefix(address, "http://")) {
		t.Errorf("exit %d: %s is not where scan serve listens: %s", code, address, help)
	}
	leavesNothing(t)
	s := rootless.serveScans(t, filepath.Join(binDir, "skillbox"))
	health, err := http.Get(s.url + "/health")
	if err != nil || health.StatusCode != http.StatusOK {
		t.Fatalf("%v, %+v", err, health)
	}
	health.Body.Close()
	for dir, safe := range map[string]bool{"../examples/word-count": true, "hostile/exfil-tcp": false} {
		a, err := s.upload(context.Background(), zipOf(t, dir))
		if err != nil || a.Status != http.StatusOK || a.Safe == nil || *a.Safe != safe {
			t.Errorf("%s: %+v, %v", dir, a, err)
		}
	}
	if err := s.stop(unix.SIGTERM); err != nil {
		t.Errorf("it ended with %v", err)
	}
}
