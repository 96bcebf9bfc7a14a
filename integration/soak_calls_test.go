//go:build linux

package integration

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"skillbox/helper"
)

// kind is a flavour of calls, of which some in share are made, and what else a call of it may come to.
type kind struct {
	flavour
	name    string
	share   int
	carries bool   // it brings the nonce in every way there is
	outputs bool   // it takes what the skill left in /output
	also    string // another verdict that it may have, for a busy machine's sake
	meanwhile
}

// meanwhile is what happens to a call while it runs; nil is nothing.
type meanwhile func(f *fleet, chance *rand.Rand, client *exec.Cmd, nonce string)

const soakShell = `#!/bin/sh
left=$(ls -A /tmp "$HOME" /output /dev/shm | grep -e . | grep -v ':$')
for dir in /tmp "$HOME" /output /dev/shm; do : > "$dir/$1"; done
read -r params < "$SKILLBOX_PARAMS_FILE"
read -r stdin
read -r secret < /run/secrets/TOKEN
read -r input < /input/in
echo "$1" >&2
printf '{"word":"%s","params":%s,"stdin":%s,"env":"%s","secret":"%s","input":"%s","left":"%s"}\n' "$1" "$params" "$stdin" "$NONCE" "$secret" "$input" "$left"
`

const soakPython = `#!/usr/bin/python3 -IS
import json, os, sys
word, left = sys.argv[1], ""
for d in "/tmp", os.environ["HOME"], "/output", "/dev/shm":
    left += " ".join(os.listdir(d))
    with open(d + "/" + word, "w") as f: f.write(word)
def text(path):
    with open(path) as f: return f.read()
print(json.dumps({"word": word, "params": json.loads(text(os.environ["SKILLBOX_PARAMS_FILE"])), "stdin": json.load(sys.stdin), "env": os.environ["NONCE"],
    "secret": text("/run/secrets/TOKEN"), "input": text("/input/in").strip(), "left": left}))
`

// soakNetwork echoes by a server that the policy allows, asks for a name that it does not, and tries an address that it does not.
const soakNetwork = `#!/bin/bash
exec 3<>/dev/tcp/` + apiAddr + `/9999 && echo "$1" >&3 && read -r line <&3 && echo "$line"
getent hosts "$1.other.example" && echo found
: <>/dev/tcp/` + otherAddr + `/9999 && echo connected
exit 0
`

