package helper

import (
	"fmt"
	"os"
	"strings"

	"golang.org/x/sys/unix"
)

// Capability is one that root needs.
type Capability struct {
	Name string
	Bit  int
}

// RootNeeds are the capabilities without which boxes of root's cannot be made, as tried by leaving out each: file trees with other
// owners (CHOWN, DAC_OVERRIDE, FOWNER), ids of a user namespace (SETUID, SETGID), namespaces and mounts (SYS_ADMIN, SYS_CHROOT), a
// box's loopback and rules (NET_ADMIN), and /proc/PID/ns of a process of other ids (SYS_PTRACE).
var RootNeeds = []Capability{
	{"CAP_CHOWN", unix.CAP_CHOWN},
	{"CAP_DAC_OVERRIDE", unix.CAP_DAC_OVERRIDE},
	{"CAP_FOWNER", unix.CAP_FOWNER},
	{"CAP_SETGID", unix.CAP_SETGID},
	{"CAP_SETUID", unix.CAP_SETUID},
	{"CAP_NET_ADMIN", unix.CAP_NET_ADMIN},
	{"CAP_SYS_CHROOT", unix.CAP_SYS_CHROOT},
	{"CAP_SYS_PTRACE", unix.CAP_SYS_PTRACE},
	{"CAP_SYS_ADMIN", unix.CAP_SYS_ADMIN},
}

// RootLacks names those of RootNeeds that a set does not have.
func RootLacks(effective uint64) (names []string) {
	for _, c := range RootNeeds {
		if effective>>c.Bit&1 == 0 {
			names = append(names, c.Name)
		}
	}
	return names
}

// Unprivileged says that boxes are made as an ordinary user makes them, in a user namespace made for skillboxd: for who is not uid 0, and for
// uid 0 of a user namespace that was given less than RootNeeds, as in a container. wholeMap is the machine's own user namespace. There
// root without capabilities is refused: the skill would have the id of the machine's root, to whom /proc/sys belongs.
func Unprivileged(uid int, effective uint64, wholeMap bool) (bool, error) {
	if uid != 0 {
		return true, nil
	}
	lacks := RootLacks(effective)
	if len(lacks) == 0 {
		return false, nil
	}
	if !wholeMap {
		return true, nil
	}
	return false, &Error{
		Message: "root here lacks " + strings.Join(lacks, ", ") + ", as in a container",
		Hint: "run skillbox as an ordinary user, who needs no capability: docker run --user 1000:1000 …, or setpriv --reuid 1000 --regid 1000 --clear-groups skillbox …; " +
			"`skillbox doctor` says what else is missing",
	}
}

// NeedsUserns is Unprivileged for this process.
func NeedsUserns() (bool, error) {
	if os.Geteuid() != 0 {
		return true, nil
	}
	header := unix.CapUserHeader{Version: unix.LINUX_CAPABILITY_VERSION_3}
	var sets [2]unix.CapUserData
	if err := unix.Capget(&header, &sets[0]); err != nil {
		return false, fmt.Errorf("helper: own capabilities: %w", err)
	}
	effective := uint64(sets[1].Effective)<<32 | uint64(sets[0].Effective)
	if len(RootLacks(effective)) == 0 {
		return false, nil
	}
	ids, err := os.ReadFile("/proc/self/uid_map")
	if err != nil {
		return false, fmt.Errorf("helper: %w", err)
	}
	return Unprivileged(0, effective, WholeMap(string(ids)))
}

// WholeMap says that a user namespace's uid_map (user_namespaces(7)) is that of the machine's own.
func WholeMap(ids string) bool { return strings.Join(strings.Fields(ids), " ") == "0 0 4294967295" }

// noMappers says why newuidmap and newgidmap cannot do anything for this process, whoever is granted sub-ids; "" is that they can.
func noMappers() string {
	if on, err := unix.PrctlRetInt(unix.PR_GET_NO_NEW_PRIVS, 0, 0, 0, 0); err == nil && on == 1 {
		return "no_new_privs is set on this process, so that newuidmap has no privilege"
	}
	for _, c := range []Capability{{"CAP_SETUID", unix.CAP_SETUID}, {"CAP_SETGID", unix.CAP_SETGID}} {
		if in, err := unix.PrctlRetInt(unix.PR_CAPBSET_READ, uintptr(c.Bit), 0, 0, 0); err == nil && in == 0 {
			return c.Name + " is not in this process's bounding set, so that newuidmap has no privilege"
		}
	}
	return ""
}

// outside says why a range of sub-ids is not there for us: in a container's user namespace most numbers are nobody's.
func (r SubRange) outside(file, idMap string) string {
	covered := 0
	for line := range strings.Lines(idMap) {
		var first, parent, count int
		if _, err := fmt.Sscan(line, &first, &parent, &count); err != nil {
			continue
		}
		covered += max(0, min(first+count, r.First+r.Count)-max(first, r.First))
	}
	if covered >= r.Count {
		return ""
	}
	return fmt.Sprintf("%s grants the ids from %d to %d, which the user namespace around us does not have", file, r.First, r.First+r.Count-1)
}

// NoSubIDs says why this user's boxes have the one id, although /etc/subuid and /etc/subgid may grant others; "" is that they can be used.
func NoSubIDs(uids, gids SubRange) string {
	if why := noMappers(); why != "" {
		return why
	}
	for _, s := range []struct {
		sub       SubRange
		file, ids string
	}{{uids, "/etc/subuid", "/proc/self/uid_map"}, {gids, "/etc/subgid", "/proc/self/gid_map"}} {
		ids, err := os.ReadFile(s.ids)
		if err != nil {
			continue // newuidmap will tell
		}
		if why := s.sub.outside(s.file, string(ids)); why != "" {
			return why
		}
	}
	return ""
}
