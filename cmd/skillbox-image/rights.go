package main

import (
	"fmt"
	"os"
	"syscall"
	"unsafe"

	"golang.org/x/sys/unix"

	"skillbox/helper"
)

// withoutRights gives up what root does not need for taking strangers' files apart, for every thread: what is left is to own the store, and to
// read an archive that is another user's. Programs that keep passwords are started with root's usual rights.
func withoutRights() error {
	if os.Geteuid() != 0 {
		return nil
	}
	header := unix.CapUserHeader{Version: unix.LINUX_CAPABILITY_VERSION_3}
	var held [2]unix.CapUserData
	if err := unix.Capget(&header, &held[0]); err != nil {
		return fmt.Errorf("capabilities: %w", err)
	}
	const keep = 1 << unix.CAP_DAC_READ_SEARCH
	kept := [2]unix.CapUserData{{Effective: held[0].Effective & keep, Permitted: held[0].Permitted & keep}}
	_, _, errno := syscall.AllThreadsSyscall(unix.SYS_CAPSET, uintptr(unsafe.Pointer(&header)), uintptr(unsafe.Pointer(&kept[0])), 0)
	if errno == unix.ENOTSUP {
		return &helper.Error{Message: "as root this program must be one without cgo, which cannot give up rights for all its threads", Hint: "build it with CGO_ENABLED=0, as make build does"}
	}
	if errno != 0 {
		return fmt.Errorf("give up capabilities: %w", errno)
	}
	return nil
}
