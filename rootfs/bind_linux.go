package rootfs

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"

	"golang.org/x/sys/unix"
)

// mountInit shows init's binary, read-only, so that opening it for writing through any /proc/<pid>/exe answers EROFS.
func (t *Tree) mountInit(s *Spec) error {
	dir, err := unix.Open(filepath.Dir(s.Init), unix.O_PATH|unix.O_DIRECTORY|unix.O_CLOEXEC, 0)
	if err != nil {
		return fmt.Errorf("rootfs: open %s: %w", filepath.Dir(s.Init), err)
	}
	defer unix.Close(dir)
	lower, err := cloneTree(dir)
	if err != nil {
		return fmt.Errorf("rootfs: clone %s: %w", filepath.Dir(s.Init), err)
	}
	view, err := t.layered("init", lower, nil)
	if err != nil {
		return err
	}
	defer unix.Close(view)
	file, err := unix.Openat(view, filepath.Base(s.Init), unix.O_PATH|unix.O_NOFOLLOW|unix.O_CLOEXEC, 0)
	if err != nil {
		return fmt.Errorf("rootfs: open %s: %w", s.Init, err)
	}
	defer unix.Close(file)
	if err := checkInit(s, file); err != nil {
		return err
	}
	mount, err := cloneTree(file)
	if err != nil {
		return fmt.Errorf("rootfs: clone %s: %w", s.Init, err)
	}
	defer unix.Close(mount)
	return attach(mount, t.root, strings.TrimPrefix(s.InitPath, "/"))
}

func checkInit(s *Spec, file int) error {
	var st unix.Stat_t
	if err := unix.Fstat(file, &st); err != nil {
		return fmt.Errorf("rootfs: stat %s: %w", s.Init, err)
	}
	if st.Mode&unix.S_IFMT != unix.S_IFREG || st.Mode&0o111 == 0 {
		return fmt.Errorf("rootfs: %s is not an executable file", s.Init)
	}
	if st.Mode&0o001 == 0 && int(st.Uid) != s.Owner.SkillUID {
		return fmt.Errorf("rootfs: %s must be executable by everybody (chmod 0755): the sandbox's user runs it", s.Init)
	}
	return nil
}

// layered returns an attached overlay on a detached mount, which it closes: read-only, or with an upper layer on a tmpfs. A bind
// mount would tell the skill the path on the host (/proc/self/mountinfo), let it lock the host's inodes and watch the host work on
// them; an overlay has inodes of its own.
func (t *Tree) layered(name string, lower int, upper *Spec) (int, error) {
	defer unix.Close(lower)
	base := filepath.Join(t.dir, name)
	dirs := map[string]string{}
	if err := os.Mkdir(base, 0o711); err != nil {
		return -1, fmt.Errorf("rootfs: %w", err)
	}
	for _, d := range []string{"lower", "layer", "view"} {
		dirs[d] = filepath.Join(base, d)
		if err := os.Mkdir(dirs[d], 0o755); err != nil {
			return -1, fmt.Errorf("rootfs: %w", err)
		}
	}
	if err := attach(lower, unix.AT_FDCWD, dirs["lower"]); err != nil {
		return -1, err
	}
	t.mounted = append(t.mounted, dirs["lower"])
	settings := []setting{{"source", "skillbox"}, {"lowerdir", dirs["lower"] + ":" + dirs["layer"]}}
	attributes := readOnly
	if upper != nil {
		if err := t.upperLayer(upper, dirs["layer"]); err != nil {
			return -1, err
		}
		// userxattr: overlay's own marks must be in user.*, which a user namespace may write (Linux 5.11).
		settings = []setting{settings[0], {"lowerdir", dirs["lower"]}, {"upperdir", dirs["layer"] + "/upper"}, {"workdir", dirs["layer"] + "/work"}, {"userxattr", ""}}
		attributes &^= unix.MOUNT_ATTR_RDONLY
	}
	view, err := newFilesystem("overlay", attributes, settings...)
	if err != nil {
		return -1, err
	}
	if err := attach(view, unix.AT_FDCWD, dirs["view"]); err != nil {
		unix.Close(view)
		return -1, err
	}
	t.mounted = append(t.mounted, dirs["view"])
	return view, nil
}

// upperLayer mounts the tmpfs that takes the skill's changes.
func (t *Tree) upperLayer(s *Spec, dir string) error {
	upper, err := scratch(s, SkillDir, s.TmpSize, "0755")
	if err != nil {
		return err
	}
	defer unix.Close(upper)
	if err := attach(upper, unix.AT_FDCWD, dir); err != nil {
		return err
	}
	t.mounted = append(t.mounted, dir)
	for _, name := range []string{"upper", "work"} {
		fd, err := subdirectory(upper, name, s.Owner.SkillUID, s.Owner.SkillGID, 0o755)
		if err != nil {
			return fmt.Errorf("rootfs: copy-on-write layer: %w", err)
		}
		unix.Close(fd)
	}
	return nil
}

