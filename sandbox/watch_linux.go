package sandbox

import (
	"bytes"
	"os"
	"strconv"
	"strings"
	"time"

	"golang.org/x/sys/unix"
)

// watchInterval is how often memory is looked at where no cgroup limits it. What a skill can allocate in between is bounded by
// RLIMIT_DATA for each of its processes.
const watchInterval = 50 * time.Millisecond

// watchMemory calls over, once, when the resident memory of all processes in init's pid namespace is above limit bytes. It ends
// when stop is closed. Shared pages are counted once per process only where they are not of files.
func watchMemory(init int, limit int64, stop <-chan struct{}, over func(bytes int64)) {
	namespace, err := os.Readlink(pidNamespace(init))
	if err != nil {
		return // init has ended: there is nothing to watch
	}
	tick := time.NewTicker(watchInterval)
	defer tick.Stop()
	for {
		select {
		case <-stop:
			return
		case <-tick.C:
		}
		if used := residentBytes(namespace, limit); used > limit {
			over(used)
			return
		}
	}
}

func pidNamespace(pid int) string { return "/proc/" + strconv.Itoa(pid) + "/ns/pid" }

// residentBytes adds up anonymous and shared memory of a pid namespace's processes: all that is resident minus file-backed pages,
// which all users of a file share. While everything that is resident stays below enough, that sum is returned instead: it takes
// a tenth of the time, and hundreds of boxes are looked at many times a second.
func residentBytes(namespace string, enough int64) (total int64) {
	proc, err := unix.Open("/proc", unix.O_RDONLY|unix.O_DIRECTORY|unix.O_CLOEXEC, 0)
	if err != nil {
		return 0
	}
	dir := os.NewFile(uintptr(proc), "/proc")
	defer dir.Close()
	names, err := dir.Readdirnames(-1)
	if err != nil {
		return 0
	}
	var pids []int
	for _, name := range names {
		if pid, err := strconv.Atoi(name); err == nil && pid != 1 {
			pids = append(pids, pid)
			total += statmResident(proc, name)
		}
	}
	if total <= enough {
		return total
	}
	total = 0
	for _, pid := range pids {
		if ns, err := os.Readlink(pidNamespace(pid)); err == nil && ns == namespace {
			total += anonymousBytes(pid)
		}
	}
	return total
}

// statmResident reads the second field of /proc/PID/statm, see proc_pid_statm(5).
func statmResident(proc int, pid string) int64 {
	fd, err := unix.Openat(proc, pid+"/statm", unix.O_RDONLY|unix.O_CLOEXEC, 0)
	if err != nil {
		return 0 // it ended meanwhile
	}
	defer unix.Close(fd)
	var text [128]byte
	n, err := unix.Read(fd, text[:])
	if err != nil {
		return 0
	}
	fields := bytes.Fields(text[:n])
	if len(fields) < 2 {
		return 0
	}
	pages, err := strconv.ParseInt(string(fields[1]), 10, 64)
	if err != nil {
		return 0
	}
	return pages * int64(os.Getpagesize())
}

// anonymousBytes reads RssAnon and RssShmem, which leave out the page cache that all users of a file share.
func anonymousBytes(pid int) (total int64) {
	status, err := os.ReadFile("/proc/" + strconv.Itoa(pid) + "/status")
	if err != nil {
		return 0 // it ended meanwhile
	}
	for line := range bytes.Lines(status) {
		name, value, _ := strings.Cut(string(line), ":")
		if name != "RssAnon" && name != "RssShmem" {
			continue
		}
		kib, err := strconv.ParseInt(strings.TrimSuffix(strings.TrimSpace(value), " kB"), 10, 64)
		if err == nil {
			total += kib << 10
		}
	}
	return total
}
