package doctor

import (
	"fmt"
	"slices"
	"strings"

	"golang.org/x/sys/unix"

	"skillbox/helper"
)

// Judge says what the facts mean for skillbox, in the order in which remedies should be followed. Checks that do not concern this
// user's mode are left out.
func Judge(f *Facts) []Finding {
	var found []Finding
	for _, check := range []func(*Facts) []Finding{
		kernel, systemCalls, filters, capabilities, namespaceCounts, userNamespaces, namespaces, procMount, mounts, idMappers, idBlock,
		programs, idMapped, resourceLimits, controlGroups, hostFile, box, boxLimits, egress, service, system,
	} {
		found = append(found, check(f)...)
	}
	return found
}

func good(name, need, format string, a ...any) []Finding {
	return []Finding{{Name: name, Status: OK, Detail: fmt.Sprintf(format, a...), Need: need}}
}

func warn(name, need, remedy, format string, a ...any) []Finding {
	return []Finding{{Name: name, Status: Warn, Detail: fmt.Sprintf(format, a...), Remedy: remedy, Need: need}}
}

func fail(name, need, remedy, format string, a ...any) []Finding {
	return []Finding{{Name: name, Status: Fail, Detail: fmt.Sprintf(format, a...), Remedy: remedy, Need: need}}
}

// OldestKernel is the one that skillbox needs, by mode: mount_setattr(2) came with 5.12, overlay mounts on idmapped ones, which root's bundles are,
// with 5.19.
var OldestKernel = map[string][2]int{modeRoot: {5, 19}, modeRootless: {5, 12}}

func kernel(f *Facts) []Finding {
	const name, need = "kernel", "the file tree of every box"
	var major, minor int
	if _, err := fmt.Sscanf(f.Release, "%d.%d", &major, &minor); err != nil {
		return warn(name, need, "see that uname -r is 5.12 or later", "%q is no version that doctor can read", f.Release)
	}
	least := OldestKernel[f.mode()]
	if major < least[0] || (major == least[0] && minor < least[1]) {
		return fail(name, need, fmt.Sprintf("install a kernel from %d.%d on", least[0], least[1]), "Linux %s is too old: mode %s needs %d.%d", f.Release, f.mode(), least[0], least[1])
	}
	return good(name, need, "Linux %s, %s", f.Release, f.Machine)
}

// callSince is the kernel that brought each call.
var callSince = map[string]string{
	"openat2": "5.6", "close_range": "5.9", "pidfd_open": "5.3", "open_tree": "5.2", "move_mount": "5.2", "fsopen": "5.2", "fsmount": "5.2", "mount_setattr": "5.12",
}

func systemCalls(f *Facts) []Finding {
	const name, need = "system calls", "mounting by descriptor, opening paths of strangers"
	var all, missing, blocked []string
	for call := range callSince {
		all = append(all, call)
		switch f.Calls[call] {
		case unix.ENOSYS:
			missing = append(missing, fmt.Sprintf("%s (Linux %s)", call, callSince[call]))
		case unix.EPERM:
			// These arguments need no privilege, so a seccomp filter says so; or, with fsopen and its kin, missing capabilities.
			if f.Seccomp && !slices.Contains([]string{"open_tree", "move_mount", "fsopen", "fsmount", "mount_setattr"}, call) {
				blocked = append(blocked, call)
			}
		}
	}
	slices.Sort(all)
	slices.Sort(missing)
	slices.Sort(blocked)
	switch {
	case len(missing) > 0 && f.Seccomp:
		return fail(name, need, engineRemedy(f), "not answered here, by the kernel or by a seccomp filter: %s", strings.Join(missing, ", "))
	case len(missing) > 0:
		return fail(name, need, "install a newer kernel", "this kernel lacks %s", strings.Join(missing, ", "))
	case len(blocked) > 0:
		return fail(name, need, engineRemedy(f), "a seccomp filter refuses %s", strings.Join(blocked, ", "))
	}
	return good(name, need, "%s", strings.Join(all, ", "))
}

func filters(f *Facts) []Finding {
	const name, need = "seccomp", "the box's system-call filter and its list of denied calls"
	t := f.Tries["seccomp"]
	switch {
	case t.worked():
		return good(name, need, "filter on all threads with user notification")
	case t.Errno == unix.EBUSY:
		return warn(name, need, engineRemedy(f), "filters work, but one with a listener is already on this process: denied calls cannot be reported (%v)", t)
	case t.Errno == unix.EINVAL || t.Errno == unix.ENOSYS:
		return fail(name, need, "install a kernel from 5.7 on with CONFIG_SECCOMP_FILTER=y", "no user notification (%v)", t)
	}
	return fail(name, need, engineRemedy(f), "%v", t)
}

func capabilities(f *Facts) []Finding {
	if f.mode() != modeRoot {
		return nil // nobody else needs any
	}
	const name, need = "capabilities", "namespaces, mounts, ids of root's boxes"
	missing := helper.RootLacks(f.CapEff)
	if len(missing) == 0 {
		return good(name, need, "root has CAP_SYS_ADMIN and the rest")
	}
	remedy := "run skillbox as an ordinary user, who needs none: setpriv --reuid 1000 --regid 1000 --clear-groups skillbox …"
	if f.contained() {
		remedy += "\nor " + engineRemedy(f)
	}
	return fail(name, need, remedy, "root here lacks %s", strings.Join(missing, ", "))
}

// namespaceCounts looks at the limits of namespaces(7); a box uses one of each, and rootless two user namespaces.
func namespaceCounts(f *Facts) []Finding {
	const name, need = "namespace limits", "one of each kind per box"
	var none, few, lines []string
	for _, kind := range []string{"user", "mnt", "pid", "net", "ipc", "uts", "cgroup"} {
		key := "user.max_" + kind + "_namespaces"
		n, known := f.Sysctls[key]
		switch {
		case !known || n >= 64:
			continue
		case n < 2:
			none = append(none, fmt.Sprintf("%s is %d", key, n))
		default:
			few = append(few, fmt.Sprintf("%s is %d", key, n))
		}
		lines = append(lines, fmt.Sprintf("echo %s=15000 | sudo tee -a /etc/sysctl.d/60-skillbox.conf", key))
	}
	remedy := strings.Join(append(lines, "sudo sysctl --system"), "\n")
	switch {
	case len(none) > 0:
		return fail(name, need, remedy, "%s", strings.Join(append(none, few...), ", "))
	case len(few) > 0:
		return warn(name, need, remedy, "%s: few boxes can run at a time", strings.Join(few, ", "))
	}
	return good(name, need, "user.max_*_namespaces leave room")
}

// resourceLimits compares with what a default policy asks for.
func resourceLimits(f *Facts) []Finding {
	const name, need = "resource limits", "resources.open_files and pids of a policy"
	if n, known := f.Limits["RLIMIT_NOFILE"]; known && n < 256 {
		return warn(name, need, "ulimit -Hn 4096", "the hard limit of open files is %d, a box gets 256 by default", n)
	}
	if n, known := f.Limits["RLIMIT_NPROC"]; known && f.UID != 0 && n < 128 {
		return warn(name, need, "ulimit -Hu 4096", "the hard limit of processes is %d for all of this user's processes together", n)
	}
	return good(name, need, "hard limits leave room")
}
