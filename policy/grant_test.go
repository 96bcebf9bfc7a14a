package policy

import (
	"cmp"
	"fmt"
	"math/rand/v2"
	"net/netip"
	"slices"
	"strings"
	"testing"
	"time"

	"skillbox/netpolicy/floor"
)

func named(t *testing.T, file, lines string) *Policy {
	t.Helper()
	p, err := Parse(file, []byte(body(lines)))
	if err != nil {
		t.Fatal(err)
	}
	return p
}

func TestEverythingAboveTheCeilingIsListedWithBothPositions(t *testing.T) {
	ceiling := named(t, "/etc/skillbox/host.yaml", `resources: {memory: 1Gi}
timeout: 1m
network: {egress: [{domains: ["*.example.com"]}]}
filesystem: {read: [{host: /srv, path: /srv}], write: []}
env: {pass: [LANG], secrets: []}
syscalls: {profile: default, allow: [], deny: [bpf]}
audit: {syscalls: security}
rootfs: {base: host, bundle: read-only}
enforcement: strict`)
	operator := named(t, "policy.yaml", `resources: {memory: 2Gi}
timeout: 2m
network: {egress: [{domains: [a.example.com]}, {domains: [example.com]}]}
filesystem: {read: [{host: /srv/a, path: /a}, {host: /opt, path: /b}], write: [{host: /srv/w, path: /w}]}
env: {pass: [LANG, USER], secrets: [KEY]}
syscalls: {profile: debug, allow: [bpf]}
audit: {syscalls: none}
rootfs: {base: "dir:/srv/base", bundle: copy-on-write}
enforcement: best-effort`)
	_, err := Grant(ceiling, operator, nil)
	want := `policy.yaml:2:21: resources.memory: 2Gi is not permitted on this host (/etc/skillbox/host.yaml:2:21 permits at most 1Gi)
policy.yaml:3:10: timeout: 2m is not permitted on this host (/etc/skillbox/host.yaml:3:10 permits at most 1m)
policy.yaml:4:48: network.egress[1]: {domains: [example.com], ports: [443]} is not permitted on this host (/etc/skillbox/host.yaml:4:11 permits no destination outside its own egress)
policy.yaml:5:47: filesystem.read[1]: /opt is not permitted on this host (/etc/skillbox/host.yaml:5:14 permits what lies beneath /srv)
policy.yaml:5:80: filesystem.write[0]: /srv/w is not permitted on this host (/etc/skillbox/host.yaml:5:48 permits nothing)
policy.yaml:6:20: env.pass[1]: USER is not permitted on this host (/etc/skillbox/host.yaml:6:7 permits LANG)
policy.yaml:6:37: env.secrets[0]: KEY is not permitted on this host (/etc/skillbox/host.yaml:6:21 permits nothing)
policy.yaml:7:21: syscalls.profile: debug is not permitted on this host (/etc/skillbox/host.yaml:7:21 permits at most default)
policy.yaml:7:36: syscalls.allow[0]: bpf is not permitted on this host (/etc/skillbox/host.yaml:7:30 permits nothing)
policy.yaml:7:36: syscalls.allow[0]: bpf is not permitted on this host (/etc/skillbox/host.yaml:7:41 permits no call that it denies)
policy.yaml:8:19: audit.syscalls: none is not permitted on this host (/etc/skillbox/host.yaml:8:19 permits at least security)
policy.yaml:9:16: rootfs.base: dir:/srv/base is not permitted on this host (/etc/skillbox/host.yaml:9:16 permits host)
policy.yaml:9:41: rootfs.bundle: copy-on-write is not permitted on this host (/etc/skillbox/host.yaml:9:30 permits at most read-only)
policy.yaml:10:14: enforcement: best-effort is not permitted on this host (/etc/skillbox/host.yaml:10:14 permits at most strict)`
	if err == nil || err.Error() != want {
		t.Errorf("got\n%v", err)
	}
}

