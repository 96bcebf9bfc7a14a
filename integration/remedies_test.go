//go:build linux

package integration

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"go.yaml.in/yaml/v4"

	"skillbox/audit"
	"skillbox/helper"
)

// explained is what `skillbox explain --json` prints.
type explained struct {
	Refused []struct{ Kind, What, Layer, Rule, Remedy string }
}

func explain(t *testing.T, m mode, run string) (e explained) {
	t.Helper()
	out, err := m.command("explain", "--json", run).Output()
	if err == nil {
		err = json.Unmarshal(out, &e)
	}
	if err != nil {
		t.Fatalf("explain %s: %v: %s", run, err, out)
	}
	return e
}

// applied is a policy with a remedy taken over as it stands: keys are added, values replaced, and what is in lists comes on top.
func applied(t *testing.T, policy, remedy string) string {
	t.Helper()
	if rule := regexp.MustCompile(`add (\{.*\}) to network\.egress`).FindStringSubmatch(remedy); rule != nil {
		remedy = "network: {egress: [" + rule[1] + "]}"
	}
	var was, more map[string]any
	if err := yaml.Unmarshal([]byte(policy), &was); err != nil {
		t.Fatal(err)
	}
	if bind := regexp.MustCompile(`move (\{.*\}) from filesystem\.read to filesystem\.write`).FindStringSubmatch(remedy); bind != nil {
		delete(was["filesystem"].(map[string]any), "read") // which has no other
		remedy = "filesystem: {write: [" + bind[1] + "]}"
	}
	if err := yaml.Unmarshal([]byte(remedy), &more); err != nil || len(more) == 0 {
		t.Fatalf("%q is no part of a policy: %v", remedy, err)
	}
	text, err := yaml.Marshal(merged(was, more))
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}

func merged(was, more map[string]any) map[string]any {
	for key, value := range more {
		switch value := value.(type) {
		case map[string]any:
			if inner, ok := was[key].(map[string]any); ok {
				was[key] = merged(inner, value)
				continue
			}
		case []any:
			if list, ok := was[key].([]any); ok {
				was[key] = append(list, value...)
				continue
			}
		}
		was[key] = value
	}
	return was
}

// refusal is a call that a policy refuses, of one class.
type refusal struct {
	class  string
	kind   audit.Kind
	policy string
	call   call
	about  string // in the text of what was refused
	rounds int    // how many remedies in turn it takes; 0 is one
}

// heals runs a call, follows the remedy of what it was refused, and runs it again until it passes.
func (c refusal) heals(t *testing.T, m mode, run func(call) *helper.Result) {
	t.Helper()
	policy := c.policy
	for range max(c.rounds, 1) {
		c.call.policy = policy
		r := run(c.call)
		if r.Success {
			t.Fatalf("it passes under\n%s", policy)
		}
		remedy := ""
		for _, one := range explain(t, m, r.ID).Refused {
			if one.Kind != string(c.kind) || !strings.Contains(one.What, c.about) || one.Remedy == "" {
				continue
			}
			if one.Layer == "" || one.Rule == "" {
				t.Errorf("%+v", one)
			}
			remedy = one.Remedy
		}
		if remedy == "" {
			t.Fatalf("%s, %v: nothing of %s %q with a remedy in %+v\n%s", r.Verdict, r.Error, c.kind, c.about, explain(t, m, r.ID), r.Stderr)
		}
		c.inResult(t, r, remedy)
		policy = applied(t, policy, remedy)
	}
	c.call.policy = policy
	if r := run(c.call); !r.Success {
		t.Errorf("%s, %v, under\n%s\n%s%+v", r.Verdict, r.Error, policy, r.Stderr, r.Denials)
	}
}

// inResult checks that the result has the same remedy: limits in their error, all else among the denials.
func (c refusal) inResult(t *testing.T, r *helper.Result, remedy string) {
	t.Helper()
	if c.kind == audit.LimitKind {
		if r.Error == nil || r.Error.Hint != remedy {
			t.Errorf("the result's error is %+v, the log's remedy %q", r.Error, remedy)
		}
		return
	}
	for _, d := range r.Denials {
		if d.Hint == remedy && d.Rule != "" {
			return
		}
	}
	t.Errorf("no %q in %+v", remedy, r.Denials)
}

// hostDir is a directory of the mode's user where no box has one of its own.
func (m mode) hostDir(t *testing.T) string {
	t.Helper()
	parent := "/srv"
	if os.Getuid() != 0 {
		parent = "/srv/tester"
		_, err := os.Stat(parent)
		needs(t, "a directory of the user's outside /home", err)
	}
	dir, err := os.MkdirTemp(parent, "skillbox-remedies-")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { os.RemoveAll(dir) })
	if err := os.Chmod(dir, 0o755); err != nil {
		t.Fatal(err)
	}
	m.own(t, dir)
	return dir
}

