package helper

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"skillbox/wire"
)

// A service is a skillboxd of the caller's own that answers many calls and keeps boxes ready. Its files lie in a directory that is the
// caller's alone: its socket, as long as it lives; the lock of whoever starts it or of itself when it leaves; and its log.
const ServiceLock = "lock"

// ServiceSocket is the name of its socket. A service sees the files and the network of whoever started it, so that there is one for each
// combination of namespaces: a caller without network does not get one by asking.
func ServiceSocket() (string, error) {
	name := "skillboxd"
	for _, kind := range []string{"user", "mnt", "net"} {
		var st unix.Stat_t
		if err := unix.Stat("/proc/self/ns/"+kind, &st); err != nil {
			return "", fmt.Errorf("helper: the %s namespace: %w", kind, err)
		}
		name += "-" + strconv.FormatUint(st.Ino, 36)
	}
	return name + ".sock", nil
}

// place is where a service's socket is, or would be.
type place struct {
	dir  *os.File
	name string
}

// openPlace makes the directory, if it is told to. Nil without an error is that there is none.
func openPlace(create bool) (*place, error) {
	name, err := ServiceSocket()
	if err != nil {
		return nil, err
	}
	dir, err := openServiceDir(create)
	if err != nil || dir == nil {
		return nil, err
	}
	return &place{dir, name}, nil
}

// path leads by the directory's descriptor: its own may be too long for a socket's address.
func (p *place) path(name string) string { return fmt.Sprintf("/proc/self/fd/%d/%s", p.dir.Fd(), name) }

// Service connects with the caller's own service, which is started if there is none.
func Service() (*Peer, error) { return connect(true, (*place).begin) }

// RunningService connects with the caller's own service. Nil without an error is that there is none. It makes nothing.
func RunningService() (*Peer, error) {
	return connect(false, func(*place) (*wire.Conn, error) { return nil, nil })
}

// connect connects with the service; otherwise says what is done where there is none.
func connect(create bool, otherwise func(*place) (*wire.Conn, error)) (*Peer, error) {
	p, err := openPlace(create)
	if err != nil || p == nil {
		return nil, err
	}
	defer p.dir.Close()
	conn, err := p.dial()
	if absent(err) {
		conn, err = otherwise(p)
	}
	if err != nil || conn == nil {
		return nil, err
	}
	return &Peer{Conn: conn}, nil
}

// ErrNoPlace says that there is no directory for a service's socket.
var ErrNoPlace = errors.New("helper: no place for the socket of a service")

type noPlace struct{ why *Error }

func (n *noPlace) Error() string { return n.why.Error() }

func (n *noPlace) Unwrap() []error { return []error{ErrNoPlace, n.why} }

// ServiceDir is below XDG_RUNTIME_DIR or where systemd and root keep such things.
func ServiceDir() string {
	at := os.Getenv("XDG_RUNTIME_DIR")
	if at == "" && os.Geteuid() == 0 {
		at = "/run"
	} else if at == "" {
		at = fmt.Sprintf("/run/user/%d", os.Geteuid())
	}
	return filepath.Join(at, "skillbox")
}

// openServiceDir makes it, if it is told to. Nil without an error is that there is none.
func openServiceDir(create bool) (*os.File, error) {
	path := ServiceDir()
	if create {
		if err := os.Mkdir(path, 0o700); err != nil && !errors.Is(err, os.ErrExist) {
			return nil, &noPlace{&Error{Message: fmt.Sprintf("no place for the socket of a service: %v", err), Hint: "set XDG_RUNTIME_DIR to a directory of your own, or use --mode oneshot"}}
		}
	}
	fd, err := unix.Open(path, unix.O_RDONLY|unix.O_DIRECTORY|unix.O_NOFOLLOW|unix.O_CLOEXEC, 0)
	if err == unix.ENOENT && !create {
		return nil, nil
	}
	if err != nil {
		return nil, fmt.Errorf("helper: open %s: %w", path, err)
	}
	dir := os.NewFile(uintptr(fd), path)
	var st unix.Stat_t
	if err := unix.Fstat(fd, &st); err != nil {
		return nil, errors.Join(fmt.Errorf("helper: %s: %w", path, err), dir.Close())
	}
	if int(st.Uid) != os.Geteuid() || st.Mode&0o077 != 0 {
		return nil, errors.Join(&Error{Message: path + " is not yours alone", Hint: "remove it, or chmod 0700 it"}, dir.Close())
	}
	return dir, nil
}

func (p *place) dial() (*wire.Conn, error) {
	conn, err := wire.Dial(p.path(p.name))
	if err != nil {
		return nil, fmt.Errorf("helper: %s: %w", p.dir.Name(), err)
	}
	return conn, nil
}

// absent says that no service listens: there never was one, or it died and left its socket.
func absent(err error) bool { return errors.Is(err, unix.ENOENT) || errors.Is(err, unix.ECONNREFUSED) }

// begin starts the service, unless somebody else has meanwhile, and connects with it. The socket is made here, so that every client can
// connect from this moment on.
func (p *place) begin() (*wire.Conn, error) {
	lock, err := Lock(p.dir)
	if err != nil {
		return nil, err
	}
	defer lock.Close()
	if conn, err := p.dial(); !absent(err) {
		return conn, err
	}
	if err := p.sweep(); err != nil {
		return nil, err
	}
	l, err := wire.Listen(p.path(p.name))
	if err != nil {
		return nil, fmt.Errorf("helper: %s: %w", p.dir.Name(), err)
	}
	defer l.Close()
	if err := p.start(l); err != nil {
		return nil, errors.Join(err, p.remove(p.name))
	}
	return p.dial()
}

