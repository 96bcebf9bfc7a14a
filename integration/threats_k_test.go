//go:build linux

package integration

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"skillbox/helper"
)

// Group K: policies. How they are parsed and met is tested in package policy; here is what needs a file system or a run.

// Paths that are harmless to read and lead, by a link, to what is not.
func TestThreat225ForbiddenTargets(t *testing.T) {
	inEachMode(t, func(t *testing.T, m mode) {
		dir := m.dir(t)
		m.link(t, "/etc", filepath.Join(dir, "link"))
		m.link(t, "/proc/self/root", filepath.Join(dir, "magic"))
		for host, words := range map[string]string{
			filepath.Join(dir, "link"): "symbolic link", filepath.Join(dir, "link/passwd"): "symbolic link", filepath.Join(dir, "magic/etc"): "symbolic link",
			"/proc/1/root": "the host's processes", "/run/docker.sock": "dangerous",
		} {
			for _, list := range []string{"read", "write"} {
				r := call{mode: m, policy: fmt.Sprintf("version: 1\nfilesystem: {%s: [{host: %s, path: /data}]}\n", list, host), words: []string{"/skill/probe", "nothing"}}.run(t)
				if r.Verdict != helper.Refused || r.Error == nil || !strings.Contains(r.Error.Message+r.Error.Hint, words) || r.Error.Line != 2 {
					t.Errorf("%s %s: %s %+v", list, host, r.Verdict, r.Error)
				}
			}
		}
	})
}

// A writable alias of what is read-only, by hard link, by another mount of the same directory, by a second name.
func TestThreat226MountOrderConflict(t *testing.T) {
	inEachMode(t, func(t *testing.T, m mode) {
		dir := m.dir(t)
		for _, name := range []string{"a", "alias", "b"} {
			if err := os.Mkdir(filepath.Join(dir, name), 0o755); err != nil {
				t.Fatal(err)
			}
			m.own(t, filepath.Join(dir, name))
		}
		m.write(t, filepath.Join(dir, "a/file"), "x", 0o644)
		if err := os.Link(filepath.Join(dir, "a/file"), filepath.Join(dir, "b/file")); err != nil {
			t.Fatal(err)
		}
		pairs := [][2]string{{"a/file", "b/file"}}
		if os.Getuid() == 0 {
			alias := filepath.Join(dir, "alias")
			if err := unix.Mount(filepath.Join(dir, "a"), alias, "", unix.MS_BIND, ""); err != nil {
				t.Fatal(err)
			}
			defer unix.Unmount(alias, unix.MNT_DETACH)
			pairs = append(pairs, [2]string{"a", "alias"})
		}
		for _, p := range pairs {
			policy := fmt.Sprintf("version: 1\nfilesystem: {read: [{host: %s, path: /r}], write: [{host: %s, path: /w}]}\n", filepath.Join(dir, p[0]), filepath.Join(dir, p[1]))
			r := call{mode: m, policy: policy, words: []string{"/skill/probe", "nothing"}}.run(t)
			if r.Verdict != helper.Refused || r.Error == nil || !strings.Contains(r.Error.Message, "is the same file or directory as") {
				t.Errorf("%v: %s %+v", p, r.Verdict, r.Error)
			}
		}
	})
}

// What a bundle asks for itself grants nothing, is listed, and narrows.
func TestThreat228SelfWidening(t *testing.T) {
	inEachMode(t, func(t *testing.T, m mode) {
		secret := m.file(t, "secret", canary)
		probe, err := os.ReadFile(filepath.Join(binDir, "probe"))
		if err != nil {
			t.Fatal(err)
		}
		bundle := m.bundleOf(t, map[string]string{"policy.yaml": fmt.Sprintf(`version: 1
network: {egress: [{domains: [evil.example]}]}
filesystem: {read: [{host: %s, path: /stolen}]}
env: {pass: [AWS_SECRET_ACCESS_KEY], secrets: [OPENAI_API_KEY]}
resources: {memory: 64Gi}
syscalls: {profile: debug, allow: [ptrace]}
timeout: 5s
`, secret)})
		m.write(t, filepath.Join(bundle, "probe"), string(probe), 0o755)
		c := call{mode: m, bundle: bundle, env: []string{"AWS_SECRET_ACCESS_KEY=" + canary, "OPENAI_API_KEY=" + canary}}
		c.hunted(t)
		r := c.probe(t, &map[string]string{}, "stat", "/stolen", "/run/secrets/OPENAI_API_KEY")
		got := map[string]string{}
		if err := json.Unmarshal([]byte(r.Stdout), &got); err != nil {
			t.Fatal(err)
		}
		if got["/stolen"] != "ENOENT" || got["/run/secrets/OPENAI_API_KEY"] != "ENOENT" {
			t.Errorf("got %v", got)
		}
		for _, field := range []string{"network.egress[0]", "filesystem.read[0]", "env.pass[0]", "env.secrets[0]", "resources.memory", "syscalls.profile"} {
			if !slices.ContainsFunc(r.Warnings, func(w string) bool { return strings.Contains(w, field) }) {
				t.Errorf("the request for %s is not listed: %q", field, r.Warnings)
			}
		}
	})
}

// A policy that anybody may write is nobody's word. There is nothing to include.
func TestThreat231IncludeCycles(t *testing.T) {
	inEachMode(t, func(t *testing.T, m mode) {
		bundle := m.probeBundle(t)
		for perm, want := range map[os.FileMode]string{0o644: helper.Exited, 0o664: helper.Exited, 0o646: helper.Refused, 0o666: helper.Refused} {
			policy := m.file(t, "policy.yaml", "version: 1\n")
			if err := os.Chmod(policy, perm); err != nil {
				t.Fatal(err)
			}
			r := call{mode: m, bundle: bundle, flags: []string{"--policy", policy}, words: []string{"/skill/probe", "nothing"}}.run(t)
			if r.Verdict != want {
				t.Errorf("%v: %s %v", perm, r.Verdict, r.Error)
			}
		}
		r := call{mode: m, bundle: bundle, policy: "version: 1\nextends: /etc/skillbox/base.yaml\n", words: []string{"/skill/probe", "nothing"}}.run(t)
		if r.Verdict != helper.Refused || !strings.Contains(r.Error.Message, "unknown key") || r.Error.Line != 2 {
			t.Errorf("%s %+v", r.Verdict, r.Error)
		}
	})
}

// The policy is opened once, and the envelope's digest says which words held.
func TestThreat232PolicySwap(t *testing.T) {
	inEachMode(t, func(t *testing.T, m mode) {
		bundle, policy := m.probeBundle(t), m.file(t, "policy.yaml", "version: 1\n")
		digest := func() string {
			r := call{mode: m, bundle: bundle, flags: []string{"--policy", policy}, words: []string{"/skill/probe", "nothing"}}.run(t)
			return r.Policy.Digest
		}
		before := digest()
		m.write(t, policy, "version: 1\nenv: {set: {A: b}}\n", 0o644)
		if swapped := digest(); swapped == before || before == "" {
			t.Errorf("%s before and %s after", before, swapped)
		}
		m.write(t, policy, "# the same\nversion: 1\n", 0o644)
		if again := digest(); again != before {
			t.Errorf("%s before and %s again", before, again)
		}
	})
}
