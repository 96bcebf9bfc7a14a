package main

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"time"

	"golang.org/x/sys/unix"
)

// clients is how many make calls at a time, one after the other without a pause.
const clients = 8

// burst is many runs of true, as fast as they go.
type burst struct {
	runs    int
	took    time.Duration
	cpu     time.Duration // user and system time of all processes that took part, as wait4(2) tells it
	machine time.Duration // of the whole machine, /proc/stat: the kernel's own threads are in it, and whatever else runs
}

func (b *burst) add(more *burst) {
	b.runs, b.took, b.cpu, b.machine = b.runs+more.runs, b.took+more.took, b.cpu+more.cpu, b.machine+more.machine
}

func (b *burst) each(d time.Duration) float64 { return d.Seconds() * 1000 / float64(b.runs) }

// cpu compares what a box costs in processor time with the peers' of the same program with the same namespaces and mounts, in turns.
func (w *work) cpu(f *figures) error {
	r := &report{}
	defer func() { f.CPU = r.lines }()
	if err := w.buildCalls(); err != nil {
		return err
	}
	// Whoever is orphaned, as the service is when the client that started it ends, is then ours to wait for.
	if err := unix.Prctl(unix.PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0); err != nil {
		return fmt.Errorf("cpu: %w", err)
	}
	skillbox := []string{filepath.Join(w.bin, "skillbox"), "exec", "--mode"}
	called := func(mode string) func() error {
		words := append(append([]string{}, skillbox...), mode, w.empty, "--", "/usr/bin/true")
		return func() error { return exec.Command(words[0], words[1:]...).Run() }
	}
	plain := func(line string) func() error {
		words := strings.Fields(line)
		return func() error { return exec.Command(words[0], words[1:]...).Run() }
	}
	type contender struct {
		name string
		run  func(n int) (*burst, error)
		sum  burst
	}
	service, cli := &contender{name: "skillbox, a service asked by the Go client", run: w.served}, &contender{name: "skillbox exec --mode user"}
	cli.run = func(n int) (*burst, error) {
		return w.atOnce(n, func(int) error { return called("user")() }, w.endService)
	}
	oneshot := &contender{name: "skillbox exec --mode oneshot", run: func(n int) (*burst, error) { return w.atOnce(n, func(int) error { return called("oneshot")() }, nil) }}
	bwrap := &contender{name: "bwrap", run: func(n int) (*burst, error) { return w.atOnce(n, func(int) error { return plain(w.bwrap())() }, nil) }}
	all := []*contender{service, cli, oneshot, bwrap}
	var runc *contender
	if os.Getuid() == 0 {
		runc = &contender{name: "runc run", run: func(n int) (*burst, error) {
			return w.atOnce(n, func(i int) error {
				return plain(fmt.Sprintf("runc --root %s/state run --bundle %s/runc bench%d", w.dir, w.dir, i))()
			}, nil)
		}}
		all = append(all, runc)
	}
	const rounds = 3
	n := max(*runs, 20) * 3 // of each in each round: the boxes that are ready at its end, and were for nobody, are few beside them
	for range rounds {
		for _, c := range all {
			b, err := c.run(n)
			if err != nil {
				return fmt.Errorf("cpu: %s: %w", c.name, err)
			}
			c.sum.add(b)
		}
	}
	r.title("%d boxes of true by each, %d clients one call after the other; load %s", n*rounds, clients, load())
	for _, c := range all {
		r.line(float64(c.sum.runs)/c.sum.took.Seconds(), "/s", "boxes a second, %s", c.name)
	}
	for _, c := range all {
		ms := c.sum.each(c.sum.cpu)
		r.line(ms, "ms", "processor time of a box, %s", c.name)
		if runc != nil && c != runc {
			ratio := ms / runc.sum.each(runc.sum.cpu)
			text := fmt.Sprintf("%.2f times runc run", ratio)
			if c == service {
				r.bar(text, "at most 0.75; the goal is 0.45", ratio <= 0.75)
			} else {
				r.lines[len(r.lines)-1].Ratio = text
			}
		}
	}
	for _, c := range all {
		r.line(c.sum.each(c.sum.machine), "ms", "for comparison: the whole machine's time by box, %s", c.name)
	}
	return w.spending(r)
}

