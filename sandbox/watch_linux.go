package sandbox

import (
	"bytes"
	"os"
	"strconv"
	"strings"
	"time"
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
		if used := residentBytes(namespace); used > limit {
			over(used)
			return
		}
	}
}

func pidNamespace(pid int) string { return "/proc/" + strconv.Itoa(pid) + "/ns/pid" }

// residentBytes adds up anonymous and shared memory of a pid namespace's processes, see statm in proc(5): resident minus
// file-backed pages.
func residentBytes(namespace string) (total int64) {
	entries, err := os.ReadDir("/proc")
	if err != nil {
		return 0
	}
	for _, e := range entries {
		pid, err := strconv.Atoi(e.Name())
		if err != nil || pid == 1 {
			continue
		}
		if ns, err := os.Readlink(pidNamespace(pid)); err != nil || ns != namespace {
			continue
		}
		total += anonymousBytes(pid)
	}
	return total
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
