package policy

import (
	"errors"
	"strings"
	"testing"
	"time"
)

// issue is the policy that shows every key.
const issue = `version: 1
name: weather
enforcement: strict
command: [python3, main.py]
rootfs: {base: host, bundle: read-only}
filesystem:
  read:  [{host: /srv/ref, path: /ref}]
  write: [{host: /srv/out, path: /out}]
  tmp: 64Mi
  home: 64Mi
env: {pass: [LANG], set: {MODE: fast}, secrets: [OPENAI_API_KEY]}
network:
  egress:
    - {domains: [api.example.com, "*.example.org"], ports: [443]}
    - {cidrs: [10.20.0.0/16], except: [10.20.9.0/24], ports: [5432, "8000-8100", "53/udp"]}
  deny:
    - {domains: [tracker.example.org]}
  ingress: [{port: 8080, name: web}, {port: 9090}]
  limits: {bytes: 10Mi, connections: 256}
resources: {cpu: 1, memory: 256Mi, pids: 64, open_files: 256, output: 10Mi, output_overflow: truncate, io_read: 50Mi, io_write: 10M, io_weight: 50}
timeout: 30s
syscalls: {profile: default, allow: [], deny: []}
audit: {syscalls: denied, files: none}
warm: {ready: 2, preload: true}
`

func parse(t *testing.T, text string) *Policy {
	t.Helper()
	p, err := Parse("policy.yaml", []byte(text))
	if err != nil {
		t.Fatalf("%s\n%v", text, err)
	}
	return p
}

// body is a policy of version 1 with these lines.
func body(lines string) string { return "version: 1\n" + lines + "\n" }

func TestEveryKeyIsRead(t *testing.T) {
	const want = `version: 1
name: weather
enforcement: strict
command: [python3, main.py]
rootfs:
  base: host
  bundle: read-only
filesystem:
  read:
    - {host: /srv/ref, path: /ref}
  write:
    - {host: /srv/out, path: /out}
  tmp: 64Mi
  home: 64Mi
  output: 64Mi # default
env:
  pass: [LANG]
  set: {MODE: fast}
  secrets: [OPENAI_API_KEY]
network:
  egress:
    - {domains: [api.example.com, "*.example.org"], ports: [443]}
    - {cidrs: ["10.20.0.0/16"], except: ["10.20.9.0/24"], ports: [5432, "8000-8100", "53/udp"]}
  deny:
    - {domains: [tracker.example.org]}
  ingress:
    - {port: 8080, name: web}
    - {port: 9090}
  path: auto # default
  sinkhole: false # default
  limits:
    bytes: 10Mi
    connections: 256
    rate: 50 # default
resources:
  cpu: 1
  memory: 256Mi
  pids: 64
  open_files: 256
  output: 10Mi
  output_overflow: truncate
  io_read: 50Mi
  io_write: 10M
  io_weight: 50
  named: false # default
devices:
  gpus: none # default
timeout: 30s
syscalls:
  profile: default
  allow: []
  deny: []
audit:
  syscalls: denied
  files: none
warm:
  ready: 2
  preload: true
`
	if got := string(parse(t, issue).YAML()); got != want {
		t.Errorf("got:\n%s", got)
	}
}

func TestWhatIsLeftOutHoldsItsDefault(t *testing.T) {
	for name, p := range map[string]*Policy{"Default": Default(), "an empty policy": parse(t, "version: 1\n")} {
		if p.Enforcement != "strict" || p.Rootfs != (Rootfs{"host", "read-only"}) || p.Timeout != 30*time.Second ||
			p.Resources != (Resources{CPU: 1, Memory: 256 << 20, Pids: 64, OpenFiles: 256, Output: 10 << 20, OutputOverflow: "kill"}) || p.Filesystem.Output != 64<<20 ||
			p.Network.Limits != (NetLimits{10 << 20, 256, 50}) || p.Syscalls.Profile != "default" || p.Audit != (Audit{"denied", "none"}) {
			t.Errorf("%s: %s", name, p.YAML())
		}
		if len(p.Network.Egress) != 0 || p.Named("timeout") || p.Position("timeout") != (Position{}) {
			t.Errorf("%s grants or names something", name)
		}
	}
}

