package doctor

import (
	"flag"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"

	"golang.org/x/sys/unix"

	"skillbox/helper"
)

var update = flag.Bool("update", false, "write testdata/*.txt anew")

var works = Try{Tried: true}

func fails(call string, errno syscall.Errno) Try { return Try{Tried: true, Call: call, Errno: errno} }

// tries is a machine where all of them work, but for the given.
func tries(but map[string]Try) map[string]Try {
	all := map[string]Try{}
	for name := range attempts() {
		all[name] = works
	}
	for name, t := range but {
		all[name] = t
	}
	return all
}

// programsIn are three of one build.
func programsIn(dir string) []Program {
	var all []Program
	for _, name := range []string{"skillbox", "skillboxd", "skillbox-init"} {
		all = append(all, Program{Name: name, Path: filepath.Join(dir, name), Mode: 0o755, Filesystem: "ext4", Version: "v0.1.0"})
	}
	return all
}

// desktop is an ordinary user's machine on which everything works.
func desktop() *Facts {
	return &Facts{
		UID: 1000, User: "ada", FullMap: true, Distro: []string{"debian"}, Release: "6.1.0-30-amd64", Machine: "x86_64",
		Calls: map[string]syscall.Errno{}, Tries: tries(nil),
		Sysctls:   map[string]int64{"kernel.unprivileged_userns_clone": 1, "user.max_user_namespaces": 62000, "user.max_net_namespaces": 62000},
		Limits:    map[string]uint64{"RLIMIT_NOFILE": 1048576, "RLIMIT_NPROC": 62000},
		NewUIDMap: Mapper{"/usr/bin/newuidmap", true, works}, NewGIDMap: Mapper{"/usr/bin/newgidmap", true, works},
		SubUIDs: helper.SubRange{First: 100000, Count: 65536}, SubGIDs: helper.SubRange{First: 100000, Count: 65536}, FreeSubID: 165536,
		Programs: programsIn("/usr/local/bin"),
		Groups:   helper.Groups{In: "/user.slice/user-1000.slice/user@1000.service/skillbox.slice", Controllers: []string{"cpu", "memory", "pids"}},
		HostFile: &helper.HostFile{Path: "/etc/skillbox/host.yaml"},
		Box:      BoxTry{Name: "true", Tried: true, Held: true, Mode: "rootless", Verdict: "exited", PrepareMS: 14.2, RunMS: 1.6},
		Holds:    []BoxTry{{Name: "timeout", Tried: true, Held: true}, {Name: "output", Tried: true, Held: true}},
		Egress:   BoxTry{Name: "egress", Tried: true, Held: true},
	}
}

