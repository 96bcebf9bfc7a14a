package sandbox

import (
	"os"
	"sync"

	"skillbox/cgroup"
	"skillbox/netpolicy"
)

// Host is what Compile must know of the machine and of this skillboxd.
type Host struct {
	Mode string // "root": in the machine's own user namespace; "rootless": in one below it
	IDs  IDs
	Dir  string // this skillboxd's private tmpfs
	Init string // host path of init's binary
	// Namespaces are skillboxd's own, by name.
	Namespaces map[string]string
	// CoreHandler says that the kernel hands crashes to a program of the host (a core_pattern that begins with a pipe).
	CoreHandler bool
	// Unwatchable says why nobody can watch a skill's calls here; "" is that skillboxd can.
	Unwatchable string
	// Name is the host name of the machine or container around skillboxd. Unnamable says why boxes cannot have another; "" is that they can.
	Name, Unnamable string
	// HardLimits are skillboxd's own resource limits, by the name that OCI gives them.
	HardLimits map[string]uint64

	// Controllers are those that can limit boxes here, GroupsIn is where their groups go; without any, NoGroups says why.
	Controllers []string
	GroupsIn    string
	NoGroups    *cgroup.Unavailable

	// Swept is the number of each thing that dead processes had left and that was removed here: "group", and "link" where who lasts can have
	// links. Links are swept again with each box.
	Swept map[string]int

	// Linkable says why boxes cannot have links of their own, for IPv4 and for IPv6.
	Linkable func() (no4, no6 error)
	// Linker makes them; nil is netpolicy.MakeLink.
	Linker netpolicy.Linker

	lasts  bool          // serves many calls
	caller int           // on the machine
	gid    int           // the caller's, on the machine
	groups *cgroup.Place // nil with NoGroups

	mu       sync.Mutex
	boxes    map[*Box]bool            // that were not closed
	reserved map[string]*cgroup.Group // of boxes that are not prepared yet
	blocks   []*block                 // of ids, that no box has now
	lock     *os.File                 // holds the block of ids as long as this process lives
}

// IDs say who the skill is, in skillboxd's user namespace and in the box.
type IDs struct {
	SkillUID, SkillGID int // as skillboxd sees them
	RootUID, RootGID   int // who box uid 0 is
	BoxUID, BoxGID     int // the skill inside: 1000, or 0 where there is only one id
	Single             bool
	Groups             int // supplementary groups of the caller's that could not be dropped
}

// skillID is the skill's uid and gid inside.
const skillID = 1000
