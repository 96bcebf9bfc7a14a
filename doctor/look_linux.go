package doctor

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"skillbox/helper"
)

// The ids of root's boxes, see package sandbox.
const (
	firstBoxID = 0x70000000
	boxIDs     = 1 << 24
)

// Look gathers the facts. version is the client's own. When ctx ends, so do the tries in progress.
func Look(ctx context.Context, version string) *Facts {
	f := &Facts{Tries: map[string]Try{}}
	f.lookAtUs()
	f.lookAtKernel()
	f.tryAll(ctx)
	f.lookAtIDs(ctx)
	f.tryIDMaps(ctx)
	f.Programs = FindPrograms(ctx, version)
	_, err := os.Stat(helper.AppArmorProfile)
	f.Profile = err == nil
	f.askSkillboxd(ctx)
	f.tryBoxes(ctx)
	f.lookAtService(ctx)
	f.lookAtSystem(ctx, version)
	return f
}

func (f *Facts) lookAtUs() {
	f.UID = os.Geteuid()
	f.User = loginName(f.UID)
	text, err := os.ReadFile("/proc/self/uid_map")
	f.FullMap = err == nil && helper.WholeMap(string(text))
	for line := range lineSeq("/proc/self/status") {
		name, value, _ := strings.Cut(line, ":")
		switch value = strings.TrimSpace(value); name {
		case "CapEff":
			f.CapEff, _ = strconv.ParseUint(value, 16, 64) // 0, no capability, if the kernel wrote something else
		case "Seccomp":
			f.Seccomp = value != "0"
		}
	}
	for _, path := range []string{"/proc/self/attr/apparmor/current", "/proc/self/attr/current"} {
		if label, err := os.ReadFile(path); err == nil && f.Label == "" {
			f.Label = strings.TrimRight(string(label), "\n\x00")
		}
	}
	f.Container = container()
	for line := range lineSeq("/etc/os-release") {
		if name, value, _ := strings.Cut(line, "="); name == "ID" || name == "ID_LIKE" {
			f.Distro = append(f.Distro, strings.Fields(strings.Trim(value, `"'`))...)
		}
	}
}

// container names the engine around us, by what each leaves for its guests to see; "" for none that is known.
func container() string {
	if os.Getenv("KUBERNETES_SERVICE_HOST") != "" {
		return "kubernetes"
	}
	for _, mark := range []struct{ file, name string }{{"/.dockerenv", "docker"}, {"/run/.containerenv", "podman"}} {
		if _, err := os.Stat(mark.file); err == nil {
			return mark.name
		}
	}
	// systemd copies its container= variable there, for those who may not read /proc/1/environ.
	if text, err := os.ReadFile("/run/systemd/container"); err == nil {
		return strings.TrimSpace(string(text))
	}
	if environ, err := os.ReadFile("/proc/1/environ"); err == nil {
		for v := range strings.SplitSeq(string(environ), "\x00") {
			if name, ok := strings.CutPrefix(v, "container="); ok {
				return name
			}
		}
	}
	return ""
}

func (f *Facts) lookAtKernel() {
	var u unix.Utsname
	if err := unix.Uname(&u); err == nil {
		f.Release, f.Machine = unix.ByteSliceToString(u.Release[:]), unix.ByteSliceToString(u.Machine[:])
	}
	f.Calls = tryCalls()
	f.Sysctls = map[string]int64{}
	keys := []string{"kernel.unprivileged_userns_clone", "kernel.apparmor_restrict_unprivileged_userns"}
	for _, kind := range []string{"user", "mnt", "pid", "net", "ipc", "uts", "cgroup"} {
		keys = append(keys, "user.max_"+kind+"_namespaces")
	}
	for _, key := range keys {
		text, err := os.ReadFile("/proc/sys/" + strings.ReplaceAll(key, ".", "/"))
		if err != nil {
			continue
		}
		if n, err := strconv.ParseInt(strings.TrimSpace(string(text)), 10, 64); err == nil {
			f.Sysctls[key] = n
		}
	}
	f.Limits = map[string]uint64{}
	for name, kind := range map[string]int{"RLIMIT_NOFILE": unix.RLIMIT_NOFILE, "RLIMIT_NPROC": unix.RLIMIT_NPROC} {
		var limit unix.Rlimit
		if unix.Getrlimit(kind, &limit) == nil {
			f.Limits[name] = limit.Max
		}
	}
}

