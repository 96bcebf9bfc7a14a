package sandbox

import (
	"errors"
	"fmt"
	"os"
	"runtime"

	"golang.org/x/sys/unix"

	"skillbox/cgroup"
)

// openGroups finds where boxes' control groups go, and leaves this mount namespace a view of nothing else.
func (h *Host) openGroups() error {
	if _, err := os.Stat(cgroup.Root); err != nil {
		return errors.New("sandbox: /sys/fs/cgroup does not exist: mount sysfs")
	}
	place, err := cgroup.Open(h.caller)
	if errors.As(err, &h.NoGroups) {
		return hideGroups()
	}
	if err != nil {
		return err
	}
	h.groups, h.Controllers, h.GroupsIn = place, place.Controllers, place.Group
	h.Swept["group"] = place.Swept
	return place.Cover()
}

// hideGroups mounts an unwritable cgroup2 file system of our own, so that libcontainer finds the same on every host and leaves
// cgroups alone: it would otherwise create groups in every v1 hierarchy that nobody removes after a SIGKILL.
func hideGroups() error {
	done := make(chan error, 1)
	go func() {
		// The kernel lets us mount it in a cgroup namespace that is ours. That is this thread's alone, which ends with the goroutine:
		// from the machine's namespace more can be seen of groups that are to be found.
		runtime.LockOSThread()
		var there unix.Statfs_t
		err := errors.Join(unix.Unshare(unix.CLONE_NEWCGROUP), unix.Statfs(cgroup.Root, &there))
		if err == nil && there.Type == unix.CGROUP2_SUPER_MAGIC {
			// The kernel refuses a file system on top of itself.
			err = unix.Mount("skillbox", cgroup.Root, "tmpfs", unix.MS_NOSUID|unix.MS_NODEV|unix.MS_NOEXEC, "mode=0555")
		}
		if err == nil {
			err = unix.Mount("cgroup2", cgroup.Root, "cgroup2", unix.MS_RDONLY|unix.MS_NOSUID|unix.MS_NODEV|unix.MS_NOEXEC, "")
		}
		done <- err
	}()
	if err := <-done; err != nil {
		return fmt.Errorf("sandbox: mount cgroup2: %w", err)
	}
	return nil
}

// Reserve names a box that is about to be prepared, and makes its group meanwhile.
func (h *Host) Reserve() (id string, err error) {
	id = NewID()
	if h.groups == nil {
		return id, nil
	}
	group, err := h.groups.Create(id)
	if err != nil {
		return id, err
	}
	go h.groups.Prime()
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.reserved == nil {
		h.reserved = map[string]*cgroup.Group{}
	}
	h.reserved[id] = group
	return id, nil
}

// group takes a reserved box's group, or makes one; nil is for a host without groups.
func (h *Host) group(id string) (*cgroup.Group, error) {
	if h.groups == nil {
		return nil, nil
	}
	h.mu.Lock()
	group := h.reserved[id]
	delete(h.reserved, id)
	h.mu.Unlock()
	if group != nil {
		return group, nil
	}
	return h.groups.Create(id)
}

// Close removes what this skillboxd holds on the machine, boxes' groups and links included: the processes in them are killed.
func (h *Host) Close() error {
	h.mu.Lock()
	var errs []error
	for b := range h.boxes {
		errs = append(errs, b.network.leave())
	}
	h.mu.Unlock()
	if h.groups != nil {
		errs = append(errs, h.groups.Close())
	}
	return errors.Join(errs...)
}

func (h *Host) hold(b *Box) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.boxes == nil {
		h.boxes = map[*Box]bool{}
	}
	h.boxes[b] = true
}

func (h *Host) drop(b *Box) {
	h.mu.Lock()
	defer h.mu.Unlock()
	delete(h.boxes, b)
}