func TestNeitherAWideCeilingNorAWidePolicyOpensTheFloor(t *testing.T) {
	wide := named(t, "host.yaml", "network: {egress: [{cidrs: [0.0.0.0/0], ports: [443], unsafe_wildcard: true}]}")
	private := named(t, "policy.yaml", "network:\n  egress:\n    - {cidrs: [8.8.8.0/24], ports: [443]}\n    - {cidrs: [10.0.0.0/8], ports: [443]}")
	_, err := Grant(wide, private, nil)
	want := "policy.yaml:5:7: network.egress[1]: {cidrs: [\"10.0.0.0/8\"], ports: [443]} is not permitted on this host " +
		"(host.yaml:2:11 permits of the floor only what it names, and 10.0.0.0/8 is private)"
	if err == nil || err.Error() != want {
		t.Errorf("got\n%v", err)
	}
	g, err := Grant(nil, wide, private)
	if err != nil {
		t.Fatal(err)
	}
	if got := fmt.Sprint(g.Policy.Network.Egress); got != `[{cidrs: ["8.8.8.0/24"], ports: [443]}]` {
		t.Errorf("the declaration got %s", got)
	}
	if len(g.Requested) != 1 || g.Requested[0].Asked != `{cidrs: ["10.0.0.0/8"], ports: [443]}` {
		t.Errorf("requested: %v", g.Requested)
	}
	both := named(t, "policy.yaml", "network: {egress: [{cidrs: [0.0.0.0/0], ports: [443], unsafe_wildcard: true}, {cidrs: [10.0.0.0/8], ports: [443]}]}")
	if g, err := Grant(nil, both, both); err != nil || g.Policy.Digest() != both.Digest() {
		t.Errorf("a policy that declares itself is not granted whole: %v\n%s", err, g.Policy.YAML())
	}
}

func TestADefaultAboveTheCeilingIsLoweredAndNoted(t *testing.T) {
	ceiling := named(t, "host.yaml", "resources: {memory: 64Mi, pids: 1000}\ntimeout: 5s\naudit: {files: writes}\nrootfs: {base: \"dir:/srv/base\"}\nsyscalls: {profile: strict, deny: [bpf]}\nnetwork: {deny: [{domains: [a.org]}]}")
	g, err := Grant(ceiling, named(t, "policy.yaml", "timeout: 1s"), nil)
	if err != nil {
		t.Fatal(err)
	}
	want := []string{
		"default: resources.memory asked 256Mi, got 64Mi: the ceiling at host.yaml:2:21 permits no more",
		"default: syscalls.profile asked default, got strict: the ceiling at host.yaml:6:21 permits no more",
		"default: audit.files asked none, got writes: the ceiling at host.yaml:4:16 permits no less",
		"default: rootfs.base asked host, got dir:/srv/base: the ceiling at host.yaml:5:16 permits no other",
	}
	var got []string
	for _, n := range g.Clamped {
		got = append(got, n.String())
	}
	if !slices.Equal(got, want) {
		t.Errorf("got\n%s", strings.Join(got, "\n"))
	}
	p := g.Policy
	if p.Resources.Memory != 64<<20 || p.Resources.Pids != 64 || p.Timeout != time.Second || p.Audit.Files != "writes" ||
		p.Rootfs.Base != "dir:/srv/base" || !slices.Equal(p.Syscalls.Deny, []string{"bpf"}) || len(p.Network.Deny) != 1 {
		t.Errorf("effective:\n%s", p.YAML())
	}
	for field, want := range map[string]string{"resources.memory": "host.yaml:2:21", "resources.pids": "host.yaml:2:33", "timeout": "policy.yaml:2:10", "resources.cpu": ""} {
		if at := p.Position(field).String(); at != want || p.Named(field) != (want != "") {
			t.Errorf("%s is at %q", field, at)
		}
	}
}

