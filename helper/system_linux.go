package helper

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"

	"golang.org/x/sys/unix"

	"skillbox/wire"
)

// The system service's socket, which root makes.
const (
	SystemDir    = "/run/skillboxd"
	SystemSocket = "skillboxd.sock"
)

// System connects with the system service. Nil without an error is that there is none. SKILLBOX_SOCKET names another socket than its own;
// whichever it is, root must have made it, and root must answer.
func System() (*Peer, error) {
	path := systemSocket()
	dir, err := openSystem(path)
	if err != nil || dir < 0 {
		return nil, err
	}
	defer unix.Close(dir)
	name := filepath.Base(path)
	conn, err := wire.Dial(fmt.Sprintf("/proc/self/fd/%d/%s", dir, name))
	if absent(err) {
		return nil, nil // it died
	}
	if err != nil {
		return nil, fmt.Errorf("helper: %s: %w", path, err)
	}
	who, err := conn.Owner()
	if err == nil && who.Uid != 0 {
		err = &Error{Message: fmt.Sprintf("%s is answered by user %d, not by root", path, who.Uid)}
	}
	if err != nil {
		return nil, errors.Join(err, conn.Close())
	}
	return &Peer{Conn: conn}, nil
}

// LookAtSystem says where the system service's socket is or would be, whether one is there, which may be nobody's, and why none may be believed.
func LookAtSystem() (path string, there bool, err error) {
	path = systemSocket()
	dir, err := openSystem(path)
	if err != nil || dir < 0 {
		return path, false, err
	}
	return path, true, unix.Close(dir)
}

func systemSocket() string {
	if path := os.Getenv("SKILLBOX_SOCKET"); path != "" {
		return path
	}
	return filepath.Join(SystemDir, SystemSocket)
}

// openSystem opens the directory of the system service's socket; -1 is that there is none.
func openSystem(path string) (dir int, err error) {
	dir, err = unix.Open(filepath.Dir(path), unix.O_PATH|unix.O_DIRECTORY|unix.O_NOFOLLOW|unix.O_CLOEXEC, 0)
	if err == unix.ENOENT {
		return -1, nil
	}
	if err != nil {
		return -1, fmt.Errorf("helper: %s: %w", filepath.Dir(path), err)
	}
	err = rootsOwn(dir, filepath.Base(path))
	if err == nil {
		return dir, nil
	}
	unix.Close(dir)
	if errors.Is(err, unix.ENOENT) {
		return -1, nil
	}
	return -1, fmt.Errorf("helper: %s: %w", path, err)
}

// rootsOwn says that nobody but root could have put this socket into this directory.
func rootsOwn(dir int, name string) error {
	var st unix.Stat_t
	if err := unix.Fstat(dir, &st); err != nil {
		return err
	}
	if st.Uid != 0 || st.Mode&0o022 != 0 {
		return &Error{Message: "the directory of the system service's socket is not root's alone to write"}
	}
	if err := unix.Fstatat(dir, name, &st, unix.AT_SYMLINK_NOFOLLOW); err != nil {
		return err
	}
	if st.Uid != 0 || st.Mode&unix.S_IFMT != unix.S_IFSOCK {
		return &Error{Message: "this is not a socket of root's"}
	}
	return nil
}
