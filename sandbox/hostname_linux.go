package sandbox

import (
	"fmt"
	"os"
	"runtime"

	"golang.org/x/sys/unix"
)

// readName finds out this machine's or container's name, and whether a box can have another: the seccomp filters of podman and CRI-O let
// containers make namespaces and refuse sethostname(2) all the same.
func (h *Host) readName() (err error) {
	if h.Name, err = os.Hostname(); err != nil {
		return fmt.Errorf("sandbox: %w", err)
	}
	if mode, err := unix.PrctlRetInt(unix.PR_GET_SECCOMP, 0, 0, 0, 0); err != nil || mode == 0 {
		return nil // nobody filters
	}
	tried := make(chan error)
	go func() {
		runtime.LockOSThread() // never unlocked: the thread ends with the goroutine
		if err := unix.Unshare(unix.CLONE_NEWUTS); err != nil {
			tried <- nil // the box will tell
			return
		}
		tried <- unix.Sethostname([]byte(Hostname))
	}()
	if err := <-tried; err != nil {
		h.Unnamable = fmt.Sprintf("a seccomp filter refuses sethostname (%v)", err)
	}
	return nil
}
