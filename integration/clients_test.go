//go:build linux

package integration

import (
	"bytes"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// helped is a program of the mode's user with a service at hand.
func (s *service) helped(t *testing.T, name string, args ...string) (stdout, stderr string, err error) {
	t.Helper()
	c := s.mode.command()
	c.Path, c.Args = name, append([]string{name}, args...)
	c.Env = append(c.Env, s.env()...)
	var out, errs bytes.Buffer
	c.Stdout, c.Stderr = &out, &errs
	err = c.Run()
	return out.String(), errs.String(), err
}

func TestThePythonClientDoesWhatItSays(t *testing.T) {
	inEachMode(t, func(t *testing.T, m mode) {
		leavesNothing(t)
		s := m.service(t)
		dir := m.dir(t)
		if err := os.CopyFS(filepath.Join(dir, "python"), os.DirFS("../clients/python")); err != nil {
			t.Fatal(err)
		}
		examples := filepath.Dir(m.example(t, "word-count"))
		_, errs, err := s.helped(t, "/usr/bin/env", "SKILLBOX="+filepath.Join(binDir, "skillbox"), "SKILLBOX_EXAMPLES="+examples, "SKILLWARE_SKILL_PATH="+m.skillware(t), "PYTHONDONTWRITEBYTECODE=1",
			"/usr/bin/python3", "-m", "unittest", "discover", "-s", filepath.Join(dir, "python"))
		if err != nil || !strings.Contains(errs, "\nOK\n") {
			t.Errorf("%v\n%s", err, errs)
		}
	})
}

// The example program in Go lies beside skillboxd, as an agent host that was installed with it.
func TestAHostInGoRunsSkills(t *testing.T) {
	program := filepath.Join(binDir, "go-host")
	inEachMode(t, func(t *testing.T, m mode) {
		leavesNothing(t)
		s := m.service(t)
		for range 3 {
			out, errs, err := s.helped(t, program, m.example(t, "word-count"), `{"text": "a b a"}`)
			if err != nil || !strings.Contains(out, `"words": 3`) {
				t.Errorf("%v: %s%s", err, out, errs)
			}
		}
		// Several are the turns of a session.
		counting := m.bundleOf(t, map[string]string{"skillbox.yaml": "version: 1\nname: counting\ncommand: [./count]\n", "count": "#!/bin/sh\ncat >> /tmp/turns; tr -cd n < /tmp/turns | wc -c\n"})
		out, errs, err := s.helped(t, program, counting, `{"n": 1}`, `{"n": 2}`, `{"n": 3}`)
		if err != nil || out != "1\n2\n3\n" {
			t.Errorf("%v: %q%s", err, out, errs)
		}
		if _, errs, err := s.helped(t, program, "/nonexistent", "1", "2"); err == nil || !strings.Contains(errs, "/nonexistent") {
			t.Errorf("%v: %s", err, errs)
		}
		if out, errs, err := s.helped(t, program, counting, "1", "x", "3"); err == nil || out != "0\n" || !strings.Contains(errs, "not JSON") {
			t.Errorf("%v: %q%s", err, out, errs)
		}
		if left := s.status(t).Sessions; len(left) != 0 {
			t.Errorf("%+v", left)
		}
		if _, errs, err := s.helped(t, program, m.example(t, "word-count"), `{"text": `); err == nil || !strings.Contains(errs, "not JSON") {
			t.Errorf("%v: %s", err, errs)
		}
	})
}
