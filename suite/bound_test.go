package suite

import (
	"errors"
	"fmt"
	"path/filepath"
	"strings"
	"testing"

	"skillbox/engine"
	"skillbox/helper"
	"skillbox/policy"
)

func TestAManifestGetsNoMoreThanThePolicyHas(t *testing.T) {
	const dir = "/srv/skills/a"
	for _, c := range []struct{ asked, operator, want, warned string }{
		{`{"version":1}`, "", "", ""},
		{`{"version":1,"name":"n","rootfs":{"base":"image:i:1"},"command":["c"],"env":{"set":{"A":"\u0085"},"pass":["B"]}}`, "", `image:i:1 c A=` + "\u0085" + ` B`, ""},
		// Numbers: the policy's, or the default, is the most.
		{`{"version":1,"resources":{"memory":"1099511627776","cpu":"64","pids":9}}`, "", "pids=9", "m.toml:9:2: resources.memory resources.cpu"},
		{`{"version":1,"resources":{"memory":"1073741824"}}`, "resources: {memory: 1Gi}", "memory=1073741824", ""},
		{`{"version":1,"resources":{"memory":"2147483648"}}`, "resources: {memory: 1Gi}", "memory=1073741824", "resources.memory"},
		{`{"version":1,"timeout":"10m"}`, "", "", "timeout"},
		// A value of the operator's is not for the skill to replace.
		{`{"version":1,"env":{"set":{"A":"mine","B":"b"}}}`, "env: {set: {A: theirs}}", "A=theirs B=b", "env.set.A"},
		// Host paths.
		{`{"version":1,"filesystem":{"read":[{"host":"/srv/skills/a/data","path":"/d"}]}}`, "", "r:/srv/skills/a/data:/d", ""},
		{`{"version":1,"filesystem":{"write":[{"host":"/srv/skills/a","path":"/d"}]}}`, "", "r:/srv/skills/a:/d", "read-only"},
		{`{"version":1,"filesystem":{"write":[{"host":"/srv/skills/a","path":"/d"}]}}`, "filesystem: {write: [{host: /srv/skills, path: /s}]}", "w:/srv/skills/a:/d", ""},
		{`{"version":1,"filesystem":{"write":[{"host":"/data/x","path":"/d"},{"host":"/out","path":"/o"}]}}`, "filesystem: {read: [{host: /data, path: /s}], write: [{host: /out, path: /o}]}", "r:/data/x:/d w:/out:/o", "/data/x is read-only"},
		{`{"version":1,"filesystem":{"read":[{"host":"/srv/skills/ab","path":"/d"}]}}`, "", "error: m.toml:7:1: /srv/skills/ab is not the skill's own", ""},
		{`{"version":1,"filesystem":{"read":[{"host":"/srv/skills","path":"/d"}]}}`, "", "error: m.toml:7:1: /srv/skills is not", ""},
		{`{"version":1,"filesystem":{"write":[{"host":"/data","path":"/d"}]}}`, "filesystem: {write: [{host: /data/x, path: /s}]}", "error: m.toml:8:1: /data is not", ""},
		{`{"version":1,"devices":{"gpus":"all"}}`, "", "error: m.toml: devices.gpus: GPUs are asked for", ""},
		{`{"version":1,"filesystem":{"read":[{"host":"/etc","path":"/d"}]}}`, "", "error: m.toml:7:1: filesystem.read[0]", ""},
	} {
		operator, err := policy.Parse("p.yaml", []byte("version: 1\n"+c.operator))
		if err != nil {
			t.Fatal(err)
		}
		run := &engine.Run{Manifest: helper.Manifest{File: "m.toml", Policy: []byte(c.asked), Places: map[string][2]int{"filesystem.read[0]": {7, 1}, "filesystem.write[0]": {8, 1}, "resources.memory": {9, 2}}}}
		got := boxed(run, operator, dir)
		if want, isError := strings.CutPrefix(c.want, "error: "); isError && !strings.HasPrefix(got, "error: "+want) || !isError && got != c.want {
			t.Errorf("%s below %q: %s, want %s", c.asked, c.operator, got, c.want)
		}
		warned := strings.Join(run.Warnings, "\n")
		for _, part := range strings.Fields(c.warned) {
			if !strings.Contains(warned, part) {
				t.Errorf("%s below %q warns %q, and not of %s", c.asked, c.operator, warned, part)
			}
		}
		if c.warned == "" && warned != "" {
			t.Errorf("%s below %q warns %q", c.asked, c.operator, warned)
		}
	}
	run := &engine.Run{Bundle: "/srv/skills/ab", Manifest: helper.Manifest{File: "m.toml", Policy: []byte(`{"version":1}`)}}
	if _, err := bound(run, policy.Default(), dir); err == nil {
		t.Error("a bundle beside the skill's directory")
	}
}

