//go:build linux

package integration

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"

	"skillbox/policy"
	"skillbox/scan"
)

// learned is what `skillbox policy learn --json` prints, as far as tests look at it.
type learned struct {
	Policy     string
	Converged  bool
	Failing    []string
	Attempts   int
	Wishes     []struct{ Key, Value, Why, Run string }
	Varies     []string
	Compared   []scan.Difference
	Diff       string
	Evidence   []json.RawMessage
	file, text string
}

// learn runs the command, and wants its policy to be one.
func (m mode) learn(t *testing.T, code int, bundle string, flags ...string) *learned {
	t.Helper()
	return m.learnBy(t, (*exec.Cmd).Run, code, bundle, flags...)
}

func (m mode) learnBy(t *testing.T, run func(*exec.Cmd) error, code int, bundle string, flags ...string) *learned {
	t.Helper()
	dir := m.dir(t)
	temporary := filepath.Join(dir, "tmp")
	if err := os.Mkdir(temporary, 0o700); err != nil {
		t.Fatal(err)
	}
	m.own(t, temporary)
	c := m.command(append([]string{"policy", "learn", "--json", bundle}, flags...)...)
	c.Env = append(c.Env, "TMPDIR="+temporary, "MINE=not for skills")
	var stdout, stderr bytes.Buffer
	c.Stdout, c.Stderr = &stdout, &stderr
	err := run(c)
	var exit *exec.ExitError
	if err != nil && !errors.As(err, &exit) {
		t.Fatal(err)
	}
	l := &learned{}
	if got := c.ProcessState.ExitCode(); got != code {
		t.Errorf("exit code %d, not %d: %s\n%s", got, code, stderr.String(), stdout.String())
	}
	if left, err := os.ReadDir(temporary); err != nil || len(left) > 0 {
		t.Errorf("left behind: %v %v", left, err)
	}
	if code == 2 {
		if stdout.Len() > 0 || stderr.Len() == 0 {
			t.Errorf("%s %s", stdout.String(), stderr.String())
		}
		l.text = stderr.String()
		return l
	}
	if err := json.Unmarshal(stdout.Bytes(), l); err != nil {
		t.Fatalf("%v: %s\n%s", err, stdout.String(), stderr.String())
	}
	l.file, l.text = m.file(t, "learned.yaml", l.Policy), stderr.String()
	if out, err := m.command("policy", "check", l.file).CombinedOutput(); err != nil {
		t.Errorf("policy check: %v\n%s\n%s", err, out, l.Policy)
	}
	if l.Converged != (code == 0) || l.Converged != (len(l.Failing) == 0) {
		t.Errorf("converged %v, exit code %d, %q", l.Converged, code, l.Failing)
	}
	return l
}

// wholly is a policy in which everything is named, as what nothing is left open of.
func wholly(t *testing.T, text string, without ...string) *policy.Policy {
	t.Helper()
	p, err := policy.Parse("", []byte(text))
	if err != nil {
		t.Fatalf("%v\n%s", err, text)
	}
	all := slices.DeleteFunc(strings.Split(string(p.YAML()), "\n"), func(line string) bool {
		return slices.ContainsFunc(without, func(w string) bool { return strings.HasPrefix(strings.TrimSpace(line), w) })
	})
	if p, err = policy.Parse("", []byte(strings.Join(all, "\n"))); err != nil {
		t.Fatal(err)
	}
	return p
}

// noBroader wants a policy to allow nothing that another one does not. How long a run may take depends on the machine, and is not compared.
func noBroader(t *testing.T, text, than string) {
	t.Helper()
	if _, err := policy.Grant(wholly(t, than, "set:", "command:", "timeout:"), wholly(t, text, "timeout:"), nil); err != nil {
		t.Errorf("broader: %v\n%s", err, text)
	}
}

func handWritten(t *testing.T, name string) string {
	t.Helper()
	text, err := os.ReadFile(filepath.Join("../examples/policies", name))
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}

