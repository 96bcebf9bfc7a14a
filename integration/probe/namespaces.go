package main

import (
	"encoding/json"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strconv"
	"strings"
	"syscall"
	"time"
	"unsafe"

	"golang.org/x/sys/unix"
)

// Group B of the threat table: what a skill tries against namespaces, capabilities, mounts and other processes.
var _ = register(map[string]func([]string) (any, error){
	"unshare":            func([]string) (any, error) { return unshareEach(), nil },
	"clone":              func([]string) (any, error) { return cloneEach(), nil },
	"in-new-namespaces":  inNewNamespaces,
	"netfilter-table":    func([]string) (any, error) { return netfilterTable(), nil },
	"traffic-control":    func([]string) (any, error) { return trafficControl(), nil },
	"setns":              func([]string) (any, error) { return setnsEach(), nil },
	"raise-capabilities": raiseCapabilities,
	"change-ids":         func([]string) (any, error) { return changeIDs(), nil },
	"mount":              func([]string) (any, error) { return mountEach(), nil },
	"mount-api":          func([]string) (any, error) { return mountAPI(), nil },
	"chroot":             func([]string) (any, error) { return leaveRoot(), nil },
	"moved-away":         movedAway,
	"kill":               killEach,
	"guess-pids":         func([]string) (any, error) { return guessPIDs() },
	"signal-init":        func([]string) (any, error) { return signalInit(), nil },
	"orphans":            leaveOrphans,
	"victim":             victim,
	"neighbour":          attackNeighbour,
})

var namespaceFlags = map[string]uintptr{
	"user": unix.CLONE_NEWUSER, "mnt": unix.CLONE_NEWNS, "pid": unix.CLONE_NEWPID, "net": unix.CLONE_NEWNET, "ipc": unix.CLONE_NEWIPC,
	"uts": unix.CLONE_NEWUTS, "cgroup": unix.CLONE_NEWCGROUP, "user+net": unix.CLONE_NEWUSER | unix.CLONE_NEWNET,
	"user+mnt": unix.CLONE_NEWUSER | unix.CLONE_NEWNS,
}

// child is this program again with one attempt.
func child(attr *syscall.SysProcAttr, words ...string) *exec.Cmd {
	c := exec.Command("/proc/self/exe", words...)
	c.SysProcAttr = attr
	return c
}

// unshareEach calls unshare in a process of one thread: with more the kernel itself refuses a user namespace.
func unshareEach() map[string]string {
	got := map[string]string{}
	for name, flag := range namespaceFlags {
		got["unshare "+name] = answer(child(&syscall.SysProcAttr{Unshareflags: flag}, "nothing").Run())
	}
	got["unshare time"] = answer(child(&syscall.SysProcAttr{Unshareflags: unix.CLONE_NEWTIME}, "nothing").Run())
	return got
}

func cloneEach() map[string]string {
	got := map[string]string{}
	for name, flag := range namespaceFlags {
		got["clone "+name] = answer(child(&syscall.SysProcAttr{Cloneflags: flag}, "nothing").Run())
		got["clone3 "+name] = answer(clone3(uint64(flag)))
	}
	got["clone3 time"] = answer(clone3(unix.CLONE_NEWTIME))
	return got
}

// clone3 forks as fork does; the child ends at once without a look at this program's memory.
func clone3(flags uint64) error {
	args := [11]uint64{0: flags, 4: uint64(unix.SIGCHLD)}
	pid, _, errno := unix.RawSyscall(unix.SYS_CLONE3, uintptr(unsafe.Pointer(&args)), unsafe.Sizeof(args), 0)
	if errno != 0 {
		return errno
	}
	if pid == 0 {
		unix.RawSyscall(unix.SYS_EXIT_GROUP, 0, 0, 0)
	}
	_, err := unix.Wait4(int(pid), nil, 0, nil)
	return err
}

