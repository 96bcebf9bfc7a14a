package audit

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

// inATmpfs runs a role in a mount namespace of its own, whose directory dir it makes a small tmpfs.
func inATmpfs(t *testing.T, role string) {
	if os.Getuid() != 0 {
		t.Skip("mounting a small tmpfs needs root")
	}
	c := other(t, role, t.TempDir())
	c.SysProcAttr.Cloneflags = unix.CLONE_NEWNS
	if err := c.Start(); errors.Is(err, syscall.EPERM) {
		t.Skip("root here may not make mount namespaces")
	} else if err != nil {
		t.Fatal(err)
	}
	if err := c.Wait(); err != nil {
		t.Errorf("%v: %s", err, c.Stderr)
	}
}

func TestAFullDiskRefusesAndTakesBack(t *testing.T) { inATmpfs(t, "full") }

func TestAFullDiskDropsDetailsAndKeepsVerdicts(t *testing.T) { inATmpfs(t, "full-drop") }

func tmpfs(dir string) (string, error) {
	if err := unix.Mount("", "/", "", unix.MS_REC|unix.MS_PRIVATE, ""); err != nil {
		return "", err
	}
	return filepath.Join(dir, "audit"), unix.Mount("tmpfs", dir, "tmpfs", 0, "size=1m")
}

// fill leaves no byte on dir's disk.
func fill(dir string) error {
	f, err := os.Create(filepath.Join(filepath.Dir(dir), "ballast"))
	if err != nil {
		return err
	}
	defer f.Close()
	for size := 64 << 10; size > 0; {
		n, err := f.Write(make([]byte, size))
		if errors.Is(err, unix.ENOSPC) {
			size = min(size/2, n)
			if n == 0 {
				size = 0
			}
			continue
		}
		if err != nil {
			return err
		}
	}
	return nil
}

func drain(dir string) error { return os.Remove(filepath.Join(filepath.Dir(dir), "ballast")) }

func onAFullDisk(at string) error {
	dir, err := tmpfs(at)
	if err != nil {
		return err
	}
	l, err := Open(dir, Options{Interval: time.Hour})
	if err != nil {
		return err
	}
	if err := errors.Join(l.Append(run("before")...), l.Checkpoint(), fill(dir)); err != nil {
		return err
	}
	// The last page of the segment has some room left.
	path := filepath.Join(dir, segmentName(1))
	for i := 0; ; i++ {
		old, err := os.ReadFile(path)
		if err != nil {
			return err
		}
		err = l.Append(run("too much")...)
		if err == nil && i < 100 {
			continue
		}
		if !IsFull(err) {
			return fmt.Errorf("after %d runs on a full disk: %v", i, err)
		}
		now, err := os.ReadFile(path)
		if err != nil || !bytes.Equal(old, now) {
			return fmt.Errorf("a refused batch left %d bytes, %v", len(now)-len(old), err)
		}
		break
	}
	if r, err := Verify(dir, VerifyOptions{}); err != nil || !r.Whole {
		return fmt.Errorf("full: %+v %v", r.Broken, err)
	}
	if _, err := Open(filepath.Join(at, "another"), Options{}); !IsFull(err) {
		return fmt.Errorf("a new log on a full disk: %v", err)
	}
	if err := errors.Join(drain(dir), l.Append(run("after")...), l.Close()); err != nil {
		return err
	}
	r, err := Verify(dir, VerifyOptions{})
	if err != nil || !r.Whole || r.Unsigned > 0 {
		return fmt.Errorf("after: %+v %v", r, err)
	}
	return nil
}

func dropsOnAFullDisk(at string) error {
	dir, err := tmpfs(at)
	if err != nil {
		return err
	}
	l, err := Open(dir, Options{Interval: time.Hour, OnFull: DropDetail})
	if err != nil {
		return err
	}
	if err := errors.Join(l.Append(run("before")...), fill(dir)); err != nil {
		return err
	}
	for i := range 20 {
		if err := l.Append(run(fmt.Sprintf("full-%d", i))...); err != nil {
			return fmt.Errorf("run %d on a full disk: %w", i, err)
		}
	}
	if err := errors.Join(l.Checkpoint(), drain(dir)); err != nil {
		return err
	}
	l.tried = time.Time{} // a second later
	if err := errors.Join(l.Append(run("after")...), l.Close()); err != nil {
		return err
	}
	r, err := Verify(dir, VerifyOptions{})
	if err != nil || !r.Whole || r.Dropped == 0 {
		return fmt.Errorf("after: %+v %v", r, err)
	}
	granted, ended, details, dropped := 0, 0, 0, uint64(0)
	for e, err := range Read(dir, Query{}) {
		switch d := e.Detail.(type) {
		case Granted:
			granted++
		case Ended:
			ended++
			dropped += d.Dropped
		case DNS:
			details++
		}
		if err != nil {
			return err
		}
	}
	if granted != 22 || ended != 22 || dropped != r.Dropped || details < 2 || details == 22 {
		return fmt.Errorf("%d grants, %d ends, %d details, dropped %d by runs and %d by checkpoints", granted, ended, details, dropped, r.Dropped)
	}
	return nil
}
