package sandbox

import (
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"skillbox/boxinit"
	"skillbox/boxinit/shim"
	"skillbox/rootfs"
)

// Preload is what is known of calls before they come, where a box's interpreter is to start ahead of them: two calls with equal plans and
// equal Preloads could be served by boxes preloaded alike.
type Preload struct {
	Argv   []string `json:"argv"`   // the command up to its script; its arguments come with the call
	Params bool     `json:"params"` // the call brings parameters
	Stdio  Shape    `json:"stdio"`
}

// preloadTime bounds what an interpreter has to start and to import in.
const preloadTime = 10 * time.Second

// NotPreloaded says why a box's interpreter does not wait for a call. The box is of no use any more; others of the same plan may be, if
// they are not preloaded.
type NotPreloaded struct{ Why string }

func (e *NotPreloaded) Error() string { return "not preloaded: " + e.Why }

// steering are the beginnings of names of variables that interpreters and the libraries below them read as they start, where nobody sees it.
var steering = []string{
	"PYTHON", "NODE", "UV_", "LANG", "LC_", "TZ", "PATH", "HOME", "TMPDIR", "MALLOC_", "OPENSSL_", "SSL_", "OMP_", "MKL_", "OPENBLAS_", "CUDA_",
}

// PreloadFor says what of a call is known before others like it come. It fails with *NotPreloaded where no interpreter can start ahead
// of such calls.
func (plan *Plan) PreloadFor(argv []string, stdio [3]int, params, tty bool) (*Preload, error) {
	no := func(format string, a ...any) (*Preload, error) { return nil, &NotPreloaded{fmt.Sprintf(format, a...)} }
	words, ok := boxinit.Start(argv)
	if !ok {
		return no("%s is not python3 or node with a script, nor a script of the bundle", argv[0])
	}
	if tty {
		return no("a terminal comes with the call")
	}
	for _, name := range plan.Pass {
		if slices.ContainsFunc(steering, func(start string) bool { return strings.HasPrefix(name, start) }) {
			return no("interpreters read %s as they start, and it comes with the call (env.pass)", name)
		}
	}
	shape, err := ShapeOf(stdio, params)
	if err != nil {
		return nil, err
	}
	return &Preload{Argv: words, Params: params, Stdio: shape}, nil
}

// ForPreload is the same plan for boxes that are to be preloaded.
func (plan *Plan) ForPreload() *Plan {
	other := *plan
	other.Tree.Files = maps.Clone(plan.Tree.Files)
	if other.Tree.Files == nil {
		other.Tree.Files = map[string][]byte{}
	}
	maps.Copy(other.Tree.Files, shim.Files())
	return &other
}

// Preload starts the interpreter of a box that was prepared from a plan ForPreload. It returns when the script's imports are done and
// every process of the box is stopped, or *NotPreloaded. The limits hold meanwhile, as they do in the call.
func (b *Box) Preload(p *Preload) error {
	if b.preload != nil {
		return errors.New("sandbox: a box is preloaded once")
	}
	owner := b.Plan.Tree.Owner
	ends, err := newEnds(p.Stdio, owner.SkillUID, owner.SkillGID)
	if err != nil {
		return err
	}
	start := time.Now()
	end := &ending{}
	refused, err := b.preloadWatched(p, ends, end)
	ends.handOver()
	if verdict, errUsed := b.verdictOf(end); verdict != "" || errUsed != nil {
		refused, err = verdict, errors.Join(err, errUsed)
	}
	if err == nil && refused != "" {
		err = &NotPreloaded{refused}
	}
	if err != nil {
		ends.close()
		return err
	}
	b.preload, b.ends = p, ends
	b.Phases["preload_ms"] = Since(start)
	return nil
}