// atOnce runs n times, clients at a time. What ends beyond that, with end, is waited for and counts.
func (w *work) atOnce(n int, run func(i int) error, end func() error) (*burst, error) {
	b := &burst{runs: n}
	before, busy, began := waited(), busyTime(), time.Now()
	jobs, failed := make(chan int), make(chan error, clients)
	var all sync.WaitGroup
	for range clients {
		all.Go(func() {
			for i := range jobs {
				if err := run(i); err != nil {
					select {
					case failed <- err:
					default:
					}
				}
			}
		})
	}
	for i := range n {
		jobs <- i
	}
	close(jobs)
	all.Wait()
	b.took = time.Since(began)
	if end != nil {
		if err := end(); err != nil {
			return nil, err
		}
	}
	b.cpu, b.machine = waited()-before, busyTime()-busy
	select {
	case err := <-failed:
		return nil, err
	default:
		return b, nil
	}
}

// served is a burst of calls by the Go client, in a process of its own.
func (w *work) served(n int) (*burst, error) {
	var took float64
	b, err := w.atOnce(1, func(int) error {
		a, err := w.calling(map[string]any{"Bundle": w.empty, "Words": []string{"/usr/bin/true"}, "Times": n, "Clients": clients})
		if err == nil {
			took = a.Took
		}
		return err
	}, w.endService)
	if err != nil {
		return nil, err
	}
	// The call that starts the service is not timed, but its processor time counts.
	b.runs, b.took = n, time.Duration(took*float64(time.Millisecond))
	return b, nil
}

// endService ends the service that is our child by now, and takes its time and that of all that it has waited for.
func (w *work) endService() error {
	children, err := os.ReadFile(fmt.Sprintf("/proc/self/task/%d/children", os.Getpid()))
	if err != nil {
		return err
	}
	for _, child := range strings.Fields(string(children)) {
		words, _ := os.ReadFile("/proc/" + child + "/cmdline") // none when it has ended
		pid, err := strconv.Atoi(child)
		if err != nil || len(words) > 0 && !bytes.HasPrefix(words, []byte("skillboxd\x00user")) {
			continue
		}
		if err := unix.Kill(pid, unix.SIGTERM); err != nil {
			return err
		}
		for {
			if _, err = unix.Wait4(pid, nil, 0, nil); err != unix.EINTR {
				break
			}
		}
		if err != nil {
			return fmt.Errorf("wait for the service: %w", err)
		}
	}
	return nil
}

// waited is the time of all processes that ended and that we, or those whom we waited for, have waited for.
func waited() time.Duration {
	var u unix.Rusage
	if unix.Getrusage(unix.RUSAGE_CHILDREN, &u) != nil { // which cannot fail
		return 0
	}
	return time.Duration(u.Utime.Nano() + u.Stime.Nano())
}

// busyTime is for how long the machine's processors have not been idle, in ticks of 10 ms (proc_stat(5)).
func busyTime() time.Duration {
	text, err := os.ReadFile("/proc/stat")
	if err != nil {
		return 0
	}
	line, _, _ := strings.Cut(string(text), "\n")
	var ticks int64
	for i, word := range strings.Fields(line)[1:] {
		if n, err := strconv.ParseInt(word, 10, 64); err == nil && i != 3 && i != 4 && i < 8 { // idle, iowait; guests are in user
			ticks += n
		}
	}
	return time.Duration(ticks) * 10 * time.Millisecond
}

// spending says where a box's time goes, one box after the other.
func (w *work) spending(r *report) error {
	a, err := w.boxes(map[string]any{"Calls": max(*runs, 20) * 3})
	if err != nil {
		return err
	}
	s := a.CPU
	if s == nil {
		return errors.New("boxes measured no time")
	}
	r.title("where the time of a box goes: means of %d, one after the other; load %s", s.Boxes, load())
	total := s.Prepare.User + s.Prepare.System + s.Run.User + s.Run.System + s.Starting + s.InTheBox
	part := func(ms float64, format string, a ...any) {
		r.line(ms, "ms", format, a...)
		r.lines[len(r.lines)-1].Ratio = fmt.Sprintf("%.0f %% of it", 100*ms/total)
	}
	r.line(total, "ms", "processor time of a box")
	part(s.Prepare.System, "  helper, system calls of Prepare: mounts, namespaces, processes")
	part(s.Prepare.User, "  helper, its own code in Prepare")
	part(s.Starting, "  libcontainer's first stages, which end before the box is ready")
	part(s.InTheBox, "  in the box: libcontainer's last stage and init as it gets ready, then the program, then the end of all")
	part(s.Run.System, "  helper, system calls of the call, and of taking the box away")
	part(s.Run.User, "  helper, its own code in the call")
	r.line(s.Wall, "ms", "time that passes in Prepare")
	r.line(s.Tree, "ms", "  the tree of files")
	r.line(s.Jail, "ms", "  libcontainer and init, the network's rules beside them")
	return nil
}