// boxed is what a box has of all that a manifest may name, beyond the operator's policy and the defaults.
func boxed(run *engine.Run, operator *policy.Policy, dir string) string {
	failed := func(err error) string { return "error: " + err.Error() }
	before := policy.Default()
	if _, err := bound(run, operator, dir); err != nil {
		var e *helper.Error
		if !errors.As(err, &e) {
			return "no helper.Error: " + err.Error()
		}
		return failed(err)
	}
	// As it goes to skillboxd: both as text.
	stated, err := policy.Parse("p.yaml", operator.Stated())
	if err != nil {
		return failed(err)
	}
	m := policy.Manifest{File: "m.toml", Text: run.Manifest.Policy, Places: run.Manifest.Places, Egress: run.Manifest.Egress}
	p, err := m.Below(stated)
	if err != nil {
		return failed(err)
	}
	var parts []string
	if p.Rootfs.Base != before.Rootfs.Base {
		parts = append(parts, p.Rootfs.Base)
	}
	parts = append(parts, p.Command...)
	for _, name := range []string{"A", "B"} {
		if value, ok := p.Env.Set[name]; ok {
			parts = append(parts, name+"="+value)
		}
	}
	parts = append(parts, p.Env.Pass...)
	for _, field := range []struct {
		name     string
		got, was any
	}{{"memory", p.Resources.Memory, before.Resources.Memory}, {"cpu", p.Resources.CPU, before.Resources.CPU}, {"pids", p.Resources.Pids, before.Resources.Pids}, {"timeout", p.Timeout, before.Timeout}} {
		if field.got != field.was {
			parts = append(parts, fmt.Sprintf("%s=%v", field.name, field.got))
		}
	}
	for _, b := range p.Filesystem.Read {
		parts = append(parts, "r:"+b.Host+":"+b.Path)
	}
	for _, b := range p.Filesystem.Write {
		parts = append(parts, "w:"+b.Host+":"+b.Path)
	}
	return strings.Join(parts, " ")
}

func TestOnlyTheNamedTestFileIsTheCallersWord(t *testing.T) {
	const cases = "version: 1\ncases: [{name: one}]\n"
	dir := tree(t, map[string]string{TestFile: "version: 1\ncases: [{skill: a, name: top}]\n", "a/SKILL.md": "", "a/" + TestFile: cases, "b/" + TestFile: cases})
	t.Chdir(dir)
	for o, want := range map[*Options]string{
		{Dir: "."}:                                 "",
		{Dir: ".", Trust: true}:                    "top a/one b/one",
		{Dir: ".", Cases: TestFile}:                "top",
		{Dir: "a/..", Cases: "./b/" + TestFile}:    "b/one",
		{Dir: dir, Cases: filepath.Join("b", "x")}: "error",
		{Dir: "a", Cases: TestFile}:                "error",
	} {
		if got := callers(t, *o); got != want {
			t.Errorf("%+v: %q, want %q", *o, got, want)
		}
	}
}

func callers(t *testing.T, o Options) string {
	if err := o.absolute(); err != nil {
		return "error"
	}
	found, err := Find(o.Dir)
	if err != nil {
		t.Fatal(err)
	}
	if err := o.believe(found); err != nil {
		return "error"
	}
	var names []string
	for _, s := range found {
		for _, c := range s.Cases {
			if at, err := filepath.Rel(o.Dir, c.dir); c.callers {
				names = append(names, filepath.Join(at, c.Name))
			} else if err != nil {
				t.Error(err)
			}
		}
	}
	return strings.Join(names, " ")
}
