//go:build linux

package integration

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"skillbox/helper"
)

// No policy hands out the log, the directories above it, a file in it, the same directory by another mount, or what says how it is kept.
func TestNoPolicyLetsASkillWriteToTheLog(t *testing.T) {
	inEachMode(t, func(t *testing.T, m mode) {
		env := m.keepsItsLog(t, "sync: none\n")
		call{mode: m, env: env, words: []string{"/bin/true"}}.run(t) // which makes the log
		config := "/etc/skillbox"
		if len(env) > 0 {
			config = filepath.Join(strings.TrimPrefix(env[0], "XDG_CONFIG_HOME="), "skillbox")
		}
		paths := []string{m.audit(), filepath.Dir(m.audit()), filepath.Join(m.audit(), "000001.jsonl"), filepath.Join(m.audit(), "head"), config}
		if os.Getuid() == 0 {
			for name, of := range map[string]string{"log": m.audit(), "above": filepath.Dir(m.audit())} {
				alias := filepath.Join(m.dir(t), name)
				if err := os.Mkdir(alias, 0o755); err != nil {
					t.Fatal(err)
				}
				if err := unix.Mount(of, alias, "", unix.MS_BIND, ""); err != nil {
					t.Fatal(err)
				}
				defer func() { _ = unix.Unmount(alias, unix.MNT_DETACH) }() // of this test's namespace
				paths = append(paths, alias)
			}
		}
		for _, path := range paths {
			policy := fmt.Sprintf("version: 1\nfilesystem: {write: [{host: %s, path: /data, dangerous: true}]}\n", path)
			r := call{mode: m, env: env, policy: policy, words: []string{"/bin/sh", "-c", "echo lie >> /data/000001.jsonl; echo lie >> /data"}}.run(t)
			// Some are refused before that for being the system's.
			if r.Verdict != helper.Refused || r.Error == nil || r.Error.Line != 2 || !strings.HasPrefix(r.Error.Field, "filesystem.write[0]") {
				t.Errorf("%s: %s, %+v", path, r.Verdict, r.Error)
			} else if strings.Contains(path, "TestNoPolicy") && !strings.Contains(r.Error.Message, "audit log") {
				t.Errorf("%s: %+v", path, r.Error)
			}
		}
		// To read it is another matter, and another directory nobody's.
		beside := m.dir(t)
		r := call{mode: m, env: env, policy: fmt.Sprintf("version: 1\nfilesystem: {write: [{host: %s, path: /data}]}\n", beside), words: []string{"/bin/sh", "-c", "echo x > /data/file"}}.run(t)
		if !r.Success {
			t.Errorf("%s, %+v", r.Verdict, r.Error)
		}
	})
}
