package doctor

import (
	"cmp"
	"path/filepath"
	"slices"
	"strings"
	"syscall"

	"golang.org/x/sys/unix"

	"skillbox/helper"
)

// contained tells whether somebody else's sandbox is around us.
func (f *Facts) contained() bool { return f.Container != "" || f.Seccomp }

func (f *Facts) engine() string {
	if f.Container != "" {
		return "the container engine (" + f.Container + ")"
	}
	return "a seccomp filter of whatever started this process"
}

// engineRemedy is how to start the surrounding container so that boxes can be made in it, with no more than is missing.
func engineRemedy(f *Facts) string {
	filtered, confined := f.refused(unix.EPERM, unix.ENOSYS), f.refused(unix.EACCES)
	masked := filtered || confined || f.Tries["proc"].failed() // what cannot be tried may be masked too
	var words []string
	add := func(missing bool, more ...string) {
		if missing {
			words = append(words, more...)
		}
	}
	switch f.Container {
	case "lxc":
		return "on the host: lxc config set CONTAINER security.nesting=true && lxc restart CONTAINER"
	case "kubernetes":
		add(masked, "hostUsers: false", "securityContext: {procMount: Unmasked}")
		add(filtered, "securityContext: {seccompProfile: {type: Unconfined}}")
		add(confined, "securityContext: {appArmorProfile: {type: Unconfined}}")
		return "in the pod: " + strings.Join(words, ", ") + "; docs/operators.md has a whole one"
	case "":
		return "run skillbox outside of what filters its system calls"
	}
	command, unmask := "docker run", []string{"--security-opt systempaths=unconfined"}
	if f.Container == "podman" {
		command, unmask = "podman run", []string{"--security-opt unmask=ALL"}
	}
	add(filtered, "--security-opt seccomp=unconfined")
	// A filter speaks first: what a profile would say is not known then.
	add((filtered || confined) && strings.Contains(f.Label, "(enforce)"), "--security-opt apparmor=unconfined")
	add((filtered || confined) && strings.Contains(f.Label, ":container_t:"), "--security-opt label=disable")
	add(masked, unmask...)
	add(f.UID == 0 && f.FullMap, "--user 1000:1000")
	return "start the container with: " + strings.Join(append([]string{command}, words...), " ") + " …"
}

// refused says that somebody keeps us from namespaces or mounts with one of these errors, other than by a mask over /proc: filters say EPERM and
// ENOSYS, security modules EACCES.
func (f *Facts) refused(errnos ...syscall.Errno) bool {
	attempts := []string{"user", "capable", "namespaces", "nested", "mounts", "overlay", "cgroup2", "seccomp"}
	if !f.able() {
		attempts = []string{"user", "seccomp"} // the others tell what root lacks
	}
	for _, attempt := range attempts {
		if t := f.Tries[attempt]; t.failed() && slices.Contains(errnos, t.Errno) {
			return true
		}
	}
	for _, errno := range f.Calls {
		if f.Seccomp && errno == unix.ENOSYS && slices.Contains(errnos, errno) {
			return true
		}
	}
	return false
}

// procMount judges the mount of a fresh /proc: where an engine has covered a part of the one at hand, the kernel refuses
// another to a user namespace that would uncover it (mount_too_revealing).
func procMount(f *Facts) []Finding {
	const name, need = "fresh /proc", "skillboxd's and every box's own view of processes"
	t := f.Tries["proc"]
	switch {
	case !f.capable() || !t.Tried || t.Call == "clone":
		return nil // said above
	case t.worked():
		return good(name, need, "can be mounted")
	case t.Errno == unix.EPERM && f.Container == "":
		return fail(name, need, "find what is mounted below /proc and unmount it: grep ' /proc/' /proc/self/mountinfo", "the kernel refuses it (%v): something covers a part of /proc", t)
	case t.Errno == unix.EPERM || t.Errno == unix.EACCES:
		return fail(name, need, engineRemedy(f), "%s masks a part of /proc, so the kernel refuses a fresh one (%v)", f.engine(), t)
	}
	return fail(name, need, "look for what refuses it: dmesg | tail", "%v", t)
}

