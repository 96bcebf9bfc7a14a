//go:build linux

package integration

import (
	"bufio"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"

	v1 "github.com/google/go-containerregistry/pkg/v1"

	"skillbox/helper"
)

// looked is what the probe's look reports.
type looked struct {
	Argv, Env []string
	Dir       string
	Paths     map[string]string
}

func lookedOf(t *testing.T, r *helper.Result) (l looked) {
	t.Helper()
	if r.Verdict != helper.Exited || r.ExitCode != 0 {
		t.Fatalf("verdict %s, exit %d, error %v\n%s", r.Verdict, r.ExitCode, r.Error, r.Stderr)
	}
	if err := json.Unmarshal([]byte(r.Stdout), &l); err != nil {
		t.Fatalf("%v: %q", err, r.Stdout)
	}
	return l
}

// machine is an image that has everything that a root file system may have, and things that it had better not have.
func machine(t *testing.T) v1.Image {
	return imageOf(t, v1.Config{
		Env:        []string{"PATH=/opt/tool/bin:/usr/bin", "TOOL=image", "KEPT=image", "HOME=/root", "LD_PRELOAD=/evil.so"},
		Entrypoint: []string{"tool", "look"}, Cmd: []string{"/etc/os-release"}, WorkingDir: "/srv/work", User: "tool",
	},
		layerOf(t, file{name: "etc/os-release", content: "image"}, file{name: "etc/passwd", content: "root:x:0:0:root:/root:/bin/sh\ntool:x:1000:1000::/opt:/bin/sh\nother:x:7:7::/:/bin/sh\n"},
			file{name: "etc/hosts", content: "6.6.6.6 localhost\n"}, file{name: "var/lib/tool/data", content: "old"}, file{name: "gone", content: "gone"},
			file{name: "root/.profile", content: "profile", mode: 0o600}, file{name: "home/x/file", content: "x's"}, file{name: "mnt/a", content: "a"},
			file{name: "var/tmp/theirs", content: "t"}, file{name: "secret", content: "readable all the same"}),
		layerOf(t, probeFile(t, "opt/tool/bin/tool"), file{name: "srv/work/here", content: "h"}, file{name: "var/lib/tool/data", content: "new"}, file{name: ".wh.gone"},
			file{name: "tmp", target: "/etc"}, file{name: "run", target: "etc"}, file{name: "output", target: "/proc/1"}, file{name: "dev", target: "/srv"},
			file{name: "setuid", content: "s", mode: 0o4755}),
	)
}

