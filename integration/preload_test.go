//go:build linux

package integration

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	"github.com/rogpeppe/go-internal/txtar"

	"skillbox/helper"
)

const preloading = "version: 1\nwarm: {preload: true}\n"

// started is one way to run a script.
type started struct {
	name  string
	flags []string
	words []string
	env   []string
	stdin string
	// bare says why it is not preloaded, "" where it is.
	bare string
}

// told is what a script can be told apart by.
type told struct {
	verdict, signal string
	code            int
	stdout, stderr  string
	result, message string
}

func tellOf(r *helper.Result) told {
	t := told{verdict: r.Verdict, signal: r.Signal, code: r.ExitCode, stdout: r.Stdout, stderr: r.Stderr, result: string(r.Result)}
	if r.Error != nil {
		t.message = r.Error.Message
	}
	return t
}

// unpack makes a bundle of an archive.
func (m mode) unpack(t *testing.T, archive string) (bundle string, names []string) {
	t.Helper()
	a, err := txtar.ParseFile(filepath.Join("testdata", "preload", archive))
	if err != nil {
		t.Fatal(err)
	}
	files := map[string]string{}
	for _, f := range a.Files {
		files[f.Name] = string(f.Data)
		names = append(names, f.Name)
	}
	return m.bundleOf(t, files), names
}

// call makes one call that may fail in any way.
func (s *service) call(t *testing.T, c started, policy, bundle string) *helper.Result {
	t.Helper()
	command := s.command(append([]string{"--json", "--policy", policy}, c.flags...), bundle, c.words...)
	command.Env = append(command.Env, c.env...)
	command.Stdin = strings.NewReader(c.stdin)
	r, err := envelope(command)
	if err != nil {
		t.Fatalf("%s: %v", c.name, err)
	}
	return r
}

// preloaded makes calls until one is served by a preloaded box.
func (s *service) preloaded(t *testing.T, call func() *helper.Result) *helper.Result {
	t.Helper()
	var r *helper.Result
	if !soon(func() bool {
		r = call()
		if r.Sandbox.Start != helper.Preloaded {
			s.awaitReady(t)
		}
		return r.Sandbox.Start == helper.Preloaded
	}) {
		t.Fatalf("no call was served by a preloaded box, the last by one that was %s: %s; %+v", r.Sandbox.Start, r.Sandbox.NotPreloaded, tellOf(r))
	}
	return r
}

// settled waits until every shelf has what it wants.
func (s *service) settled(t *testing.T) {
	t.Helper()
	if !soon(func() bool {
		for _, r := range s.status(t).Ready {
			if r.Boxes < r.Wanted {
				return false
			}
		}
		return true
	}) {
		t.Fatalf("the boxes do not get ready: %+v", s.status(t).Ready)
	}
}

// compare runs each script in a box of its own, and in a ready one.
func compare(t *testing.T, m mode, bundle string, all []started) {
	const some = 24 // a service keeps no more than 32 boxes ready
	for n := 0; n < len(all); n += some {
		s := m.service(t)
		policy := m.file(t, "policy.yaml", preloading)
		part := all[n:min(n+some, len(all))]
		want := make([]told, len(part))
		for i, c := range part {
			r := s.call(t, c, policy, bundle)
			if want[i] = tellOf(r); r.Sandbox.Start != helper.Cold && c.bare == "" {
				t.Errorf("%s: the first call was served by a box that was %s", c.name, r.Sandbox.Start)
			}
		}
		s.settled(t)
		for i, c := range part {
			r := s.call(t, c, policy, bundle)
			start := r.Sandbox.Start
			if (start == helper.Preloaded) != (c.bare == "") || !strings.Contains(r.Sandbox.NotPreloaded, c.bare) || (c.bare == "") != (r.Sandbox.NotPreloaded == "") {
				t.Errorf("%s: served by a box that was %s: %q, want %q", c.name, start, r.Sandbox.NotPreloaded, c.bare)
			}
			if got := tellOf(r); got != want[i] {
				t.Errorf("%s differs.\nin a box of its own: %s\n%s: %s", c.name, inFull(want[i]), start, inFull(got))
			}
		}
		s.keepsNothing(t)
	}
}