// inNewNamespaces makes one more attempt as root of a user and network namespace of its own.
func inNewNamespaces(args []string) (any, error) {
	c := child(&syscall.SysProcAttr{
		Cloneflags:  unix.CLONE_NEWUSER | unix.CLONE_NEWNET,
		UidMappings: []syscall.SysProcIDMap{{ContainerID: 0, HostID: os.Getuid(), Size: 1}},
		GidMappings: []syscall.SysProcIDMap{{ContainerID: 0, HostID: os.Getgid(), Size: 1}},
	}, args...)
	out, err := c.Output()
	if err != nil {
		return map[string]string{"namespaces": answer(err)}, nil
	}
	got := map[string]string{}
	err = json.Unmarshal(out, &got)
	got["namespaces"] = "ok"
	return got, err
}

func native16(v uint16) []byte { return []byte{byte(v), byte(v >> 8)} }
func native32(v uint32) []byte { return []byte{byte(v), byte(v >> 8), byte(v >> 16), byte(v >> 24)} }

// netlinkMessage is one message that asks for an answer, see netlink(7).
func netlinkMessage(kind, flags uint16, body []byte) []byte {
	head := append(native32(uint32(16+len(body))), native16(kind)...)
	head = append(append(head, native16(flags)...), native32(1)...)
	return append(append(head, native32(0)...), body...)
}

// netlinkAsk returns the errno of the first error message.
func netlinkAsk(protocol int, messages []byte) error {
	fd, err := unix.Socket(unix.AF_NETLINK, unix.SOCK_RAW|unix.SOCK_CLOEXEC, protocol)
	if err != nil {
		return err
	}
	defer unix.Close(fd)
	if err := unix.SetsockoptTimeval(fd, unix.SOL_SOCKET, unix.SO_RCVTIMEO, &unix.Timeval{Sec: 2}); err != nil {
		return err
	}
	if err := unix.Sendto(fd, messages, 0, &unix.SockaddrNetlink{Family: unix.AF_NETLINK}); err != nil {
		return err
	}
	buffer := make([]byte, 8192)
	n, _, err := unix.Recvfrom(fd, buffer, 0)
	if err != nil {
		return err
	}
	if n >= 20 && buffer[4] == unix.NLMSG_ERROR {
		if errno := -int32(uint32(buffer[16]) | uint32(buffer[17])<<8 | uint32(buffer[18])<<16 | uint32(buffer[19])<<24); errno != 0 {
			return syscall.Errno(errno)
		}
	}
	return nil
}

// netfilterTable adds an nft table "x" in a batch, see nfnetlink's batch messages.
func netfilterTable() map[string]string {
	const ack = unix.NLM_F_REQUEST | unix.NLM_F_ACK
	generic := func(family byte, resource uint16) []byte {
		return []byte{family, 0, byte(resource >> 8), byte(resource)}
	}
	name := append(append(native16(6), native16(1)...), 'x', 0, 0, 0)
	batch := netlinkMessage(unix.NFNL_MSG_BATCH_BEGIN, unix.NLM_F_REQUEST, generic(0, unix.NFNL_SUBSYS_NFTABLES))
	batch = append(batch, netlinkMessage(unix.NFNL_SUBSYS_NFTABLES<<8|unix.NFT_MSG_NEWTABLE, ack|unix.NLM_F_CREATE, append(generic(unix.NFPROTO_INET, 0), name...))...)
	batch = append(batch, netlinkMessage(unix.NFNL_MSG_BATCH_END, unix.NLM_F_REQUEST, generic(0, unix.NFNL_SUBSYS_NFTABLES))...)
	return map[string]string{"nft add table": answer(netlinkAsk(unix.NETLINK_NETFILTER, batch))}
}

