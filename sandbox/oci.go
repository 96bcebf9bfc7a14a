package sandbox

import (
	"github.com/opencontainers/runtime-spec/specs-go"

	"skillbox/boxinit"
	"skillbox/policy"
)

const (
	initPath = boxinit.Path
	// initThreads are init's own, which RLIMIT_NPROC counts with the skill's.
	initThreads = 16
)

// limitedPerUser are the counts that a user namespace limits for all processes in it, see namespaces(7) and inotify(7). The
// zeros close the way to a second set of namespaces even if the seccomp filter had a hole.
var limitedPerUser = map[string]string{
	"user.max_user_namespaces":   "0",
	"user.max_mnt_namespaces":    "0",
	"user.max_pid_namespaces":    "0",
	"user.max_net_namespaces":    "0",
	"user.max_ipc_namespaces":    "0",
	"user.max_uts_namespaces":    "0",
	"user.max_cgroup_namespaces": "0",
	"user.max_time_namespaces":   "0",
	// Both are counted for the creator of the user namespace too, whose own are 128 (fs.inotify.max_user_instances).
	"user.max_inotify_instances": "4",
	"user.max_inotify_watches":   "4096",
}

// masked are files of /proc that tell about other users of the host or act on it: keyrings of the caller's uid, the kernel's command
// line, timing of interrupts. What only describes the machine is left, as every mask is a mount at each start.
var masked = []string{
	"/proc/acpi", "/proc/asound", "/proc/cmdline", "/proc/interrupts", "/proc/kcore", "/proc/key-users", "/proc/keys", "/proc/latency_stats",
	"/proc/sched_debug", "/proc/scsi", "/proc/timer_list", "/proc/timer_stats",
}

var unwritable = []string{"/proc/bus", "/proc/fs", "/proc/irq", "/proc/sys", "/proc/sysrq-trigger", "/dev"}

// oci is the spec that libcontainer runs. The tree is built beforehand (package rootfs), so /proc is its only mount.
func oci(h *Host, p *policy.Policy, w Watched) *specs.Spec {
	uids, gids := h.IDs.mappings()
	return &specs.Spec{
		Version: specs.Version,
		Root:    &specs.Root{Path: "", Readonly: true},
		Mounts:  []specs.Mount{{Destination: "/proc", Type: "proc", Source: "proc", Options: []string{"nosuid", "nodev", "noexec"}}},
		Process: &specs.Process{
			User:            specs.User{UID: uint32(h.IDs.BoxUID), GID: uint32(h.IDs.BoxGID)},
			Args:            []string{initPath},
			Cwd:             "/",
			NoNewPrivileges: true,
			Rlimits:         rlimits(h, p, w),
		},
		Linux: &specs.Linux{
			Namespaces: []specs.LinuxNamespace{
				{Type: specs.UserNamespace},
				{Type: specs.MountNamespace},
				{Type: specs.PIDNamespace},
				{Type: specs.NetworkNamespace},
				{Type: specs.IPCNamespace},
				{Type: specs.UTSNamespace},
				{Type: specs.CgroupNamespace},
			},
			UIDMappings:   uids,
			GIDMappings:   gids,
			Sysctl:        limitedPerUser,
			MaskedPaths:   masked,
			ReadonlyPaths: unwritable,
		},
	}
}

// mappings are those of the box's user namespace.
func (ids IDs) mappings() (uids, gids []specs.LinuxIDMapping) {
	return mappings(ids.RootUID, ids.SkillUID, ids.Single), mappings(ids.RootGID, ids.SkillGID, ids.Single)
}

func mappings(root, skill int, single bool) []specs.LinuxIDMapping {
	if single {
		return []specs.LinuxIDMapping{{ContainerID: 0, HostID: uint32(skill), Size: 1}}
	}
	return []specs.LinuxIDMapping{{ContainerID: 0, HostID: uint32(root), Size: 1}, {ContainerID: skillID, HostID: uint32(skill), Size: 1}}
}
