package sandbox

import (
	"bufio"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"golang.org/x/sys/unix"

	"skillbox/boxinit"
	"skillbox/netpolicy"
	"skillbox/rootfs"
	"skillbox/seccomp"
)

// Enter makes the calling process's mount namespace private, gives it its own /proc and a tmpfs for box state, and finds out who
// it is. It must run in a mount and pid namespace made for it, as pid 1. Who lasts sees what the machine mounts and unmounts later;
// otherwise a bundle on a disk that came later would not be found, and one that went would be kept busy.
func Enter(lasts bool) (*Host, error) {
	if os.Getpid() != 1 {
		return nil, errors.New("sandbox: skillboxd must be pid 1 of a pid namespace of its own; it is started by skillbox")
	}
	propagation := uintptr(unix.MS_PRIVATE)
	if lasts {
		propagation = unix.MS_SLAVE
	}
	if err := unix.Mount("", "/", "", unix.MS_REC|propagation, ""); err != nil {
		return nil, fmt.Errorf("sandbox: make mounts private: %w", err)
	}
	if err := unix.Mount("proc", "/proc", "proc", unix.MS_NOSUID|unix.MS_NODEV|unix.MS_NOEXEC, ""); err != nil {
		return nil, fmt.Errorf("sandbox: mount /proc: %w (inside another container, its runtime must leave /proc unmasked; see `skillbox doctor`)", err)
	}
	h := &Host{lasts: lasts, Swept: map[string]int{}}
	var err error
	if h.Namespaces, err = boxinit.Namespaces(); err != nil {
		return nil, fmt.Errorf("sandbox: %w", err)
	}
	if err := errors.Join(h.identify(), h.readName(), h.readLimits(), h.findInit(), h.openGroups(), h.mountPrivate(), h.sweepLinks()); err != nil {
		return nil, errors.Join(err, h.Close())
	}
	return h, nil
}

// sweepLinks takes away what is left of dead processes' links, for who lasts; others do so with their one box.
func (h *Host) sweepLinks() (err error) {
	if h.lasts && h.Mode == "root" {
		h.Swept["link"], err = netpolicy.Sweep()
	}
	return err
}

// Caller is the uid on the machine of whom this skillboxd works for.
func (h *Host) Caller() int { return h.caller }

// CallerGroup is the caller's gid on the machine.
func (h *Host) CallerGroup() int { return h.gid }

// mountPrivate puts a tmpfs over a directory that no policy can name as a source, so that it hides nothing.
func (h *Host) mountPrivate() error {
	for _, dir := range []string{"/dev/pts", "/dev/mqueue", "/dev/shm"} {
		if _, err := os.Stat(dir); err != nil {
			continue
		}
		if err := unix.Mount("skillbox", dir, "tmpfs", unix.MS_NOSUID|unix.MS_NODEV, "mode=0711"); err != nil {
			return fmt.Errorf("sandbox: private tmpfs: %w", err)
		}
		h.Dir = dir
		return nil
	}
	return errors.New("sandbox: none of /dev/pts, /dev/mqueue and /dev/shm exists to hold the sandbox's state")
}

// identify reads the id maps: a full map is the machine's own user namespace.
func (h *Host) identify() error {
	uids, err := readMap("/proc/self/uid_map")
	if err != nil {
		return err
	}
	gids, err := readMap("/proc/self/gid_map")
	if err != nil {
		return err
	}
	h.caller, h.gid = int(uids[0].outside), int(gids[0].outside)
	h.Linkable = func() (no4, no6 error) {
		no := &netpolicy.NoForwarding{Message: "a link into the host's network takes root", Hint: "let root run the skill, or do without"}
		return no, no
	}
	if uids.full() {
		h.Mode = "root"
		h.Linkable = netpolicy.Linkable
		var err error
		h.IDs, h.lock, err = takeBlock()
		return err
	}
	h.Mode = "rootless"
	if uids.count() < 2 || gids.count() < 2 {
		groups, err := os.Getgroups()
		if err != nil {
			return fmt.Errorf("sandbox: %w", err)
		}
		// The primary group is 0 here, as the only one with an id.
		h.IDs = IDs{Single: true, Groups: len(slices.DeleteFunc(groups, func(g int) bool { return g == 0 }))}
		return nil
	}
	h.IDs = IDs{RootUID: 1, RootGID: 1, BoxUID: skillID, BoxGID: skillID}
	return nil
}

const (
	// Blocks of ids for boxes of root: a range that systemd's and shadow's documents leave unused.
	firstBlock = 0x70000000
	blocks     = 1 << 20
	blockSize  = 16
)

// block is a block of ids that is ours, with what was made for them. A service's boxes take turns: those that run at the same time have
// different ones.
type block struct {
	ids  IDs
	maps rootfs.IDMaps
	lock *os.File
}

func (b *block) close() error { return errors.Join(b.maps.Close(), b.lock.Close()) }

// maxBlocks are kept for boxes to come.
const maxBlocks = 8

