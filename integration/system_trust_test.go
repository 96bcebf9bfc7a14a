//go:build linux

package integration

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"golang.org/x/sys/unix"

	"skillbox/helper"
	"skillbox/integration/space"
)

// ownDir is a directory of a caller's.
func (c *systemCaller) ownDir(t *testing.T) string {
	t.Helper()
	return owned(t, c.uid, asRoot.dir(t))
}

// skillbox runs another of the client's commands, which succeeds.
func (c *systemCaller) skillbox(t *testing.T, env []string, args ...string) (stdout string) {
	t.Helper()
	cmd := c.command(args...)
	cmd.Env = append(cmd.Env, env...)
	out, errs, code := tell(cmd)
	if code != 0 {
		t.Fatalf("skillbox %v: %d: %s", args, code, errs)
	}
	return strings.TrimSpace(out)
}

// warm makes calls until one was served by a ready box.
func (c *systemCaller) warm(t *testing.T, call func() *helper.Result) {
	t.Helper()
	if !soon(func() bool { return wasReady(call()) }) {
		t.Error("no call found a box that was ready")
	}
}

func TestTheSystemServiceHoldsBundlesToTheirSignatures(t *testing.T) {
	s := theSystem(t)
	one, other := s.as(bob), s.as(carol)
	dir := one.ownDir(t)
	key := filepath.Join(dir, "key")
	public := one.skillbox(t, nil, "bundle", "key", "--no-password", key)
	if _, err := os.Stat("/etc/skillbox"); err != nil {
		if err := os.Mkdir("/etc/skillbox", 0o755); err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { os.Remove("/etc/skillbox") })
	}
	host, err := space.New(unix.CLONE_NEWNS, func() error {
		return errors.Join(
			unix.Mount("", "/", "", unix.MS_REC|unix.MS_PRIVATE, ""), unix.Mount("none", "/etc/skillbox", "tmpfs", 0, "mode=755"),
			os.WriteFile("/etc/skillbox/host.yaml", []byte("version: 1\nrequire_signature_by: ["+public+"]\n"), 0o644),
		)
	})
	needs(t, "a world of namespaces", err)
	s.within = host.Run
	s.begin(t)

	bundle := filepath.Join(dir, "bundle")
	if err := os.Mkdir(bundle, 0o755); err != nil {
		t.Fatal(err)
	}
	asRoot.write(t, filepath.Join(bundle, "main.sh"), greeting, 0o755)
	owned(t, bob, bundle)
	const unsigned = "there is no signature of the bundle"
	one.refused(t, unsigned, nil, bundle, "./main.sh")
	one.skillbox(t, nil, "bundle", "sign", "--key", key, bundle)
	for _, c := range []*systemCaller{one, other} {
		c.warm(t, func() *helper.Result {
			r := c.run(t, nil, bundle, "./main.sh")
			if r.Stdout != "ran\n" || r.Trust == nil || r.Trust.Signature != "valid" {
				t.Errorf("user %d: %q, %+v", c.uid, r.Stdout, r.Trust)
			}
			return r
		})
	}
	// Its owner can write to it, and gets nothing by that, whatever waits.
	asRoot.write(t, filepath.Join(bundle, "main.sh"), "#!/bin/sh\necho changed\n", 0o755)
	for _, c := range []*systemCaller{one, other} {
		if r, err := c.ask(nil, bundle, "./main.sh"); err != nil || r.ExitCode != helper.CodeFailed || r.Stdout != "" {
			t.Errorf("user %d: a bundle that was changed after it was signed: %+v, %v", c.uid, r, err)
		}
	}
	asRoot.write(t, filepath.Join(bundle, "main.sh"), greeting, 0o755)
	one.run(t, nil, bundle, "./main.sh")
	if err := os.Remove(bundle + ".skillbox.minisig"); err != nil {
		t.Fatal(err)
	}
	one.refused(t, unsigned, nil, bundle, "./main.sh")
}

