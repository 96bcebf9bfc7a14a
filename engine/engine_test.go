package engine

import (
	"cmp"
	"encoding/json"
	"errors"
	"slices"
	"strings"
	"testing"
	"time"

	"skillbox/helper"
	"skillbox/policy"
)

// world is a host with these variables, where every path is what it says.
func world(env map[string]string) Host {
	return Host{
		Dir: "/m", WorkDir: "/work", Home: "/home/me", Arch: "amd64",
		Env: func(name string) (string, bool) { v, ok := env[name]; return v, ok },
		Real: func(path string) (Found, error) {
			if strings.Contains(path, "gone") {
				return Found{}, errors.New(path + ": no such file or directory")
			}
			if target, ok := strings.CutPrefix(path, "/m/to"); ok {
				path = cmp.Or(target, "/")
			}
			return Found{Path: path, Dir: !strings.HasSuffix(path, ".txt"), File: strings.HasSuffix(path, ".txt")}, nil
		},
	}
}

func resolve(text, skill string, env map[string]string, words ...string) (*Run, error) {
	h := world(env)
	m, err := Load("m.toml", []byte(text), h.Env)
	if err != nil {
		return nil, err
	}
	return m.Resolve(h, Call{Skill: skill, Words: words})
}

// below is what becomes of a run under the operator's policy.
func below(t *testing.T, r *Run, operator string) *policy.Policy {
	t.Helper()
	o, err := policy.Parse("policy.yaml", []byte("version: 1\n"+operator))
	if err != nil {
		t.Fatal(err)
	}
	m := manifestOf(r)
	p, err := m.Below(o)
	if err != nil {
		t.Fatalf("%v\n%s", err, r.Manifest.Policy)
	}
	return p
}

const head = "[skills.s]\nsource = \"docker:i:1\"\nruntime = \"docker\"\n[skills.s.docker]\n"

func TestEveryFieldOfDockerIsAskedFor(t *testing.T) {
	r, err := resolve(head+`image = "reg.example:5000/a/b:1"
entrypoint = "run"
command = ["-x"]
volumes = ["${SKILL_WORKDIR}:/workdir", "/data/${SET}:/in:ro"]
working_dir = "/workdir/"
environment = ["A=1", "B=${SET}", "SET"]
memory = "1.5g"
cpus = "0.25"
network = "bridge"
gpus = "all"
extra_args = ["--pids-limit=9"]
`, "s", map[string]string{"SET": "set"}, "tool", "a b")
	if err != nil {
		t.Fatal(err)
	}
	p := below(t, r, "devices: {gpus: all}\nnetwork: {egress: [{domains: [example.com]}]}\nenv: {set: {KEPT: k}}\nfilesystem: {tmp: 1Mi}\n")
	got, err := json.Marshal([]any{
		p.Name, p.Command, p.Rootfs.Base, p.Filesystem.Read, p.Filesystem.Write, p.Filesystem.Tmp, p.Env.Set, p.Env.Pass, p.Resources.Memory, p.Resources.CPU, p.Resources.Pids,
		len(p.Network.Egress), p.Devices.GPUs, r.Words, r.WorkDir, r.Env, r.Bundle, p.Position("resources.memory"), p.Position("filesystem.read[0].host"), p.Position("filesystem.tmp"),
	})
	const want = `["s",["run"],"image:reg.example:5000/a/b:1",[{"Host":"/data/set","Path":"/in","Dangerous":false}],[{"Host":"/work","Path":"/workdir","Dangerous":false}],1048576,` +
		`{"A":"1","KEPT":"k"},["B","SET"],1610612736,0.25,9,1,"all",["-x","tool","a b"],"/workdir",{"B":"set","SET":"set"},"",` +
		`{"File":"m.toml","Line":11,"Column":10},{"File":"m.toml","Line":8,"Column":41},{"File":"policy.yaml","Line":5,"Column":19}]`
	if err != nil || string(got) != want {
		t.Errorf("%v: got\n%s, want\n%s", err, got, want)
	}
}

// refused is what a run of the manifest is refused for, here or below the operator's policy.
func refused(t *testing.T, text, operator string, env map[string]string) string {
	t.Helper()
	r, err := resolve(text, "s", env, "tool")
	if err != nil {
		return err.Error()
	}
	o, err := policy.Parse("policy.yaml", []byte("version: 1\n"+operator))
	if err != nil {
		t.Fatal(err)
	}
	m := manifestOf(r)
	if _, err := m.Below(o); err != nil {
		return err.Error()
	}
	return ""
}