// everyKind lists what is called, with which bundles and policies.
func (f *fleet) everyKind(t *testing.T, m mode) []*kind {
	t.Helper()
	bundle := m.bundleOf(t, map[string]string{
		"carry.sh": soakShell, "carry.py": soakPython, "network": soakNetwork,
		"fail": "#!/bin/sh\necho \"{\\\"nonce\\\":\\\"$1\\\"}\"; exit 3\n", "wait": "#!/bin/sh\necho $1; sleep 60\n", "shout": "#!/bin/sh\nexec yes $1\n",
		"unshare": "#!/bin/sh\necho $1; unshare -U true; echo\n", "break": "#!/bin/sh\necho $1; exec ./probe foreign-call\n",
		"allocate": "#!/bin/sh\necho $1; exec ./probe allocate 256 16 0 0\n", "bomb": "#!/bin/sh\necho $1; exec ./probe fork-bomb 1000\n",
	})
	probe, err := os.ReadFile(filepath.Join(binDir, "probe"))
	if err != nil {
		t.Fatal(err)
	}
	m.write(t, filepath.Join(bundle, "probe"), string(probe), 0o755)
	f.editing.bundle = m.bundleOf(t, map[string]string{"main.sh": "#!/bin/sh\nread -r version < version; echo \"$1 $version $SAYS\"\n"})
	f.editing.policy = filepath.Join(m.dir(t), "policy.yaml")
	f.editing.start(t, f)

	policy := func(text string) []string {
		return []string{"--policy", m.file(t, "policy.yaml", "version: 1\n"+text)}
	}
	carry := policy("env: {pass: [NONCE], secrets: [TOKEN]}\n")
	egress := "egress:\n  - {cidrs: [" + apiAddr + "/32], ports: [9999]}\n  - {domains: [api.allowed.example]}\n"
	network := func(path string) []string {
		return []string{"--policy", m.file(t, "policy.yaml", way{m, path}.policy(egress))}
	}
	says := func(r *helper.Result, nonce string) bool { return r.Stdout == nonce+"\n" }
	begins := func(r *helper.Result, nonce string) bool {
		return strings.HasPrefix(r.Stdout, nonce+"\n") || strings.HasPrefix(nonce+"\n", r.Stdout)
	}
	refused := func(file, word string) func(r *helper.Result, nonce string) bool {
		return func(r *helper.Result, _ string) bool {
			return r.Stdout == "" && r.Error != nil && strings.Contains(r.Error.File, file) && strings.Contains(r.Error.Error(), word)
		}
	}
	limited := "enforcement: best-effort\nresources: "
	kinds := []*kind{
		{name: "shell", share: 24, carries: true, flavour: flavour{bundle, carry, []string{"./carry.sh"}, helper.Exited, 0, carriedBy("")}},
		{name: "python", share: 8, carries: true, outputs: true, flavour: flavour{bundle, carry, []string{"./carry.py"}, helper.Exited, 0, carriedBy("")}},
		{name: "static", share: 20, carries: true, flavour: flavour{bundle, carry, []string{"./probe", "carry"}, helper.Exited, 0, carriedBy("")}},
		{name: "exit code 3", share: 8, flavour: flavour{bundle, nil, []string{"./fail"}, helper.Exited, 3, func(r *helper.Result, nonce string) bool {
			return string(r.Result) == `{"nonce":"`+nonce+`"}`
		}}},
		{name: "changing", share: 10, flavour: flavour{f.editing.bundle, []string{"--policy", f.editing.policy}, []string{"./main.sh"}, helper.Exited, 0, nil}},
		{name: "too long", share: 3, flavour: flavour{bundle, []string{"--timeout", "300ms"}, []string{"./wait"}, helper.TimedOut, helper.CodeTimedOut, begins}},
		{name: "too loud", share: 3, flavour: flavour{bundle, policy("resources: {output: 64Ki}\n"), []string{"./shout"}, helper.OutputLimit, helper.CodeOutputLimit, func(r *helper.Result, nonce string) bool {
			return len(r.Stdout) == 64<<10 && strings.HasPrefix(strings.Repeat(nonce+"\n", 64<<10/len(nonce)), r.Stdout)
		}}},
		{name: "too large", share: 1, flavour: flavour{bundle, policy(limited + "{memory: 64Mi}\n"), []string{"./allocate"}, helper.OutOfMemory, helper.CodeOutOfMemory, begins}},
		{name: "too many", share: 1, flavour: flavour{bundle, policy(limited + "{pids: 32}\n"), []string{"./bomb"}, helper.PidsLimit, helper.CodePidsLimit, begins}},
		{name: "foreign call", share: 3, flavour: flavour{bundle, nil, []string{"./break"}, helper.SyscallKilled, helper.CodeSyscallKilled, says}},
		{name: "denied call", share: 3, flavour: flavour{bundle, nil, []string{"./unshare"}, helper.Exited, 0, func(r *helper.Result, nonce string) bool {
			return r.Stdout == nonce+"\n\n" && len(r.Denials) == 1 && strings.HasPrefix(r.Denials[0].What, "unshare") && r.Denials[0].Count == 1
		}}},
		{name: "bad policy", share: 2, flavour: flavour{bundle, policy("network: {egres: []}\n"), []string{"./carry.sh"}, helper.Refused, helper.CodeFailed, refused("policy.yaml", "egres")}},
		{name: "bad parameters", share: 2, flavour: flavour{bundle, []string{"--params", "@" + m.file(t, "params", "{")}, []string{"./carry.sh"}, helper.Refused, helper.CodeFailed, refused("", "JSON")}},
		{name: "captured network", share: 3, flavour: flavour{bundle, network("capture"), []string{"./network"}, helper.Exited, 0, networked}},
		{name: "canceled", share: 3, also: helper.Exited, meanwhile: cancel, flavour: flavour{bundle, nil, []string{"./wait"}, helper.Canceled, helper.CodeCanceled, begins}},
		{name: "struck", share: 4, meanwhile: strike, flavour: flavour{bundle, nil, []string{"./wait"}, helper.Signaled, 128 + int(unix.SIGKILL), begins}},
	}
	if m == asRoot {
		kinds = append(kinds, &kind{name: "linked network", share: 2, flavour: flavour{bundle, network("veth"), []string{"./network"}, helper.Exited, 0, networked}})
	}
	return kinds
}

// carried is what a skill gives back of a call.
type carried struct {
	Word, Env, Secret, Input, Left string
	Params, Stdin                  struct{ Nonce string }
}

// carriedBy judges a skill that gives everything back.
func carriedBy(left string) func(r *helper.Result, nonce string) bool {
	return func(r *helper.Result, nonce string) bool {
		want := carried{Word: nonce, Env: nonce, Secret: nonce, Input: nonce, Left: left}
		want.Params.Nonce, want.Stdin.Nonce = nonce, nonce
		var got carried
		return json.Unmarshal(r.Result, &got) == nil && got == want
	}
}

func networked(r *helper.Result, nonce string) bool {
	has := func(kind, what string) bool {
		return slices.ContainsFunc(r.Denials, func(d helper.Denial) bool { return d.Kind == kind && strings.Contains(d.What, what) })
	}
	return r.Stdout == nonce+"\n" && has("dns", nonce) && has("connection", otherAddr) && !has("connection", apiAddr)
}

