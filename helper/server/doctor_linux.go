package server

import (
	"errors"
	"io/fs"
	"os"
	"syscall"

	"skillbox/cgroup"
	"skillbox/helper"
	"skillbox/helper/access"
	"skillbox/netpolicy"
	"skillbox/policy"
)

func lookAtMachine() helper.Machine {
	found := helper.Machine{HostFile: lookAtCeiling(), Groups: lookAtGroups()}
	found.ServiceFile, found.KeptOut = lookAtAccess()
	if os.Getuid() == 0 {
		no4, no6 := netpolicy.Linkable()
		found.NoLink4, found.NoLink6 = unlinkable(no4), unlinkable(no6)
	}
	return found
}

func unlinkable(err error) *helper.Error {
	var no *netpolicy.NoForwarding
	switch {
	case err == nil:
		return nil
	case errors.As(err, &no):
		return &helper.Error{Message: no.Message, Hint: no.Hint}
	}
	return &helper.Error{Message: err.Error(), Hint: "this is not expected: report it"}
}

// lookAtGroups finds a place for groups and makes one there, as a run would, for `skillbox doctor`.
func lookAtGroups() (found helper.Groups) {
	place, err := cgroup.Open(os.Getuid())
	if err == nil {
		found.In, found.Controllers = place.Group, place.Controllers
		var group *cgroup.Group
		if group, err = place.Create("doctor"); err == nil {
			err = group.Close()
		}
		err = errors.Join(err, place.Close())
	}
	var missing *cgroup.Unavailable
	if errors.As(err, &missing) {
		found.Message, found.Hint = missing.Message, missing.Hint
	} else if err != nil {
		found.Message, found.Hint = err.Error(), "this is not expected: report it"
	}
	return found
}

// lookAtCeiling reads the host's own policy as a run would, for `skillbox doctor`.
func lookAtCeiling() helper.HostFile {
	return lookAtFile(ceilingFile, func() error {
		text, err := readCeiling(ceilingFile)
		if err == nil {
			_, err = policy.ParseCeiling(ceilingFile, text)
		}
		return err
	})
}

// lookAtAccess reads who may use the system service as it would, and whether that is this caller, for `skillbox doctor`.
func lookAtAccess() (found helper.HostFile, keptOut *helper.Error) {
	found = lookAtFile(access.Path, func() error {
		groups, err := os.Getgroups()
		me := access.Caller{UID: uint32(os.Getuid()), Groups: []uint32{uint32(os.Getgid())}}
		for _, g := range groups {
			me.Groups = append(me.Groups, uint32(g))
		}
		if err != nil {
			return err
		}
		file, err := access.Read(access.Path)
		if err != nil {
			return err
		}
		if keptOut, err = file.KeepsOut(me); err == nil {
			_, err = file.QuotaOf(me)
		}
		return err
	})
	return found, keptOut
}

// lookAtFile looks at an administrator's file, which need not exist.
func lookAtFile(path string, read func() error) helper.HostFile {
	found := helper.HostFile{Path: path, Errors: []*helper.Error{}}
	info, err := os.Stat(path)
	if errors.Is(err, fs.ErrNotExist) {
		return found
	}
	found.Exists = true
	if err == nil {
		if st, ok := info.Sys().(*syscall.Stat_t); ok {
			found.UID = int(st.Uid)
		}
		err = read()
	}
	var one *helper.Error
	switch {
	case err == nil:
	case errors.As(err, &one):
		found.Errors = append(found.Errors, one)
	default:
		if found.Errors = policyErrors(err); len(found.Errors) == 0 {
			found.Errors = append(found.Errors, &helper.Error{Message: err.Error()})
		}
	}
	return found
}