// An image is its caller's: another user has no image of that name, and nobody reads a store that is not theirs.
func TestTheSystemServiceRunsImagesOfItsCallers(t *testing.T) {
	s := startSystem(t)
	one, other := s.as(bob), s.as(carol)
	store := filepath.Join(one.ownDir(t), "images")
	env := []string{"SKILLBOX_IMAGES=" + store}
	archive := asRoot.archiveOf(t, machine(t))
	one.skillbox(t, env, "image", "import", "--name", "example.com/machine:1", "docker-archive:"+archive)
	policy := asRoot.file(t, "policy.yaml", "version: 1\nenforcement: best-effort\nrootfs: {base: \"image:example.com/machine:1\"}\n")
	bundle := asRoot.bundleOf(t, map[string]string{"note": "x"})
	ask := func(c *systemCaller, env ...string) *helper.Result {
		t.Helper()
		cmd := c.call([]string{"--json", "--policy", policy}, bundle, "/opt/tool/bin/tool", "look", "/etc/os-release", "/var/lib/tool/data")
		cmd.Env = append(cmd.Env, env...)
		r, err := envelope(cmd)
		if err != nil {
			t.Fatal(err)
		}
		return r
	}
	one.warm(t, func() *helper.Result {
		r := ask(one, env...)
		got := lookedOf(t, r)
		if r.Sandbox.Image == "" || !strings.Contains(fmt.Sprint(got.Paths), "new") {
			t.Errorf("%q: %+v", r.Sandbox.Image, got)
		}
		return r
	})
	if err := os.Chmod(filepath.Dir(store), 0o700); err != nil {
		t.Fatal(err)
	}
	for what, r := range map[string]*helper.Result{"no store": ask(other, "SKILLBOX_IMAGES="+filepath.Join(other.ownDir(t), "none")), "another's": ask(other, env...)} {
		if r.ExitCode != helper.CodeFailed || r.Stdout != "" || r.Error == nil || r.Error.Message == "" {
			t.Errorf("%s: %s, %q, %+v", what, r.Verdict, r.Stdout, r.Error)
		}
	}
}

func TestTheSystemServicePublishesPorts(t *testing.T) {
	s := startSystem(t)
	one := s.as(bob)
	dir := one.ownDir(t)
	socket := filepath.Join(dir, "web.sock")
	bundle := asRoot.example(t, "local-server")
	told := filepath.Join(dir, "published")
	cmd := one.call([]string{"--json", "--policy", asRoot.file(t, "policy.yaml", web+"enforcement: best-effort\n"), "--publish-file", told, "--publish", "web=" + socket}, bundle)
	r := &reachable{cmd: cmd, at: map[string]string{}}
	cmd.Args = cmd.Args[:len(cmd.Args)-1] // no words: the bundle's own entry
	cmd.Stdout, cmd.Stderr = &r.stdout, &r.stderr
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = cmd.Process.Kill() })
	if !soon(func() bool { text, err := os.ReadFile(told); return err == nil && r.learn(text) == nil }) {
		_ = cmd.Process.Kill()
		_ = cmd.Wait()
		t.Fatalf("nothing is published: %s%s", r.stdout.String(), r.stderr.String())
	}
	info, err := os.Stat(socket)
	if err != nil || info.Mode().Perm() != 0o600 || int(info.Sys().(*syscall.Stat_t).Uid) != bob {
		t.Errorf("the socket: %+v, %v", info, err)
	}
	post := func(uid int, path, body string) (string, error) {
		c := exec.Command("curl", "--silent", "--show-error", "--max-time", "30", "--data", body, "--unix-socket", socket, "http://skill"+path)
		c.SysProcAttr = &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: uint32(uid), Gid: uint32(uid)}}
		out, err := c.Output()
		return strings.TrimSpace(string(out)), err
	}
	if err := os.Chmod(socket, 0o777); err != nil {
		t.Fatal(err)
	}
	if got, err := post(carol, "/", "x"); err == nil {
		t.Errorf("another user got %q", got)
	}
	if got, err := post(bob, "/", "a b a"); err != nil || got != `{"words": 3}` {
		t.Errorf("%q, %v", got, err)
	}
	if got, err := post(bob, "/quit", ""); err != nil || got != `{"words": 0}` {
		t.Errorf("/quit: %q, %v", got, err)
	}
	if result := r.end(t); !result.Success || string(result.Result) != `{"requests":2}` || len(result.Published) != 1 || result.Published[0].Address != socket {
		t.Errorf("%s: %s, %+v, %v", result.Verdict, result.Result, result.Published, result.Error)
	}
	if _, err := os.Lstat(socket); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("the socket is left: %v", err)
	}
}