func TestAnImageIsTheRoot(t *testing.T) {
	inEachMode(t, func(t *testing.T, m mode) {
		_, env := m.images(t)
		digest, _ := m.image(t, env, 0, "import", "--name", "example.com/machine:1", "docker-archive:"+m.archiveOf(t, machine(t)))
		c := call{mode: m, env: env, policy: "version: 1\nrootfs: {base: \"image:example.com/machine:1\"}\nenv: {set: {TOOL: policy}}\n", bundle: m.dir(t)}

		r := c.run(t)
		got := lookedOf(t, r)
		if want := []string{"tool", "look", "/etc/os-release"}; !slices.Equal(got.Argv, want) || got.Dir != "/srv/work" {
			t.Errorf("ran %q in %s", got.Argv, got.Dir)
		}
		for _, want := range []string{"TOOL=policy", "KEPT=image", "PATH=/opt/tool/bin:/usr/bin:/run/skillbox/bin", "HOME=/home/skill"} {
			if !slices.Contains(got.Env, want) {
				t.Errorf("no %s in %q", want, got.Env)
			}
		}
		if warnings := strings.Join(r.Warnings, "\n"); !strings.Contains(warnings, `user "tool"`) || !strings.Contains(warnings, `"LD_PRELOAD"`) || slices.Contains(got.Env, "LD_PRELOAD=/evil.so") {
			t.Errorf("warnings: %s", warnings)
		}
		if r.Sandbox.Image != strings.TrimSpace(digest) || !strings.Contains(r.Sandbox.Layers["root"], r.Sandbox.Image) {
			t.Errorf("the result names the image %q, it is %q", r.Sandbox.Image, digest)
		}

		c.words = []string{
			"/etc/passwd", "/etc/hosts", "/etc/resolv.conf", "/var/lib/tool/data", "/gone", "/root/.profile", "/home/x/file", "/home", "/mnt/a", "/var/tmp", "/tmp", "/run/skillbox",
			"/output", "/dev/null", "/setuid", "/secret", "/skill", "/usr/bin/python3",
		}
		got = lookedOf(t, c.run(t))
		box := "skill:x:1000:1000:"
		if m == singleID {
			box = "root:x:0:0:skill:"
		}
		for path, want := range map[string]string{
			"/etc/passwd": "other:x:7:7", "/etc/hosts": "127.0.0.1 localhost", "/etc/resolv.conf": "nameserver 127.0.0.1", "/var/lib/tool/data": "-rw-r--r-- new",
			"/gone": "ENOENT", "/root/.profile": "profile", "/home/x/file": "x's", "/home": "skill x", "/mnt/a": "a", "/var/tmp": "-> ../tmp", "/tmp": "dt", "/run/skillbox": "dr",
			"/output": "drwxr-xr-x", "/dev/null": "Dcrw", "/setuid": "-rwxr-xr-x s", "/secret": "readable all the same", "/skill": "d", "/usr/bin/python3": "ENOENT",
		} {
			if !strings.Contains(got.Paths[path], want) {
				t.Errorf("%s is %q, want %q in it", path, got.Paths[path], want)
			}
		}
		if passwd := got.Paths["/etc/passwd"]; !strings.Contains(passwd, box) || m != singleID && strings.Contains(passwd, "tool:") || strings.Contains(got.Paths["/etc/hosts"], "6.6.6.6") {
			t.Errorf("/etc/passwd: %s\n/etc/hosts: %s", passwd, got.Paths["/etc/hosts"])
		}
	})
}

func TestAnImageThatAPolicyNamesIsImportedWhenItIsFirstUsed(t *testing.T) {
	asRootAndRootless(t, func(t *testing.T, m mode) {
		_, env := m.images(t)
		c := call{mode: m, env: env, bundle: m.dir(t), policy: "version: 1\nrootfs: {base: \"docker-archive:" + m.archiveOf(t, machine(t)) + "\"}\n"}
		if got := lookedOf(t, c.run(t)); got.Dir != "/srv/work" {
			t.Errorf("ran in %s", got.Dir)
		}
		listed, _ := m.image(t, env, 0, "list")
		if !strings.Contains(listed, "docker-archive:/") {
			t.Errorf("listed: %s", listed)
		}
		if got := lookedOf(t, c.run(t)); got.Dir != "/srv/work" { // from the store
			t.Errorf("the second time it ran in %s", got.Dir)
		}
		c.policy = "version: 1\nrootfs: {base: \"docker-archive:" + m.file(t, "no.tar", "no archive") + "\"}\n"
		if r := c.run(t); r.ExitCode != helper.CodeFailed || r.Error == nil || !strings.Contains(r.Error.Message, "no.tar") {
			t.Errorf("%+v", r.Error)
		}
		c.policy = "version: 1\nrootfs:\n  base: image:example.com/none:1\n"
		r := c.run(t)
		if r.ExitCode != helper.CodeFailed || r.Error == nil || r.Error.Line != 3 || r.Error.Hint == "" || !strings.Contains(r.Error.Hint, "skillbox image pull example.com/none:1") {
			t.Errorf("%+v", r.Error)
		}
	})
}

