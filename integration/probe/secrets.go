package main

import (
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"time"

	"golang.org/x/sys/unix"
)

// Group E: what a skill tries to learn of its caller, and to put where somebody else will obey it.
var _ = register(map[string]func([]string) (any, error){
	"links":            links,
	"argv":             func([]string) (any, error) { return os.Args, nil },
	"hunt":             hunt,
	"secret":           secret,
	"connect":          connectEach,
	"send-descriptors": sendDescriptors,
	"stdin":            stdin,
	"plant":            plant,
	"watch":            watch,
	"stat":             statEach,
})

// links are what this process has open, by number.
func links([]string) (any, error) {
	entries, err := os.ReadDir("/proc/self/fd")
	got := map[string]string{}
	for _, e := range entries {
		if link, err := os.Readlink("/proc/self/fd/" + e.Name()); err == nil {
			got[e.Name()] = link
		}
	}
	return got, err
}

// hunt looks for a text in everything that tells about processes and mounts, and in every small file that is not of the base.
func hunt(args []string) (any, error) {
	var paths []string
	for _, pattern := range []string{"environ", "cmdline", "comm", "mountinfo", "mounts", "cgroup", "maps", "auxv", "stack", "net/unix"} {
		found, err := filepath.Glob("/proc/[0-9]*/" + pattern)
		if err != nil {
			return nil, err
		}
		paths = append(paths, found...)
	}
	for _, root := range []string{"/run", "/tmp", "/home", "/etc", "/dev/shm", "/output", "/input", "/var", "/root", "/proc/sys/kernel"} {
		_ = filepath.WalkDir(root, func(p string, e fs.DirEntry, err error) error {
			if err == nil && e.Type().IsRegular() {
				paths = append(paths, p)
			}
			return nil // a directory that cannot be read holds nothing for us
		})
	}
	got := map[string]string{"looked at": fmt.Sprint(len(paths))}
	for _, p := range paths {
		f, err := os.OpenFile(p, os.O_RDONLY|unix.O_NONBLOCK, 0)
		if err != nil {
			continue
		}
		data, _ := io.ReadAll(io.LimitReader(f, 1<<20))
		f.Close()
		// Our own command line names the text itself.
		if bytes.Contains(data, []byte(args[0])) && !strings.HasSuffix(p, fmt.Sprintf("/%d/cmdline", os.Getpid())) && !strings.HasSuffix(p, "/self/cmdline") {
			got[p] = "found"
		}
	}
	return got, nil
}

// secret describes a secret's file, and copies its value to where a careless skill would.
func secret(args []string) (any, error) {
	path := "/run/secrets/" + args[0]
	value, err := os.ReadFile(path)
	if err != nil {
		return nil, err
	}
	info, err := os.Stat(path)
	if err != nil {
		return nil, err
	}
	var filesystem unix.Statfs_t
	if err := unix.Statfs(path, &filesystem); err != nil {
		return nil, err
	}
	sum := sha256.Sum256(value)
	got := map[string]string{
		"mode": info.Mode().String(), "filesystem": fmt.Sprintf("%#x", filesystem.Type), "sha256": hex.EncodeToString(sum[:]),
		"write": answer(os.WriteFile(path, nil, 0o600)), "remove": answer(os.Remove(path)), "chmod": answer(os.Chmod(path, 0o444)),
	}
	for _, dir := range args[1:] {
		got["copy "+dir] = answer(os.WriteFile(dir+"/stolen", value, 0o644))
	}
	return got, nil
}

// connectEach connects to unix sockets: @name is an abstract one.
func connectEach(names []string) (any, error) {
	got := map[string]string{}
	for _, name := range names {
		fd, err := unix.Socket(unix.AF_UNIX, unix.SOCK_STREAM|unix.SOCK_CLOEXEC, 0)
		if err != nil {
			return nil, err
		}
		got[name] = answer(unix.Connect(fd, &unix.SockaddrUnix{Name: name}))
		unix.Close(fd)
	}
	return got, nil
}

