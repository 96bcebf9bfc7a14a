package doctor

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strconv"
	"syscall"
	"unsafe"

	"golang.org/x/sys/unix"

	"skillbox/helper"
)

// attempt is one thing that a child tries, in fresh namespaces of the given kinds. userns adds a user namespace for a caller
// who needs one to have capabilities; without it the flags are taken as they are.
type attempt struct {
	flags  uintptr
	userns bool
	run    func(args []string) error
}

func attempts() map[string]attempt {
	return map[string]attempt{
		"user":       {flags: unix.CLONE_NEWUSER, run: nothing},
		"capable":    {flags: unix.CLONE_NEWNS, userns: true, run: mountTmpfs},
		"namespaces": {flags: unix.CLONE_NEWNS | unix.CLONE_NEWPID | unix.CLONE_NEWCGROUP | unix.CLONE_NEWNET | unix.CLONE_NEWIPC | unix.CLONE_NEWUTS, userns: true, run: nothing},
		"nested":     {userns: true, run: nested},
		"proc":       {flags: unix.CLONE_NEWNS | unix.CLONE_NEWPID, userns: true, run: mountProc},
		"cgroup2":    {flags: unix.CLONE_NEWNS | unix.CLONE_NEWCGROUP, userns: true, run: mountCgroup2},
		"mounts":     {flags: unix.CLONE_NEWNS, userns: true, run: mountByDescriptor},
		"overlay":    {flags: unix.CLONE_NEWNS, userns: true, run: mountOverlay},
		"idmap":      {flags: unix.CLONE_NEWNS, run: mountIDMapped},
		"seccomp":    {run: installFilter},
		"wait":       {run: wait},
	}
}

// ChildArg as the first argument makes this program a child that tries one thing and prints what came of it. It is not for people.
const ChildArg = "doctor-attempt"

// Child runs the attempt args[0]. All that it makes is in namespaces or descriptors of its own.
func Child(args []string) int {
	if len(args) == 0 || attempts()[args[0]].run == nil {
		fmt.Fprintln(os.Stderr, "skillbox: "+ChildArg+" belongs to skillbox doctor")
		return 2
	}
	if err := json.NewEncoder(os.Stdout).Encode(outcome(attempts()[args[0]].run(args[1:]))); err != nil {
		return 3
	}
	return 0
}

// A failure is the call that an attempt failed at.
type failure struct {
	call string
	err  error
}

func (f *failure) Error() string { return f.call + ": " + f.err.Error() }

func (f *failure) Unwrap() error { return f.err }

func at(call string, err error) error {
	if err == nil {
		return nil
	}
	return &failure{call, err}
}

func outcome(err error) Try {
	t := Try{Tried: true}
	var where *failure
	if errors.As(err, &where) {
		t.Call = where.call
	}
	switch {
	case err == nil:
	case errors.As(err, &t.Errno):
	case where != nil:
		t.Note = where.err.Error()
	default:
		t.Note = err.Error()
	}
	return t
}

func nothing([]string) error { return nil }

// wait ends with its standard input; other processes need its namespace meanwhile.
func wait([]string) error {
	_, err := io.Copy(io.Discard, os.Stdin)
	return err
}

func private() error {
	return at("make mounts private", unix.Mount("", "/", "", unix.MS_REC|unix.MS_PRIVATE, ""))
}

// scratchDir is where the attempts mount a tmpfs; it exists everywhere.
const scratchDir = "/dev"

func mountTmpfs([]string) error {
	if err := private(); err != nil {
		return err
	}
	return at("mount tmpfs", unix.Mount("skillbox", scratchDir, "tmpfs", unix.MS_NOSUID|unix.MS_NODEV, "mode=0755"))
}

func mountProc([]string) error {
	if err := private(); err != nil {
		return err
	}
	return at("mount proc", unix.Mount("proc", "/proc", "proc", unix.MS_NOSUID|unix.MS_NODEV|unix.MS_NOEXEC, ""))
}

