package sandbox

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"os"
	"slices"
	"strconv"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"skillbox/helper"
	"skillbox/rootfs"
)

// watchInterval is how often a box is looked at where no cgroup limits it. What a skill can take in between is bounded by RLIMIT_DATA
// for each of its processes, and by RLIMIT_NPROC.
const watchInterval = 50 * time.Millisecond

// watch calls over, once, when the box of the given init uses more than limits: memory is that of processes and of files in memory,
// processor time that of all processes ever. It ends when stop is closed, and must have a goroutine of its own.
func watch(init int, limits Watched, stop <-chan struct{}, over func(verdict, message string)) {
	tick := time.NewTicker(watchInterval)
	defer tick.Stop()
	var w *watchdog
	for {
		select {
		case <-stop:
			return
		case <-tick.C:
		}
		if w == nil { // a run that is over by now costs nothing
			var err error
			w, err = newWatchdog(init, limits)
			if err != nil {
				if ended(init) {
					return // there is nothing to watch
				}
				over(helper.Failed, "the limits of the skill cannot be watched: "+err.Error())
				return
			}
			defer w.close()
		}
		if verdict, message := limits.judge(w.look()); verdict != "" {
			over(verdict, message)
			return
		}
	}
}

// use is what a box uses at one moment.
type use struct {
	memory, tasks int64
	cpu           time.Duration
}

// judge gives the verdict on what is used, or "".
func (l Watched) judge(u use) (verdict, message string) {
	switch {
	case l.Memory > 0 && u.memory > l.Memory:
		return helper.OutOfMemory, fmt.Sprintf("the skill used %d bytes of memory, the limit is %d (resources.memory)", u.memory, l.Memory)
	case l.Pids > 0 && u.tasks > l.Pids:
		return helper.PidsLimit, fmt.Sprintf("the skill ran %d processes and threads at a time, the limit is %d (resources.pids)", u.tasks, l.Pids)
	case l.CPU > 0 && u.cpu > l.CPU:
		return helper.TimedOut, fmt.Sprintf("the skill used all the processor time that resources.cpu allows within the timeout: %v", l.CPU)
	}
	return "", ""
}

// watchdog sees one box from outside.
type watchdog struct {
	limits  Watched
	proc    *os.File   // the box's own /proc: it lists the box's processes, init as 1, and no others
	scratch []*os.File // the file systems in memory that the skill may write
	hidden  *hidden
	spent   spent
	tasks   int64 // as counted last
}

// newWatchdog is for a goroutine of its own: see newHidden.
func newWatchdog(init int, limits Watched) (*watchdog, error) {
	w, err := openWatchdog(init, limits)
	if err != nil || limits.Memory == 0 {
		return w, err
	}
	if w.hidden, err = newHidden(init); err != nil {
		w.close()
		return nil, err
	}
	return w, nil
}

// openWatchdog sees all but what is hidden.
func openWatchdog(init int, limits Watched) (_ *watchdog, err error) {
	root := "/proc/" + strconv.Itoa(init) + "/root"
	w := &watchdog{limits: limits}
	defer func() {
		if err != nil {
			w.close()
		}
	}()
	if w.proc, err = os.Open(root + "/proc"); err != nil || limits.Memory == 0 {
		return w, err
	}
	mounts, err := os.ReadFile("/proc/" + strconv.Itoa(init) + "/mountinfo")
	if err != nil {
		return nil, err
	}
	for _, path := range scratchMounts(string(mounts)) {
		fd, err := unix.Open(root+path, unix.O_PATH|unix.O_DIRECTORY|unix.O_NOFOLLOW|unix.O_CLOEXEC, 0)
		if err != nil {
			return nil, &os.PathError{Op: "open", Path: path, Err: err}
		}
		w.scratch = append(w.scratch, os.NewFile(uintptr(fd), path))
	}
	return w, nil
}

// ended tells whether a process has given up its address space, or is gone. From then on what concerns it answers with one of several
// errors; in a user namespace also with EACCES, as if it were not ours (seen with Linux 6.18).
func ended(pid int) bool {
	size, err := os.ReadFile("/proc/" + strconv.Itoa(pid) + "/statm")
	return err != nil || bytes.HasPrefix(size, []byte("0 "))
}

func (w *watchdog) close() {
	for _, f := range append(w.scratch, w.proc) {
		f.Close() // of a nil file too
	}
}

// scratchMounts finds, in the text of a box's mountinfo (proc_pid_mountinfo(5)), the file systems in memory that rootfs made for the
// skill to write, by their places: their source says nothing, so that a skill sees mounts as any machine has them. A writable overlay is
// the bundle's: of it statfs(2) tells about its upper layer. The box cannot change its mounts.
func scratchMounts(mountinfo string) (paths []string) {
	seen := map[string]bool{}
	for line := range strings.Lines(mountinfo) {
		mount, filesystem, _ := strings.Cut(line, " - ")
		m, f := strings.Fields(mount), strings.Fields(filesystem)
		if len(m) < 6 || len(f) < 2 || !slices.Contains(rootfs.Scratch(), m[4]) || (f[0] != "tmpfs" && f[0] != "overlay") {
			continue
		}
		if device := m[2]; !seen[device] && strings.HasPrefix(m[5], "rw") {
			seen[device] = true
			paths = append(paths, m[4])
		}
	}
	return paths
}

