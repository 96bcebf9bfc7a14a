package sandbox

import (
	"errors"
	"fmt"
	"time"

	"golang.org/x/sys/unix"
)

// stay lets the relays end with their call, in a box that does not: a process that the call leaves behind may hold the other end of a
// pipe, fill or empty it, for as long as it likes. It is called before start.
func (s *stdio) stay() error {
	s.stays = true
	var errs []error
	for _, r := range s.relays {
		end := r.dst
		if r.fromSkill {
			end = r.src
		}
		if err := unix.SetNonblock(end, true); err != nil { // of our ends alone: they are other open files than the skill's
			errs = append(errs, fmt.Errorf("sandbox: relay: %w", err))
		}
	}
	return errors.Join(errs...)
}

// flushTime is what a terminal's output may take to its other side, which a worker of the kernel brings it to.
const flushTime = 10 * time.Millisecond

// pending is what can be read now.
func pending(fd int) int {
	n, err := unix.IoctlGetInt(fd, unix.TIOCINQ)
	if _, errTerminal := unix.IoctlGetTermios(fd, unix.TCGETS); err == nil && n == 0 && errTerminal == nil {
		time.Sleep(flushTime)
		n, err = unix.IoctlGetInt(fd, unix.TIOCINQ)
	}
	if err != nil {
		return 0 // a terminal whose other side is gone
	}
	return n
}