func mountCgroup2([]string) error {
	if err := private(); err != nil {
		return err
	}
	// The kernel refuses a file system on top of itself.
	if err := at("mount tmpfs on /sys/fs/cgroup", unix.Mount("skillbox", "/sys/fs/cgroup", "tmpfs", unix.MS_NOSUID|unix.MS_NODEV|unix.MS_NOEXEC, "mode=0555")); err != nil {
		return err
	}
	return at("mount cgroup2 on /sys/fs/cgroup",
		unix.Mount("cgroup2", "/sys/fs/cgroup", "cgroup2", unix.MS_RDONLY|unix.MS_NOSUID|unix.MS_NODEV|unix.MS_NOEXEC, ""))
}

// nested makes a user namespace below the one we are in, as each box does.
func nested([]string) error {
	return at("clone", command(attempt{flags: unix.CLONE_NEWUSER}, "user").Run())
}

// mountByDescriptor goes the way that package rootfs goes.
func mountByDescriptor([]string) error {
	if err := private(); err != nil {
		return err
	}
	context, err := unix.Fsopen("tmpfs", unix.FSOPEN_CLOEXEC)
	if err != nil {
		return at("fsopen tmpfs", err)
	}
	if err := unix.FsconfigCreate(context); err != nil {
		return at("fsconfig", err)
	}
	mount, err := unix.Fsmount(context, unix.FSMOUNT_CLOEXEC, unix.MOUNT_ATTR_NOSUID)
	if err != nil {
		return at("fsmount", err)
	}
	if err := unix.MoveMount(mount, "", unix.AT_FDCWD, scratchDir, unix.MOVE_MOUNT_F_EMPTY_PATH); err != nil {
		return at("move_mount", err)
	}
	copied, err := unix.OpenTree(mount, "", unix.OPEN_TREE_CLONE|unix.OPEN_TREE_CLOEXEC|unix.AT_EMPTY_PATH|unix.AT_RECURSIVE)
	if err != nil {
		return at("open_tree", err)
	}
	return at("mount_setattr", unix.MountSetattr(copied, "", unix.AT_EMPTY_PATH|unix.AT_RECURSIVE, &unix.MountAttr{Attr_set: unix.MOUNT_ATTR_RDONLY}))
}

// mountOverlay mounts a writable overlay, as for copy-on-write bundles; userxattr is what user namespaces need (Linux 5.11).
func mountOverlay([]string) error {
	if err := mountTmpfs(nil); err != nil {
		return err
	}
	for _, dir := range []string{"lower", "upper", "work", "view"} {
		if err := os.Mkdir(filepath.Join(scratchDir, dir), 0o755); err != nil {
			return at("mkdir on tmpfs", err)
		}
	}
	options := fmt.Sprintf("lowerdir=%[1]s/lower,upperdir=%[1]s/upper,workdir=%[1]s/work,userxattr", scratchDir)
	return at("mount overlay", unix.Mount("skillbox", scratchDir+"/view", "overlay", unix.MS_NOSUID|unix.MS_NODEV, options))
}

// mountIDMapped gives the directory args[0] to another id and puts an overlay on it, as for root's bundles.
func mountIDMapped(args []string) error {
	if len(args) != 1 {
		return errors.New("one directory")
	}
	if err := private(); err != nil {
		return err
	}
	fd, err := unix.Open(args[0], unix.O_PATH|unix.O_DIRECTORY|unix.O_CLOEXEC, 0)
	if err != nil {
		return at("open", err)
	}
	var st unix.Stat_t
	if err := unix.Fstat(fd, &st); err != nil {
		return at("stat", err)
	}
	mount, err := unix.OpenTree(fd, "", unix.OPEN_TREE_CLONE|unix.OPEN_TREE_CLOEXEC|unix.AT_EMPTY_PATH|unix.AT_RECURSIVE)
	if err != nil {
		return at("open_tree", err)
	}
	userns, err := mappedNamespace(int(st.Uid), int(st.Gid))
	if err != nil {
		return err
	}
	err = unix.MountSetattr(mount, "", unix.AT_EMPTY_PATH, &unix.MountAttr{Attr_set: unix.MOUNT_ATTR_IDMAP, Userns_fd: uint64(userns)})
	if err != nil {
		return at("mount_setattr", err)
	}
	if err := mountTmpfs(nil); err != nil {
		return err
	}
	for _, dir := range []string{"lower", "second", "view"} {
		if err := os.Mkdir(filepath.Join(scratchDir, dir), 0o755); err != nil {
			return at("mkdir on tmpfs", err)
		}
	}
	if err := unix.MoveMount(mount, "", unix.AT_FDCWD, scratchDir+"/lower", unix.MOVE_MOUNT_F_EMPTY_PATH); err != nil {
		return at("move_mount", err)
	}
	options := fmt.Sprintf("lowerdir=%[1]s/lower:%[1]s/second", scratchDir)
	return at("mount overlay on it", unix.Mount("skillbox", scratchDir+"/view", "overlay", unix.MS_RDONLY|unix.MS_NOSUID|unix.MS_NODEV, options))
}

