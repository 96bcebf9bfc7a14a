package main

import (
	"errors"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"unsafe"

	"golang.org/x/sys/unix"
)

// Group D of the threat table: what a skill tries in /proc, /sys and /dev.
var _ = register(map[string]func([]string) (any, error){
	"proc-writable":  procWritable,
	"write-same":     writeSame,
	"core":           core,
	"mknod":          func([]string) (any, error) { return mknodEach(), nil },
	"pts":            pts,
	"console":        console,
	"given-terminal": givenTerminal,
	"oom":            oom,
	"grep-proc":      grepProc,
})

// procWritable opens every file of the trees for writing, leaving out processes, and returns those that opened.
func procWritable(roots []string) (any, error) {
	got := map[string]string{}
	tried := 0
	for _, root := range roots {
		err := filepath.WalkDir(root, func(p string, d fs.DirEntry, err error) error {
			if err != nil || d == nil {
				return nil
			}
			name := strings.TrimPrefix(p, "/proc/")
			if first, _, _ := strings.Cut(name, "/"); d.IsDir() {
				if _, err := strconv.Atoi(first); err == nil {
					return fs.SkipDir
				}
				return nil
			}
			if d.Type()&(fs.ModeSymlink|fs.ModeNamedPipe) != 0 {
				return nil
			}
			var st unix.Stat_t
			if unix.Lstat(p, &st) == nil && st.Mode&unix.S_IFMT == unix.S_IFCHR && st.Rdev == unix.Mkdev(1, 3) {
				return nil // masked: /dev/null may be written to
			}
			tried++
			fd, err := unix.Open(p, unix.O_WRONLY|unix.O_CLOEXEC|unix.O_NONBLOCK, 0)
			if err == nil {
				unix.Close(fd)
				got[p] = "opened"
			} else if err != unix.EROFS && err != unix.EACCES {
				got[p] = answer(err)
			}
			return nil
		})
		if err != nil {
			return nil, err
		}
	}
	got["tried"] = strconv.Itoa(tried)
	return got, nil
}

// writeSame writes a file's own content back into it, or "h" where there is nothing to read: to sysrq-trigger that asks for help.
func writeSame(paths []string) (any, error) {
	got := map[string]string{}
	for _, p := range paths {
		text, err := os.ReadFile(p)
		if err != nil || len(text) == 0 {
			text = []byte("h")
		}
		fd, err := unix.Open(p, unix.O_WRONLY|unix.O_CLOEXEC|unix.O_NONBLOCK, 0)
		if err == nil {
			_, err = unix.Write(fd, text)
			unix.Close(fd)
		}
		got[p] = answer(err)
	}
	return got, nil
}

// core tries to get rid of the limit that keeps the host's handler from running (exactly 1, see core(5)), and crashes in args.
func core(dirs []string) (any, error) {
	got := map[string]string{}
	limit := func() string {
		var l unix.Rlimit
		if err := unix.Getrlimit(unix.RLIMIT_CORE, &l); err != nil {
			return answer(err)
		}
		return strconv.FormatUint(l.Cur, 10) + ":" + strconv.FormatUint(l.Max, 10)
	}
	got["limit"] = limit()
	for name, l := range map[string]unix.Rlimit{"unlimited": {Cur: unix.RLIM_INFINITY, Max: unix.RLIM_INFINITY}, "2": {Cur: 2, Max: 2}, "0": {Cur: 0, Max: 0}, "soft 0": {Cur: 0, Max: 1}} {
		_, _, errno := unix.RawSyscall6(unix.SYS_PRLIMIT64, 0, unix.RLIMIT_CORE, uintptr(unsafe.Pointer(&l)), 0, 0, 0)
		got["prlimit64 "+name] = "ok"
		if errno != 0 {
			got["prlimit64 "+name] = answer(errno)
		}
		_, _, errno = unix.RawSyscall(unix.SYS_SETRLIMIT, unix.RLIMIT_CORE, uintptr(unsafe.Pointer(&l)), 0)
		got["setrlimit "+name] = "ok"
		if errno != 0 {
			got["setrlimit "+name] = answer(errno)
		}
	}
	got["limit afterwards"] = limit()
	for _, dir := range dirs {
		c := exec.Command("/bin/sh", "-c", "ulimit -c 0; kill -ABRT $$")
		c.Dir = dir
		err := c.Run()
		var exit *exec.ExitError
		if errors.As(err, &exit) {
			status := exit.Sys().(syscall.WaitStatus)
			got["crash in "+dir] = status.Signal().String()
			if status.CoreDump() {
				got["crash in "+dir] = "dumped core"
			}
		} else {
			got["crash in "+dir] = answer(err)
		}
		left, err := filepath.Glob(dir + "/*core*")
		if err != nil || len(left) > 0 {
			got["left in "+dir] = strings.Join(left, " ")
		}
	}
	return got, nil
}

func mknodEach() map[string]string {
	got := map[string]string{}
	for _, dir := range []string{"/tmp", "/output", "/home/skill", "/dev/shm"} {
		for _, node := range []struct {
			name         string
			mode         uint32
			major, minor uint32
		}{{"zero", unix.S_IFCHR, 1, 5}, {"mem", unix.S_IFCHR, 1, 1}, {"disk", unix.S_IFBLK, 254, 0}, {"whiteout", unix.S_IFCHR, 0, 0}} {
			path := dir + "/" + node.name
			err := unix.Mknod(path, node.mode|0o666, int(unix.Mkdev(node.major, node.minor)))
			got["mknod "+path] = answer(err)
			if err == nil {
				got["open "+path] = answer(reopen(path))
			}
		}
		got["fifo "+dir] = answer(unix.Mkfifo(dir+"/fifo", 0o600))
		got["socket "+dir] = answer(unix.Mknod(dir+"/socket", unix.S_IFSOCK|0o600, 0))
	}
	return got
}

