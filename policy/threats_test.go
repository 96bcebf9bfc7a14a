package policy

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"go.yaml.in/yaml/v4"
)

// refused demands that text is refused with an error that begins with want.
func refused(t *testing.T, text, want string) {
	t.Helper()
	p, err := Parse("policy.yaml", []byte(text))
	switch {
	case err == nil:
		t.Errorf("accepted:\n%s", p.YAML())
	case !strings.Contains("\n"+err.Error(), "\npolicy.yaml:"+want):
		t.Errorf("%q:\n got %v\nwant policy.yaml:%s", text, err, want)
	}
}

func TestThreat217YamlAliasBomb(t *testing.T) {
	var b strings.Builder
	b.WriteString("version: 1\na0: &a0 [x, x, x, x, x, x, x, x, x]\n")
	for i := 1; i < 10; i++ {
		fmt.Fprintf(&b, "a%d: &a%d [%s]\n", i, i, strings.Repeat(fmt.Sprintf("*a%d, ", i-1), 9))
	}
	start := time.Now()
	refused(t, b.String(), `2:5: anchor &"a0" is not allowed (write the value out where it is used)`)
	if d := time.Since(start); d > 100*time.Millisecond {
		t.Errorf("took %v", d)
	}
	refused(t, body("command: [&x sh]\nname: *x"), "3:7: alias *\"x\" is not allowed")
	refused(t, body(strings.Repeat("[", 200)+strings.Repeat("]", 200)), "3:1: not YAML")
	refused(t, body("name: "+strings.Repeat("[", 40)+strings.Repeat("]", 40)), "2:38: nested more than 32 deep")
	refused(t, body("name: "+strings.Repeat("[", 100_000)), "")
	refused(t, body("# "+strings.Repeat("x", 256<<10)), "1:1: the file is larger than 256 KiB")
	if _, err := ParseDeclared("SKILL.md", &yaml.Node{Kind: yaml.AliasNode, Value: "x"}); err == nil {
		t.Error("an alias was accepted as a declaration")
	}
}

func TestThreat219UnknownKeys(t *testing.T) {
	refused(t, body("newtork: none"), `2:1: unknown key "newtork" (did you mean network?)`)
	refused(t, body("readonly_rootfs: true"), `2:1: unknown key "readonly_rootfs" (did you mean rootfs?)`)
	refused(t, body("resources:\n  memroy: 1Gi"), `3:3: resources: unknown key "memroy" (did you mean memory?)`)
	refused(t, body("memory: 1Gi"), `2:1: unknown key "memory" (did you mean resources.memory?)`)
	refused(t, body("filesystem: {read: [{hots: /a}]}"), `2:22: filesystem.read[0]: unknown key "hots" (did you mean host?)`)
	refused(t, body("audit: {xyzzy: 1}"), `2:9: audit: unknown key "xyzzy" (valid in audit: syscalls, files)`)
	refused(t, body("network: {deny: [{domains: [a.org], unsafe_wildcard: true}]}"), `2:37: network.deny[0]: unknown key "unsafe_wildcard"`)
	refused(t, body("Timeout: 30s"), `2:1: unknown key "Timeout" (did you mean timeout?)`)
	refused(t, body("\"a\\e[31m\": 1"), `2:1: unknown key "a\x1b[31m"`)
}

func TestThreat220DuplicateKeys(t *testing.T) {
	refused(t, body("network: {egress: []}\nnetwork: {egress: []}"), `3:1: key "network" is named twice, first in line 2`)
	refused(t, body("env: {set: {A: x, \"A\": y}}"), `2:19: key "A" is named twice`)
	refused(t, body("filesystem: {read: [{host: /a, host: /b}]}"), `2:32: key "host" is named twice`)
	refused(t, body("env: {pass: [A, A]}"), "2:17: env.pass[1]: A is listed twice")
}

