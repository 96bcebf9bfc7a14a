package broker

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strconv"

	"golang.org/x/sys/unix"

	"skillbox/wire"
)

// Listener is the service's socket.
type Listener struct {
	*os.File
	Path string
	lock *os.File // nil where systemd has made the socket
	dir  *os.File
}

const lockName = "lock"

// Listen takes the socket that systemd has passed (sd_listen_fds(3)), or makes one that everybody may connect with in a directory that is
// root's alone to write: who may use it is decided by who connects, not by the file's mode.
func Listen(dir string) (*Listener, error) {
	if os.Getenv("LISTEN_PID") == strconv.Itoa(os.Getpid()) {
		return passed(os.Getenv("LISTEN_FDS"))
	}
	l := &Listener{Path: filepath.Join(dir, Socket)}
	var err error
	if l.dir, err = openDir(dir); err != nil {
		return nil, err
	}
	if err := l.make(); err != nil {
		return nil, errors.Join(err, l.release())
	}
	return l, nil
}

// passed is descriptor 3, which must be a unix socket that listens.
func passed(number string) (*Listener, error) {
	const first = 3
	if number != "1" {
		return nil, fmt.Errorf("broker: systemd passes %s sockets, and one is wanted", number)
	}
	unix.CloseOnExec(first)
	listens, err := unix.GetsockoptInt(first, unix.SOL_SOCKET, unix.SO_ACCEPTCONN)
	domain, errDomain := unix.GetsockoptInt(first, unix.SOL_SOCKET, unix.SO_DOMAIN)
	kind, errKind := unix.GetsockoptInt(first, unix.SOL_SOCKET, unix.SO_TYPE)
	if err := errors.Join(err, errDomain, errKind); err != nil || listens == 0 || domain != unix.AF_UNIX || kind != unix.SOCK_STREAM {
		return nil, fmt.Errorf("broker: what systemd passes is no listening unix stream socket: %w", err)
	}
	return &Listener{File: os.NewFile(first, "systemd"), Path: "systemd"}, nil
}

// openDir opens the directory of the socket, which is made if it is not there.
func openDir(path string) (*os.File, error) {
	if err := os.Mkdir(path, 0o755); err != nil && !errors.Is(err, os.ErrExist) {
		return nil, fmt.Errorf("broker: %w", err)
	}
	fd, err := unix.Open(path, unix.O_RDONLY|unix.O_DIRECTORY|unix.O_NOFOLLOW|unix.O_CLOEXEC, 0)
	if err != nil {
		return nil, fmt.Errorf("broker: open %s: %w", path, err)
	}
	dir := os.NewFile(uintptr(fd), path)
	var st unix.Stat_t
	if err := unix.Fstat(fd, &st); err != nil {
		return nil, errors.Join(fmt.Errorf("broker: %s: %w", path, err), dir.Close())
	}
	if st.Uid != 0 || st.Mode&0o022 != 0 {
		return nil, errors.Join(fmt.Errorf("broker: %s can be written by others than root: remove it, or chown root and chmod 0755", path), dir.Close())
	}
	return dir, nil
}

// make makes the socket, under a lock that a second service does not get. What is in its place is replaced only if it is a socket: of a
// service that died, since there is no other.
func (l *Listener) make() error {
	fd, err := unix.Openat(int(l.dir.Fd()), lockName, unix.O_RDWR|unix.O_CREAT|unix.O_NOFOLLOW|unix.O_CLOEXEC, 0o600)
	if err != nil {
		return fmt.Errorf("broker: lock of %s: %w", l.dir.Name(), err)
	}
	l.lock = os.NewFile(uintptr(fd), lockName)
	if err := unix.Flock(fd, unix.LOCK_EX|unix.LOCK_NB); err != nil {
		return fmt.Errorf("broker: another skillboxd system has %s: %w", l.Path, err)
	}
	var st unix.Stat_t
	err = unix.Fstatat(int(l.dir.Fd()), Socket, &st, unix.AT_SYMLINK_NOFOLLOW)
	if err == nil && st.Mode&unix.S_IFMT != unix.S_IFSOCK {
		return fmt.Errorf("broker: %s is no socket: remove it", l.Path)
	}
	if err == nil {
		err = unix.Unlinkat(int(l.dir.Fd()), Socket, 0)
	}
	if err != nil && err != unix.ENOENT {
		return fmt.Errorf("broker: %s: %w", l.Path, err)
	}
	l.File, err = wire.ListenToAll(fmt.Sprintf("/proc/self/fd/%d/%s", l.dir.Fd(), Socket))
	return err
}

// Close stops listening and takes the socket's name away where it was made here.
func (l *Listener) Close() error {
	err := l.File.Close()
	if l.lock != nil {
		if errName := unix.Unlinkat(int(l.dir.Fd()), Socket, 0); errName != nil && errName != unix.ENOENT {
			err = errors.Join(err, fmt.Errorf("broker: remove %s: %w", l.Path, errName))
		}
	}
	return errors.Join(err, l.release())
}

func (l *Listener) release() error {
	var errs []error
	for _, f := range []*os.File{l.lock, l.dir} {
		if f != nil {
			errs = append(errs, f.Close())
		}
	}
	return errors.Join(errs...)
}
