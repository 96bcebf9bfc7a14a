package learn

import (
	"fmt"
	"net/netip"
	"slices"
	"strings"

	"skillbox/policy"
)

// dangerous are calls that learning neither tries nor allows, though a policy could, with the reason that is printed.
var dangerous = []struct{ names, why string }{
	{"ptrace process_vm_readv process_vm_writev pidfd_getfd kcmp process_madvise", "it reads or steers other processes; the debug profile is for debuggers"},
	{"vmsplice modify_ldt userfaultfd io_uring_setup io_uring_enter io_uring_register", "much of its code in the kernel has been exploited or is hardly exercised"},
	{"name_to_handle_at open_by_handle_at fanotify_init fanotify_mark", "it sees whole file systems, below every bind"},
	{"memfd_secret", "it hides memory from the machine"},
	{"move_pages migrate_pages", "it steers and tells where the machine's memory lies"},
	{"clock_adjtime adjtimex", "it steers the machine's clock"},
	{"perf_event_open bpf keyctl add_key request_key unshare setns mount pivot_root chroot", "it reaches out of the box"},
}

// riskOfCall says why a call is left to a person; "" is that it may be tried, as where somebody who answers for it has allowed it already.
func (s *subject) riskOfCall(name string) string {
	if slices.ContainsFunc(s.vouched, func(p *policy.Policy) bool { return slices.Contains(p.Syscalls.Allow, name) }) {
		return ""
	}
	for _, d := range dangerous {
		if slices.Contains(strings.Fields(d.names), name) {
			return d.why
		}
	}
	return ""
}

// riskOfAddress says why a rule for an address is left to a person.
func riskOfAddress(a netip.Addr) string {
	switch {
	case a.IsLinkLocalUnicast():
		return "an address of the link, where clouds keep a machine's credentials"
	case a.IsPrivate():
		return "an address of a private network"
	}
	return "an address without a name does not tell who is behind it"
}

// inTheBox tells addresses that are the box itself.
func inTheBox(a netip.Addr) bool { return a.IsLoopback() || a.IsUnspecified() }

// vouched tells whether somebody who answers for it has named the destination already: then it is no risk to name it again.
func vouched(by []*policy.Policy, r policy.Rule) bool {
	return slices.ContainsFunc(by, func(p *policy.Policy) bool {
		return p.Named("network.egress") && policy.Contains(p.Network.Egress, r)
	})
}

// cite is the record that shows something first.
type cite struct {
	run string
	seq uint64
}

func (c cite) String() string { return fmt.Sprintf("run %s, record %d", c.run, c.seq) }
