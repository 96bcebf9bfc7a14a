package rootfs

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"

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
	at := filepath.Join(t.dir, "init", "lower")
	if err := attach(view, unix.AT_FDCWD, at); err != nil {
		return err
	}
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
	if err := attach(mount, t.root, strings.TrimPrefix(s.InitPath, "/")); err != nil {
		return err
	}
	return detach(at)
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

// layered turns a detached mount, which it closes, into a detached overlay: read-only, or with an upper layer on a tmpfs. A bind
// mount would tell the skill the path on the host (/proc/self/mountinfo), let it lock the host's inodes and watch the host work on
// them; an overlay has inodes of its own. The overlay keeps its layers alive, so their mount points are empty again afterwards:
// every mount that stays costs time at each of the box's clones of the namespace.
func (t *Tree) layered(name string, lower int, upper *Spec) (int, error) {
	defer unix.Close(lower)
	dirs := map[string]string{}
	for _, d := range []string{"", "lower", "layer"} {
		dirs[d] = filepath.Join(t.dir, name, d)
		if err := os.Mkdir(dirs[d], 0o755); err != nil {
			return -1, fmt.Errorf("rootfs: %w", err)
		}
	}
	if err := attach(lower, unix.AT_FDCWD, dirs["lower"]); err != nil {
		return -1, err
	}
	settings := []setting{{"source", "overlay"}, {"lowerdir", dirs["lower"] + ":" + dirs["layer"]}}
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
	if upper != nil {
		err = detach(dirs["layer"])
	}
	if err := errors.Join(err, detach(dirs["lower"])); err != nil {
		unix.Close(view)
		return -1, err
	}
	return view, nil
}

func detach(path string) error {
	if err := unix.Unmount(path, unix.MNT_DETACH); err != nil {
		return fmt.Errorf("rootfs: unmount %s: %w", path, err)
	}
	return nil
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
	for _, name := range []string{"upper", "work"} {
		fd, err := subdirectory(upper, name, s.Owner.SkillUID, s.Owner.SkillGID, 0o755)
		if err != nil {
			return fmt.Errorf("rootfs: copy-on-write layer: %w", err)
		}
		if name == "upper" {
			t.Changed = os.NewFile(uintptr(fd), "the bundle's upper layer")
			continue
		}
		unix.Close(fd)
	}
	return nil
}

// mountBundle shows the bundle, read-only or below a layer that takes the skill's changes and is thrown away.
func (t *Tree) mountBundle(s *Spec) error {
	lower, err := t.clone(s.Bundle)
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
	if err := t.place(view, s.Bundle.Path, false); err != nil || s.BundleAt == "" {
		return err
	}
	// What is cloned is the mount where it is now: kernels before 6.15 clone none that is detached.
	shown, err := t.open(s.Bundle.Path)
	if err != nil {
		return err
	}
	defer shown.Close()
	second, err := cloneTree(int(shown.Fd()))
	if err != nil {
		return fmt.Errorf("rootfs: clone the bundle for %s: %w", s.BundleAt, err)
	}
	if below, ok := strings.CutPrefix(s.BundleAt, HomeDir+"/"); ok {
		return t.placeInHome(second, below, s)
	}
	return t.place(second, s.BundleAt, false)
}

// placeInHome attaches a detached mount below the home directory, which is the skill's, and closes its descriptor. Nothing of the skill's runs
// yet, so that the directories are those which are made here.
func (t *Tree) placeInHome(mount int, below string, s *Spec) error {
	defer unix.Close(mount)
	home, err := t.open(HomeDir)
	if err != nil {
		return err
	}
	defer home.Close()
	dir, err := unix.Dup(int(home.Fd()))
	if err != nil {
		return err
	}
	defer func() { unix.Close(dir) }()
	for name := range strings.SplitSeq(below, "/") {
		next, err := subdirectory(dir, name, s.Owner.SkillUID, s.Owner.SkillGID, 0o755)
		if err != nil {
			return fmt.Errorf("rootfs: mount point %s/%s: %w", HomeDir, below, err)
		}
		unix.Close(dir)
		dir = next
	}
	return attach(mount, t.root, strings.TrimPrefix(HomeDir, "/")+"/"+below)
}

// mountBinds shows the policy's files and directories.
func (t *Tree) mountBinds(s *Spec) error {
	for _, b := range s.Binds {
		mount, err := t.clone(b)
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

func (t *Tree) clone(b Bind) (int, error) {
	userns := -1
	if b.IDMap {
		var err error
		if userns, err = t.idmaps.get(b); err != nil {
			return -1, err
		}
	}
	return cloneBind(b, userns)
}

// seal makes the root itself read-only; what is mounted on it keeps its own attributes.
func (t *Tree) seal(*Spec) error {
	if err := setAttributes(t.root, 0, unix.MOUNT_ATTR_RDONLY); err != nil {
		return fmt.Errorf("rootfs: make / read-only: %w", err)
	}
	return nil
}

// Close takes the tree away from the caller's namespace and closes what was kept. A box that still runs keeps its own copy.
func (t *Tree) Close() error {
	var errs []error
	if t.keep {
		errs = append(errs, t.idmaps.rest())
	} else {
		errs = append(errs, t.idmaps.Close())
	}
	for _, fd := range []*int{&t.base, &t.root, &t.image, &t.record, &t.inputs, &t.secrets, &t.params} {
		if *fd >= 0 {
			errs = append(errs, unix.Close(*fd))
		}
		*fd = -1
	}
	for _, f := range []*os.File{t.Output, t.Result, t.Changed} {
		if f != nil {
			errs = append(errs, f.Close())
		}
	}
	t.Output, t.Result, t.Changed = nil, nil, nil
	if t.attached {
		errs = append(errs, detach(t.dir))
	}
	t.attached = false
	return errors.Join(errs...)
}
