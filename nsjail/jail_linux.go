package nsjail

import (
	"errors"
	"fmt"
	"io"
	"os"
	"runtime/debug"
	"sync"
	"syscall"
	"time"

	"github.com/opencontainers/runc/libcontainer"
	"github.com/sirupsen/logrus"
	"golang.org/x/sys/unix"

	// The constructor that enters namespaces before the Go runtime starts.
	_ "github.com/opencontainers/runc/libcontainer/nsenter"

	"skillbox/boxinit"
	"skillbox/wire"
)

// Init must be called first in main: this binary is also the first stage of every box, where it does not return.
func Init() {
	if len(os.Args) > 1 && os.Args[1] == "init" {
		// It lives for milliseconds: collecting garbage would cost more than it frees.
		debug.SetGCPercent(-1)
		libcontainer.Init()
	}
	logrus.SetOutput(io.Discard) // what goes wrong comes back as an error; only cmd prints
}

// Jail is a box's init, and after Start its skill.
type Jail struct {
	Report   *boxinit.Report
	Listener *os.File // user notification of the seccomp filter, nil without one; the caller's to close

	container *libcontainer.Container
	process   *libcontainer.Process
	conn      *wire.Conn
	waited    chan struct{} // closed when init has been reaped
	state     *os.ProcessState
	killOnce  sync.Once
}

// Prepare starts init and returns when it waits, inside every layer, for a call. What it reports is for the caller to check.
func Prepare(d Description) (_ *Jail, err error) {
	c, err := config(d.ID, d.Spec)
	if err != nil {
		return nil, err
	}
	conn, theirs, err := wire.Pair()
	if err != nil {
		return nil, err
	}
	defer theirs.Close()
	container, err := libcontainer.Create(d.StateDir, d.ID, c)
	if err != nil {
		conn.Close()
		return nil, fmt.Errorf("nsjail: create: %w", err)
	}
	j := &Jail{container: container, conn: conn, waited: make(chan struct{})}
	if err := j.launch(d, theirs); err != nil {
		close(j.waited)
		return nil, errors.Join(err, conn.Close(), destroy(container))
	}
	go func() {
		// The status says nothing: init's death is either ours or told by Exit.
		j.state, _ = j.process.Wait()
		close(j.waited)
	}()
	theirs.Close()
	if err := j.handshake(d); err != nil {
		return nil, errors.Join(err, j.Close())
	}
	return j, nil
}

func (j *Jail) launch(d Description, socket *os.File) error {
	null, err := os.OpenFile(os.DevNull, os.O_RDWR, 0)
	if err != nil {
		return fmt.Errorf("nsjail: %w", err)
	}
	defer null.Close()
	j.process = &libcontainer.Process{
		Args:       []string{boxinit.Path},
		Env:        []string{"HOME=/"}, // set, or libcontainer would read the tree's /etc/passwd for it
		UID:        int(d.Spec.Process.User.UID),
		GID:        int(d.Spec.Process.User.GID),
		Cwd:        "/",
		Stdin:      null,
		Stdout:     null,
		Stderr:     null,
		ExtraFiles: []*os.File{socket},
		Init:       true,
	}
	if err := j.container.Start(j.process); err != nil {
		return fmt.Errorf("nsjail: start: %w", err)
	}
	if err := j.container.Exec(); err != nil {
		return errors.Join(fmt.Errorf("nsjail: exec init: %w", err), j.process.Signal(unix.SIGKILL))
	}
	return nil
}

// handshake hands init its filters and takes its report.
func (j *Jail) handshake(d Description) error {
	files, err := openFiles(d.Spec)
	if err != nil {
		return err
	}
	if d.Ready != nil {
		if err := d.Ready(); err != nil {
			return err
		}
	}
	if err := j.conn.Send(boxinit.Setup{Version: boxinit.Version, Filters: d.Filters, Listener: d.Listener, OpenFiles: files, NeverReached: d.NeverReached}); err != nil {
		return fmt.Errorf("nsjail: init: %w", err)
	}
	j.Report = &boxinit.Report{}
	fds, err := j.conn.Receive(j.Report)
	if err == nil && len(fds) == 1 {
		j.Listener = os.NewFile(uintptr(fds[0]), "seccomp-listener")
		fds, err = nil, nil
	}
	wire.CloseAll(fds)
	if err != nil {
		return fmt.Errorf("nsjail: init ended before it reported: %w", err)
	}
	return nil
}

