package sandbox

import (
	"fmt"
	"os"
	"runtime"
	"slices"
	"strconv"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"skillbox/helper"
)

func TestTheWatchdogJudgesOnlyWhatIsAboveItsLimits(t *testing.T) {
	all := Watched{Memory: 100, Pids: 10, CPU: time.Second}
	for _, c := range []struct {
		limits  Watched
		use     use
		verdict string
		says    string
	}{
		{all, use{100, 10, time.Second}, "", ""},
		{all, use{101, 10, time.Second}, helper.OutOfMemory, "the skill used 101 bytes of memory, the limit is 100 (resources.memory)"},
		{all, use{100, 11, time.Second}, helper.PidsLimit, "the skill ran 11 processes and threads at a time, the limit is 10 (resources.pids)"},
		{all, use{100, 10, time.Second + 1}, helper.TimedOut, "the skill used all the processor time that resources.cpu allows within the timeout: 1s"},
		{Watched{Pids: 10}, use{1 << 40, 10, time.Hour}, "", ""}, // what a cgroup holds is not watched
		{Watched{Memory: 100}, use{100, 1000, time.Hour}, "", ""},
	} {
		if verdict, message := c.limits.judge(c.use); verdict != c.verdict || message != c.says {
			t.Errorf("%+v, %+v: %s, %s", c.limits, c.use, verdict, message)
		}
	}
}

func TestAProcessCannotHideBehindItsName(t *testing.T) {
	const line = "7 (%s) S 1 7 7 0 -1 4194560 90 80 0 0 11 22 33 44 20 0 5 0 123456 8192000 300 18446744073709551615 1 1 0 0 0 0 0 0 0 0 0 0 17 0 0 0 0 0 0\n"
	want := process{own: 33, children: 77, threads: 5, start: 123456, resident: 300 * int64(os.Getpagesize())}
	for _, name := range []string{"sh", "", "a b", ") R 1 1 1 0 0 0 0 0 0 0 0 0 0 0 0 0 0 0 0 0 0", "(", "\n)"} {
		if got, ok := parseStat(fmt.Appendf(nil, line, name)); !ok || got != want {
			t.Errorf("%q: %+v, %v", name, got, ok)
		}
	}
	for _, text := range []string{"", "7 (sh", "7 (sh) S 1 7", "7 (sh) S 1 7 7 0 -1 4194560 90 80 0 0 x 22 33 44 20 0 5 0 123456 8192000 300"} {
		if got, ok := parseStat([]byte(text)); ok {
			t.Errorf("%q: %+v", text, got)
		}
	}
}

func TestProcessorTimeOfProcessesThatAreGoneStillCounts(t *testing.T) {
	var s spent
	look := func(seen map[string]process) int64 {
		s.begin()
		for pid, p := range seen {
			s.add(pid, p)
		}
		return s.end()
	}
	for i, c := range []struct {
		seen map[string]process
		want int64
	}{
		{map[string]process{"2": {own: 5, start: 1}}, 5},
		{map[string]process{"2": {own: 7, start: 1}, "3": {own: 1, start: 2}}, 8},
		{map[string]process{"3": {own: 2, start: 2}}, 9},                           // 2 is gone
		{map[string]process{"2": {own: 1, start: 9}, "3": {own: 2, start: 2}}, 10}, // its number came back
		{map[string]process{"2": {own: 1, start: 10}}, 11},                         // and is another's again
		{nil, 11},
	} {
		if got := look(c.seen); got != c.want {
			t.Errorf("look %d: %d, not %d", i, got, c.want)
		}
	}
}