// mappedNamespace opens a user namespace that maps the two ids to one of ours. Only a process can make one; it ends here.
func mappedNamespace(uid, gid int) (int, error) {
	c := command(attempt{}, "wait")
	c.SysProcAttr.Cloneflags = unix.CLONE_NEWUSER
	c.SysProcAttr.UidMappings = []syscall.SysProcIDMap{{ContainerID: uid, HostID: firstBoxID, Size: 1}}
	c.SysProcAttr.GidMappings = []syscall.SysProcIDMap{{ContainerID: gid, HostID: firstBoxID, Size: 1}}
	stdin, err := c.StdinPipe()
	if err != nil {
		return -1, err
	}
	if err := c.Start(); err != nil {
		return -1, at("clone", err)
	}
	fd, err := unix.Open("/proc/"+strconv.Itoa(c.Process.Pid)+"/ns/user", unix.O_RDONLY|unix.O_CLOEXEC, 0)
	// It may still be on its way to exec: what it says no longer matters.
	return fd, errors.Join(at("open its user namespace", err), stdin.Close(), c.Process.Kill(), ignore(c.Wait()))
}

func ignore(error) error { return nil }

// installFilter puts a filter that allows everything on all threads, with a listener: what a box's init does.
func installFilter([]string) error {
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	if err := unix.Prctl(unix.PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0); err != nil {
		return at("no_new_privs", err)
	}
	allow := []unix.SockFilter{{Code: unix.BPF_RET | unix.BPF_K, K: unix.SECCOMP_RET_ALLOW}}
	program := unix.SockFprog{Len: 1, Filter: &allow[0]}
	const flags = unix.SECCOMP_FILTER_FLAG_TSYNC | unix.SECCOMP_FILTER_FLAG_TSYNC_ESRCH | unix.SECCOMP_FILTER_FLAG_NEW_LISTENER
	_, _, errno := unix.Syscall(unix.SYS_SECCOMP, unix.SECCOMP_SET_MODE_FILTER, flags, uintptr(unsafe.Pointer(&program)))
	runtime.KeepAlive(allow)
	if errno != 0 {
		return at("seccomp", errno)
	}
	return nil
}

// command is this program as a child that runs an attempt. It dies with the thread that starts it.
func command(a attempt, name string, args ...string) *exec.Cmd {
	c := exec.Command("/proc/self/exe", append([]string{ChildArg, name}, args...)...)
	c.Env, c.Dir = []string{}, "/"
	c.SysProcAttr = &syscall.SysProcAttr{Cloneflags: a.flags, Pdeathsig: syscall.SIGKILL}
	// root that lacks capabilities tries without, and fails by name.
	if needs, _ := helper.NeedsUserns(); a.userns && needs {
		c.SysProcAttr.Cloneflags |= unix.CLONE_NEWUSER
	}
	if c.SysProcAttr.Cloneflags&unix.CLONE_NEWUSER != 0 {
		c.SysProcAttr.UidMappings = []syscall.SysProcIDMap{{ContainerID: 0, HostID: os.Geteuid(), Size: 1}}
		c.SysProcAttr.GidMappings = []syscall.SysProcIDMap{{ContainerID: 0, HostID: os.Getegid(), Size: 1}}
	}
	return c
}