func TestPositionsAreWhereTheAuthorLooks(t *testing.T) {
	p := parse(t, issue)
	for field, want := range map[string]string{
		"timeout":                      "policy.yaml:21:10",
		"resources.memory":             "policy.yaml:20:29",
		"filesystem":                   "policy.yaml:6:1",
		"filesystem.read":              "policy.yaml:7:3",
		"filesystem.write[0]":          "policy.yaml:8:11",
		"filesystem.write[0].path":     "policy.yaml:8:34",
		"env.set.MODE":                 "policy.yaml:11:33",
		"network.egress[1].ports[2]":   "policy.yaml:15:82",
		"network.egress[0].domains[1]": "policy.yaml:14:35",
	} {
		if got := p.Position(field).String(); got != want || !p.Named(field) {
			t.Errorf("%s is at %s, not %s", field, got, want)
		}
	}
	if at := p.Network.Egress[1].At.String(); at != "policy.yaml:15:7" {
		t.Errorf("the rule is at %s", at)
	}
}

func TestAFlagNamesAField(t *testing.T) {
	p := Default()
	if err := p.Assign("timeout", "--timeout", "90s"); err != nil || p.Timeout != 90*time.Second || !p.Named("timeout") {
		t.Errorf("%v, %v", p.Timeout, err)
	}
	if err := p.Assign("resources.pids", "--pids", "8"); err != nil || p.Resources.Pids != 8 {
		t.Errorf("%v, %v", p.Resources.Pids, err)
	}
	err := p.Assign("timeout", "--timeout", "0")
	if err == nil || !strings.HasPrefix(err.Error(), "--timeout: timeout: 0 is refused") || p.Timeout != 90*time.Second {
		t.Errorf("%v", err)
	}
	if err := p.Assign("network.egress", "--egress", "x"); err == nil {
		t.Error("a list was assigned")
	}
	p.Timeout = -1
	p.Set("timeout", "--timeout")
	var one *Error
	if _, err := Grant(nil, p, nil); !errors.As(err, &one) || one.File != "--timeout" || one.Line != 0 {
		t.Errorf("a bad value set directly: %v", err)
	}
}

func TestTheExampleIsValidAndNamesNoLimitThatNeedsCgroups(t *testing.T) {
	p := parse(t, string(Example()))
	for _, field := range []string{"resources.cpu", "resources.memory", "resources.pids"} {
		if p.Named(field) {
			t.Errorf("%s is named", field)
		}
	}
	p.Name, p.Env.Pass = "", nil
	if p.Digest() != Default().Digest() {
		t.Errorf("the example grants more than the defaults:\n%s", p.YAML())
	}
}

func TestTheDigestIsOfTheValuesAlone(t *testing.T) {
	same := []string{
		body(""), body("timeout: 30s # as ever"), body("resources: {memory: 268435456, cpu: 1000m}"),
		body("audit: {files: none}\ntimeout: 0m30s"), body("resources: {output_overflow: kill}"), string(parse(t, body("")).YAML()),
	}
	for _, text := range same {
		if parse(t, text).Digest() != Default().Digest() {
			t.Errorf("another digest for %q", text)
		}
	}
	seen := map[string]string{}
	for _, text := range []string{
		"", "timeout: 31s", "name: x", "env: {set: {A: b}}", "env: {pass: [A]}", "network: {egress: [{domains: [a.org]}]}",
		"network: {egress: [{domains: [a.org], ports: [80]}]}", "network: {deny: [{domains: [a.org]}]}", "filesystem: {read: [{host: /a, path: /b}]}",
		"resources: {output_overflow: truncate}", "resources: {io_read: 1Mi}", "resources: {io_write: 1Mi}", "resources: {io_weight: 100}",
	} {
		d := parse(t, body(text)).Digest()
		if other, ok := seen[d]; ok {
			t.Errorf("%q and %q have one digest", text, other)
		}
		seen[d] = text
	}
}