// trafficControl gives loopback another queue, adds an interface and an address.
func trafficControl() map[string]string {
	const ack = unix.NLM_F_REQUEST | unix.NLM_F_ACK | unix.NLM_F_CREATE
	attribute := func(kind uint16, value string) []byte {
		data := append(append(native16(uint16(4+len(value)+1)), native16(kind)...), value...)
		return append(data, make([]byte, 1+(4-(len(data)+1)%4)%4)...)
	}
	qdisc := append(append([]byte{0, 0, 0, 0}, native32(1)...), native32(0x00010000)...)
	qdisc = append(append(append(qdisc, native32(0xffffffff)...), native32(0)...), attribute(unix.TCA_KIND, "pfifo")...)
	link := append(make([]byte, 16), attribute(unix.IFLA_IFNAME, "evil0")...)
	address := append([]byte{unix.AF_INET, 8, 0, 0}, native32(1)...)
	address = append(append(append(address, native16(8)...), native16(unix.IFA_LOCAL)...), 10, 9, 8, 7)
	down := append(append([]byte{0, 0, 0, 0}, native32(1)...), append(native32(0), native32(unix.IFF_UP)...)...)
	return map[string]string{
		"tc qdisc add":   answer(netlinkAsk(unix.NETLINK_ROUTE, netlinkMessage(unix.RTM_NEWQDISC, ack, qdisc))),
		"ip address add": answer(netlinkAsk(unix.NETLINK_ROUTE, netlinkMessage(unix.RTM_NEWADDR, ack, address))),
		"ip link add":    answer(netlinkAsk(unix.NETLINK_ROUTE, netlinkMessage(unix.RTM_NEWLINK, ack, link))),
		"ip link down":   answer(netlinkAsk(unix.NETLINK_ROUTE, netlinkMessage(unix.RTM_NEWLINK, unix.NLM_F_REQUEST|unix.NLM_F_ACK, down))),
	}
}

// setnsEach tries every namespace of every process, and those of pid 1 by a pidfd.
func setnsEach() map[string]string {
	runtime.LockOSThread() // and end with it
	got := map[string]string{}
	links, _ := filepath.Glob("/proc/[0-9]*/ns/*") // the pattern is well-formed
	for _, link := range append(links, "/proc/1/ns/user", "/proc/1/ns/mnt", "/proc/1/ns/net", "/proc/self/ns/uts") {
		fd, err := unix.Open(link, unix.O_RDONLY|unix.O_CLOEXEC, 0)
		if err != nil {
			got["open "+link] = answer(err)
			continue
		}
		got["setns "+link] = answer(unix.Setns(fd, 0))
		unix.Close(fd)
	}
	for _, pid := range []int{1, os.Getpid()} {
		fd, err := unix.PidfdOpen(pid, 0)
		if err != nil {
			got[fmt.Sprintf("pidfd_open %d", pid)] = answer(err)
			continue
		}
		for name, flag := range namespaceFlags {
			got[fmt.Sprintf("setns pidfd %d %s", pid, name)] = answer(unix.Setns(fd, int(flag)))
		}
		unix.Close(fd)
	}
	return got
}