// block returns one that no box has: of those before, or a new one.
func (h *Host) block() (*block, error) {
	h.mu.Lock()
	if n := len(h.blocks); n > 0 {
		b := h.blocks[n-1]
		h.blocks = h.blocks[:n-1]
		h.mu.Unlock()
		return b, nil
	}
	h.mu.Unlock()
	ids, lock, err := takeBlock()
	if err != nil {
		return nil, err
	}
	return &block{ids: ids, lock: lock}, nil
}

// giveBack takes the block of a box of which nothing is left.
func (h *Host) giveBack(b *block) error {
	h.mu.Lock()
	if len(h.blocks) < maxBlocks {
		h.blocks = append(h.blocks, b)
		b = nil
	}
	h.mu.Unlock()
	if b == nil {
		return nil
	}
	return b.close()
}

// takeBlock reserves ids that no other box on this host has, until the lock is closed: two boxes with one uid could signal each other's
// helpers and share per-uid limits. An abstract socket is a lock that the kernel frees whatever happens to us.
func takeBlock() (IDs, *os.File, error) {
	for range 16 {
		n := rand.IntN(blocks)
		fd, err := unix.Socket(unix.AF_UNIX, unix.SOCK_DGRAM|unix.SOCK_CLOEXEC, 0)
		if err != nil {
			return IDs{}, nil, fmt.Errorf("sandbox: reserve ids: %w", err)
		}
		err = unix.Bind(fd, &unix.SockaddrUnix{Name: fmt.Sprintf("@skillbox/ids/%d", n)})
		if err == nil {
			base := firstBlock + n*blockSize
			ids := IDs{RootUID: base, RootGID: base, SkillUID: base + 1, SkillGID: base + 1, BoxUID: skillID, BoxGID: skillID}
			return ids, os.NewFile(uintptr(fd), "ids"), nil
		}
		unix.Close(fd)
		if err != unix.EADDRINUSE {
			return IDs{}, nil, fmt.Errorf("sandbox: reserve ids: %w", err)
		}
	}
	return IDs{}, nil, errors.New("sandbox: no free block of ids for the sandbox's user")
}

type idRange struct{ inside, outside, size int64 }

type idMap []idRange

func readMap(path string) (idMap, error) {
	f, err := os.Open(path)
	if err != nil {
		return nil, fmt.Errorf("sandbox: %w", err)
	}
	defer f.Close()
	var m idMap
	lines := bufio.NewScanner(f)
	for lines.Scan() {
		var r idRange
		if _, err := fmt.Sscan(lines.Text(), &r.inside, &r.outside, &r.size); err != nil {
			return nil, fmt.Errorf("sandbox: %s: %w", path, err)
		}
		m = append(m, r)
	}
	return m, lines.Err()
}

func (m idMap) full() bool { return len(m) == 1 && m[0] == idRange{0, 0, 1<<32 - 1} }

func (m idMap) count() (n int64) {
	for _, r := range m {
		n += r.size
	}
	return n
}

// findInit looks beside our own binary, before anything is mounted over it.
func (h *Host) findInit() error {
	self, err := os.Readlink("/proc/self/exe")
	if err != nil {
		return fmt.Errorf("sandbox: %w", err)
	}
	h.Init = filepath.Join(filepath.Dir(self), "skillbox-init")
	if _, err := os.Stat(h.Init); err != nil {
		return fmt.Errorf("sandbox: %w: it is installed beside skillboxd", err)
	}
	return nil
}

func (h *Host) readLimits() error {
	pattern, err := os.ReadFile("/proc/sys/kernel/core_pattern")
	if err != nil {
		return fmt.Errorf("sandbox: %w", err)
	}
	if scope, err := os.ReadFile("/proc/sys/kernel/yama/ptrace_scope"); err == nil && strings.TrimSpace(string(scope)) == "3" {
		h.Unwatchable = "kernel.yama.ptrace_scope is 3, which lasts until the next boot"
	}
	if !seccomp.CanWatch() {
		h.Unwatchable = "Linux 5.19 is the first that can"
	}
	h.CoreHandler = len(pattern) > 0 && pattern[0] == '|'
	h.HardLimits = map[string]uint64{}
	for name, kind := range map[string]int{
		"RLIMIT_CORE": unix.RLIMIT_CORE, "RLIMIT_CPU": unix.RLIMIT_CPU, "RLIMIT_DATA": unix.RLIMIT_DATA, "RLIMIT_MEMLOCK": unix.RLIMIT_MEMLOCK,
		"RLIMIT_MSGQUEUE": unix.RLIMIT_MSGQUEUE, "RLIMIT_NOFILE": unix.RLIMIT_NOFILE, "RLIMIT_NPROC": unix.RLIMIT_NPROC,
		"RLIMIT_SIGPENDING": unix.RLIMIT_SIGPENDING,
	} {
		var limit unix.Rlimit
		if err := unix.Getrlimit(kind, &limit); err != nil {
			return fmt.Errorf("sandbox: %s: %w", name, err)
		}
		h.HardLimits[name] = limit.Max
	}
	return nil
}
