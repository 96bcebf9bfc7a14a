package broker

import (
	"errors"
	"fmt"
	"os"
	"runtime"
	"strconv"
	"sync"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"skillbox/cgroup"
	"skillbox/helper"
	"skillbox/helper/access"
	"skillbox/netpolicy"
	"skillbox/policy"
	"skillbox/wire"
)

// worker is the skillboxd that serves one user.
type worker struct {
	uid, gid uint32
	quota    policy.Quota
	to       *os.File // connections go in here
	from     *os.File // and come out here: ours too, to take back what a dead worker has not taken
	errands  *wire.Conn
	ids      block
	group    *cgroup.Delegated // nil without cgroups
	ready    bool              // it takes callers
	retired  bool              // callers are sent to another

	mu      sync.Mutex
	process *os.Process // nil until it runs, and when it has ended
	doomed  bool
	userns  namespace
	links   map[string]netpolicy.Link // by box
}

// hire makes a worker that can be sent callers at once; it starts meanwhile. b.mu is held.
func (b *Broker) hire(c caller) (*worker, error) {
	leaving := 0
	for w := range b.all {
		if w.uid == c.uid {
			leaving++
		}
	}
	if leaving >= maxLeaving {
		return nil, busy("%d workers of yours are still ending calls", leaving)
	}
	if len(b.all) >= maxWorkers {
		return nil, &helper.Error{Message: fmt.Sprintf("the system service serves %d users at a time, and so many there are", maxWorkers), Hint: "call again later, or use --mode user"}
	}
	config, err := b.config.read(b.Config)
	if err != nil {
		return nil, err
	}
	quota, err := config.QuotaOf(access.Caller{UID: c.uid, Groups: c.groups})
	if err != nil {
		return nil, err
	}
	w := &worker{uid: c.uid, gid: c.gid, quota: quota, links: map[string]netpolicy.Link{}}
	if w.ids, err = b.ids.take(); err != nil {
		return nil, err
	}
	if w.to, w.from, err = wire.Relay(); err != nil {
		b.ids.give(w.ids)
		return nil, err
	}
	b.current[w.uid], b.all[w] = w, true
	b.left.Go(func() { b.employ(w) })
	return w, nil
}