func TestThreat222TagsMergeMultidoc(t *testing.T) {
	refused(t, body("name: !!binary aGk="), `2:7: tag "!!binary" is not allowed`)
	refused(t, body("name: !!python/object:os.system x"), `2:7: tag "!!python/object:os.system" is not allowed`)
	refused(t, body("name: !!str x"), `2:7: tag "!!str" is not allowed`)
	refused(t, body("name: ! x"), `2:7: tag "!" is not allowed`)
	refused(t, "%TAG ! tag:yaml.org,2002:\n---\nversion: !int 1\n", "3:10: tag")
	refused(t, body("resources: {<<: {memory: 1Gi}}"), "2:13: merge key << is not allowed")
	refused(t, body("\"<<\": {memory: 1Gi}"), `2:1: unknown key "<<"`)
	refused(t, body("---\nversion: 1"), "2:1: a second document begins here")
	refused(t, body("...\nnetwork: {}"), "3:1: a second document begins here")
	refused(t, "\uFEFFversion: 1\n", "1:1: a byte order mark is not allowed")
	refused(t, "\xFF\xFEv\x00", "1:1: the file is UTF-16")
	refused(t, "v\x00e\x00", "1:2: a NUL byte is not allowed")
	refused(t, body("name: é\xFF"), "2:8: the file is not valid UTF-8")
	refused(t, body("name: \"a\\0\""), "2:7: a NUL character is not allowed")
	refused(t, body("name: a\u2028b"), "2:8: a control character is not allowed")
	refused(t, "version: 1\rname: x\n", "1:11: a carriage return without a line feed")
	refused(t, body("env:\n\tset: {A: b}"), "3:1: not YAML: found character that cannot start any token while scanning for the next token (indent with spaces")
	refused(t, body("? [a, b]\n: c"), "2:3: a key must be one word")
	refused(t, "", "1:1: the file holds no policy")
	refused(t, "# nothing\n", "1:1: the file holds no policy")
	refused(t, "- version\n", "1:1: must be a mapping of keys, not a list")
	if p := parse(t, "version: 1\r\ntimeout: 5s\r\n"); p.Timeout != 5*time.Second {
		t.Error("CRLF is not a line end")
	}
}

func TestThreat223Interpolation(t *testing.T) {
	for _, path := range []string{"${HOME}/x", "/home/$USER", "/$(id)", "/`id`", "~", "~/.ssh", "/srv/%h", "/srv/{{ user }}", "/srv/*", "/srv/%%", "/a?"} {
		text := body(fmt.Sprintf("filesystem: {read: [{host: %q, path: /data}]}", path))
		refused(t, text, "2:28: filesystem.read[0].host: ")
		if _, err := Parse("p", []byte(text)); !strings.Contains(err.Error(), "not expanded") {
			t.Errorf("%s: %v", path, err)
		}
		refused(t, body(fmt.Sprintf("filesystem: {read: [{host: /srv, path: %q}]}", path)), "2:40: filesystem.read[0].path: ")
		refused(t, body(fmt.Sprintf("rootfs: {base: %q}", "dir:"+path)), "2:16: rootfs.base: ")
	}
	refused(t, body(`network: {egress: [{domains: ["${HOST}"]}]}`), "2:31: network.egress[0].domains[0]: ")
	refused(t, body(`env: {pass: ["${X}"]}`), "2:14: env.pass[0]: ")
	p := parse(t, body("env: {set: {A: \"${HOME} $(id) ~ %h\"}}\ncommand: [echo, \"$HOME\"]"))
	if p.Env.Set["A"] != "${HOME} $(id) ~ %h" || p.Command[1] != "$HOME" {
		t.Error("a value is not literal")
	}
}

