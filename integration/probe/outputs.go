package main

import (
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

// Group G: what a skill leaves behind for whoever collects it, and tries to change of what it was only lent.
var _ = register(map[string]func([]string) (any, error){
	"litter":      litter,
	"undeletable": undeletable,
	"deep":        deep,
	"flat":        flat,
	"wreck":       wreck,
	"result":      result,
})

// litter makes each thing that has no business in /output; the answers say which could be made.
func litter([]string) (any, error) {
	if err := os.Chdir("/output"); err != nil {
		return nil, err
	}
	got := map[string]string{}
	for name, f := range map[string]func() error{
		"good":          func() error { return os.WriteFile("good", []byte("good"), 0o600) },
		"link":          func() error { return os.Symlink("/etc/passwd", "link") },
		"relative link": func() error { return os.Symlink("../../../../../../etc/passwd", "relative link") },
		"dir link":      func() error { return os.Symlink("/etc", "dir link") },
		"loop":          func() error { return os.Symlink("loop", "loop") },
		"fifo":          func() error { return unix.Mkfifo("fifo", 0o666) },
		"socket":        func() error { return unix.Mknod("socket", unix.S_IFSOCK|0o666, 0) },
		"tty":           func() error { return unix.Mknod("tty", unix.S_IFCHR|0o666, int(unix.Mkdev(5, 0))) },
		"hole":          func() error { return unix.Mknod("hole", unix.S_IFCHR|0o666, 0) },
		"disk":          func() error { return unix.Mknod("disk", unix.S_IFBLK|0o666, int(unix.Mkdev(7, 0))) },
		"twins": func() error {
			if err := os.WriteFile("twin1", []byte("x"), 0o600); err != nil {
				return err
			}
			return os.Link("twin1", "twin2")
		},
		"link to an input":   func() error { return os.Link("/input/in.txt", "input") },
		"link to a bind":     func() error { return os.Link("/ref/data", "data") },
		"link to the bundle": func() error { return os.Link("/skill/probe", "probe") },
		"link to the base":   func() error { return os.Link("/usr/bin/true", "true") },
		"escape":             func() error { return os.WriteFile("esc\x1b[2J", nil, 0o600) },
		"newline":            func() error { return os.WriteFile("new\nline", nil, 0o600) },
		"no text":            func() error { return os.WriteFile("bad\xff", nil, 0o600) },
		"right to left":      func() error { return os.WriteFile("rtl\u202etxt.exe", nil, 0o600) },
		"long":               func() error { return os.WriteFile(strings.Repeat("l", 255), nil, 0o600) },
		"device of Windows":  func() error { return os.WriteFile("con", nil, 0o600) },
		"huge": func() error {
			if err := os.WriteFile("~huge", nil, 0o600); err != nil {
				return err
			}
			return os.Truncate("~huge", 1<<63-1)
		},
		"result": func() error { return os.Symlink("/etc/passwd", "/run/skillbox/result/result.json") },
	} {
		got[name] = answer(f())
	}
	return got, nil
}

// undeletable makes what a plain rm could not remove.
func undeletable(dirs []string) (any, error) {
	got := map[string]string{}
	for _, dir := range dirs {
		inner := filepath.Join(dir, "locked", "in", "side")
		if err := os.MkdirAll(inner, 0o755); err != nil {
			return nil, err
		}
		if err := os.WriteFile(inner+"/f", []byte("locked"), 0); err != nil {
			return nil, err
		}
		f, err := os.Open(dir)
		if err != nil {
			return nil, err
		}
		got[dir+" immutable"] = sys("ioctl", int(f.Fd()), unix.FS_IOC_SETFLAGS, word(0x10))
		got[dir+" chown"] = answer(os.Chown(inner+"/f", 1, 1))
		for p := inner; p != dir; p = filepath.Dir(p) {
			if err := os.Chmod(p, 0); err != nil {
				return nil, err
			}
		}
		// The directory stays open and is somebody's working directory when the box ends.
		if err := os.Chdir(dir); err != nil {
			return nil, err
		}
		got[dir+" chmod"] = answer(os.Chmod(dir, 0))
	}
	// A child that outlives this process, as long as it may.
	_, err := syscall.ForkExec("/bin/sleep", []string{"sleep", "60"}, &syscall.ProcAttr{})
	got["child"] = answer(err)
	return got, nil
}

// deep makes directories within one another until there is no room, args[1] at most, and says how many.
func deep(args []string) (any, error) {
	want, err := strconv.Atoi(args[1])
	if err != nil {
		return nil, err
	}
	at, err := unix.Open(args[0], unix.O_PATH|unix.O_DIRECTORY|unix.O_CLOEXEC, 0)
	if err != nil {
		return nil, err
	}
	name := strings.Repeat("d", 255)
	made := 0
	for ; made < want; made++ {
		if err = unix.Mkdirat(at, name, 0o755); err != nil {
			break
		}
		next, err := unix.Openat(at, name, unix.O_PATH|unix.O_DIRECTORY|unix.O_CLOEXEC, 0)
		if err != nil {
			return nil, err
		}
		unix.Close(at)
		at = next
	}
	return map[string]string{"made": strconv.Itoa(made), "end": answer(err)}, nil
}

// flat makes empty files, for two seconds or until there is no room; a slow machine makes 1500.
func flat(args []string) (any, error) {
	if err := os.Chdir(args[0]); err != nil {
		return nil, err
	}
	made := 0
	var err error
	for end := time.Now().Add(2 * time.Second); made < 1500 || time.Now().Before(end); made++ {
		var fd int
		if fd, err = unix.Open(strconv.Itoa(made), unix.O_CREAT|unix.O_WRONLY|unix.O_CLOEXEC, 0o600); err != nil {
			break
		}
		unix.Close(fd)
	}
	return map[string]string{"made": strconv.Itoa(made), "end": answer(err)}, nil
}

// wreck tries every call that changes a file, on files that may only be read. Nothing may answer "ok".
func wreck(paths []string) (any, error) {
	got := map[string]string{}
	for _, p := range paths {
		dir := filepath.Dir(p)
		for name, err := range map[string]error{
			"write":      os.WriteFile(p, []byte("!"), 0o644),
			"append":     appendTo(p),
			"truncate":   os.Truncate(p, 0),
			"chmod":      os.Chmod(p, 0o777),
			"chown":      unix.Lchown(p, os.Getuid(), os.Getgid()),
			"times":      os.Chtimes(p, time.Unix(1, 0), time.Unix(1, 0)),
			"attribute":  unix.Setxattr(p, "user.skillbox", []byte("x"), 0),
			"rename":     os.Rename(p, p+"-gone"),
			"remove":     unix.Unlink(p),
			"create":     os.WriteFile(dir+"/new", nil, 0o644),
			"mkdir":      os.Mkdir(dir+"/newdir", 0o755),
			"symlink":    os.Symlink("/tmp", dir+"/newlink"),
			"link":       os.Link(p, dir+"/newname"),
			"dir chmod":  os.Chmod(dir, 0o777),
			"dir rename": os.Rename(dir, dir+"-gone"),
		} {
			got[name+" "+p] = answer(err)
		}
	}
	return got, nil
}

func appendTo(p string) error {
	f, err := os.OpenFile(p, os.O_APPEND|os.O_WRONLY, 0)
	if err == nil {
		f.Close()
	}
	return err
}

// result writes a result file of n times a text.
func result(args []string) (any, error) {
	n, err := strconv.Atoi(args[1])
	if err != nil {
		return nil, err
	}
	text := fmt.Sprintf("%q", strings.Repeat(args[0], n))
	return map[string]string{"write": answer(os.WriteFile(os.Getenv("SKILLBOX_RESULT_FILE"), []byte(text), 0o644))}, nil
}