// AwaitReport reads the report that follows a listener; the supervisor must already answer, or init could wait for ever.
func (j *Jail) AwaitReport() error {
	if j.Listener == nil {
		return nil
	}
	files, err := j.conn.Receive(j.Report)
	wire.CloseAll(files)
	if err != nil {
		return fmt.Errorf("nsjail: init ended before it reported: %w", err)
	}
	return nil
}

// Preload starts an interpreter that waits for the call. Refused says why it does not; the jail is then of no use.
func (j *Jail) Preload(p boxinit.Preload, stdio ...int) (refused string, err error) {
	if err := j.conn.Send(boxinit.Message{Preload: &p}, stdio...); err != nil {
		return "", fmt.Errorf("nsjail: preload: %w", err)
	}
	var reply boxinit.Reply
	files, err := j.conn.Receive(&reply)
	wire.CloseAll(files)
	switch {
	case errors.Is(err, wire.ErrProtocol):
		return "", fmt.Errorf("nsjail: preload: %w", err)
	case err != nil || reply.Preloaded == nil:
		return "the interpreter ended before the call", nil
	}
	return reply.Preloaded.Refused, nil
}

// ErrKilled says that init was killed before it told whether the skill has started.
var ErrKilled = errors.New("nsjail: init was killed")

// Start begins the one call. A preloaded interpreter has its stdio. With call.TTY the returned file is the pty's master. After ErrKilled
// every process of the box has been reaped.
func (j *Jail) Start(call boxinit.Call, stdio ...int) (*boxinit.Started, *os.File, error) {
	if err := j.conn.Send(boxinit.Message{Call: &call}, stdio...); err != nil {
		return nil, nil, fmt.Errorf("nsjail: call: %w", err)
	}
	var reply boxinit.Reply
	files, err := j.conn.Receive(&reply)
	if err != nil || reply.Started == nil {
		wire.CloseAll(files)
		if j.killed(err) {
			return nil, nil, ErrKilled
		}
		return nil, nil, fmt.Errorf("nsjail: init did not start the skill: %w", errors.Join(err, j.fate()))
	}
	if len(files) == 1 && call.TTY {
		return reply.Started, os.NewFile(uintptr(files[0]), "pty"), nil
	}
	wire.CloseAll(files)
	return reply.Started, nil, nil
}

// Wait returns when the skill's first process has ended. A nil Exit without an error says that init itself was killed.
func (j *Jail) Wait() (*boxinit.Exit, error) {
	var reply boxinit.Reply
	files, err := j.conn.Receive(&reply)
	wire.CloseAll(files)
	if err == nil && reply.Exit != nil {
		return reply.Exit, nil
	}
	if errors.Is(err, wire.ErrProtocol) {
		return nil, err
	}
	return nil, nil
}

// Signal asks init to signal every process of the skill.
func (j *Jail) Signal(signal int) error {
	return j.conn.Send(boxinit.Message{Signal: &boxinit.Signal{Signal: signal}})
}

// Kill ends init, and with it, by the kernel's hand, every process of the pid namespace. It does not wait.
func (j *Jail) Kill() {
	j.killOnce.Do(func() {
		// The only possible failure is that init has ended already.
		_ = j.process.Signal(unix.SIGKILL)
	})
}

// Gone is closed when init, and with it every process of the pid namespace, has been reaped.
func (j *Jail) Gone() <-chan struct{} { return j.waited }

// PID is init's number in skillboxd's pid namespace.
func (j *Jail) PID() int {
	pid, err := j.process.Pid()
	if err != nil {
		return 0
	}
	return pid
}

// killed says that init's silence is the kernel's or somebody else's doing, and not init's own. Who has no connection any more is about to be
// reaped.
func (j *Jail) killed(err error) bool {
	if err == nil || errors.Is(err, wire.ErrProtocol) {
		return false
	}
	select {
	case <-j.waited:
	case <-time.After(patience):
		return false
	}
	if j.state == nil {
		return false
	}
	status, ok := j.state.Sys().(syscall.WaitStatus)
	return ok && status.Signaled() && status.Signal() == syscall.SIGKILL
}

// patience is how long an init whose connection has ended may take to be gone.
const patience = 5 * time.Second

func (j *Jail) fate() error {
	select {
	case <-j.waited:
		if j.state != nil {
			return fmt.Errorf("init ended: %v", j.state)
		}
		return errors.New("init ended")
	default:
		return nil
	}
}

// Close kills what is left, waits for it and removes libcontainer's state.
func (j *Jail) Close() error {
	j.Kill()
	<-j.waited
	return errors.Join(j.conn.Close(), destroy(j.container))
}

func destroy(c *libcontainer.Container) error {
	if err := c.Destroy(); err != nil {
		return fmt.Errorf("nsjail: %w", err)
	}
	return nil
}
