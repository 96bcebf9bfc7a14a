package cgroup

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

// TestMain gives root a mount namespace in which the cgroup2 file system is where systemd mounts it, whatever the machine has
// there. On a machine with version 1 it has no controllers: what needs one is tested where there are.
func TestMain(m *testing.M) {
	if os.Getuid() != 0 || os.Getenv("SKILLBOX_CGROUP_TEST") != "" {
		os.Exit(m.Run())
	}
	c := exec.Command("/proc/self/exe", os.Args[1:]...)
	c.Stdin, c.Stdout, c.Stderr = os.Stdin, os.Stdout, os.Stderr
	c.Env = append(os.Environ(), "SKILLBOX_CGROUP_TEST=1")
	c.SysProcAttr = &syscall.SysProcAttr{Cloneflags: unix.CLONE_NEWNS, Pdeathsig: syscall.SIGKILL}
	err := c.Run()
	var exit *exec.ExitError
	if errors.As(err, &exit) {
		os.Exit(exit.ExitCode())
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, "cgroup:", err)
		os.Exit(1)
	}
	os.Exit(0)
}

// place opens the place of these tests, in a view where version 2 is mounted.
func place(t testing.TB) *Place {
	t.Helper()
	if os.Getuid() != 0 {
		t.Skip("needs root for a cgroup2 mount of its own; integration tests the ordinary user's")
	}
	var fs unix.Statfs_t
	if err := unix.Statfs(Root, &fs); err != nil {
		t.Fatal(err)
	}
	if fs.Type != unix.CGROUP2_SUPER_MAGIC {
		err := errors.Join(unix.Mount("", "/", "", unix.MS_REC|unix.MS_PRIVATE, ""), unix.Mount("cgroup2", Root, "cgroup2", 0, ""))
		if err != nil {
			t.Fatal(err)
		}
	}
	p, err := Open(0)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := p.Close(); err != nil {
			t.Error(err)
		}
	})
	return p
}

// sleeper starts a process that does nothing, in a group.
func sleeper(t testing.TB, g *Group, argv ...string) *exec.Cmd {
	t.Helper()
	if len(argv) == 0 {
		argv = []string{"/bin/sleep", "60"}
	}
	c := exec.Command(argv[0], argv[1:]...)
	dir, err := os.Open(g.Dir)
	if err != nil {
		t.Fatal(err)
	}
	defer dir.Close()
	c.SysProcAttr = &syscall.SysProcAttr{UseCgroupFD: true, CgroupFD: int(dir.Fd()), Pdeathsig: syscall.SIGKILL}
	if err := c.Start(); err != nil {
		t.Fatal(err)
	}
	return c
}

func create(t testing.TB, p *Place, id string) *Group {
	t.Helper()
	g, err := p.Create(id)
	if err != nil {
		t.Fatal(err)
	}
	return g
}

func TestClosingAGroupKillsWhatIsInIt(t *testing.T) {
	g := create(t, place(t), "closing")
	c := sleeper(t, g)
	inside, err := g.Holds(c.Process.Pid)
	if err != nil || !inside {
		t.Fatalf("holds: %v, %v", inside, err)
	}
	if inside, err := g.Holds(os.Getpid()); err != nil || inside {
		t.Fatalf("holds us: %v, %v", inside, err)
	}
	if err := g.Close(); err != nil {
		t.Fatal(err)
	}
	var exit *exec.ExitError
	if err := c.Wait(); !errors.As(err, &exit) || exit.Sys().(syscall.WaitStatus).Signal() != syscall.SIGKILL {
		t.Errorf("ended as %v", err)
	}
	if _, err := os.Stat(g.Dir); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("the group is still there: %v", err)
	}
	if err := g.Close(); err != nil {
		t.Errorf("a second time: %v", err)
	}
}

