package cgroup

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"time"

	"golang.org/x/sys/unix"
)

// Root is where systemd, and every container runtime, mounts the cgroup file system.
const Root = "/sys/fs/cgroup"

// Place is a directory below which groups for boxes are made. It is open as long as this process needs it: whoever else sweeps
// leaves it alone until then, even after a crash of ours, when the kernel closes it.
type Place struct {
	Dir         string   // where it is for this process
	Group       string   // its path as /proc/PID/cgroup tells it
	Controllers []string // enabled for groups made in it
	Swept       int      // groups that dead processes had left, and that Open removed

	mu     sync.Mutex
	groups map[*Group]bool // made here and not closed
	dir    *os.File        // locked, shared
	parent *os.File        // to remove dir by name
	own    *os.File        // cgroup.procs of the group that we are in; nil where we may not write it
}

// Open finds the place for the groups of this process's boxes, makes it if need be, and sweeps what dead processes left in it.
//
// Root's is skillbox.slice below the delegated subtree of its unit, else at the top. An ordinary user's is skillbox.slice in the
// highest group above it that the user may manage. A login session is in none: then the user's systemd is asked to take us in.
// uid is the user's on the machine. The error is *Unavailable where there can be no groups.
func Open(uid int) (*Place, error) {
	group, err := present()
	if err != nil {
		return nil, err
	}
	above, err := home(group, uid)
	if err != nil {
		return nil, err
	}
	if above == "" {
		return openScope(uid)
	}
	return openSlice(above, group)
}

// present is the group that this process is in, or why there are no groups of version 2.
func present() (string, error) {
	var fs unix.Statfs_t
	err := unix.Statfs(Root, &fs)
	if err != nil {
		return "", unavailable("mount sysfs on /sys, and cgroup2 on "+Root, "%s: %v", Root, err)
	}
	text, err := os.ReadFile("/proc/self/cgroup")
	if err != nil {
		return "", unavailable("use a kernel with CONFIG_CGROUPS=y", "%v", err)
	}
	group, v1, v2 := ownGroup(string(text))
	if fs.Type != unix.CGROUP2_SUPER_MAGIC || !v2 {
		kind := "not mounted"
		if v1 {
			kind = "of version 1"
		}
		return "", unavailable("boot with systemd.unified_cgroup_hierarchy=1 on the kernel's command line", "this machine's control groups are %s", kind)
	}
	return group, nil
}

// home is the group that skillbox.slice goes to; "" says that only systemd can give one.
func home(group string, uid int) (string, error) {
	if strings.HasPrefix(group, "/..") {
		return "", unavailable("start skillbox where its control group is visible, or mount "+Root+" anew in this cgroup namespace",
			"this process's control group lies outside of "+Root)
	}
	if uid != 0 {
		for _, above := range ancestors(group) {
			if manageable(Root + above) {
				return above, nil
			}
		}
		return "", nil
	}
	for _, above := range ancestors(filepath.Dir(group)) {
		if delegated(above) {
			return above, nil
		}
	}
	return "/", nil
}

// manageable says that we may make groups in dir and move our processes there.
func manageable(dir string) bool {
	for _, file := range []string{"", "cgroup.procs", "cgroup.subtree_control"} {
		// The effective ids count; x/sys does without AT_EACCESS only where they are equal, as they are here.
		if unix.Faccessat(unix.AT_FDCWD, filepath.Join(dir, file), unix.W_OK, 0) != nil {
			return false
		}
	}
	return true
}

// openSlice makes skillbox.slice in a group, or joins those who use it. own is the group that we are in.
func openSlice(above, own string) (*Place, error) {
	parent, err := os.Open(Root + above)
	if err != nil {
		return nil, fmt.Errorf("cgroup: %w", err)
	}
	p := &Place{Dir: filepath.Join(Root, above, slice), Group: filepath.Join(above, slice), parent: parent}
	// Only Prime needs it, and does without.
	p.own, _ = os.OpenFile(filepath.Join(Root, own, "cgroup.procs"), os.O_WRONLY, 0)
	if err := p.enter(); err != nil {
		return nil, errors.Join(err, p.Close())
	}
	if err := p.enable(Root + above); err != nil {
		return nil, errors.Join(err, p.Close())
	}
	return p, p.sweep()
}

// enter makes the directory and holds it. Another process may remove it in between, when it takes itself for the last.
func (p *Place) enter() error {
	return insist(p.Dir, func() (bool, error) {
		if err := os.Mkdir(p.Dir, 0o700); err != nil && !errors.Is(err, os.ErrExist) {
			return true, makeError(p.Dir, err)
		}
		dir, err := os.Open(p.Dir)
		if errors.Is(err, os.ErrNotExist) {
			return false, nil
		}
		if err != nil {
			return true, fmt.Errorf("cgroup: %w", err)
		}
		if err := unix.Flock(int(dir.Fd()), unix.LOCK_SH); err != nil {
			dir.Close()
			return true, fmt.Errorf("cgroup: lock %s: %w", p.Dir, err)
		}
		held, errHeld := dir.Stat()
		named, errNamed := os.Stat(p.Dir)
		if errHeld == nil && errNamed == nil && os.SameFile(held, named) {
			p.dir = dir
			return true, nil
		}
		return false, dir.Close()
	})
}

