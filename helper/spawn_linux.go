package helper

import (
	"bufio"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"skillbox/wire"
)

// Peer is a skillboxd, with a connection to it: one of our own that serves nothing else and then ends, or a service.
type Peer struct {
	Conn    *wire.Conn
	process *os.Process // nil for a service

	// Denied is called by Do with what a Request with Follow is told of; nil is nobody.
	Denied func([]Denial)

	mu    sync.Mutex
	asked bool      // the request has been sent
	early []Message // what was to be told before
	told  bool      // more than the request has been sent
}

// Spawn starts a one-shot skillboxd as pid 1 of a pid and mount namespace of its own, so that its death, however it comes, ends
// every process below it. An ordinary user's also gets a user namespace in which it is uid 0: with the user's sub-ids where
// /etc/subuid and newuidmap grant them, else with the one id. The mapping is made while the program starts up; it waits for the
// request, which comes after.
func Spawn() (*Peer, error) {
	attr, rootless, err := sandboxed()
	if err != nil {
		return nil, err
	}
	p, err := start(attr)
	if err != nil {
		return nil, spawnError(rootless, err)
	}
	if rootless {
		if err := mapIDs(p.process.Pid); err != nil {
			return nil, errors.Join(err, p.Close())
		}
	}
	return p, nil
}

// SpawnPlain starts a skillboxd without namespaces, for the operations that Plain names; it refuses every other. It works where
// Spawn does not.
func SpawnPlain() (*Peer, error) { return start(&syscall.SysProcAttr{}) }

// start runs a skillboxd that serves one end of a connection.
func start(attr *syscall.SysProcAttr) (*Peer, error) {
	conn, theirs, err := wire.Pair()
	if err != nil {
		return nil, err
	}
	defer theirs.Close()
	process, err := launch(attr, []string{"skillboxd", "oneshot"}, os.Stderr, theirs)
	if err != nil {
		conn.Close()
		return nil, err
	}
	return &Peer{Conn: conn, process: process}, nil
}

// launch runs skillboxd with files from descriptor 3 on, and nothing of the caller's besides. It gets a session of its own: Ctrl-C
// reaches the client, which cancels; the helper must live to clean up.
func launch(attr *syscall.SysProcAttr, argv []string, stderr *os.File, files ...*os.File) (*os.Process, error) {
	program, err := Find("skillboxd")
	if err != nil {
		return nil, err
	}
	if attr.Cloneflags&unix.CLONE_NEWUSER != 0 {
		if err := appArmorRefuses(); err != nil {
			return nil, err
		}
	}
	attr.Setsid = true
	process, err := os.StartProcess(program, argv, &os.ProcAttr{
		Dir: "/", Env: []string{}, Files: append([]*os.File{nil, nil, stderr}, files...), Sys: attr,
	})
	if err != nil {
		return nil, fmt.Errorf("helper: start %s: %w", program, err)
	}
	return process, nil
}

// Kill ends skillboxd and every box below it at once, or of a service this connection's; Close is still to be called. After skillboxd's own
// end it does nothing.
func (p *Peer) Kill() {
	if p.process == nil {
		_ = p.Conn.Shutdown() // it may have gone
		return
	}
	// The only possible failure is that it has ended already.
	_ = p.process.Kill()
}

// ErrUnended says that skillboxd is dying and cannot: it waits in the kernel for a file system whose server does not answer, which
// no signal interrupts. It is gone when that file system is.
var ErrUnended = errors.New("helper: skillboxd cannot end before a file system answers that it waits for: a FUSE or network mount hangs")

// patience is how long Close waits for the end of a skillboxd that has been told to.
const patience = 3 * time.Second

// Close ends the connection, which ends the run if there still is one, and waits for skillboxd. ErrUnended is for one that cannot
// be waited for.
func (p *Peer) Close() error {
	err := p.Conn.Close()
	if p.process == nil {
		return err
	}
	waited := make(chan error, 1)
	go func() {
		_, err := p.process.Wait()
		waited <- err
	}()
	select {
	case waitErr := <-waited:
		return errors.Join(err, waitErr)
	case <-time.After(patience):
		return errors.Join(err, ErrUnended)
	}
}

// Find looks beside our own binary, then where packages install it; never in PATH or an environment variable, which are the
// caller's surroundings.
func Find(name string) (string, error) {
	self, err := os.Executable()
	if err != nil {
		return "", fmt.Errorf("helper: %w", err)
	}
	for _, dir := range []string{filepath.Dir(self), "/usr/libexec/skillbox", "/usr/lib/skillbox"} {
		path := filepath.Join(dir, name)
		if info, err := os.Stat(path); err == nil && info.Mode().IsRegular() {
			return path, nil
		}
	}
	return "", fmt.Errorf("helper: %s is not installed beside %s", name, self)
}