// tryCalls makes each call with arguments that do nothing. Errors of the arguments show that the kernel has the call.
func tryCalls() map[string]syscall.Errno {
	const noFD = 1 << 30
	found := map[string]syscall.Errno{}
	keep := func(name string, err error) {
		var errno syscall.Errno
		errors.As(err, &errno)
		if errno != unix.ENOSYS && errno != unix.EPERM {
			errno = 0
		}
		found[name] = errno
	}
	fd, err := unix.Openat2(unix.AT_FDCWD, "/", &unix.OpenHow{Flags: unix.O_PATH | unix.O_CLOEXEC, Resolve: unix.RESOLVE_NO_SYMLINKS})
	if keep("openat2", err); err == nil {
		unix.Close(fd)
	}
	fd, err = unix.PidfdOpen(os.Getpid(), 0)
	if keep("pidfd_open", err); err == nil {
		unix.Close(fd)
	}
	keep("close_range", unix.CloseRange(noFD, noFD, 0))
	_, err = unix.OpenTree(noFD, "", unix.AT_EMPTY_PATH)
	keep("open_tree", err)
	keep("move_mount", unix.MoveMount(noFD, "", noFD, "", unix.MOVE_MOUNT_F_EMPTY_PATH|unix.MOVE_MOUNT_T_EMPTY_PATH))
	_, err = unix.Fsopen("", 1<<31)
	keep("fsopen", err)
	_, err = unix.Fsmount(noFD, 0, 0)
	keep("fsmount", err)
	keep("mount_setattr", unix.MountSetattr(noFD, "", unix.AT_EMPTY_PATH, &unix.MountAttr{Attr_set: unix.MOUNT_ATTR_RDONLY}))
	return found
}

// tryAll runs the attempts that need no argument, at the same time.
func (f *Facts) tryAll(ctx context.Context) {
	var mu sync.Mutex
	var all sync.WaitGroup
	for name := range attempts() {
		if name == "wait" || name == "idmap" {
			continue
		}
		all.Go(func() {
			t := try(ctx, name)
			mu.Lock()
			defer mu.Unlock()
			f.Tries[name] = t
		})
	}
	all.Wait()
}

// try runs one attempt in a child and reads what it says.
func try(ctx context.Context, name string, args ...string) Try {
	runtime.LockOSThread() // the child dies with this thread
	defer runtime.UnlockOSThread()
	var stdout bytes.Buffer
	c := command(attempts()[name], name, args...)
	c.Stdout = &stdout
	c.WaitDelay = time.Second
	if err := c.Start(); err != nil {
		return outcome(at("clone", err))
	}
	stop := killAfter(ctx, c.Process)
	err := c.Wait()
	if stop() {
		return Try{Tried: true, Call: name, Note: "no answer within " + Deadline.String()}
	}
	var t Try
	if jsonErr := json.Unmarshal(stdout.Bytes(), &t); jsonErr != nil {
		return outcome(at(name, errors.Join(errors.New("no answer"), err)))
	}
	return t
}

// killAfter ends a process at the deadline or with ctx; stop ends the watch and tells whether it struck.
func killAfter(ctx context.Context, p *os.Process) (stop func() bool) {
	ctx, cancel := context.WithTimeout(ctx, Deadline)
	struck := make(chan bool, 1)
	done := make(chan struct{})
	go func() {
		select {
		case <-done:
			struck <- false
		case <-ctx.Done():
			_ = p.Kill() // it may have ended just now
			struck <- true
		}
	}()
	return func() bool {
		close(done)
		defer cancel()
		return <-struck
	}
}