func TestACeilingBoundsWhatHasNoDefault(t *testing.T) {
	ceiling := named(t, "host.yaml", "resources: {io_read: 10Mi, io_write: 5Mi, io_weight: 50, output_overflow: kill}")
	g, err := Grant(ceiling, named(t, "policy.yaml", "resources: {io_write: 1Mi}"), named(t, "SKILL.md", "resources: {io_read: 20Mi, io_weight: 10}"))
	if err != nil {
		t.Fatal(err)
	}
	if r := g.Policy.Resources; r.IORead != 10<<20 || r.IOWrite != 1<<20 || r.IOWeight != 10 || r.OutputOverflow != "kill" {
		t.Errorf("effective:\n%s", g.Policy.YAML())
	}
	if at := g.Policy.Position("resources.io_read").String(); at != "host.yaml:2:22" {
		t.Errorf("io_read is named at %q", at)
	}
	if got := fmt.Sprint(g.Clamped); got != "[default: resources.io_read asked no value, got 10Mi: the ceiling at host.yaml:2:22 permits no more "+
		"default: resources.io_weight asked no value, got 50: the ceiling at host.yaml:2:54 permits no more]" {
		t.Errorf("clamped: %s", got)
	}
	for _, beyond := range []string{"io_read: 11Mi", "io_write: 6Mi", "io_weight: 51", "output_overflow: truncate"} {
		if _, err := Grant(ceiling, named(t, "policy.yaml", "resources: {"+beyond+"}"), nil); err == nil || !strings.Contains(err.Error(), "is not permitted on this host (host.yaml:2:") {
			t.Errorf("%s: %v", beyond, err)
		}
	}
	// What nobody names stays unset, and a wide ceiling gives nobody more than the kernel's 100.
	for _, wide := range []*Policy{nil, named(t, "host.yaml", "resources: {io_weight: 200, output_overflow: truncate}")} {
		g, err := Grant(wide, nil, nil)
		if err != nil || g.Policy.Digest() != Default().Digest() || len(g.Clamped) > 0 {
			t.Errorf("%v, clamped %v", err, g.Clamped)
		}
	}
	// A declaration narrows what the operator left unset; what it would widen is a request.
	g, err = Grant(nil, nil, named(t, "SKILL.md", "resources: {io_read: 1Mi, io_weight: 500, output_overflow: truncate}"))
	if err != nil || g.Policy.Resources.IORead != 1<<20 || g.Policy.Resources.IOWeight != 0 || g.Policy.Resources.OutputOverflow != "kill" ||
		len(g.Narrowed) != 1 || len(g.Requested) != 2 || g.Policy.Named("resources.io_read") {
		t.Errorf("%v\n%s", err, g.Policy.YAML())
	}
	unset := Default()
	unset.Resources.IORead = -1
	unset.Set("resources.io_read", "--io-read")
	if _, err := Grant(nil, unset, nil); err == nil {
		t.Error("a negative rate was granted")
	}
}

func TestWhatTheCeilingDoesNotNameItDoesNotRestrict(t *testing.T) {
	operator := named(t, "policy.yaml", "resources: {memory: 16Ti}\nnetwork: {egress: [{domains: [a.org]}]}\nfilesystem: {write: [{host: /srv, path: /w}]}\nenv: {secrets: [K]}\nsyscalls: {profile: debug, allow: [bpf]}")
	for _, ceiling := range []*Policy{nil, Default(), named(t, "host.yaml", "timeout: 1h")} {
		g, err := Grant(ceiling, operator, nil)
		if err != nil || g.Policy.Digest() != operator.Digest() {
			t.Errorf("%v", err)
		}
	}
	for _, lines := range []string{"command: [sh]", "env: {set: {A: b}}"} {
		if _, err := Grant(named(t, "host.yaml", lines), nil, nil); err == nil || !strings.Contains(err.Error(), "a ceiling cannot hold it") {
			t.Errorf("a ceiling with %s: %v", lines, err)
		}
	}
}

