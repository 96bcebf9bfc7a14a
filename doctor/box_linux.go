package doctor

import (
	"context"
	"errors"
	"os"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"skillbox/helper"
)

// trial is a box that must end in a certain way.
type trial struct {
	name    string
	policy  string
	words   []string
	timeout time.Duration
	held    func(*helper.Result) bool
}

// trials are what a hostile skill does first. Best-effort: without a cgroup, what stands in for it is tried.
func trials() []trial {
	const limits = "version: 1\nenforcement: best-effort\nresources: "
	return []trial{
		{
			name: "timeout", words: []string{"sleep", "4"}, timeout: 100 * time.Millisecond,
			held: func(r *helper.Result) bool { return r.Verdict == helper.TimedOut },
		},
		{
			name: "output", policy: limits + "{output: 4Ki}\n", words: []string{"head", "-c", "64000", "/dev/zero"},
			held: func(r *helper.Result) bool { return r.Verdict == helper.OutputLimit },
		},
		{
			// tail keeps a line without an end in memory: it is stopped for it, or gets no more.
			name: "memory", policy: limits + "{memory: 16Mi}\n", words: []string{"tail", "-n1", "/dev/zero"}, timeout: 3 * time.Second,
			held: func(r *helper.Result) bool {
				return r.Verdict == helper.OutOfMemory || (r.Verdict == helper.Exited && r.ExitCode != 0)
			},
		},
		{
			name: "pids", policy: limits + "{pids: 8}\n", words: []string{"sh", "-c", "for i in 1 2 3 4 5 6 7 8 9 10 11 12 13 14 15 16 17 18 19 20 21 22 23 24 25 26 27 28 29 30 31 32; do sleep 3 & done"},
			timeout: 3 * time.Second,
			held: func(r *helper.Result) bool {
				return r.Verdict == helper.PidsLimit || (r.Verdict == helper.Exited && r.ExitCode != 0)
			},
		},
	}
}

// tryBoxes runs `true` in a box and, if that works, what shall be stopped in others.
func (f *Facts) tryBoxes(ctx context.Context) {
	dir, err := os.MkdirTemp(f.boxPlace(), "skillbox-doctor-")
	if err != nil {
		f.Box = BoxTry{Tried: true, Error: err.Error()}
		return
	}
	defer os.Remove(dir)
	f.Box = tryBox(ctx, dir, trial{name: "true", words: []string{"true"}, held: func(r *helper.Result) bool { return r.Success }})
	if !f.Box.Held {
		return
	}
	for _, t := range trials() {
		f.Holds = append(f.Holds, tryBox(ctx, dir, t))
	}
	// The box attempts what the rules refuse, before anything else runs in it. Nothing is sent to that address of documentation.
	f.Egress = tryBox(ctx, dir, trial{
		name: "egress", policy: "version: 1\nnetwork: {path: capture, egress: [{cidrs: [192.0.2.1/32], ports: [9]}]}\n", words: []string{"true"},
		held: func(r *helper.Result) bool { return r.Success },
	})
}

// boxPlace is where the empty bundle lies: for root, whose bundles are idmapped, a file system that can be.
func (f *Facts) boxPlace() string {
	for _, m := range f.IDMap {
		if m.Try.worked() {
			return m.Path
		}
	}
	return os.TempDir()
}

func tryBox(ctx context.Context, dir string, t trial) BoxTry {
	b := BoxTry{Name: t.name, Tried: true}
	result, err := runBox(ctx, dir, t)
	if err != nil {
		b.Error = err.Error()
		if e := (*helper.Error)(nil); errors.As(err, &e) {
			b.Hint = e.Hint
		}
		return b
	}
	b.Held, b.Verdict, b.Mode = t.held(result), result.Verdict, result.Sandbox.Mode
	b.Single = strings.Contains(result.Sandbox.Layers["user"], "only id")
	b.PrepareMS, b.RunMS = result.Phases["prepare_ms"], result.Phases["run_ms"]
	if result.Error != nil {
		b.Error, b.Hint = result.Error.Error(), result.Error.Hint
	}
	if !b.Held && b.Error == "" {
		b.Error = strings.TrimSpace(result.Stderr)
	}
	return b
}

// runBox goes the way of `skillbox exec --json` with an empty bundle.
func runBox(ctx context.Context, dir string, t trial) (*helper.Result, error) {
	r := &helper.Request{
		Version: helper.Version, Op: helper.OpExec, BundleName: dir, PolicyName: "doctor.yaml", Words: t.words,
		TimeoutMS: t.timeout.Milliseconds(), Capture: true,
		// In the caller's own log: a run that cannot be recorded does not start, and then nothing here works.
		AuditDir: helper.AuditDir(os.Geteuid(), os.Getenv), AuditConfig: helper.AuditConfig(os.Geteuid(), os.Getenv),
		Asker: helper.Asker{PID: os.Getpid(), Process: "skillbox doctor"},
	}
	var fds []int
	defer func() {
		for _, fd := range fds {
			unix.Close(fd)
		}
	}()
	add := func(role string, fd int, err error) error {
		if err == nil {
			r.Files, fds = append(r.Files, role), append(fds, fd)
		}
		return err
	}
	bundle, err := unix.Open(dir, unix.O_RDONLY|unix.O_DIRECTORY|unix.O_CLOEXEC, 0)
	if err := add("bundle", bundle, err); err != nil {
		return nil, err
	}
	null, err := unix.Open(os.DevNull, unix.O_RDONLY|unix.O_CLOEXEC, 0)
	if err := add("stdin", null, err); err != nil {
		return nil, err
	}
	for _, role := range []string{"stdout", "stderr"} {
		fd, err := memory(role, "")
		if err := add(role, fd, err); err != nil {
			return nil, err
		}
	}
	stderr := fds[len(fds)-1]
	if t.policy != "" {
		fd, err := memory("policy", t.policy)
		if err := add("policy", fd, err); err != nil {
			return nil, err
		}
	}
	process, err := spawn(ctx)
	if err != nil {
		return nil, err
	}
	answer, err := withDeadline(ctx, process, r, fds)
	if err != nil {
		return nil, err
	}
	text := make([]byte, 200)
	if n, err := unix.Pread(stderr, text, 0); err == nil {
		answer.Result.Stderr = string(text[:n])
	}
	return answer.Result, nil
}

// spawn is helper.Spawn with a deadline: newuidmap may ask a directory service. What comes too late is ended.
func spawn(ctx context.Context) (*helper.Peer, error) {
	type started struct {
		process *helper.Peer
		err     error
	}
	done := make(chan started, 1)
	go func() {
		process, err := helper.Spawn()
		done <- started{process, err}
	}()
	ctx, cancel := context.WithTimeout(ctx, Deadline)
	defer cancel()
	select {
	case s := <-done:
		return s.process, s.err
	case <-ctx.Done():
		go func() {
			if s := <-done; s.err == nil {
				_ = s.process.Close() // nobody is left to tell
			}
		}()
		return nil, errors.New("skillboxd did not start within " + Deadline.String())
	}
}

// memory returns a file that is nowhere on disk.
func memory(name, text string) (int, error) {
	fd, err := unix.MemfdCreate(name, unix.MFD_CLOEXEC)
	if err != nil {
		return -1, err
	}
	if _, err := unix.Pwrite(fd, []byte(text), 0); err != nil {
		unix.Close(fd)
		return -1, err
	}
	return fd, nil
}