// mountBundle shows the bundle, read-only or below a layer that takes the skill's changes and is thrown away.
func (t *Tree) mountBundle(s *Spec) error {
	lower, err := t.clone(s, s.Bundle)
	if err != nil {
		return err
	}
	upper := s
	if !s.CopyOnWrite {
		upper = nil
	}
	view, err := t.layered("bundle", lower, upper)
	if err != nil {
		return err
	}
	defer unix.Close(view)
	copied, err := cloneTree(view)
	if err != nil {
		return fmt.Errorf("rootfs: clone bundle: %w", err)
	}
	return t.place(copied, s.Bundle.Path, false)
}

// mountBinds shows the policy's files and directories.
func (t *Tree) mountBinds(s *Spec) error {
	for _, b := range s.Binds {
		mount, err := t.clone(s, b)
		if err != nil {
			return err
		}
		var st unix.Stat_t
		if err := unix.Fstat(mount, &st); err != nil {
			unix.Close(mount)
			return fmt.Errorf("rootfs: stat %s: %w", b.Source.Path, err)
		}
		if err := t.place(mount, b.Path, st.Mode&unix.S_IFMT != unix.S_IFDIR); err != nil {
			return err
		}
	}
	return nil
}

func (t *Tree) clone(s *Spec, b Bind) (int, error) {
	userns := -1
	if b.IDMap {
		var err error
		if userns, err = t.mapping(s, b.MapUID, b.MapGID); err != nil {
			return -1, err
		}
	}
	return cloneBind(b, userns)
}

// mapping returns a user namespace in which the owner on disk is the skill. Such a namespace can only be made by a process; ours
// is init's binary, which finds no socket and ends, and is not waited for longer than it takes to open its namespace.
func (t *Tree) mapping(s *Spec, uid, gid int) (int, error) {
	if fd, ok := t.userns[[2]int{uid, gid}]; ok {
		return fd, nil
	}
	process, err := os.StartProcess(s.Init, []string{"idmap"}, &os.ProcAttr{Env: []string{}, Sys: &syscall.SysProcAttr{
		Cloneflags:  unix.CLONE_NEWUSER,
		UidMappings: []syscall.SysProcIDMap{{ContainerID: uid, HostID: s.Owner.SkillUID, Size: 1}},
		GidMappings: []syscall.SysProcIDMap{{ContainerID: gid, HostID: s.Owner.SkillGID, Size: 1}},
	}})
	if err != nil {
		return -1, fmt.Errorf("rootfs: user namespace for idmapped mounts: %w", err)
	}
	fd, err := unix.Open("/proc/"+strconv.Itoa(process.Pid)+"/ns/user", unix.O_RDONLY|unix.O_CLOEXEC, 0)
	killErr := process.Kill()
	if errors.Is(killErr, os.ErrProcessDone) {
		killErr = nil
	}
	_, waitErr := process.Wait()
	if err := errors.Join(err, killErr, waitErr); err != nil {
		return -1, fmt.Errorf("rootfs: user namespace for idmapped mounts: %w", err)
	}
	if t.userns == nil {
		t.userns = map[[2]int]int{}
	}
	t.userns[[2]int{uid, gid}] = fd
	return fd, nil
}

// seal makes the root itself read-only; what is mounted on it keeps its own attributes.
func (t *Tree) seal(*Spec) error {
	attr := unix.MountAttr{Attr_set: unix.MOUNT_ATTR_RDONLY}
	if err := unix.MountSetattr(t.root, "", unix.AT_EMPTY_PATH, &attr); err != nil {
		return fmt.Errorf("rootfs: make / read-only: %w", err)
	}
	return nil
}

// Close unmounts the tree from the caller's namespace and closes what was kept. A box that still runs keeps its own copy.
func (t *Tree) Close() error {
	var errs []error
	for _, fd := range []int{t.root, t.inputs, t.secrets, t.params} {
		if fd >= 0 {
			errs = append(errs, unix.Close(fd))
		}
	}
	for _, fd := range t.userns {
		errs = append(errs, unix.Close(fd))
	}
	for _, f := range []*os.File{t.Output, t.Result} {
		if f != nil {
			errs = append(errs, f.Close())
		}
	}
	for _, path := range slices.Backward(t.mounted) {
		if err := unix.Unmount(path, unix.MNT_DETACH); err != nil {
			errs = append(errs, fmt.Errorf("rootfs: unmount %s: %w", path, err))
		}
	}
	t.root, t.inputs, t.secrets, t.params, t.userns, t.Output, t.Result, t.mounted = -1, -1, -1, -1, nil, nil, nil, nil
	return errors.Join(errs...)
}