// nonces are the words by which calls can be told from one another.
var nonces = regexp.MustCompile(`soak[0-9a-z]{13,}x`)

// call makes one call and judges its answer.
func (f *fleet) call(chance *rand.Rand) {
	k := f.choose(chance)
	nonce := fmt.Sprintf("soak%013s%dx", fmt.Sprint(chance.Uint64()), chance.Uint32())
	flags := append([]string{"--json"}, k.flags...)
	if k.carries {
		dir := f.scratch(nonce)
		defer os.RemoveAll(dir)
		if err := f.lay(dir, nonce); err != nil {
			f.fault("%v", err)
			return
		}
		flags = append(flags, "--params", `{"nonce":"`+nonce+`"}`, "--input", dir+"/in")
		if k.outputs {
			flags = append(flags, "--output", dir+"/out")
		}
	}
	c := f.s.command(flags, k.bundle, append(k.words, nonce)...)
	c.Env = append(c.Env, "NONCE="+nonce, "TOKEN="+nonce, "HOME="+f.s.at)
	var stdout, stderr bytes.Buffer
	c.Stdout, c.Stderr = &stdout, &stderr
	before, began := f.editing.atLeast(), time.Now()
	if err := f.w.host.Run(c.Start); err != nil {
		f.fault("%v", err)
		return
	}
	stop := f.befall(k, chance, c, nonce)
	err := c.Wait()
	stop()
	var exit *exec.ExitError
	if err != nil && !errors.As(err, &exit) {
		f.fault("%s: %v", k.name, err)
		return
	}
	for _, word := range nonces.FindAllString(stdout.String()+stderr.String(), -1) {
		if word != nonce {
			f.fault("%s: the call of %s tells of %s: %.2000s", k.name, nonce, word, stdout.String())
		}
	}
	if status := c.ProcessState.Sys().(syscall.WaitStatus); status.Signaled() {
		f.note(k.name, "the client was killed")
		if status.Signal() != unix.SIGKILL && k.meanwhile == nil {
			f.fault("%s: the client ended by %s: %s", k.name, status.Signal(), stderr.String())
		}
		return
	}
	if c.ProcessState.ExitCode() == 128+int(unix.SIGTERM) && k.verdict == helper.Canceled && stdout.Len() == 0 {
		f.note(k.name, "the client ended as it was told to") // the service had died
		return
	}
	var r helper.Result
	if err := json.Unmarshal(stdout.Bytes(), &r); err != nil || r.ExitCode != c.ProcessState.ExitCode() {
		f.fault("%s: no envelope, or none of that exit code: %v, %v: %.2000s%.2000s", k.name, err, c.ProcessState, stdout.String(), stderr.String())
		return
	}
	f.judge(k, &r, nonce, began, before)
}

func (f *fleet) choose(chance *rand.Rand) *kind {
	sum := 0
	for _, k := range f.kinds {
		sum += k.share
	}
	n := chance.IntN(sum)
	for _, k := range f.kinds {
		if n -= k.share; n < 0 {
			return k
		}
	}
	return f.kinds[0]
}

// lay puts there what a call brings.
func (f *fleet) lay(dir, nonce string) error {
	err := errors.Join(os.Mkdir(dir, 0o755), os.WriteFile(dir+"/in", []byte(nonce+"\n"), 0o644))
	if cred := f.s.mode.credential(); err == nil && cred != nil {
		err = os.Chown(dir, int(cred.Uid), int(cred.Gid))
	}
	return err
}

// judge compares an answer with what the call may come to.
func (f *fleet) judge(k *kind, r *helper.Result, nonce string, began time.Time, before [2]int) {
	f.note(k.name, r.Verdict)
	f.count(r)
	right := r.Verdict == k.verdict && r.ExitCode == k.code
	if right && k.right != nil {
		right = k.right(r, nonce)
	} else if right {
		right = f.editing.right(r, nonce, before)
	}
	if right && k.outputs {
		text, err := os.ReadFile(f.scratch(nonce) + "/out/" + nonce)
		right = err == nil && string(text) == nonce
	}
	if right {
		return
	}
	if f.deaths.during(began, time.Now()) && endedByService(r) {
		f.mu.Lock()
		f.lost++
		f.mu.Unlock()
		return
	}
	text, _ := json.Marshal(r) // it was JSON
	f.fault("%s, %s, after %s: %.3000s", k.name, nonce, time.Since(began).Round(time.Millisecond), text)
}

// endedByService says that a call got the answer of one whose service was killed.
func endedByService(r *helper.Result) bool {
	return r.Verdict == helper.Failed && r.ExitCode == helper.CodeFailed && strings.Contains(r.Error.Message, "skillboxd ended without an answer") ||
		r.Verdict == helper.Canceled && r.ExitCode == helper.CodeCanceled
}