func TestTheDeclarationNarrows(t *testing.T) {
	operator := named(t, "policy.yaml", `network: {egress: [{domains: ["*.example.com", b.org], ports: ["80-90", 443]}, {cidrs: [10.0.0.0/8], except: [10.9.0.0/16], ports: [5432]}]}
filesystem: {read: [{host: /srv/a, path: /a}, {host: /srv/b, path: /b}], write: [{host: /srv/w, path: /w}, {host: /srv/v, path: /v}]}
env: {pass: [LANG, TERM], secrets: [KEY]}
syscalls: {allow: [ptrace, bpf]}
rootfs: {bundle: copy-on-write}
timeout: 60s`)
	declared := named(t, "SKILL.md", `network: {egress: [{domains: [api.example.com], ports: [443, 85]}, {cidrs: [10.8.0.0/15], ports: [5432]}]}
filesystem: {read: [{host: /x, path: /a}, {host: /y, path: /w}], write: [{host: /z, path: /v}]}
env: {pass: [LANG], secrets: []}
syscalls: {allow: [ptrace], deny: [bpf, clone3]}
rootfs: {bundle: read-only}
command: [python3, main.py]
timeout: 5s`)
	g, err := Grant(nil, operator, declared)
	if err != nil {
		t.Fatal(err)
	}
	want := named(t, "want", `network: {egress: [{domains: [api.example.com], ports: [85, 443]}, {cidrs: [10.8.0.0/15], except: [10.9.0.0/16], ports: [5432]}]}
filesystem: {read: [{host: /srv/a, path: /a}, {host: /srv/w, path: /w}], write: [{host: /srv/v, path: /v}]}
env: {pass: [LANG]}
syscalls: {allow: [ptrace], deny: [bpf, clone3]}
command: [python3, main.py]
timeout: 5s`)
	if string(g.Policy.render(false)) != string(want.render(false)) {
		t.Errorf("effective:\n%s", g.Policy.YAML())
	}
	if g.Policy.Network.Egress[0].At.String() != "policy.yaml:2:20" {
		t.Errorf("the rule is said to be at %s", g.Policy.Network.Egress[0].At)
	}
	for _, n := range g.Narrowed {
		if !strings.HasPrefix(n.Source, "policy.yaml:") || !strings.Contains(n.Why, "SKILL.md:") {
			t.Errorf("%v", n)
		}
	}
	if !g.Policy.Named("timeout") || g.Policy.Named("resources.memory") {
		t.Error("naming is not the operator's")
	}
}

func TestASensitivePathNeedsADangerousCeilingToo(t *testing.T) {
	operator := named(t, "policy.yaml", "filesystem: {read: [{host: /home/u/.ssh, path: /keys, dangerous: true}]}")
	if _, err := Grant(named(t, "h", "filesystem: {read: [{host: /srv, path: /h}]}"), operator, nil); err == nil {
		t.Error("outside the ceiling")
	}
	if _, err := Grant(named(t, "h", "filesystem: {write: [{host: /home/u/x, path: /h}]}"), operator, nil); err != nil {
		t.Error(err)
	}
	if _, err := Grant(named(t, "h", "filesystem: {read: [{host: /home/u, path: /h, dangerous: true}]}"), operator, nil); err != nil {
		t.Error(err)
	}
}