func TestThreat225ForbiddenTargets(t *testing.T) {
	bind := func(host, path, more string) string {
		return body(fmt.Sprintf("filesystem:\n  read:\n  - {host: %q, path: %q%s}", host, path, more))
	}
	for _, target := range []string{
		"/", "/proc", "/proc/self", "/sys", "/dev", "/dev/shm", "/run", "/run/secrets", "/etc", "/etc/passwd", "/etc/ssl", "/usr",
		"/usr/lib/x", "/bin", "/lib64", "/skill", "/skill/main.py", "/tmp", "/tmp/x", "/input", "/output/x", "/home/skill", "/root/.ssh", "/var/run/x", "/var",
	} {
		for _, more := range []string{"", ", dangerous: true"} {
			if _, err := Parse("p", []byte(bind("/srv/x", target, more))); err == nil || !strings.Contains(err.Error(), "is taken") {
				t.Errorf("target %s%s: %v", target, more, err)
			}
		}
	}
	hard := []string{
		"/", "/proc", "/proc/1/root", "/sys/fs/cgroup", "/dev", "/dev/sda", "/var/lib/skillbox", "/run/skillbox/s", "/etc/skillbox/host.yaml",
		"/home/u/.local/share/skillbox", "/home/u/.config/skillbox/x", "/run/user/1000/skillbox",
	}
	for _, host := range hard {
		refused(t, bind(host, "/data", ", dangerous: true"), "4:12: filesystem.read[0].host: ")
	}
	for _, host := range []string{
		"/run", "/etc", "/etc/passwd", "/etc/shadow", "/run/docker.sock", "/var/run/docker.sock", "/srv/Docker.Sock", "/opt/podman.sock",
		"/home/u", "/home", "/root", "/root/x", "/home/u/.ssh", "/home/u/.SSH/id", "/home/u/.aws/credentials", "/home/u/.gnupg", "/home/u/.kube/config",
		"/home/u/.docker", "/srv/id_ed25519", "/var", "/var/lib", "/var/lib/docker/x", "/var/run", "/tmp", "/run/user/1000/bus", "/home/u/.config/gcloud",
	} {
		refused(t, bind(host, "/data", ""), "4:12: filesystem.read[0].host: ")
		if _, err := Parse("p", []byte(bind(host, "/data", ", dangerous: true"))); err != nil {
			t.Errorf("%s is not opened by dangerous: %v", host, err)
		}
	}
	for _, host := range []string{"//etc", "/srv/../etc", "/srv/", "/./etc", "srv", "", "/var//run/docker.sock"} {
		refused(t, bind(host, "/data", ", dangerous: true"), "4:12: filesystem.read[0].host: ")
	}
	for _, host := range []string{"/srv", "/srv/x", "/home/u/data", "/opt/sockets", "/mnt/a b", "/var/lib/ref", "/srv/.config"} {
		parse(t, bind(host, "/data", ""))
	}
	own := body("filesystem: {write: [{host: /srv/a, path: /data}]}")
	if _, err := Parse("/srv/a/policy.yaml", []byte(own)); err == nil || !strings.Contains(err.Error(), "holds this policy file itself") {
		t.Errorf("a writable bind holds the policy itself: %v", err)
	}
	if _, err := Parse("/srv/b/policy.yaml", []byte(own)); err != nil {
		t.Error(err)
	}
}

func TestThreat226MountOrderConflict(t *testing.T) {
	refused(t, body("filesystem: {read: [{host: /a, path: /x}, {host: /b, path: /x}]}"), `2:43: filesystem.read[1]: "/x" and "/x" of filesystem.read[0] overlap`)
	refused(t, body("filesystem: {read: [{host: /a, path: /x}], write: [{host: /b, path: /x/y}]}"), `2:52: filesystem.write[0]: "/x/y" and "/x" of filesystem.read[0] overlap`)
	refused(t, body("filesystem: {read: [{host: /a/b, path: /x}], write: [{host: /a, path: /y}]}"), `2:54: filesystem.write[0]: "/a" and "/a/b" of filesystem.read[0] overlap on the host`)
	refused(t, body("filesystem: {read: [{host: /a, path: /x}], write: [{host: /a, path: /y}]}"), `2:52: filesystem.write[0]: "/a" and "/a" of`)
	parse(t, body("filesystem: {read: [{host: /a, path: /x}, {host: /a/b, path: /xy}], write: [{host: /ab, path: /z}]}"))
}

