package cgroup

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	"github.com/containerd/cgroups/v3/cgroup2"
	"golang.org/x/sys/unix"
)

// Group holds one box. It is locked as long as this process has it, so that no sweep takes it for a dead one's.
type Group struct {
	Dir  string // where it is for this process
	Name string // below its place

	place    *Place
	manager  *cgroup2.Manager
	dir      *os.File // locked
	peak     *os.File // memory.peak, reset
	resident int64    // tasks that were there when it was confined
	// before is what setting up used; it is there when counted is closed.
	before    *Usage
	beforeErr error
	counted   chan struct{}
}

// Create makes an empty group without limits. The id must be unique in the place.
func (p *Place) Create(id string) (*Group, error) {
	g := &Group{Dir: filepath.Join(p.Dir, id), Name: id, place: p}
	p.mu.Lock() // or Close would not know of it
	defer p.mu.Unlock()
	if p.dir == nil {
		return nil, fmt.Errorf("cgroup: %s is closed", p.Group)
	}
	if err := g.make(); err != nil {
		return nil, err
	}
	var err error
	// The group is named in the mount namespace that the box's process is started from, which may differ from the machine's.
	if g.manager, err = cgroup2.Load("/"+id, cgroup2.WithMountpoint(p.Dir)); err != nil {
		return nil, errors.Join(fmt.Errorf("cgroup: %w", err), remove(g.Dir), g.dir.Close())
	}
	if len(p.Lacks(CPU)) == 0 {
		// Setting up goes before whatever boxes that are at work take; Confine ends that.
		if err := os.WriteFile(filepath.Join(g.Dir, "cpu.weight"), []byte("10000"), 0); err != nil {
			return nil, errors.Join(fmt.Errorf("cgroup: %w", err), remove(g.Dir), g.dir.Close())
		}
	}
	if p.groups == nil {
		p.groups = map[*Group]bool{}
	}
	p.groups[g] = true
	return g, nil
}

// make makes the directory and locks it. A sweep may come between, which holds it until it is removed.
func (g *Group) make() error {
	return insist(g.Dir, func() (bool, error) {
		if err := os.Mkdir(g.Dir, 0o700); err != nil && !errors.Is(err, os.ErrExist) {
			return true, makeError(g.Dir, err)
		}
		dir, err := lock(g.Dir)
		if errors.Is(err, os.ErrNotExist) || errors.Is(err, unix.EWOULDBLOCK) {
			return false, nil
		}
		g.dir = dir
		return true, err
	})
}

// lock opens a group for the one process that it belongs to.
func lock(path string) (*os.File, error) {
	dir, err := os.Open(path)
	if err != nil {
		return nil, fmt.Errorf("cgroup: %w", err)
	}
	if err := unix.Flock(int(dir.Fd()), unix.LOCK_EX|unix.LOCK_NB); err != nil {
		dir.Close()
		return nil, fmt.Errorf("cgroup: lock %s: %w", path, err)
	}
	held, errHeld := dir.Stat()
	named, errNamed := os.Stat(path)
	if errHeld != nil || errNamed != nil || !os.SameFile(held, named) {
		dir.Close()
		return nil, fmt.Errorf("cgroup: %s: %w", path, os.ErrNotExist)
	}
	return dir, nil
}

// Holds says whether a process, by its number in our pid namespace, is in the group.
func (g *Group) Holds(pid int) (bool, error) {
	text, err := os.ReadFile(filepath.Join(g.Dir, "cgroup.procs"))
	if err != nil {
		return false, fmt.Errorf("cgroup: %w", err)
	}
	for field := range bytes.FieldsSeq(text) {
		if string(field) == strconv.Itoa(pid) {
			return true, nil
		}
	}
	return false, nil
}

// Confine puts the limits in force for what is in the group and will be. What was counted so far does not count as the box's.
func (g *Group) Confine(l Limits) error {
	if l.Pids > 0 {
		tasks, ok, err := g.number("pids.current")
		if err != nil || !ok {
			return errors.Join(err, fmt.Errorf("cgroup: %s: no pids.current", g.Dir))
		}
		g.resident = tasks
	}
	if err := g.update(l); err != nil {
		return err
	}
	if err := g.write(l); err != nil {
		return err
	}
	if peak, err := os.OpenFile(filepath.Join(g.Dir, "memory.peak"), os.O_RDWR, 0); err == nil {
		// Since Linux 6.12 any write starts a count for this descriptor; before, the file cannot be opened for writing.
		if _, err := peak.WriteString("reset"); err == nil {
			g.peak = peak
		} else {
			peak.Close()
		}
	}
	// Ten files are read beside what is still to be prepared.
	g.counted = make(chan struct{})
	go func() {
		defer close(g.counted)
		g.before, g.beforeErr = g.count()
	}()
	return nil
}

// beyond is what the kernel may charge above memory.max: a few pages for tasks that die, which it cannot refuse.
const beyond = 128 << 10