func inFull(t told) string {
	return fmt.Sprintf("%s %s %d %s %s\n%.3000s\n-- stderr\n%.2000s", t.verdict, t.signal, t.code, t.result, t.message, t.stdout, t.stderr)
}

// inBoth is inEachMode without the user of a single id, whose boxes start nothing in another way than any user's do.
func inBoth(t *testing.T, f func(t *testing.T, m mode)) {
	t.Helper()
	inEachMode(t, func(t *testing.T, m mode) {
		if m != singleID {
			f(t, m)
		}
	})
}

const twoLines = "first line\nsecond line\n"

func TestAPreloadedPythonIsNoDifferent(t *testing.T) {
	// What cannot be preloaded without the script's noticing, and why.
	bare := map[string]string{
		"broken.py": "ValueError", "reads_argv.py": "argv", "changes_path.py": "first entry of sys.path", "missing_name.py": "cannot import name",
	}
	inBoth(t, func(t *testing.T, m mode) {
		bundle, names := m.unpack(t, "python.txtar")
		var all []started
		for _, name := range names {
			if strings.Contains(name, "/") || !strings.HasSuffix(name, ".py") {
				continue
			}
			all = append(all, started{name: name, words: []string{"python3", name, "one", "two words"}, stdin: twoLines, bare: bare[name]})
		}
		if err := os.Symlink("lib/inner.py", filepath.Join(bundle, "link.py")); err != nil {
			t.Fatal(err)
		}
		all = append(all,
			started{name: "a script in a directory", words: []string{"python3", "lib/inner.py", "a"}},
			started{name: "an absolute path", words: []string{"/usr/bin/python3", "/skill/argv.py"}},
			started{name: "a link", words: []string{"python3", "./link.py"}},
			started{name: "options", words: []string{"python3", "-O", "-u", "options.py", "-O", "--", "-x"}},
			started{name: "no exec bit", words: []string{"./no_exec_bit.py", "a"}},
			started{name: "#!/usr/bin/env", words: []string{"./by_env", "a", "b"}},
			started{name: "#! with an option", words: []string{"/skill/by_path", "a"}},
			started{name: "an entry", words: []string{"b"}, flags: []string{"--entry", "argv.py"}},
			started{name: "parameters", words: []string{"python3", "parameters.py", "x"}, flags: []string{"--params", `{"a": [1, 2]}`}},
			started{name: "parameters read", words: []string{"python3", "reads.py"}, flags: []string{"--params", `{"a": "ä"}`}},
			started{name: "arguments that are not ASCII", words: []string{"python3", "argv.py", "ä", "", "\n", "日本"}},
			started{name: "many arguments", words: append([]string{"python3", "argv.py"}, strings.Fields(strings.Repeat("word ", 20000))...)},
			started{name: "another variable", words: []string{"python3", "environ.py"}, flags: []string{"--env", "LATE", "--env", "SET=1"}, env: []string{"LATE=on time"}},
			started{name: "a variable of no value", words: []string{"python3", "environ.py"}, flags: []string{"--env", "LATE"}},
			started{name: "a path for modules", words: []string{"python3", "argv.py"}, flags: []string{"--env", "PYTHONPATH=/skill/lib:/tmp", "--env", "PYTHONUNBUFFERED=1"}},
			started{name: "safe path", words: []string{"python3", "argv.py"}, flags: []string{"--env", "PYTHONSAFEPATH=1"}},
			started{name: "a variable that an import reads", words: []string{"python3", "sets_variable.py"}, flags: []string{"--env", "TALK"}, env: []string{"TALK=loud"}},
			started{name: "a late variable that an import reads", words: []string{"python3", "reads_late.py"}, flags: []string{"--env", "TALK"}, env: []string{"TALK=loud"}, bare: "reads TALK"},
			started{name: "a variable that python reads", words: []string{"python3", "argv.py"}, flags: []string{"--env", "PYTHONHASHSEED"}, env: []string{"PYTHONHASHSEED=5"}, bare: "PYTHONHASHSEED"},
			started{name: "no script", words: []string{"python3", "-c", "print(1)"}, bare: "python3"},
			started{name: "a module", words: []string{"python3", "-m", "this"}, bare: "python3"},
			started{name: "isolated", words: []string{"python3", "-I", "argv.py"}, bare: "python3"},
			started{name: "a script that is not there", words: []string{"python3", "not_there.py"}, bare: "no such file"},
			started{name: "a directory", words: []string{"python3", "lib"}, bare: "not a regular file"},
			started{name: "a working directory", words: []string{"python3", "/skill/argv.py"}, flags: []string{"--workdir", "/tmp"}, bare: "--workdir"},
			started{name: "a shell", words: []string{"sh", "-c", "echo shell"}, bare: "sh is not"},
		)
		m.write(t, filepath.Join(bundle, "reads_late.py"), "import reads_variable\nprint(reads_variable.talk)\n", 0o644)
		compare(t, m, bundle, all)
	})
}