// The examples compute: what is learned for each is within the policy that examples/ has for such skills.
func TestLearnEachExample(t *testing.T) {
	for _, e := range []struct {
		name  string
		needs func() error
		flags []string // of learn and of exec
		words []string
	}{
		{name: "word-count", flags: []string{"--params", `{"text": "a b a"}`}},
		{name: "pdf-text", needs: exec.Command("/usr/bin/python3", "-c", "import pypdf").Run, flags: []string{"--input", "sample.pdf"}},
		{name: "node-slugify", needs: exists("/usr/bin/node"), flags: []string{"--params", `{"text": "Crème brûlée"}`}},
		{name: "bash-report", flags: []string{"--params", `{"title": "Delivery"}`, "--input", "README.md"}},
		{name: "static-go", needs: exists("../examples/static-go/bin/static-go"), flags: []string{"--params", `{"csv": "city,km\nOslo,2\nBergen,4\n"}`}},
		{name: "skillware-hash", flags: []string{"--params", `{"text": "abc"}`}},
		{name: "agent-skill-dates", words: []string{"scripts/business-days.py", "2026-12-21", "2027-01-08"}},
		{name: "jsonrpc-echo", flags: []string{"--params", `{"jsonrpc": "2.0", "id": 1, "method": "ping"}`}},
	} {
		t.Run(e.name, func(t *testing.T) {
			if e.needs != nil {
				needs(t, e.name, e.needs())
			}
			asRootAndRootless(t, func(t *testing.T, m mode) {
				bundle := m.example(t, e.name)
				flags := slices.Clone(e.flags)
				for i, f := range flags {
					if i > 0 && flags[i-1] == "--input" {
						flags[i] = filepath.Join(bundle, f)
					}
				}
				given := flags
				if len(e.words) > 0 {
					given = append(given, "--command", "/skill/"+strings.Join(e.words, " "))
				}
				l := m.learn(t, 0, bundle, append(given, "--runs", "2")...)
				if len(l.Wishes)+len(l.Varies) > 0 {
					t.Errorf("wishes %v, varies %v", l.Wishes, l.Varies)
				}
				noBroader(t, l.Policy, handWritten(t, "minimal.yaml"))
				noBroader(t, l.Policy, handWritten(t, "offline-strict.yaml"))
				plain := call{mode: m, bundle: bundle, flags: flags, words: e.words}.run(t)
				under := call{mode: m, bundle: bundle, flags: flags, words: e.words, policy: l.Policy}.run(t)
				if !under.Success || len(under.Denials) > 0 || string(under.Result) != string(plain.Result) || under.Stdout != plain.Stdout {
					t.Errorf("%s %v, denials %v\n%s\n%s\n%s", under.Verdict, under.Error, under.Denials, under.Stdout, under.Stderr, l.Policy)
				}
			})
		})
	}
}

func exists(path string) func() error {
	return func() error { _, err := os.Stat(path); return err }
}

// needy needs two names, a variable, a directory that it writes to and a call that the profile lacks. It reads another variable and tries another
// call for nothing.
const needy = `
import ctypes, json, os, platform, urllib.request
libc = ctypes.CDLL(None, use_errno=True)
context = ctypes.c_ulong(0)
setup, handle = {'x86_64': (206, 310), 'aarch64': (0, 270)}[platform.machine()]
libc.syscall({'x86_64': 237, 'aarch64': 235}[platform.machine()], 0, 0, 0, 0, 0, 0)
def get(url):
    try: return urllib.request.urlopen(url, timeout=60).status
    except OSError as e: return str(e)
os.environ.get('UNUSED')
with open('/data/log.txt', 'a') as f: f.write('ran\n')
known = open('/ref/known.txt').read() + open('/run/secrets/TOKEN').read()
print(json.dumps({'key': os.environ.get('SERVICE_KEY'), 'mine': os.environ.get('MINE'), 'aio': libc.syscall(setup, 1, ctypes.byref(context)),
    'a': get('http://api.one.example/x'), 'b': get('http://data.two.example:8080/'), 'known': known}))
`