func TestTheSkillsOwnWishForWarmBoxesHoldsWhereTheOperatorIsSilent(t *testing.T) {
	for _, c := range []struct {
		ceiling, operator, declared string
		want                        Warm
		requested                   string
	}{
		{"", "", "", Warm{}, ""},
		{"", "", "warm: {ready: 2, preload: true}", Warm{2, true}, ""},
		{"", "warm: {ready: 3}", "warm: {ready: 2, preload: true}", Warm{3, true}, "warm.ready asked 2, got 3"},
		{"", "warm: {ready: 1}", "warm: {ready: 2, preload: true}", Warm{1, true}, "warm.ready asked 2, got 1"},
		{"", "warm: {preload: false}", "warm: {ready: 2, preload: true}", Warm{2, false}, "warm.preload asked true, got false"},
		{"", "warm: {ready: 8, preload: true}", "", Warm{8, true}, ""},
		{"warm: {ready: 1, preload: false}", "", "warm: {ready: 2, preload: true}", Warm{1, false}, "warm.ready asked 2, got 1"},
		{"warm: {ready: 1, preload: false}", "", "warm: {ready: 2, preload: true}", Warm{1, false}, "the ceiling at h:2:27 permits no more"},
		{"warm: {ready: 4, preload: true}", "", "warm: {ready: 2}", Warm{2, false}, ""},
		{"warm: {ready: 4, preload: true}", "warm: {preload: true}", "", Warm{0, true}, ""},
	} {
		g, err := Grant(named(t, "h", c.ceiling), named(t, "p", c.operator), named(t, "s", c.declared))
		if err != nil {
			t.Fatal(err)
		}
		if g.Policy.Warm != c.want || c.requested == "" && len(g.Requested) > 0 || !strings.Contains(fmt.Sprint(g.Requested), c.requested) || len(g.Clamped) > 0 {
			t.Errorf("%q, %q, %q: %+v, requested %v, clamped %v", c.ceiling, c.operator, c.declared, g.Policy.Warm, g.Requested, g.Clamped)
		}
	}
	ceiling := named(t, "host.yaml", "warm: {ready: 2, preload: false}")
	for asked, want := range map[string]string{
		"warm: {ready: 3}":      "warm.ready: 3 is not permitted on this host (host.yaml:2:15 permits at most 2)",
		"warm: {preload: true}": "warm.preload: true is not permitted on this host (host.yaml:2:27 permits at most false)",
	} {
		if _, err := Grant(ceiling, named(t, "p", asked), nil); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v", asked, err)
		}
	}
	for _, wrong := range []string{"warm: {ready: 9}", "warm: {ready: -1}", "warm: {ready: many}", "warm: {preload: 1}", "warm: yes", "warm: {preloaded: true}"} {
		if _, err := Parse("p", []byte(body(wrong))); err == nil {
			t.Errorf("%s is accepted", wrong)
		}
	}
}

// pick returns a random policy that names some of everything.
func pick(t *testing.T, r *rand.Rand, file string) *Policy {
	some := func(lines ...string) string { return lines[r.IntN(len(lines))] }
	rule := func() string {
		ports := some("", ", ports: [80]", ", ports: [443, 80]", `, ports: ["1-100"]`, `, ports: ["53/udp", 443]`)
		if r.IntN(2) == 0 {
			return "{domains: [" + some("a.org", `"*.a.org"`, "b.a.org", `"*.b.a.org", c.org`, `"*.c.org", a.org`) + "]" + ports + "}"
		}
		return "{cidrs: [" + some("10.0.0.0/8", "10.1.0.0/16", "10.1.0.0/16, 11.0.0.0/8", "10.0.0.0/8], except: [10.1.0.0/16", `"fd00::/16"`, "100.0.0.0/8", "100.64.0.0/16, 10.0.0.0/8", "100.100.100.200/32") + "]" + some(", ports: [80]", `, ports: ["1-100"]`, `, ports: ["53/udp", 443]`) + "}"
	}
	rules := func() string {
		var all []string
		for range r.IntN(4) {
			all = append(all, rule())
		}
		return "[" + strings.Join(all, ", ") + "]"
	}
	subset := func(names ...string) string {
		return "[" + strings.Join(slices.DeleteFunc(names, func(string) bool { return r.IntN(2) == 0 }), ", ") + "]"
	}
	var b strings.Builder
	add := func(line string) {
		if r.IntN(3) > 0 {
			b.WriteString(line + "\n")
		}
	}
	add(fmt.Sprintf("network: {egress: %s, deny: %s}", rules(), rules()))
	add("filesystem: {read: " + subset("{host: /srv, path: /a}", "{host: /opt/x, path: /b}") + ", write: " + subset("{host: /mnt/w, path: /c}", "{host: /mnt/w/x, path: /d}") + "}")
	add("env: {pass: " + subset("A", "B", "C") + ", secrets: " + subset("K", "L") + "}")
	add(fmt.Sprintf("resources: {memory: %dMi, pids: %d%s%s}", 4+r.IntN(500), 1+r.IntN(200), some("", ", io_read: 1Mi", ", io_read: 2Mi"), some("", ", io_weight: 50", ", io_weight: 200")))
	add("syscalls: {profile: " + some("strict", "default", "debug") + ", allow: " + subset("bpf", "ptrace") + ", deny: " + subset("kill", "clone") + "}")
	add("audit: {files: " + some("none", "writes", "all") + "}")
	add("timeout: " + some("1s", "30s", "1m"))
	add("warm: {ready: " + some("1", "2", "2", "2") + some("", "", ", preload: true") + "}")
	return named(t, file, b.String())
}

