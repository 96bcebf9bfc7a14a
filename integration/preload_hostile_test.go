//go:build linux

package integration

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"skillbox/helper"
)

// hostileImport is a module that attacks when it is imported ahead of a call, which it knows by the missing sys.argv, and does nothing else.
const hostileImport = `import os, sys, time, signal
def attack():
    %s
if not hasattr(sys, "argv"):
    attack()
`

func TestAHostileImportCostsItsOwnBoxAndNoCall(t *testing.T) {
	attacks := map[string]struct{ code, why string }{
		"loop":          {"while True: pass", "take longer"},
		"sleep":         {"time.sleep(1000)", "take longer"},
		"stop":          {"os.kill(os.getpid(), signal.SIGSTOP)", "take longer"},
		"wait":          {"os.read(os.pipe()[0], 1)", "take longer"},
		"flood stdout":  {"while True: os.write(1, b'x' * 65536)", "take longer"},
		"fork bomb":     {"\n    while True:\n        try: os.fork()\n        except OSError: pass", ""},
		"memory":        {"x = [bytearray(1 << 20) for _ in range(100000)]; time.sleep(1000)", ""},
		"scratch":       {"\n    while True:\n        with open('/tmp/x', 'ab') as f: f.write(b'x' * (1 << 20))", "OSError"},
		"another":       {"os.execv('/bin/sh', ['sh', '-c', 'sleep 1000'])", ""},
		"another lives": {"os.set_inheritable(3, True); os.execv('/bin/sh', ['sh', '-c', 'echo hello >&3; sleep 1000'])", "it says"},
		"close":         {"os.close(3)", ""},
		"close all":     {"os.closerange(0, 100)", ""},
		"garbage":       {"os.write(3, b'\\x00\\xff{\\n'); time.sleep(1000)", "it says"},
		"endless line":  {"\n    while True: os.write(3, b'x' * 65536)", "too much"},
		"slow line":     {"\n    while True: os.write(3, b'x'); time.sleep(0.5)", "take longer"},
		"exit":          {"sys.exit(0)", "SystemExit"},
		"exit at once":  {"os._exit(0)", ""},
		"raise":         {"raise BaseException('refused: \\nready')", "BaseException"},
		"daemon":        {"\n    if os.fork(): os._exit(0)\n    os.setsid(); time.sleep(1000)", ""},
		// Said before the parent has ended it would spoil the call, see below.
		"daemon says": {"\n    if os.fork(): os._exit(0)\n    while os.getppid() != 1: time.sleep(0.001)\n    os.write(3, b'ready\\n'); time.sleep(1000)", ""},
		"kill all":    {"os.kill(-1, signal.SIGKILL); time.sleep(1000)", ""},
		"kill itself": {"os.kill(os.getpid(), signal.SIGKILL)", ""},
		"kill init":   {"os.kill(1, signal.SIGKILL); os.kill(1, signal.SIGSTOP); os.abort()", ""},
	}
	files := map[string]string{}
	for name, a := range attacks {
		word := strings.ReplaceAll(name, " ", "_")
		files[word+".py"] = "import sys\nimport attack_" + word + "\nprint('served', sys.argv[1])\n"
		files["attack_"+word+".py"] = fmt.Sprintf(hostileImport, a.code)
	}
	inBoth(t, func(t *testing.T, m mode) {
		policy := m.file(t, "policy.yaml", "version: 1\ntimeout: 1500ms\nwarm: {preload: true}\n")
		bundle := m.bundleOf(t, files)
		for name, a := range attacks {
			t.Run(name, func(t *testing.T) {
				s := m.service(t)
				script := strings.ReplaceAll(name, " ", "_") + ".py"
				call := func() *helper.Result {
					r := s.run(t, []string{"--policy", policy}, bundle, "python3", script, name)
					if r.Stdout != "served "+name+"\n" {
						t.Errorf("%+v", tellOf(r))
					}
					return r
				}
				call()
				// Calls come while the attack goes on, and once more when it has failed.
				s.warm(t, 1, call)
				if !soon(func() bool { return strings.Contains(s.log(t), `"preload"`) }) {
					t.Fatal("nothing was attacked")
				}
				if r := call(); r.Sandbox.Start == helper.Preloaded || r.Sandbox.NotPreloaded == "" || !strings.Contains(r.Sandbox.NotPreloaded, a.why) {
					t.Errorf("%s: %q, want %q", r.Sandbox.Start, r.Sandbox.NotPreloaded, a.why)
				}
				s.settled(t)
				s.keepsNothing(t)
			})
		}
	})
}

