package helper

import (
	"errors"
	"fmt"
	"os"

	"golang.org/x/sys/unix"
)

// The log of a user's service lies beside its socket. Services of several namespaces may write one together.
const (
	ServiceLog    = "skillboxd.log"
	OldServiceLog = "skillboxd.log.1" // the one before
	// MaxLog is how long a log may become before another is begun, in bytes.
	MaxLog = 4 << 20
)

// OpenLog opens a service's log for appending. One that has become too long takes the place of the old one first.
func OpenLog(dir *os.File) (*os.File, error) {
	for {
		fd, err := unix.Openat(int(dir.Fd()), ServiceLog, unix.O_WRONLY|unix.O_CREAT|unix.O_APPEND|unix.O_NOFOLLOW|unix.O_NONBLOCK|unix.O_CLOEXEC, 0o600)
		if err != nil {
			return nil, fmt.Errorf("helper: log of the service: %w", err)
		}
		log := os.NewFile(uintptr(fd), ServiceLog)
		var st unix.Stat_t
		if err := unix.Fstat(fd, &st); err != nil {
			return nil, errors.Join(fmt.Errorf("helper: log of the service: %w", err), log.Close())
		}
		if st.Size < MaxLog {
			return log, nil
		}
		if err := errors.Join(putAside(dir, fd, &st), log.Close()); err != nil {
			return nil, fmt.Errorf("helper: log of the service: %w", err)
		}
	}
}

// putAside renames the log, unless somebody else has meanwhile.
func putAside(dir *os.File, fd int, st *unix.Stat_t) error {
	if err := unix.Flock(fd, unix.LOCK_EX); err != nil { // until fd is closed
		return err
	}
	var now unix.Stat_t
	err := unix.Fstatat(int(dir.Fd()), ServiceLog, &now, unix.AT_SYMLINK_NOFOLLOW)
	if err == unix.ENOENT || err == nil && (now.Ino != st.Ino || now.Dev != st.Dev) {
		return nil
	}
	if err != nil {
		return err
	}
	return unix.Renameat(int(dir.Fd()), ServiceLog, int(dir.Fd()), OldServiceLog)
}