// reaches is the order of decision, spelt out for one connection.
func reaches(n Network, name string, a netip.Addr, port uint16, proto string) bool {
	in := func(ps []netip.Prefix) bool {
		return slices.ContainsFunc(ps, func(p netip.Prefix) bool { return a.IsValid() && p.Contains(a) })
	}
	match := func(r Rule, opens func(netip.Prefix) bool) bool {
		on := slices.ContainsFunc(r.ports(), func(p Port) bool { return p.Proto == proto && p.From <= port && port <= p.To })
		byName := slices.ContainsFunc(r.Domains, func(d string) bool { return name != "" && MatchName(d, name) })
		return on && (byName || slices.ContainsFunc(r.CIDRs, opens) && !in(r.Except))
	}
	denied := func(r Rule) bool { return match(r, func(p netip.Prefix) bool { return in([]netip.Prefix{p}) }) }
	allowed := func(r Rule) bool {
		return match(r, func(p netip.Prefix) bool { return in([]netip.Prefix{p}) && !in(floor.Held(p)) })
	}
	return !slices.ContainsFunc(n.Deny, denied) && slices.ContainsFunc(n.Egress, allowed)
}

func TestWhatIsGrantedIsNeverWiderThanAnyoneSaid(t *testing.T) {
	r := rand.New(rand.NewPCG(1, 2))
	granted := 0
	for range 1000 {
		ceiling, operator, declared := pick(t, r, "host.yaml"), pick(t, r, "policy.yaml"), pick(t, r, "SKILL.md")
		before := ceiling.Digest() + operator.Digest() + declared.Digest()
		g, err := Grant(ceiling, operator, declared)
		if before != ceiling.Digest()+operator.Digest()+declared.Digest() {
			t.Fatal("Grant changed an argument")
		}
		if err != nil {
			continue
		}
		granted++
		if again, err := Grant(ceiling, g.Policy, declared); err != nil || again.Policy.Digest() != g.Policy.Digest() {
			t.Fatalf("granting twice is not granting once: %v\n%s", err, g.Policy.YAML())
		}
		for who, bound := range map[string]*Policy{"ceiling": ceiling, "operator": operator, "declared": declared} {
			if why := wider(g.Policy, bound, who); why != "" {
				t.Fatalf("wider than the %s: %s\nceiling:\n%s\noperator:\n%s\ndeclared:\n%s\ngranted:\n%s", who, why, ceiling.YAML(), operator.YAML(), declared.YAML(), g.Policy.YAML())
			}
		}
	}
	if granted < 100 {
		t.Errorf("only %d of the random policies were granted", granted)
	}
}