// Every class of refusal says what would allow it, and that is true.
func TestFollowingTheRemedyAllowsIt(t *testing.T) {
	inEachMode(t, func(t *testing.T, m mode) {
		data, tools := m.hostDir(t), m.hostDir(t)
		if err := os.WriteFile(filepath.Join(data, "in"), []byte("data\n"), 0o644); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(filepath.Join(tools, "tool"), []byte("#!/bin/sh\necho ran\n"), 0o755); err != nil {
			t.Fatal(err)
		}
		m.own(t, filepath.Join(data, "in"))
		m.own(t, filepath.Join(tools, "tool"))
		declares := m.bundleOf(t, map[string]string{
			"skillbox.yaml": "version: 1\nname: declares\ncommand: [/bin/sh, -c, 'test -n \"$TOKEN\"']\nsecurity_policy:\n  env: {pass: [TOKEN]}\n",
		})
		shell := func(script string) call { return call{mode: m, words: []string{"/bin/sh", "-ec", script}} }
		const files = "version: 1\naudit: {files: all}\n"
		for _, c := range []refusal{
			{class: "syscall", kind: audit.SyscallKind, policy: "version: 1\n", about: "ptrace", call: call{mode: m, words: []string{
				"/usr/bin/python3", "-c", "import ctypes,sys; sys.exit(ctypes.CDLL(None).ptrace(0, 0, 0, 0) != 0)",
			}}},
			{class: "file to read", kind: audit.FileKind, policy: files, about: data, call: shell("cat " + data + "/in")},
			{class: "file to write", kind: audit.FileKind, policy: "version: 1\naudit: {files: writes}\n", about: data, call: shell("echo x > " + data + "/out")},
			{class: "directory on a read-only bind", kind: audit.FileKind, policy: files + "filesystem: {read: [{host: " + data + "}]}\n", about: "directory " + data, call: shell("mkdir " + data + "/d; rmdir " + data + "/d")},
			{class: "file of the bundle", kind: audit.FileKind, policy: files, about: "/skill/made", call: shell("echo x > /skill/made")},
			{class: "exec", kind: audit.ExecKind, policy: "version: 1\naudit: {syscalls: security}\n", about: tools, call: shell(tools + "/tool")},
			{class: "env", kind: audit.EnvKind, policy: "version: 1\n", about: "TOKEN", call: call{mode: m, bundle: declares, env: []string{"TOKEN=x"}}},
			{class: "time", kind: audit.LimitKind, policy: "version: 1\ntimeout: 2s\n", about: "timeout", rounds: 2, call: shell("sleep 5")},
			{class: "output", kind: audit.LimitKind, policy: "version: 1\nresources: {output: 20Ki}\n", about: "output", call: shell("head -c 30000 /dev/zero")},
			{class: "memory", kind: audit.LimitKind, policy: "version: 1\nenforcement: best-effort\nresources: {memory: 96Mi}\nfilesystem: {tmp: 1Gi}\n", about: "memory", call: shell("head -c 120M /dev/zero > /tmp/file; sleep 0.5")},
		} {
			t.Run(c.class, func(t *testing.T) {
				c.heals(t, m, func(one call) *helper.Result { return one.run(t) })
			})
		}
	})
}

// The same of what is refused on the way out.
func TestFollowingTheRemedyOpensTheWay(t *testing.T) {
	inEachWay(t, func(t *testing.T, w *world, y way) {
		const policy = "version: 1\nnetwork: {egress: [{domains: [api.allowed.example], ports: [443]}]}\n"
		reach := func(host string, port int) call {
			return call{mode: y.mode, words: []string{"/usr/bin/python3", "-c", fmt.Sprintf("import socket; socket.create_connection((%q, %d), 5).close()", host, port)}}
		}
		none := "version: 1\naudit: {syscalls: security}\n"
		for _, c := range []refusal{
			{class: "domain", kind: audit.DNSKind, policy: policy, about: "other.example", call: reach("other.example", 443)},
			{class: "address", kind: audit.ConnKind, policy: policy, about: otherAddr, call: reach(otherAddr, 443)},
			{class: "port", kind: audit.ConnKind, policy: policy, about: "api.allowed.example", call: reach("api.allowed.example", 80)},
			{class: "no network at all", kind: audit.ConnKind, policy: none, about: otherAddr, call: reach(otherAddr, 443)},
		} {
			t.Run(c.class, func(t *testing.T) {
				c.heals(t, y.mode, func(one call) *helper.Result { return w.run(t, y, one) })
			})
		}
	})
}
