package boxinit

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"skillbox/boxinit/shim"
	"skillbox/wire"
)

// servePreloaded starts an interpreter and lets it come as far as the script, and serves the one call with it. Whatever ends the
// interpreter before that ends init, and with it the box.
func servePreloaded(conn *wire.Conn, p *Preload, stdio []int, openFiles uint64) error {
	i, err := startInterpreter(p, stdio, openFiles)
	wire.CloseAll(stdio)
	if err == nil {
		err = i.awaitReady(p.Within)
	}
	if err == nil {
		err = i.stop()
	}
	if err != nil {
		return conn.Send(Reply{Preloaded: &Preloaded{Refused: err.Error()}})
	}
	if err := conn.Send(Reply{Preloaded: &Preloaded{}}); err != nil {
		return err
	}
	for {
		var m Message
		files, err := conn.Receive(&m)
		wire.CloseAll(files)
		if err != nil {
			return err
		}
		if m.Call == nil {
			continue // what waits is not to be signalled
		}
		if err := i.call(conn, m.Call, len(p.Argv)); err != nil {
			return err
		}
		go forward(conn)
		return report(conn, <-i.ended)
	}
}

// interpreter is the first process of a skill that waits for its call.
type interpreter struct {
	pid     int
	control int // our end of its control socket
	ended   chan *Exit

	mu     sync.Mutex
	called bool
}

// startInterpreter does what start does, with the variables that make the interpreter start the shim first. It is strict about what it
// starts: anything else than an interpreter would run the script at once.
func startInterpreter(p *Preload, stdio []int, openFiles uint64) (*interpreter, error) {
	if len(stdio) != 3 || len(p.Argv) == 0 {
		return nil, fmt.Errorf("needs a command and three descriptors, got %d", len(stdio))
	}
	path, argv, err := resolve(p.Argv, p.Env, p.Cwd)
	if err != nil {
		return nil, err
	}
	name, err := recognize(path, argv, p.Env, p.Cwd)
	if err != nil {
		return nil, err
	}
	fds, err := unix.Socketpair(unix.AF_UNIX, unix.SOCK_STREAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return nil, fmt.Errorf("socketpair: %w", err)
	}
	defer unix.Close(fds[1])
	if err := unix.Setrlimit(unix.RLIMIT_NOFILE, &unix.Rlimit{Cur: openFiles, Max: openFiles}); err != nil {
		return nil, fmt.Errorf("limit open files to %d: %w", openFiles, err)
	}
	attr := &syscall.ProcAttr{
		Dir: p.Cwd, Env: shimEnv(name, p.Env, p.Late), Sys: &syscall.SysProcAttr{Setsid: true},
		Files: []uintptr{uintptr(stdio[0]), uintptr(stdio[1]), uintptr(stdio[2]), uintptr(fds[1])}, // shim.Control is the last
	}
	pid, err := syscall.ForkExec(path, argv, attr)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", path, err)
	}
	i := &interpreter{pid: pid, control: fds[0], ended: make(chan *Exit, 1)}
	go i.await()
	return i, nil
}

// recognize says which interpreter the kernel is going to run for a command, and that it runs a script of the skill's.
func recognize(program string, argv, env []string, cwd string) (string, error) {
	words := argv[1:]
	if line := shebang(program); len(line) > 0 {
		words = append(append([]string{}, line[1:]...), append([]string{program}, words...)...)
		program = line[0]
	}
	if filepath.Base(program) == "env" && len(words) == 2 && !strings.ContainsAny(words[0], "-= \t") {
		found, err := lookPath(words[0], env, cwd)
		if err != nil {
			return "", err
		}
		program, words = found, words[1:]
	}
	name := interpreterOf(program)
	if real, err := filepath.EvalSymlinks(program); err != nil {
		return "", err
	} else if name == "" || interpreterOf(real) != name || !isELF(real) {
		return "", fmt.Errorf("%s is neither python3 nor node", program)
	}
	at, err := scriptAfter(name, words)
	if err != nil {
		return "", err
	}
	if at != len(words)-1 {
		return "", errors.New("a word follows the script")
	}
	script := words[at]
	if !filepath.IsAbs(script) {
		script = filepath.Join(cwd, script)
	}
	script = filepath.Clean(script)
	if !strings.HasPrefix(script, cwd+"/") && filepath.Dir(script) != shim.Dir {
		return "", fmt.Errorf("%s is no file of the skill's", script)
	}
	if st, err := os.Stat(script); err != nil {
		return "", err
	} else if !st.Mode().IsRegular() {
		return "", fmt.Errorf("%s is not a regular file", script)
	}
	return name, nil
}

