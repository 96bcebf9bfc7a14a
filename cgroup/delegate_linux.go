package cgroup

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"

	"golang.org/x/sys/unix"
)

// Delegation is where root keeps the groups of a service for several users:
//
//	skillbox-system-0123456789abcdef    this service's, locked as long as it lives
//	  user-1000                         root's, with what the user may take of all boxes together
//	    w1                              the user's own, see Open; of one worker
//	      worker                        the worker itself: a group with groups in it holds no processes
//	      skillbox.slice                which the worker makes
//
// Nothing of it is named by a user.
type Delegation struct {
	dir  string
	lock *os.File

	mu    sync.Mutex
	users map[uint32]int // workers
	last  int
}

// systemPrefix is what the directory's name begins with, and ownLeaf the group that this process moves to where its own is to hold groups.
const systemPrefix, ownLeaf = "skillbox-system-", "skillboxd"

// Most groups that one user's workers make, and how deep: root's own limit is for the machine.
const maxDescendants, maxDepth = 4096, 4

// Delegate makes it below the delegated subtree of the calling process's unit, else at the top, and sweeps what dead services left. It is for
// root. The error is *Unavailable where there can be no groups.
func Delegate() (*Delegation, error) {
	group, err := present()
	if err != nil {
		return nil, err
	}
	above := "/"
	for _, a := range ancestors(group) {
		if delegated(a) {
			above = a
			break
		}
	}
	if above == group && group != "/" {
		if err := moveTo(filepath.Join(Root, above, ownLeaf)); err != nil {
			return nil, err
		}
	}
	d := &Delegation{dir: filepath.Join(Root, above, fmt.Sprintf("%s%016x", systemPrefix, rand.Uint64())), users: map[uint32]int{}}
	if err := os.Mkdir(d.dir, 0o755); err != nil {
		return nil, makeError(d.dir, err)
	}
	if d.lock, err = lock(d.dir); err != nil {
		return nil, errors.Join(err, remove(d.dir))
	}
	if err := errors.Join(passAll(filepath.Join(Root, above)), passAll(d.dir)); err != nil {
		return nil, errors.Join(err, d.Close())
	}
	return d, sweepSystem(filepath.Join(Root, above))
}

// delegated says that systemd will not touch a group again (systemd.resource-control(5), Delegate=).
func delegated(group string) bool {
	var value [8]byte
	n, err := unix.Getxattr(Root+group, "trusted.delegate", value[:])
	return err == nil && string(value[:n]) == "1" && group != "/"
}

func moveTo(dir string) error {
	if err := os.Mkdir(dir, 0o755); err != nil && !errors.Is(err, os.ErrExist) {
		return makeError(dir, err)
	}
	if err := os.WriteFile(filepath.Join(dir, "cgroup.procs"), []byte("0"), 0); err != nil {
		return fmt.Errorf("cgroup: move to %s: %w", dir, err)
	}
	return nil
}

// passAll passes on every controller that limits something.
func passAll(dir string) error {
	available, err := controllers(dir, "cgroup.controllers")
	if err != nil {
		return err
	}
	return pass(dir, usable(available))
}

// sweepSystem removes the groups of services that died.
func sweepSystem(above string) error {
	entries, err := os.ReadDir(above)
	if err != nil {
		return fmt.Errorf("cgroup: %w", err)
	}
	var errs []error
	for _, e := range entries {
		if !e.IsDir() || !strings.HasPrefix(e.Name(), systemPrefix) {
			continue
		}
		path := filepath.Join(above, e.Name())
		if dir, err := lock(path); err == nil {
			errs = append(errs, removeTree(path), dir.Close())
		}
	}
	return errors.Join(errs...)
}

// Close kills what is left in the groups and removes them.
func (d *Delegation) Close() error { return errors.Join(removeTree(d.dir), d.lock.Close()) }

// Delegated is the group of one worker.
type Delegated struct {
	of   *Delegation
	uid  uint32
	dir  string
	leaf *os.File
}