// sendDescriptors tries to hand descriptors to whoever is at the other end of what this process holds, and looks for sockets.
func sendDescriptors([]string) (any, error) {
	dir, err := unix.Open("/", unix.O_RDONLY|unix.O_DIRECTORY|unix.O_CLOEXEC, 0)
	if err != nil {
		return nil, err
	}
	got := map[string]string{}
	for fd := range 64 {
		if _, err := unix.FcntlInt(uintptr(fd), unix.F_GETFD, 0); err != nil || fd == dir {
			continue
		}
		err := unix.Sendmsg(fd, []byte("x"), unix.UnixRights(dir, dir), nil, unix.MSG_NOSIGNAL)
		if fd < 3 || err == nil {
			got[fmt.Sprintf("descriptor %d", fd)] = answer(err)
		}
	}
	text, err := os.ReadFile("/proc/net/unix")
	if err != nil {
		return nil, err
	}
	// The heading is one line; what this process made would be another.
	got["sockets in the namespace"] = fmt.Sprint(bytes.Count(text, []byte("\n")) - 1)
	_ = filepath.WalkDir("/", func(p string, e fs.DirEntry, err error) error {
		if strings.HasPrefix(p, "/proc") || strings.HasPrefix(p, "/usr") {
			return fs.SkipDir
		}
		if err == nil && e.Type()&fs.ModeSocket != 0 {
			got["socket "+p] = "found"
		}
		return nil
	})
	return got, nil
}

// stdin reads one line, byte by byte, and then tries to write into its own stdin for whoever reads on.
func stdin([]string) (any, error) {
	var line []byte
	one := make([]byte, 1)
	for {
		n, err := unix.Read(0, one)
		if n != 1 || err != nil || one[0] == '\n' {
			break
		}
		line = append(line, one[0])
	}
	got := map[string]string{"line": string(line), "/dev/tty": opened("/dev/tty", unix.O_RDWR)}
	for _, path := range []string{"/proc/self/fd/0", "/dev/stdin", "/dev/fd/0"} {
		fd, err := unix.Open(path, unix.O_WRONLY|unix.O_NONBLOCK|unix.O_CLOEXEC, 0)
		if err == nil {
			_, err = unix.Write(fd, []byte("injected\n"))
			unix.Close(fd)
		}
		got["write "+path] = answer(err)
	}
	_, err := unix.Write(0, []byte("injected\n"))
	got["write"] = answer(err)
	return got, nil
}

// plant creates files and directories, and tries to exchange the directory itself.
func plant(args []string) (any, error) {
	dir := args[0]
	got := map[string]string{}
	for _, name := range args[1:] {
		path := filepath.Join(dir, name)
		err := os.MkdirAll(filepath.Dir(path), 0o755)
		if err == nil {
			err = os.WriteFile(path, []byte("#!/bin/sh\n"), 0o755)
		}
		got[name] = answer(err)
	}
	got["rename of the directory"] = answer(os.Rename(dir, dir+"-old"))
	got["removal of the directory"] = answer(unix.Rmdir(dir))
	got["link beside it"] = answer(os.Symlink("/tmp", filepath.Join(filepath.Dir(dir), "link")))
	return got, nil
}

// watch counts, for each directory, what inotify says happens in it within half a second.
func watch(dirs []string) (any, error) {
	got := map[string]string{}
	fd, err := unix.InotifyInit1(unix.IN_CLOEXEC | unix.IN_NONBLOCK)
	if err != nil {
		return nil, err
	}
	names, counts := map[int]string{}, map[string]int{}
	for _, dir := range dirs {
		wd, err := unix.InotifyAddWatch(fd, dir, unix.IN_ALL_EVENTS)
		if err != nil {
			got[dir] = answer(err)
			continue
		}
		names[wd], counts[dir] = dir, 0
	}
	buffer := make([]byte, 64<<10)
	for end := time.Now().Add(500 * time.Millisecond); time.Now().Before(end); time.Sleep(10 * time.Millisecond) {
		n, err := unix.Read(fd, buffer)
		if err == unix.EAGAIN {
			continue
		}
		if err != nil {
			return nil, err
		}
		for at := 0; at+unix.SizeofInotifyEvent <= n; {
			wd := int(int32(leWord(buffer[at:])))
			counts[names[wd]]++
			at += unix.SizeofInotifyEvent + int(leWord(buffer[at+12:]))
		}
	}
	for dir, n := range counts {
		got[dir] = fmt.Sprint(n)
	}
	return got, nil
}

func leWord(b []byte) uint32 {
	return uint32(b[0]) | uint32(b[1])<<8 | uint32(b[2])<<16 | uint32(b[3])<<24
}

// statEach answers with mode and owner, or the errno.
func statEach(paths []string) (any, error) {
	got := map[string]string{}
	for _, p := range paths {
		var st unix.Stat_t
		if err := unix.Lstat(p, &st); err != nil {
			got[p] = answer(err)
			continue
		}
		got[p] = fmt.Sprintf("%#o %d", st.Mode, st.Uid)
	}
	return got, nil
}
