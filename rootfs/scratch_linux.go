package rootfs

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"os"
	"path"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"
)

// maxCallBytes bounds what one call brings: parameters, inputs and secrets together. They lie in memory.
const maxCallBytes = 256 << 20

// mountCall shows one read-only view of what a call brings as /run. We write beside the box, the skill reads through the view:
// not even the owner of a file could write there.
func (t *Tree) mountCall(s *Spec) error {
	o := s.Owner
	call, err := subdirectory(t.base, "call", o.RootUID, o.RootGID, 0o755)
	if err != nil {
		return fmt.Errorf("rootfs: /run: %w", err)
	}
	defer unix.Close(call)
	for _, d := range []struct {
		path     string
		uid, gid int
		mode     uint32
		keep     *int
	}{
		{InputDir, o.RootUID, o.RootGID, 0o755, &t.inputs},
		{SecretsDir, o.SkillUID, o.SkillGID, 0o500, &t.secrets},
		{ShimDir, o.RootUID, o.RootGID, 0o755, &t.params},
	} {
		if *d.keep, err = subdirectory(call, path.Base(d.path), d.uid, d.gid, d.mode); err != nil {
			return fmt.Errorf("rootfs: %s: %w", d.path, err)
		}
	}
	if err := t.fillShim(s); err != nil {
		return err
	}
	view, err := cloneTree(call)
	if err != nil {
		return fmt.Errorf("rootfs: view of /run: %w", err)
	}
	defer unix.Close(view)
	if err := restrict(view, readOnly|unix.MOUNT_ATTR_NOEXEC); err != nil {
		return fmt.Errorf("rootfs: view of /run: %w", err)
	}
	if err := attach(view, t.root, "run"); err != nil || len(s.Programs) == 0 {
		return err
	}
	return t.mountPrograms()
}

// mountPrograms shows the generated programs where they can be executed, which nothing else of /run can.
func (t *Tree) mountPrograms() error {
	name := path.Base(ProgramDir)
	dir, err := unix.Openat(t.params, name, unix.O_PATH|unix.O_DIRECTORY|unix.O_NOFOLLOW|unix.O_CLOEXEC, 0)
	if err != nil {
		return fmt.Errorf("rootfs: %s: %w", ProgramDir, err)
	}
	defer unix.Close(dir)
	view, err := cloneTree(dir)
	if err != nil {
		return fmt.Errorf("rootfs: view of %s: %w", ProgramDir, err)
	}
	defer unix.Close(view)
	if err := restrict(view, readOnly); err != nil {
		return fmt.Errorf("rootfs: view of %s: %w", ProgramDir, err)
	}
	return attach(view, t.root, strings.TrimPrefix(ProgramDir, "/"))
}

func (t *Tree) fillPrograms(s *Spec) error {
	if len(s.Programs) == 0 {
		return nil
	}
	dir, err := subdirectory(t.params, path.Base(ProgramDir), s.Owner.RootUID, s.Owner.RootGID, 0o755)
	if err != nil {
		return fmt.Errorf("rootfs: %s: %w", ProgramDir, err)
	}
	defer unix.Close(dir)
	for name, content := range s.Programs {
		if err := writeFile(dir, name, bytes.NewReader(content), s.Owner.RootUID, s.Owner.RootGID, 0o555); err != nil {
			return fmt.Errorf("rootfs: %s/%s: %w", ProgramDir, name, err)
		}
	}
	return nil
}

func subdirectory(dir int, name string, uid, gid int, mode uint32) (int, error) {
	if err := unix.Mkdirat(dir, name, 0o700); err != nil {
		return -1, err
	}
	fd, err := unix.Openat(dir, name, unix.O_RDONLY|unix.O_DIRECTORY|unix.O_NOFOLLOW|unix.O_CLOEXEC, 0)
	if err != nil {
		return -1, err
	}
	if err := errors.Join(unix.Fchown(fd, uid, gid), unix.Fchmod(fd, mode)); err != nil {
		unix.Close(fd)
		return -1, err
	}
	return fd, nil
}

// fillShim writes the generated files, and the mount points that the read-only view must already have.
func (t *Tree) fillShim(s *Spec) error {
	result, err := subdirectory(t.params, path.Base(ResultDir), s.Owner.SkillUID, s.Owner.SkillGID, 0o755)
	if err != nil {
		return fmt.Errorf("rootfs: %s: %w", ResultDir, err)
	}
	unix.Close(result)
	files := map[string][]byte{path.Base(s.InitPath): nil}
	for name, content := range s.Files {
		files[path.Base(name)] = content
	}
	for name, content := range files {
		if err := writeFile(t.params, name, strings.NewReader(string(content)), s.Owner.RootUID, s.Owner.RootGID, 0o444); err != nil {
			return fmt.Errorf("rootfs: %s/%s: %w", ShimDir, name, err)
		}
	}
	return t.fillPrograms(s)
}

// mountScratch mounts what the skill may write, and keeps hold of what is read after the box is gone.
func (t *Tree) mountScratch(s *Spec) error {
	for _, m := range []struct {
		path string
		size int64
		mode string
	}{{"/tmp", s.TmpSize, "1777"}, {HomeDir, s.HomeSize, "0700"}, {OutputDir, s.OutputSize, "0755"}, {ResultDir, s.ResultSize, "0755"}} {
		mount, err := scratch(s, m.path, m.size, m.mode)
		if err != nil {
			return err
		}
		if m.path != ResultDir { // exists inside the view of ShimDir, where directory would refuse to go
			err = t.directory(m.path, false)
		}
		if err == nil {
			err = attach(mount, t.root, strings.TrimPrefix(m.path, "/"))
		}
		unix.Close(mount)
		if err != nil {
			return err
		}
	}
	var err error
	if t.Output, err = t.open(OutputDir); err != nil {
		return err
	}
	t.Result, err = t.open(ResultDir)
	return err
}

