package main

import (
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strconv"
	"strings"
	"sync"
	"time"

	"golang.org/x/sys/unix"
)

// Group A of the threat table: what a skill tries against the program that started it, its descriptors and its files.
var _ = register(map[string]func([]string) (any, error){
	"nothing":          func([]string) (any, error) { return "nothing", nil },
	"open-descriptors": func([]string) (any, error) { return openDescriptors(), nil },
	"init":             func([]string) (any, error) { return reachInit(), nil },
	"exe-overwrite":    func(args []string) (any, error) { return overwriteExecutable(args[0]), nil },
	"every-task":       everyTask,
	"run":              runEach,
	"list":             list,
	"open":             func(paths []string) (any, error) { return openEach(paths, unix.O_RDONLY), nil },
	"open-write":       func(paths []string) (any, error) { return openEach(paths, unix.O_WRONLY), nil },
	"create":           func(paths []string) (any, error) { return openEach(paths, unix.O_WRONLY|unix.O_CREAT), nil },
	"digest":           digestEach,
	"find":             find,
	"device":           deviceNumbers,
	"wait":             waitForEnd,
})

// openEach opens and closes again.
func openEach(paths []string, flags int) map[string]string {
	got := map[string]string{}
	for _, p := range paths {
		fd, err := unix.Open(p, flags|unix.O_CLOEXEC|unix.O_NONBLOCK|unix.O_NOCTTY, 0o644)
		if err == nil {
			unix.Close(fd)
		}
		got[p] = answer(err)
	}
	return got
}

// openDescriptors asks for each number, without opening one itself. The Go runtime's own (a poller, files of the cgroup) do not
// exist yet in a program this young, or are close-on-exec and thus not inherited.
func openDescriptors() map[string]string {
	got := map[string]string{}
	for fd := range 4096 {
		flags, err := unix.FcntlInt(uintptr(fd), unix.F_GETFD, 0)
		if err != nil || flags&unix.FD_CLOEXEC != 0 {
			continue
		}
		name := strconv.Itoa(fd)
		target, err := os.Readlink("/proc/self/fd/" + name)
		if err != nil {
			target = answer(err)
		}
		got[name] = target
	}
	return got
}

// reachInit goes through everything in /proc/1 that names or reaches an object.
func reachInit() map[string]string {
	got := map[string]string{}
	for _, name := range []string{"cwd", "root", "exe", "fd/0", "fd/3", "ns/mnt", "ns/user", "ns/net", "task/1/exe", "task/1/root", "task/1/fd/3"} {
		target, err := os.Readlink("/proc/1/" + name)
		if err == nil {
			got["readlink "+name] = "→ " + target
			continue
		}
		got["readlink "+name] = answer(err)
	}
	for _, name := range []string{"fd", "fdinfo", "map_files", "task/1/fd", "ns", "root", "cwd", "root/.", "cwd/.."} {
		_, err := os.ReadDir("/proc/1/" + name)
		got["list "+name] = answer(err)
	}
	for _, name := range []string{"environ", "maps", "smaps", "numa_maps", "auxv", "mem", "pagemap", "syscall", "stack", "exe", "root/skill", "root/etc/passwd", "io", "personality", "task/1/environ", "task/1/mem", "fd/3"} {
		fd, err := unix.Open("/proc/1/"+name, unix.O_RDONLY|unix.O_CLOEXEC, 0)
		if err == nil {
			_, err = unix.Read(fd, make([]byte, 64))
			unix.Close(fd)
		}
		got["read "+name] = answer(err)
	}
	for name, text := range map[string]string{
		"mem": "x", "oom_score_adj": "500", "attr/current": "x", "attr/exec": "x", "uid_map": "0 0 1", "gid_map": "0 0 1", "setgroups": "allow",
		"clear_refs": "1", "coredump_filter": "0x33", "comm": "x", "timerslack_ns": "1", "fd/3": "x", "task/1/comm": "x",
	} {
		fd, err := unix.Open("/proc/1/"+name, unix.O_WRONLY|unix.O_CLOEXEC, 0)
		if err == nil {
			_, err = unix.Write(fd, []byte(text))
			unix.Close(fd)
		}
		got["write "+name] = answer(err)
	}
	return got
}

// overwriteExecutable is CVE-2019-5736: a descriptor of a running program's file, reopened for writing when it runs no more.
func overwriteExecutable(path string) map[string]string {
	got := map[string]string{"write": answer(reopen(path)), "write /proc/1/exe": answer(reopen("/proc/1/exe"))}
	held, err := unix.Open(path, unix.O_PATH|unix.O_CLOEXEC, 0)
	if err == nil {
		got["reopen"] = answer(reopen("/proc/self/fd/" + strconv.Itoa(held)))
		unix.Close(held)
	}
	got["unlink"] = answer(unix.Rename(path, path+"~"))
	if got["unlink"] == "ok" {
		got["back"] = answer(unix.Rename(path+"~", path))
	}
	got["reopen after the end"] = "never caught it running"
	for range 200 {
		c := exec.Command(path)
		if c.Start() != nil {
			break
		}
		held, err := unix.Open("/proc/"+strconv.Itoa(c.Process.Pid)+"/exe", unix.O_PATH|unix.O_CLOEXEC, 0)
		_ = c.Wait() // whatever it did
		if err == nil {
			got["reopen after the end"] = answer(reopen("/proc/self/fd/" + strconv.Itoa(held)))
			unix.Close(held)
			break
		}
	}
	return got
}