// raiseCapabilities asks for capabilities in every way, and returns the sets before, after and of a program started then.
func raiseCapabilities([]string) (any, error) {
	runtime.LockOSThread()
	tries := map[string]string{}
	before, err := os.ReadFile("/proc/thread-self/status")
	if err != nil {
		return nil, err
	}
	for name, capability := range map[string]uintptr{"CAP_SYS_ADMIN": unix.CAP_SYS_ADMIN, "CAP_NET_ADMIN": unix.CAP_NET_ADMIN, "CAP_CHOWN": unix.CAP_CHOWN} {
		header := unix.CapUserHeader{Version: unix.LINUX_CAPABILITY_VERSION_3}
		data := [2]unix.CapUserData{{Effective: 1 << capability, Permitted: 1 << capability}}
		tries["capset permitted "+name] = answer(unix.Capset(&header, &data[0]))
		data = [2]unix.CapUserData{{Inheritable: 1 << capability}}
		tries["capset inheritable "+name] = answer(unix.Capset(&header, &data[0]))
		tries["ambient "+name] = answer(unix.Prctl(unix.PR_CAP_AMBIENT, unix.PR_CAP_AMBIENT_RAISE, capability, 0, 0))
	}
	tries["securebits"] = answer(unix.Prctl(unix.PR_SET_SECUREBITS, 0, 0, 0, 0))
	tries["drop no_new_privs"] = answer(unix.Prctl(unix.PR_SET_NO_NEW_PRIVS, 0, 0, 0, 0))
	if err := unix.Prctl(unix.PR_SET_KEEPCAPS, 1, 0, 0, 0); err != nil {
		tries["keepcaps"] = answer(err)
	}
	got := map[string]map[string]string{"tries": tries, "before": fields(string(before))}
	text, err := os.ReadFile("/proc/thread-self/status")
	got["after"] = fields(string(text))
	if err != nil {
		return nil, err
	}
	// A program started by uid 0 would get all of the bounding set.
	for name, attr := range map[string]*syscall.SysProcAttr{"child": nil, "child as uid 0": {Credential: &syscall.Credential{Uid: 0, Gid: 0, NoSetGroups: true}}} {
		out, err := child(attr, "status").Output()
		if err != nil {
			got[name] = map[string]string{"error": answer(err)}
			continue
		}
		status := map[string]string{}
		if err := json.Unmarshal(out, &status); err != nil {
			return nil, err
		}
		got[name] = status
	}
	return got, nil
}

// changeIDs tries to become somebody else. The last two are -1 and 2^32, which would stand for "unchanged" and wrap to 0.
func changeIDs() map[string]string {
	got := map[string]string{}
	for _, id := range []int{0, 1, 65534, 61234, 1500000000, 2147483648, 4294967294} {
		attr := &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: uint32(id), Gid: uint32(os.Getgid()), NoSetGroups: true}}
		got[fmt.Sprintf("setuid(%d)", id)] = answer(child(attr, "nothing").Run())
		attr = &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: uint32(os.Getuid()), Gid: uint32(id), NoSetGroups: true}}
		got[fmt.Sprintf("setgid(%d)", id)] = answer(child(attr, "nothing").Run())
	}
	_, _, errno := unix.RawSyscall(unix.SYS_SETGROUPS, 0, 0, 0)
	got["setgroups"] = "EPERM"
	if errno != unix.EPERM {
		got["setgroups"] = answer(errno)
	}
	return got
}

func mountEach() map[string]string {
	try := func(source, target, kind string, flags uintptr, data string) string {
		err := unix.Mount(source, target, kind, flags, data)
		if err == nil && kind != "" {
			_ = unix.Unmount(target, unix.MNT_DETACH) // only where the attempt succeeded
		}
		return answer(err)
	}
	return map[string]string{
		"tmpfs":              try("x", "/tmp", "tmpfs", 0, ""),
		"proc":               try("x", "/tmp", "proc", 0, ""),
		"sysfs":              try("x", "/tmp", "sysfs", 0, ""),
		"overlay":            try("x", "/tmp", "overlay", 0, "lowerdir=/usr:/tmp"),
		"cgroup2":            try("x", "/tmp", "cgroup2", 0, ""),
		"cgroup":             try("x", "/tmp", "cgroup", 0, "memory"),
		"bpf":                try("x", "/tmp", "bpf", 0, ""),
		"devpts":             try("x", "/tmp", "devpts", 0, ""),
		"mqueue":             try("x", "/tmp", "mqueue", 0, ""),
		"debugfs":            try("x", "/tmp", "debugfs", 0, ""),
		"fuse":               try("x", "/tmp", "fuse", 0, "fd=0,rootmode=40000,user_id=0,group_id=0"),
		"bind / on /tmp":     try("/", "/tmp", "", unix.MS_BIND|unix.MS_REC, ""),
		"bind over /etc":     try("/tmp", "/etc", "", unix.MS_BIND, ""),
		"remount / rw":       try("", "/", "", unix.MS_REMOUNT|unix.MS_BIND, ""),
		"remount /usr rw":    try("", "/usr", "", unix.MS_REMOUNT|unix.MS_BIND, ""),
		"remount /proc/sys":  try("", "/proc/sys", "", unix.MS_REMOUNT|unix.MS_BIND, ""),
		"move /tmp":          try("/tmp", "/home/skill", "", unix.MS_MOVE, ""),
		"share /":            try("", "/", "", unix.MS_SHARED|unix.MS_REC, ""),
		"umount /proc/sys":   answer(unix.Unmount("/proc/sys", unix.MNT_DETACH)),
		"umount /proc/kcore": answer(unix.Unmount("/proc/kcore", unix.MNT_DETACH)),
		"umount /":           answer(unix.Unmount("/", unix.MNT_DETACH)),
	}
}