func TestScratchIsWhatTheSkillMayWrite(t *testing.T) {
	const mounts = `120 119 0:40 / / ro,nosuid,nodev - tmpfs tmpfs rw,size=4096k
121 120 0:41 / /usr ro,nosuid,nodev - ext4 /dev/sda1 rw
122 120 0:42 /call /run ro,nosuid,nodev,noexec - tmpfs tmpfs rw
123 122 0:43 / /run/skillbox/result rw,nosuid,nodev - tmpfs tmpfs rw
124 120 0:44 / /tmp rw,nosuid,nodev shared:1 - tmpfs tmpfs rw,size=65536k
125 120 0:44 /x /var/tmp rw,nosuid,nodev - tmpfs tmpfs rw
126 120 0:45 / /data rw,nosuid,nodev - tmpfs tmpfs rw
127 120 0:46 / /skill rw,nosuid,nodev - overlay overlay rw
128 120 0:47 / /proc rw,nosuid,nodev,noexec - proc proc rw
short line
`
	if got := scratchMounts(mounts); !slices.Equal(got, []string{"/run/skillbox/result", "/tmp", "/skill"}) {
		t.Errorf("%q", got)
	}
}

// The test's own process is looked at as if it were in a box.
func TestOpenMemfdsAreCountedOnce(t *testing.T) {
	proc, err := os.Open("/proc")
	if err != nil {
		t.Fatal(err)
	}
	defer proc.Close()
	self := []string{strconv.Itoa(os.Getpid())}
	before := openMemfds(int(proc.Fd()), self)
	fd, err := unix.MemfdCreate("test", unix.MFD_CLOEXEC)
	if err != nil {
		t.Fatal(err)
	}
	defer unix.Close(fd)
	if _, err := unix.Write(fd, make([]byte, 1<<20)); err != nil {
		t.Fatal(err)
	}
	twin, err := unix.Dup(fd)
	if err != nil {
		t.Fatal(err)
	}
	defer unix.Close(twin)
	if err := unix.Ftruncate(fd, 1<<40); err != nil { // a hole is no memory
		t.Fatal(err)
	}
	if got := openMemfds(int(proc.Fd()), append(self, "999999999")); got-before != 1<<20 {
		t.Errorf("%d bytes", got-before)
	}
}

func TestSystemVMemoryIsSeen(t *testing.T) {
	type answer struct {
		empty, full int64
		err         error
	}
	done := make(chan answer)
	go func() { // its thread ends with it
		runtime.LockOSThread()
		a := answer{err: unix.Unshare(unix.CLONE_NEWIPC)}
		defer func() { done <- a }()
		if a.err != nil {
			return
		}
		a.empty = systemV()
		id, err := unix.SysvShmGet(unix.IPC_PRIVATE, 1<<20, 0o600)
		if err != nil {
			a.err = err
			return
		}
		data, err := unix.SysvShmAttach(id, 0, 0)
		if err != nil {
			a.err = err
			return
		}
		clear(data)
		a.err = unix.SysvShmDetach(data)
		a.full = systemV() // nobody has it mapped
	}()
	a := <-done
	if a.err == unix.EPERM {
		t.Skip("it takes root to make an ipc namespace")
	}
	if a.err != nil || a.empty != 0 || a.full != 1<<20 {
		t.Errorf("%d, then %d bytes, %v", a.empty, a.full, a.err)
	}
}

func TestTheWatchdogEndsWithTheBox(t *testing.T) {
	called := make(chan string, 1)
	ended := make(chan struct{})
	go func() {
		watch(1<<22+1, Watched{Pids: 1}, nil, func(verdict, message string) { called <- verdict + message })
		close(ended)
	}()
	select {
	case <-ended:
	case <-time.After(5 * time.Second):
		t.Fatal("it waits for a process that never was")
	}
	if len(called) > 0 {
		t.Error(<-called)
	}
}

func BenchmarkLook(b *testing.B) {
	w := &watchdog{limits: Watched{Pids: 1 << 20, CPU: time.Hour}}
	var err error
	if w.proc, err = os.Open("/proc"); err != nil {
		b.Fatal(err)
	}
	defer w.close()
	b.ReportMetric(float64(len(w.pids())), "processes")
	for b.Loop() {
		w.look()
	}
}