// wider says in what p exceeds a bound; of all but the operator only what they name.
func wider(p, bound *Policy, who string) string {
	counts := func(field string) bool { return who == "operator" || bound.Named(field) }
	if counts("network.egress") {
		for _, name := range []string{"a.org", "b.a.org", "x.b.a.org", "c.org", "x.c.org"} {
			for _, port := range []uint16{1, 53, 80, 100, 443} {
				for _, proto := range []string{"tcp", "udp"} {
					if reaches(p.Network, name, netip.Addr{}, port, proto) && !reaches(bound.Network, name, netip.Addr{}, port, proto) {
						return fmt.Sprint(name, " ", port, proto)
					}
				}
			}
		}
		for _, a := range []string{"10.0.0.0", "10.1.2.3", "10.2.0.0", "10.255.255.255", "11.0.0.1", "100.0.0.1", "100.64.0.1", "100.100.100.200", "fd00::1"} {
			for _, port := range []uint16{1, 53, 80, 443} {
				addr := netip.MustParseAddr(a)
				if reaches(p.Network, "", addr, port, "tcp") && !reaches(bound.Network, "", addr, port, "tcp") {
					return fmt.Sprint(a, " ", port)
				}
			}
		}
	}
	for field, lists := range map[string][2][]string{
		"env.pass": {p.Env.Pass, bound.Env.Pass}, "env.secrets": {p.Env.Secrets, bound.Env.Secrets}, "syscalls.allow": {p.Syscalls.Allow, bound.Syscalls.Allow},
		"syscalls.deny": {bound.Syscalls.Deny, p.Syscalls.Deny},
	} {
		for _, s := range lists[0] {
			if counts(field) && !slices.Contains(lists[1], s) {
				return field + " " + s
			}
		}
	}
	for _, b := range p.Filesystem.Write {
		if counts("filesystem.write") && !slices.ContainsFunc(bound.Filesystem.Write, func(c Bind) bool { return beneath(c.Host, b.Host) }) {
			return "write " + b.Host
		}
	}
	switch {
	case counts("resources.memory") && p.Resources.Memory > bound.Resources.Memory:
		return "memory"
	case counts("resources.pids") && p.Resources.Pids > bound.Resources.Pids:
		return "pids"
	case counts("resources.io_read") && bound.Resources.IORead != 0 && (p.Resources.IORead == 0 || p.Resources.IORead > bound.Resources.IORead):
		return "io_read"
	case counts("resources.io_weight") && bound.Resources.IOWeight != 0 && cmp.Or(p.Resources.IOWeight, 100) > bound.Resources.IOWeight:
		return "io_weight"
	case counts("timeout") && p.Timeout > bound.Timeout:
		return "timeout"
	case who != "declared" && counts("audit.files") && p.Audit.Files == "none" && bound.Audit.Files != "none":
		return "audit"
	case counts("syscalls.profile") && p.Syscalls.Profile == "debug" && bound.Syscalls.Profile != "debug":
		return "profile"
	}
	return ""
}

func BenchmarkGrant(b *testing.B) {
	p, _ := Parse("policy.yaml", []byte(issue))
	for b.Loop() {
		if _, err := Grant(p, p, p); err == nil {
			b.Fatal("a ceiling with a command was accepted")
		}
		if _, err := Grant(nil, p, p); err != nil {
			b.Fatal(err)
		}
	}
}

func BenchmarkParse(b *testing.B) {
	for b.Loop() {
		if _, err := Parse("policy.yaml", []byte(issue)); err != nil {
			b.Fatal(err)
		}
	}
}

func TestAFileThatIsAlmostTooLongCanBeGranted(t *testing.T) {
	text := "version: 1\nnetwork:\n  egress:\n"
	for i := 0; len(text) < maxFile-10_000; i++ {
		text += "  - {ports: [443], cidrs: ["
		for j := range 500 {
			text += fmt.Sprintf("20.%d.%d.%d/32,", i, j>>8, j&255)
		}
		text += "]}\n"
	}
	if _, err := Grant(nil, parse(t, text), nil); err != nil {
		t.Errorf("%.200v", err)
	}
}

func TestAPresumedValueIsADefault(t *testing.T) {
	p, err := Parse("p", []byte("version: 1\ntimeout: 5s\n"))
	if err != nil {
		t.Fatal(err)
	}
	for field, text := range map[string]string{"timeout": "24h", "resources.output": "64Gi"} {
		if err := p.Presume(field, text); err != nil {
			t.Fatal(err)
		}
	}
	if p.Timeout != 5*time.Second || p.Resources.Output != 64<<30 || p.Named("resources.output") {
		t.Errorf("timeout %v, output %d", p.Timeout, p.Resources.Output)
	}
	ceiling, err := Parse("c", []byte("version: 1\nresources: {output: 1Mi}\n"))
	if err != nil {
		t.Fatal(err)
	}
	g, err := Grant(ceiling, p, nil)
	if err != nil || g.Policy.Resources.Output != 1<<20 || len(g.Clamped) != 1 {
		t.Errorf("a ceiling does not lower it: %v, %+v", err, g)
	}
	if err := p.Presume("command", "x"); err == nil {
		t.Error("command takes more than one value")
	}
}