// manifestOf is what skillboxd makes of a run.
func manifestOf(r *Run) policy.Manifest {
	m := policy.Manifest{File: r.Manifest.File, Text: r.Manifest.Policy, Places: r.Manifest.Places, Egress: r.Manifest.Egress, Uses: r.Manifest.Uses}
	if r.Manifest.Bundle {
		m.Bundle = r.Bundle
	}
	return m
}

func TestANativeSkillMayNotWriteTheHostsSystem(t *testing.T) {
	allowed := func(path string) string {
		return native + "x\"\n[skills.s.instances.default]\ncapabilities.allowed_paths = [\"" + path + "\"]\n"
	}
	for _, path := range append(slices.Clone(kept), "/usr/bin", "/usr/share/x", "to/opt", "/m/to/nix") {
		if got := refused(t, allowed(path), "", nil); !strings.Contains(got, "m.toml:5:") || !strings.Contains(got, "is the host's system") {
			t.Errorf("%s: %q", path, got)
		}
		if got := refused(t, head+"image = \"a\"\nvolumes = [\""+strings.Replace(path, "to/", "/m/to/", 1)+":/data\"]\n", "", nil); got == "" {
			t.Errorf("%s as a volume", path)
		}
	}
	for _, path := range []string{"/srv/mine", "/opt/mine", "/mnt/mine", "data"} {
		if got := refused(t, allowed(path), "", nil); got != "" {
			t.Errorf("%s: %s", path, got)
		}
	}
}

func TestAValueOfTheCallersNeedsAGrantByItsOwnName(t *testing.T) {
	env := map[string]string{"SECRET": "s3cr3t", "REGION": "eu", "DIR": "/srv/d"}
	image := func(lines string) string { return head + "image = \"a\"\n" + lines + "\n" }
	const pass = "env: {pass: [REGION, A, SKILL_A]}\n"
	for name, text := range map[string]string{
		"renamed": image(`environment = ["REGION=${SECRET}"]`), "within a text": image(`environment = ["A=x${REGION}y${SECRET}z"]`), "with a default": image(`environment = ["A=${SECRET:-d}"]`),
		"demanded": image(`environment = ["A=${SECRET:?m}"]`), "an argument": image(`extra_args = ["-e", "A=${SECRET}"]`), "an argument's own": image(`extra_args = ["--env=A=${SECRET}"]`),
		"of the instance": image("[skills.s.instances.default]\nenv.A = \"${SECRET}\""), "of the defaults": "[defaults]\nenv.A = \"${SECRET}\"\n" + image(""),
		"configuration": image("[skills.s.instances.default]\nconfig.a = \"${SECRET}\""), "a native skill's": native + "x\"\n[skills.s.instances.default]\nenv.A = \"${SECRET}\"\n",
		"a path of the box": image(`volumes = ["/srv/a:/data/${SECRET}"]`), "another path of the box": image(`volumes = ["${DIR}:/data/${SECRET}"]`), "the last word": image(`environment = ["A=a", "A=${SECRET}"]`),
		"beside one that is passed": image(`environment = ["REGION", "A=${REGION}", "SKILL_A=${SECRET}"]`),
	} {
		got := refused(t, text, pass, env)
		if !strings.HasPrefix(got, "m.toml:") || !strings.Contains(got, `env.pass: the value of "SECRET" is not passed`) || !strings.Contains(got, "policy.yaml:2:") || strings.Contains(got, "s3cr3t") {
			t.Errorf("%s: %q", name, got)
		}
		// Without a word of the operator's on variables the manifest's holds.
		if got := refused(t, text, "", env); got != "" {
			t.Errorf("%s: without env.pass refused: %s", name, got)
		}
		r, err := resolve(text, "s", env, "tool")
		if err != nil {
			t.Fatal(err)
		}
		ceiling, err := policy.ParseCeiling("host.yaml", []byte("version: 1\n"+pass))
		if err != nil {
			t.Fatal(err)
		}
		m := manifestOf(r)
		if err := m.Within([]*policy.Policy{policy.Default(), ceiling.Policy}); err == nil || !strings.Contains(err.Error(), "host.yaml:2:") {
			t.Errorf("%s below a ceiling: %v", name, err)
		}
	}
	for name, text := range map[string]string{
		"its own name": image(`environment = ["REGION", "A=${REGION}"]`), "not set": image(`environment = ["B=${UNSET:-d}"]`), "not the last word": image(`environment = ["B=${SECRET}", "B=b"]`),
		"a path of the host": image(`volumes = ["${DIR}/x:/data", "${SKILL_WORKDIR}:/w"]`), "by its own path": image(`volumes = ["${DIR}/x:${DIR}/x"]`),
		"allowed paths": native + "x\"\n[skills.s.instances.default]\ncapabilities.allowed_paths = [\"${DIR}\"]\n",
	} {
		if got := refused(t, text, pass, env); got != "" {
			t.Errorf("%s: %s", name, got)
		}
	}
}

