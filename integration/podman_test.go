//go:build linux

package integration

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"testing"

	"golang.org/x/sys/unix"
)

// podman runs containers of the mode's user, whose files are the machine's /usr and the programs. Nothing is pulled.
type podman struct {
	mode mode
	dir  string
}

func (m mode) podman(t *testing.T) podman {
	t.Helper()
	_, err := exec.LookPath("podman")
	needs(t, "podman", err)
	dir, err := os.MkdirTemp("", "podman-") // podman wants short paths
	if err != nil {
		t.Fatal(err)
	}
	p := podman{mode: m, dir: dir}
	t.Cleanup(func() { p.end(t) })
	m.own(t, dir)
	for name, perm := range map[string]os.FileMode{"": 0o755, "root": 0o755, "run": 0o700, "home": 0o700} {
		at := filepath.Join(dir, name)
		if err := errors.Join(os.MkdirAll(at, perm), os.Chmod(at, perm)); err != nil {
			t.Fatal(err)
		}
		m.own(t, at)
	}
	root := filepath.Join(p.dir, "root")
	for _, name := range []string{"usr", "etc", "dev", "proc", "sys", "tmp", "run", "home", "skillbox"} {
		if err := os.Mkdir(filepath.Join(root, name), 0o755); err != nil {
			t.Fatal(err)
		}
		m.own(t, filepath.Join(root, name))
	}
	for _, name := range []string{"bin", "sbin", "lib", "lib64"} {
		if err := os.Symlink("usr/"+name, filepath.Join(root, name)); err != nil {
			t.Fatal(err)
		}
	}
	m.write(t, filepath.Join(root, "etc/passwd"), "root:x:0:0::/home:/bin/sh\nada:x:1000:1000::/home:/bin/sh\n", 0o644)
	m.write(t, filepath.Join(root, "etc/group"), "root:x:0:\nada:x:1000:\n", 0o644)
	return p
}

// unconfined lets root's podman leave its AppArmor profile off, which forbids every mount.
func (p podman) unconfined() string {
	if on, err := os.ReadFile("/sys/module/apparmor/parameters/enabled"); err == nil && strings.HasPrefix(string(on), "Y") && p.mode.uid() == 0 {
		return "--security-opt=apparmor=unconfined"
	}
	return "--env=unconfined=1"
}

// command is podman as the mode's user, with all that it keeps in a directory of ours.
func (p podman) command(args ...string) *exec.Cmd {
	words := append([]string{
		"podman", "--root", filepath.Join(p.dir, "store"), "--runroot", filepath.Join(p.dir, "rr"), "--tmpdir", filepath.Join(p.dir, "tmp"),
		"--storage-driver", "vfs", "--cgroup-manager", "cgroupfs",
	}, args...)
	if cred := p.mode.credential(); cred != nil {
		id := strconv.Itoa(int(cred.Uid))
		words = append([]string{"setpriv", "--reuid", id, "--regid", id, "--clear-groups"}, words...)
	}
	var fs unix.Statfs_t
	if err := unix.Statfs("/sys/fs/cgroup", &fs); err == nil && fs.Type != unix.CGROUP2_SUPER_MAGIC && os.Getuid() == 0 {
		// Its runtime knows version 2, and version 1, and no mixture.
		words = append([]string{"unshare", "-m", "sh", "-c", `umount -R /sys/fs/cgroup && mount -t cgroup2 cgroup2 /sys/fs/cgroup && exec "$@"`, "sh"}, words...)
	}
	c := exec.Command(words[0], words[1:]...)
	c.Env = []string{"PATH=/usr/bin:/bin:/usr/sbin", "HOME=" + filepath.Join(p.dir, "home"), "XDG_RUNTIME_DIR=" + filepath.Join(p.dir, "run")}
	c.Dir = "/"
	return c
}

// end ends what rootless podman keeps running for its next call, and takes its files away.
func (p podman) end(t *testing.T) {
	t.Helper()
	if p.mode.uid() != 0 {
		if out, err := p.command("system", "migrate").CombinedOutput(); err != nil {
			t.Errorf("%v: %s", err, out)
		}
	}
	if err := os.RemoveAll(p.dir); err != nil {
		t.Error(err)
	}
}

// run runs a shell script in a container that the words before it configure.
func (p podman) run(t *testing.T, script string, options ...string) (stdout, stderr string, code int) {
	t.Helper()
	runs.Add(1)
	words := append([]string{
		"run", "--rm", "--cgroups=disabled", "--network=none", "--ulimit=nofile=1024:1024", "--ulimit=nproc=500:500", "-v=/usr:/usr:ro", "-v=" + binDir + ":/skillbox:ro",
		"--tmpfs=/tmp:mode=1777", "--tmpfs=/home:mode=1777", "-e=HOME=/home", "-e=XDG_RUNTIME_DIR=/home/run", "-e=PATH=/skillbox:/usr/bin:/bin",
	}, options...)
	c := p.command(append(words, "--rootfs", filepath.Join(p.dir, "root"), "sh", "-c", script)...)
	var out, errs bytes.Buffer
	c.Stdout, c.Stderr = &out, &errs
	err := c.Run()
	if errors.Is(err, exec.ErrNotFound) {
		needs(t, "podman", err)
	}
	var exit *exec.ExitError
	if err != nil && !errors.As(err, &exit) {
		t.Fatal(err)
	}
	return out.String(), errs.String(), c.ProcessState.ExitCode()
}

func TestNestedInPodman(t *testing.T) {
	asRootAndRootless(t, func(t *testing.T, m mode) {
		p := m.podman(t)
		const call = "mkdir -m 700 /home/run /home/b; echo 1 | SKILLBOX_NO_DAEMON=1 skillbox exec /home/b -- cat"
		out, errs, code := p.run(t, "echo runs; "+call+"; skillbox doctor", "--user=1000:1000", p.unconfined())
		if !strings.HasPrefix(out, "runs\n") {
			needs(t, "podman", fmt.Errorf("it runs no container here: exit %d: %s%s", code, out, errs))
		}
		if !strings.Contains(errs, "its runtime must leave /proc unmasked") || !strings.Contains(out, "remedy: start the container with: podman run --security-opt unmask=ALL …") {
			t.Errorf("by default: exit %d: %s%s", code, out, errs)
		}
		out, errs, code = p.run(t, call+`; skillbox exec --mode user /home/b -- cat /etc/hostname`,
			"--user=1000:1000", p.unconfined(), "--security-opt=unmask=ALL", "--hostname=server", "--cap-drop=all", "--security-opt=no-new-privileges")
		if code != 0 || out != "1\nserver\n" {
			t.Errorf("by what docs/operators.md says: exit %d: %s%s", code, out, errs)
		}
	})
}
