package helper

import (
	"bufio"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"slices"
	"strconv"
	"strings"
)

// Group is a line of /etc/group.
type Group struct {
	Name    string
	ID      uint32
	Members []string // login names
}

// ReadGroups reads /etc/group (group(5)). Groups that only a directory service knows are not there.
func ReadGroups() ([]Group, error) {
	f, err := os.Open("/etc/group")
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, fmt.Errorf("helper: %w", err)
	}
	defer f.Close()
	var all []Group
	lines := bufio.NewScanner(f)
	for lines.Scan() {
		fields := strings.Split(lines.Text(), ":")
		if len(fields) != 4 {
			continue
		}
		id, err := strconv.ParseUint(fields[2], 10, 32)
		if err != nil {
			continue
		}
		g := Group{Name: fields[0], ID: uint32(id)}
		if fields[3] != "" {
			g.Members = strings.Split(fields[3], ",")
		}
		all = append(all, g)
	}
	return all, lines.Err()
}

// Holds says that a user is in the group: by the groups that a process of the user's has, or as a member by login name, which a
// session that began before does not know of yet.
func (g *Group) Holds(login string, groups []uint32) bool {
	return slices.Contains(groups, g.ID) || login != "" && slices.Contains(g.Members, login)
}

// FindGroup finds a group by its name or number. One that /etc/group does not know is found by its number alone.
func FindGroup(all []Group, name string) (Group, bool) {
	id, err := strconv.ParseUint(name, 10, 32)
	for _, g := range all {
		if g.Name == name || err == nil && g.ID == uint32(id) {
			return g, true
		}
	}
	return Group{ID: uint32(id)}, err == nil
}

// ReadUsers reads the numbers of the users in /etc/passwd (passwd(5)) by login name; of two lines with one name the first counts.
func ReadUsers() (map[string]uint32, error) {
	f, err := os.Open("/etc/passwd")
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, fmt.Errorf("helper: %w", err)
	}
	defer f.Close()
	all := map[string]uint32{}
	lines := bufio.NewScanner(f)
	for lines.Scan() {
		fields := strings.Split(lines.Text(), ":")
		if len(fields) < 4 {
			continue
		}
		id, err := strconv.ParseUint(fields[2], 10, 32)
		if _, twice := all[fields[0]]; err == nil && !twice {
			all[fields[0]] = uint32(id)
		}
	}
	return all, lines.Err()
}

// LoginName is the name that /etc/passwd has for a user, or "".
func LoginName(uid int) string { return loginName(uid) }

// PrimaryGroup is the group that /etc/passwd gives a user.
func PrimaryGroup(uid int) (gid uint32, ok bool) {
	fields := account(uid)
	if len(fields) < 4 {
		return 0, false
	}
	id, err := strconv.ParseUint(fields[3], 10, 32)
	return uint32(id), err == nil
}