func TestLearnExactlyWhatIsNeeded(t *testing.T) {
	asRootAndRootless(t, func(t *testing.T, m mode) {
		bundle := m.bundleOf(t, map[string]string{"main.py": needy})
		data, ref, unused := m.dir(t), m.dir(t), m.dir(t)
		m.write(t, filepath.Join(data, "log.txt"), "before\n", 0o644)
		m.write(t, filepath.Join(ref, "known.txt"), "seven", 0o644)
		current := m.file(t, "policy.yaml", fmt.Sprintf(`version: 1
name: needy
filesystem:
  read: [{host: %s, path: /unused}]
  write: [{host: %s, path: /data}, {host: %s, path: /ref}]
env: {pass: [UNUSED], secrets: [OLD_TOKEN, TOKEN]}
network:
  egress: [{domains: [api.one.example, old.example], ports: [80, 443]}]
`, unused, data, ref))
		l := m.learn(t, 0, bundle, "--command", "/usr/bin/python3 main.py", "--policy", current, "--env", "SERVICE_KEY=abc", "--env", "UNUSED")
		p := wholly(t, l.Policy)
		for what, pair := range map[string][2]any{
			"read":   {p.Filesystem.Read, []policy.Bind{{Host: ref, Path: "/ref"}}},
			"write":  {p.Filesystem.Write, []policy.Bind{{Host: data, Path: "/data"}}},
			"pass":   {p.Env.Pass, []string{"SERVICE_KEY"}},
			"secret": {p.Env.Secrets, []string{"TOKEN"}},
			"allow":  {p.Syscalls.Allow, []string{"io_setup"}},
			"egress": {ruleTexts(p), []string{`{domains: [api.one.example], ports: [80]}`, `{domains: [data.two.example], ports: [8080]}`}},
			"rest":   {[]string{p.Name, p.Rootfs.Bundle, p.Syscalls.Profile}, []string{"needy", "read-only", "default"}},
			"wishes": {len(l.Wishes), 0},
		} {
			if !reflect.DeepEqual(pair[0], pair[1]) {
				t.Errorf("%s: %v, not %v\n%s", what, pair[0], pair[1], l.Policy)
			}
		}
		if text, err := os.ReadFile(filepath.Join(data, "log.txt")); err != nil || string(text) != "before\n" {
			t.Errorf("the host's file: %q %v", text, err)
		}
		compared := map[scan.Difference]bool{}
		for _, d := range l.Compared {
			compared[d] = true
		}
		for _, d := range []scan.Difference{
			{Key: "network.egress", Value: "{domains: [old.example], ports: [80]}", Declared: true},
			{Key: "network.egress", Value: "{domains: [data.two.example], ports: [8080]}"},
			{Key: "env.pass", Value: "UNUSED", Declared: true},
			{Key: "env.pass", Value: "SERVICE_KEY"},
			{Key: "syscalls.allow", Value: "io_setup"},
			{Key: "filesystem.read", Value: fmt.Sprintf("{host: %s, path: /unused}", unused), Declared: true},
		} {
			if !compared[d] {
				t.Errorf("%v is not in %v", d, slices.Collect(maps.Keys(compared)))
			}
		}
		if !strings.Contains(l.Diff, "\n-  pass: [UNUSED]\n+  pass: [SERVICE_KEY]\n") {
			t.Errorf("%s", l.Diff)
		}

		// A ceiling that has no room for it: what is beyond stays a wish, and the policy does not work.
		ceiling := m.file(t, "ceiling.yaml", fmt.Sprintf("version: 1\nsyscalls: {allow: []}\nfilesystem: {write: [{host: %s, path: /data}, {host: %s, path: /ref}]}\nnetwork: {egress: [{domains: [api.one.example], ports: [80]}]}\n"+
			"env: {secrets: [TOKEN]}\n", data, ref))
		l = m.learn(t, 1, bundle, "--command", "/usr/bin/python3 main.py", "--ceiling", ceiling, "--env", "SERVICE_KEY=abc", "--runs", "1")
		noBroader(t, l.Policy, l.Policy)
		if !strings.Contains(l.Policy, "# - {domains: [data.two.example], ports: [8080]}") || !strings.Contains(l.Policy, "# - io_setup") || !strings.Contains(l.text, "data.two.example") {
			t.Errorf("%s\n%s", l.Policy, l.text)
		}
	})
}

func ruleTexts(p *policy.Policy) (all []string) {
	for _, r := range p.Network.Egress {
		all = append(all, r.String())
	}
	return all
}