// sweep removes the sockets of services that died.
func (p *place) sweep() error {
	entries, err := os.ReadDir(fmt.Sprintf("/proc/self/fd/%d", p.dir.Fd()))
	if err != nil {
		return fmt.Errorf("helper: %w", err)
	}
	var errs []error
	for _, e := range entries {
		if e.Type() != os.ModeSocket {
			continue
		}
		conn, err := wire.Dial(p.path(e.Name()))
		if err == nil {
			conn.Close()
		} else if absent(err) {
			errs = append(errs, p.remove(e.Name()))
		}
	}
	return errors.Join(errs...)
}

func (p *place) remove(name string) error {
	if err := unix.Unlinkat(int(p.dir.Fd()), name, 0); err != nil && err != unix.ENOENT {
		return fmt.Errorf("helper: remove the socket of a service that died: %w", err)
	}
	return nil
}

// lockTime is how long a lock is waited for: who holds it starts a service, or may have been stopped.
const lockTime = 15 * time.Second

// Lock waits for the lock of the service's directory. It is the holder's until it is closed.
func Lock(dir *os.File) (*os.File, error) {
	fd, err := unix.Openat(int(dir.Fd()), ServiceLock, unix.O_RDWR|unix.O_CREAT|unix.O_NOFOLLOW|unix.O_CLOEXEC, 0o600)
	if err != nil {
		return nil, fmt.Errorf("helper: lock of %s: %w", dir.Name(), err)
	}
	lock := os.NewFile(uintptr(fd), ServiceLock)
	for began := time.Now(); time.Since(began) < lockTime; time.Sleep(time.Millisecond) {
		if err = unix.Flock(fd, unix.LOCK_EX|unix.LOCK_NB); err != unix.EINTR && err != unix.EWOULDBLOCK {
			break
		}
	}
	if err != nil {
		return nil, errors.Join(fmt.Errorf("helper: lock of %s: %w", dir.Name(), err), lock.Close())
	}
	return lock, nil
}

// Unlocked says that nobody holds the lock at this moment. Where that cannot be told, somebody does.
func Unlocked(dir *os.File) bool {
	fd, err := unix.Openat(int(dir.Fd()), ServiceLock, unix.O_RDWR|unix.O_NOFOLLOW|unix.O_CLOEXEC, 0)
	if err != nil {
		return false
	}
	defer unix.Close(fd)
	return unix.Flock(fd, unix.LOCK_EX|unix.LOCK_NB) == nil
}

// start starts skillboxd as Spawn does, with the listening socket as descriptor 3 and the directory as 4. It outlives us.
func (p *place) start(listening *os.File) error {
	log, err := OpenLog(p.dir)
	if err != nil {
		return err
	}
	defer log.Close()
	attr, rootless, err := sandboxed()
	if err != nil {
		return err
	}
	idle, err := idleTime()
	if err != nil {
		return err
	}
	metrics, err := metricsAt(os.Getenv("SKILLBOX_METRICS"))
	if err != nil {
		return err
	}
	process, err := launch(attr, []string{"skillboxd", "user", p.name, idle.String(), metrics}, log, listening, p.dir)
	if err != nil {
		return spawnError(rootless, err)
	}
	if rootless {
		if err := mapIDs(process.Pid); err != nil {
			return errors.Join(err, process.Kill())
		}
	}
	return process.Release()
}

// idleTime is how long a service waits for the next call before it leaves: 10 minutes, or SKILLBOX_IDLE.
func idleTime() (time.Duration, error) {
	text := os.Getenv("SKILLBOX_IDLE")
	if text == "" {
		return 10 * time.Minute, nil
	}
	d, err := time.ParseDuration(text)
	if err != nil || d <= 0 {
		return 0, &Error{Message: fmt.Sprintf("SKILLBOX_IDLE is %q, which is no time such as 10m", text)}
	}
	return d, nil
}

// sandboxed are the namespaces of Spawn.
func sandboxed() (attr *syscall.SysProcAttr, rootless bool, err error) {
	attr = &syscall.SysProcAttr{Cloneflags: unix.CLONE_NEWNS | unix.CLONE_NEWPID}
	if rootless, err = NeedsUserns(); err != nil {
		return nil, false, err
	}
	if rootless {
		attr.Cloneflags |= unix.CLONE_NEWUSER
		// Without ids the new namespace's owner would lose its capabilities on exec; ambient ones stay (capabilities(7)).
		attr.AmbientCaps = allCaps()
	}
	return attr, rootless, nil
}

// Build names a skillboxd: one that was installed anew is another. A service serves none but clients of its own build.
func Build(skillboxd string) (string, error) {
	var st unix.Stat_t
	if err := unix.Stat(skillboxd, &st); err != nil {
		return "", fmt.Errorf("helper: %s: %w", skillboxd, err)
	}
	return strconv.FormatUint(st.Dev, 36) + "." + strconv.FormatUint(st.Ino, 36) + "." + strconv.FormatInt(st.Mtim.Nano(), 36) + "." + strconv.FormatInt(st.Size, 36), nil
}
