// Package space is a network namespace to make a world in: a host or a server that a test or the bench needs.
package space

import (
	"errors"
	"fmt"
	"os"
	"runtime"
	"sync"

	"golang.org/x/sys/unix"
)

// Space is a thread in a network namespace of its own. Sockets and processes that are made there stay there, whoever uses them.
type Space struct {
	NS *os.File // the namespace, until Close

	do    chan func()
	end   chan struct{}
	close sync.Once
}

// New moves a new thread into a network namespace of its own, and into what else flags (CLONE_NEWNS) say, and runs enter on it, which may
// be nil. After an error the thread is gone.
func New(flags int, enter func() error) (*Space, error) {
	s := &Space{do: make(chan func()), end: make(chan struct{})}
	ready := make(chan error)
	onThread(func() {
		err := s.enter(flags, enter)
		ready <- err
		if err == nil {
			s.serve()
		}
	})
	if err := <-ready; err != nil {
		return nil, fmt.Errorf("space: %w", err)
	}
	return s, nil
}

// onThread starts f on a thread that ends with it. That cannot be the process's first thread, which Go parks instead: it would hold the
// namespace for good, and be what /proc/self shows.
func onThread(f func()) {
	started := make(chan struct{})
	go func() {
		runtime.LockOSThread()
		if unix.Gettid() == os.Getpid() {
			onThread(f) // while this one is taken
			runtime.UnlockOSThread()
			close(started)
			return
		}
		close(started)
		f()
	}()
	<-started
}

func (s *Space) enter(flags int, enter func() error) (err error) {
	if err := unix.Unshare(unix.CLONE_NEWNET | flags); err != nil {
		return fmt.Errorf("unshare: %w", err)
	}
	if s.NS, err = os.Open("/proc/thread-self/ns/net"); err != nil || enter == nil {
		return err
	}
	if err := enter(); err != nil {
		return errors.Join(err, s.NS.Close())
	}
	return nil
}

func (s *Space) serve() {
	for {
		select {
		case f := <-s.do:
			f()
		case <-s.end:
			return
		}
	}
}

// Run runs f on the thread, one at a time. What f starts with Pdeathsig ends with the Space. After Close it is os.ErrClosed.
func (s *Space) Run(f func() error) error {
	done := make(chan error)
	select {
	case s.do <- func() { done <- f() }:
		return <-done
	case <-s.end:
		return fmt.Errorf("space: %w", os.ErrClosed)
	}
}

// Close ends the thread, once what it runs is done. The namespace lives on with the sockets and processes that are left in it.
func (s *Space) Close() (err error) {
	s.close.Do(func() {
		close(s.end)
		err = s.NS.Close()
	})
	return err
}
