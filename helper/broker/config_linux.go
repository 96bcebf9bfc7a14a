package broker

import (
	"fmt"
	"sync"
	"time"

	"golang.org/x/sys/unix"

	"skillbox/helper/access"
)

// Config is where the administrator says who may use the service, and how much.
const Config = access.Path

// config is that file, read again when it has changed.
type config struct {
	mu    sync.Mutex
	known bool
	stamp stamp
	file  *access.File
	err   error
}

// stamp tells whether a file has changed.
type stamp struct {
	dev, ino uint64
	size     int64
	changed  time.Time
}

func (c *config) read(path string) (*access.File, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	var st unix.Stat_t
	now := stamp{}
	err := unix.Stat(path, &st)
	if err == nil {
		now = stamp{st.Dev, st.Ino, st.Size, time.Unix(st.Ctim.Unix())}
	} else if err != unix.ENOENT {
		return nil, fmt.Errorf("broker: %s: %w", path, err)
	}
	if !c.known || now != c.stamp {
		c.file, c.err = access.Read(path)
		c.known, c.stamp = true, now
	}
	return c.file, c.err
}
