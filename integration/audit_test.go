//go:build linux

package integration

import (
	"errors"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"skillbox/audit"
	"skillbox/helper"
)

// recorded are the records of one run, in the log of the mode's user.
func recorded(t *testing.T, m mode, run string) (all []audit.Record) {
	t.Helper()
	for r, err := range audit.Read(m.audit(), audit.Query{Run: run}) {
		if err != nil {
			t.Fatal(err)
		}
		all = append(all, r)
	}
	return all
}

func kindsOf(records []audit.Record) (kinds []audit.Kind) {
	for _, r := range records {
		if r.Kind != audit.LayerVerified {
			kinds = append(kinds, r.Kind)
		}
	}
	return kinds
}

func detail[D audit.Detail](t *testing.T, records []audit.Record) (d D) {
	t.Helper()
	for _, r := range records {
		if found, ok := r.Detail.(D); ok {
			return found
		}
	}
	t.Fatalf("no record of %T", d)
	return d
}

func TestEachRunIsInTheLog(t *testing.T) {
	inEachMode(t, func(t *testing.T, m mode) {
		for _, c := range []struct {
			name  string
			call  call
			kinds []audit.Kind
		}{
			{"exit", call{words: []string{"/bin/sh", "-c", "exit 3"}}, []audit.Kind{audit.RunGranted, audit.RunStarted, audit.RunEnded}},
			{"denied", call{words: []string{"/bin/mount", "-t", "tmpfs", "x", "/tmp"}}, []audit.Kind{audit.RunGranted, audit.RunStarted, audit.SyscallKind, audit.RunEnded}},
			{"output", call{flags: []string{"--output", m.dir(t)}, words: []string{"/bin/sh", "-c", "echo hello > /output/a"}}, []audit.Kind{audit.RunGranted, audit.RunStarted, audit.OutputKind, audit.RunEnded}},
			{"time-out", call{flags: []string{"--timeout", "300ms"}, words: []string{"/bin/sleep", "10"}}, []audit.Kind{audit.RunGranted, audit.RunStarted, audit.LimitKind, audit.RunEnded}},
			{"not found", call{words: []string{"/none"}}, []audit.Kind{audit.RunGranted, audit.RunEnded}},
			{"refused", call{policy: "version: 1\nnetwork: {egress: [{domains: [a.example]}]}\nnonsense: 1\n", words: []string{"/bin/true"}}, []audit.Kind{audit.RunRefused}},
		} {
			t.Run(c.name, func(t *testing.T) {
				c.call.mode = m
				r := c.call.run(t)
				records := recorded(t, m, r.ID)
				if got := kindsOf(records); r.ID == "" || !slices.Equal(got, c.kinds) {
					t.Fatalf("%q: %v, want %v", r.ID, got, c.kinds)
				}
				for _, e := range records {
					if e.Caller == nil || e.Caller.UID != m.uid() || e.Caller.PID != os.Getpid() {
						t.Errorf("%s: caller %+v, want user %d, process %d", e.Kind, e.Caller, m.uid(), os.Getpid())
					}
				}
				if c.name == "refused" {
					if d := detail[audit.Refused](t, records); !strings.Contains(d.Rule, "policy.yaml:3:1") || !strings.Contains(d.Message, "nonsense") {
						t.Errorf("%+v", d)
					}
					return
				}
				granted, end := detail[audit.Granted](t, records), detail[audit.Ended](t, records)
				if granted.PolicyDigest != r.Policy.Digest || granted.Mode != r.Sandbox.Mode || granted.Helper != "oneshot" || !strings.HasPrefix(granted.PlanDigest, "sha256:") {
					t.Errorf("%+v", granted)
				}
				if end.Verdict != r.Verdict || end.ExitCode != r.ExitCode || records[0].Skill.Digest != r.Skill.Digest {
					t.Errorf("%+v, %+v, the result says %s %d %s", end, records[0].Skill, r.Verdict, r.ExitCode, r.Skill.Digest)
				}
			})
		}
		if report, err := audit.Verify(m.audit(), audit.VerifyOptions{}); err != nil || report.Broken != nil {
			t.Errorf("%+v, %v", report.Broken, err)
		}
	})
}

// A run that nobody could tell of does not start.
func TestARunThatCannotBeRecordedDoesNotStart(t *testing.T) {
	inEachMode(t, func(t *testing.T, m mode) {
		foreign := m.dir(t)
		if err := os.MkdirAll(filepath.Join(foreign, "skillbox", "audit"), 0o777); err != nil {
			t.Fatal(err)
		}
		if err := os.Chmod(filepath.Join(foreign, "skillbox", "audit"), 0o777); err != nil {
			t.Fatal(err)
		}
		for name, env := range map[string][]string{
			"no home":                {"HOME=", "XDG_STATE_HOME="},
			"a home that is not":     {"HOME=/nonexistent", "XDG_STATE_HOME="},
			"a log others may write": {"XDG_STATE_HOME=" + foreign},
		} {
			if m == asRoot {
				break // whose log is where root's is
			}
			t.Run(name, func(t *testing.T) {
				r := call{mode: m, env: env, words: []string{"/bin/sh", "-c", "echo ran"}}.run(t)
				if r.Verdict != helper.Failed || r.ExitCode != helper.CodeFailed || r.Stdout != "" || !strings.Contains(r.Error.Message, "cannot be recorded") || r.Error.Hint == "" {
					t.Errorf("%s %d, %+v, %q", r.Verdict, r.ExitCode, r.Error, r.Stdout)
				}
			})
		}
	})
}

// A disk that is full refuses every run, and those that are recorded stay.
func TestAFullDiskStartsNoRun(t *testing.T) {
	if os.Getuid() != 0 {
		needs(t, "root", errors.New("a small tmpfs is mounted"))
	}
	inEachMode(t, func(t *testing.T, m mode) {
		state := m.dir(t)
		id := m.uid()
		if err := unix.Mount("tmpfs", state, "tmpfs", unix.MS_NOSUID|unix.MS_NODEV, "size=64k,mode=700"); err != nil {
			t.Fatal(err)
		}
		defer func() { _ = unix.Unmount(state, unix.MNT_DETACH) }() // of this test's namespace
		at := filepath.Join(state, "skillbox", "audit")
		if m == asRoot {
			at = m.audit()
			if err := os.MkdirAll(at, 0o700); err != nil {
				t.Fatal(err)
			}
			if err := unix.Mount(state, at, "", unix.MS_BIND, ""); err != nil {
				t.Fatal(err)
			}
			defer func() { _ = unix.Unmount(at, unix.MNT_DETACH) }()
		}
		if err := os.Chown(state, id, id); err != nil {
			t.Fatal(err)
		}
		one := func() *helper.Result {
			return call{mode: m, env: []string{"XDG_STATE_HOME=" + state}, words: []string{"/bin/sh", "-c", "echo ran"}}.run(t)
		}
		ran := 0
		for range 40 {
			r := one()
			if r.Success {
				ran++
				continue
			}
			if r.Verdict != helper.Failed || r.Stdout != "" || !strings.Contains(r.Error.Message, "cannot be recorded") || !strings.Contains(r.Error.Hint, "make room") {
				t.Fatalf("%s, %+v, %q", r.Verdict, r.Error, r.Stdout)
			}
			if ran == 0 {
				t.Error("none ran before the disk was full")
			}
			if report, err := audit.Verify(at, audit.VerifyOptions{}); err != nil || report.Broken != nil {
				t.Errorf("%+v, %v", report.Broken, err)
			}
			return
		}
		t.Errorf("%d runs were recorded on 64 KiB", ran)
	})
}
