// Package access is what the administrator says of the system service's callers: whom it serves, and how much each may take.
package access

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"strconv"

	"golang.org/x/sys/unix"

	"skillbox/helper"
	"skillbox/policy"
)

// Path is where the administrator says it.
const Path = "/etc/skillbox/service.yaml"

// File is what that file says at one time.
type File struct {
	*policy.Service
	Path   string
	Exists bool
}

// Caller is a user, with all groups of the process that calls.
type Caller struct {
	UID    uint32
	Groups []uint32
}

// Read reads what only root may have written. Without a file the defaults hold.
func Read(path string) (*File, error) {
	f, err := os.Open(path)
	if errors.Is(err, fs.ErrNotExist) {
		return &File{Service: policy.DefaultService(), Path: path}, nil
	}
	if err != nil {
		return nil, fmt.Errorf("access: %w", err)
	}
	defer f.Close()
	var st unix.Stat_t
	if err := unix.Fstat(int(f.Fd()), &st); err != nil {
		return nil, fmt.Errorf("access: %s: %w", path, err)
	}
	if st.Mode&unix.S_IFMT != unix.S_IFREG || st.Mode&0o022 != 0 || st.Uid != 0 {
		return nil, &helper.Error{Message: "must be a regular file of root's that only root may write", File: path, Hint: "chown root and chmod 0644"}
	}
	data, err := io.ReadAll(io.LimitReader(f, 1<<20))
	if err != nil {
		return nil, fmt.Errorf("access: %s: %w", path, err)
	}
	s, err := policy.ParseService(path, data)
	if err != nil {
		return nil, err
	}
	return &File{Service: s, Path: path, Exists: true}, nil
}

// KeepsOut says why the file lets a caller not in, nil if it does.
func (f *File) KeepsOut(c Caller) (*helper.Error, error) {
	allow := f.Allow
	if len(allow.Users)+len(allow.Groups) == 0 {
		return nil, nil
	}
	login := helper.LoginName(int(c.UID))
	for _, name := range allow.Users {
		if name == login || name == strconv.FormatUint(uint64(c.UID), 10) {
			return nil, nil
		}
	}
	known, err := helper.ReadGroups()
	if err != nil {
		return nil, err
	}
	for _, name := range allow.Groups {
		if g, found := helper.FindGroup(known, name); found && g.Holds(login, c.Groups) {
			return nil, nil
		}
	}
	return &helper.Error{
		Message: "the system service does not serve you: the administrator has listed whom it serves", File: f.Path,
		Field: "allow", Hint: "use --mode user or oneshot, or ask to be listed",
	}, nil
}

// QuotaOf is what a caller may take: what the file says of that user, else of all of the user's groups, else of everybody. A name that nobody
// has is refused, whoever calls: it was written to hold somebody.
func (f *File) QuotaOf(c Caller) (policy.Quota, error) {
	var users, groups []policy.AccountQuota
	login := helper.LoginName(int(c.UID))
	if len(f.Users) > 0 {
		known, err := helper.ReadUsers()
		if err != nil {
			return policy.Quota{}, err
		}
		for _, u := range f.Users {
			uid, found := known[u.Name]
			if id, err := strconv.ParseUint(u.Name, 10, 32); err == nil && !found {
				uid, found = uint32(id), true
			}
			if !found {
				return policy.Quota{}, f.nobody(u, "users", "/etc/passwd knows no user %s", "write a login name, or the number of a user whom only a directory service knows")
			}
			if uid == c.UID {
				users = append(users, u)
			}
		}
	}
	if len(f.Groups) > 0 {
		known, err := helper.ReadGroups()
		if err != nil {
			return policy.Quota{}, err
		}
		for _, g := range f.Groups {
			group, found := helper.FindGroup(known, g.Name)
			if !found {
				return policy.Quota{}, f.nobody(g, "groups", "/etc/group knows no group %s", "write a group's name, or the number of one that only a directory service knows")
			}
			if group.Holds(login, c.Groups) {
				groups = append(groups, g)
			}
		}
	}
	return f.Service.QuotaOf(users, groups), nil
}

func (f *File) nobody(a policy.AccountQuota, list, message, hint string) error {
	return &helper.Error{Message: fmt.Sprintf(message, a.Name), File: f.Path, Line: a.At.Line, Column: a.At.Column, Field: "quota." + list, Hint: hint}
}
