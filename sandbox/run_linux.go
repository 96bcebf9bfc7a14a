package sandbox

import (
	"cmp"
	"errors"
	"fmt"
	"io"
	"os"
	"path"
	"sync"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"skillbox/boxinit"
	"skillbox/helper"
	"skillbox/nsjail"
	"skillbox/rootfs"
)

// Call is what one run brings to a prepared box.
type Call struct {
	Argv    []string
	Dir     string            // where the skill starts: an absolute path in the box; "" is the bundle's
	Env     map[string]string // values for the plan's Pass names
	Secrets map[string]string // values for the plan's Secrets
	Params  io.Reader         // nil for none; otherwise the skill's stdin and ParamsFile
	Inputs  []Input
	Stdio   [3]int // the caller's; they stay the caller's
	TTY     bool
	Rows    uint16
	Cols    uint16
	Term    string
	Timeout time.Duration // shorter than the plan's; 0 is the plan's

	// Record gets what the skill does as the plan's audit levels say, from time to time and at the end; nil drops it.
	Record func([]Observed)

	Cancel <-chan struct{} // one value: end the run gently; closed or a second value: at once
	Resize <-chan helper.Resize
}

// Input is a file for /input.
type Input struct {
	Name    string
	Content io.Reader
}

// ending is why a run was ended by us; the first reason counts.
type ending struct {
	mu      sync.Mutex
	verdict string
	message string
}

func (e *ending) set(verdict, format string, a ...any) {
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.verdict == "" {
		e.verdict, e.message = verdict, fmt.Sprintf(format, a...)
	}
}

func (e *ending) get() (string, string) {
	e.mu.Lock()
	defer e.mu.Unlock()
	return e.verdict, e.message
}

// Run serves the one call and returns its Result when every process of the box but init is gone. An error means that skillbox failed.
func (b *Box) Run(call Call) (*helper.Result, error) {
	began := time.Now()
	end := &ending{}
	call.Timeout = b.timeout(&call)
	params, err := b.delivered(call, end)
	if err != nil {
		return nil, err
	}
	if params >= 0 {
		defer unix.Close(params)
	}
	if verdict, message := end.get(); verdict != "" {
		return b.neverStarted(verdict, message, began), nil
	}
	return b.perform(call, params, end, began)
}

// perform starts the skill and sees it to its end. params is a descriptor of its parameters, or -1.
func (b *Box) perform(call Call, params int, end *ending, began time.Time) (*helper.Result, error) {
	over := func() {
		end.set(helper.OutputLimit, "the skill wrote more than %d bytes to stdout and stderr (resources.output)", b.Plan.Limits.OutputBytes)
		b.kill()
	}
	if b.Plan.Limits.Truncate {
		over = nil
	}
	message := boxinit.Call{Argv: call.Argv, Env: b.environment(call), Cwd: cmp.Or(call.Dir, rootfs.SkillDir), TTY: call.TTY, Rows: call.Rows, Cols: call.Cols, Stay: b.session != nil}
	defer b.watched.follow(call.Record)()
	var err error
	var pipes *stdio
	var started *boxinit.Started
	var pty *os.File
	// A program on a file system that does not answer never gets executed.
	guard := time.AfterFunc(call.Timeout, func() {
		timedOut(&call, end)
		b.kill()
	})
	defer guard.Stop()
	if call.TTY {
		started, pty, err = b.jail.Start(message)
		if err == nil && pty != nil {
			defer pty.Close()
			pipes, err = terminal(int(pty.Fd()), call.Stdio, b.Plan.Limits.OutputBytes, over)
		}
	} else if pipes, err = b.connect(call, params, over); err == nil {
		started, _, err = b.jail.Start(message, pipes.given()...)
		pipes.handOver()
		if errors.Is(err, nsjail.ErrKilled) { // the skill may have run, and what it has written is passed on
			started, err = &boxinit.Started{}, nil
		}
	}
	if err == nil && started.Error == "" && pipes == nil {
		err = errors.New("sandbox: init sent no terminal")
	}
	if err == nil && pipes != nil && b.session != nil {
		err = pipes.stay()
	}
	late := !guard.Stop()
	if late {
		timedOut(&call, end) // the guard says so too, but may not have come to it yet
	}
	if err != nil || started.Error != "" || late {
		if pipes != nil {
			pipes.close()
		}
		if verdict, message := end.get(); verdict != "" {
			return b.neverStarted(verdict, message, began), nil
		}
		if err != nil {
			return nil, err
		}
		return b.notStarted(started, began), nil
	}
	pipes.start()
	exit, err := b.supervise(call, pty, end)
	if b.session != nil {
		b.session.settle(exit, end)
	}
	used, errUsed := b.used(exit, end)
	result := b.result(exit, end, began)
	b.addUsage(result, used)
	b.addNetwork(result)
	err = errors.Join(err, errUsed)
	b.drain(call, pipes, result, end, began)
	if err != nil {
		return nil, err
	}
	return result, nil
}

// connect joins the caller's stdio with the skill's, which a preloaded interpreter has already.
func (b *Box) connect(call Call, params int, over func()) (*stdio, error) {
	if b.ends == nil {
		owner := b.Plan.Tree.Owner
		return connect(call.Stdio, params, owner.SkillUID, owner.SkillGID, b.Plan.Limits.OutputBytes, over)
	}
	ends := b.ends
	b.ends = nil
	return attach(ends, call.Stdio, params, b.Plan.Limits.OutputBytes, over)
}