func TestUsageIsTheKernelsOwnCountersSinceConfine(t *testing.T) {
	g := create(t, place(t), "usage")
	defer g.Close()
	burn := func() {
		c := sleeper(t, g, "/bin/sh", "-c", "i=0; while [ $i -lt 5000 ]; do i=$((i+1)); done")
		if err := c.Wait(); err != nil {
			t.Fatal(err)
		}
		time.Sleep(200 * time.Millisecond) // what has been waited for still has to leave its processor
	}
	burn()
	if err := g.Confine(Limits{}); err != nil {
		t.Fatal(err)
	}
	<-g.counted
	before := counter(t, g, "cpu.stat", "user_usec")
	if before == 0 {
		t.Fatal("nothing was counted")
	}
	burn()
	u, err := g.Usage()
	if err != nil {
		t.Fatal(err)
	}
	after := counter(t, g, "cpu.stat", "user_usec")
	if u.UserUS != after-before || u.UserUS <= 0 {
		t.Errorf("user %d, the file grew by %d", u.UserUS, after-before)
	}
	// A session's calls are counted one by one.
	if err := g.Restart(); err != nil {
		t.Fatal(err)
	}
	before = counter(t, g, "cpu.stat", "user_usec")
	burn()
	again, err := g.Usage()
	if err != nil {
		t.Fatal(err)
	}
	if after := counter(t, g, "cpu.stat", "user_usec"); again.UserUS != after-before || again.UserUS <= 0 {
		t.Errorf("after Restart: user %d, the file grew by %d", again.UserUS, after-before)
	}
	// What this hierarchy has no controller for is absent, not zero.
	if len(g.place.Lacks(Memory)) > 0 && (u.MemoryPeak != nil || u.OOMKills != nil) {
		t.Errorf("memory is counted without a controller: %+v", u)
	}
	if len(g.place.Lacks(Pids)) > 0 && (u.PidsPeak != nil || u.PidsRefused != nil) {
		t.Errorf("pids are counted without a controller: %+v", u)
	}
}

// controlled opens a place that has controllers; a machine that says it is complete must have one.
func controlled(t *testing.T) *Place {
	t.Helper()
	p := place(t)
	if missing := p.Lacks(CPU, IO, Memory, Pids); len(missing) > 0 {
		if os.Getenv("SKILLBOX_COMPLETE") != "" {
			t.Fatalf("needs the controllers %v, which must be here", missing)
		}
		t.Skipf("needs the controllers %v", missing)
	}
	return p
}

func TestUsageIsWhatTheFilesOfEachControllerSay(t *testing.T) {
	g := create(t, controlled(t), "files")
	defer g.Close()
	keeper := sleeper(t, g)
	const tasks = 8
	if err := g.Confine(Limits{Memory: 32 << 20, CPU: 0.5, Pids: tasks}); err != nil {
		t.Fatal(err)
	}
	stop := make(chan struct{})
	defer close(stop)
	told := make(chan int64, 64)
	if err := g.WatchForks(stop, func(n int64) { told <- n }); err != nil {
		t.Fatal(err)
	}
	script := `i=0; while [ $i -lt 20 ]; do sleep 2 & i=$((i+1)); done; wait; dd if=/usr/bin/python3 of=/dev/null bs=64k iflag=direct`
	_ = sleeper(t, g, "/bin/sh", "-c", script).Wait() // the shell gives up when it cannot fork
	select {
	case n := <-told:
		if n == 0 {
			t.Error("told of no refused fork")
		}
	case <-time.After(10 * time.Second):
		t.Error("nobody told of a refused fork")
	}
	u, err := g.Usage()
	if err != nil {
		t.Fatal(err)
	}
	wantFile := func(what string, got *int64, want int64) {
		t.Helper()
		if got == nil || *got != want {
			t.Errorf("%s: %v, the file says %d", what, got, want)
		}
	}
	wantFile("pids_refused", u.PidsRefused, counter(t, g, "pids.events", "max"))
	wantFile("oom_kills", u.OOMKills, counter(t, g, "memory.events", "oom_kill"))
	wantFile("throttled", u.ThrottledUS, counter(t, g, "cpu.stat", "throttled_usec"))
	if peak, ok, err := g.number("pids.peak"); err != nil {
		t.Error(err)
	} else if ok {
		wantFile("pids_peak", u.PidsPeak, peak-1)
		if peak-1 > tasks {
			t.Errorf("%d tasks beside the first, the limit is %d", peak-1, tasks)
		}
	} else if u.PidsPeak != nil {
		t.Error("pids_peak on a kernel without pids.peak")
	}
	if current, _, err := g.number("memory.current"); err != nil || u.MemoryPeak == nil || *u.MemoryPeak < current || *u.MemoryPeak > 32<<20 {
		t.Errorf("memory_peak: %v, now %d, %v", u.MemoryPeak, current, err)
	}
	text, err := os.ReadFile(filepath.Join(g.Dir, "io.stat"))
	if err != nil {
		t.Fatal(err)
	}
	var read int64
	for _, field := range strings.Fields(string(text)) {
		var n int64
		if _, err := fmt.Sscanf(field, "rbytes=%d", &n); err == nil {
			read += n
		}
	}
	if u.Disk == nil || u.Disk.ReadBytes != read {
		t.Errorf("read_bytes: %+v, the file says %d", u.Disk, read)
	}
	if err := g.Close(); err != nil {
		t.Error(err)
	}
	_ = keeper.Wait() // killed
}

