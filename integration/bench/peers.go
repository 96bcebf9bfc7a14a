package main

import (
	"encoding/json"
	"errors"
	"os"
	"path/filepath"
	"strings"

	"github.com/opencontainers/runtime-spec/specs-go"
)

// The peers' mounts: those that skillbox makes for an empty bundle on base host, see package rootfs.
var (
	etc     = []string{"/etc/ssl/certs", "/etc/alternatives", "/etc/fonts"}
	scratch = []string{"/tmp", "/home/skill", "/output", "/run/skillbox/result", "/dev/shm"}
	masked  = []string{
		"/proc/acpi", "/proc/asound", "/proc/cmdline", "/proc/interrupts", "/proc/kcore", "/proc/key-users", "/proc/keys", "/proc/latency_stats",
		"/proc/sched_debug", "/proc/scsi", "/proc/timer_list", "/proc/timer_stats",
	}
	unwritable = []string{"/proc/bus", "/proc/fs", "/proc/irq", "/proc/sys", "/proc/sysrq-trigger"}
)

func shared() (paths []string) {
	java, err := filepath.Glob("/etc/java-*")
	if err != nil {
		return nil
	}
	for _, p := range append(etc, java...) {
		if info, err := os.Stat(p); err == nil && info.IsDir() {
			paths = append(paths, p)
		}
	}
	return paths
}

// ids are the host's for the box's uids 0 and 1000, and which of them the program runs as.
type ids struct{ zero, thousand, user uint32 }

func rootIDs() ids { return ids{zero: 1700000000, thousand: 1700000001, user: 1000} }

// userIDs differs from skillbox's: rootless runc gives its pipes to the container's uid 0, so that must be the caller.
func userIDs() ids {
	caller := uint32(os.Getuid())
	if caller == 0 {
		caller = benchUID
	}
	return ids{zero: caller, thousand: 1600000000, user: 0}
}

// runcBundle writes an OCI bundle with skillbox's namespaces, mounts, masks and identity.
func (w *work) runcBundle(name string, id ids) error {
	dir := filepath.Join(w.dir, name)
	root := filepath.Join(dir, "rootfs")
	points := append([]string{"usr", "proc", "dev", "etc", "run", "skill", "tmp", "home/skill", "output", "run/skillbox/result"}, shared()...)
	for _, p := range points {
		if err := os.MkdirAll(filepath.Join(root, p), 0o755); err != nil {
			return err
		}
	}
	for link, target := range map[string]string{"bin": "usr/bin", "sbin": "usr/sbin", "lib": "usr/lib", "lib64": "usr/lib64"} {
		if err := os.Symlink(target, filepath.Join(root, link)); err != nil {
			return err
		}
	}
	rootless := os.Getuid() != 0 || name == "runc-rootless"
	spec := &specs.Spec{
		Version:  "1.0.2",
		Hostname: "skillbox",
		Root:     &specs.Root{Path: "rootfs", Readonly: true},
		Process: &specs.Process{
			User: specs.User{UID: id.user, GID: id.user}, Args: []string{"/usr/bin/true"}, Env: []string{"PATH=/usr/bin:/bin"}, Cwd: "/skill",
			NoNewPrivileges: true, Capabilities: &specs.LinuxCapabilities{},
			Rlimits: []specs.POSIXRlimit{{Type: "RLIMIT_CORE", Hard: 1, Soft: 1}, {Type: "RLIMIT_NOFILE", Hard: 256, Soft: 256}},
		},
		Mounts: append(w.mounts(), specs.Mount{Destination: "/proc", Type: "proc", Source: "proc", Options: []string{"nosuid", "nodev", "noexec"}}),
		Linux: &specs.Linux{
			UIDMappings: []specs.LinuxIDMapping{{ContainerID: 0, HostID: id.zero, Size: 1}, {ContainerID: 1000, HostID: id.thousand, Size: 1}},
			GIDMappings: []specs.LinuxIDMapping{{ContainerID: 0, HostID: id.zero, Size: 1}, {ContainerID: 1000, HostID: id.thousand, Size: 1}},
			Namespaces: []specs.LinuxNamespace{
				{Type: specs.UserNamespace},
				{Type: specs.MountNamespace},
				{Type: specs.PIDNamespace},
				{Type: specs.NetworkNamespace},
				{Type: specs.IPCNamespace},
				{Type: specs.UTSNamespace},
				{Type: specs.CgroupNamespace},
			},
			MaskedPaths: masked, ReadonlyPaths: unwritable,
		},
	}
	text, err := json.MarshalIndent(spec, "", " ")
	if err != nil {
		return err
	}
	err = os.WriteFile(filepath.Join(dir, "config.json"), text, 0o644)
	if rootless && os.Getuid() == 0 {
		err = errors.Join(err, os.Mkdir(filepath.Join(dir, "state"), 0o700), os.Chown(filepath.Join(dir, "state"), benchUID, benchUID), os.Chown(root, benchUID, benchUID))
	}
	return err
}

func (w *work) mounts() []specs.Mount {
	bind := func(source, target string) specs.Mount {
		return specs.Mount{Destination: target, Type: "bind", Source: source, Options: []string{"rbind", "ro", "nosuid", "nodev"}}
	}
	mounts := []specs.Mount{bind("/usr", "/usr"), bind(w.empty, "/skill")}
	for _, p := range shared() {
		mounts = append(mounts, bind(p, p))
	}
	mounts = append(mounts,
		specs.Mount{Destination: "/dev", Type: "tmpfs", Source: "tmpfs", Options: []string{"nosuid", "noexec", "mode=755", "size=65536"}},
		specs.Mount{Destination: "/dev/pts", Type: "devpts", Source: "devpts", Options: []string{"nosuid", "noexec", "newinstance", "ptmxmode=0666", "mode=0620"}})
	for _, p := range scratch {
		mounts = append(mounts, specs.Mount{Destination: p, Type: "tmpfs", Source: "tmpfs", Options: []string{"nosuid", "nodev", "mode=1777", "size=67108864"}})
	}
	return mounts
}

// bwrap is bubblewrap with the same namespaces and mounts; it has no masks and no resource limits.
func (w *work) bwrap() string {
	args := []string{
		"bwrap", "--unshare-all", "--unshare-user", "--hostname", "skillbox", "--ro-bind", "/usr", "/usr", "--symlink", "usr/bin", "/bin",
		"--symlink", "usr/lib", "/lib", "--symlink", "usr/lib64", "/lib64", "--proc", "/proc", "--dev", "/dev", "--ro-bind", w.empty, "/skill",
	}
	for _, p := range shared() {
		args = append(args, "--ro-bind", p, p)
	}
	for _, p := range scratch {
		args = append(args, "--tmpfs", p)
	}
	return strings.Join(append(args, "--chdir", "/skill", "/usr/bin/true"), " ")
}

// podman runs the directory that runc's bundle has, so that no image is needed, without a network. It takes runc since crun refuses machines
// with both kinds of control groups, and limits that a machine without the highest ones can set. Its state goes away with the work.
func (w *work) podman() string {
	state := filepath.Join(w.dir, "podman")
	return strings.Join([]string{
		"podman", "--root", state + "/root", "--runroot", state + "/run", "--tmpdir", state + "/tmp", "--storage-driver", "vfs", "--runtime", "runc",
		"run", "--rm", "--network", "none", "--read-only", "--ulimit", "nofile=256:256", "--ulimit", "nproc=1000:1000", "--volume", "/usr:/usr:ro",
		"--rootfs", filepath.Join(w.dir, "runc", "rootfs"), "true",
	}, " ")
}