func TestThreat228SelfWidening(t *testing.T) {
	declared := parse(t, body(`network: {egress: [{domains: [evil.example]}, {domains: [api.example.com]}]}
filesystem: {read: [{host: /srv/all, path: /all}], write: [{host: /home/u/data, path: /ref}]}
env: {pass: [AWS_SECRET_ACCESS_KEY], secrets: [OPENAI_API_KEY], set: {DEBUG: "1"}}
resources: {memory: 64Gi, pids: 4}
timeout: 5m
enforcement: best-effort
rootfs: {base: "dir:/srv/evil", bundle: copy-on-write}
syscalls: {profile: debug, allow: [ptrace, bpf]}
audit: {syscalls: none}`))
	operator := parse(t, body(`network: {egress: [{domains: ["*.example.com"]}]}
filesystem: {read: [{host: /srv/ref, path: /ref}]}
env: {pass: [LANG]}
syscalls: {allow: [ptrace]}`))
	g, err := Grant(nil, operator, declared)
	if err != nil {
		t.Fatal(err)
	}
	var asked []string
	for _, n := range g.Requested {
		asked = append(asked, n.Field)
		if !strings.HasPrefix(n.Source, "policy.yaml:") {
			t.Errorf("%v has no position", n)
		}
	}
	want := "enforcement rootfs.bundle resources.memory timeout syscalls.profile audit.syscalls rootfs.base network.egress[0] " +
		"filesystem.read[0] filesystem.write[0] env.pass[0] env.secrets[0] syscalls.allow[1] env.set.DEBUG"
	if got := strings.Join(asked, " "); got != want {
		t.Errorf("requested\n%s, not\n%s", got, want)
	}
	expect := operator.clone()
	expect.Network.Egress[0].Domains = []string{"api.example.com"}
	expect.Env.Pass, expect.Filesystem.Read, expect.Resources.Pids = nil, nil, 4
	expect.Filesystem.Read = []Bind{{Host: "/srv/ref", Path: "/ref"}}
	if g.Policy.Digest() != expect.Digest() {
		t.Errorf("effective:\n%s", g.Policy.YAML())
	}
	if alone, err := Grant(nil, nil, declared); err != nil || len(alone.Policy.Network.Egress)+len(alone.Policy.Env.Secrets)+len(alone.Policy.Filesystem.Write) > 0 {
		t.Errorf("a declaration alone grants something: %v", err)
	}
}

func TestThreat229Wildcards(t *testing.T) {
	domain := func(d, more string) string {
		return body(fmt.Sprintf("network: {egress: [{domains: [%q]%s}]}", d, more))
	}
	for _, d := range []string{"*", "*.com", "*.co.uk", "*.github.io", "*.internal", "*.COM."} {
		refused(t, domain(d, ""), "2:20: network.egress[0]: ")
		parse(t, domain(d, ", unsafe_wildcard: true"))
	}
	for _, d := range []string{"*.", "**", "a*b.com", "*a.com", "a.*", "*.*.com", "a.*.com", "", ".", "*..com", "**.com"} {
		refused(t, domain(d, ", unsafe_wildcard: true"), "2:31: network.egress[0].domains[0]: ")
	}
	net := func(cidr, port, more string) string {
		return body(fmt.Sprintf("network: {egress: [{cidrs: [%q], ports: [%s]%s}]}", cidr, port, more))
	}
	for _, c := range []string{"0.0.0.0/0", "::/0", "0.0.0.0/1", "2000::/3"} {
		refused(t, net(c, "443", ""), "2:20: network.egress[0]: ")
		parse(t, net(c, "443", ", unsafe_wildcard: true"))
	}
	refused(t, net("10.0.0.0/8", `"1-65535"`, ""), "2:20: network.egress[0]: the ports are all ports of tcp (if it is meant, add unsafe_wildcard: true")
	refused(t, net("10.0.0.0/8", `"1-30000/udp", "30001-65535/udp"`, ""), "2:20: network.egress[0]: the ports are all ports of udp")
	parse(t, net("10.0.0.0/8", `"1-65535"`, ", unsafe_wildcard: true"))
	refused(t, net("10.0.0.0/8", `"0-65535"`, ", unsafe_wildcard: true"), "2:52: network.egress[0].ports[0]: port 0 does not exist")
}

func TestThreat231IncludeCycles(t *testing.T) {
	for _, k := range []string{"extends", "include", "import", "$ref"} {
		refused(t, body(k+": https://example.org/policy.yaml"), fmt.Sprintf("2:1: unknown key %q (valid here: version, name,", k))
	}
}

func TestThreat232PolicySwap(t *testing.T) {
	approved := parse(t, issue).Digest()
	if again := parse(t, strings.ReplaceAll(issue, "  - {", "  -   {")).Digest(); again != approved {
		t.Error("the digest depends on the layout")
	}
	for _, swap := range [][2]string{
		{"api.example.com", "api.example.net"},
		{"[443]", "[443, 80]"},
		{"/srv/ref", "/srv/reg"},
		{"10.20.9.0/24", "10.20.9.0/25"},
		{"MODE: fast", "MODE: Fast"},
		{"timeout: 30s", "timeout: 31s"},
		{"files: none", "files: all"},
		{"[python3, main.py]", "[python3, main.py, \"\"]"},
	} {
		if parse(t, strings.Replace(issue, swap[0], swap[1], 1)).Digest() == approved {
			t.Errorf("%s for %s keeps the digest", swap[1], swap[0])
		}
	}
}
