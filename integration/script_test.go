//go:build linux

package integration

import (
	"errors"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"testing"

	"github.com/rogpeppe/go-internal/testscript"

	"skillbox/audit"
)

// The scripts in testdata are the command line's specification. Each runs in every mode, in a directory that the mode's user owns.
func TestScripts(t *testing.T) {
	inEachMode(t, func(t *testing.T, m mode) {
		held := limited(t, m)
		bin := m.dir(t)
		wrapper := "#!/bin/sh\nexec " + filepath.Join(binDir, "skillbox") + ` "$@"` + "\n"
		if cred := m.credential(); cred != nil {
			id := strconv.Itoa(int(cred.Uid))
			wrapper = "#!/bin/sh\nexec setpriv --reuid=" + id + " --regid=" + id + " --clear-groups " + filepath.Join(binDir, "skillbox") + ` "$@"` + "\n"
		}
		m.write(t, filepath.Join(bin, "skillbox"), wrapper, 0o755)
		testscript.Run(t, testscript.Params{
			Dir:                 "testdata",
			WorkdirRoot:         m.dir(t),
			RequireExplicitExec: true,
			RequireUniqueNames:  true,
			Setup: func(e *testscript.Env) error {
				e.Setenv("PATH", bin+":/usr/bin:/bin:/usr/sbin")
				e.Setenv("HOME", "/nonexistent")
				e.Setenv("XDG_STATE_HOME", m.state())
				e.Setenv("SKILLBOX_NO_DAEMON", "1")
				return filepath.WalkDir(e.WorkDir, func(path string, _ fs.DirEntry, err error) error {
					if cred := m.credential(); err == nil && cred != nil {
						err = os.Lchown(path, int(cred.Uid), int(cred.Gid))
					}
					return err
				})
			},
			Cmds: map[string]func(ts *testscript.TestScript, neg bool, args []string){
				"exits": exits,
				"auditlog": func(ts *testscript.TestScript, neg bool, args []string) {
					if neg || len(args) != 1 {
						ts.Fatalf("usage: auditlog DIRECTORY")
					}
					ts.Check(writeAuditLog(m, ts.MkAbs(args[0])))
				},
			},
			Condition: func(word string) (bool, error) {
				if word != "cgroup" {
					return false, errors.New("the one condition is cgroup: whether one holds a box's limits here")
				}
				return held.cgroup, nil
			},
		})
	})
}

// writeAuditLog makes a log of two runs that belongs to the mode's user: one that was denied a name, and one whose skill has an odd name.
func writeAuditLog(m mode, dir string) error {
	l, err := audit.Open(dir, audit.Options{Sync: audit.SyncNone, Host: "host"})
	if err != nil {
		return err
	}
	for _, run := range []struct{ id, skill, verdict string }{{"0123456789abcdef", "word-count", "exited"}, {"fedcba9876543210", "\x1b[2Jodd\n<b>", "timed_out"}} {
		event := func(d audit.Detail) audit.Event {
			return audit.Event{Run: run.id, Caller: &audit.Caller{UID: 1000, Process: "agent"}, Skill: &audit.Skill{Name: run.skill, Digest: "sha256:01"}, Detail: d}
		}
		if err == nil {
			err = l.Append(
				event(audit.Granted{Mode: "rootless", Policy: "policy.yaml"}),
				event(audit.DNS{Name: "evil.example", Type: "A", Outcome: audit.Outcome{Verdict: "denied", Layer: "network", Rule: "policy.yaml:3"}}),
				event(audit.Ended{Verdict: run.verdict, DurationMS: 12.5}),
			)
		}
	}
	if err := errors.Join(err, l.Close()); err != nil {
		return err
	}
	return filepath.WalkDir(dir, func(path string, _ fs.DirEntry, err error) error {
		if cred := m.credential(); err == nil && cred != nil {
			err = os.Lchown(path, int(cred.Uid), int(cred.Gid))
		}
		return err
	})
}

// exits runs a command that must end with an exit code: exits CODE COMMAND ARG…
func exits(ts *testscript.TestScript, neg bool, args []string) {
	if neg || len(args) < 2 {
		ts.Fatalf("usage: exits CODE COMMAND ARG…")
	}
	err := ts.Exec(args[1], args[2:]...)
	code := 0
	var exit *exec.ExitError
	if errors.As(err, &exit) {
		code = exit.ExitCode()
	} else if err != nil {
		ts.Fatalf("%v", err)
	}
	if strconv.Itoa(code) != args[0] {
		ts.Fatalf("exit code %d, want %s", code, args[0])
	}
}