// mountAPI makes each call so that a kernel without a filter would do something; open_tree_attr is number 467 everywhere.
func mountAPI() map[string]string {
	const openTreeAttr = 467
	got := map[string]string{}
	context, err := unix.Fsopen("tmpfs", unix.FSOPEN_CLOEXEC)
	got["fsopen"] = answer(err)
	got["fsconfig"] = answer(unix.FsconfigCreate(context))
	mount, err := unix.Fsmount(context, unix.FSMOUNT_CLOEXEC, 0)
	got["fsmount"] = answer(err)
	got["move_mount"] = answer(unix.MoveMount(mount, "", unix.AT_FDCWD, "/tmp", unix.MOVE_MOUNT_F_EMPTY_PATH))
	_, err = unix.Fspick(unix.AT_FDCWD, "/", unix.FSPICK_CLOEXEC)
	got["fspick"] = answer(err)
	tree, err := unix.OpenTree(unix.AT_FDCWD, "/", unix.OPEN_TREE_CLONE|unix.OPEN_TREE_CLOEXEC|unix.AT_RECURSIVE)
	got["open_tree"] = answer(err)
	attr := unix.MountAttr{Attr_clr: unix.MOUNT_ATTR_RDONLY}
	got["mount_setattr"] = answer(unix.MountSetattr(unix.AT_FDCWD, "/", 0, &attr))
	got["mount_setattr tree"] = answer(unix.MountSetattr(tree, "", unix.AT_EMPTY_PATH, &attr))
	name := []byte("/\x00")
	_, _, errno := unix.Syscall6(openTreeAttr, ^uintptr(99), uintptr(unsafe.Pointer(&name[0])), unix.OPEN_TREE_CLONE, uintptr(unsafe.Pointer(&attr)), unsafe.Sizeof(attr), 0)
	got["open_tree_attr"] = "ok"
	if errno != 0 {
		got["open_tree_attr"] = answer(errno)
	}
	return got
}

// leaveRoot is the classic walk out of chroot(2), and pivot_root on itself.
func leaveRoot() map[string]string {
	got := map[string]string{"mkdir": answer(unix.Mkdir("/tmp/jail", 0o755))}
	got["chroot"] = answer(unix.Chroot("/tmp/jail"))
	got["pivot_root"] = answer(unix.PivotRoot(".", "."))
	var before, after unix.Stat_t
	err := unix.Stat("/", &before)
	for range 40 {
		if err == nil {
			err = unix.Chdir("..")
		}
	}
	if err == nil {
		err = unix.Stat(".", &after)
	}
	got["walk up"] = answer(err)
	if err == nil && (before.Dev != after.Dev || before.Ino != after.Ino) {
		got["walk up"] = "left the root"
	}
	return got
}