const native = "[skills.s]\nruntime = \"native\"\nsource = \""

func TestTheSourceOfANativeSkillIsHeldToWhatVolumesAre(t *testing.T) {
	for source, why := range map[string]string{
		"./.ssh": ".ssh holds credentials", "/etc": "accounts, keys", "/etc/ssl": "accounts, keys", "/": "the whole host", "to/": "it leads to /, and it is the whole host", "to/home/me": "caller's home",
		"/home": "caller's home", "/home/other": "a whole home directory", "/root": "the home of root", "/proc/self": "the host's processes", "/home/me/.aws/x": ".aws holds credentials",
		"/var/lib/skillbox": "skillbox's own state", "/home/me/.config/skillbox": "skillbox's own state", "/run/user/1000": "sockets of the host's services", "/tmp": "files and sockets of other programs",
		"gone": "no such file", "a.txt": "not a directory",
	} {
		if got := refused(t, native+source+"\"\n", "", nil); !strings.Contains(got, "m.toml:3:10: ") || !strings.Contains(got, why) {
			t.Errorf("%s: %q, want %s", source, got, why)
		}
	}
	for _, source := range []string{"skill", "./", "/srv/skill", "/home/me/skill"} {
		if got := refused(t, native+source+"\"\n", "", nil); got != "" {
			t.Errorf("%s: %s", source, got)
		}
	}
}

func TestWhatAManifestDoesNotAskForIsNotShown(t *testing.T) {
	r, err := resolve(head+"image = \"a\"\n", "s", nil)
	if err != nil {
		t.Fatal(err)
	}
	p := below(t, r, "network: {egress: [{domains: [example.com]}]}\nfilesystem: {read: [{host: /srv/a}]}\ndevices: {gpus: all}\n")
	if len(p.Network.Egress) != 0 || len(p.Filesystem.Read) != 0 || p.Rootfs.Base != "image:a" {
		t.Errorf("%s", p.YAML())
	}
}

func TestSizesAndProcessors(t *testing.T) {
	for in, want := range map[string]string{"512m": "536870912", "512M": "536870912", "512mb": "536870912", "1.5g": "1610612736", "1GiB": "1073741824", "10k": "10240", "7": "7", "7b": "7", "0.5k": "512"} {
		if got, err := (text{text: in}).bytes(); err != nil || got != want {
			t.Errorf("%s: %s, %v; want %s", in, got, err, want)
		}
	}
	for _, in := range []string{"", "m", "-1m", "1e9", "0x10", "1/2", "0", "0m", "1..2m", "1m2", "٣m", "99999999999999999999t", "1p", "inf", " "} {
		if got, err := (text{text: in}).bytes(); err == nil {
			t.Errorf("%q is %s", in, got)
		}
	}
	for in, want := range map[string]string{"2": "2", "0.5": "0.5", "1.0": "1", "0.250": "0.25", "2.": "2"} {
		if got, err := (text{text: in}).cores(); err != nil || got != want {
			t.Errorf("%s: %s, %v; want %s", in, got, err, want)
		}
	}
	for _, in := range []string{"", "0", "-1", "0.0001", "1e3", "1,5", "1/3", "Inf", ".5", "99999999999999999999"} {
		if got, err := (text{text: in}).cores(); err == nil {
			t.Errorf("%q is %s", in, got)
		}
	}
}

func TestAVolumeIsSplitBeforeItIsExpanded(t *testing.T) {
	for in, want := range map[string][]string{
		"/a:/b": {"/a", "/b"}, "${A:-/x}:/b:ro": {"${A:-/x}", "/b", "ro"}, "/a": {"/a"}, "": {""}, "a:${B:?c:d}:e": {"a", "${B:?c:d}", "e"}, "${A:b": {"${A:b"},
	} {
		if got := split(in); !slices.Equal(got, want) {
			t.Errorf("%s: %q, want %q", in, got, want)
		}
	}
}