// drain sees what is still in the pipes to the caller, and words what that came to.
func (b *Box) drain(call Call, pipes *stdio, result *helper.Result, end *ending, began time.Time) {
	taken, err := pipes.finish(max(b.Plan.Limits.Grace, call.Timeout-time.Since(began)), call.Cancel)
	result.Usage.StdoutBytes, result.StdoutTruncated = pipes.bytesOf(1)
	result.Usage.StderrBytes, result.StderrTruncated = pipes.bytesOf(2)
	if n := pipes.dropped.Load(); n > 0 {
		result.Warnings = append(result.Warnings, fmt.Sprintf("%d bytes of stdout and stderr above the limit of %d were dropped (resources.output)", n, b.Plan.Limits.OutputBytes))
	}
	switch verdict, text := end.get(); {
	case verdict == helper.OutputLimit && result.Verdict != verdict:
		// What was still in the pipes when the skill ended by itself was too much.
		setVerdict(result, verdict, text)
	case verdict != "": // that is why it ended
	case !taken:
		setVerdict(result, helper.TimedOut, "the caller did not take the skill's output in time")
	case err != nil:
		// Output that is lost is no success, whatever the skill says; nor is input that it never got.
		setVerdict(result, helper.Failed, "the skill's input or output could not be passed on: "+err.Error())
		err = nil
	}
	if err != nil {
		result.Warnings = append(result.Warnings, err.Error())
	}
}

// timeout is the call's own where that is shorter.
func (b *Box) timeout(call *Call) time.Duration {
	if call.Timeout > 0 {
		return min(call.Timeout, b.Plan.Limits.Timeout)
	}
	return b.Plan.Limits.Timeout
}

func timedOut(call *Call, end *ending) {
	end.set(helper.TimedOut, "the skill ran longer than %v (timeout)", call.Timeout)
}

// supervise waits for the end of the skill and sees to it that there is one.
func (b *Box) supervise(call Call, pty *os.File, end *ending) (*boxinit.Exit, error) {
	type answer struct {
		exit *boxinit.Exit
		err  error
	}
	ended := make(chan answer, 1)
	go func() {
		exit, err := b.jail.Wait()
		if exit == nil || !exit.Alone && b.session == nil {
			b.kill() // whatever the skill left behind
			<-b.jail.Gone()
		}
		ended <- answer{exit, err}
	}()
	watching := make(chan struct{})
	defer close(watching)
	if b.session == nil { // which is watched between its calls too
		if err := b.watch(watching, end); err != nil {
			b.kill()
			<-ended
			return nil, err
		}
	}
	timeout := time.NewTimer(call.Timeout)
	defer timeout.Stop()
	var kill <-chan time.Time
	cancel := call.Cancel
	terminate := func() {
		if kill != nil {
			b.kill()
			return
		}
		// An error says that init has gone, which ended is about to report.
		_ = b.jail.Signal(int(syscall.SIGTERM))
		kill = time.After(b.Plan.Limits.Grace)
	}
	for {
		select {
		case a := <-ended:
			return a.exit, a.err
		case <-timeout.C:
			timedOut(&call, end)
			terminate()
		case _, more := <-cancel:
			end.set(helper.Canceled, "canceled by the caller")
			if !more {
				cancel = nil
				b.kill()
				continue
			}
			terminate()
		case <-kill:
			b.kill()
		case size := <-call.Resize:
			if pty != nil {
				// A size that the terminal refuses leaves the old one, as with any terminal.
				_ = unix.IoctlSetWinsize(int(pty.Fd()), unix.TIOCSWINSZ, &unix.Winsize{Row: size.Rows, Col: size.Cols})
			}
		}
	}
}

// forkBomb is how many refused forks end a run. A program that meets its limit gives up after a few tries; what goes on is a bomb,
// which would keep the processor busy until the time-out.
const forkBomb = 128

// watch sees to the limits that need somebody to look.
func (b *Box) watch(stop <-chan struct{}, end *ending) error {
	if w := b.Plan.Watched; w != (Watched{}) {
		go watch(b.jail.PID(), w, stop, func(verdict, message string) {
			end.set(verdict, "%s", message)
			b.kill()
		})
	}
	return b.watchForks(stop, end)
}

func (b *Box) watchForks(stop <-chan struct{}, end *ending) error {
	if b.Plan.Group.Pids == 0 {
		return nil
	}
	return b.group.WatchForks(stop, func(refused int64) {
		if refused >= forkBomb {
			b.tooMany(end)
			b.kill()
		}
	})
}

// ReadResult returns what the skill wrote to ResultFile, or nil. It is read after the box is gone, without following a link or
// waiting for a FIFO, up to limit bytes.
func (b *Box) ReadResult(limit int64) ([]byte, error) {
	fd, err := unix.Openat(int(b.tree.Result.Fd()), path.Base(rootfs.ResultFile), unix.O_RDONLY|unix.O_NOFOLLOW|unix.O_NONBLOCK|unix.O_CLOEXEC, 0)
	if errors.Is(err, unix.ENOENT) {
		return nil, nil
	}
	if err != nil {
		return nil, fmt.Errorf("sandbox: result file: %w", err)
	}
	f := os.NewFile(uintptr(fd), rootfs.ResultFile)
	defer f.Close()
	if info, err := f.Stat(); err != nil || !info.Mode().IsRegular() {
		return nil, errors.Join(errors.New("sandbox: result file: not a regular file"), err)
	}
	data, err := io.ReadAll(io.LimitReader(f, limit+1))
	if int64(len(data)) > limit {
		return nil, fmt.Errorf("sandbox: result file: larger than %d bytes", limit)
	}
	return data, err
}

// Changed is the upper layer over the skill's bundle, nil where it is read-only; it is valid as Outputs is.
func (b *Box) Changed() *os.File { return b.tree.Changed }

// Outputs is the root of what the skill left in /output; it is valid until Close, also after the box's processes are gone.
func (b *Box) Outputs() *os.File { return b.tree.Output }