func TestWhoSaysReadyHasOnlySpoiltItsOwnCall(t *testing.T) {
	inEachMode(t, func(t *testing.T, m mode) {
		s := m.service(t)
		policy := m.file(t, "policy.yaml", "version: 1\ntimeout: 2s\nwarm: {preload: true}\n")
		bundle := m.bundleOf(t, map[string]string{
			"liar.py": "import lies\nprint('main')\n", "lies.py": "import os, sys, time\nif not hasattr(sys, 'argv'):\n    os.write(3, b'ready\\n')\n    time.sleep(1000)\n",
			"other.py": "print('other')\n",
		})
		r := s.preloaded(t, func() *helper.Result {
			r, err := s.ask([]string{"--policy", policy}, bundle, "python3", "liar.py")
			if err != nil {
				t.Fatal(err)
			}
			return r
		})
		if r.Verdict != helper.TimedOut || r.Stdout != "" {
			t.Errorf("%+v", tellOf(r))
		}
		if r := s.run(t, []string{"--policy", policy}, bundle, "python3", "other.py"); r.Stdout != "other\n" {
			t.Errorf("%+v", tellOf(r))
		}
	})
}

func TestNothingRunsInAPreloadedBoxUntilItsCall(t *testing.T) {
	inEachMode(t, func(t *testing.T, m mode) {
		s := m.service(t)
		policy := m.file(t, "policy.yaml", "version: 1\ntimeout: 2s\nwarm: {preload: true}\n")
		bundle := m.bundleOf(t, map[string]string{
			"main.py": "import busy, time\nprint(busy.n < 10**5, time.time() - busy.began)\ntime.sleep(1.5)\n",
			"busy.py": `import threading, subprocess, time
n, began = 0, time.time()
def count():
    global n
    while True:
        n += 1
        time.sleep(0.001)
threading.Thread(target=count, daemon=True).start()
subprocess.Popen(["sh", "-c", "while :; do :; done"])
`,
		})
		call := func() *helper.Result { return s.run(t, []string{"--policy", policy}, bundle, "python3", "main.py") }
		call()
		s.settled(t)
		time.Sleep(3 * time.Second)
		// The time-out counts from the call: the box is older than that, and the script takes most of it.
		r := call()
		if r.Sandbox.Start != helper.Preloaded || !strings.HasPrefix(r.Stdout, "True 3.") && !strings.HasPrefix(r.Stdout, "True 4.") {
			t.Errorf("%s: %+v", r.Sandbox.Start, tellOf(r))
		}
		if cpu := r.Usage.UserMS + r.Usage.SystemMS; cpu > 2800 {
			t.Errorf("it used %g ms of processor time", cpu)
		}
	})
}

