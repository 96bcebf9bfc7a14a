package cgroup

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strconv"
	"strings"

	"github.com/containerd/cgroups/v3/cgroup2"
	"github.com/containerd/cgroups/v3/cgroup2/stats"
	"golang.org/x/sys/unix"
)

// Usage reads the kernel's counters. It is for a group that has been confined.
func (g *Group) Usage() (*Usage, error) {
	<-g.counted
	b, u := g.before, (*Usage)(nil)
	err := g.beforeErr
	if err == nil {
		u, err = g.count()
	}
	if err != nil {
		return nil, err
	}
	u.UserUS -= b.UserUS
	u.SystemUS -= b.SystemUS
	for _, grown := range []struct{ now, then *int64 }{
		{u.ThrottledUS, b.ThrottledUS},
		{u.OOMs, b.OOMs},
		{u.OOMKills, b.OOMKills},
		{u.PidsRefused, b.PidsRefused},
		{u.PressureCPU, b.PressureCPU},
		{u.PressureMemory, b.PressureMemory},
		{u.PressureIO, b.PressureIO},
	} {
		if grown.now != nil && grown.then != nil {
			*grown.now -= *grown.then
		}
	}
	if u.Disk != nil && b.Disk != nil {
		*u.Disk = DiskUsage{u.Disk.ReadBytes - b.Disk.ReadBytes, u.Disk.WriteBytes - b.Disk.WriteBytes, u.Disk.Reads - b.Disk.Reads, u.Disk.Writes - b.Disk.Writes}
	}
	return u, nil
}

// Restart lets Usage count from now on. A peak that this kernel cannot reset (memory.peak before Linux 6.12, pids.peak) remains one since
// the group was confined.
func (g *Group) Restart() error {
	<-g.counted
	now, err := g.count()
	if err != nil {
		return err
	}
	g.before, g.beforeErr = now, nil
	if g.peak == nil {
		return nil
	}
	if _, err := g.peak.WriteAt([]byte("reset"), 0); err != nil {
		return fmt.Errorf("cgroup: reset memory.peak of %s: %w", g.Name, err)
	}
	return nil
}

// count reads the counters since the group was made.
func (g *Group) count() (*Usage, error) {
	m, err := g.manager.StatFiltered(cgroup2.StatCPU | cgroup2.StatMemoryEvents | cgroup2.StatIO)
	if err != nil {
		return nil, fmt.Errorf("cgroup: count %s: %w", g.Name, err)
	}
	u := &Usage{UserUS: int64(m.CPU.UserUsec), SystemUS: int64(m.CPU.SystemUsec), PressureCPU: waited(m.CPU.PSI), PressureIO: waited(m.Io.PSI)}
	lacks := func(controller string) bool { return len(g.place.Lacks(controller)) > 0 }
	if !lacks(CPU) {
		u.ThrottledUS = number(m.CPU.ThrottledUsec)
	}
	if m.MemoryEvents != nil {
		u.OOMs, u.OOMKills = number(m.MemoryEvents.Oom), number(m.MemoryEvents.OomKill)
	}
	if !lacks(IO) {
		u.Disk = &DiskUsage{}
		for _, e := range m.Io.Usage {
			u.Disk.ReadBytes += int64(e.Rbytes)
			u.Disk.WriteBytes += int64(e.Wbytes)
			u.Disk.Reads += int64(e.Rios)
			u.Disk.Writes += int64(e.Wios)
		}
	}
	return u, errors.Join(g.countPeaks(u), g.countPids(u), g.countMemoryPressure(u))
}

func (g *Group) countPeaks(u *Usage) error {
	if g.peak != nil {
		text, err := io.ReadAll(io.NewSectionReader(g.peak, 0, 64))
		if err != nil {
			return fmt.Errorf("cgroup: %w", err)
		}
		peak, err := strconv.ParseInt(strings.TrimSpace(string(text)), 10, 64)
		if err != nil {
			return fmt.Errorf("cgroup: memory.peak: %w", err)
		}
		u.MemoryPeak = &peak
	} else if peak, ok, err := g.number("memory.peak"); err != nil {
		return err
	} else if ok {
		u.MemoryPeak = &peak
	}
	peak, ok, err := g.number("pids.peak")
	if ok {
		peak -= g.resident
		u.PidsPeak = &peak
	}
	return err
}