// employ runs a worker, and cleans up after it.
func (b *Broker) employ(w *worker) {
	log := b.Log.With("uid", w.uid)
	started := make(chan error, 1)
	b.starter <- func() { started <- b.start(w) }
	err := <-started
	if err == nil {
		log.Info("worker started", "pid", w.process.Pid, "ids", w.ids.first)
		served := make(chan struct{})
		go func() {
			b.serveErrands(w, log)
			close(served)
		}()
		var state *os.ProcessState
		if state, err = w.process.Wait(); err == nil && !state.Success() {
			err = errors.New(state.String())
		}
		_ = w.errands.Shutdown() // which it may have ended with its own end
		<-served
		err = errors.Join(err, w.errands.Close())
		log.Info("worker ended", "error", err)
	} else {
		log.Error("worker not started", "error", err)
	}
	if err := w.clear(); err != nil {
		log.Error("clear up after a worker", "error", err)
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	w.retire()
	if b.current[w.uid] == w {
		delete(b.current, w.uid)
	}
	delete(b.all, w)
	b.ids.give(w.ids)
	if err := b.takeBack(w, err); err != nil {
		log.Error("callers of a worker that ended", "error", err)
	}
}

// takeBack sends the callers whom a worker has not taken to the next one, unless that would fare no better. b.mu is held.
func (b *Broker) takeBack(w *worker, why error) error {
	door := &Door{From: w.from}
	for {
		conn, asker, groups, err := door.Next(0)
		if err != nil || conn == nil {
			return errors.Join(w.to.Close(), w.from.Close())
		}
		err = fmt.Errorf("the system service could not start a worker for user %d: %w", w.uid, why)
		if w.ready {
			err = b.send(conn, caller{w.uid, w.gid, groups, int32(asker.PID), asker.Process})
		}
		if err != nil {
			answer(conn, err)
		}
		conn.Close()
	}
}

// retire lets nobody else in: the worker finds the end of its callers. b.mu is held.
func (w *worker) retire() {
	if !w.retired {
		w.retired = true
		_ = unix.Shutdown(int(w.to.Fd()), unix.SHUT_WR) // nothing but a socket that is not one could fail
	}
}

// kill ends the worker, and with it every box of its.
func (w *worker) kill() {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.doomed = true
	if w.process != nil {
		_ = w.process.Kill() // it may have ended
	}
}

// clear takes away what a worker has left, which has ended.
func (w *worker) clear() error {
	w.mu.Lock()
	defer w.mu.Unlock()
	var errs []error
	for _, l := range w.links {
		errs = append(errs, l.Close())
	}
	w.links = nil
	if w.group != nil {
		errs = append(errs, w.group.Close())
	}
	return errors.Join(errs...)
}

// startOnOneThread starts workers, who are killed when the thread ends that started them (PR_SET_PDEATHSIG of prctl(2)): this one ends with
// the process.
func startOnOneThread(starts <-chan func()) {
	runtime.LockOSThread()
	for start := range starts {
		start()
	}
	select {} // as long as the process
}

// start starts the worker's process: pid 1 of its pid namespace, in a user namespace that is ours and in which it is uid 0, who is the caller.
func (b *Broker) start(w *worker) error {
	conn, theirs, err := wire.Pair()
	if err != nil {
		return err
	}
	defer theirs.Close()
	if w.group, err = b.newGroup(w); err != nil {
		return errors.Join(err, conn.Close())
	}
	maps := func(id uint32) []syscall.SysProcIDMap {
		return []syscall.SysProcIDMap{{ContainerID: 0, HostID: int(id), Size: 1}, {ContainerID: 1, HostID: int(w.ids.first), Size: blockSize - 1}}
	}
	attr := &syscall.SysProcAttr{
		Cloneflags:  unix.CLONE_NEWUSER | unix.CLONE_NEWNS | unix.CLONE_NEWPID,
		UidMappings: maps(w.uid), GidMappings: maps(w.gid), GidMappingsEnableSetgroups: true,
		Credential: &syscall.Credential{Uid: 0, Gid: 0}, // with no other groups
		Setsid:     true, Pdeathsig: unix.SIGKILL,
	}
	if w.group != nil {
		attr.UseCgroupFD, attr.CgroupFD = true, w.group.FD()
	}
	// By this link, which is of the program that runs: its file may have been replaced.
	process, err := os.StartProcess("/proc/self/exe", []string{"skillboxd", "worker", strconv.Itoa(int(w.uid))}, &os.ProcAttr{
		Dir: "/", Env: []string{}, Files: []*os.File{nil, nil, os.Stderr, w.from, theirs}, Sys: attr,
	})
	if err != nil {
		return errors.Join(fmt.Errorf("broker: start a worker: %w", err), conn.Close())
	}
	w.mu.Lock()
	w.process, w.errands = process, conn
	if w.doomed {
		_ = process.Kill() // it may have ended
	}
	// It is our child and was not waited for: the number is its own.
	w.userns, err = namespaceOf(fmt.Sprintf("/proc/%d/ns/user", process.Pid))
	w.mu.Unlock()
	if err == nil {
		err = conn.Bound(0, answerTime)
	}
	if err == nil {
		err = conn.Send(Start{UID: w.uid, Idle: b.Idle, Quota: w.quota})
	}
	if err != nil {
		_ = process.Kill()
		_, waitErr := process.Wait()
		return errors.Join(err, waitErr, conn.Close())
	}
	return nil
}

// answerTime is how long a worker may leave an answer unread: its user may stop it.
const answerTime = 10 * time.Second
