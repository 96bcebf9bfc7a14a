package cli

import (
	"errors"
	"io"
	"os"
	"time"

	"golang.org/x/sys/unix"
)

// Stdio is what a skill gets as its stdout and stderr: those of this process as they are, for whoever reads them there wants what was printed; in
// place of a terminal a pipe to the screen. wait waits until what came by such a pipe was shown. The skill must have ended then.
func (s *Screen) Stdio() (stdout, stderr *os.File, wait func() error, err error) {
	stdout, outShown, err := s.show(os.Stdout)
	if err != nil {
		return nil, nil, nil, err
	}
	stderr, errShown, err := s.show(os.Stderr)
	if err != nil {
		return nil, nil, nil, errors.Join(err, outShown())
	}
	return stdout, stderr, func() error { return errors.Join(outShown(), errShown()) }, nil
}

// show returns a pipe in place of a terminal, and what waits for its end.
func (s *Screen) show(f *os.File) (given *os.File, wait func() error, err error) {
	if !IsTerminal(f) {
		return f, func() error { return nil }, nil
	}
	read, write, err := os.Pipe()
	if err != nil {
		return nil, nil, err
	}
	done := make(chan error, 1)
	go func() {
		defer read.Close() // who writes to a terminal that has gone learns it
		to := &shown{to: f, on: s}
		_, err := io.Copy(to, read)
		done <- errors.Join(err, to.Flush())
	}()
	return write, func() error {
		if err := write.Close(); err != nil {
			return err
		}
		select {
		case err := <-done:
			return err
		case <-time.After(drainTime): // a service that does not close its end
			return nil
		}
	}, nil
}

// drainTime is how long after a call its last output may take to a terminal that somebody has stopped.
const drainTime = 5 * time.Second

// IsTerminal tells whether what is written there is shown to a person.
func IsTerminal(f *os.File) bool {
	_, err := unix.IoctlGetTermios(int(f.Fd()), unix.TCGETS)
	return err == nil
}
