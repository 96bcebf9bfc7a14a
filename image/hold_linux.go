package image

import (
	"bufio"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"
)

// busy says that boxes run in an image, or that somebody behaves as if they did: whoever may read the image may.
type busy struct{ holders string }

func (b *busy) Error() string { return "image: it is in use by " + b.holders }

// hold locks an image so that no box can start in it, for it is going to be removed; *busy is that one runs. The lock is package rootfs's.
func (s *Store) hold(id string) (*os.File, error) {
	path := filepath.Join(s.imageDir(id), "image.json")
	f, err := os.OpenFile(path, os.O_RDWR|unix.O_NOFOLLOW, 0)
	if err != nil {
		return nil, fmt.Errorf("image: %w", err)
	}
	err = unix.FcntlFlock(f.Fd(), unix.F_OFD_SETLK, &unix.Flock_t{Type: unix.F_WRLCK})
	if err == unix.EAGAIN || err == unix.EACCES {
		return nil, errors.Join(&busy{holders(f)}, f.Close())
	}
	if err != nil {
		return nil, errors.Join(fmt.Errorf("image: lock %s: %w", path, err), f.Close())
	}
	held, err := f.Stat()
	if err == nil {
		var named os.FileInfo
		if named, err = os.Lstat(path); err == nil && !os.SameFile(held, named) {
			err = fs.ErrNotExist
		}
	}
	if err != nil {
		return nil, errors.Join(fmt.Errorf("image: %s: %w", path, err), f.Close())
	}
	return f, nil
}

// maxHolders is how many are named.
const maxHolders = 8

// holders names the processes that hold a lock on a file. proc_pid_fdinfo(5) tells it to root, and to others of their own processes; the lock
// itself knows no process, and nothing is asked of the holders' files, which could be of a file system that does not answer.
func holders(f *os.File) string {
	var st unix.Stat_t
	if err := unix.Fstat(int(f.Fd()), &st); err != nil {
		return "a process"
	}
	var found []string
	processes, _ := os.ReadDir("/proc") // without it nobody is named
	for _, p := range processes {
		if _, err := strconv.Atoi(p.Name()); err != nil || !holds(p.Name(), st.Ino) {
			continue
		}
		if len(found) == maxHolders {
			found = append(found, "others")
			break
		}
		found = append(found, "process "+p.Name()+" of user "+userOf(p.Name()))
	}
	if found == nil {
		return "a process that /proc does not name"
	}
	return strings.Join(found, ", ")
}

// holds looks for a lock on an inode by its number alone: as /proc names a device, stat(2) does not on every file system.
func holds(process string, inode uint64) bool {
	dir := filepath.Join("/proc", process, "fdinfo")
	open, _ := os.ReadDir(dir) // it may have ended, or be another's
	for _, fd := range open {
		text, _ := os.ReadFile(filepath.Join(dir, fd.Name()))
		for line := range strings.Lines(string(text)) {
			if strings.HasPrefix(line, "lock:") && strings.Contains(line, fmt.Sprintf(":%d ", inode)) {
				return true
			}
		}
	}
	return false
}

// userOf is the number of a process's real user.
func userOf(process string) string {
	f, err := os.Open(filepath.Join("/proc", process, "status"))
	if err != nil {
		return "?"
	}
	defer f.Close()
	for lines := bufio.NewScanner(f); lines.Scan(); {
		if fields := strings.Fields(lines.Text()); len(fields) > 1 && fields[0] == "Uid:" {
			return fields[1]
		}
	}
	return "?"
}