// countPids reads pids.events: since Linux 6.11 it counts where the limit was hit, before where the fork was tried. Here that is
// one group.
func (g *Group) countPids(u *Usage) error {
	return g.pairs("pids.events", func(name string, value int64) {
		if name == "max" {
			u.PidsRefused = &value
		}
	})
}

func (g *Group) countMemoryPressure(u *Usage) error {
	f, err := os.Open(filepath.Join(g.Dir, "memory.pressure"))
	if errors.Is(err, os.ErrNotExist) {
		return nil
	}
	if err != nil {
		return fmt.Errorf("cgroup: %w", err)
	}
	defer f.Close()
	lines := bufio.NewScanner(f)
	for lines.Scan() {
		rest, some := strings.CutPrefix(lines.Text(), "some ")
		if _, total, ok := strings.Cut(rest, "total="); some && ok {
			if n, err := strconv.ParseInt(total, 10, 64); err == nil {
				u.PressureMemory = &n
			}
		}
	}
	if err := lines.Err(); err != nil && !errors.Is(err, unix.EOPNOTSUPP) { // psi=0 on the command line
		return fmt.Errorf("cgroup: %w", err)
	}
	return nil
}

func number(n uint64) *int64 {
	i := int64(n)
	return &i
}

// waited is the total of the "some" line of a pressure file, nil where the kernel keeps none.
func waited(psi *stats.PSIStats) *int64 {
	if psi == nil || psi.Some == nil {
		return nil
	}
	return number(psi.Some.Total)
}

// Memory is what the group's processes take now in bytes, memory.current. False is that nobody counts, or that the group is gone.
func (g *Group) Memory() (int64, bool) {
	n, ok, err := g.number("memory.current")
	return n, ok && err == nil
}

// number reads a file that holds one number; "max" is none. A kernel that lacks the file is no error.
func (g *Group) number(file string) (n int64, ok bool, err error) {
	text, err := os.ReadFile(filepath.Join(g.Dir, file))
	if errors.Is(err, os.ErrNotExist) || strings.TrimSpace(string(text)) == "max" {
		return 0, false, nil
	}
	if err != nil {
		return 0, false, fmt.Errorf("cgroup: %w", err)
	}
	n, err = strconv.ParseInt(strings.TrimSpace(string(text)), 10, 64)
	if err != nil {
		return 0, false, fmt.Errorf("cgroup: %s: %w", file, err)
	}
	return n, true, nil
}

// pairs reads a flat keyed file. A kernel that lacks the file is no error.
func (g *Group) pairs(file string, each func(name string, value int64)) error {
	f, err := os.Open(filepath.Join(g.Dir, file))
	if errors.Is(err, os.ErrNotExist) {
		return nil
	}
	if err != nil {
		return fmt.Errorf("cgroup: %w", err)
	}
	defer f.Close()
	lines := bufio.NewScanner(f)
	for lines.Scan() {
		name, text, _ := strings.Cut(lines.Text(), " ")
		value, err := strconv.ParseInt(text, 10, 64)
		if err != nil {
			return fmt.Errorf("cgroup: %s: %w", file, err)
		}
		each(name, value)
	}
	return lines.Err()
}

// WatchForks calls refused with the number of forks that the limit refused since the group was confined, each time that it grows.
// The kernel tells (kernfs notifies inotify(7)); nothing is polled. It ends when stop is closed.
func (g *Group) WatchForks(stop <-chan struct{}, refused func(int64)) error {
	fd, err := unix.InotifyInit1(unix.IN_CLOEXEC | unix.IN_NONBLOCK)
	if err == unix.EMFILE {
		// The user's instances are used up (fs.inotify.max_user_instances, 128): by that many boxes, or by others. The limit holds all
		// the same and Usage tells how often; only nobody ends a bomb before its time-out.
		return nil
	}
	if err != nil {
		return fmt.Errorf("cgroup: watch: %w", err)
	}
	events := os.NewFile(uintptr(fd), "inotify")
	if _, err := unix.InotifyAddWatch(fd, filepath.Join(g.Dir, "pids.events"), unix.IN_MODIFY); err != nil {
		events.Close()
		return fmt.Errorf("cgroup: watch pids.events: %w", err)
	}
	go func() {
		<-stop
		events.Close()
	}()
	go func() {
		var u Usage
		buffer := make([]byte, 4096)
		for {
			if _, err := events.Read(buffer); err != nil {
				return // closed
			}
			if err := g.countPids(&u); err == nil && u.PidsRefused != nil {
				refused(*u.PidsRefused)
			}
		}
	}()
	return nil
}