// scratch makes an empty tmpfs for the skill. Inodes are limited too: an empty file costs kernel memory, not size.
func scratch(s *Spec, path string, size int64, mode string) (int, error) {
	if size <= 0 {
		return -1, fmt.Errorf("rootfs: %s has no size", path)
	}
	inodes := max(1024, min(size>>12, 1<<20))
	return newFilesystem("tmpfs", unix.MOUNT_ATTR_NOSUID|unix.MOUNT_ATTR_NODEV, setting{"source", "tmpfs"},
		setting{"mode", mode}, setting{"size", strconv.FormatInt(size, 10)}, setting{"nr_inodes", strconv.FormatInt(inodes, 10)},
		owner("uid", s.Owner.SkillUID), owner("gid", s.Owner.SkillGID))
}

func (t *Tree) open(p string) (*os.File, error) {
	fd, err := unix.Openat(t.root, strings.TrimPrefix(p, "/"), unix.O_RDONLY|unix.O_DIRECTORY|unix.O_NOFOLLOW|unix.O_CLOEXEC, 0)
	if err != nil {
		return nil, fmt.Errorf("rootfs: open %s: %w", p, err)
	}
	return os.NewFile(uintptr(fd), p), nil
}

// PutInput copies one of the caller's files to /input/name, readable by the skill and writable by nobody.
func (t *Tree) PutInput(name string, content io.Reader, o Owner) error {
	if err := writeFile(t.inputs, name, content, o.RootUID, o.RootGID, 0o444); err != nil {
		return fmt.Errorf("rootfs: input %q: %w", name, err)
	}
	return nil
}

// PutSecret writes a secret's value to /run/secrets/name, readable by the skill only.
func (t *Tree) PutSecret(name, value string, o Owner) error {
	if err := writeFile(t.secrets, name, strings.NewReader(value), o.SkillUID, o.SkillGID, 0o400); err != nil {
		return fmt.Errorf("rootfs: secret %q: %w", name, err)
	}
	return nil
}

// PutParams writes the call's parameters to ParamsFile.
func (t *Tree) PutParams(content io.Reader, o Owner) error {
	if err := writeFile(t.params, path.Base(ParamsFile), content, o.RootUID, o.RootGID, 0o444); err != nil {
		return fmt.Errorf("rootfs: parameters: %w", err)
	}
	return nil
}

// Params opens what PutParams wrote, to be read from the start.
func (t *Tree) Params() (int, error) {
	return unix.Openat(t.params, path.Base(ParamsFile), unix.O_RDONLY|unix.O_NOFOLLOW|unix.O_CLOEXEC, 0)
}

// Clear takes away what the call before has brought, and its result file, so that the box can be brought another call's.
func (t *Tree) Clear() error {
	for _, dir := range []int{t.inputs, t.secrets} {
		names, err := namesIn(dir)
		if err != nil {
			return fmt.Errorf("rootfs: what a call brought: %w", err)
		}
		for _, name := range names {
			if err := unix.Unlinkat(dir, name, 0); err != nil {
				return fmt.Errorf("rootfs: what a call brought: %w", err)
			}
		}
	}
	if err := unix.Unlinkat(t.params, path.Base(ParamsFile), 0); err != nil && err != unix.ENOENT {
		return fmt.Errorf("rootfs: parameters: %w", err)
	}
	return t.clearResult()
}

func namesIn(dir int) ([]string, error) {
	fd, err := unix.Openat(dir, ".", unix.O_RDONLY|unix.O_DIRECTORY|unix.O_CLOEXEC, 0)
	if err != nil {
		return nil, err
	}
	f := os.NewFile(uintptr(fd), "directory")
	defer f.Close()
	return f.Readdirnames(-1)
}

// clearResult takes the result file away. The directory is the skill's: what lies there in its place, and may come again while we look, is
// nothing that we would read.
func (t *Tree) clearResult() error {
	dir, name := int(t.Result.Fd()), path.Base(ResultFile)
	err := unix.Unlinkat(dir, name, 0)
	if err == unix.EISDIR || err == unix.EPERM {
		// It may be full: what is renamed is out of the way at once.
		err = unix.Renameat(dir, name, dir, fmt.Sprintf("%s.%x", name, rand.Uint64()))
	}
	if err != nil && err != unix.ENOENT {
		return fmt.Errorf("rootfs: result file: %w", err)
	}
	return nil
}

// writeFile creates name in dir; an existing file is an error. The owner is set last, when nothing more is to be written.
func writeFile(dir int, name string, content io.Reader, uid, gid int, mode uint32) error {
	if name == "" || name == "." || name == ".." || strings.ContainsAny(name, "/\x00") {
		return errors.New("not a file name")
	}
	fd, err := unix.Openat(dir, name, unix.O_WRONLY|unix.O_CREAT|unix.O_EXCL|unix.O_NOFOLLOW|unix.O_CLOEXEC, 0o600)
	if err != nil {
		return err
	}
	f := os.NewFile(uintptr(fd), name)
	defer f.Close()
	if _, err := io.Copy(f, content); err != nil {
		return err
	}
	return errors.Join(unix.Fchown(fd, uid, gid), unix.Fchmod(fd, mode))
}