// look goes once over the box's processes. Hundreds of boxes are looked at many times a second: what costs more than one read for
// each process is done only where it can make a difference.
func (w *watchdog) look() use {
	var u use
	var pids []string
	var tasks, resident int64
	var reaped int64 // processor time in ticks, as parents know it
	w.spent.begin()
	for _, pid := range w.pids() {
		p, ok := w.process(pid)
		if !ok {
			continue // it ended meanwhile
		}
		pids = append(pids, pid)
		resident += p.resident
		reaped += p.children
		if pid != "1" {
			tasks += p.threads
			reaped += p.own
			w.spent.add(pid, p)
		}
	}
	// A crowd that is gone at the next look is left alone: RLIMIT_NPROC bounds it.
	u.tasks, w.tasks = min(tasks, w.tasks), tasks
	u.cpu = time.Duration(max(reaped, w.spent.end())) * clockTick
	if w.limits.Memory > 0 {
		u.memory = w.memory(pids, resident)
	}
	return u
}

// memory is that of the processes and of what they keep in files. While all that is resident stays below the limit, that sum is
// returned: it counts pages of files on disk, which all users of a file share, but has cost nothing. Pages of a file in memory may
// be mapped as well; so as not to count them twice, the larger of the two sums counts.
func (w *watchdog) memory(pids []string, resident int64) int64 {
	files := w.scratchBytes() + w.hidden.bytes(int(w.proc.Fd()), pids)
	if resident+files <= w.limits.Memory {
		return resident + files
	}
	return w.unshared(pids, files)
}

// unshared is the memory of processes that is no file's on disk, with so much in files in memory.
func (w *watchdog) unshared(pids []string, files int64) int64 {
	var anonymous, shared int64
	for _, pid := range pids {
		a, s := w.mapped(pid)
		anonymous, shared = anonymous+a, shared+s
	}
	return anonymous + max(shared, files)
}

// pids lists the box's processes, in ascending order: a parent's account of its dead children is mostly read before they could die.
func (w *watchdog) pids() []string {
	if _, err := w.proc.Seek(0, io.SeekStart); err != nil {
		return nil
	}
	names, err := w.proc.Readdirnames(-1)
	if err != nil {
		return nil // the box is gone
	}
	pids := names[:0]
	for _, name := range names {
		if name[0] >= '1' && name[0] <= '9' {
			pids = append(pids, name)
		}
	}
	return pids
}

// process is what one process used, as /proc/PID/stat tells.
type process struct {
	own, children int64 // processor time in ticks: its own, and that of dead children it has waited for
	threads       int64
	start         int64 // tells it from another process that got the same number
	resident      int64 // bytes
}

// clockTick is the unit of time in /proc: USER_HZ is 100 on every architecture that Go knows.
const clockTick = 10 * time.Millisecond

func (w *watchdog) process(pid string) (process, bool) {
	var text [1024]byte
	n, err := w.read(pid+"/stat", text[:])
	if err != nil {
		return process{}, false
	}
	return parseStat(text[:n])
}

// read fills buffer with the start of a file of the box's /proc.
func (w *watchdog) read(name string, buffer []byte) (int, error) {
	fd, err := unix.Openat(int(w.proc.Fd()), name, unix.O_RDONLY|unix.O_CLOEXEC, 0)
	if err != nil {
		return 0, err
	}
	defer unix.Close(fd)
	return unix.Read(fd, buffer)
}

// parseStat reads the line of proc_pid_stat(5). Its second field is the program's name, in which anything may stand.
func parseStat(line []byte) (process, bool) {
	fields := bytes.Fields(line[bytes.LastIndexByte(line, ')')+1:])
	const first = 3 // number of the field that follows the name
	var failed error
	field := func(n int) int64 {
		if len(fields) <= n-first {
			failed = io.ErrUnexpectedEOF
			return 0
		}
		v, err := strconv.ParseInt(string(fields[n-first]), 10, 64)
		failed = errors.Join(failed, err)
		return v
	}
	return process{
		own: field(14) + field(15), children: field(16) + field(17), threads: field(20), start: field(22), resident: field(24) * int64(os.Getpagesize()),
	}, failed == nil
}

// mapped reads what a process has in its address space but for the page cache of files on disk: memory that was there first, and
// memory that may be shared.
func (w *watchdog) mapped(pid string) (anonymous, shared int64) {
	var text [4096]byte
	n, err := w.read(pid+"/status", text[:])
	if err != nil {
		return 0, 0 // it ended meanwhile
	}
	for line := range bytes.Lines(text[:n]) {
		name, value, _ := strings.Cut(string(line), ":")
		if name != "RssAnon" && name != "RssShmem" {
			continue
		}
		kib, err := strconv.ParseInt(strings.TrimSuffix(strings.TrimSpace(value), " kB"), 10, 64)
		switch {
		case err != nil:
		case name == "RssAnon":
			anonymous = kib << 10
		default:
			shared = kib << 10
		}
	}
	return anonymous, shared
}

// spent adds up the processor time of each process as it was last seen. Parents' accounts are exact, but know nothing of children
// for which nobody waits (SIGCHLD ignored, see wait(2)); this knows them, but not their last moments. Neither counts too much.
type spent struct {
	before, now map[string]process
	gone        int64
}

func (s *spent) begin() { s.before, s.now = s.now, make(map[string]process, len(s.now)) }

func (s *spent) add(pid string, p process) { s.now[pid] = p }

// end is the time in ticks of all processes ever seen.
func (s *spent) end() int64 {
	total := int64(0)
	for pid, p := range s.before {
		if now, there := s.now[pid]; !there || now.start != p.start {
			s.gone += p.own
		}
	}
	for _, p := range s.now {
		total += p.own
	}
	return total + s.gone
}

// scratchBytes is what lies in the file systems that the skill may write.
func (w *watchdog) scratchBytes() (total int64) {
	for _, f := range w.scratch {
		var st unix.Statfs_t
		if unix.Fstatfs(int(f.Fd()), &st) == nil { // it cannot fail for a file system in memory
			total += int64(st.Blocks-st.Bfree) * st.Bsize
		}
	}
	return total
}