// insist tries until it is done, or others were quicker for too long: whoever removes a directory may be kept from it for as long as the
// machine is busy.
func insist(dir string, try func() (done bool, err error)) error {
	deadline := time.Now().Add(patience)
	for wait := 10 * time.Microsecond; ; wait = min(2*wait, 5*time.Millisecond) {
		if done, err := try(); done || err != nil {
			return err
		}
		if time.Now().After(deadline) {
			return fmt.Errorf("cgroup: %s is removed again and again", dir)
		}
		time.Sleep(wait)
	}
}

func makeError(dir string, err error) error {
	switch {
	case errors.Is(err, unix.EROFS):
		return unavailable("start the container with a private cgroup namespace and a writable "+Root+
			" (docker: --cgroupns=private and --security-opt writable-cgroups=true; or run skillbox outside)", "%s is read-only here", Root)
	case errors.Is(err, unix.EACCES), errors.Is(err, unix.EPERM):
		return unavailable("ask the container's runtime, or the machine's administrator, for a delegated control group", "%s: %v", dir, err)
	}
	return fmt.Errorf("cgroup: %w", err)
}

// enable passes on to the groups in our directory every controller that limits something, and notes which that are.
func (p *Place) enable(above string) error {
	for _, dir := range []string{above, p.Dir} {
		available, err := controllers(dir, "cgroup.controllers")
		if err != nil {
			return err
		}
		if err := pass(dir, usable(available)); err != nil {
			return err
		}
	}
	enabled, err := controllers(p.Dir, "cgroup.subtree_control")
	p.Controllers = usable(enabled)
	return err
}

func controllers(dir, file string) ([]string, error) {
	text, err := os.ReadFile(filepath.Join(dir, file))
	if err != nil {
		return nil, fmt.Errorf("cgroup: %w", err)
	}
	return strings.Fields(string(text)), nil
}

// pass enables controllers for the groups in dir. One by one, for one that is refused (by permission, or because it is busy with
// real-time tasks) must not cost the others; which there are is read afterwards.
func pass(dir string, wanted []string) error {
	enabled, err := controllers(dir, "cgroup.subtree_control")
	if err != nil {
		return err
	}
	for _, c := range wanted {
		if slices.Contains(enabled, c) {
			continue
		}
		err := os.WriteFile(filepath.Join(dir, "cgroup.subtree_control"), []byte("+"+c), 0)
		if errors.Is(err, unix.EBUSY) {
			return unavailable("move them to a group of their own: for a unit DelegateSubgroup= (systemd 254), in a container an init such as systemd",
				"%s holds processes, so that controllers cannot be passed on to groups in it (cgroups(7), no internal processes)", dir)
		}
	}
	return nil
}

// Prime makes the kernel ready to move a process, and blocks until it is. Whoever moves one waits until every processor has passed
// through the scheduler (cgroup_threadgroup_rwsem: an RCU grace period, often more than 10 ms); whoever does so shortly after does not
// wait again. Moving ourselves to where we are takes the same way and changes nothing, and it can be waited for beside other work.
func (p *Place) Prime() {
	if p.own != nil {
		_, _ = p.own.WriteString("0") // if it fails, the first move waits
	}
}

// Cover shows this process's mount namespace nothing of the cgroup file system but the place, as its root: libcontainer, which
// knows no other directory than Root, then finds the same on every machine and can reach nothing else.
func (p *Place) Cover() error {
	if err := unix.Mount(p.Dir, Root, "", unix.MS_BIND, ""); err != nil {
		return fmt.Errorf("cgroup: bind %s on %s: %w", p.Dir, Root, err)
	}
	p.Dir = Root
	return nil
}

// Close ends and removes the groups that are left, lets go of the place, and removes it if no other process holds it. It may be
// called at any time, also while a group is being made, which then fails.
func (p *Place) Close() error {
	p.mu.Lock()
	defer p.mu.Unlock()
	var errs []error
	for g := range p.groups {
		errs = append(errs, remove(g.Dir))
	}
	p.groups = nil
	if p.dir != nil && p.parent != nil {
		if unix.Flock(int(p.dir.Fd()), unix.LOCK_EX|unix.LOCK_NB) == nil {
			errs = append(errs, p.sweep()) // nobody holds what is left
			err := unix.Unlinkat(int(p.parent.Fd()), slice, unix.AT_REMOVEDIR)
			if err != nil && err != unix.ENOENT && err != unix.EBUSY && err != unix.ENOTEMPTY {
				errs = append(errs, fmt.Errorf("cgroup: remove %s: %w", p.Group, err))
			}
		}
	}
	if p.dir != nil {
		errs = append(errs, p.dir.Close())
	}
	if p.parent != nil {
		errs = append(errs, p.parent.Close())
	}
	if p.own != nil {
		errs = append(errs, p.own.Close())
	}
	p.dir, p.parent, p.own = nil, nil, nil
	return errors.Join(errs...)
}