func TestErrorsSayWhere(t *testing.T) {
	_, err := resolve(head+"image = \"a\"\nvolumes = [\n  \"/ok:/a\",\n  \"/gone:/b\",\n]\n", "s", nil)
	var e *helper.Error
	if !errors.As(err, &e) || e.Line != 8 || e.Column != 3 || e.Field != "skills.s.docker.volumes[1]" || e.File != "m.toml" || e.Hint == "" {
		t.Errorf("%+v", e)
	}
	_, err = Load("m.toml", []byte("a = 1\nb = [1,\n2\nc = 3\n"), nil)
	if !errors.As(err, &e) || e.Line < 3 {
		t.Errorf("%+v", e)
	}
	// Tables of a list have places of their own.
	_, err = resolve("[[x]]\n[[x]]\n[skills.s]\nsource = \"a\"\nruntime = \"native\"\n[[skills.s.services]]\nname = \"a\"\n[skills.s.instances.default.capabilities]\nallowed_paths = [1]\n", "s", nil)
	if !errors.As(err, &e) || e.Line != 9 || e.Column != 18 {
		t.Errorf("%+v", e)
	}
}

func TestALargeManifestIsReadInTime(t *testing.T) {
	for _, text := range []string{
		strings.Repeat("a", 1) + strings.Repeat(".a", 100_000) + " = 1", "a = " + strings.Repeat("[", 200_000), strings.Repeat("[[a]]\n", 40_000), strings.Repeat("{", 200_000),
		"[skills.s]\nsource='a'\nruntime='native'\ninstances = {" + strings.Repeat("a = {}, ", 20_000) + "}", strings.Repeat("x", 250<<10) + " = 1",
		"[skills.s]\nsource = 'docker:a'\nruntime = 'docker'\ndocker.environment = [" + strings.Repeat("'A=${B:-c}',", 20_000) + "]",
	} {
		began := time.Now()
		_, err := resolve(text, "s", nil)
		if took := time.Since(began); took > 10*time.Second {
			t.Errorf("%.20s…: %v (%v)", text, took, err)
		}
	}
}

func FuzzManifest(f *testing.F) {
	f.Add("[skills.s]\nsource = \"docker:i:1\"\nruntime = \"docker\"\n[skills.s.docker]\nimage = \"a\"\nvolumes = [\"${SKILL_WORKDIR}:/workdir:ro\"]\nextra_args = [\"-e\", \"A=b\"]\n")
	f.Add("[skills.s]\nsource = \"./x\"\nruntime = \"native\"\n[skills.s.instances.default]\nconfig.a = \"${A:-b}\"\ncapabilities.allowed_paths = [\"a\"]\ncapabilities.network_access = true\n")
	f.Add("[[skills]]\na.b.c = {d = [1, [2]]}\n")
	f.Add(head + "image = \"a\"\nextra_args = [\"-itv/:/x\"]\nprivileged = true\n")
	f.Fuzz(func(t *testing.T, text string) {
		r, err := resolve(text, "s", map[string]string{"A": "x:y\n", "B": ""}, "tool", "k=v")
		if err != nil {
			var e *helper.Error
			if !errors.As(err, &e) || e.Message == "" || e.File != "m.toml" {
				t.Fatalf("%T %v", err, err)
			}
			return
		}
		// Whatever is asked for is a policy, or refused by its place; and nothing comes by that nobody granted.
		operator, err := policy.Parse("policy.yaml", []byte("version: 1\n"))
		if err != nil {
			t.Fatal(err)
		}
		m := manifestOf(r)
		p, err := m.Below(operator)
		if err != nil {
			var errs policy.Errors
			if !errors.As(err, &errs) {
				t.Fatalf("%T %v", err, err)
			}
			for _, e := range errs {
				if e.File != "m.toml" {
					t.Fatalf("%v", e)
				}
			}
			return
		}
		if len(p.Network.Egress) > 0 || p.Devices.GPUs != "none" || len(p.Syscalls.Allow) > 0 || p.Rootfs.Base != "host" && !strings.HasPrefix(p.Rootfs.Base, "image:") {
			t.Fatalf("%s", p.YAML())
		}
		for _, b := range slices.Concat(p.Filesystem.Read, p.Filesystem.Write) {
			if b.Dangerous || b.Host == "/" || strings.HasPrefix(b.Host, "/etc") && beneath("/etc", b.Host) || strings.ContainsAny(b.Host+b.Path, ":\n") {
				t.Fatalf("%v", b)
			}
		}
	})
}