// reopen opens for writing, and writes nothing.
func reopen(path string) error {
	fd, err := unix.Open(path, unix.O_WRONLY|unix.O_CLOEXEC, 0)
	if err == nil {
		unix.Close(fd)
	}
	return err
}

// everyTask returns the credentials of all threads of all processes: with more threads and a child of our own, and init's.
func everyTask([]string) (any, error) {
	var started, wait sync.WaitGroup
	stop := make(chan struct{})
	for range 4 {
		started.Add(1)
		wait.Go(func() {
			runtime.LockOSThread()
			started.Done()
			<-stop
		})
	}
	started.Wait()
	child := exec.Command("/proc/self/exe", "wait")
	in, err := child.StdinPipe()
	if err != nil {
		return nil, err
	}
	if err := child.Start(); err != nil {
		return nil, err
	}
	time.Sleep(20 * time.Millisecond) // the child makes its threads
	got := map[string]map[string]string{}
	paths, err := filepath.Glob("/proc/[0-9]*/task/[0-9]*/status")
	for _, p := range paths {
		if text, err := os.ReadFile(p); err == nil {
			got[p] = fields(string(text))
		}
	}
	close(stop)
	wait.Wait()
	in.Close()
	_ = child.Wait()
	return got, err
}

func fields(text string) map[string]string {
	got := map[string]string{}
	for line := range strings.Lines(text) {
		if name, value, ok := strings.Cut(line, ":"); ok {
			got[name] = strings.TrimSpace(value)
		}
	}
	return got
}

// waitForEnd lives until stdin ends.
func waitForEnd([]string) (any, error) {
	_, err := os.Stdin.Read(make([]byte, 1))
	return "ended", ignoreEOF(err)
}

func ignoreEOF(err error) error {
	if err != nil && err.Error() == "EOF" {
		return nil
	}
	return err
}

// runEach executes copies of the probe and returns what they say about themselves.
func runEach(paths []string) (any, error) {
	got := map[string]map[string]string{}
	for _, p := range paths {
		out, err := exec.Command(p, "status").Output()
		if err != nil {
			got[p] = map[string]string{"error": err.Error()}
			continue
		}
		status := map[string]string{}
		if err := json.Unmarshal(out, &status); err != nil {
			return nil, err
		}
		got[p] = status
	}
	return got, nil
}

func list(paths []string) (any, error) {
	got := map[string][]string{}
	for _, p := range paths {
		got[p] = []string{}
		entries, err := os.ReadDir(p)
		if err != nil {
			got[p] = append(got[p], answer(err))
		}
		for _, e := range entries {
			got[p] = append(got[p], e.Name())
		}
	}
	return got, nil
}

func digestEach(paths []string) (any, error) {
	got := map[string]string{}
	for _, p := range paths {
		data, err := os.ReadFile(p)
		if err != nil {
			return nil, err
		}
		sum := sha256.Sum256(data)
		got[p] = hex.EncodeToString(sum[:])
	}
	return got, nil
}

// find walks below args[0] and returns all paths whose last element is one of the other arguments. "-x PATH" leaves a tree out.
func find(args []string) (any, error) {
	wanted, without := map[string]bool{}, map[string]bool{}
	root := args[0]
	for i := 1; i < len(args); i++ {
		if args[i] == "-x" {
			i++
			without[args[i]] = true
			continue
		}
		wanted[args[i]] = true
	}
	found := map[string]string{"visited": "0"}
	visited := 0
	err := filepath.WalkDir(root, func(p string, d fs.DirEntry, err error) error {
		visited++
		if without[p] && d != nil && d.IsDir() {
			return fs.SkipDir
		}
		if wanted[filepath.Base(p)] {
			found[p] = "found"
		}
		if err != nil && d != nil && d.IsDir() {
			return fs.SkipDir // a directory that says nothing
		}
		return nil
	})
	found["visited"] = strconv.Itoa(visited)
	return found, err
}

// deviceNumbers tells what lies at a path: "char 1:3", "link", "absent".
func deviceNumbers(paths []string) (any, error) {
	got := map[string]string{}
	for _, p := range paths {
		var st unix.Stat_t
		if err := unix.Lstat(p, &st); err != nil {
			got[p] = answer(err)
			continue
		}
		number := strconv.Itoa(int(unix.Major(st.Rdev))) + ":" + strconv.Itoa(int(unix.Minor(st.Rdev)))
		switch st.Mode & unix.S_IFMT {
		case unix.S_IFCHR:
			got[p] = "char " + number
		case unix.S_IFBLK:
			got[p] = "block " + number
		case unix.S_IFLNK:
			got[p] = "link"
		case unix.S_IFDIR:
			got[p] = "directory"
		default:
			got[p] = "file"
		}
	}
	return got, nil
}