// update writes what containerd's package has words for.
func (g *Group) update(l Limits) error {
	r := &cgroup2.Resources{}
	if l.Memory > 0 {
		together, most := true, l.Memory-beyond
		r.Memory = &cgroup2.Memory{OOMGroup: &together, Max: &most}
	}
	if l.CPU > 0 {
		const period = 100_000
		quota, length, weight := max(int64(l.CPU*period), 1000), uint64(period), uint64(min(max(l.CPU*100, 1), 10_000))
		r.CPU = &cgroup2.CPU{Max: cgroup2.NewCPUMax(&quota, &length), Weight: &weight}
	}
	if l.Pids > 0 {
		r.Pids = &cgroup2.Pids{Max: l.Pids + g.resident}
	}
	for _, d := range l.Disks {
		for kind, rate := range map[cgroup2.IOType]int64{cgroup2.ReadBPS: l.IORead, cgroup2.WriteBPS: l.IOWrite} {
			if rate == 0 {
				continue
			}
			if r.IO == nil {
				r.IO = &cgroup2.IO{}
			}
			r.IO.Max = append(r.IO.Max, cgroup2.Entry{Type: kind, Major: int64(d.Major), Minor: int64(d.Minor), Rate: uint64(rate)})
		}
	}
	if err := g.manager.Update(r); err != nil {
		return fmt.Errorf("cgroup: limit %s: %w", g.Name, err)
	}
	return nil
}

// write writes the rest.
func (g *Group) write(l Limits) error {
	if l.Memory > 0 {
		err := os.WriteFile(filepath.Join(g.Dir, "memory.swap.max"), []byte("0"), 0)
		if errors.Is(err, os.ErrNotExist) {
			err = noSwap()
		}
		if err != nil {
			return fmt.Errorf("cgroup: limit %s: %w", g.Name, err)
		}
	}
	if l.IOWeight > 0 {
		err := os.WriteFile(filepath.Join(g.Dir, "io.weight"), fmt.Appendf(nil, "default %d", l.IOWeight), 0)
		if errors.Is(err, os.ErrNotExist) {
			return unavailable("use a kernel with CONFIG_BLK_CGROUP_IOCOST=y, or leave resources.io_weight out", "this kernel shares disks by no weight (io.weight)")
		}
		if err != nil {
			return fmt.Errorf("cgroup: limit %s: %w", g.Name, err)
		}
	}
	// A box makes no groups: nothing of it can reach the cgroup file system. Should that ever fail, it gets nowhere.
	if err := os.WriteFile(filepath.Join(g.Dir, "cgroup.max.descendants"), []byte("0"), 0); err != nil {
		return fmt.Errorf("cgroup: limit %s: %w", g.Name, err)
	}
	return nil
}

// noSwap is nil where there is no swap that a group without memory.swap.max could escape to.
func noSwap() error {
	text, err := os.ReadFile("/proc/swaps")
	if errors.Is(err, os.ErrNotExist) || (err == nil && strings.Count(string(text), "\n") <= 1) {
		return nil
	}
	return errors.Join(err, unavailable("boot with swapaccount=1 on the kernel's command line, or without swap", "this kernel does not count swap (memory.swap.max)"))
}

// Kill ends every process of the group at once. It does not wait.
func (g *Group) Kill() error {
	err := os.WriteFile(filepath.Join(g.Dir, "cgroup.kill"), []byte("1"), 0)
	if err != nil && !errors.Is(err, os.ErrNotExist) && !errors.Is(err, unix.ENODEV) {
		return fmt.Errorf("cgroup: kill %s: %w", g.Name, err)
	}
	return nil
}

// Close kills what is left and removes the group. It may be called more than once, and after the group has gone.
func (g *Group) Close() error {
	if g.dir == nil {
		return nil
	}
	if g.counted != nil {
		<-g.counted // it reads what is about to go
	}
	err := remove(g.Dir)
	g.place.mu.Lock()
	delete(g.place.groups, g)
	g.place.mu.Unlock()
	if g.peak != nil {
		err = errors.Join(err, g.peak.Close())
	}
	err = errors.Join(err, g.dir.Close())
	g.dir, g.peak = nil, nil
	return err
}

// patience is how long a killed group may take to become empty: its processes end in the kernel, one after the other.
const patience = 5 * time.Second

func remove(dir string) error {
	deadline := time.Now().Add(patience)
	for wait := 100 * time.Microsecond; ; wait = min(2*wait, 20*time.Millisecond) {
		err := unix.Rmdir(dir)
		if err == nil || err == unix.ENOENT {
			return nil
		}
		if err != unix.EBUSY || time.Now().After(deadline) {
			return fmt.Errorf("cgroup: remove %s: %w", dir, err)
		}
		// ENODEV and the like say that it has gone, which the next try finds out.
		_ = os.WriteFile(filepath.Join(dir, "cgroup.kill"), []byte("1"), 0)
		time.Sleep(wait)
	}
}

// sweep removes the groups of processes that died without doing so: those that nobody holds.
func (p *Place) sweep() error {
	entries, err := os.ReadDir(p.Dir)
	if err != nil {
		return fmt.Errorf("cgroup: %w", err)
	}
	var errs []error
	for _, entry := range entries {
		if !entry.IsDir() {
			continue
		}
		path := filepath.Join(p.Dir, entry.Name())
		dir, err := lock(path)
		if err != nil {
			continue // in use, or gone meanwhile
		}
		if err = remove(path); err == nil {
			p.Swept++
		}
		errs = append(errs, err, dir.Close())
	}
	return errors.Join(errs...)
}
