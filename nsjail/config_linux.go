package nsjail

import (
	"fmt"

	"github.com/opencontainers/cgroups"
	"github.com/opencontainers/runc/libcontainer/configs"
	"github.com/opencontainers/runtime-spec/specs-go"
	"golang.org/x/sys/unix"
)

var namespaceTypes = map[specs.LinuxNamespaceType]configs.NamespaceType{
	specs.UserNamespace:    configs.NEWUSER,
	specs.MountNamespace:   configs.NEWNS,
	specs.PIDNamespace:     configs.NEWPID,
	specs.NetworkNamespace: configs.NEWNET,
	specs.IPCNamespace:     configs.NEWIPC,
	specs.UTSNamespace:     configs.NEWUTS,
	specs.CgroupNamespace:  configs.NEWCGROUP,
}

var rlimitTypes = map[string]int{
	"RLIMIT_CORE":       unix.RLIMIT_CORE,
	"RLIMIT_CPU":        unix.RLIMIT_CPU,
	"RLIMIT_DATA":       unix.RLIMIT_DATA,
	"RLIMIT_FSIZE":      unix.RLIMIT_FSIZE,
	"RLIMIT_MEMLOCK":    unix.RLIMIT_MEMLOCK,
	"RLIMIT_MSGQUEUE":   unix.RLIMIT_MSGQUEUE,
	"RLIMIT_NOFILE":     unix.RLIMIT_NOFILE,
	"RLIMIT_NPROC":      unix.RLIMIT_NPROC,
	"RLIMIT_SIGPENDING": unix.RLIMIT_SIGPENDING,
}

// config turns the OCI words into libcontainer's.
func config(id string, s *specs.Spec) (*configs.Config, error) {
	if s.Linux == nil || s.Process == nil || s.Root == nil {
		return nil, fmt.Errorf("nsjail: the spec lacks root, process or linux")
	}
	if s.Linux.Seccomp != nil || s.Hooks != nil || s.Process.Terminal || s.Process.Capabilities != nil {
		return nil, fmt.Errorf("nsjail: seccomp, hooks, terminal and capabilities are not libcontainer's business here")
	}
	c := &configs.Config{
		Rootfs:          s.Root.Path,
		Hostname:        s.Hostname,
		RootPropagation: unix.MS_PRIVATE | unix.MS_REC,
		Capabilities:    &configs.Capabilities{},
		NoNewPrivileges: true,
		NoNewKeyring:    true, // a keyring per box would be charged to the caller's quota; keyrings are closed by seccomp
		MaskPaths:       s.Linux.MaskedPaths,
		ReadonlyPaths:   s.Linux.ReadonlyPaths,
		Sysctl:          s.Linux.Sysctl,
		UIDMappings:     idMaps(s.Linux.UIDMappings),
		GIDMappings:     idMaps(s.Linux.GIDMappings),
		RootlessCgroups: true,
		Cgroups:         group(id, s.Linux.CgroupsPath),
	}
	for _, ns := range s.Linux.Namespaces {
		kind, ok := namespaceTypes[ns.Type]
		if !ok {
			return nil, fmt.Errorf("nsjail: unknown namespace %q", ns.Type)
		}
		c.Namespaces = append(c.Namespaces, configs.Namespace{Type: kind, Path: ns.Path})
	}
	for _, m := range s.Mounts {
		if m.Type != "proc" || m.Destination != "/proc" {
			return nil, fmt.Errorf("nsjail: %s: only /proc is mounted here; the rest of the tree is package rootfs's", m.Destination)
		}
		c.Mounts = append(c.Mounts, &configs.Mount{Source: "proc", Device: "proc", Destination: "/proc", Flags: unix.MS_NOSUID | unix.MS_NODEV | unix.MS_NOEXEC})
	}
	for _, r := range s.Process.Rlimits {
		kind, ok := rlimitTypes[r.Type]
		if !ok {
			return nil, fmt.Errorf("nsjail: unknown resource limit %q", r.Type)
		}
		if kind == unix.RLIMIT_NOFILE {
			continue // init lowers it for the skill, see boxinit.Setup
		}
		c.Rlimits = append(c.Rlimits, configs.Rlimit{Type: kind, Hard: r.Hard, Soft: r.Soft})
	}
	return c, nil
}

// openFiles is the skill's limit.
func openFiles(s *specs.Spec) (uint64, error) {
	for _, r := range s.Process.Rlimits {
		if r.Type == "RLIMIT_NOFILE" {
			return r.Hard, nil
		}
	}
	return 0, fmt.Errorf("nsjail: the spec lacks RLIMIT_NOFILE")
}

// group is the cgroup that init is moved to before it has done anything. Its limits are package cgroup's business. Without one,
// libcontainer is to leave cgroups alone, which it does where it has no limits to set and /sys/fs/cgroup cannot be written.
func group(id, path string) *cgroups.Cgroup {
	c := &cgroups.Cgroup{Path: path, Rootless: true, Resources: &cgroups.Resources{}}
	if path == "" {
		c.Name, c.Parent = id, "skillbox"
	}
	return c
}

func idMaps(from []specs.LinuxIDMapping) []configs.IDMap {
	maps := make([]configs.IDMap, len(from))
	for i, m := range from {
		maps[i] = configs.IDMap{ContainerID: int64(m.ContainerID), HostID: int64(m.HostID), Size: int64(m.Size)}
	}
	return maps
}
