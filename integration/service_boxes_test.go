//go:build linux

package integration

import (
	"encoding/json"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"skillbox/helper"
)

// taking holds 48 MiB until it is killed.
const taking = "import time\nheld = bytearray(48 << 20)\nprint('ready', flush=True)\ntime.sleep(600)\n"

// boxesBy reads what ps --all --json says, by kind.
func boxesBy(t *testing.T, c *exec.Cmd) map[string][]helper.BoxStatus {
	t.Helper()
	text, code := output(t, c)
	var s helper.Status
	if err := json.Unmarshal([]byte(text), &s); err != nil || code != 0 || s.Boxes == nil {
		t.Fatalf("exit code %d, %v: %s", code, err, text)
	}
	by := map[string][]helper.BoxStatus{}
	for _, b := range s.Boxes {
		by[b.Kind] = append(by[b.Kind], b)
	}
	return by
}

func TestEachBoxIsListedWithWhatItTakes(t *testing.T) {
	inEachMode(t, func(t *testing.T, m mode) {
		s := m.service(t)
		all := func() map[string][]helper.BoxStatus { return boxesBy(t, s.skillbox("ps", "--all", "--json")) }
		bundle := m.bundleOf(t, map[string]string{
			"SKILL.md": "---\nname: a-skill\ndescription: d\n---\n", "take.py": taking, "main.py": "import json\nprint('main')\n", "main.sh": repeating,
		})
		policy := m.file(t, "policy.yaml", "version: 1\nname: a-policy\nwarm: {preload: true}\n")
		began := time.Now()
		running := s.background(t, []string{"--policy", policy}, bundle, "python3", "take.py")
		running.expect(t, "ready\n")
		one := s.session(t, bundle)
		one.says(t, "", "true")
		s.preloaded(t, func() *helper.Result { return s.run(t, []string{"--policy", policy}, bundle, "python3", "main.py") })
		s.run(t, nil, bundle, "./main.sh", "a")
		s.settled(t)
		got := all()
		for kind, want := range map[string]struct {
			least, most float64 // MiB
			policy      string
		}{
			helper.CallBox: {48, 160, "a-policy"}, helper.SessionBox: {0.1, 32, ""}, helper.Prepared: {0.1, 32, ""}, helper.Preloaded: {2, 80, "a-policy"},
		} {
			if len(got[kind]) == 0 {
				t.Errorf("no box of kind %s: %+v", kind, got)
			}
			for _, b := range got[kind] {
				if b.MemoryBytes == nil || float64(*b.MemoryBytes) < want.least*(1<<20) || float64(*b.MemoryBytes) > want.most*(1<<20) {
					t.Errorf("%s takes %v bytes", kind, b.MemoryBytes)
				}
				if b.Skill != "a-skill" || b.Policy != want.policy && kind != helper.Prepared || filepath.Base(b.Bundle) != filepath.Base(bundle) || b.Since.Before(began.Add(-time.Second)) || b.Since.After(time.Now()) {
					t.Errorf("%+v", b)
				}
			}
		}
		if b := got[helper.SessionBox]; len(b) != 1 || b[0].ID != one.id || b[0].State != "idle" {
			t.Errorf("%+v", b)
		}
		if b := got[helper.CallBox]; len(b) != 1 || b[0].ID != s.status(t).Running[0].ID || !slices.Contains(b[0].Command, "take.py") {
			t.Errorf("%+v", b)
		}
		if s.status(t).Boxes != nil {
			t.Error("nobody asked for each box")
		}
		table, code := output(t, s.skillbox("ps", "--all"))
		if code != 0 || !strings.HasPrefix(table, "BOX ") || !strings.Contains(table, one.id+"  session  ") || strings.Count(table, " MiB ") != strings.Count(table, "\n")-1 {
			t.Errorf("exit code %d: %s", code, table)
		}
		running.end(t)
		if !soon(func() bool { return len(all()[helper.CallBox]) == 0 }) {
			t.Error("a call that has ended is still listed")
		}
	})
}

// Who asks while boxes come and go is told of those that there are.
func TestBoxesAreListedWhileTheyEnd(t *testing.T) {
	m := asRoot
	s := m.service(t)
	bundle := m.bundleOf(t, map[string]string{"main.sh": repeating})
	s.run(t, nil, bundle, "./main.sh", "a")
	done := make(chan struct{})
	go func() {
		defer close(done)
		for range load(20) {
			if r, err := s.ask(nil, bundle, "./main.sh", "a"); err != nil || r.Stdout != "a\n" {
				t.Errorf("%v, %+v", err, r)
			}
		}
	}()
	for asking := true; asking; {
		select {
		case <-done:
			asking = false
		default:
			for kind, boxes := range boxesBy(t, s.skillbox("ps", "--all", "--json")) {
				for _, b := range boxes {
					if !slices.Contains([]string{helper.CallBox, helper.Prepared}, kind) || len(b.ID) != 16 {
						t.Errorf("%+v", b)
					}
				}
			}
		}
	}
}

func TestTheSystemServiceListsACallersBoxesToTheCaller(t *testing.T) {
	s := startSystem(t)
	bundle := asRoot.bundleOf(t, map[string]string{"main.sh": lasting})
	b := asRoot.prepared(t, s.as(bob).call(nil, bundle, "./main.sh", "of-bob"))
	b.expect(t, "ready\n")
	if mine := boxesBy(t, s.as(bob).command("ps", "--all", "--json", "--mode", "system"))[helper.CallBox]; len(mine) != 1 || mine[0].MemoryBytes == nil || *mine[0].MemoryBytes <= 0 {
		t.Errorf("%+v", mine)
	}
	if others := boxesBy(t, s.as(carol).command("ps", "--all", "--json", "--mode", "system")); len(others) != 0 {
		t.Errorf("another user is told of %+v", others)
	}
	if out, err := s.as(0).command("ps", "--all", "--mode", "system").CombinedOutput(); err == nil || !strings.Contains(string(out), "serves ordinary users") {
		t.Errorf("root: %v: %s", err, out)
	}
	b.end(t)
}
