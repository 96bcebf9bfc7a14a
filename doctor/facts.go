package doctor

import (
	"fmt"
	"syscall"

	"skillbox/helper"
)

const (
	modeRoot     = "root"
	modeRootless = "rootless"
)

// Facts are what was found, without judgement. Zero values say "not looked at".
type Facts struct {
	UID       int
	User      string // login name, "" if /etc/passwd has none
	FullMap   bool   // this process lives in the machine's own user namespace
	CapEff    uint64
	Seccomp   bool     // a filter is already on us
	Label     string   // of AppArmor or SELinux, "" for none
	Container string   // "docker", "podman", "lxc", …; "" for none that is known
	Distro    []string // ID and ID_LIKE of os-release(5)

	Release string // uname -r
	Machine string
	Calls   map[string]syscall.Errno // calls tried with harmless arguments; 0 says that the kernel has it
	Sysctls map[string]int64         // those that exist
	Limits  map[string]uint64        // hard resource limits

	Tries map[string]Try // by attempt, see attempts
	IDMap []IDMap        // root only

	NewUIDMap, NewGIDMap Mapper
	SubUIDs, SubGIDs     helper.SubRange
	NoSubIDs             string // why this process cannot use what is granted; "" if it can, or nothing is
	FreeSubID            int    // where a new range could begin
	BlockTaken           string

	Programs []Program
	Profile  bool             // AppArmor's profile of the packages is there, loaded or not
	Groups   helper.Groups    // zero if skillboxd could not be asked
	HostFile *helper.HostFile // nil if skillboxd could not be asked
	HostErr  string

	// Who may use the system service, as skillboxd reads it; ServiceFile is nil if it could not be asked, and KeptOut if this user may.
	ServiceFile *helper.HostFile
	KeptOut     *helper.Error

	// Why boxes of root's cannot have links of their own; nil if they can.
	NoLink4, NoLink6 *helper.Error

	Box    BoxTry
	Holds  []BoxTry // limits
	Egress BoxTry   // with a way out

	Service *Service // this user's; nil is not looked at
	System  *System  // likewise
}

// mode is the one that skillbox uses for this user.
func (f *Facts) mode() string {
	if f.UID == 0 && f.FullMap {
		return modeRoot
	}
	return modeRootless
}

// Try is what an attempt in a child came to.
type Try struct {
	Tried bool
	Call  string        // what failed: "clone", "mount proc"
	Errno syscall.Errno // 0 if it worked, or if Note says why not
	Note  string
}

func (t Try) worked() bool { return t.Tried && t.Errno == 0 && t.Note == "" }

func (t Try) failed() bool { return t.Tried && !t.worked() }

func (t Try) String() string {
	switch {
	case !t.Tried:
		return "not tried"
	case t.Errno != 0:
		return fmt.Sprintf("%s: %s", t.Call, t.Errno.Error())
	case t.Note != "":
		return t.Call + ": " + t.Note
	}
	return "works"
}

// IDMap is a try of an idmapped mount with an overlay on it, as bundles are mounted for root.
type IDMap struct {
	Path, Filesystem string
	Try              Try
}

// Mapper is newuidmap(1) or newgidmap(1).
type Mapper struct {
	Path       string // "" if not in PATH
	Privileged bool   // set-user-ID root or with a file capability
	Try        Try    // a real mapping, where there is a range
}

// Program is one of skillbox's three.
type Program struct {
	Name       string
	Path       string
	Mode       uint32 // permission bits
	Filesystem string
	NoExec     bool // the mount it lies on
	Version    string
	Error      string // why it is missing or does not answer
}

// BoxTry is a real box.
type BoxTry struct {
	Name      string // what it was to show
	Tried     bool
	Held      bool // the limit did what it should; of the first box: `true` ran
	Verdict   string
	Mode      string
	Single    bool
	Error     string
	Hint      string
	PrepareMS float64
	RunMS     float64
}

func (b BoxTry) worked() bool { return b.Tried && b.Held }
