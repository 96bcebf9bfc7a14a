package server

import (
	"fmt"
	"os"
	"slices"

	"golang.org/x/sys/unix"

	"skillbox/cgroup"
	"skillbox/policy"
	"skillbox/rootfs"
	"skillbox/sandbox"
)

// identify opens the plan's host paths once and remembers which inodes they are.
func identify(dir *os.File, p *policy.Policy, log auditPlace, ways []string, images string) (sandbox.Sources, error) {
	var s sandbox.Sources
	var err error
	if s.Bundle, err = source(int(dir.Fd())); err != nil {
		return s, err
	}
	if err := identifyImage(&s, p, images); err != nil {
		return s, err
	}
	lists := map[string][]policy.Bind{"filesystem.read": p.Filesystem.Read, "filesystem.write": p.Filesystem.Write}
	seen := map[[2]uint64]string{}
	kept := lead(ways, len(p.Filesystem.Read)+len(p.Filesystem.Write))
	for _, field := range []string{"filesystem.read", "filesystem.write"} {
		for i, bind := range lists[field] {
			at := fmt.Sprintf("%s[%d].host", field, i)
			found, err := identifyBind(bind.Host)
			if err != nil {
				return s, &sandbox.Refusal{
					Field: at, Message: fmt.Sprintf("%s: %v", bind.Host, err), Position: p.Position(at),
					Hint: "name an existing path without symbolic links in it",
				}
			}
			if what := log.reachedBy(field, bind.Host, found); what != "" {
				return s, &sandbox.Refusal{
					Field: at, Message: what + ", and a skill may not write to it", Position: p.Position(at),
					Hint: "give the skill a directory of its own",
				}
			}
			if what := kept.has(field, bind.Host, found); what != "" {
				return s, &sandbox.Refusal{
					Field: at, Message: fmt.Sprintf("%s %s this policy file itself", bind.Host, what), Position: p.Position(at), Hint: "keep the policy or the manifest elsewhere",
				}
			}
			if why := handsOut(field, bind); why != "" {
				return s, &sandbox.Refusal{
					Field: at, Message: why + ", which programs outside obey", Position: p.Position(at),
					Hint: "give the skill a directory of its own; if it is meant, add dangerous: true to the bind",
				}
			}
			if other, ok := seen[[2]uint64{found.Dev, found.Ino}]; ok && field == "filesystem.write" {
				return s, &sandbox.Refusal{Field: at, Message: fmt.Sprintf("%s is the same file or directory as %s", bind.Host, other), Position: p.Position(at)}
			}
			seen[[2]uint64{found.Dev, found.Ino}] = bind.Host
			s.Binds = append(s.Binds, found)
		}
	}
	if p.Devices.GPUs == "all" {
		if s.GPU, err = rootfs.FindGPU(); err != nil {
			return s, &sandbox.Refusal{Field: "devices.gpus", Message: err.Error(), Position: p.Position("devices.gpus"), Hint: "install the driver, or run the skill without"}
		}
	}
	if p.Resources.IORead > 0 || p.Resources.IOWrite > 0 {
		err = findDisks(&s)
	}
	return s, err
}

// inMemory says of a path that reading it reads no disk.
func inMemory(path string) bool {
	var fs unix.Statfs_t
	return unix.Statfs(path, &fs) == nil && (fs.Type == unix.TMPFS_MAGIC || fs.Type == unix.RAMFS_MAGIC)
}

// findDisks notes the disks behind everything of the host's that the skill can read: its files, and the system below it.
func findDisks(s *sandbox.Sources) error {
	all := append([]sandbox.Source{s.Bundle}, s.Binds...)
	if s.Image != nil {
		all = append(all, s.Root)
	} else {
		var st unix.Stat_t
		if err := unix.Stat("/usr", &st); err != nil {
			return fmt.Errorf("server: /usr: %w", err)
		}
		all = append(all, sandbox.Source{Source: rootfs.Source{Path: "/usr", Dev: st.Dev}})
	}
	for _, source := range all {
		disk, ok, err := cgroup.DiskOf(source.Dev)
		switch {
		case err != nil:
			return err
		case !ok && inMemory(source.Path):
		case !ok:
			s.Diskless = append(s.Diskless, source.Path)
		case !slices.Contains(s.Disks, disk):
			s.Disks = append(s.Disks, disk)
		}
	}
	return nil
}

func identifyBind(path string) (sandbox.Source, error) {
	fd, err := unix.Openat2(unix.AT_FDCWD, path, &unix.OpenHow{
		Flags: unix.O_PATH | unix.O_CLOEXEC, Resolve: unix.RESOLVE_NO_SYMLINKS | unix.RESOLVE_NO_MAGICLINKS,
	})
	if err != nil {
		return sandbox.Source{}, err
	}
	defer unix.Close(fd)
	return source(fd)
}

func source(fd int) (sandbox.Source, error) {
	found, err := rootfs.SourceOf(fd)
	if err != nil {
		return sandbox.Source{}, err
	}
	var st unix.Stat_t
	if err := unix.Fstat(fd, &st); err != nil {
		return sandbox.Source{}, err
	}
	return sandbox.Source{Source: found, UID: int(st.Uid), GID: int(st.Gid)}, nil
}
