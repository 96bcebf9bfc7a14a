//go:build linux

package integration

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"skillbox/audit"
	"skillbox/helper"
)

// hostSays is the administrator's word for the rest of the test, in its namespace of mounts.
func hostSays(t *testing.T, text string) {
	t.Helper()
	if os.Getuid() != 0 {
		needs(t, "root", errors.New("the administrator's file is root's"))
	}
	if _, err := os.Stat("/etc/skillbox"); err != nil {
		if err := os.Mkdir("/etc/skillbox", 0o755); err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { os.Remove("/etc/skillbox") })
	}
	if err := unix.Mount("none", "/etc/skillbox", "tmpfs", unix.MS_NOSUID|unix.MS_NODEV, "mode=755"); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := unix.Unmount("/etc/skillbox", unix.MNT_DETACH); err != nil {
			t.Error(err)
		}
	})
	if err := os.WriteFile("/etc/skillbox/host.yaml", []byte("version: 1\n"+text), 0o644); err != nil {
		t.Fatal(err)
	}
}

// signer is a key of the mode's user.
type signer struct{ file, public string }

func (m mode) signer(t *testing.T) signer {
	t.Helper()
	file := filepath.Join(m.dir(t), "key")
	out, errs, code := tell(m.command("bundle", "key", "--no-password", file))
	if code != 0 {
		t.Fatalf("bundle key: %s", errs)
	}
	return signer{file, strings.TrimSpace(out)}
}

// sign signs a bundle for a policy, and returns where the signature lies.
func (m mode) sign(t *testing.T, by signer, bundle, policy string) string {
	t.Helper()
	m.own(t, filepath.Dir(bundle)) // where the signature goes
	args := []string{"bundle", "sign", "--force", "--key", by.file, bundle}
	if policy != "" {
		args = append(args, "--policy", policy)
	}
	out, errs, code := tell(m.command(args...))
	if code != 0 {
		t.Fatalf("bundle sign: %s", errs)
	}
	return strings.TrimSpace(out)
}

func (m mode) digest(t *testing.T, bundle string) string {
	t.Helper()
	out, errs, code := tell(m.command("bundle", "digest", bundle))
	if code != 0 {
		t.Fatalf("bundle digest: %s", errs)
	}
	return strings.TrimSpace(out)
}

// refusedFor runs a call that must not start, for a reason.
func refusedFor(t *testing.T, what string, c call, want string) *helper.Result {
	t.Helper()
	r := c.run(t)
	if r.ExitCode != helper.CodeFailed || r.Stdout != "" || r.Error == nil || !strings.Contains(r.Error.Error(), want) || r.Error.Hint == "" {
		t.Errorf("%s: %s, exit code %d, %q, %+v; want %q", what, r.Verdict, r.ExitCode, r.Stdout, r.Error, want)
	}
	return r
}

const greeting = "#!/bin/sh\necho ran\n"

// Where the host wants a signature, nothing else will do.
func TestWithoutItsSignatureNothingRuns(t *testing.T) {
	inEachMode(t, func(t *testing.T, m mode) {
		key, other := m.signer(t), m.signer(t)
		hostSays(t, "require_signature_by: ["+key.public+"]\n")
		bundle, another := m.bundleOf(t, map[string]string{"main.sh": greeting}), m.bundleOf(t, map[string]string{"main.sh": greeting + "#\n"})
		strict := m.file(t, "policy.yaml", "version: 1\ntimeout: 20s\n")
		c := call{mode: m, bundle: bundle, flags: []string{"--policy", strict}, words: []string{"./main.sh"}}
		with := func(flags ...string) call {
			d := c
			d.flags = append(append([]string{}, c.flags...), flags...)
			return d
		}

		refusedFor(t, "unsigned", c, "there is no signature of the bundle")
		at := m.sign(t, key, bundle, strict)
		r := c.run(t)
		if r.Stdout != "ran\n" || r.Trust == nil || r.Trust.Signature != "valid" || len(r.Trust.KeyID) != 16 || r.Trust.Tier != "" {
			t.Fatalf("signed: %q, %+v, %v", r.Stdout, r.Trust, r.Error)
		}
		if got := detail[audit.Granted](t, recorded(t, m, r.ID)).Trust; got == nil || got.Signature != "valid" || got.KeyID != r.Trust.KeyID {
			t.Errorf("the log has %+v", got)
		}
		refusedFor(t, "a longer time-out than was signed", with("--timeout", "21s"), "say more than")
		refusedFor(t, "a variable that was not signed", with("--env", "TOOL=/skill/x"), "say more than")
		refusedFor(t, "another policy", call{mode: m, bundle: bundle, words: c.words}, "does not hold")
		refusedFor(t, "the skill's own policy", call{mode: m, bundle: m.signed(t, key, map[string]string{"main.sh": greeting, "policy.yaml": "version: 1\ntimeout: 10m\n"}), flags: []string{"--trust-bundle-policy"}, words: c.words}, "does not hold")
		refusedFor(t, "a signature of another bundle", with("--signature", m.sign(t, key, another, strict)), "does not hold")
		refusedFor(t, "another's signature", with("--signature", m.sign(t, other, another, strict)), "which is not one of them")

		text, err := os.ReadFile(at)
		if err != nil {
			t.Fatal(err)
		}
		dir := m.dir(t)
		named := func(name string) string { return filepath.Join(dir, name) }
		m.write(t, named("cut"), string(text[:len(text)-9]), 0o644)
		m.write(t, named("more"), string(text)+"more\n", 0o644)
		m.write(t, named("huge"), string(text), 0o644)
		if err := errors.Join(os.Truncate(named("huge"), 1<<40), os.Symlink(at, named("link")), unix.Mkfifo(named("fifo"), 0o666), os.Mkdir(named("dir"), 0o755), os.Chmod(named("fifo"), 0o666)); err != nil {
			t.Fatal(err)
		}
		refusedFor(t, "cut short", with("--signature", named("cut")), "does not hold")
		refusedFor(t, "with a line more", with("--signature", named("more")), "does not hold")
		refusedFor(t, "a terabyte", with("--signature", named("huge")), "does not hold")
		refusedFor(t, "a link", with("--signature", named("link")), "symbolic link")
		for _, special := range []string{"fifo", "dir"} {
			if r := with("--signature", named(special)).run(t); r.ExitCode != helper.CodeFailed || !strings.Contains(r.Error.Message, "regular file") {
				t.Errorf("%s: %+v", special, r.Error)
			}
		}
		// Signed before the policy was changed, and before the bundle was.
		m.write(t, strict, "version: 1\ntimeout: 25s\n", 0o644)
		refusedFor(t, "a policy that was changed", c, "does not hold")
		m.write(t, strict, "# the same\nversion: 1\ntimeout: 20000ms\n", 0o644)
		if r := c.run(t); r.Stdout != "ran\n" {
			t.Errorf("a policy that says the same: %v", r.Error)
		}
		m.write(t, filepath.Join(bundle, "main.sh"), strings.Replace(greeting, "ran", "bad", 1), 0o755)
		refusedFor(t, "a bundle that was changed", c, "does not hold")
	})
}