// movedAway sits in args[0], says so by making args[1], and waits until it has been moved out of the bind mount.
func movedAway(args []string) (any, error) {
	if err := os.Chdir(args[0]); err != nil {
		return nil, err
	}
	held, err := unix.Open(".", unix.O_PATH|unix.O_DIRECTORY|unix.O_CLOEXEC, 0)
	if err != nil {
		return nil, err
	}
	if err := os.WriteFile(args[1], nil, 0o644); err != nil {
		return nil, err
	}
	for range 2000 {
		if _, err := os.Stat(args[0]); err != nil {
			break
		}
		time.Sleep(time.Millisecond)
	}
	got := map[string]string{}
	for _, p := range []string{"..", "../..", "../../..", "../secret", "../../secret", "./../secret"} {
		for name, dir := range map[string]int{"cwd": unix.AT_FDCWD, "descriptor": held} {
			fd, err := unix.Openat(dir, p, unix.O_RDONLY|unix.O_CLOEXEC, 0)
			if err == nil {
				unix.Close(fd)
			}
			got[name+" "+p] = answer(err)
		}
	}
	got["chdir .."] = answer(unix.Chdir(".."))
	got["create"] = answer(os.WriteFile("../made", nil, 0o644))
	return got, nil
}

// killEach sends SIGKILL to the pids given, in every way that takes a pid.
func killEach(pids []string) (any, error) {
	got := map[string]string{}
	for _, text := range pids {
		pid, err := strconv.Atoi(text)
		if err != nil {
			return nil, err
		}
		got["kill "+text] = answer(unix.Kill(pid, unix.SIGKILL))
		got["tgkill "+text] = answer(unix.Tgkill(pid, pid, unix.SIGKILL))
		fd, err := unix.PidfdOpen(pid, 0)
		if err == nil {
			err = unix.PidfdSendSignal(fd, unix.SIGKILL, nil, 0)
			unix.Close(fd)
		}
		got["pidfd "+text] = answer(err)
	}
	return got, nil
}

// guessPIDs asks for every pid whether it could be signalled, and returns those that are not listed in our own /proc.
func guessPIDs() (map[string]string, error) {
	got := map[string]string{"asked": "ok"}
	for pid := 2; pid < 70000; pid++ {
		if err := unix.Kill(pid, 0); err == unix.ESRCH {
			continue
		}
		if _, err := os.Stat("/proc/" + strconv.Itoa(pid)); err != nil {
			got[strconv.Itoa(pid)] = "can be signalled"
		}
	}
	return got, nil
}

// signalInit sends everything to pid 1, and then kills all that kill(-1) reaches.
func signalInit() map[string]string {
	got := map[string]string{}
	tasks, err := os.ReadDir("/proc/1/task")
	got["list threads"] = answer(err)
	for signal := unix.Signal(1); signal <= 64; signal++ {
		// As if queued by sigqueue(3), which some run-times take for a fault of their own.
		info := [128]byte{}
		copy(info[:], native32(uint32(signal)))
		copy(info[8:], []byte{0xff, 0xff, 0xff, 0xff}) // si_code is SI_QUEUE, -1
		_, _, _ = unix.RawSyscall(unix.SYS_RT_SIGQUEUEINFO, 1, uintptr(signal), uintptr(unsafe.Pointer(&info)))
		kill := unix.Kill(1, signal)
		if kill != nil && kill != unix.EPERM && kill != unix.EAGAIN {
			got[fmt.Sprintf("kill 1 with %d", signal)] = answer(kill)
		}
		for _, task := range tasks {
			if tid, err := strconv.Atoi(task.Name()); err == nil {
				_ = unix.Tgkill(1, tid, signal) // it may be refused: what counts is that init lives
			}
		}
	}
	fd, err := unix.PidfdOpen(1, 0)
	got["pidfd_open 1"] = answer(err)
	if err == nil {
		got["pidfd_send_signal 1"] = answer(unix.PidfdSendSignal(fd, unix.SIGKILL, nil, 0))
		unix.Close(fd)
	}
	sleeper := child(nil, "wait")
	in, err := sleeper.StdinPipe()
	if err == nil {
		err = sleeper.Start()
	}
	if err == nil {
		err = unix.Kill(-1, unix.SIGKILL)
		got["kill -1"] = answer(err)
		ended := sleeper.Wait()
		got["own child"] = "survived"
		if ended != nil && strings.Contains(ended.Error(), "killed") {
			got["own child"] = "killed"
		}
		in.Close()
	}
	time.Sleep(20 * time.Millisecond)
	got["init"] = answer(unix.Kill(1, 0))
	return got
}