func TestAnImageStaysWhileABoxRunsInIt(t *testing.T) {
	asRootAndRootless(t, func(t *testing.T, m mode) {
		dir, env := m.images(t)
		m.image(t, env, 0, "import", "--name", "example.com/machine:1", "docker-archive:"+m.archiveOf(t, machine(t)))
		c := m.command("exec", "--policy", m.file(t, "policy.yaml", "version: 1\nrootfs: {base: \"image:example.com/machine:1\"}\ncommand: [/opt/tool/bin/tool, hold]\ntimeout: 5m\n"), m.dir(t))
		c.Env = append(c.Env, env...)
		out, err := c.StdoutPipe()
		if err != nil {
			t.Fatal(err)
		}
		in, err := c.StdinPipe()
		if err != nil {
			t.Fatal(err)
		}
		if err := c.Start(); err != nil {
			t.Fatal(err)
		}
		defer func() {
			_ = in.Close()
			_ = c.Wait() // again
		}()
		if _, err := out.Read(make([]byte, 1)); err != nil {
			t.Fatalf("the skill says nothing: %v", err)
		}
		if _, said := m.image(t, env, helper.CodeFailed, "rm", "example.com/machine:1"); !strings.Contains(said, "a sandbox runs in it") {
			t.Errorf("rm: %s", said)
		}
		if err := os.RemoveAll(filepath.Join(dir, "names")); err != nil { // as if another image had got them
			t.Fatal(err)
		}
		if _, said := m.image(t, env, helper.CodeFailed, "gc"); !strings.Contains(said, "1 images stay") {
			t.Errorf("gc: %s", said)
		}
		if err := errors.Join(in.Close(), c.Wait()); err != nil {
			t.Fatal(err)
		}
		if said, _ := m.image(t, env, 0, "gc"); !strings.Contains(said, "removed: 1 images, 2 layers") {
			t.Errorf("gc afterwards: %s", said)
		}
	})
}

func TestAStrangerCannotKeepBoxesFromRootsImages(t *testing.T) {
	if os.Getuid() != 0 {
		needs(t, "root", errors.New("root's images, and a stranger, are root's to make"))
	}
	m := asRoot
	dir, env := m.images(t)
	m.image(t, env, 0, "import", "--name", "example.com/machine:1", "docker-archive:"+m.archiveOf(t, machine(t)))
	trees, err := filepath.Glob(filepath.Join(dir, "images/*/tree"))
	if err != nil || len(trees) != 1 {
		t.Fatal(trees, err)
	}
	// Every lock that a stranger gets, on everything that may matter.
	stranger := exec.Command("/usr/bin/python3", "-c", `
import fcntl, os, sys
tree = sys.argv[1]
for path in tree, os.path.dirname(tree), os.path.dirname(tree) + "/image.json":
    fd = os.open(path, os.O_RDONLY)
    fcntl.flock(fd, fcntl.LOCK_EX)
    if not os.path.isdir(path):
        for flags in os.O_RDWR, os.O_WRONLY:
            try:
                os.open(path, flags)
                print("open for writing:", path)
            except PermissionError:
                pass
        try:
            fcntl.lockf(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
            print("locked for writing:", path)
        except OSError:
            pass
        fcntl.lockf(fd, fcntl.LOCK_SH)
print("held", flush=True)
sys.stdin.read()
`, trees[0])
	stranger.SysProcAttr = &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: 65534, Gid: 65534}}
	in, err := stranger.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	out, err := stranger.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := stranger.Start(); err != nil {
		t.Fatal(err)
	}
	defer func() {
		_ = in.Close()
		_ = stranger.Wait() // again
	}()
	if said, err := bufio.NewReader(out).ReadString('\n'); err != nil || said != "held\n" {
		t.Fatalf("the stranger: %q, %v", said, err)
	}
	inEachMode(t, func(t *testing.T, m mode) { // users other than root, too
		c := call{mode: m, env: env, bundle: m.dir(t), policy: "version: 1\nrootfs: {base: \"image:example.com/machine:1\"}\n"}
		if got := lookedOf(t, c.run(t)); got.Dir != "/srv/work" {
			t.Errorf("ran in %s", got.Dir)
		}
	})
	// It may behave as if boxes of its own ran. The administrator is told of it.
	want := fmt.Sprintf("process %d of user 65534", stranger.Process.Pid)
	if _, said := m.image(t, env, helper.CodeFailed, "rm", "example.com/machine:1"); !strings.Contains(said, want) {
		t.Errorf("rm: %s, want %s", said, want)
	}
	if err := os.RemoveAll(filepath.Join(dir, "names")); err != nil {
		t.Fatal(err)
	}
	if _, said := m.image(t, env, helper.CodeFailed, "gc"); !strings.Contains(said, want) {
		t.Errorf("gc: %s, want %s", said, want)
	}
	if err := errors.Join(in.Close(), stranger.Wait()); err != nil {
		t.Fatal(err)
	}
	if said, _ := m.image(t, env, 0, "gc"); !strings.Contains(said, "removed: 1 images, 2 layers") {
		t.Errorf("gc afterwards: %s", said)
	}
}

