package cgroup

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"

	"golang.org/x/sys/unix"
)

// DiskOf finds the disk that a file system's device (st_dev) is, or is a partition of. It is false for one that lies on no single
// block device: btrfs, overlay, network file systems, and those that lie in memory.
func DiskOf(dev uint64) (Disk, bool, error) {
	device := fmt.Sprintf("/sys/dev/block/%d:%d", unix.Major(dev), unix.Minor(dev))
	dir, err := filepath.EvalSymlinks(device)
	if errors.Is(err, os.ErrNotExist) {
		return Disk{}, false, nil
	}
	if err != nil {
		return Disk{}, false, fmt.Errorf("cgroup: %w", err)
	}
	if _, err := os.Stat(filepath.Join(dir, "partition")); err == nil {
		dir = filepath.Dir(dir)
	}
	text, err := os.ReadFile(filepath.Join(dir, "dev"))
	if err != nil {
		return Disk{}, false, fmt.Errorf("cgroup: %w", err)
	}
	var d Disk
	if _, err := fmt.Sscanf(strings.TrimSpace(string(text)), "%d:%d", &d.Major, &d.Minor); err != nil {
		return Disk{}, false, fmt.Errorf("cgroup: %s/dev: %w", dir, err)
	}
	return d, true, nil
}