// spawnError adds what a refused clone means, and where to look.
func spawnError(rootless bool, err error) error {
	const hint = "`skillbox doctor` says what this machine lacks"
	if rootless && (errors.Is(err, unix.EPERM) || errors.Is(err, unix.EACCES) || errors.Is(err, unix.ENOSPC)) {
		return fmt.Errorf("helper: this machine does not let ordinary users make user namespaces; %s: %w", hint, err)
	}
	if errors.Is(err, unix.EPERM) {
		return fmt.Errorf("helper: root here may not make namespaces (a container without CAP_SYS_ADMIN?); %s: %w", hint, err)
	}
	return err
}

// allCaps lists every capability that the running kernel knows, as the bounding set shows them.
func allCaps() []uintptr {
	var caps []uintptr
	for c := uintptr(0); c < 64; c++ {
		if _, err := unix.PrctlRetInt(unix.PR_CAPBSET_READ, c, 0, 0, 0); err != nil {
			break
		}
		caps = append(caps, c)
	}
	return caps
}

// mapIDs gives the new user namespace its ids: 0 is the caller, 1 and up are the caller's sub-ids.
func mapIDs(pid int) error {
	uids, gids := SubIDs("/etc/subuid", os.Getuid()), SubIDs("/etc/subgid", os.Getuid())
	newuidmap, errU := exec.LookPath("newuidmap")
	newgidmap, errG := exec.LookPath("newgidmap")
	if uids.Count == 0 || gids.Count == 0 || errU != nil || errG != nil || NoSubIDs(uids, gids) != "" {
		return mapSingle(pid)
	}
	var wait sync.WaitGroup
	errs := make([]error, 2)
	for i, m := range []struct {
		program string
		id      int
		sub     SubRange
	}{{newuidmap, os.Getuid(), uids}, {newgidmap, os.Getgid(), gids}} {
		wait.Go(func() { errs[i] = runMapper(m.program, pid, m.id, m.sub) })
	}
	wait.Wait()
	return errors.Join(errs...)
}

func runMapper(program string, pid, id int, sub SubRange) error {
	out, err := exec.Command(program, strconv.Itoa(pid), "0", strconv.Itoa(id), "1", "1", strconv.Itoa(sub.First), strconv.Itoa(sub.Count)).CombinedOutput()
	if err != nil {
		return fmt.Errorf("helper: %s: %w: %s", program, err, strings.TrimSpace(string(out)))
	}
	return nil
}

// mapSingle maps the caller alone, which needs no privilege; setgroups must be denied first (user_namespaces(7)).
func mapSingle(pid int) error {
	for _, w := range []struct{ file, text string }{
		{"setgroups", "deny"}, {"uid_map", fmt.Sprintf("0 %d 1", os.Getuid())}, {"gid_map", fmt.Sprintf("0 %d 1", os.Getgid())},
	} {
		err := os.WriteFile(fmt.Sprintf("/proc/%d/%s", pid, w.file), []byte(w.text), 0)
		if errors.Is(err, unix.EPERM) && os.Geteuid() == 0 {
			return &Error{
				Message: "uid 0 of this container cannot make user namespaces: giving its id to one takes CAP_SETFCAP (Linux 5.12)",
				Hint:    "run skillbox as an ordinary user of the container (--user 1000:1000), or leave the container that capability",
			}
		}
		if err != nil {
			return fmt.Errorf("helper: %w", err)
		}
	}
	return nil
}

// SubRange is a range of sub-ids; none has a Count of 0.
type SubRange struct{ First, Count int }

// maxSubIDs is more than any box needs; a map has at most what /etc/subuid grants.
const maxSubIDs = 65536

// SubIDs finds the first range that subuid(5) grants to a uid, by number or by login name.
func SubIDs(path string, uid int) SubRange {
	f, err := os.Open(path)
	if err != nil {
		return SubRange{} // no file, no grants
	}
	defer f.Close()
	owners := []string{strconv.Itoa(uid), loginName(uid)}
	lines := bufio.NewScanner(f)
	for lines.Scan() {
		fields := strings.Split(lines.Text(), ":")
		if len(fields) != 3 || fields[0] == "" || (fields[0] != owners[0] && fields[0] != owners[1]) {
			continue
		}
		first, err1 := strconv.Atoi(fields[1])
		count, err2 := strconv.Atoi(fields[2])
		if err1 == nil && err2 == nil && count > 0 {
			return SubRange{first, min(count, maxSubIDs)}
		}
	}
	return SubRange{}
}

func loginName(uid int) string {
	if fields := account(uid); len(fields) > 0 {
		return fields[0]
	}
	return ""
}

// account is a user's line of /etc/passwd (passwd(5)), or nil.
func account(uid int) []string {
	f, err := os.Open("/etc/passwd")
	if err != nil {
		return nil
	}
	defer f.Close()
	lines := bufio.NewScanner(f)
	for lines.Scan() {
		fields := strings.SplitN(lines.Text(), ":", 5)
		if len(fields) >= 4 && fields[2] == strconv.Itoa(uid) {
			return fields
		}
	}
	return nil
}
