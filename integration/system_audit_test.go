//go:build linux

package integration

import (
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"skillbox/audit"
	"skillbox/helper"
)

// The machine's log has every user's runs, and no user a way to write it, or to be taken for another.
func TestTheSystemServiceRecordsItsCallers(t *testing.T) {
	s := startSystem(t)
	at := filepath.Join(s.dir, "audit")
	bundle := asRoot.bundleOf(t, map[string]string{"main.sh": "#!/bin/sh\nmount -t tmpfs x /tmp 2>/dev/null\necho $1\n"})
	ids := map[int]string{}
	for _, uid := range []int{bob, carol} {
		ids[uid] = s.as(uid).run(t, nil, bundle, "./main.sh", "hello").ID
	}
	refused, err := s.as(bob).ask([]string{"--policy", asRoot.file(t, "p.yaml", "version: 1\nnonsense: 1\n")}, bundle, "./main.sh")
	if err != nil || refused.Verdict != helper.Refused {
		t.Fatalf("%v, %+v", err, refused)
	}
	for uid, id := range ids {
		var kinds []audit.Kind
		for r, err := range audit.Read(at, audit.Query{Run: id}) {
			if err != nil {
				t.Fatal(err)
			}
			if r.Kind != audit.LayerVerified {
				kinds = append(kinds, r.Kind)
			}
			if r.Caller.UID != uid || r.Caller.PID == 0 || r.Caller.Process != "skillbox" {
				t.Errorf("%s of user %d: %+v", r.Kind, uid, r.Caller)
			}
			if g, ok := r.Detail.(audit.Granted); ok && g.Helper != "system" {
				t.Errorf("%+v", g)
			}
		}
		if want := []audit.Kind{audit.RunGranted, audit.RunStarted, audit.SyscallKind, audit.RunEnded}; !slices.Equal(kinds, want) {
			t.Errorf("user %d: %v, want %v", uid, kinds, want)
		}
	}
	found := 0
	for r, err := range audit.Read(at, audit.Query{Kinds: []audit.Kind{audit.RunRefused}}) {
		if err != nil {
			t.Fatal(err)
		}
		if r.Run == refused.ID && r.Caller.UID == bob {
			found++
		}
	}
	if found != 1 {
		t.Errorf("%d records of the refusal", found)
	}
	for _, name := range []string{"000001.jsonl", "head", "key", "lock"} {
		err := s.as(bob).within(func() error {
			c := asRoot.command()
			c.Path, c.Args = "/bin/sh", []string{"sh", "-c", "cat " + filepath.Join(at, name) + " || : >> " + filepath.Join(at, name)}
			c.SysProcAttr = s.as(bob).command().SysProcAttr
			out, err := c.CombinedOutput()
			if err == nil || !strings.Contains(string(out), "ermission denied") {
				t.Errorf("%s: %v: %s", name, err, out)
			}
			return nil
		})
		if err != nil {
			t.Fatal(err)
		}
	}
	s.stop(t)
	report, err := audit.Verify(at, audit.VerifyOptions{})
	if err != nil || report.Broken != nil || report.Signed != report.Last-1 && report.Signed != report.Last {
		t.Errorf("%+v, %v", report, err)
	}
	if _, err := os.Stat(filepath.Join(at, "head")); err != nil {
		t.Error(err)
	}
}
