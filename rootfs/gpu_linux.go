package rootfs

import (
	"bufio"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"
)

// kinds are nodes that belong to graphics processors and give no more than these: not the screen (/dev/dri/card*, from which others' windows
// are read). A major number of 0 is whatever the kernel has given to the driver of that name.
var kinds = []struct {
	pattern, driver string
	major           uint32
}{
	{"nvidia[0-9]", "", 195}, // devices.txt of the kernel
	{"nvidia[0-9][0-9]", "", 195},
	{"nvidiactl", "", 195},
	{"nvidia-modeset", "", 195},
	{"nvidia-uvm", "nvidia-uvm", 0},
	{"nvidia-uvm-tools", "nvidia-uvm", 0},
	{"dri/renderD[0-9][0-9][0-9]", "", 226},
	{"kfd", "kfd", 0},
}

// libraries are the patterns of drivers' files in the host's directories of libraries.
var libraries = []string{"libcuda.so*", "libcudadebugger.so*", "libnvidia-*.so*", "libnvcuvid.so*"}

// FindGPU looks for graphics processors on this host. A node that is not the device that it is named for is an error, and so is a host without
// any.
func FindGPU() (*GPU, error) {
	g := &GPU{}
	drivers, err := drivers()
	if err != nil {
		return nil, err
	}
	for _, kind := range kinds {
		found, err := filepath.Glob("/dev/" + kind.pattern)
		if err != nil {
			return nil, fmt.Errorf("rootfs: %s: %w", kind.pattern, err)
		}
		for _, path := range found {
			major := kind.major
			if major == 0 {
				major = drivers[kind.driver]
			}
			node, err := nodeAt(path, major)
			if err != nil {
				return nil, err
			}
			g.Nodes = append(g.Nodes, node)
		}
	}
	if len(g.Nodes) == 0 {
		return nil, errors.New("there is no GPU on this host: none of /dev/nvidia*, /dev/dri/renderD* and /dev/kfd")
	}
	g.Libraries, err = driverLibraries()
	return g, err
}

func nodeAt(path string, major uint32) (Node, error) {
	var st unix.Stat_t
	if err := unix.Lstat(path, &st); err != nil {
		return Node{}, fmt.Errorf("rootfs: %s: %w", path, err)
	}
	if st.Mode&unix.S_IFMT != unix.S_IFCHR || major == 0 || unix.Major(st.Rdev) != major {
		return Node{}, fmt.Errorf("the host's %s is not the device that it is named for", path)
	}
	return Node{strings.TrimPrefix(path, "/dev/"), major, unix.Minor(st.Rdev)}, nil
}

// drivers are the major numbers of character devices by the name of their driver, see proc(5).
func drivers() (map[string]uint32, error) {
	f, err := os.Open("/proc/devices")
	if err != nil {
		return nil, fmt.Errorf("rootfs: %w", err)
	}
	defer f.Close()
	majors := map[string]uint32{}
	lines := bufio.NewScanner(f)
	for lines.Scan() && lines.Text() != "Block devices:" {
		number, name, _ := strings.Cut(strings.TrimSpace(lines.Text()), " ")
		if n, err := strconv.ParseUint(number, 10, 32); err == nil {
			majors[name] = uint32(n)
		}
	}
	return majors, lines.Err()
}

// driverLibraries are files in the directories where the host's loader looks, links by what they lead to.
func driverLibraries() (all []Library, err error) {
	named := map[string]bool{}
	for _, dir := range []string{"/usr/lib/x86_64-linux-gnu", "/usr/lib/aarch64-linux-gnu", "/usr/lib64", "/usr/lib"} {
		for _, pattern := range libraries {
			paths, err := filepath.Glob(filepath.Join(dir, pattern))
			if err != nil {
				return nil, fmt.Errorf("rootfs: %s: %w", pattern, err)
			}
			for _, path := range paths {
				source, err := regular(path)
				if err != nil {
					return nil, err
				}
				if name := filepath.Base(path); source.Path != "" && !named[name] {
					named[name] = true
					all = append(all, Library{name, source})
				}
			}
		}
	}
	return all, nil
}

// regular is the file that a path leads to; it is empty where that is none.
func regular(path string) (Source, error) {
	fd, err := unix.Open(path, unix.O_PATH|unix.O_CLOEXEC, 0)
	if err == unix.ENOENT || err == unix.ELOOP {
		return Source{}, nil
	}
	if err != nil {
		return Source{}, fmt.Errorf("rootfs: %s: %w", path, err)
	}
	defer unix.Close(fd)
	var st unix.Stat_t
	if err := unix.Fstat(fd, &st); err != nil {
		return Source{}, fmt.Errorf("rootfs: %s: %w", path, err)
	}
	if st.Mode&unix.S_IFMT != unix.S_IFREG {
		return Source{}, nil
	}
	return SourceOf(fd)
}

// mountGPU shows the nodes in the box's /dev, which is there, and the libraries where the base has none.
func (t *Tree) mountGPU(s *Spec) error {
	if s.GPU == nil {
		return nil
	}
	dev, err := t.open("/dev")
	if err != nil {
		return err
	}
	defer dev.Close()
	for _, n := range s.GPU.Nodes {
		if dir := filepath.Dir(n.Name); dir != "." {
			if err := unix.Mkdirat(int(dev.Fd()), dir, 0o755); err != nil && err != unix.EEXIST {
				return fmt.Errorf("rootfs: /dev/%s: %w", dir, err)
			}
		}
		if err := mountDevice(int(dev.Fd()), n.Name, n.Major, n.Minor); err != nil {
			return err
		}
	}
	if s.Base == "host" {
		return nil
	}
	for _, l := range s.GPU.Libraries {
		mount, err := cloneBind(Bind{Source: l.Source}, -1)
		if err != nil {
			return err
		}
		if err := t.place(mount, LibraryDir+"/"+l.Name, true); err != nil {
			return err
		}
	}
	return nil
}
