package server

import (
	"errors"
	"io/fs"
	"os"
	"syscall"

	"skillbox/helper"
)

// lookAtCeiling reads the host's own policy as a run would, for `skillbox doctor`.
func lookAtCeiling() helper.HostFile {
	found := helper.HostFile{Path: ceilingFile, Errors: []*helper.Error{}}
	info, err := os.Stat(ceilingFile)
	if errors.Is(err, fs.ErrNotExist) {
		return found
	}
	found.Exists = true
	if err == nil {
		if st, ok := info.Sys().(*syscall.Stat_t); ok {
			found.UID = int(st.Uid)
		}
		_, err = readCeiling()
	}
	if err == nil {
		return found
	}
	if found.Errors = policyErrors(err); len(found.Errors) == 0 {
		found.Errors = append(found.Errors, &helper.Error{Message: err.Error()})
	}
	return found
}
