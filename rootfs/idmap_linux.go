package rootfs

import (
	"errors"
	"fmt"
	"os"
	"runtime"
	"strconv"
	"syscall"

	"golang.org/x/sys/unix"
)

// maxOwners is how many a tree may leave to the next one.
const maxOwners = 8

// start makes those that a tree needs, beside the rest of it.
func (m *IDMaps) start(s *Spec) {
	if m.byOwner == nil {
		m.byOwner = map[[2]int]*idmap{}
	}
	for _, b := range append([]Bind{s.Bundle}, s.Binds...) {
		owner := [2]int{b.MapUID, b.MapGID}
		if !b.IDMap || m.byOwner[owner] != nil {
			continue
		}
		one := &idmap{fd: -1, done: make(chan struct{})}
		m.byOwner[owner] = one
		go func() {
			defer close(one.done)
			one.fd, one.err = newUserNamespace(s, owner[0], owner[1])
		}()
	}
}

func (m *IDMaps) get(b Bind) (int, error) {
	one := m.byOwner[[2]int{b.MapUID, b.MapGID}]
	<-one.done
	return one.fd, one.err
}

// rest waits until a tree needs none any more, and keeps for the next one what that could use.
func (m *IDMaps) rest() error {
	failed := false
	for _, one := range m.byOwner {
		<-one.done
		failed = failed || one.err != nil
	}
	if failed || len(m.byOwner) > maxOwners {
		return m.Close()
	}
	return nil
}

// Close lets go of all of them.
func (m *IDMaps) Close() error {
	var errs []error
	for _, one := range m.byOwner {
		<-one.done
		if one.fd >= 0 {
			errs = append(errs, unix.Close(one.fd))
		}
	}
	m.byOwner = nil
	return errors.Join(errs...)
}

// newUserNamespace returns a user namespace in which uid and gid are the skill's. Only a process can make one; ours stops at its
// exec, before it runs a single instruction, and is killed once its namespace is open.
func newUserNamespace(s *Spec, uid, gid int) (int, error) {
	runtime.LockOSThread() // the tracer is a thread, and the traced process ends with it at the latest
	defer runtime.UnlockOSThread()
	process, err := os.StartProcess(s.Init, []string{"idmap"}, &os.ProcAttr{Env: []string{}, Sys: &syscall.SysProcAttr{
		Cloneflags:  unix.CLONE_NEWUSER,
		Ptrace:      true,
		UidMappings: []syscall.SysProcIDMap{{ContainerID: uid, HostID: s.Owner.SkillUID, Size: 1}},
		GidMappings: []syscall.SysProcIDMap{{ContainerID: gid, HostID: s.Owner.SkillGID, Size: 1}},
	}})
	if err != nil {
		return -1, fmt.Errorf("rootfs: user namespace for idmapped mounts: %w", err)
	}
	fd, err := unix.Open("/proc/"+strconv.Itoa(process.Pid)+"/ns/user", unix.O_RDONLY|unix.O_CLOEXEC, 0)
	killErr := process.Kill()
	if errors.Is(killErr, os.ErrProcessDone) {
		killErr = nil
	}
	_, waitErr := process.Wait()
	if err := errors.Join(err, killErr, waitErr); err != nil {
		return -1, fmt.Errorf("rootfs: user namespace for idmapped mounts: %w", err)
	}
	return fd, nil
}