// mounts judges the other file systems of a box.
func mounts(f *Facts) []Finding {
	const name, need = "file systems", "a box's tree: tmpfs, overlay for bundles, cgroup2 over the host's"
	tries := []struct{ attempt, what, remedy string }{
		{"mounts", "tmpfs with the new mount calls", "look for what refuses it: dmesg | tail"},
		{"overlay", "overlay", "sudo modprobe overlay; from Linux 5.11 on, user namespaces may mount it"},
		{"cgroup2", "cgroup2", "use a kernel with CONFIG_CGROUPS=y, and mount sysfs on /sys"},
	}
	var names []string
	for _, m := range tries {
		t := f.Tries[m.attempt]
		switch {
		case !f.capable() || !t.Tried || t.Call == "clone":
			return nil // said above
		case t.worked():
			names = append(names, m.what)
		case f.contained() && (t.Errno == unix.EPERM || t.Errno == unix.EACCES):
			return fail(name, need, engineRemedy(f), "%s refuses %s (%v)", f.engine(), m.what, t)
		default:
			return fail(name, need, m.remedy, "%s: %v", m.what, t)
		}
	}
	return good(name, need, "%s", strings.Join(names, ", "))
}

// missingProgram is the root of whatever else fails.
func (f *Facts) missingProgram() bool {
	for _, p := range f.Programs {
		if p.Path == "" {
			return true
		}
	}
	return false
}

func programs(f *Facts) []Finding {
	const name, need = "programs", "skillbox starts skillboxd, which starts skillbox-init inside the box"
	var details []string
	for _, p := range f.Programs {
		switch {
		case p.Path == "":
			return fail(name, need, "install skillbox, skillboxd and skillbox-init in one directory (make build makes all three)", "%s", p.Error)
		case p.NoExec:
			return fail(name, need, "install skillbox on a file system that is mounted without noexec", "%s lies on a noexec mount", p.Path)
		case p.Mode&0o001 == 0 && (p.Name != "skillbox" || f.mode() == modeRoot):
			return fail(name, need, "sudo chmod 0755 "+p.Path, "%s cannot be executed by others: the sandbox's user runs it", p.Path)
		case p.Error != "":
			return fail(name, need, "install skillbox, skillboxd and skillbox-init from one build", "%s", p.Error)
		case p.Version != f.Programs[0].Version:
			return fail(name, need, "install skillbox, skillboxd and skillbox-init from one build", "%s is version %s, skillbox is %s", p.Path, p.Version, f.Programs[0].Version)
		}
		details = append(details, p.Path)
	}
	if len(details) == 0 {
		return nil
	}
	first := f.Programs[0]
	return good(name, need, "three of version %s in %s (%s)", first.Version, filepath.Dir(first.Path), first.Filesystem)
}

// idMapped judges whether root can give files of these places to a box.
func idMapped(f *Facts) []Finding {
	const name, need = "idmapped mounts", "bundles and files of a policy for root's boxes"
	var found []Finding
	for _, m := range f.IDMap {
		switch {
		case m.Try.worked():
			found = append(found, good(name, need, "%s (%s)", m.Path, m.Filesystem)...)
		case m.Try.failed() && m.Try.Call != "clone": // which is said above
			found = append(found, warn(name, need, "keep bundles on ext4, xfs or btrfs, or run skillbox as an ordinary user",
				"%s (%s) cannot be given to a box of root's (%v)", m.Path, m.Filesystem, m.Try)...)
		}
	}
	return found
}

// controlGroups judges what boxes can be limited by.
func controlGroups(f *Facts) []Finding {
	const name, need = "cgroups", "resources.cpu, memory and pids named in a policy"
	const without = "a policy that names %s is refused (unless best-effort), and the defaults are held by a watchdog"
	g := f.Groups
	switch {
	case g.Message != "":
		return warn(name, need, g.Hint, "%s; "+without, g.Message, "cpu, memory, pids or io")
	case g.In == "":
		return nil // that skillboxd cannot be asked is said elsewhere
	}
	var missing []string
	for _, want := range []string{"cpu", "memory", "pids"} {
		if !slices.Contains(g.Controllers, want) {
			missing = append(missing, want)
		}
	}
	if len(missing) == 0 {
		return good(name, need, "version 2 in %s with %s", g.In, strings.Join(g.Controllers, ", "))
	}
	remedy := "add Delegate=yes to the systemd unit that runs this"
	if f.UID != 0 {
		remedy = "sudo mkdir -p /etc/systemd/system/user@.service.d\n" +
			"printf '[Service]\\nDelegate=cpu cpuset io memory pids\\n' | sudo tee /etc/systemd/system/user@.service.d/delegate.conf\nsudo systemctl daemon-reload\nlog in again"
	}
	list := strings.Join(missing, ", ")
	return warn(name, need, remedy, "version 2 in %s, without the controllers %s; "+without, g.In, list, list)
}

