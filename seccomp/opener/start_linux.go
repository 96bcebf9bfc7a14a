package opener

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"strconv"
	"sync"
	"syscall"

	"golang.org/x/sys/unix"
)

// Opener is the process, from outside. Do may be called by several goroutines, which take turns.
type Opener struct {
	cmd    *exec.Cmd
	mu     sync.Mutex
	socket int
	buffer []byte
	closed bool
}

// Start has program, which hands Word and what follows to Main, become the skill of the box whose init is given, and returns when it has.
func Start(program string, init, uid, gid int) (*Opener, error) {
	mounts, err := os.Open("/proc/" + strconv.Itoa(init) + "/ns/mnt")
	if err != nil {
		return nil, fmt.Errorf("opener: %w", err)
	}
	defer mounts.Close()
	pair, err := unix.Socketpair(unix.AF_UNIX, unix.SOCK_SEQPACKET|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return nil, fmt.Errorf("opener: socketpair: %w", err)
	}
	theirs := os.NewFile(uintptr(pair[1]), "opener")
	defer theirs.Close()
	cmd := exec.Command(program, Word, strconv.Itoa(uid), strconv.Itoa(gid))
	cmd.Env = []string{"GOMAXPROCS=1"}
	cmd.ExtraFiles = []*os.File{theirs, mounts}
	cmd.Stderr = os.Stderr
	cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true}
	if err := cmd.Start(); err != nil {
		unix.Close(pair[0])
		return nil, fmt.Errorf("opener: start: %w", err)
	}
	o := &Opener{cmd: cmd, socket: pair[0], buffer: make([]byte, maxReply)}
	theirs.Close() // or its death would not be seen
	if _, _, err := o.receive(); err != nil {
		return nil, errors.Join(fmt.Errorf("opener: it did not become the skill: %w", err), o.Close())
	}
	return o, nil
}

// Close ends the process, also where it hangs.
func (o *Opener) Close() error {
	// It answers to nothing but its socket, and Do may be waiting there for what never comes.
	if err := o.cmd.Process.Kill(); err != nil && !errors.Is(err, os.ErrProcessDone) {
		return fmt.Errorf("opener: %w", err)
	}
	_ = o.cmd.Wait() // it says that it was killed
	o.mu.Lock()
	defer o.mu.Unlock()
	if o.closed {
		return nil
	}
	o.closed = true
	return unix.Close(o.socket)
}

// ErrGone says that the process is not there any more.
var ErrGone = errors.New("opener: the process is gone")

// Do makes one call. dirs are what its relative paths start from: none, the first, or both. The file of a successful Open is the
// caller's to close; else it is -1.
func (o *Opener) Do(r *Request, dirs ...int) (Reply, int, error) {
	o.mu.Lock()
	defer o.mu.Unlock()
	if o.closed {
		return Reply{}, -1, ErrGone
	}
	var oob []byte
	if len(dirs) > 0 {
		oob = unix.UnixRights(dirs...)
	}
	if err := retry(func() error { return unix.Sendmsg(o.socket, r.encode(), oob, nil, unix.MSG_NOSIGNAL) }); err != nil {
		return Reply{}, -1, fmt.Errorf("opener: %w", err)
	}
	reply, file, err := o.receive()
	if err == nil && file >= 0 && r.acknowledged() {
		if _, _, err = o.receive(); err != nil {
			unix.Close(file)
			return Reply{}, -1, err
		}
	}
	return reply, file, err
}

// receive takes one reply, with the file that came with it or -1.
func (o *Opener) receive() (Reply, int, error) {
	var n, oobn int
	control := make([]byte, unix.CmsgSpace(4))
	err := retry(func() (err error) {
		n, oobn, _, _, err = unix.Recvmsg(o.socket, o.buffer, control, unix.MSG_CMSG_CLOEXEC)
		return err
	})
	if err != nil {
		return Reply{}, -1, fmt.Errorf("opener: %w", err)
	}
	if n == 0 {
		return Reply{}, -1, ErrGone
	}
	fds, err := rights(control[:oobn])
	if err != nil {
		return Reply{}, -1, err
	}
	file := -1
	if len(fds) > 0 {
		file = fds[0]
	}
	var reply Reply
	if err := reply.decode(o.buffer[:n]); err != nil {
		if file >= 0 {
			unix.Close(file)
		}
		return Reply{}, -1, err
	}
	return reply, file, nil
}

func retry(call func() error) error {
	for {
		if err := call(); err != unix.EINTR {
			return err
		}
	}
}
