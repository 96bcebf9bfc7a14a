package broker

import (
	"fmt"
	"strconv"

	"skillbox/helper"
	"skillbox/policy"
)

// quotaOf is what a caller may take: what the file says of that user, else of all of the user's groups, else of everybody. A name that nobody
// has is refused, whoever calls: it was written to hold somebody.
func (s settings) quotaOf(c caller) (policy.Quota, error) {
	var users, groups []policy.AccountQuota
	login := helper.LoginName(int(c.uid))
	if len(s.Users) > 0 {
		known, err := helper.ReadUsers()
		if err != nil {
			return policy.Quota{}, err
		}
		for _, u := range s.Users {
			uid, found := known[u.Name]
			if id, err := strconv.ParseUint(u.Name, 10, 32); err == nil && !found {
				uid, found = uint32(id), true
			}
			if !found {
				return policy.Quota{}, s.nobody(u, "users", "/etc/passwd knows no user %s", "write a login name, or the number of a user whom only a directory service knows")
			}
			if uid == c.uid {
				users = append(users, u)
			}
		}
	}
	if len(s.Groups) > 0 {
		known, err := helper.ReadGroups()
		if err != nil {
			return policy.Quota{}, err
		}
		for _, g := range s.Groups {
			group, found := helper.FindGroup(known, g.Name)
			if !found {
				return policy.Quota{}, s.nobody(g, "groups", "/etc/group knows no group %s", "write a group's name, or the number of one that only a directory service knows")
			}
			if group.Holds(login, c.groups) {
				groups = append(groups, g)
			}
		}
	}
	return s.QuotaOf(users, groups), nil
}

func (s settings) nobody(a policy.AccountQuota, list, message, hint string) error {
	return &helper.Error{Message: fmt.Sprintf(message, a.Name), File: s.path, Line: a.At.Line, Column: a.At.Column, Field: "quota." + list, Hint: hint}
}