// signed is a bundle with a signature for a run without a policy.
func (m mode) signed(t *testing.T, by signer, files map[string]string) string {
	t.Helper()
	bundle := m.bundleOf(t, files)
	m.sign(t, by, bundle, "")
	return bundle
}

// inTwoSteps runs a second script when it is told to.
const inTwoSteps = "#!/bin/sh\necho ready\nread line\nexec sh /skill/second.sh\n"

// What was checked is what runs: who owns the bundle can change it at any time.
func TestABundleThatIsSwappedAfterItsCheckIsNotRun(t *testing.T) {
	inEachMode(t, func(t *testing.T, m mode) {
		files := map[string]string{"main.sh": inTwoSteps, "second.sh": "echo checked\n", "deep/link": "x"}
		bundle := m.bundleOf(t, files)
		swap := func(content string) {
			t.Helper()
			m.write(t, filepath.Join(bundle, "new"), content, 0o644)
			if err := os.Rename(filepath.Join(bundle, "new"), filepath.Join(bundle, "second.sh")); err != nil {
				t.Fatal(err)
			}
		}
		digest := m.digest(t, bundle)
		try := func(what, want string, flags ...string) {
			t.Helper()
			swap("echo checked\n")
			b := m.background(t, flags, bundle, "./main.sh")
			b.expect(t, "ready\n")
			swap("echo swapped\n")
			fmt.Fprintln(b.stdin)
			if out, code := b.wait(t); code != 0 || out != want {
				t.Errorf("%s: %q, exit code %d, want %q\n%s", what, out, code, want, b.stderr.String())
			}
		}
		try("nothing is asked for", "swapped\n") // so the attack is one
		try("a digest", "checked\n", "--require-digest", digest)
		c := call{mode: m, bundle: bundle, flags: []string{"--require-digest", digest}, words: []string{"./main.sh"}}
		r := refusedFor(t, "swapped before", c, digest)
		if !strings.Contains(r.Error.Message, r.Skill.Digest) || r.Skill.Digest == digest {
			t.Errorf("%+v does not name %s", r.Error, r.Skill.Digest)
		}
		key := m.signer(t)
		hostSays(t, "require_signature_by: ["+key.public+"]\n")
		swap("echo checked\n")
		m.sign(t, key, bundle, "")
		try("a signature", "checked\n")
	})
}