// Worker makes the group for a worker of a user's, in which the user may make others. All groups of the user together are held to the limits.
func (d *Delegation) Worker(uid, gid uint32, l Limits) (_ *Delegated, err error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	user := d.user(uid)
	if err := os.Mkdir(user, 0o755); err != nil && !errors.Is(err, os.ErrExist) {
		return nil, fmt.Errorf("cgroup: %w", err)
	}
	d.users[uid]++
	d.last++
	g := &Delegated{of: d, uid: uid, dir: filepath.Join(user, "w"+strconv.Itoa(d.last))}
	defer func() {
		if err != nil {
			err = errors.Join(err, g.close())
		}
	}()
	if err := limitUser(user, l); err != nil {
		return nil, err
	}
	leaf := filepath.Join(g.dir, "worker")
	if err := errors.Join(os.Mkdir(g.dir, 0o755), os.Mkdir(leaf, 0o755)); err != nil {
		return nil, fmt.Errorf("cgroup: %w", err)
	}
	// What must be the user's, by the kernel's cgroup-v2.rst (model of delegation). The limits stand above.
	for _, dir := range []string{g.dir, leaf} {
		for _, file := range []string{"", "cgroup.procs", "cgroup.subtree_control", "cgroup.threads"} {
			if err := os.Chown(filepath.Join(dir, file), int(uid), int(gid)); err != nil {
				return nil, fmt.Errorf("cgroup: %w", err)
			}
		}
	}
	if g.leaf, err = os.Open(leaf); err != nil {
		return nil, fmt.Errorf("cgroup: %w", err)
	}
	return g, nil
}

func (d *Delegation) user(uid uint32) string {
	return filepath.Join(d.dir, "user-"+strconv.FormatUint(uint64(uid), 10))
}

// limitUser holds all of a user's groups to what they may take together.
func limitUser(dir string, l Limits) error {
	if err := passAll(dir); err != nil {
		return err
	}
	available, err := controllers(dir, "cgroup.controllers")
	if err != nil {
		return err
	}
	for _, f := range []struct {
		controller, file string
		value            int64
	}{{Memory, "memory.max", l.Memory}, {Pids, "pids.max", l.Pids}, {"", "cgroup.max.descendants", maxDescendants}, {"", "cgroup.max.depth", maxDepth}} {
		if f.value == 0 || f.controller != "" && !slices.Contains(available, f.controller) {
			continue
		}
		if err := os.WriteFile(filepath.Join(dir, f.file), []byte(strconv.FormatInt(f.value, 10)), 0); err != nil {
			return fmt.Errorf("cgroup: limit %s: %w", dir, err)
		}
	}
	return nil
}

// FD is the directory in which a process is to be started (CLONE_INTO_CGROUP).
func (g *Delegated) FD() int { return int(g.leaf.Fd()) }

// Close kills what is left in the group and removes it, and with the user's last the user's.
func (g *Delegated) Close() error {
	g.of.mu.Lock()
	defer g.of.mu.Unlock()
	return g.close()
}

func (g *Delegated) close() error {
	var errs []error
	if g.leaf != nil {
		errs = append(errs, g.leaf.Close())
	}
	errs = append(errs, removeTree(g.dir))
	if g.of.users[g.uid]--; g.of.users[g.uid] == 0 {
		delete(g.of.users, g.uid)
		errs = append(errs, removeTree(g.of.user(g.uid)))
	}
	return errors.Join(errs...)
}

// removeTree kills what is in a group and in all below it, and removes them. Whose they were makes none meanwhile.
func removeTree(dir string) error {
	if err := errors.Join(os.Chown(dir, 0, 0), os.Chmod(dir, 0o700)); err != nil {
		if errors.Is(err, os.ErrNotExist) {
			return nil
		}
		return fmt.Errorf("cgroup: %w", err)
	}
	entries, err := os.ReadDir(dir)
	if err != nil {
		return fmt.Errorf("cgroup: %w", err)
	}
	// One that is going says ENODEV.
	_ = os.WriteFile(filepath.Join(dir, "cgroup.kill"), []byte("1"), 0)
	var errs []error
	for _, e := range entries {
		if e.IsDir() {
			errs = append(errs, removeTree(filepath.Join(dir, e.Name())))
		}
	}
	return errors.Join(append(errs, remove(dir))...)
}