func (f *Facts) lookAtIDs(ctx context.Context) {
	f.SubUIDs, f.SubGIDs = helper.SubIDs("/etc/subuid", os.Getuid()), helper.SubIDs("/etc/subgid", os.Getuid())
	if f.SubUIDs.Count > 0 && f.SubGIDs.Count > 0 {
		f.NoSubIDs = helper.NoSubIDs(f.SubUIDs, f.SubGIDs)
	}
	f.FreeSubID = 100000
	for _, path := range []string{"/etc/subuid", "/etc/subgid"} {
		for line := range lineSeq(path) {
			fields := strings.Split(line, ":")
			if len(fields) != 3 {
				continue
			}
			first, err1 := strconv.Atoi(fields[1])
			count, err2 := strconv.Atoi(fields[2])
			if err1 != nil || err2 != nil || count <= 0 {
				continue
			}
			f.FreeSubID = max(f.FreeSubID, first+count)
			if first < firstBoxID+boxIDs && first+count > firstBoxID {
				f.BlockTaken = path + ": " + line
			}
		}
	}
	f.NewUIDMap = f.lookAtMapper(ctx, "newuidmap", os.Getuid(), f.SubUIDs)
	f.NewGIDMap = f.lookAtMapper(ctx, "newgidmap", os.Getgid(), f.SubGIDs)
}

// lookAtMapper lets the program map a waiting child's ids, as helper.Spawn does.
func (f *Facts) lookAtMapper(ctx context.Context, name string, id int, sub helper.SubRange) Mapper {
	path, err := exec.LookPath(name)
	if err != nil {
		return Mapper{}
	}
	m := Mapper{Path: path}
	if info, err := os.Stat(path); err == nil {
		n, _ := unix.Getxattr(path, "security.capability", nil) // an error: no capability
		m.Privileged = info.Mode()&os.ModeSetuid != 0 || n > 0
	}
	if os.Geteuid() == 0 || sub.Count == 0 || f.NoSubIDs != "" {
		return m
	}
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	child := command(attempt{}, "wait")
	child.SysProcAttr.Cloneflags = unix.CLONE_NEWUSER
	stdin, err := child.StdinPipe()
	if err != nil {
		m.Try = outcome(at("pipe", err))
		return m
	}
	if err := child.Start(); err != nil {
		return m // that user namespaces do not work is another finding
	}
	defer func() {
		stdin.Close()
		_ = child.Process.Kill() // it may have ended with its input
		_ = child.Wait()         // what it says does not matter
	}()
	ctx, cancel := context.WithTimeout(ctx, Deadline)
	defer cancel()
	out, err := exec.CommandContext(ctx, path, strconv.Itoa(child.Process.Pid), "0", strconv.Itoa(id), "1",
		"1", strconv.Itoa(sub.First), strconv.Itoa(sub.Count)).CombinedOutput()
	m.Try = Try{Tried: true}
	if err != nil {
		m.Try.Call, m.Try.Note = name, firstLine(string(out), err)
	}
	return m
}

func firstLine(out string, err error) string {
	if line, _, _ := strings.Cut(strings.TrimSpace(out), "\n"); line != "" {
		return line
	}
	return err.Error()
}

// tryIDMaps tries the file systems on which bundles usually are.
func (f *Facts) tryIDMaps(ctx context.Context) {
	if f.mode() != modeRoot {
		return
	}
	for _, dir := range bundlePlaces() {
		m := IDMap{Path: dir, Try: try(ctx, "idmap", dir)}
		m.Filesystem, _ = filesystem(dir)
		f.IDMap = append(f.IDMap, m)
	}
}

// bundlePlaces are the directory for temporary files, then the user's home.
func bundlePlaces() []string {
	places := []string{os.TempDir()}
	home, err := os.UserHomeDir()
	if err != nil {
		return places
	}
	if info, err := os.Stat(home); err == nil && info.IsDir() && home != places[0] {
		places = append(places, home)
	}
	return places
}