func isELF(path string) bool {
	f, err := os.Open(path)
	if err != nil {
		return false
	}
	defer f.Close()
	head := make([]byte, 4)
	n, err := f.Read(head)
	return err == nil && bytes.Equal(head[:n], []byte("\x7fELF"))
}

// shimEnv is the environment with what makes an interpreter find the shim. The shim takes it out again.
func shimEnv(interpreter string, env, late []string) []string {
	variable, value, separator := "PYTHONPATH=", shim.Dir, ":"
	if interpreter == "node" {
		variable, value, separator = "NODE_OPTIONS=", "--require="+shim.Node, " "
	}
	out := []string{shim.Variable + "=" + strings.Join(late, ",")}
	for _, v := range env {
		if old, ok := strings.CutPrefix(v, variable); ok {
			value += separator + old
			continue
		}
		out = append(out, v)
	}
	return append(out, variable+value)
}

// maxWord bounds what an interpreter may say before its call.
const maxWord = 512

// awaitReady waits for the shim's word. Whatever else comes by that socket, and whoever sends it, costs the skill its own box only.
func (i *interpreter) awaitReady(within time.Duration) error {
	deadline := time.Now().Add(within)
	var word []byte
	for !bytes.HasSuffix(word, []byte("\n")) {
		left := time.Until(deadline)
		n, err := unix.Poll([]unix.PollFd{{Fd: int32(i.control), Events: unix.POLLIN}}, int(max(left, 0).Milliseconds()))
		if err == unix.EINTR {
			continue
		}
		if err != nil {
			return fmt.Errorf("poll: %w", err)
		}
		if n == 0 {
			return fmt.Errorf("its imports take longer than %v", within)
		}
		buffer := make([]byte, maxWord)
		if n, err = unix.Read(i.control, buffer); err != nil || n == 0 {
			return errors.New("it closes its control socket")
		}
		if word = append(word, buffer[:n]...); len(word) > maxWord {
			return errors.New("it says too much by its control socket")
		}
	}
	if why, refused := strings.CutPrefix(string(word), "refused: "); refused {
		return errors.New(strings.TrimSpace(why))
	}
	if string(word) != "ready\n" {
		return fmt.Errorf("it says %q by its control socket", word)
	}
	return nil
}

// stop stops everything in the box: nothing runs, forks or grows until the call. It returns when the interpreter stands still, which
// then ends by nobody's doing in the box; who said that it was ready may have been another process.
func (i *interpreter) stop() error {
	if err := unix.Kill(-1, unix.SIGSTOP); err != nil {
		return fmt.Errorf("stop: %w", err)
	}
	for {
		stat, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", i.pid))
		if err != nil {
			return errors.New("it has ended")
		}
		// proc_pid_stat(5): the state follows the name, in which anything may stand.
		switch state := stat[bytes.LastIndexByte(stat, ')')+2]; state {
		case 'T':
			return nil
		case 'Z', 'X':
			return errors.New("it has ended")
		}
		time.Sleep(100 * time.Microsecond) // skillboxd ends the box where this takes too long
	}
}

// await reaps the box's processes until the interpreter has ended. One that ends before its call has a box of no use.
func (i *interpreter) await() {
	exit, err := await(i.pid)
	i.mu.Lock()
	defer i.mu.Unlock()
	if err != nil || !i.called {
		os.Exit(125)
	}
	i.ended <- exit
}

// call tells the interpreter what the call brings, and lets everything go on.
func (i *interpreter) call(conn *wire.Conn, c *Call, known int) error {
	if len(c.Argv) < known {
		return errors.New("a call with fewer words than were preloaded")
	}
	message := shimCall(c.Argv[known:], c.Env)
	i.mu.Lock()
	defer i.mu.Unlock()
	i.called = true
	// Nobody is left where it fails, which await is about to find out.
	_ = unix.Kill(-1, unix.SIGCONT)
	go i.tell(message)
	return conn.Send(Reply{Started: &Started{PID: i.pid}})
}

// shimCall is the message that the shims read: its length in eight hexadecimal digits, then the number of words, the words and the
// variables, each with a NUL behind it.
func shimCall(words, env []string) []byte {
	var body bytes.Buffer
	fmt.Fprintf(&body, "%d\x00", len(words))
	for _, list := range [][]string{words, env} {
		for _, text := range list {
			body.WriteString(text)
			body.WriteByte(0)
		}
	}
	return append(fmt.Appendf(nil, "%08x", body.Len()), body.Bytes()...)
}

// tell writes as the interpreter reads. One that does not has spoilt its own call.
func (i *interpreter) tell(message []byte) {
	defer unix.Close(i.control)
	for len(message) > 0 {
		n, err := unix.SendmsgN(i.control, message, nil, nil, unix.MSG_NOSIGNAL)
		if err == unix.EINTR {
			continue
		}
		if err != nil {
			return
		}
		message = message[n:]
	}
}