// preloadWatched is Preload while the watchdogs look.
func (b *Box) preloadWatched(p *Preload, ends *ends, end *ending) (refused string, err error) {
	within := min(preloadTime, b.Plan.Limits.Timeout)
	guard := time.AfterFunc(within+time.Second, b.kill) // init ends it first, if it can
	defer guard.Stop()
	stop, watched := make(chan struct{}), make(chan struct{})
	over := func(verdict, message string) {
		end.set(verdict, "%s", message)
		b.kill()
	}
	go func() {
		defer close(watched)
		if w := b.Plan.Watched; w != (Watched{}) {
			watch(b.jail.PID(), w, stop, over)
		}
	}()
	// The box must not be killed any more when this is over.
	defer func() {
		close(stop)
		<-watched
	}()
	if err := b.watchForks(stop, end); err != nil {
		return "", err
	}
	call := Call{}
	if p.Params {
		call.Params = strings.NewReader("")
	}
	return b.jail.Preload(boxinit.Preload{
		Argv: p.Argv, Env: b.environment(call), Cwd: rootfs.SkillDir, Late: b.Plan.Pass, Within: within,
	}, ends.box[:]...)
}

// verdictOf says what ended a box that was being preloaded, if a limit did.
func (b *Box) verdictOf(end *ending) (string, error) {
	if _, err := b.used(nil, end); err != nil {
		return "", err
	}
	verdict, message := end.get()
	if verdict == "" {
		return "", nil
	}
	return fmt.Sprintf("%s: %s", verdict, message), nil
}

// Kill ends a box that is being preloaded, from another goroutine.
func (b *Box) Kill() { b.kill() }

// Preloaded says that the box's interpreter waits for the call.
func (b *Box) Preloaded() bool { return b.preload != nil }

// Shape is what of a call's stdio the skill can see before there is a call.
type Shape struct {
	Null [3]bool `json:"null"` // it is /dev/null
	Same bool    `json:"same"` // stdout and stderr are one file
}

// ShapeOf looks at a caller's descriptors; with params the first of them is not used.
func ShapeOf(caller [3]int, params bool) (s Shape, err error) {
	for i, fd := range caller {
		if i == 0 && params {
			continue
		}
		var st unix.Stat_t
		if err := unix.Fstat(fd, &st); err != nil {
			return s, fmt.Errorf("sandbox: descriptor %d: %w", i, err)
		}
		s.Null[i] = isNull(&st)
	}
	s.Same = same(caller[1], caller[2])
	return s, nil
}

// ends are pipes and devices for a skill's stdio: what the skill gets, and our ends.
type ends struct {
	box  [3]int // what the skill gets, -1 once handed over
	ours [3]int // -1 where there is none
}

// newEnds makes them. As with same, one pipe for both keeps the order of what is written.
func newEnds(s Shape, owner, group int) (_ *ends, err error) {
	e := &ends{box: [3]int{-1, -1, -1}, ours: [3]int{-1, -1, -1}}
	defer func() {
		if err != nil {
			e.close()
		}
	}()
	for i := range e.box {
		switch {
		case i == 2 && s.Same:
			if e.box[2], err = unix.FcntlInt(uintptr(e.box[1]), unix.F_DUPFD_CLOEXEC, 3); err != nil {
				return nil, fmt.Errorf("sandbox: stderr: %w", err)
			}
		case s.Null[i]:
			if e.box[i], err = openNull(i); err != nil {
				return nil, err
			}
		case i == 0:
			if e.box[0], e.ours[0], err = pipe(owner, group); err != nil {
				return nil, err
			}
		default:
			if e.ours[i], e.box[i], err = pipe(owner, group); err != nil {
				return nil, err
			}
		}
	}
	return e, nil
}

func openNull(n int) (int, error) {
	mode := unix.O_WRONLY
	if n == 0 {
		mode = unix.O_RDONLY
	}
	fd, err := unix.Open("/dev/null", mode|unix.O_CLOEXEC, 0)
	if err != nil {
		return -1, fmt.Errorf("sandbox: /dev/null: %w", err)
	}
	return fd, nil
}

// handOver closes our copies of the skill's ends.
func (e *ends) handOver() { closeAll(&e.box) }

func (e *ends) close() {
	closeAll(&e.box)
	closeAll(&e.ours)
}

func closeAll(fds *[3]int) {
	for i, fd := range fds {
		if fd >= 0 {
			unix.Close(fd)
		}
		fds[i] = -1
	}
}
