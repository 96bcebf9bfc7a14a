package boxinit

import (
	"fmt"
	"slices"
	"sort"
	"strings"
)

// Report is what init saw of itself after the filters were in place: facts, no judgement.
type Report struct {
	Version    int
	Error      string            // what init could not do; everything else is then void
	UID, GID   int               // inside the box
	Groups     []int             // supplementary groups
	Caps       map[string]string // CapInh, CapPrm, CapEff, CapBnd, CapAmb in hexadecimal, as in /proc/self/status
	NoNewPrivs string
	Seccomp    []string          // the mode of each thread of init
	Namespaces map[string]string // name → identity ("net:[4026531840]")
	Mounts     []Mount
	RootWrite  string   // what creating a file in / answered
	Files      []string // open descriptors beyond 0–2 and the socket
	Interfaces []string
	Cgroups    []string // the paths in /proc/self/cgroup
	Hostname   string
	Refused    map[string]string // what attempts to reach Setup.NeverReached answered, by protocol and family
}

// Mount is one line of /proc/self/mountinfo.
type Mount struct {
	Path     string
	FSType   string
	ReadOnly bool
	NoSuid   bool
	NoDev    bool
}

// Expect is what the plan promised.
type Expect struct {
	UID, GID   int
	Namespaces map[string]string // skillboxd's own: every one of the box's must differ
	Seccomp    bool
	Writable   []string // mount points that may be writable
	Devices    []string // mount points that may hold device nodes
	Masked     []string // paths covered by /dev/null or an empty read-only directory
	Interfaces []string
	Hostname   string
	Refused    bool // there is a way out, and its rules refuse
}

// refusals are what the rules in a box's network namespace answer; the IPv6 of a machine may be off.
var refusals = map[string][]string{
	"tcp4": {"ECONNREFUSED"}, "udp4": {"EPERM"},
	"tcp6": {"ECONNREFUSED", "EAFNOSUPPORT", "EADDRNOTAVAIL", "ENETUNREACH"}, "udp6": {"EPERM", "EAFNOSUPPORT", "EADDRNOTAVAIL", "ENETUNREACH"},
}

var namespaceNames = []string{"cgroup", "ipc", "mnt", "net", "pid", "user", "uts"}

// Check compares what init saw with what the plan promised. The problems are complete: an empty list means that every layer holds.
func (r *Report) Check(e Expect) (problems []string) {
	bad := func(format string, a ...any) { problems = append(problems, fmt.Sprintf(format, a...)) }
	if r.Version != Version {
		bad("init speaks version %d, this skillboxd %d: install both from one build", r.Version, Version)
	}
	if r.Error != "" {
		bad("%s", r.Error)
		return problems
	}
	if r.UID != e.UID || r.GID != e.GID {
		bad("runs as uid %d gid %d, not %d:%d", r.UID, r.GID, e.UID, e.GID)
	}
	for _, set := range []string{"CapInh", "CapPrm", "CapEff", "CapBnd", "CapAmb"} {
		if strings.Trim(r.Caps[set], "0") != "" || r.Caps[set] == "" {
			bad("capability set %s is %q, not empty", set, r.Caps[set])
		}
	}
	if r.NoNewPrivs != "1" {
		bad("no_new_privs is %q", r.NoNewPrivs)
	}
	for _, mode := range r.Seccomp {
		if e.Seccomp && mode != "2" {
			bad("a thread of init has seccomp mode %q", mode)
		}
	}
	if len(r.Seccomp) == 0 {
		bad("no thread of init reported its seccomp mode")
	}
	for _, name := range namespaceNames {
		if r.Namespaces[name] == "" || r.Namespaces[name] == e.Namespaces[name] {
			bad("%s namespace is not its own (%q)", name, r.Namespaces[name])
		}
	}
	problems = append(problems, r.checkMounts(e)...)
	if r.RootWrite != "EROFS" {
		bad("writing to / answered %q, not EROFS", r.RootWrite)
	}
	if len(r.Files) > 0 {
		bad("descriptors are open: %s", strings.Join(r.Files, ", "))
	}
	for _, name := range r.Interfaces {
		if !slices.Contains(e.Interfaces, name) {
			bad("network interface %q is visible", name)
		}
	}
	if e.Refused {
		for what, answers := range refusals {
			if !slices.Contains(answers, r.Refused[what]) {
				bad("the network's rules are not in force: %s answered %q, not %s", what, r.Refused[what], answers[0])
			}
		}
	}
	for _, path := range r.Cgroups {
		if path != "/" {
			bad("cgroup path %q is visible", path)
		}
	}
	if r.Hostname != e.Hostname {
		bad("host name is %q", r.Hostname)
	}
	return problems
}

func (r *Report) checkMounts(e Expect) (problems []string) {
	if len(r.Mounts) == 0 {
		return []string{"no mounts reported"}
	}
	// A mount on the very same path hides what was there before it: only the last one counts.
	visible := map[string]Mount{}
	for _, m := range r.Mounts {
		visible[m.Path] = m
	}
	for _, m := range visible {
		masked := slices.Contains(e.Masked, m.Path)
		if !m.ReadOnly && !slices.Contains(e.Writable, m.Path) {
			problems = append(problems, fmt.Sprintf("mount %s is writable", m.Path))
		}
		if !m.NoSuid && !masked {
			problems = append(problems, fmt.Sprintf("mount %s honours set-user-id bits", m.Path))
		}
		if !m.NoDev && !masked && !slices.Contains(e.Devices, m.Path) {
			problems = append(problems, fmt.Sprintf("mount %s honours device nodes", m.Path))
		}
	}
	sort.Strings(problems)
	return problems
}