// What a skill only tries it does without: python's compiled modules, a call that changes nothing. What it relies on it gets.
func TestLearnTellsTryingFromNeeding(t *testing.T) {
	const tries = `
import ctypes, platform, helper
aio = ctypes.CDLL(None).syscall({'x86_64': 206, 'aarch64': 0}[platform.machine()], 1, ctypes.byref(ctypes.c_ulong(0)))
open('/tmp/large', 'wb').write(b'x' * (10 << 20))
`
	asRootAndRootless(t, func(t *testing.T, m mode) {
		for name, c := range map[string]struct {
			script string
			bundle string
			allow  []string
			says   string
		}{
			"only tries": {tries + "print('done')", "read-only", nil, "#   call io_setup\n"},
			"relies on":  {tries + "open('state', 'w').write('kept'); print(aio, open('state').read())", "copy-on-write", []string{"io_setup"}, "it changes its own files"},
		} {
			l := m.learn(t, 0, m.bundleOf(t, map[string]string{"main.py": c.script, "helper.py": ""}), "--command", "/usr/bin/python3 main.py", "--runs", "1")
			p := wholly(t, l.Policy)
			if p.Rootfs.Bundle != c.bundle || !slices.Equal(p.Syscalls.Allow, c.allow) || !strings.Contains(l.Policy, c.says) {
				t.Errorf("%s:\n%s", name, l.Policy)
			}
			if f := p.Filesystem; f.Tmp != 64<<20 || f.Home > 16<<20 || f.Output > 16<<20 {
				t.Errorf("%s: scratch space: %+v\n%s", name, f, l.Policy)
			}
		}
	})
}

// varied differs from run to run, in what it says and in where it turns to.
const varied = `
import json, random, socket
names = ['n%d.cdn.example' % random.getrandbits(30) for i in range(2)] + ['api.example']
for n in names:
    s = socket.create_connection((n, 8443), 60); s.close()
print(json.dumps({'id': random.getrandbits(60), 'list': list(range(random.randrange(20))), 'same': 7}))
`

func TestLearnASkillThatIsNeverTheSame(t *testing.T) {
	asRootAndRootless(t, func(t *testing.T, m mode) {
		bundle := m.bundleOf(t, map[string]string{"main.py": varied})
		l := m.learn(t, 0, bundle, "--command", "/usr/bin/python3 main.py")
		if !slices.Contains(l.Varies, "result.id") || slices.Contains(l.Varies, "result.same") || !strings.Contains(l.Policy, "# The skill is not deterministic.") {
			t.Errorf("%v\n%s", l.Varies, l.Policy)
		}
		if got := ruleTexts(wholly(t, l.Policy)); !reflect.DeepEqual(got, []string{`{domains: ["*.cdn.example"], ports: [8443]}`, `{domains: [api.example], ports: [8443]}`}) ||
			!strings.Contains(l.Policy, "# a wildcard: ") {
			t.Errorf("%v\n%s", got, l.Policy)
		}
	})
}

// With a destination named, the skill really reaches it, and nothing else: what it learns there leads it on.
func TestLearnFromWhatAnswers(t *testing.T) {
	const script = `
import json, sys, urllib.request
def get(url):
    try: return urllib.request.urlopen(url, timeout=20).read().decode().strip()
    except OSError as e: return type(e).__name__
print(json.dumps([get(url) for url in sys.argv[1:]]))
`
	captures := slices.DeleteFunc(everyWay(), func(y way) bool { return y.path == "veth" })
	inWays(t, captures, func(t *testing.T, w *world, y way) {
		bundle := y.mode.bundleOf(t, map[string]string{"main.py": script, "ca.pem": string(w.ca.pem)})
		current := y.mode.file(t, "current.yaml", "version: 1\nenv: {set: {SSL_CERT_FILE: /skill/ca.pem}}\n")
		onTheHost := func(c *exec.Cmd) error {
			if err := w.host.Run(c.Start); err != nil {
				return err
			}
			return c.Wait()
		}
		flags := []string{"--policy", current, "--runs", "1", "--allow-network", "api.allowed.example:443", "--allow-network", "shop.cdn.example:443"}
		l := y.mode.learnBy(t, onTheHost, 0, bundle, append(flags, "--command", "/usr/bin/python3 main.py https://api.allowed.example/hello")...)
		if got := ruleTexts(wholly(t, l.Policy)); !reflect.DeepEqual(got, []string{`{domains: [api.allowed.example], ports: [443]}`}) || len(l.Wishes) > 0 {
			t.Errorf("%v, wishes %v\n%s", got, l.Wishes, l.Policy)
		}
		w.only(t, "tcp "+join(apiAddr, 443), "tcp "+join(apiAddr6, 443))
		r := w.run(t, y, call{mode: y.mode, bundle: bundle, policy: l.Policy, words: []string{"/usr/bin/python3", "main.py", "https://api.allowed.example/hello"}})
		if !r.Success || len(r.Denials) > 0 || !strings.Contains(r.Stdout, "page /hello of api.allowed.example") {
			t.Errorf("%s %v %s %s", r.Verdict, r.Denials, r.Stdout, r.Stderr)
		}

		w.forget()
		l = y.mode.learnBy(t, onTheHost, 1, bundle, append(flags, "--command", "/usr/bin/python3 main.py https://api.allowed.example/hello https://other.example/")...)
		if !strings.Contains(l.Policy, "# - {domains: [other.example], ports: [443]}  # beyond the ceiling or --allow-network") {
			t.Errorf("%s", l.Policy)
		}
		w.only(t, "tcp "+join(apiAddr, 443), "tcp "+join(apiAddr6, 443))
	})
}

