package boxinit

import (
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
	"syscall"

	"golang.org/x/sys/unix"
)

// start runs the skill as a child in a session of its own. With a TTY it returns the pty's master to be sent along.
func start(call *Call, stdio []int, openFiles uint64) (Started, []int, int) {
	fail := func(code int, format string, a ...any) (Started, []int, int) {
		return Started{Error: fmt.Sprintf(format, a...), Code: code}, nil, 0
	}
	if len(call.Argv) == 0 {
		return fail(125, "no command")
	}
	if err := enterable(call.Cwd); err != nil {
		return fail(125, "working directory %s: %v in the sandbox", call.Cwd, err)
	}
	path, argv, err := resolve(call.Argv, call.Env, call.Cwd)
	if errors.Is(err, os.ErrNotExist) {
		return fail(127, "%v", err)
	} else if err != nil {
		return fail(126, "%v", err)
	}
	attr := &syscall.ProcAttr{Dir: call.Cwd, Env: call.Env, Sys: &syscall.SysProcAttr{Setsid: true}}
	var master []int
	if call.TTY {
		m, slave, err := openPTY(call.Rows, call.Cols)
		if err != nil {
			return fail(125, "%v", err)
		}
		defer unix.Close(slave)
		master = []int{m}
		fd := uintptr(slave)
		attr.Files = []uintptr{fd, fd, fd}
		attr.Sys.Setctty = true
	} else if len(stdio) == 3 {
		attr.Files = []uintptr{uintptr(stdio[0]), uintptr(stdio[1]), uintptr(stdio[2])}
	} else {
		return fail(125, "a call needs three descriptors, got %d", len(stdio))
	}
	if err := unix.Setrlimit(unix.RLIMIT_NOFILE, &unix.Rlimit{Cur: openFiles, Max: openFiles}); err != nil {
		return fail(125, "limit open files to %d: %v", openFiles, err)
	}
	pid, err := syscall.ForkExec(path, argv, attr)
	if err != nil {
		for _, fd := range master {
			unix.Close(fd)
		}
		return fail(execCode(err), "%s", execMessage(path, err))
	}
	return Started{PID: pid}, master, pid
}

// enterable says why the skill, whose ids init has, could not start in a directory. fork and exec would not tell it from a program that
// is missing. What follows the last slash is looked up in the directory itself, which takes the right to enter it.
func enterable(dir string) error {
	fd, err := unix.Open(dir+"/.", unix.O_PATH|unix.O_DIRECTORY|unix.O_CLOEXEC, 0)
	if err != nil {
		return err
	}
	return unix.Close(fd)
}

// execCode maps an exec error to the shells' exit codes.
func execCode(err error) int {
	switch {
	case errors.Is(err, syscall.ENOENT), errors.Is(err, syscall.ENOTDIR):
		return 127
	case errors.Is(err, syscall.EAGAIN), errors.Is(err, syscall.ENOMEM):
		return 125
	}
	return 126
}

func execMessage(path string, err error) string {
	if errors.Is(err, syscall.ENOENT) {
		// The file was found a moment ago, so what is missing is the interpreter that it names.
		if interpreter := shebang(path); len(interpreter) > 0 {
			return fmt.Sprintf("%s: its interpreter %s does not exist in the sandbox", path, interpreter[0])
		}
		return fmt.Sprintf("%s: its program loader does not exist in the sandbox", path)
	}
	if errors.Is(err, syscall.ENOEXEC) {
		return fmt.Sprintf("%s: neither a program for this machine nor a script with a #! line", path)
	}
	return fmt.Sprintf("%s: %v", path, err)
}

// interpreters run a script that has neither exec bit nor #! line, by its extension.
var interpreters = map[string]string{
	".py": "python3", ".sh": "sh", ".bash": "bash", ".js": "node", ".mjs": "node", ".cjs": "node", ".ts": "node", ".rb": "ruby", ".pl": "perl",
}