// FindPrograms looks for skillbox's three programs as a run would, and asks each other than the caller for its version.
func FindPrograms(ctx context.Context, version string) []Program {
	self, err := os.Executable()
	client := Program{Name: "skillbox", Path: self, Version: version}
	if err != nil {
		client.Error = err.Error()
	}
	client.look()
	daemon := Program{Name: "skillboxd"}
	if daemon.Path, err = helper.Find(daemon.Name); err != nil {
		daemon.Error = err.Error()
		return []Program{client, daemon}
	}
	if real, err := filepath.EvalSymlinks(daemon.Path); err == nil {
		daemon.Path = real
	}
	inside := Program{Name: "skillbox-init", Path: filepath.Join(filepath.Dir(daemon.Path), "skillbox-init")}
	if _, err := os.Stat(inside.Path); err != nil {
		inside = Program{Name: inside.Name, Error: "skillbox-init is not installed beside " + daemon.Path}
	}
	for _, p := range []*Program{&daemon, &inside} {
		if p.Path != "" {
			p.look()
			p.ask(ctx)
		}
	}
	return []Program{client, daemon, inside}
}

func (p *Program) look() {
	if info, err := os.Stat(p.Path); err == nil {
		p.Mode = uint32(info.Mode().Perm())
	}
	p.Filesystem, p.NoExec = filesystem(p.Path)
}

func (p *Program) ask(ctx context.Context) {
	ctx, cancel := context.WithTimeout(ctx, Deadline)
	defer cancel()
	c := exec.CommandContext(ctx, p.Path, "version")
	c.Env, c.WaitDelay = []string{}, time.Second
	out, err := c.Output()
	p.Version = strings.TrimSpace(string(out))
	if err != nil || p.Version == "" || strings.ContainsAny(p.Version, " \n") {
		p.Version, p.Error = "", p.Path+" does not tell its version: it is of another build, or cannot be executed"
	}
}

// askSkillboxd lets it read the host's policy and make a control group: neither is linked into the client.
func (f *Facts) askSkillboxd(ctx context.Context) {
	process, err := helper.SpawnPlain()
	if err != nil {
		f.HostErr = err.Error()
		return
	}
	answer, err := withDeadline(ctx, process, &helper.Request{Version: helper.Version, Op: helper.OpDoctor}, nil)
	if err == nil && answer.Plan == nil {
		err = answer.Result.Error
	}
	if err == nil {
		var m helper.Machine
		if err = json.Unmarshal(answer.Plan, &m); err == nil {
			f.HostFile, f.Groups = &m.HostFile, m.Groups
			f.ServiceFile, f.KeptOut = &m.ServiceFile, m.KeptOut
			f.NoLink4, f.NoLink6 = m.NoLink4, m.NoLink6
		}
	}
	if err != nil {
		f.HostErr = err.Error()
	}
}

// withDeadline asks and closes; a skillboxd that does not answer in time is killed.
func withDeadline(ctx context.Context, p *helper.Peer, r *helper.Request, fds []int) (*helper.Answer, error) {
	ctx, cancel := context.WithTimeout(ctx, Deadline)
	defer cancel()
	stop := context.AfterFunc(ctx, p.Kill)
	answer, err := p.Do(r, fds, func(string) (string, bool) { return "", false })
	stop()
	if ctx.Err() != nil {
		err = errors.Join(errors.New("no answer within "+Deadline.String()), err)
	}
	return answer, errors.Join(err, p.Close())
}

func lineSeq(path string) func(yield func(string) bool) {
	text, err := os.ReadFile(path)
	if err != nil {
		text = nil // a file that cannot be read holds no lines for us
	}
	return func(yield func(string) bool) {
		for line := range strings.Lines(string(text)) {
			if !yield(strings.TrimSuffix(line, "\n")) {
				return
			}
		}
	}
}

func loginName(uid int) string {
	for line := range lineSeq("/etc/passwd") {
		if fields := strings.SplitN(line, ":", 4); len(fields) == 4 && fields[2] == strconv.Itoa(uid) {
			return fields[0]
		}
	}
	return ""
}
