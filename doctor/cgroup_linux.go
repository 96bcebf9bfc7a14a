package doctor

import (
	"os"
	"path/filepath"
	"strings"

	"golang.org/x/sys/unix"
)

const cgroupRoot = "/sys/fs/cgroup"

func (f *Facts) lookAtCgroup() {
	text, err := os.ReadFile("/proc/self/cgroup")
	if err != nil {
		f.Cgroup.Kind = "none"
		return
	}
	var fs unix.Statfs_t
	mounted := unix.Statfs(cgroupRoot, &fs) == nil && fs.Type == unix.CGROUP2_SUPER_MAGIC
	f.Cgroup.Kind, f.Cgroup.Path = cgroupKind(string(text), mounted)
	if f.Cgroup.Kind != "unified" {
		return
	}
	f.Cgroup.Dir = cgroupRoot
	if f.UID != 0 {
		f.Cgroup.Dir, f.Cgroup.UserManager = delegated(f.Cgroup.Path)
	}
	controllers, err := os.ReadFile(filepath.Join(f.Cgroup.Dir, "cgroup.controllers"))
	if err == nil {
		f.Cgroup.Controllers = strings.Fields(string(controllers))
	}
	f.Cgroup.Write = tryGroup(f.Cgroup.Dir)
}

// cgroupKind reads /proc/self/cgroup, see cgroups(7): a line for each v1 hierarchy, and 0:: for v2.
func cgroupKind(text string, unified bool) (kind, path string) {
	v1, v2 := false, false
	for line := range strings.Lines(text) {
		if p, ok := strings.CutPrefix(strings.TrimSpace(line), "0::"); ok {
			v2, path = true, p
		} else if strings.TrimSpace(line) != "" {
			v1 = true
		}
	}
	switch {
	case unified && v2:
		return "unified", path
	case v1 && v2:
		return "hybrid", path
	case v1:
		return "v1", ""
	}
	return "none", path
}

// delegated is the directory that a user's systemd manages, see user@.service(5), or else our own group's.
func delegated(path string) (dir string, manager bool) {
	parts := strings.Split(path, "/")
	for i, part := range parts {
		if strings.HasPrefix(part, "user@") && strings.HasSuffix(part, ".service") {
			return filepath.Join(cgroupRoot, filepath.Join(parts[:i+1]...)), true
		}
	}
	// A login session is beside the manager, not below it.
	for i, part := range parts {
		if uid, ok := strings.CutPrefix(part, "user-"); ok {
			dir := filepath.Join(cgroupRoot, filepath.Join(parts[:i+1]...), "user@"+strings.TrimSuffix(uid, ".slice")+".service")
			if _, err := os.Stat(dir); err == nil {
				return dir, true
			}
		}
	}
	return filepath.Join(cgroupRoot, path), false
}

// tryGroup makes an empty group and removes it.
func tryGroup(dir string) Try {
	group, err := os.MkdirTemp(dir, "skillbox-doctor-")
	if err != nil {
		return outcome(at("make a group", err))
	}
	return outcome(at("remove a group", os.Remove(group)))
}