func TestAPreloadedBoxDoesNotServeAnotherBundle(t *testing.T) {
	inEachMode(t, func(t *testing.T, m mode) {
		s := m.service(t)
		bundle := m.bundleOf(t, map[string]string{"main.py": "import part\nprint(part.word)\n", "part.py": "word = 1\n"})
		policy := m.file(t, "policy.yaml", preloading)
		part := filepath.Join(bundle, "part.py")
		call := func() *helper.Result { return s.run(t, []string{"--policy", policy}, bundle, "python3", "main.py") }
		for n, change := range []struct {
			name, want string
			make       func()
		}{
			{"none", "1\n", func() {}},
			{"another content", "2\n", func() { m.write(t, part, "word = 2\n", 0o644) }},
			{"and back while nobody looked", "2\n", func() {
				m.write(t, part, "word = 3\n", 0o644)
				m.write(t, part, "word = 2\n", 0o644)
			}},
			{"a module that stands before", "4\n", func() {
				if err := os.Mkdir(filepath.Join(bundle, "part"), 0o755); err != nil {
					t.Fatal(err)
				}
				m.write(t, filepath.Join(bundle, "part/__init__.py"), "word = 4\n", 0o644)
			}},
		} {
			change.make()
			r := call()
			if r.Stdout != change.want || n > 0 && r.Sandbox.Start == helper.Preloaded {
				t.Errorf("%s: %s: %q", change.name, r.Sandbox.Start, r.Stdout)
			}
			time.Sleep(50 * time.Millisecond) // a change must be older than the box by more than a tick of the clock
			if r := s.preloaded(t, call); r.Stdout != change.want {
				t.Errorf("%s: %q", change.name, r.Stdout)
			}
		}
	})
}

func TestWhatAnImportWasRefusedIsToldWithTheCall(t *testing.T) {
	inEachMode(t, func(t *testing.T, m mode) {
		s := m.service(t)
		policy := m.file(t, "policy.yaml", preloading+"network: {egress: [{domains: [allowed.example.com]}]}\n")
		bundle := m.bundleOf(t, map[string]string{
			"main.py": "import asks\nprint('main')\n",
			"asks.py": `import socket, subprocess
subprocess.run(["unshare", "-U", "true"], stderr=subprocess.DEVNULL)
try:
    socket.gethostbyname("refused.example.org")
except OSError as e:
    print(type(e).__name__)
`,
		})
		r := s.preloaded(t, func() *helper.Result { return s.run(t, []string{"--policy", policy}, bundle, "python3", "main.py") })
		if r.Stdout != "gaierror\nmain\n" {
			t.Errorf("%+v", tellOf(r))
		}
		for _, kind := range []string{"syscall", "dns"} {
			if !slices.ContainsFunc(r.Denials, func(d helper.Denial) bool {
				return d.Kind == kind && (strings.HasPrefix(d.What, "unshare") || strings.HasPrefix(d.What, "refused.example.org"))
			}) {
				t.Errorf("no denial of kind %s: %+v", kind, r.Denials)
			}
		}
	})
}

func TestABundleMayWishToBePreloaded(t *testing.T) {
	inEachMode(t, func(t *testing.T, m mode) {
		bundle := m.bundleOf(t, map[string]string{
			"skillbox.yaml": "version: 1\nname: eager\ncommand: [python3, main.py]\nsecurity_policy: {version: 1, warm: {ready: 2, preload: true}}\n",
			"main.py":       "import json\nprint('main')\n",
		})
		s := m.service(t)
		ask := func(flags ...string) *helper.Result { return s.run(t, flags, bundle) }
		if r := s.preloaded(t, func() *helper.Result { return ask() }); r.Stdout != "main\n" || len(r.Warnings) > 1 {
			t.Errorf("%+v, warnings %q", tellOf(r), r.Warnings)
		}
		s.settled(t)
		if ready := s.status(t).Ready; len(ready) != 1 || ready[0].Preloaded != 2 {
			t.Errorf("ready: %+v", ready)
		}
		no := m.file(t, "no.yaml", "version: 1\nwarm: {preload: false}\n")
		for range 3 {
			if r := ask("--policy", no); r.Sandbox.Start == helper.Preloaded || r.Sandbox.NotPreloaded != "" {
				t.Errorf("the operator says no: %+v", r.Sandbox)
			}
			s.settled(t)
		}
		// Without a service it changes nothing.
		c := m.command("exec", "--mode", "oneshot", "--json", bundle)
		if r, err := envelope(c); err != nil || r.Stdout != "main\n" || r.Sandbox.Start != helper.Cold {
			t.Errorf("%v, %+v", err, r)
		}
	})
}