func hostFile(f *Facts) []Finding {
	const name, need = "host policy", "the administrator's ceiling for every skill"
	h := f.HostFile
	switch {
	case h == nil && (f.HostErr == "" || f.missingProgram()):
		return nil
	case h == nil:
		return fail(name, need, "install skillbox, skillboxd and skillbox-init from one build", "skillboxd could not be asked: %s", f.HostErr)
	case !h.Exists:
		return good(name, need, "%s does not exist: no ceiling", h.Path)
	case len(h.Errors) > 0:
		return fail(name, need, "skillbox policy check "+h.Path, "%s", lines(h.Errors))
	case h.UID != 0:
		return warn(name, need, "sudo chown root "+h.Path, "%s belongs to uid %d, not to root", h.Path, h.UID)
	}
	return good(name, need, "%s holds. It is advice: where skillbox starts its own skillboxd, the caller could start another", h.Path)
}

func lines(errs []*helper.Error) string {
	var text []string
	for _, e := range errs {
		text = append(text, e.Error())
	}
	return strings.Join(text, "; ")
}

// box judges the proof: a real one.
func box(f *Facts) []Finding {
	const name, need = "a real box", "everything"
	switch b := f.Box; {
	case !b.Tried || (!b.Held && f.missingProgram()):
		return nil
	case b.Held:
		return good(name, need, "`true` ran in one, %s: prepare %.1f ms, run %.1f ms", b.Mode, b.PrepareMS, b.RunMS)
	default:
		remedy := "follow the remedies above, then run doctor again"
		if b.Hint != "" {
			remedy = b.Hint
		}
		return fail(name, need, remedy, "%s", b.Error)
	}
}

func boxLimits(f *Facts) []Finding {
	const name, need = "limits", "that a hostile skill ends"
	var held []string
	for _, b := range f.Holds {
		if !b.Tried {
			continue
		}
		if !b.Held {
			why := "ended with verdict " + b.Verdict
			if b.Error != "" {
				why += " (" + b.Error + ")"
			}
			return fail(name, need, "report this with the output of skillbox doctor --json", "%s did not hold: the box %s", b.Name, why)
		}
		held = append(held, b.Name)
	}
	if len(held) == 0 {
		return nil
	}
	return good(name, need, "%s hold, each tried in a box", strings.Join(held, ", "))
}

// egress judges the ways out of a box.
func egress(f *Facts) []Finding {
	const name, need = "network", "network.egress of a policy"
	const modules = "nf_tables, nft_chain_nat, nft_redir, nft_reject_inet, nft_limit, nft_log, nfnetlink_log"
	switch {
	case !f.Egress.Tried:
		return nil
	case !f.Egress.Held:
		remedy := "for root, on the host: for m in " + strings.ReplaceAll(modules, ",", "") + "; do modprobe $m; done"
		return warn(name, need, cmp.Or(f.Egress.Hint, remedy), "a box with a way out cannot be had: %s", f.Egress.Error)
	}
	found := good(name, need, "rules hold, tried from inside a box")
	if f.UID != 0 {
		return found
	}
	const veth = "network links"
	switch {
	case f.NoLink4 != nil:
		return append(found, warn(veth, "UDP for boxes of root's", f.NoLink4.Hint, "%s; TCP goes through skillboxd then", f.NoLink4.Message)...)
	case f.NoLink6 != nil:
		return append(found, good(veth, "UDP for boxes of root's", "veth with IPv4 alone: %s", f.NoLink6.Message)...)
	}
	return append(found, good(veth, "UDP for boxes of root's", "veth, for IPv4 and IPv6")...)
}