func TestAPreloadedNodeIsNoDifferent(t *testing.T) {
	inBoth(t, func(t *testing.T, m mode) {
		bundle, names := m.unpack(t, "node.txtar")
		var all []started
		for _, name := range names {
			if strings.Contains(name, "/") || !strings.Contains(name, ".") || name == "lib.js" || name == "beside.mjs" {
				continue
			}
			all = append(all, started{name: name, words: []string{"node", name, "one", "two words"}, stdin: twoLines})
		}
		all = append(all,
			started{name: "without its extension", words: []string{"node", "argv"}, bare: "no such file"},
			started{name: "no exec bit", words: []string{"./argv.js", "a"}},
			started{name: "#!/usr/bin/env", words: []string{"./by_env", "a"}},
			started{name: "another variable", words: []string{"node", "env.js"}, flags: []string{"--env", "LATE", "--env", "NODE_OPTIONS=--no-warnings"}, env: []string{"LATE=on time"}},
			started{name: "options", words: []string{"node", "--no-warnings", "argv.js", "--inspect"}},
			started{name: "evaluated", words: []string{"node", "-e", "console.log(1)"}, bare: "node"},
		)
		compare(t, m, bundle, all)
	})
}

func TestEachPreloadedBoxServesOneCall(t *testing.T) {
	inEachMode(t, func(t *testing.T, m mode) {
		s := m.service(t)
		policy := m.file(t, "policy.yaml", "version: 1\nwarm: {ready: 3, preload: true}\n")
		bundle := m.bundleOf(t, map[string]string{
			"main.py":   "import counts, os, sys\ncounts.n += 1\nprint(counts.n, sys.argv[1], sorted(os.listdir('/tmp')))\nopen('/tmp/' + sys.argv[1], 'w')\n",
			"counts.py": "n = 0\n",
		})
		var mu sync.Mutex
		found := 0
		for round := range 4 {
			var all sync.WaitGroup
			for n := range 4 {
				all.Go(func() {
					word := fmt.Sprintf("word-%d-%d", round, n)
					r, err := s.ask([]string{"--policy", policy}, bundle, "python3", "main.py", word)
					if err != nil || r.Stdout != "1 "+word+" []\n" {
						t.Errorf("%s: %v, %+v", word, err, r)
						return
					}
					mu.Lock()
					defer mu.Unlock()
					if r.Sandbox.Start == helper.Preloaded {
						found++
					}
				})
			}
			all.Wait()
			s.settled(t)
			if ready := s.status(t).Ready; len(ready) != 1 || ready[0].Wanted < 3 || ready[0].Preloaded != ready[0].Boxes {
				t.Errorf("ready: %+v", ready)
			}
		}
		if found < 8 {
			t.Errorf("%d of 16 calls found a preloaded box", found)
		}
	})
}