func TestTheKernelEndsTheWholeGroupForMemory(t *testing.T) {
	g := create(t, controlled(t), "oom")
	defer g.Close()
	bystander := sleeper(t, g)
	if err := g.Confine(Limits{Memory: 16 << 20}); err != nil {
		t.Fatal(err)
	}
	err := sleeper(t, g, "/usr/bin/tail", "-n1", "/dev/zero").Wait()
	if err == nil || !strings.Contains(err.Error(), "killed") {
		t.Errorf("ended as %v", err)
	}
	if err := bystander.Wait(); err == nil || !strings.Contains(err.Error(), "killed") {
		t.Errorf("the other ended as %v", err)
	}
	u, err := g.Usage()
	if err != nil {
		t.Fatal(err)
	}
	if u.OOMs == nil || *u.OOMs == 0 || u.OOMKills == nil || *u.OOMKills < 2 || *u.MemoryPeak > 16<<20 {
		t.Errorf("%+v", u)
	}
}

func counter(t *testing.T, g *Group, file, name string) (value int64) {
	t.Helper()
	if err := g.pairs(file, func(n string, v int64) {
		if n == name {
			value = v
		}
	}); err != nil {
		t.Fatal(err)
	}
	return value
}

func TestNoGroupIsLeftAfterAThousand(t *testing.T) {
	p := place(t)
	rounds := 1000
	if n, err := strconv.Atoi(os.Getenv("SKILLBOX_LOAD_DIVISOR")); err == nil && n > 0 {
		rounds /= n // an emulated machine, as in package integration
	}
	for i := range rounds {
		g := create(t, p, fmt.Sprintf("one%d", i))
		if i%10 == 0 {
			c := sleeper(t, g)
			defer func() { _ = c.Wait() }() // it was killed, which is what Wait reports
		}
		if err := g.Close(); err != nil {
			t.Fatal(err)
		}
	}
	names, err := os.ReadDir(p.Dir)
	if err != nil {
		t.Fatal(err)
	}
	for _, n := range names {
		if n.IsDir() {
			t.Errorf("left: %s", n.Name())
		}
	}
	if err := p.Close(); err != nil {
		t.Fatal(err)
	}
	if _, err := os.Stat(Root + "/" + slice); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("%s is left: %v", slice, err)
	}
}