// machines are known kinds of host, as facts.
var machines = map[string]func() *Facts{
	"debian12": desktop,
	"ubuntu2404": func() *Facts {
		f := desktop()
		f.Distro, f.Release = []string{"ubuntu", "debian"}, "6.8.0-51-generic"
		f.Sysctls["kernel.apparmor_restrict_unprivileged_userns"] = 1
		denied := fails("mount tmpfs", unix.EACCES)
		private := fails("make mounts private", unix.EACCES)
		f.Tries = tries(map[string]Try{"capable": denied, "proc": private, "mounts": private, "overlay": private, "cgroup2": private, "nested": fails("clone", unix.EACCES)})
		f.Box = BoxTry{Name: "true", Tried: true, Error: "AppArmor lets only programs with a profile make user namespaces here, and none is loaded for skillbox"}
		f.Holds, f.Egress = nil, BoxTry{}
		return f
	},
	"docker-root": func() *Facts {
		f := desktop()
		f.UID, f.User, f.Container, f.Seccomp, f.Label = 0, "root", "docker", true, "docker-default (enforce)"
		f.CapEff = 0xa80425fb // Docker's fourteen
		f.Sysctls = map[string]int64{"user.max_user_namespaces": 62000}
		refused := fails("clone", unix.EPERM)
		f.Tries = map[string]Try{"seccomp": works}
		for _, name := range []string{"user", "capable", "namespaces", "nested", "proc", "cgroup2", "mounts", "overlay"} {
			f.Tries[name] = refused
		}
		f.IDMap = []IDMap{{"/tmp", "overlay", refused}}
		f.Groups = helper.Groups{Message: "/sys/fs/cgroup is read-only here", Hint: "start the container with a private cgroup namespace"}
		f.Box = BoxTry{Name: "true", Tried: true, Error: "helper: root here may not make namespaces: operation not permitted"}
		f.Holds, f.Egress = nil, BoxTry{}
		return f
	},
	"v1-root": func() *Facts {
		f := desktop()
		f.UID, f.User, f.CapEff = 0, "root", 1<<41-1
		f.Release = "5.10.0-33-amd64"
		f.IDMap = []IDMap{{"/tmp", "tmpfs", fails("mount_setattr", unix.ENOSYS)}}
		f.Calls = map[string]syscall.Errno{"mount_setattr": unix.ENOSYS}
		f.Tries = tries(map[string]Try{"mounts": fails("mount_setattr", unix.ENOSYS)})
		f.Groups = helper.Groups{Message: "this machine's control groups are of version 1", Hint: "boot with systemd.unified_cgroup_hierarchy=1 on the kernel's command line"}
		f.Box = BoxTry{Name: "true", Tried: true, Error: "rootfs: restrict /usr: function not implemented"}
		f.Holds, f.Egress = nil, BoxTry{}
		return f
	},
	"no-newuidmap": func() *Facts {
		f := desktop()
		f.NewUIDMap, f.NewGIDMap = Mapper{}, Mapper{}
		f.SubUIDs, f.SubGIDs = helper.SubRange{}, helper.SubRange{}
		f.Box.Single = true
		return f
	},
}

func TestTheReportOfKnownMachinesReads(t *testing.T) {
	for name, facts := range machines {
		t.Run(name, func(t *testing.T) {
			got := Examine("v0.1.0", facts()).Text(false)
			path := filepath.Join("testdata", name+".txt")
			if *update {
				if err := os.WriteFile(path, []byte(got), 0o644); err != nil {
					t.Fatal(err)
				}
			}
			want, err := os.ReadFile(path)
			if err != nil {
				t.Fatal(err)
			}
			if got != string(want) {
				t.Errorf("got:\n%s\nwant:\n%s", got, want)
			}
		})
	}
}

