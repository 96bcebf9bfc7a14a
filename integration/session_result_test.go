//go:build linux

package integration

import (
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"skillbox/helper"
)

func TestASessionIsRefusedAsACallIs(t *testing.T) {
	inEachMode(t, func(t *testing.T, m mode) {
		s := m.service(t)
		bundle := m.sharedBundle(t)
		wrong := m.file(t, "wrong.yaml", "version: 1\nname: x\nnetwork: nonsense\n")
		for want, args := range map[string][]string{
			wrong + ":3:":      {"--policy", wrong, bundle},
			"no such file":     {filepath.Join(bundle, "missing")},
			"1BAD":             {"--env", "1BAD", bundle},
			"larger than":      {"--max-bytes", "1", bundle},
			"times are from 1": {"--idle", "1ms", bundle},
		} {
			out, errs, code := tell(s.sessionCommand(append([]string{"start"}, args...)...))
			if want == "larger than" {
				want = "bytes"
			}
			if code != 125 || out != "" || !strings.HasPrefix(errs, "skillbox: ") || !strings.Contains(errs, want) {
				t.Errorf("%q: %q, %q, exit code %d", args, out, errs, code)
			}
			args = append([]string{"start", "--json"}, args...)
			e := checkEnvelope(t, args, plain(t, s.sessionCommand(args...), nil), 125, shape)
			if !strings.Contains(fmt.Sprint(e["error"]), strings.TrimPrefix(strings.TrimSuffix(want, ":3:"), "--")) {
				t.Errorf("%q: %v", args, e["error"])
			}
		}
		if left := s.status(t).Sessions; len(left) != 0 {
			t.Errorf("%+v", left)
		}
	})
}

func TestAServiceHoldsSoManySessionsAndNoMore(t *testing.T) {
	inEachMode(t, func(t *testing.T, m mode) {
		s := m.service(t)
		var all sync.WaitGroup
		var mu sync.Mutex
		refused := 0
		for range 4 {
			all.Go(func() {
				for range helper.MaxSessions / 4 * 5 / 4 { // a quarter too many
					out, errs, code := tell(s.sessionCommand("start", m.sharedBundle(t)))
					if code == 0 && len(out) == 17 {
						continue
					}
					if code != 125 || !strings.Contains(errs, fmt.Sprintf("holds %d sessions", helper.MaxSessions)) || !strings.Contains(errs, "hint: ") {
						t.Errorf("%q, %q, exit code %d", out, errs, code)
					}
					mu.Lock()
					refused++
					mu.Unlock()
				}
			})
		}
		all.Wait()
		held := s.status(t).Sessions
		if len(held) != helper.MaxSessions || refused != helper.MaxSessions/4 {
			t.Fatalf("%d sessions, %d refused", len(held), refused)
		}
		// One that ends makes room; calls of their own are not kept from their boxes.
		if errs, code := s.kill(held[0].ID, held[1].ID); code != 0 {
			t.Error(errs)
		}
		if !soon(func() bool { return len(s.status(t).Sessions) == helper.MaxSessions-2 }) {
			t.Error("those that were killed are still there")
		}
		s.session(t, m.sharedBundle(t)).says(t, "a\n", "echo", "a")
		s.run(t, nil, m.sharedBundle(t), "true")
	})
}

func TestTheEnvelopeOfASessionsCallSaysWhoseItIs(t *testing.T) {
	ours := maps.Clone(shape)
	ours["session"], ours["call"] = "string", "number"
	inEachMode(t, func(t *testing.T, m mode) {
		s := m.service(t)
		bundle := m.bundleOf(t, map[string]string{"skillbox.yaml": "version: 1\nname: turns\n", "main.sh": "#!/bin/sh\n"})
		one := s.session(t, bundle, "--policy", m.file(t, "policy.yaml", "version: 1\nname: tight\n"))
		ids := map[any]bool{}
		for i, c := range []struct {
			verdict string
			code    int
			args    []string
		}{
			{"exited", 0, []string{"true"}},
			{"failed", 127, []string{"no-such-program"}},
			{"exited", 3, []string{"sh", "-c", "exit 3"}},
			{"refused", 125, []string{}}, // nothing says what to run
			{"timed_out", 124, []string{"sleep", "60"}},
		} {
			args := append([]string{"exec", "--json", "--timeout", "2s", one.id, "--"}, c.args...)
			e := checkEnvelope(t, args, plain(t, s.sessionCommand(args...), nil), c.code, ours)
			if e["session"] != one.id || e["call"] != float64(i+1) || e["verdict"] != c.verdict || ids[e["id"]] {
				t.Errorf("%q: %v", args, e)
			}
			ids[e["id"]] = true
			if skill, policy := fmt.Sprint(e["skill"]), fmt.Sprint(e["policy"]); !strings.Contains(skill, "turns") || !strings.Contains(policy, "tight") {
				t.Errorf("%q: %s, %s", args, skill, policy)
			}
		}
		// A call that no session takes is of none.
		args := []string{"exec", "--json", one.id, "--", "true"}
		checkEnvelope(t, args, plain(t, s.sessionCommand(args...), nil), 125, shape)
	})
}

func TestABundleThatChangesUnderASessionIsWarnedOf(t *testing.T) {
	inEachMode(t, func(t *testing.T, m mode) {
		s := m.service(t)
		bundle := m.bundleOf(t, map[string]string{"main.sh": "#!/bin/sh\necho one\n"})
		one := s.session(t, bundle)
		changed := func(r *helper.Result) bool {
			return strings.Contains(fmt.Sprint(r.Warnings), "changed since the session began")
		}
		before := one.says(t, "one\n", "./main.sh")
		m.write(t, filepath.Join(bundle, "new"), "", 0o644)
		after := one.says(t, "one\n", "./main.sh")
		if changed(before) || !changed(after) || before.Skill != after.Skill {
			t.Errorf("%v, %v; then %v, %v", before.Skill, before.Warnings, after.Skill, after.Warnings)
		}
		if err := os.RemoveAll(bundle); err != nil {
			t.Fatal(err)
		}
		if r := one.call(t, nil, "true"); !r.Success || !changed(r) {
			t.Errorf("%+v", r)
		}
	})
}

func TestOutputAndTerminalsOfASession(t *testing.T) {
	inEachMode(t, func(t *testing.T, m mode) {
		s := m.service(t)
		one := s.session(t, m.sharedBundle(t))
		for i := range 3 {
			out := filepath.Join(m.dir(t), "out")
			r := one.call(t, []string{"--output", out}, "sh", "-c", fmt.Sprintf("echo %d > /output/%d", i, i))
			names, err := filepath.Glob(out + "/*")
			if err != nil || len(names) != i+1 || len(r.Outputs) != i+1 || len(r.Warnings) > 1 {
				t.Errorf("call %d: %v, %v, %v", r.Call, names, r.Outputs, r.Warnings)
			}
			one.says(t, "", "true")
		}
		for range 3 {
			within(t, patience(5*time.Second), func() {
				b := m.prepared(t, one.command([]string{"--tty"}, "sh", "-c", "tty; stty size; sleep 100 & echo last"))
				out, code := b.wait(t)
				if code != 0 || !strings.HasPrefix(out, "/dev/pts/") || !strings.HasSuffix(out, "last\r\n") {
					t.Errorf("%q, %d: %s", out, code, b.stderr.String())
				}
			})
		}
	})
}
