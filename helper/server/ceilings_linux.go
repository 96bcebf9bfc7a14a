package server

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"

	"skillbox/helper"
	"skillbox/policy"
)

// What the administrator says a user's skills may have at most. Where the helper is the caller's own it is advice.
//
//	/etc/skillbox/host.d/user-NAME.yaml     of one user, by login name or number
//	/etc/skillbox/host.d/group-NAME.yaml    else all of those of the user's groups: each holds
//	/etc/skillbox/host.yaml                 else
const (
	ceilingFile = helper.Ceiling
	ceilingDir  = "/etc/skillbox/host.d"
)

// ceiling is the text of one of these files.
type ceiling struct {
	File string
	Text []byte
}

// readCeilings reads those that hold for a user, none where the host has none. groups are those that the user's process had; nil is that
// nobody has looked, and /etc/group alone tells.
func readCeilings(uid int, groups []uint32) ([]ceiling, error) {
	entries, err := os.ReadDir(ceilingDir)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return nil, fmt.Errorf("server: %w", err)
	}
	names, err := ceilingsOf(uid, groups, entries)
	if err != nil {
		return nil, err
	}
	if len(names) == 0 {
		names = []string{ceilingFile}
	}
	var all []ceiling
	for _, name := range names {
		text, err := readCeiling(name)
		if err != nil {
			return nil, err
		}
		if text != nil {
			all = append(all, ceiling{name, text})
		}
	}
	return all, nil
}

// ceilingsOf chooses among the files of the directory. One that cannot be told whose it is refuses everybody: it was written to hold somebody.
func ceilingsOf(uid int, groups []uint32, entries []fs.DirEntry) (names []string, err error) {
	if len(entries) == 0 {
		return nil, nil
	}
	login := helper.LoginName(uid)
	if groups == nil {
		if gid, ok := helper.PrimaryGroup(uid); ok {
			groups = []uint32{gid}
		}
	}
	known, err := helper.ReadGroups()
	if err != nil {
		return nil, err
	}
	var own []string
	for _, e := range entries {
		path := filepath.Join(ceilingDir, e.Name())
		base, yaml := strings.CutSuffix(e.Name(), ".yaml")
		kind, name, _ := strings.Cut(base, "-")
		switch {
		case !yaml: // an editor's copy, or a package manager's
		case kind == "user" && name != "":
			if name == login || name == strconv.Itoa(uid) {
				own = append(own, path)
			}
		case kind == "group" && name != "":
			g, found := helper.FindGroup(known, name)
			if !found {
				return nil, &helper.Error{Message: "/etc/group knows no group " + name, File: path, Hint: "name the file after a group, or after the number of one that only a directory service knows"}
			}
			if g.Holds(login, groups) {
				names = append(names, path)
			}
		default:
			return nil, &helper.Error{Message: "this is nobody's ceiling", File: path, Hint: "call it user-NAME.yaml or group-NAME.yaml"}
		}
	}
	if len(own) > 0 {
		names = own
	}
	slices.Sort(names)
	return names, nil
}

// readCeiling returns nil where there is none. A ceiling that others than root may write would be no ceiling.
func readCeiling(path string) ([]byte, error) {
	f, err := os.Open(path)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, fmt.Errorf("server: %w", err)
	}
	defer f.Close()
	info, err := f.Stat()
	if err != nil {
		return nil, fmt.Errorf("server: %w", err)
	}
	if !info.Mode().IsRegular() || info.Mode().Perm()&0o022 != 0 {
		return nil, &helper.Error{Message: "must be a regular file that only its owner may write", File: path, Hint: "chmod 0644"}
	}
	return readAll(f, maxPolicyBytes)
}

func parseCeilings(texts []ceiling) (all []*policy.Ceiling, err error) {
	for _, c := range texts {
		p, err := policy.ParseCeiling(c.File, c.Text)
		if err != nil {
			return nil, err
		}
		all = append(all, p)
	}
	return all, nil
}