func TestEachFactHasItsVerdict(t *testing.T) {
	asRoot := func(f *Facts) {
		f.UID, f.User, f.CapEff, f.Release = 0, "root", 1<<41-1, "6.8.0"
	}
	for _, c := range []struct {
		name    string
		change  func(*Facts)
		finding string
		status  string
		says    string // in detail or remedy
	}{
		{"a good machine has nothing to say", func(*Facts) {}, "", "", ""},
		{"an old kernel", func(f *Facts) { f.Release = "5.10.0" }, "kernel", Fail, "needs 5.12"},
		{"root needs more of it", func(f *Facts) { asRoot(f); f.Release = "5.15.0" }, "kernel", Fail, "needs 5.19"},
		{"an odd kernel name", func(f *Facts) { f.Release = "mainline" }, "kernel", Warn, "mainline"},
		{"a filter hides openat2", func(f *Facts) { f.Seccomp = true; f.Calls = map[string]syscall.Errno{"openat2": unix.EPERM} }, "system calls", Fail, "refuses openat2"},
		{"a listener is taken", func(f *Facts) { f.Tries["seccomp"] = fails("seccomp", unix.EBUSY) }, "seccomp", Warn, "cannot be reported"},
		{"no seccomp", func(f *Facts) { f.Tries["seccomp"] = fails("seccomp", unix.EINVAL) }, "seccomp", Fail, "CONFIG_SECCOMP_FILTER"},
		{"no namespaces by sysctl", func(f *Facts) { f.Sysctls["user.max_net_namespaces"] = 0 }, "namespace limits", Fail, "user.max_net_namespaces=15000"},
		{"few namespaces", func(f *Facts) { f.Sysctls["user.max_user_namespaces"] = 10 }, "namespace limits", Warn, "few boxes"},
		{"Debian 10's switch", func(f *Facts) {
			f.Tries["user"], f.Tries["capable"] = fails("clone", unix.EPERM), fails("clone", unix.EPERM)
			f.Sysctls["kernel.unprivileged_userns_clone"] = 0
		}, "user namespaces", Fail, "kernel.unprivileged_userns_clone=1"},
		{"Ubuntu refuses the clone", func(f *Facts) {
			f.Tries["user"], f.Tries["capable"] = fails("clone", unix.EPERM), fails("clone", unix.EPERM)
			f.Sysctls["kernel.apparmor_restrict_unprivileged_userns"] = 1
		}, "user namespaces", Fail, "apparmor_parser -r"},
		{"Ubuntu's switch does not matter where a profile is loaded", func(f *Facts) { f.Sysctls["kernel.apparmor_restrict_unprivileged_userns"] = 1 }, "", "", ""},
		{"the limit is used up", func(f *Facts) {
			f.Tries["user"], f.Tries["capable"] = fails("clone", unix.ENOSPC), fails("clone", unix.ENOSPC)
		}, "user namespaces", Fail, "max_user_namespaces"},
		{"no second user namespace", func(f *Facts) { f.Tries["nested"] = fails("clone", unix.EPERM) }, "namespaces", Fail, "not permitted"},
		{"a container masks /proc", func(f *Facts) { f.Container, f.Tries["proc"] = "podman", fails("mount proc", unix.EPERM) }, "fresh /proc", Fail, "unmask=ALL"},
		{"podman's filter lets us make namespaces", func(f *Facts) {
			f.Container, f.Seccomp, f.Tries["proc"] = "podman", true, fails("mount proc", unix.EPERM)
		}, "fresh /proc", Fail, "podman run --security-opt unmask=ALL …"},
		{"an ordinary user in Docker", func(f *Facts) {
			f.Container, f.Seccomp = "docker", true
			f.Tries["user"], f.Tries["capable"] = fails("clone", unix.EPERM), fails("clone", unix.EPERM)
		}, "user namespaces", Fail, "docker run --security-opt seccomp=unconfined --security-opt systempaths=unconfined …"},
		{"SELinux refuses mounts", func(f *Facts) {
			f.Container, f.Label, f.Tries["overlay"] = "podman", "system_u:system_r:container_t:s0:c1,c2", fails("mount overlay", unix.EACCES)
		}, "file systems", Fail, "podman run --security-opt label=disable --security-opt unmask=ALL …"},
		{"AppArmor refuses mounts", func(f *Facts) {
			f.Container, f.Label, f.Tries["capable"] = "podman", "containers-default-0.50.1 (enforce)", fails("make mounts private", unix.EACCES)
		}, "user namespaces", Fail, "podman run --security-opt apparmor=unconfined --security-opt unmask=ALL …"},
		{"a pod", func(f *Facts) { f.Container, f.Tries["proc"] = "kubernetes", fails("mount proc", unix.EPERM) }, "fresh /proc", Fail, "hostUsers: false, securityContext: {procMount: Unmasked};"},
		{"root of a container's namespace", func(f *Facts) { asRoot(f); f.CapEff, f.FullMap = 0x800405fb, false }, "", "", ""},
		{"root of a container without any capability", func(f *Facts) {
			asRoot(f)
			f.CapEff, f.FullMap, f.Container = 0, false, "podman"
			f.Tries["user"], f.Tries["capable"] = fails("clone", unix.EPERM), fails("clone", unix.EPERM)
		}, "user namespaces", Fail, "--user 1000:1000"},
		{"no_new_privs", func(f *Facts) { f.NoSubIDs = "no_new_privs is set on this process" }, "sub-ids", Warn, "allowPrivilegeEscalation"},
		{"newuidmap without privilege", func(f *Facts) { f.NoSubIDs = "CAP_SETUID is not in this process's bounding set" }, "sub-ids", Warn, "SETUID and SETGID"},
		{"sub-ids that are not there", func(f *Facts) {
			f.NoSubIDs = "/etc/subuid grants the ids from 100000 to 165535, which the user namespace around us does not have"
		}, "sub-ids", Warn, "/proc/self/uid_map"},
		{"something covers /proc", func(f *Facts) { f.Tries["proc"] = fails("mount proc", unix.EPERM) }, "fresh /proc", Fail, "mountinfo"},
		{"no overlay", func(f *Facts) { f.Tries["overlay"] = fails("mount overlay", unix.ENODEV) }, "file systems", Fail, "modprobe overlay"},
		{"a user without ranges", func(f *Facts) { f.SubUIDs = helper.SubRange{} }, "sub-ids", Warn, "usermod --add-subuids 165536-231071 --add-subgids 165536-231071 ada"},
		{"a uid without a name and ranges", func(f *Facts) { f.SubUIDs, f.User = helper.SubRange{}, "" }, "sub-ids", Warn, "echo 1000:165536:65536"},
		{"newuidmap without its bit", func(f *Facts) { f.NewUIDMap.Privileged = false }, "sub-ids", Fail, "chmod u+s"},
		{"newgidmap refuses", func(f *Facts) { f.NewGIDMap.Try = Try{Tried: true, Call: "newgidmap", Note: "range not allowed"} }, "sub-ids", Fail, "range not allowed"},
		{"Fedora's package", func(f *Facts) { f.NewUIDMap, f.Distro = Mapper{}, []string{"fedora"} }, "sub-ids", Warn, "dnf install shadow-utils"},
		{"skillboxd is missing", func(f *Facts) {
			f.Programs = []Program{f.Programs[0], {Name: "skillboxd", Error: "not installed"}}
		}, "programs", Fail, "in one directory"},
		{"another build", func(f *Facts) { f.Programs[2].Version = "v0.2.0" }, "programs", Fail, "from one build"},
		{"others may not execute", func(f *Facts) { f.Programs[2].Mode = 0o750 }, "programs", Fail, "chmod 0755 /usr/local/bin/skillbox-init"},
		{"a noexec mount", func(f *Facts) { f.Programs[1].NoExec = true }, "programs", Fail, "noexec"},
		{"root without CAP_SYS_ADMIN", func(f *Facts) { asRoot(f); f.CapEff &^= 1 << unix.CAP_SYS_ADMIN }, "capabilities", Fail, "CAP_SYS_ADMIN"},
		{"NFS cannot be idmapped", func(f *Facts) { asRoot(f); f.IDMap = []IDMap{{"/home/x", "nfs", fails("mount_setattr", unix.EINVAL)}} }, "idmapped mounts", Warn, "/home/x (nfs)"},
		{"somebody has root's ids", func(f *Facts) { asRoot(f); f.BlockTaken = "/etc/subuid: x:1879048192:65536" }, "ids of boxes", Warn, "overlaps"},
		{"few files", func(f *Facts) { f.Limits["RLIMIT_NOFILE"] = 64 }, "resource limits", Warn, "ulimit -Hn"},
		{"no user manager", func(f *Facts) {
			f.Groups = helper.Groups{Message: "no systemd of user 1000", Hint: "enable-linger ada"}
		}, "cgroups", Warn, "enable-linger ada"},
		{"a way out holds", func(f *Facts) { f.Egress = BoxTry{Tried: true, Held: true} }, "network", OK, ""},
		{"a kernel without nftables", func(f *Facts) { f.Egress = BoxTry{Tried: true, Error: "no such file or directory"} }, "network", Warn, "modprobe"},
		{"Docker drops what is forwarded", func(f *Facts) {
			asRoot(f)
			f.Egress, f.NoLink4 = BoxTry{Tried: true, Held: true}, &helper.Error{Message: "Docker's chain drops it", Hint: "iptables -I DOCKER-USER"}
		}, "network links", Warn, "DOCKER-USER"},
		{"a controller is not delegated", func(f *Facts) { f.Groups.Controllers = []string{"memory"} }, "cgroups", Warn, "Delegate=cpu"},
		{"a bad host policy", func(f *Facts) {
			f.HostFile = &helper.HostFile{Path: "/etc/skillbox/host.yaml", Exists: true, Errors: []*helper.Error{{Message: "unknown key", File: "/etc/skillbox/host.yaml", Line: 3, Column: 1}}}
		}, "host policy", Fail, "host.yaml:3:1: unknown key"},
		{"somebody's host policy", func(f *Facts) { f.HostFile = &helper.HostFile{Path: "/etc/skillbox/host.yaml", Exists: true, UID: 7} }, "host policy", Warn, "chown root"},
		{"the box fails", func(f *Facts) { f.Box = BoxTry{Tried: true, Error: "no"} }, "a real box", Fail, "no"},
		{"a limit does not hold", func(f *Facts) { f.Holds[0] = BoxTry{Name: "timeout", Tried: true, Verdict: "exited"} }, "limits", Fail, "timeout did not hold"},
	} {
		t.Run(c.name, func(t *testing.T) {
			f := desktop()
			c.change(f)
			for _, got := range Judge(f) {
				if got.Status != OK && got.Name != c.finding {
					t.Errorf("also %s %s: %s", got.Status, got.Name, got.Detail)
				}
				if got.Status != OK && got.Remedy == "" {
					t.Errorf("%s has no remedy", got.Name)
				}
				if got.Name == c.finding && (got.Status != c.status || !strings.Contains(got.Detail+got.Remedy, c.says)) {
					t.Errorf("got %s %q, remedy %q; want %s with %q", got.Status, got.Detail, got.Remedy, c.status, c.says)
				}
			}
			if c.finding != "" && !slices.ContainsFunc(Judge(f), func(g Finding) bool { return g.Name == c.finding }) {
				t.Errorf("no finding %q", c.finding)
			}
		})
	}
}