// pts opens terminals until there are no more, and those of the host by their numbers.
func pts(numbers []string) (any, error) {
	got := openEach([]string{"/dev/pts/ptmx", "/dev/ptmx"}, unix.O_RDWR)
	for _, n := range numbers {
		fd, err := unix.Open("/dev/pts/"+n, unix.O_RDWR|unix.O_NOCTTY|unix.O_CLOEXEC, 0)
		if err == nil {
			unix.Close(fd)
		}
		got["host's "+n] = answer(err)
	}
	masters := 0
	for range 64 {
		fd, err := unix.Open("/dev/ptmx", unix.O_RDWR|unix.O_NOCTTY|unix.O_CLOEXEC, 0)
		if err != nil {
			got["limit"] = answer(err)
			break
		}
		defer unix.Close(fd)
		masters++
	}
	got["masters"] = strconv.Itoa(masters)
	if text, err := os.ReadFile("/proc/self/mountinfo"); err == nil {
		for line := range strings.Lines(string(text)) {
			if strings.Contains(line, " /dev/pts ") {
				got["mount"] = strings.TrimSpace(line)
			}
		}
	}
	return got, nil
}

// console looks at the terminal that --tty gives and tries to put something else in its place; the report goes to args[0].
func console(args []string) (any, error) {
	got := openEach([]string{"/dev/console", "/dev/tty"}, unix.O_RDWR)
	target, err := os.Readlink("/proc/self/fd/0")
	got["stdin"] = target
	if err != nil {
		got["stdin"] = answer(err)
	}
	got["kind of "+target] = "other"
	var fs unix.Statfs_t
	if unix.Fstatfs(0, &fs) == nil && fs.Type == unix.DEVPTS_SUPER_MAGIC {
		got["kind of "+target] = "devpts"
	}
	got["unlink "+target] = answer(unix.Unlink(target))
	got["rename "+target] = answer(unix.Rename(target, "/dev/pts/99"))
	got["link over "+target] = answer(unix.Symlink("/tmp/x", target))
	got["make /dev/console"] = answer(unix.Symlink(target, "/dev/console"))
	got["replace /dev/tty"] = answer(unix.Rename("/dev/tty", "/dev/tty~"))
	got["set echo off"] = answer(echoOff(0))
	return got, report(args[0], got)
}

// givenTerminal looks for a terminal that was not given.
func givenTerminal(args []string) (any, error) {
	got := openEach([]string{"/dev/tty", "/dev/console", "/dev/tty0", "/dev/vcs", "/proc/self/fd/0"}, unix.O_RDWR)
	for fd := range 3 {
		_, err := unix.IoctlGetTermios(fd, unix.TCGETS)
		got["termios of "+strconv.Itoa(fd)] = answer(err)
		got["echo off "+strconv.Itoa(fd)] = answer(echoOff(fd))
		got["become controlling "+strconv.Itoa(fd)] = answer(unix.IoctlSetInt(fd, unix.TIOCSCTTY, 1))
		_, err = unix.IoctlGetInt(fd, unix.TIOCGPGRP)
		got["process group "+strconv.Itoa(fd)] = answer(err)
	}
	return got, report(args[0], got)
}

func echoOff(fd int) error {
	t, err := unix.IoctlGetTermios(fd, unix.TCGETS)
	if err != nil {
		return err
	}
	t.Lflag &^= unix.ECHO
	return unix.IoctlSetTermios(fd, unix.TCSETS, t)
}

func report(path string, got map[string]string) error {
	var text strings.Builder
	for k, v := range got {
		text.WriteString(k + "\t" + v + "\n")
	}
	return os.WriteFile(path, []byte(text.String()), 0o644)
}

func oom([]string) (any, error) {
	set := func(path, value string) string { return answer(os.WriteFile(path, []byte(value), 0)) }
	got := map[string]string{
		"self -1000": set("/proc/self/oom_score_adj", "-1000"),
		"self -1":    set("/proc/self/oom_score_adj", "-1"),
		"old -17":    set("/proc/self/oom_adj", "-17"),
		"init 1000":  set("/proc/1/oom_score_adj", "1000"),
		"init -1000": set("/proc/1/oom_score_adj", "-1000"),
	}
	got["self 500"] = set("/proc/self/oom_score_adj", "500")
	got["self 0 again"] = set("/proc/self/oom_score_adj", "0")
	return got, nil
}

// grepProc looks for words in everything that /proc says about processes, and returns where they are.
func grepProc(words []string) (any, error) {
	got := map[string]string{}
	read := 0
	buffer := make([]byte, 256<<10)
	for _, pattern := range []string{"/proc/[0-9]*/*", "/proc/[0-9]*/task/[0-9]*/*", "/proc/*", "/proc/net/*"} {
		paths, err := filepath.Glob(pattern)
		if err != nil {
			return nil, err
		}
		for _, p := range paths {
			// Our own command line holds the words.
			if base := filepath.Base(p); base == "mem" || base == "pagemap" || base == "kmsg" || base == "kallsyms" || base == "smaps" || base == "cmdline" && strings.Contains(p, "/"+strconv.Itoa(os.Getpid())+"/") {
				continue
			}
			fd, err := unix.Open(p, unix.O_RDONLY|unix.O_CLOEXEC|unix.O_NONBLOCK, 0)
			if err != nil {
				continue
			}
			n, err := unix.Read(fd, buffer)
			unix.Close(fd)
			if err != nil {
				continue
			}
			read++
			for _, w := range words {
				if strings.Contains(string(buffer[:n]), w) {
					got[p] = "holds " + w
				}
			}
		}
	}
	got["read"] = strconv.Itoa(read)
	return got, nil
}