func TestABundleAppearsAtAnotherPathOfAnImage(t *testing.T) {
	asRootAndRootless(t, func(t *testing.T, m mode) {
		_, env := m.images(t)
		img := imageOf(t, v1.Config{Entrypoint: []string{"/opt/tool/bin/tool", "look"}}, layerOf(t, probeFile(t, "opt/tool/bin/tool"),
			file{name: "opt/there/theirs", content: "theirs"}, file{name: "home/ada", target: "/opt"}, file{name: "srv/skills/me/theirs", content: "theirs"}))
		m.image(t, env, 0, "import", "--name", "example.com/machine:1", "docker-archive:"+m.archiveOf(t, img))
		bundle := filepath.Dir(m.file(t, "data", "the bundle's"))
		for _, bundleIs := range []string{"read-only", "copy-on-write"} {
			for _, at := range []string{"/opt/there/me", "/srv/skills/me", "/home/ada/skills/me", "/root/me", "/new/place", "/home/skill/.claude/skills/me"} {
				c := call{
					mode: m, env: env, bundle: bundle, flags: []string{"--mount-at", at}, words: []string{at + "/data", "/skill/data", "/opt/there/theirs", at + "/theirs"},
					policy: "version: 1\nrootfs: {base: \"image:example.com/machine:1\", bundle: " + bundleIs + "}\n",
				}
				got := lookedOf(t, c.run(t))
				for path, want := range map[string]string{at + "/data": "the bundle's", "/skill/data": "the bundle's", "/opt/there/theirs": "theirs", at + "/theirs": "ENOENT"} {
					if !strings.HasSuffix(got.Paths[path], want) {
						t.Errorf("%s, %s: %s is %q", at, bundleIs, path, got.Paths[path])
					}
				}
			}
		}
	})
}

func TestAPolicysFilesAppearInAnImage(t *testing.T) {
	asRootAndRootless(t, func(t *testing.T, m mode) {
		_, env := m.images(t)
		m.image(t, env, 0, "import", "--name", "example.com/machine:1", "docker-archive:"+m.archiveOf(t, machine(t)))
		data := m.file(t, "data", "the host's")
		c := call{mode: m, env: env, bundle: m.dir(t), words: []string{"/var/lib/tool/own", "/var/lib/tool/data", "/new/place/data", "/opt/tool/bin"}, policy: `version: 1
rootfs: {base: "image:example.com/machine:1"}
filesystem:
  read:
    - {host: ` + data + `, path: /var/lib/tool/own}
    - {host: ` + filepath.Dir(data) + `, path: /new/place}
`}
		got := lookedOf(t, c.run(t))
		for path, want := range map[string]string{"/var/lib/tool/own": "the host's", "/var/lib/tool/data": "new", "/new/place/data": "the host's", "/opt/tool/bin": "tool"} {
			if !strings.HasSuffix(got.Paths[path], want) {
				t.Errorf("%s is %q", path, got.Paths[path])
			}
		}
	})
}
