package broker

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"strconv"
	"sync"
	"time"

	"golang.org/x/sys/unix"

	"skillbox/helper"
	"skillbox/policy"
)

// Config is where the administrator says who may use the service, and how much.
const Config = "/etc/skillbox/service.yaml"

// config is that file, read again when it has changed.
type config struct {
	mu      sync.Mutex
	known   bool
	stamp   stamp
	service *policy.Service
	err     error
}

// stamp tells whether a file has changed.
type stamp struct {
	dev, ino uint64
	size     int64
	changed  time.Time
}

// settings are what the file says at one time.
type settings struct {
	*policy.Service
	path string
}

func (c *config) read(path string) (settings, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	var st unix.Stat_t
	now := stamp{}
	err := unix.Stat(path, &st)
	if err == nil {
		now = stamp{st.Dev, st.Ino, st.Size, time.Unix(st.Ctim.Unix())}
	} else if err != unix.ENOENT {
		return settings{}, fmt.Errorf("broker: %s: %w", path, err)
	}
	if !c.known || now != c.stamp {
		c.service, c.err = readService(path)
		c.known, c.stamp = true, now
	}
	return settings{c.service, path}, c.err
}

// readService reads what only root may have written. Without a file the defaults hold.
func readService(path string) (*policy.Service, error) {
	f, err := os.Open(path)
	if errors.Is(err, fs.ErrNotExist) {
		return policy.DefaultService(), nil
	}
	if err != nil {
		return nil, fmt.Errorf("broker: %w", err)
	}
	defer f.Close()
	var st unix.Stat_t
	if err := unix.Fstat(int(f.Fd()), &st); err != nil {
		return nil, fmt.Errorf("broker: %s: %w", path, err)
	}
	if st.Mode&unix.S_IFMT != unix.S_IFREG || st.Mode&0o022 != 0 || st.Uid != 0 {
		return nil, &helper.Error{Message: "must be a regular file of root's that only root may write", File: path, Hint: "chown root and chmod 0644"}
	}
	data, err := io.ReadAll(io.LimitReader(f, 1<<20))
	if err != nil {
		return nil, fmt.Errorf("broker: %s: %w", path, err)
	}
	return policy.ParseService(path, data)
}

// keepsOut says why the file lets a caller not in.
func (s settings) keepsOut(c caller) error {
	allow := s.Allow
	if len(allow.Users)+len(allow.Groups) == 0 {
		return nil
	}
	login := helper.LoginName(int(c.uid))
	for _, name := range allow.Users {
		if name == login || name == strconv.FormatUint(uint64(c.uid), 10) {
			return nil
		}
	}
	known, err := helper.ReadGroups()
	if err != nil {
		return err
	}
	for _, name := range allow.Groups {
		if g, found := helper.FindGroup(known, name); found && g.Holds(login, c.groups) {
			return nil
		}
	}
	return &decline{&helper.Error{
		Message: "the system service does not serve you: the administrator has listed whom it serves", File: s.path,
		Field: "allow", Hint: "use --mode user or oneshot, or ask to be listed",
	}}
}
