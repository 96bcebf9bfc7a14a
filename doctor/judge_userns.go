package doctor

import (
	"fmt"
	"path/filepath"
	"strings"

	"golang.org/x/sys/unix"

	"skillbox/helper"
)

// userNamespaces judges whether this user can make one and has capabilities in it. The causes are told apart because each has a
// remedy of its own.
func userNamespaces(f *Facts) []Finding {
	const name = "user namespaces"
	need := "every box; an ordinary user's skillboxd too"
	bare, able := f.Tries["user"], f.Tries["capable"]
	if bare.worked() && (f.mode() == modeRoot || able.worked()) {
		return good(name, need, "this user can make one%s", map[bool]string{true: " and mounts in it"}[f.mode() != modeRoot])
	}
	// Ubuntu from 23.10 on: clone works, but the profile unprivileged_userns takes every capability away; or clone fails.
	if f.Sysctls["kernel.apparmor_restrict_unprivileged_userns"] == 1 && f.mode() != modeRoot {
		symptom := "making one fails (" + bare.String() + ")"
		if bare.worked() {
			symptom = "one can be made but gives no capabilities (" + able.String() + ")"
		}
		return fail(name, need, appArmorRemedy(f), "AppArmor restricts them to programs with a profile (kernel.apparmor_restrict_unprivileged_userns=1): %s", symptom)
	}
	if n, known := f.Sysctls["kernel.unprivileged_userns_clone"]; known && n == 0 && f.mode() != modeRoot {
		return fail(name, need, "echo kernel.unprivileged_userns_clone=1 | sudo tee /etc/sysctl.d/60-skillbox-userns.conf\nsudo sysctl --system",
			"this kernel does not give them to ordinary users (kernel.unprivileged_userns_clone=0)")
	}
	if f.UID == 0 && f.mode() != modeRoot && f.CapEff>>unix.CAP_SETFCAP&1 == 0 {
		return fail(name, need, "run skillbox as an ordinary user of the container (--user 1000:1000), or leave the container CAP_SETFCAP",
			"uid 0 of this container lacks CAP_SETFCAP, which giving its id to one takes (Linux 5.12)")
	}
	t := bare
	if bare.worked() {
		t = able
	}
	switch {
	case t.Errno == unix.ENOSPC:
		return fail(name, need, "sudo sysctl -w user.max_user_namespaces=15000", "the limit of user namespaces is reached (%v)", t)
	case t.Errno == unix.EINVAL || t.Errno == unix.ENOSYS:
		return fail(name, need, "use a kernel with CONFIG_USER_NS=y", "this kernel has none (%v)", t)
	case t.Errno == unix.EUSERS:
		return fail(name, need, "run skillbox on the host, or in a container less deep", "32 of them are nested already (%v)", t)
	case f.contained():
		return fail(name, need, engineRemedy(f), "%s refuses them (%v)", f.engine(), t)
	}
	return fail(name, need, "look for what refuses it: dmesg | tail; getenforce; aa-status", "%v", t)
}

// capable tells whether children of ours had the capabilities that they needed for everything else.
func (f *Facts) capable() bool {
	if f.mode() == modeRoot {
		return f.able()
	}
	return f.Tries["capable"].worked()
}

// able tells root that lacks capabilities, which is said by itself.
func (f *Facts) able() bool { return f.mode() != modeRoot || len(helper.RootLacks(f.CapEff)) == 0 }

// appArmorRemedy gives the client and skillboxd, which both make user namespaces, a profile that takes nothing else away.
func appArmorRemedy(f *Facts) string {
	paths := map[string]string{}
	for _, p := range f.Programs {
		if p.Path != "" {
			paths[p.Name] = p.Path
		}
	}
	client, daemon := paths["skillbox"], paths["skillboxd"]
	// The packages' profile is for where the packages install.
	if f.Profile && client == "/usr/bin/skillbox" && daemon == "/usr/libexec/skillbox/skillboxd" {
		return "sudo apparmor_parser -r " + helper.AppArmorProfile
	}
	attach := client
	switch {
	case daemon == "":
	case filepath.Dir(client) == filepath.Dir(daemon):
		attach = filepath.Join(filepath.Dir(client), "skillbox{,d}")
	default:
		attach = "/{" + strings.TrimPrefix(client, "/") + "," + strings.TrimPrefix(daemon, "/") + "}"
	}
	profile := fmt.Sprintf(`profile skillbox "%s" flags=(unconfined) { userns, }`, attach)
	return fmt.Sprintf("printf '%%s\\n' 'abi <abi/4.0>,' 'include <tunables/global>' '%s' | sudo tee /etc/apparmor.d/skillbox\nsudo apparmor_parser -r /etc/apparmor.d/skillbox", profile)
}