func TestTheNextStartSweepsADeadOnesGroupsAndNoOthers(t *testing.T) {
	p := place(t)
	alive := create(t, p, "alive")
	defer alive.Close()
	sleeping := sleeper(t, alive)
	// What a process that was killed leaves: groups that nobody holds, one of them with a process still in it.
	dead := create(t, p, "dead")
	orphan := sleeper(t, dead)
	dead.dir.Close()
	empty := create(t, p, "empty")
	empty.dir.Close()
	delete(p.groups, dead)
	delete(p.groups, empty)
	strange := filepath.Join(Root, "not-ours")
	if err := os.Mkdir(strange, 0o755); err != nil {
		t.Fatal(err)
	}
	defer os.Remove(strange)

	next, err := Open(0)
	if err != nil {
		t.Fatal(err)
	}
	defer next.Close()
	for _, g := range []*Group{dead, empty} {
		if _, err := os.Stat(g.Dir); !errors.Is(err, os.ErrNotExist) {
			t.Errorf("%s is still there: %v", g.Name, err)
		}
	}
	if err := orphan.Wait(); err == nil || !strings.Contains(err.Error(), "killed") {
		t.Errorf("the orphan ended as %v", err)
	}
	for _, path := range []string{alive.Dir, strange} {
		if _, err := os.Stat(path); err != nil {
			t.Errorf("swept too much: %v", err)
		}
	}
	if err := unix.Kill(sleeping.Process.Pid, 0); err != nil {
		t.Errorf("swept too much: %v", err)
	}
	if err := alive.Close(); err != nil {
		t.Error(err)
	}
	_ = sleeping.Wait() // it was killed
}

func TestClosingAPlaceEndsItsGroupsAndMakesNoMore(t *testing.T) {
	p := place(t)
	g := create(t, p, "left")
	c := sleeper(t, g)
	if err := p.Close(); err != nil {
		t.Fatal(err)
	}
	if err := c.Wait(); err == nil {
		t.Error("the process ended by itself")
	}
	if _, err := p.Create("late"); err == nil {
		t.Error("a group was made in a closed place")
	}
	if _, err := os.Stat(Root + "/" + slice); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("%s is left: %v", slice, err)
	}
}

func TestManyComeAndGoAtOnce(t *testing.T) {
	place(t)
	const helpers = 32
	errs := make(chan error, helpers)
	for i := range helpers {
		go func() {
			errs <- func() error {
				p, err := Open(0)
				if err != nil {
					return err
				}
				g, err := p.Create(fmt.Sprintf("many%d", i))
				if err != nil {
					return err
				}
				time.Sleep(time.Duration(i%5) * time.Millisecond)
				return errors.Join(g.Close(), p.Close())
			}()
		}()
	}
	for range helpers {
		if err := <-errs; err != nil {
			t.Error(err)
		}
	}
}

// BenchmarkGroup is what a group adds to a box: made, joined by a process, confined, removed.
func BenchmarkGroup(b *testing.B) {
	p := place(b)
	var made, joined, confined, removed time.Duration
	for i := range b.N {
		c := exec.Command("/bin/sleep", "60")
		if err := c.Start(); err != nil {
			b.Fatal(err)
		}
		start := time.Now()
		g := create(b, p, fmt.Sprintf("bench%d", i))
		made += time.Since(start)
		start = time.Now()
		if err := g.manager.AddProc(uint64(c.Process.Pid)); err != nil {
			b.Fatal(err)
		}
		joined += time.Since(start)
		start = time.Now()
		if err := g.Confine(Limits{}); err != nil {
			b.Fatal(err)
		}
		confined += time.Since(start)
		if err := errors.Join(c.Process.Kill()); err != nil {
			b.Fatal(err)
		}
		_ = c.Wait() // killed
		start = time.Now()
		if err := g.Close(); err != nil {
			b.Fatal(err)
		}
		removed += time.Since(start)
	}
	for name, d := range map[string]time.Duration{"make": made, "join": joined, "confine": confined, "remove": removed} {
		b.ReportMetric(float64(d.Microseconds())/float64(b.N)/1000, name+"-ms/op")
	}
}