func TestTiersOfTrust(t *testing.T) {
	inEachMode(t, func(t *testing.T, m mode) {
		key := m.signer(t)
		bundle, listed, revoked := m.bundleOf(t, map[string]string{"main.sh": greeting}), m.bundleOf(t, map[string]string{"main.sh": greeting + "# listed\n"}), m.bundleOf(t, map[string]string{"main.sh": greeting + "# revoked\n"})
		shared := m.dir(t)
		wide := m.file(t, "policy.yaml", "version: 1\nenforcement: best-effort\ntimeout: 31s\nfilesystem: {write: [{host: "+shared+", path: /data}]}\nresources: {pids: 70}\n")
		modest := m.file(t, "policy.yaml", "version: 1\ntimeout: 31s\n")
		hostSays(t, "deny_digests: ["+m.digest(t, revoked)+"]\ntiers:\n  trusted: {signed_by: ["+key.public+"]}\n  reviewed: {digests: ["+m.digest(t, listed)+"]}\n  untrusted: {ceiling: {timeout: 40s}}\n")
		with := func(bundle string, flags ...string) call {
			return call{mode: m, bundle: bundle, flags: flags, words: []string{"./main.sh"}}
		}
		ran := func(what, tier string, c call) *helper.Result {
			t.Helper()
			r := c.run(t)
			if r.Stdout != "ran\n" || r.Trust == nil || r.Trust.Tier != tier {
				t.Errorf("%s: %q, %+v, %v; want tier %s", what, r.Stdout, r.Trust, r.Error, tier)
			}
			return r
		}
		ran("no policy", "untrusted", with(bundle))
		r := refusedFor(t, "above the floor", with(bundle, "--policy", modest), "not permitted on this host")
		if !strings.Contains(r.Error.Hint, "floor of tier untrusted") || !strings.Contains(r.Error.Hint, "--trust-remote-code") {
			t.Errorf("the hint: %s", r.Error.Hint)
		}
		r = ran("above the floor, by the caller's word", "untrusted", with(bundle, "--policy", modest, "--trust-remote-code"))
		if !r.Trust.TrustRemoteCode {
			t.Errorf("%+v", r.Trust)
		}
		if got := detail[audit.Granted](t, recorded(t, m, r.ID)).Trust; got == nil || !got.RemoteCode || got.Tier != "untrusted" {
			t.Errorf("the log has %+v", got)
		}
		refusedFor(t, "beyond what the host lets untrusted ones have", with(bundle, "--timeout", "41s", "--trust-remote-code"), "not permitted on this host")
		ran("listed", "reviewed", with(listed, "--policy", modest))
		refusedFor(t, "beyond the default of tier reviewed", with(listed, "--policy", wide), "not permitted on this host")
		m.sign(t, key, bundle, wide)
		ran("signed", "trusted", with(bundle, "--policy", wide))
		m.sign(t, key, revoked, "")
		refusedFor(t, "revoked, though signed", with(revoked, "--trust-remote-code"), "revoked")
	})
}

// What is written there is for people, and by anybody.
func TestCommentsOfSignaturesAreNotObeyed(t *testing.T) {
	const text = "untrusted comment: \x1b]0;owned\x07\u202e\nRWQ\ntrusted comment: \x1b[2J\nx\n"
	inEachMode(t, func(t *testing.T, m mode) {
		bundle := m.bundleOf(t, map[string]string{"main.sh": greeting})
		m.own(t, filepath.Dir(bundle))
		m.write(t, bundle+".skillbox.minisig", text, 0o644)
		key := m.signer(t)
		for _, args := range [][]string{{"bundle", "verify", "--pubkey", key.public, bundle}, {"exec", bundle, "--", "./main.sh"}} {
			out, errs, code := tell(m.command(args...))
			if said := out + errs; strings.ContainsAny(said, "\x1b\x07\u202e") || !strings.Contains(said, "does not hold") || code != map[string]int{"bundle": 1, "exec": 0}[args[0]] {
				t.Errorf("%v: %q, exit code %d", args, said, code)
			}
		}
	})
}

// minisign itself says the same of our signatures, and we of its keys.
func TestMinisignVerifiesOurSignatures(t *testing.T) {
	minisign, err := exec.LookPath("minisign")
	if err != nil {
		minisign, err = os.Getenv("SKILLBOX_MINISIGN"), nil
		if minisign == "" {
			err = errors.New("no program minisign")
		}
	}
	needs(t, "minisign", err)
	m := modes()[0]
	dir := m.dir(t)
	bundle := m.bundleOf(t, map[string]string{"main.sh": greeting})
	at := func(name string) string { return filepath.Join(dir, name) }
	theirs := exec.Command(minisign, "-G", "-W", "-p", at("a.pub"), "-s", at("a.key"))
	if out, err := theirs.CombinedOutput(); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	m.own(t, at("a.key"))
	ours := m.signer(t)
	for _, key := range []signer{{at("a.key"), at("a.pub")}, {ours.file, ours.file + ".pub"}} {
		signature := m.sign(t, key, bundle, "")
		if out, errs, code := tell(m.command("bundle", "verify", "--pubkey", key.public, bundle)); code != 0 {
			t.Errorf("ours: %s%s", out, errs)
		}
		statement, _, _ := tell(m.command("bundle", "digest", "--statement", bundle))
		m.write(t, at("statement"), statement, 0o644)
		if out, err := exec.Command(minisign, "-Vm", at("statement"), "-x", signature, "-p", key.public).CombinedOutput(); err != nil {
			t.Errorf("minisign: %v: %s", err, out)
		}
		m.write(t, at("statement"), statement+"x", 0o644)
		if out, err := exec.Command(minisign, "-Vm", at("statement"), "-x", signature, "-p", key.public).CombinedOutput(); err == nil {
			t.Errorf("minisign takes another statement: %s", out)
		}
	}
}