// namespaces judges the set that skillboxd starts in, and a second user namespace below the first.
func namespaces(f *Facts) []Finding {
	const name, need = "namespaces", "mount, pid, network and other namespaces of a box, and the box's own user namespace"
	if !f.capable() {
		return nil // said above, and nothing else can be found out
	}
	for _, attempt := range []string{"namespaces", "nested"} {
		t := f.Tries[attempt]
		switch {
		case t.worked():
		case t.Errno == unix.ENOSPC:
			return fail(name, need, "sudo sysctl -w user.max_user_namespaces=15000", "a limit of namespaces is reached (%v)", t)
		case t.Errno == unix.EINVAL:
			return fail(name, need, "use a kernel with CONFIG_NAMESPACES and all below it", "this kernel lacks one (%v)", t)
		case f.contained():
			return fail(name, need, engineRemedy(f), "%s refuses them (%v)", f.engine(), t)
		default:
			return fail(name, need, "look for what refuses it: dmesg | tail", "%v", t)
		}
	}
	return good(name, need, "mount, pid, net, ipc, uts, cgroup, and a user namespace below")
}

// idMappers judges where an ordinary user's second id comes from. Without one there is single-id mode.
func idMappers(f *Facts) []Finding {
	if f.mode() == modeRoot || (f.UID == 0 && len(helper.RootLacks(f.CapEff)) == 0) {
		return nil
	}
	const name, need = "sub-ids", "an id for the box's uid 0 that is not the caller's"
	const single = "; a box then has the caller's id alone, and the skill is uid 0 of its own namespace (without capabilities all the same)"
	switch {
	case f.NewUIDMap.Path == "" || f.NewGIDMap.Path == "":
		return warn(name, need, installCommand(f.Distro, map[string]string{"debian": "uidmap", "fedora": "shadow-utils", "suse": "shadow", "arch": "shadow", "alpine": "shadow-uidmap"}),
			"newuidmap or newgidmap is not installed%s", single)
	case f.SubUIDs.Count == 0 || f.SubGIDs.Count == 0:
		return warn(name, need, grantCommand(f), "/etc/subuid or /etc/subgid grants this user no range%s", single)
	case f.NoSubIDs != "":
		return warn(name, need, noSubIDsRemedy(f), "%s%s", f.NoSubIDs, single)
	case !f.NewUIDMap.Privileged || !f.NewGIDMap.Privileged:
		return fail(name, need, fmt.Sprintf("sudo chmod u+s %s %s", f.NewUIDMap.Path, f.NewGIDMap.Path), "newuidmap and newgidmap have lost their set-user-ID bit or file capability")
	}
	for _, m := range []Mapper{f.NewUIDMap, f.NewGIDMap} {
		if m.Try.failed() {
			return fail(name, need, "follow what it says; no_new_privs and nosuid mounts disable it too", "%s does not map the granted range: %v", m.Path, m.Try)
		}
	}
	return good(name, need, "%d uids and %d gids from /etc/subuid and /etc/subgid", f.SubUIDs.Count, f.SubGIDs.Count)
}

// noSubIDsRemedy is what would let newuidmap work, which is no more than a nicety.
func noSubIDsRemedy(f *Facts) string {
	const fine = "; a single id will do"
	switch {
	case strings.Contains(f.NoSubIDs, "no_new_privs"):
		return "start this without no_new_privs (allowPrivilegeEscalation: true, no --security-opt no-new-privileges)" + fine
	case strings.Contains(f.NoSubIDs, "CAP_"):
		return "leave the container the capabilities SETUID and SETGID" + fine
	}
	return "in the container's /etc/subuid and /etc/subgid, grant this user ids that are there: grep . /proc/self/uid_map /proc/self/gid_map" + fine
}

func grantCommand(f *Facts) string {
	first := f.FreeSubID
	if f.User == "" {
		return fmt.Sprintf("echo %d:%d:65536 | sudo tee -a /etc/subuid /etc/subgid", f.UID, first)
	}
	r := fmt.Sprintf("%d-%d", first, first+65535)
	return fmt.Sprintf("sudo usermod --add-subuids %s --add-subgids %s %s", r, r, f.User)
}

// idBlock judges the ids that root's boxes get.
func idBlock(f *Facts) []Finding {
	if f.mode() != modeRoot {
		return nil
	}
	const name, need = "ids of boxes", "ids that belong to one of root's boxes and nobody else"
	if f.BlockTaken != "" {
		return warn(name, need, "give that user another range with usermod --del-subuids and --add-subuids", "the range from 1879048192 to 1895825407 overlaps with %s", f.BlockTaken)
	}
	return good(name, need, "1879048192 to 1895825407 are nobody's")
}

// installCommand is for the distribution at hand; package names by family.
func installCommand(distro []string, packages map[string]string) string {
	commands := map[string]string{
		"debian": "sudo apt-get install ", "fedora": "sudo dnf install ", "suse": "sudo zypper install ", "arch": "sudo pacman -S ", "alpine": "sudo apk add ",
	}
	family := map[string]string{
		"ubuntu": "debian", "rhel": "fedora", "centos": "fedora", "opensuse": "suse", "opensuse-leap": "suse", "opensuse-tumbleweed": "suse", "sles": "suse",
	}
	for _, id := range distro {
		if of, ok := family[id]; ok {
			id = of
		}
		if p := packages[id]; p != "" {
			return commands[id] + p
		}
	}
	return "install the package that has it (Debian: " + packages["debian"] + ")"
}