func TestTheAppArmorProfileNamesBothProgramsWhereverTheyAre(t *testing.T) {
	f := desktop()
	if got, want := appArmorRemedy(f), `profile skillbox "/usr/local/bin/skillbox{,d}" flags=(unconfined) { userns, }`; !strings.Contains(got, want) {
		t.Errorf("got %s\nwant %s", got, want)
	}
	f.Programs[1].Path = "/usr/libexec/skillbox/skillboxd"
	if got, want := appArmorRemedy(f), `"/{usr/local/bin/skillbox,usr/libexec/skillbox/skillboxd}"`; !strings.Contains(got, want) {
		t.Errorf("got %s\nwant %s", got, want)
	}
}

func TestOnlyTheBoxDecidesWhetherAModeWorks(t *testing.T) {
	f := desktop()
	if r := Examine("v", f); !r.Works() || r.Modes["rootless"].State != Works || r.Modes["root"].State != NotTried {
		t.Errorf("%+v", r.Modes)
	}
	f.Box = BoxTry{}
	if r := Examine("v", f); r.Works() {
		t.Errorf("%+v", r.Modes)
	}
}

func TestColourIsOnlyInTheWord(t *testing.T) {
	text := Examine("v", desktop()).Text(true)
	if !strings.HasPrefix(text, "\x1b[32mok  \x1b[0m kernel: ") {
		t.Errorf("%q", text)
	}
	if strings.Contains(Examine("v", desktop()).Text(false), "\x1b") {
		t.Error("colour where none was asked for")
	}
}

func TestAppArmorsProfileOfThePackagesIsLoadedAndNotWrittenAnew(t *testing.T) {
	f := machines["ubuntu2404"]()
	f.Profile = true
	if got := appArmorRemedy(f); !strings.Contains(got, "userns,") {
		t.Errorf("programs elsewhere: %s", got)
	}
	f.Programs = programsIn("/usr/libexec/skillbox")
	f.Programs[0].Path = "/usr/bin/skillbox"
	if got := appArmorRemedy(f); got != "sudo apparmor_parser -r /etc/apparmor.d/skillboxd" {
		t.Error(got)
	}
	f.Profile = false
	if got := appArmorRemedy(f); !strings.Contains(got, "/{usr/bin/skillbox,usr/libexec/skillbox/skillboxd}") {
		t.Errorf("without the packages' profile: %s", got)
	}
}
