package mcp

import (
	"fmt"
	"os"

	"golang.org/x/sys/unix"
)

func moveStdout() (*os.File, error) {
	fd, err := unix.FcntlInt(uintptr(unix.Stdout), unix.F_DUPFD_CLOEXEC, 3)
	if err == nil {
		err = unix.Dup3(unix.Stderr, unix.Stdout, 0)
	}
	if err != nil {
		return nil, fmt.Errorf("mcp: stdout: %w", err)
	}
	return os.NewFile(uintptr(fd), "stdout"), nil
}
