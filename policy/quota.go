package policy

import "strings"

// Quota is what one caller may take of the system service at a time.
type Quota struct {
	Calls       int64 // that run
	Boxes       int64 // that run or are ready
	Ready       int64 // boxes prepared ahead
	Memory      int64 // bytes: the sum of resources.memory of the calls that run
	Pids        int64 // the sum of their resources.pids
	Connections int64
	From        string // the keys of service.yaml that say so: "quota", "quota.users.alice", "quota.groups.a, quota.groups.b"
}

// AccountQuota is what a user, or each user in a group, may take. What is zero was left out: Service.Quota holds.
type AccountQuota struct {
	Name string // login name or number; name or number of the group
	At   Position
	Quota
}

// DefaultQuota holds where the administrator says nothing.
func DefaultQuota() Quota {
	return Quota{Calls: 32, Boxes: 64, Ready: 32, Memory: 8 * gib, Pids: 4096, Connections: 128, From: "quota"}
}

// values are all that count, in one order.
func (q *Quota) values() []*int64 {
	return []*int64{&q.Calls, &q.Boxes, &q.Ready, &q.Memory, &q.Pids, &q.Connections}
}

// QuotaOf is the quota of somebody to whom these of s.Users and s.Groups apply: the user's own, else those of all groups, else that of
// everybody. Of several each holds: the least of each value.
func (s *Service) QuotaOf(users, groups []AccountQuota) Quota {
	mine := users
	if len(mine) == 0 {
		mine = groups
	}
	if len(mine) == 0 {
		return s.Quota
	}
	var least Quota
	var from []string
	for i, a := range mine {
		q := a.Quota
		for k, v := range q.values() {
			if *v == 0 {
				*v = *s.Quota.values()[k]
			}
			if to := least.values()[k]; i == 0 || *v < *to {
				*to = *v
			}
		}
		from = append(from, q.From)
	}
	least.From = strings.Join(from, ", ")
	return least
}
