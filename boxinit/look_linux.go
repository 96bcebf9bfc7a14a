package boxinit

import (
	"bufio"
	"errors"
	"os"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"
)

// look fills a report with what this process can see of itself.
func look(r *Report) error {
	r.UID, r.GID = os.Getuid(), os.Getgid()
	var err error
	if r.Groups, err = os.Getgroups(); err != nil {
		return err
	}
	if r.Hostname, err = os.Hostname(); err != nil {
		return err
	}
	steps := []func(*Report) error{lookStatus, lookNamespaces, lookMounts, lookFiles, lookInterfaces, lookCgroups}
	for _, step := range steps {
		if err := step(r); err != nil {
			return err
		}
	}
	r.RootWrite = tryRootWrite()
	return nil
}

// lookStatus reads credentials from /proc/self/status and the seccomp mode of every thread.
func lookStatus(r *Report) error {
	status, err := statusFields("/proc/self/status")
	if err != nil {
		return err
	}
	r.Caps = map[string]string{}
	for _, set := range []string{"CapInh", "CapPrm", "CapEff", "CapBnd", "CapAmb"} {
		r.Caps[set] = status[set]
	}
	r.NoNewPrivs = status["NoNewPrivs"]
	threads, err := os.ReadDir("/proc/self/task")
	if err != nil {
		return err
	}
	for _, t := range threads {
		status, err := statusFields("/proc/self/task/" + t.Name() + "/status")
		if os.IsNotExist(err) {
			continue // the thread ended meanwhile
		}
		if err != nil {
			return err
		}
		r.Seccomp = append(r.Seccomp, status["Seccomp"])
	}
	return nil
}

func statusFields(path string) (map[string]string, error) {
	text, err := os.ReadFile(path)
	if err != nil {
		return nil, err
	}
	fields := map[string]string{}
	for line := range strings.Lines(string(text)) {
		if key, value, ok := strings.Cut(line, ":"); ok {
			fields[key] = strings.TrimSpace(value)
		}
	}
	return fields, nil
}

// Namespaces returns the identity of each namespace of the calling process.
func Namespaces() (map[string]string, error) {
	ids := map[string]string{}
	for _, name := range namespaceNames {
		id, err := os.Readlink("/proc/self/ns/" + name)
		if err != nil {
			return nil, err
		}
		ids[name] = id
	}
	return ids, nil
}

func lookNamespaces(r *Report) (err error) {
	r.Namespaces, err = Namespaces()
	return err
}

// lookMounts parses /proc/self/mountinfo, see proc_pid_mountinfo(5). Both the mount's and the superblock's flags make it read-only.
func lookMounts(r *Report) error {
	f, err := os.Open("/proc/self/mountinfo")
	if err != nil {
		return err
	}
	defer f.Close()
	lines := bufio.NewScanner(f)
	for lines.Scan() {
		fields := strings.Fields(lines.Text())
		if len(fields) < 10 {
			continue
		}
		m := Mount{Path: fields[4]}
		for _, option := range strings.Split(fields[5], ",") {
			m.ReadOnly = m.ReadOnly || option == "ro"
			m.NoSuid = m.NoSuid || option == "nosuid"
			m.NoDev = m.NoDev || option == "nodev"
		}
		for i := 6; i < len(fields)-1; i++ {
			if fields[i] == "-" {
				m.FSType = fields[i+1]
			}
		}
		r.Mounts = append(r.Mounts, m)
	}
	return lines.Err()
}

// lookFiles lists descriptors that are neither stdio, nor the socket, nor the directory being read.
func lookFiles(r *Report) error {
	dir, err := os.Open("/proc/self/fd")
	if err != nil {
		return err
	}
	defer dir.Close()
	names, err := dir.Readdirnames(-1)
	if err != nil {
		return err
	}
	for _, name := range names {
		fd, err := strconv.Atoi(name)
		if err != nil || fd <= Socket || fd == int(dir.Fd()) {
			continue
		}
		target, _ := os.Readlink("/proc/self/fd/" + name) // best effort: the number alone is already a finding
		if target == "anon_inode:[eventpoll]" || target == "anon_inode:[eventfd]" {
			continue // the Go runtime's poller, close-on-exec and private to init
		}
		r.Files = append(r.Files, name+" → "+target)
	}
	return nil
}

func lookInterfaces(r *Report) error {
	text, err := os.ReadFile("/proc/self/net/dev")
	if err != nil {
		return err
	}
	for line := range strings.Lines(string(text)) {
		if name, _, ok := strings.Cut(line, ":"); ok {
			r.Interfaces = append(r.Interfaces, strings.TrimSpace(name))
		}
	}
	return nil
}

func lookCgroups(r *Report) error {
	text, err := os.ReadFile("/proc/self/cgroup")
	if err != nil {
		return err
	}
	for line := range strings.Lines(string(text)) {
		if parts := strings.SplitN(strings.TrimSpace(line), ":", 3); len(parts) == 3 {
			r.Cgroups = append(r.Cgroups, parts[2])
		}
	}
	return nil
}

func tryRootWrite() string {
	fd, err := unix.Open("/.skillbox-write-test", unix.O_WRONLY|unix.O_CREAT|unix.O_EXCL|unix.O_CLOEXEC, 0o600)
	if err == nil {
		unix.Close(fd)
		return "written"
	}
	var errno unix.Errno
	if errors.As(err, &errno) {
		return unix.ErrnoName(errno)
	}
	return err.Error()
}
