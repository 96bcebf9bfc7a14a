//go:build linux

package integration

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"syscall"
	"testing"
	"unsafe"

	"github.com/vishvananda/netlink"
	"golang.org/x/net/bpf"
	"golang.org/x/sys/unix"
)

// A container is the surroundings that an engine such as podman makes: namespaces of all kinds, a user's too, few capabilities, masks over
// /proc, a read-only /sys/fs/cgroup. It has no newuidmap that could work. An address of its loopback, containerAddress, stands for the world.
type container struct {
	UID, GID   int
	Hostname   string // "" is the name of an engine's making
	Unmasked   bool   // nothing covers a part of /proc, as with unmask=ALL
	Filter     string // "": none; "podman": namespaces may be made, names not given; "docker": neither
	NoNewPrivs bool
	Caps       []int // that stay in the bounding set, and are uid 0's
	Dir        string
}

const (
	containerAddress = "192.0.2.7"
	containerName    = "9f86d081884c"
	containerBase    = 1500000000 // ids of the test user's
)

// run runs a shell script as the container's first process.
func (c container) run(t *testing.T, script string) (stdout, stderr string, code int) {
	t.Helper()
	if os.Getuid() != 0 {
		needs(t, "root", errors.New("a range of ids is given to a container by hand"))
	}
	runs.Add(1)
	c.Dir = asRoot.dir(t)
	spec, err := json.Marshal(c)
	if err != nil {
		t.Fatal(err)
	}
	cmd := exec.Command("/proc/self/exe", "sh", "-c", script)
	cmd.Env = []string{
		"SKILLBOX_TEST_NS=container", "SKILLBOX_TEST_CONTAINER=" + string(spec), "PATH=" + binDir + ":/usr/bin:/bin", "HOME=/home", "XDG_RUNTIME_DIR=/home/run",
		"XDG_STATE_HOME=/home/state",
	}
	ids := []syscall.SysProcIDMap{{ContainerID: 0, HostID: containerBase, Size: 65536}}
	cmd.SysProcAttr = &syscall.SysProcAttr{
		Cloneflags:  unix.CLONE_NEWUSER | unix.CLONE_NEWNS | unix.CLONE_NEWPID | unix.CLONE_NEWNET | unix.CLONE_NEWIPC | unix.CLONE_NEWUTS | unix.CLONE_NEWCGROUP,
		UidMappings: ids, GidMappings: ids, GidMappingsEnableSetgroups: true,
		Credential: &syscall.Credential{Uid: 0, Gid: 0},
	}
	var out, errs bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &errs
	err = cmd.Run()
	var exit *exec.ExitError
	if err != nil && !errors.As(err, &exit) {
		t.Fatal(err)
	}
	return out.String(), errs.String(), cmd.ProcessState.ExitCode()
}

// asContainer is the program that becomes the container's first process: it makes the surroundings and gives up what made them.
func asContainer() int {
	runtime.LockOSThread() // what is given up is a thread's
	var c container
	err := json.Unmarshal([]byte(os.Getenv("SKILLBOX_TEST_CONTAINER")), &c)
	for _, step := range []func() error{c.name, c.tree, c.masks, c.address, c.drop} {
		if err == nil {
			err = step()
		}
	}
	if err == nil {
		os.Unsetenv("SKILLBOX_TEST_NS")
		os.Unsetenv("SKILLBOX_TEST_CONTAINER")
		err = unix.Exec("/usr/bin/sh", os.Args[1:], os.Environ())
	}
	fmt.Fprintln(os.Stderr, "container:", err)
	return 120
}

func (c container) name() error {
	name := c.Hostname
	if name == "" {
		name = containerName
	}
	return unix.Sethostname([]byte(name))
}

type mountAt struct {
	source, at, kind string
	flags            uintptr
	data             string
}

func mountAll(root string, mounts []mountAt) error {
	for _, m := range mounts {
		at := filepath.Join(root, m.at)
		info, err := os.Stat(m.source)
		if m.flags&unix.MS_BIND != 0 && err == nil && !info.IsDir() {
			err = os.WriteFile(at, nil, 0o644)
		} else {
			err = os.MkdirAll(at, 0o755)
		}
		if err != nil {
			return err
		}
		if err := unix.Mount(m.source, at, m.kind, m.flags, m.data); err != nil {
			return fmt.Errorf("mount %s: %w", at, err)
		}
		if m.flags&(unix.MS_BIND|unix.MS_RDONLY) == unix.MS_BIND|unix.MS_RDONLY {
			if err := unix.Mount("", at, "", unix.MS_BIND|unix.MS_REMOUNT|unix.MS_RDONLY, ""); err != nil {
				return fmt.Errorf("make %s read-only: %w", at, err)
			}
		}
	}
	return nil
}

