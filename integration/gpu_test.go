//go:build linux

package integration

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"skillbox/helper"
)

// withDevices runs skillbox where /dev holds these nodes besides those that every box has, and /usr/lib what a driver brings. Both are a mount
// namespace's of its own.
func (m mode) withDevices(t *testing.T, nodes string, env []string, args ...string) *helper.Result {
	t.Helper()
	dir := t.TempDir()
	script := fmt.Sprintf(`set -e
mkdir %[1]s/dev %[1]s/lib
mount -t tmpfs -o mode=755 tmpfs %[1]s/lib
mkdir %[1]s/lib/upper %[1]s/lib/work
mount -t tmpfs -o mode=755,nosuid dev %[1]s/dev
cd %[1]s/dev
mknod -m 666 null c 1 3; mknod -m 666 zero c 1 5; mknod -m 666 full c 1 7; mknod -m 666 random c 1 8; mknod -m 666 urandom c 1 9; mknod -m 666 tty c 5 0
mkdir pts shm dri; mount --rbind /dev/pts pts; mount -t tmpfs tmpfs shm; ln -s pts/ptmx ptmx; ln -s /proc/self/fd fd
%[2]s
mount --rbind %[1]s/dev /dev
mount -t overlay overlay -o lowerdir=/usr/lib,upperdir=%[1]s/lib/upper,workdir=%[1]s/lib/work /usr/lib
mkdir -p /usr/lib/x86_64-linux-gnu; echo driver > /usr/lib/x86_64-linux-gnu/libcuda.so.550.1; ln -sf libcuda.so.550.1 /usr/lib/x86_64-linux-gnu/libcuda.so.1
cd /
`, dir, nodes)
	inner := m.command(append([]string{"exec", "--json"}, args...)...)
	who := ""
	if cred := m.credential(); cred != nil {
		who = fmt.Sprintf("setpriv --reuid=%d --regid=%d --clear-groups ", cred.Uid, cred.Gid)
	}
	c := exec.Command("unshare", append([]string{"-m", "--propagation", "private", "sh", "-c", script + "exec " + who + `"$0" "$@"`}, inner.Args...)...)
	c.Args[7] = filepath.Join(binDir, "skillbox")
	c.Env = append(inner.Env, env...)
	return asEnvelope(t, c)
}

func asEnvelope(t *testing.T, c *exec.Cmd) *helper.Result {
	t.Helper()
	r, err := envelope(c)
	if err != nil {
		t.Fatal(err)
	}
	return r
}

const gpus = "version: 1\ndevices: {gpus: all}\n"

func TestGPUsAreShownWhereThePolicyGrantsThem(t *testing.T) {
	if os.Getuid() != 0 {
		needs(t, "root", errors.New("device nodes are root's to make"))
	}
	// 195 is the number of nvidia's driver, which is not here: its nodes are there and lead nowhere.
	const nodes = "mknod -m 666 nvidia0 c 195 0; mknod -m 666 nvidiactl c 195 255; mknod -m 666 dri/renderD128 c 226 128; mknod -m 666 dri/card0 c 226 0; mknod -m 666 nvidia-other c 195 9"
	asRootAndRootless(t, func(t *testing.T, m mode) {
		bundle := m.sharedBundle(t)
		all := []string{"/dev/nvidia0", "/dev/nvidiactl", "/dev/dri/renderD128", "/dev/dri/card0", "/dev/nvidia-other", "/gpu/libcuda.so.1", "/usr/lib/x86_64-linux-gnu/libcuda.so.1"}
		look := append([]string{bundle, "--", "/skill/probe", "look"}, all...)
		policy := []string{"--policy", m.file(t, "policy.yaml", gpus)}

		r := m.withDevices(t, nodes, nil, append(policy, look...)...)
		got := lookedOf(t, r)
		for path, want := range map[string]string{
			"/dev/nvidia0": "Dcrw-rw-rw-", "/dev/nvidiactl": "Dcrw-rw-rw-", "/dev/dri/renderD128": "Dcrw-rw-rw-", "/dev/dri/card0": "ENOENT", "/dev/nvidia-other": "ENOENT",
			"/usr/lib/x86_64-linux-gnu/libcuda.so.1": "-> libcuda.so.550.1", "/gpu/libcuda.so.1": "ENOENT",
		} {
			if !strings.Contains(got.Paths[path], want) {
				t.Errorf("%s is %q, want %q", path, got.Paths[path], want)
			}
		}
		if !strings.HasPrefix(r.Sandbox.Layers["devices"], "3 nodes") {
			t.Errorf("layers: %q", r.Sandbox.Layers)
		}
		// It is that device and no file: nobody answers at its number.
		r = m.withDevices(t, nodes, nil, append(policy, bundle, "--", "/skill/probe", "open", "/dev/nvidia0", "/dev/nvidiactl")...)
		if !strings.Contains(r.Stdout, "ENXIO") && !strings.Contains(r.Stdout, "ENODEV") {
			t.Errorf("opened: %s", r.Stdout)
		}
		if got := lookedOf(t, m.withDevices(t, nodes, nil, look...)).Paths["/dev/nvidia0"]; got != "ENOENT" {
			t.Errorf("without a policy /dev/nvidia0 is %q", got)
		}
		// An image brings no driver: its libraries come along.
		w := newEngineWorld(t, m)
		manifest := w.file(t, "m.toml", dockerSkill("entrypoint = \"ffmpeg\"\ngpus = \"all\""))
		asked := []string{"--manifest", manifest, "s", "--", "look", "/dev/nvidia0", "/gpu/libcuda.so.1", "/gpu/libcuda.so.550.1"}
		got = lookedOf(t, m.withDevices(t, nodes, w.env, append(policy, asked...)...))
		if !strings.HasPrefix(got.Paths["/dev/nvidia0"], "Dcrw") || !strings.Contains(got.Paths["/gpu/libcuda.so.1"], "driver") || !strings.Contains(got.Paths["/gpu/libcuda.so.550.1"], "driver") ||
			!slices.Contains(got.Env, "LD_LIBRARY_PATH=/gpu") {
			t.Errorf("in an image: %q, %q", got.Paths, got.Env)
		}
		if r := m.withDevices(t, nodes, w.env, append([]string{}, asked...)...); r.ExitCode != helper.CodeFailed || !strings.Contains(r.Error.Error(), "no policy grants them") {
			t.Errorf("an image's GPUs without a policy: %v", r.Error)
		}
		for nodes, why := range map[string]string{
			"true": "there is no GPU on this host", "ln -s null nvidia0": "/dev/nvidia0 is not the device", "mknod -m 666 nvidia0 c 1 3": "/dev/nvidia0 is not the device",
			"mknod -m 666 nvidia0 b 195 0": "/dev/nvidia0 is not the device", "mknod -m 666 nvidia-uvm c 1 3": "/dev/nvidia-uvm is not the device", "echo > kfd": "/dev/kfd is not the device",
		} {
			r := m.withDevices(t, nodes, nil, append(policy, look...)...)
			if r.ExitCode != helper.CodeFailed || !strings.Contains(r.Error.Error(), why) || !strings.Contains(r.Error.Error(), "devices.gpus") {
				t.Errorf("%s: %s, %v; want %s", nodes, r.Verdict, r.Error, why)
			}
		}
	})
}
