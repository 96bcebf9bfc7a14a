package sandbox

import (
	"fmt"
	"slices"
	"strings"
	"time"

	"skillbox/cgroup"
	"skillbox/helper"
	"skillbox/policy"
)

// limit is one of a policy's limits that a cgroup holds.
type limit struct {
	field      string
	controller string
	// instead is what stands in for the cgroup; "" is nothing.
	instead string
	asked   func(policy.Resources) bool // nil: always, for there is a default
}

var limits = []limit{
	{"resources.cpu", cgroup.CPU, "watchdog and RLIMIT_CPU", nil},
	{"resources.memory", cgroup.Memory, "watchdog and RLIMIT_DATA", nil},
	{"resources.pids", cgroup.Pids, "watchdog and RLIMIT_NPROC", nil},
	{"resources.io_read", cgroup.IO, "", func(r policy.Resources) bool { return r.IORead > 0 }},
	{"resources.io_write", cgroup.IO, "", func(r policy.Resources) bool { return r.IOWrite > 0 }},
	{"resources.io_weight", cgroup.IO, "", func(r policy.Resources) bool { return r.IOWeight > 0 }},
}

// limit decides what holds each limit: the cgroup's controller, or what stands in for it. A limit that somebody named is refused
// where only a stand-in could hold it, unless best-effort is enough.
func (plan *Plan) limit(h *Host, p *policy.Policy, s Sources) error {
	var lesser []string
	for _, l := range limits {
		if l.asked != nil && !l.asked(p.Resources) {
			continue
		}
		name := strings.TrimPrefix(l.field, "resources.")
		if slices.Contains(h.Controllers, l.controller) {
			plan.Layers[name] = "cgroup, " + l.controller + " controller"
			plan.holdByGroup(p, l.field)
			continue
		}
		message, hint := h.whyNot(l.controller)
		if (p.Named(l.field) || l.instead == "") && p.Enforcement != "best-effort" {
			return &Refusal{
				Field: l.field, Position: p.Position(l.field), Message: "this limit needs a cgroup: " + message,
				Hint: hint + "; or say enforcement: best-effort, which takes what stands in for it",
			}
		}
		if l.instead == "" {
			plan.Layers[name] = "nothing"
			plan.Warnings = append(plan.Warnings, l.field+" is held by nothing (best-effort): "+message)
			continue
		}
		plan.Layers[name] = l.instead
		plan.holdByWatchdog(p, l.field)
		if p.Named(l.field) {
			plan.Warnings = append(plan.Warnings, fmt.Sprintf("%s is held by %s (best-effort): %s", l.field, l.instead, message))
		} else {
			lesser = append(lesser, name)
		}
	}
	if len(lesser) > 0 {
		plan.Warnings = append(plan.Warnings, strings.Join(lesser, ", ")+" "+helper.LimitsWarning)
	}
	return plan.limitDisks(p, s)
}

// limitDisks names the disks that io_read and io_write are for.
func (plan *Plan) limitDisks(p *policy.Policy, s Sources) error {
	if plan.Group.IORead == 0 && plan.Group.IOWrite == 0 {
		return nil
	}
	plan.Group.Disks = s.Disks
	if len(s.Diskless) == 0 {
		return nil
	}
	field := "resources.io_read"
	if plan.Group.IORead == 0 {
		field = "resources.io_write"
	}
	message := fmt.Sprintf("%s lies on no single disk that could be limited", s.Diskless[0])
	if p.Enforcement == "best-effort" {
		plan.Warnings = append(plan.Warnings, field+" does not hold everywhere (best-effort): "+message)
		return nil
	}
	return &Refusal{
		Field: field, Position: p.Position(field), Message: message,
		Hint: "the kernel limits block devices (io.max); leave io_read and io_write out, or say enforcement: best-effort",
	}
}

// whyNot says what keeps this skillboxd from a controller, and what would help.
func (h *Host) whyNot(controller string) (message, hint string) {
	if h.NoGroups != nil {
		return h.NoGroups.Message, h.NoGroups.Hint
	}
	return fmt.Sprintf("the control group that boxes go to, %s, has no %s controller", h.GroupsIn, controller), "delegate it: Delegate=cpu io memory pids in the [Service] part " +
		"of a drop-in for the unit (user@.service for users), then daemon-reload and start the unit anew"
}

func (plan *Plan) holdByGroup(p *policy.Policy, field string) {
	switch field {
	case "resources.cpu":
		plan.Group.CPU = p.Resources.CPU
	case "resources.memory":
		plan.Group.Memory = p.Resources.Memory
	case "resources.pids":
		plan.Group.Pids = p.Resources.Pids
	case "resources.io_read":
		plan.Group.IORead = p.Resources.IORead
	case "resources.io_write":
		plan.Group.IOWrite = p.Resources.IOWrite
	case "resources.io_weight":
		plan.Group.IOWeight = p.Resources.IOWeight
	}
}

func (plan *Plan) holdByWatchdog(p *policy.Policy, field string) {
	switch field {
	case "resources.cpu":
		plan.Watched.CPU = time.Duration(p.Resources.CPU * float64(p.Timeout))
	case "resources.memory":
		plan.Watched.Memory = p.Resources.Memory
	case "resources.pids":
		plan.Watched.Pids = p.Resources.Pids
	}
}