// resolve finds the program. Registry archives lose exec bits, so a regular file without them runs by its #! line or extension.
func resolve(argv, env []string, cwd string) (string, []string, error) {
	path, err := lookPath(argv[0], env, cwd)
	if err != nil {
		return "", nil, err
	}
	var st unix.Stat_t
	if err := unix.Stat(path, &st); err != nil {
		return "", nil, fmt.Errorf("%s: %w", path, err)
	}
	if st.Mode&unix.S_IFMT != unix.S_IFREG {
		return "", nil, fmt.Errorf("%s: not a regular file", path)
	}
	if unix.Access(path, unix.X_OK) == nil {
		return path, argv, nil
	}
	prefix := shebang(path)
	if len(prefix) == 0 {
		name := interpreters[filepath.Ext(path)]
		if name == "" {
			return "", nil, fmt.Errorf("%s: no exec bit, no #! line and no known extension", path)
		}
		prefix = []string{name}
	}
	interpreter, err := lookPath(prefix[0], env, cwd)
	if err != nil {
		return "", nil, fmt.Errorf("%s needs %s: %w", path, prefix[0], err)
	}
	return interpreter, append(append(prefix, path), argv[1:]...), nil
}

// shebang returns the interpreter of a #! line and its single optional argument, see execve(2).
func shebang(path string) []string {
	f, err := os.Open(path)
	if err != nil {
		return nil
	}
	defer f.Close()
	head, err := io.ReadAll(io.LimitReader(f, 256))
	if err != nil || !strings.HasPrefix(string(head), "#!") {
		return nil
	}
	line, _, _ := strings.Cut(string(head[2:]), "\n")
	line = strings.TrimSpace(line)
	if line == "" {
		return nil
	}
	if i := strings.IndexAny(line, " \t"); i >= 0 {
		return []string{line[:i], strings.TrimLeft(line[i:], " \t")}
	}
	return []string{line}
}

// lookPath searches the call's own PATH; a name with a slash is taken from the working directory.
func lookPath(name string, env []string, cwd string) (string, error) {
	if name == "" {
		return "", fmt.Errorf("empty command: %w", os.ErrNotExist)
	}
	if strings.Contains(name, "/") {
		if !filepath.IsAbs(name) {
			name = filepath.Join(cwd, name)
		}
		if _, err := os.Stat(name); err != nil {
			return "", err
		}
		return name, nil
	}
	for _, variable := range env {
		list, ok := strings.CutPrefix(variable, "PATH=")
		if !ok {
			continue
		}
		for _, dir := range filepath.SplitList(list) {
			path := filepath.Join(dir, name)
			if st, err := os.Stat(path); err == nil && st.Mode().IsRegular() && unix.Access(path, unix.X_OK) == nil {
				return path, nil
			}
		}
	}
	return "", fmt.Errorf("%s: not found in the sandbox's PATH: %w", name, os.ErrNotExist)
}

// openPTY makes a pair in the box's own devpts instance. TIOCGPTPEER (Linux 4.13) opens the slave without a path.
func openPTY(rows, cols uint16) (master, slave int, err error) {
	master, err = unix.Open("/dev/ptmx", unix.O_RDWR|unix.O_NOCTTY|unix.O_CLOEXEC, 0)
	if err != nil {
		return -1, -1, fmt.Errorf("open /dev/ptmx: %w", err)
	}
	if err = unix.IoctlSetPointerInt(master, unix.TIOCSPTLCK, 0); err == nil {
		slave, err = openPeer(master)
	}
	if err != nil {
		unix.Close(master)
		return -1, -1, fmt.Errorf("open pty: %w", err)
	}
	if rows > 0 && cols > 0 {
		err = unix.IoctlSetWinsize(master, unix.TIOCSWINSZ, &unix.Winsize{Row: rows, Col: cols})
	}
	if err != nil {
		unix.Close(master)
		unix.Close(slave)
		return -1, -1, fmt.Errorf("set pty size: %w", err)
	}
	return master, slave, nil
}

func openPeer(master int) (int, error) {
	flags := uintptr(unix.O_RDWR | unix.O_NOCTTY | unix.O_CLOEXEC)
	fd, _, errno := unix.Syscall(unix.SYS_IOCTL, uintptr(master), unix.TIOCGPTPEER, flags)
	if errno != 0 {
		return -1, errno
	}
	return int(fd), nil
}