// tree makes the container's files and goes there: the machine's /usr and /tmp, and nothing else of it.
func (c container) tree() error {
	root := c.Dir
	const plain = unix.MS_NOSUID | unix.MS_NODEV
	mounts := []mountAt{
		{"root", "", "tmpfs", 0, "mode=0755"},
		{"/usr", "usr", "", unix.MS_BIND | unix.MS_REC, ""},
		{"/tmp", "tmp", "", unix.MS_BIND | unix.MS_REC, ""},
		{"home", "home", "tmpfs", plain, "mode=1777"},
		{"run", "run", "tmpfs", plain, "mode=0755"},
		{"log", "var/log", "tmpfs", plain, "mode=0755"},
		{"proc", "proc", "proc", plain | unix.MS_NOEXEC, ""},
		{"sysfs", "sys", "sysfs", plain | unix.MS_NOEXEC | unix.MS_RDONLY, ""},
		{"cgroup2", "sys/fs/cgroup", "cgroup2", plain | unix.MS_NOEXEC | unix.MS_RDONLY, ""},
		{"dev", "dev", "tmpfs", unix.MS_NOSUID, "mode=0755"},
		{"devpts", "dev/pts", "devpts", unix.MS_NOSUID | unix.MS_NOEXEC, "newinstance,ptmxmode=0666,mode=0620"},
		{"shm", "dev/shm", "tmpfs", plain, "mode=1777"},
	}
	for _, device := range []string{"null", "zero", "full", "random", "urandom", "tty"} {
		mounts = append(mounts, mountAt{"/dev/" + device, "dev/" + device, "", unix.MS_BIND, ""})
	}
	if err := unix.Mount("", "/", "", unix.MS_REC|unix.MS_PRIVATE, ""); err != nil {
		return err
	}
	if err := mountAll(root, mounts); err != nil {
		return err
	}
	for _, dir := range []string{"bin", "sbin", "lib", "lib64"} {
		if err := os.Symlink("usr/"+dir, filepath.Join(root, dir)); err != nil {
			return err
		}
	}
	if err := os.Mkdir(filepath.Join(root, "etc"), 0o755); err != nil {
		return err
	}
	for name, text := range map[string]string{
		"etc/passwd": "root:x:0:0::/home:/bin/sh\nada:x:1000:1000::/home:/bin/sh\n", "etc/group": "root:x:0:\nada:x:1000:\n", "etc/os-release": "ID=debian\n",
		"run/.containerenv": "", // podman's mark
		"etc/subuid":        "ada:100000:65536\n", "etc/subgid": "ada:100000:65536\n",
	} {
		if err := os.WriteFile(filepath.Join(root, name), []byte(text), 0o644); err != nil {
			return err
		}
	}
	if err := os.Chdir(root); err != nil {
		return err
	}
	return errors.Join(unix.PivotRoot(".", "."), unix.Unmount(".", unix.MNT_DETACH), os.Chdir("/"))
}

// masks are runc's and podman's defaults, as far as this kernel has the files.
func (c container) masks() error {
	if c.Unmasked {
		return nil
	}
	for _, path := range []string{"/proc/bus", "/proc/fs", "/proc/irq", "/proc/sys", "/proc/sysrq-trigger"} {
		err := unix.Mount(path, path, "", unix.MS_BIND|unix.MS_REC, "")
		if err == nil {
			err = unix.Mount("", path, "", unix.MS_BIND|unix.MS_REMOUNT|unix.MS_RDONLY|unix.MS_NOSUID|unix.MS_NODEV|unix.MS_NOEXEC, "")
		}
		if err != nil && err != unix.ENOENT {
			return fmt.Errorf("%s: %w", path, err)
		}
	}
	for _, path := range []string{"/proc/acpi", "/proc/asound", "/proc/kcore", "/proc/keys", "/proc/latency_stats", "/proc/timer_list", "/proc/scsi"} {
		err := unix.Mount("/dev/null", path, "", unix.MS_BIND, "")
		if err == unix.ENOTDIR {
			err = unix.Mount("mask", path, "tmpfs", unix.MS_RDONLY, "")
		}
		if err != nil && err != unix.ENOENT {
			return fmt.Errorf("%s: %w", path, err)
		}
	}
	return nil
}