// What a hostile skill wishes for is nobody's to grant but a person's.
func TestLearnLeavesRisksToAPerson(t *testing.T) {
	asRootAndRootless(t, func(t *testing.T, m mode) {
		l := m.learn(t, 1, m.example(t, "hostile"), "--runs", "1", "--params",
			`{"only": ["ptrace-init", "open-by-handle", "write-root", "connect-out", "mount", "bpf", "unshare-user", "keyctl"]}`)
		p := wholly(t, l.Policy)
		if len(p.Network.Egress)+len(p.Syscalls.Allow)+len(p.Filesystem.Read)+len(p.Filesystem.Write)+len(p.Env.Pass) > 0 || p.Syscalls.Profile == "debug" {
			t.Errorf("%s", l.Policy)
		}
		for _, want := range []string{"# - ptrace\n", "# - {cidrs: [\"192.0.2.1/32\"], ports: [443]}", "# risky: it reads or steers other processes"} {
			if !strings.Contains(l.Policy, want) {
				t.Errorf("no %q in\n%s", want, l.Policy)
			}
		}
		for _, w := range l.Wishes {
			if w.Why == "" || !slices.ContainsFunc(l.Evidence, func(e json.RawMessage) bool { return strings.Contains(string(e), w.Run) }) {
				t.Errorf("no evidence of %v", w)
			}
		}
	})
}

func TestLearnSaysWhyItCannot(t *testing.T) {
	asRootAndRootless(t, func(t *testing.T, m mode) {
		bundle := m.bundleOf(t, map[string]string{"main.sh": "true"})
		bad := m.file(t, "bad.yaml", "version: 1\nnetwrok: {}\n")
		for _, c := range []struct {
			flags []string
			says  string
		}{
			{nil, "say what to run"},
			{[]string{"--command", "true", "--params", "{"}, "--params is not JSON"},
			{[]string{"--command", "true", "--policy", bad}, "bad.yaml:2:1: unknown key"},
			{[]string{"--command", "true", "--runs", "0"}, "--runs 0"},
			{[]string{"--command", "true", "--allow-network", "*.com:443"}, "unrelated owners"},
			{[]string{"--command", "/no/such/program"}, "/no/such/program"},
			{[]string{"--command", "/bin/sleep 50", "--ceiling", m.file(t, "short.yaml", "version: 1\ntimeout: 1s\n")}, "has not ended after 1s"},
			{[]string{"--frobnicate"}, "unknown flag"},
		} {
			if l := m.learn(t, 2, bundle, c.flags...); !strings.Contains(l.text, c.says) {
				t.Errorf("%v: %s", c.flags, l.text)
			}
		}
	})
}

// Nothing is left of a learning that is killed but its temporary directory: the run that it was in ends with it.
func TestLearnInterrupted(t *testing.T) {
	asRootAndRootless(t, func(t *testing.T, m mode) {
		dir := m.dir(t)
		c := m.command("policy", "learn", m.bundleOf(t, map[string]string{"x": ""}), "--command", "/bin/sleep 50")
		c.Env = append(c.Env, "TMPDIR="+dir)
		var stderr bytes.Buffer
		c.Stderr = &stderr
		if err := c.Start(); err != nil {
			t.Fatal(err)
		}
		time.Sleep(patience(time.Second))
		if err := c.Process.Signal(os.Interrupt); err != nil {
			t.Fatal(err)
		}
		began := time.Now()
		_ = c.Wait() // its exit code is looked at
		left, err := os.ReadDir(dir)
		if c.ProcessState.ExitCode() != 2 || time.Since(began) > patience(15*time.Second) || err != nil || len(left) > 0 || !strings.Contains(stderr.String(), "interrupted") {
			t.Errorf("%v after %v, left %v %v: %s", c.ProcessState, time.Since(began), left, err, stderr.String())
		}
	})
}