// leaveOrphans starts processes that outlive their parent, ignore signals, are stopped, and hold stdout.
func leaveOrphans([]string) (any, error) {
	script := `trap '' TERM INT HUP; (setsid sleep 1000 &) ; (setsid sh -c 'trap "" TERM; sleep 1000' &) ; sh -c 'kill -STOP $$' & exit 0`
	c := exec.Command("/bin/sh", "-c", script)
	c.Stdout, c.Stderr = os.Stdout, os.Stderr
	if err := c.Run(); err != nil {
		return nil, err
	}
	time.Sleep(20 * time.Millisecond)
	return map[string]string{"left": "ok"}, nil
}

const sharedKey = 0x5b0c5b0c

// victim holds things that a neighbour might reach, makes args[0] when they are there, and tells at the end of stdin how it fared.
func victim(args []string) (any, error) {
	for _, p := range []string{"/tmp/victim", "/dev/shm/victim", "/home/skill/victim"} {
		if err := os.WriteFile(p, []byte("private"), 0o666); err != nil {
			return nil, err
		}
	}
	id, err := unix.SysvShmGet(sharedKey, 4096, unix.IPC_CREAT|0o666)
	if err != nil {
		return nil, err
	}
	memory, err := unix.SysvShmAttach(id, 0, 0)
	if err != nil {
		return nil, err
	}
	copy(memory, "private")
	listener, err := net.Listen("unix", "@skillbox-test-victim")
	if err != nil {
		return nil, err
	}
	defer listener.Close()
	tcp, err := net.Listen("tcp", "127.0.0.1:47321")
	if err != nil {
		return nil, err
	}
	defer tcp.Close()
	if err := os.WriteFile(args[0], nil, 0o644); err != nil {
		return nil, err
	}
	if _, err := waitForEnd(nil); err != nil {
		return nil, err
	}
	text, err := os.ReadFile("/tmp/victim")
	return map[string]string{"file": string(text), "memory": string(memory[:7])}, err
}

// attackNeighbour tries what a victim holds, and its pids as the host and as its own box number them.
func attackNeighbour(pids []string) (any, error) {
	got := map[string]string{}
	for _, p := range []string{"/tmp/victim", "/dev/shm/victim", "/home/skill/victim"} {
		_, err := os.ReadFile(p)
		got[p] = answer(err)
	}
	_, err := unix.SysvShmGet(sharedKey, 4096, 0)
	got["shmget"] = answer(err)
	for _, address := range [][2]string{{"unix", "@skillbox-test-victim"}, {"tcp", "127.0.0.1:47321"}} {
		conn, err := net.Dial(address[0], address[1])
		if err == nil {
			conn.Close()
		}
		got["connect "+address[0]] = answer(err)
	}
	for _, text := range pids {
		pid, err := strconv.Atoi(text)
		if err != nil {
			return nil, err
		}
		got["kill "+text] = answer(unix.Kill(pid, unix.SIGKILL))
		got["ptrace "+text] = answer(unix.PtraceSeize(pid))
		local := make([]byte, 8)
		_, err = unix.ProcessVMReadv(pid, []unix.Iovec{{Base: &local[0], Len: 8}}, []unix.RemoteIovec{{Base: 0x400000, Len: 8}}, 0)
		got["process_vm_readv "+text] = answer(err)
		for _, name := range []string{"mem", "environ", "root", "fd"} {
			fd, err := unix.Open("/proc/"+text+"/"+name, unix.O_RDONLY|unix.O_CLOEXEC, 0)
			if err == nil {
				unix.Close(fd)
			}
			got["open "+text+" "+name] = answer(err)
		}
		fd, err := unix.PidfdOpen(pid, 0)
		got["pidfd_open "+text] = answer(err)
		if err == nil {
			unix.Close(fd)
		}
	}
	return got, nil
}
