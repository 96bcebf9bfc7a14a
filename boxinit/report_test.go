package boxinit

import (
	"maps"
	"strings"
	"testing"
)

func holding() (Report, Expect) {
	outside, inside := map[string]string{}, map[string]string{}
	for _, name := range namespaceNames {
		outside[name], inside[name] = name+":[1]", name+":[2]"
	}
	caps := map[string]string{}
	for _, set := range []string{"CapInh", "CapPrm", "CapEff", "CapBnd", "CapAmb"} {
		caps[set] = "0000000000000000"
	}
	r := Report{
		Version: Version, UID: 1000, GID: 1000, Caps: caps, NoNewPrivs: "1", Seccomp: []string{"2", "2"}, Namespaces: inside,
		Mounts: []Mount{
			{Path: "/", ReadOnly: true, NoSuid: true, NoDev: true},
			{Path: "/tmp", NoSuid: true, NoDev: true},
			{Path: "/dev/null", ReadOnly: true, NoSuid: true},
			{Path: "/proc/kcore", ReadOnly: true},
		},
		RootWrite: "EROFS", Interfaces: []string{"lo"}, Cgroups: []string{"/"}, Hostname: "box",
		Refused: map[string]string{"tcp4": "ECONNREFUSED", "udp4": "EPERM", "tcp6": "ECONNREFUSED", "udp6": "EPERM"},
	}
	return r, Expect{
		UID: 1000, GID: 1000, Namespaces: outside, Seccomp: true, Writable: []string{"/tmp"}, Devices: []string{"/dev/null"},
		Masked: []string{"/proc/kcore"}, Interfaces: []string{"lo"}, Hostname: "box", Refused: true,
	}
}

func TestAReportThatHoldsHasNoProblems(t *testing.T) {
	r, e := holding()
	if problems := r.Check(e); len(problems) != 0 {
		t.Errorf("got %q", problems)
	}
	for _, off := range []string{"EAFNOSUPPORT", "EADDRNOTAVAIL", "ENETUNREACH"} { // the machine's IPv6
		r.Refused["tcp6"], r.Refused["udp6"] = off, off
		if problems := r.Check(e); len(problems) != 0 {
			t.Errorf("%s: got %q", off, problems)
		}
	}
	r.Refused, e.Refused = nil, false
	if problems := r.Check(e); len(problems) != 0 {
		t.Errorf("without a way out: got %q", problems)
	}
}

func TestEachLayerThatDoesNotHoldIsAProblem(t *testing.T) {
	cases := map[string]struct {
		spoil func(r *Report)
		want  string
	}{
		"another version":        {func(r *Report) { r.Version++ }, "speaks version"},
		"an error":               {func(r *Report) { r.Error = "no filter" }, "no filter"},
		"another uid":            {func(r *Report) { r.UID = 0 }, "runs as uid 0"},
		"another gid":            {func(r *Report) { r.GID = 0 }, "gid 0"},
		"no_new_privs off":       {func(r *Report) { r.NoNewPrivs = "0" }, "no_new_privs"},
		"no_new_privs unknown":   {func(r *Report) { r.NoNewPrivs = "" }, "no_new_privs"},
		"a thread without":       {func(r *Report) { r.Seccomp = []string{"2", "0"} }, "seccomp mode"},
		"no thread":              {func(r *Report) { r.Seccomp = nil }, "no thread"},
		"a writable root":        {func(r *Report) { r.Mounts[0].ReadOnly = false }, "mount / is writable"},
		"a root with set-id":     {func(r *Report) { r.Mounts[0].NoSuid = false }, "set-user-id"},
		"a root with devices":    {func(r *Report) { r.Mounts[0].NoDev = false }, "device nodes"},
		"a writable mask":        {func(r *Report) { r.Mounts[3].ReadOnly = false }, "/proc/kcore is writable"},
		"a mount covered by one": {func(r *Report) { r.Mounts = append(r.Mounts, Mount{Path: "/", NoSuid: true, NoDev: true}) }, "mount / is writable"},
		"a mount not planned":    {func(r *Report) { r.Mounts = append(r.Mounts, Mount{Path: "/x", NoSuid: true, NoDev: true}) }, "mount /x is writable"},
		"no mounts":              {func(r *Report) { r.Mounts = nil }, "no mounts"},
		"a root that took it":    {func(r *Report) { r.RootWrite = "written" }, "writing to /"},
		"a root that refused":    {func(r *Report) { r.RootWrite = "EACCES" }, "writing to /"},
		"an open file":           {func(r *Report) { r.Files = []string{"5 → /etc/shadow"} }, "descriptors are open"},
		"an interface":           {func(r *Report) { r.Interfaces = append(r.Interfaces, "eth0") }, "eth0"},
		"a cgroup path":          {func(r *Report) { r.Cgroups = []string{"/user.slice"} }, "cgroup path"},
		"another host name":      {func(r *Report) { r.Hostname = "host" }, "host name"},
	}
	for _, set := range []string{"CapInh", "CapPrm", "CapEff", "CapBnd", "CapAmb"} {
		cases[set] = struct {
			spoil func(r *Report)
			want  string
		}{func(r *Report) { r.Caps[set] = "0000000000000400" }, set}
		cases["no "+set] = struct {
			spoil func(r *Report)
			want  string
		}{func(r *Report) { delete(r.Caps, set) }, set}
	}
	for _, name := range namespaceNames {
		cases[name] = struct {
			spoil func(r *Report)
			want  string
		}{func(r *Report) { r.Namespaces[name] = name + ":[1]" }, name + " namespace"}
		cases["no "+name] = struct {
			spoil func(r *Report)
			want  string
		}{func(r *Report) { delete(r.Namespaces, name) }, name + " namespace"}
	}
	// That there is no way to an IPv4 address is no refusal: it may change. Nor is the answer that belongs to the other protocol.
	for what, rest := range map[string][]string{
		"tcp4": {"ENETUNREACH", "EADDRNOTAVAIL", "EPERM"}, "udp4": {"ENETUNREACH", "EADDRNOTAVAIL", "ECONNREFUSED"}, "tcp6": {"EPERM"}, "udp6": {"ECONNREFUSED"},
	} {
		for _, answer := range append(rest, "reached", "silence", "ETIMEDOUT", "EHOSTUNREACH", "ECONNRESET", "EACCES", "EINVAL", "") {
			cases[what+" answered "+answer] = struct {
				spoil func(r *Report)
				want  string
			}{func(r *Report) { r.Refused[what] = answer }, "not in force: " + what}
		}
	}
	for name, c := range cases {
		t.Run(name, func(t *testing.T) {
			r, e := holding()
			r.Namespaces, r.Caps = maps.Clone(r.Namespaces), maps.Clone(r.Caps)
			c.spoil(&r)
			problems := r.Check(e)
			if len(problems) != 1 || !strings.Contains(problems[0], c.want) {
				t.Errorf("got %q, want one with %q", problems, c.want)
			}
		})
	}
}