func (c container) address() error {
	lo, err := netlink.LinkByName("lo")
	if err != nil {
		return err
	}
	address, err := netlink.ParseAddr(containerAddress + "/32")
	if err != nil {
		return err
	}
	return errors.Join(netlink.LinkSetUp(lo), netlink.AddrAdd(lo, address))
}

// drop leaves what an engine leaves. The filter comes last: it may take what made the rest.
func (c container) drop() error {
	var left uint64
	for _, capability := range c.Caps {
		left |= 1 << capability
	}
	for bit := uintptr(0); ; bit++ {
		if _, err := unix.PrctlRetInt(unix.PR_CAPBSET_READ, bit, 0, 0, 0); err != nil {
			break
		}
		if left>>bit&1 == 0 {
			if err := unix.Prctl(unix.PR_CAPBSET_DROP, bit, 0, 0, 0); err != nil {
				return err
			}
		}
	}
	if err := errors.Join(unix.Setgroups(nil), unix.Setresgid(c.GID, c.GID, c.GID)); err != nil {
		return err
	}
	if err := c.install(); err != nil {
		return err
	}
	if err := unix.Setresuid(c.UID, c.UID, c.UID); err != nil {
		return err
	}
	if c.NoNewPrivs {
		return unix.Prctl(unix.PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0)
	}
	return nil
}

// install puts the filter on this process, which is still privileged.
func (c container) install() error {
	if c.Filter == "" {
		return nil
	}
	refused := []uint32{unix.SYS_SETHOSTNAME, unix.SYS_SETDOMAINNAME}
	if c.Filter == "docker" {
		refused = append(refused, unix.SYS_MOUNT, unix.SYS_UMOUNT2, unix.SYS_PIVOT_ROOT, unix.SYS_UNSHARE, unix.SYS_SETNS, unix.SYS_FSOPEN, unix.SYS_FSMOUNT,
			unix.SYS_FSCONFIG, unix.SYS_MOVE_MOUNT, unix.SYS_OPEN_TREE, unix.SYS_MOUNT_SETATTR)
	}
	const (
		number, argument0 = 0, 16
		allow             = unix.SECCOMP_RET_ALLOW
		eperm             = unix.SECCOMP_RET_ERRNO | uint32(unix.EPERM)
		enosys            = unix.SECCOMP_RET_ERRNO | uint32(unix.ENOSYS)
		newNamespaces     = 0x7e020000
	)
	program := []bpf.Instruction{bpf.LoadAbsolute{Off: number, Size: 4}}
	for _, call := range refused {
		program = append(program, bpf.JumpIf{Cond: bpf.JumpNotEqual, Val: call, SkipTrue: 1}, bpf.RetConstant{Val: eperm})
	}
	if c.Filter == "docker" {
		program = append(program,
			bpf.JumpIf{Cond: bpf.JumpNotEqual, Val: unix.SYS_CLONE3, SkipTrue: 1}, bpf.RetConstant{Val: enosys},
			bpf.JumpIf{Cond: bpf.JumpNotEqual, Val: unix.SYS_CLONE, SkipTrue: 3}, bpf.LoadAbsolute{Off: argument0, Size: 4},
			bpf.JumpIf{Cond: bpf.JumpBitsNotSet, Val: newNamespaces, SkipTrue: 1}, bpf.RetConstant{Val: eperm})
	}
	raw, err := bpf.Assemble(append(program, bpf.RetConstant{Val: allow}))
	if err != nil {
		return err
	}
	filters := make([]unix.SockFilter, len(raw))
	for i, r := range raw {
		filters[i] = unix.SockFilter{Code: r.Op, Jt: r.Jt, Jf: r.Jf, K: r.K}
	}
	f := unix.SockFprog{Len: uint16(len(filters)), Filter: &filters[0]}
	if _, _, errno := unix.Syscall(unix.SYS_SECCOMP, unix.SECCOMP_SET_MODE_FILTER, 0, uintptr(unsafe.Pointer(&f))); errno != 0 {
		return errno
	}
	return nil
}
