//go:build linux

package integration

import (
	"crypto/rand"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"skillbox/helper"
)

// lasting is a skill that can be found by a word of its command line, and ignores what can be ignored.
const lasting = "#!/bin/sh\ntrap '' TERM HUP\n(setsid sh -c \"while :; do sleep 1; done # $1\" &)\necho ready\nwhile :; do sleep 1; done\n"

// running says that a process has this word in its command line; clients, who end when they are waited for, do not count.
func running(word string) bool {
	names, _ := filepath.Glob("/proc/[0-9]*/cmdline")
	return slices.ContainsFunc(names, func(name string) bool {
		words, _ := os.ReadFile(name) // none when it ended meanwhile
		return strings.Contains(string(words), word) && !strings.Contains(string(words), "\x00exec\x00")
	})
}

func TestAClientsDeathEndsItsSkillAndNoOther(t *testing.T) {
	inEachMode(t, func(t *testing.T, m mode) {
		s := m.service(t)
		bundle := m.bundleOf(t, map[string]string{"main.sh": lasting, "echo.sh": repeating})
		s.warm(t, 1, func() *helper.Result { return s.run(t, nil, bundle, "./echo.sh", "a") })
		pid := s.pid(t)
		other := rand.Text()
		bystander := s.background(t, nil, bundle, "./main.sh", other)
		bystander.expect(t, "ready\n")
		for range 3 {
			nonce := rand.Text()
			b := s.background(t, nil, bundle, "./main.sh", nonce)
			b.expect(t, "ready\n")
			if !running(nonce) {
				t.Fatal("the skill is not found")
			}
			b.end(t)
			if !soon(func() bool { return !running(nonce) }) {
				t.Error("the skill outlives its client")
			}
			if r := s.run(t, nil, bundle, "./echo.sh", nonce); r.Stdout != nonce+"\n" {
				t.Errorf("%+v", r)
			}
			if !running(other) {
				t.Error("another client's skill is gone")
			}
		}
		bystander.end(t)
		if now := s.pid(t); now != pid {
			t.Errorf("the service was %d and is %d", pid, now)
		}
	})
}

func TestAServicesDeathEndsEveryBoxAndIsTold(t *testing.T) {
	inEachMode(t, func(t *testing.T, m mode) {
		s := m.service(t)
		bundle := m.bundleOf(t, map[string]string{"main.sh": lasting, "echo.sh": repeating})
		s.warm(t, 1, func() *helper.Result { return s.run(t, nil, bundle, "./echo.sh", "a") })
		for _, how := range []syscall.Signal{unix.SIGKILL, unix.SIGTERM} {
			var clients []*background
			var nonces []string
			for i := range 3 {
				nonces = append(nonces, rand.Text())
				clients = append(clients, s.background(t, nil, bundle, "./main.sh", nonces[i]))
				clients[i].expect(t, "ready\n")
			}
			pid := s.pid(t)
			if err := unix.Kill(pid, how); err != nil {
				t.Fatal(err)
			}
			for i, b := range clients {
				out, code := b.wait(t)
				says := b.stderr.String()
				if how == unix.SIGKILL && (code != 125 || !strings.HasPrefix(says, "skillbox: ") || !strings.Contains(says, "skillboxd ended without an answer")) {
					t.Errorf("after SIGKILL: exit code %d, %q", code, says)
				}
				if how == unix.SIGTERM && code != 130 && code != 125 || says == "" || out != "" {
					t.Errorf("after %v: exit code %d, %q, %q", how, code, out, says)
				}
				if !soon(func() bool { return !running(nonces[i]) }) {
					t.Errorf("after %v a skill runs on", how)
				}
			}
			if r := s.run(t, nil, bundle, "./echo.sh", "again"); r.Stdout != "again\n" {
				t.Errorf("%+v", r)
			}
			if !soon(func() bool { return !slices.Contains(s.pids(), pid) }) {
				t.Errorf("%d is still there", pid)
			}
			s.pid(t)
		}
	})
}

func TestASkillboxdInstalledAnewServesTheNextCall(t *testing.T) {
	inEachMode(t, func(t *testing.T, m mode) {
		s := m.service(t)
		s.bin = m.dir(t)
		for _, name := range []string{"skillbox", "skillboxd", "skillbox-init"} {
			install(t, s.bin, name)
		}
		bundle := m.bundleOf(t, map[string]string{"main.sh": repeating, "long.sh": "#!/bin/sh\necho ready; read line; echo $line\n"})
		s.warm(t, 1, func() *helper.Result { return s.run(t, nil, bundle, "./main.sh", "a") })
		for range 3 {
			old := s.pid(t)
			busy := s.background(t, nil, bundle, "./long.sh")
			busy.expect(t, "ready\n")
			install(t, s.bin, "skillboxd")
			var all sync.WaitGroup
			for range 5 {
				nonce := rand.Text()
				all.Go(func() {
					if r, err := s.ask(nil, bundle, "./main.sh", nonce); err != nil || r.Stdout != nonce+"\n" {
						t.Errorf("%v, %+v", err, r)
					}
				})
			}
			all.Wait()
			// Whoever is being served when the new one comes is served to the end.
			if _, err := io.WriteString(busy.stdin, "a line\n"); err != nil {
				t.Error(err)
			}
			if out, code := busy.wait(t); out != "a line\n" || code != 0 {
				t.Errorf("%q, exit code %d: %s", out, code, busy.stderr.String())
			}
			if !soon(func() bool { return !slices.Contains(s.pids(), old) }) {
				t.Error("the old service stays")
			}
			s.pid(t)
		}
	})
}

// install puts a program into a directory anew, as packages do.
func install(t *testing.T, dir, name string) {
	t.Helper()
	data, err := os.ReadFile(filepath.Join(binDir, name))
	if err == nil {
		err = os.WriteFile(filepath.Join(dir, name+".new"), data, 0o755)
	}
	if err == nil {
		err = os.Rename(filepath.Join(dir, name+".new"), filepath.Join(dir, name))
	}
	if err != nil {
		t.Fatal(err)
	}
}

// Who starts a service gives it what it needs, an ordinary user's ids.
func TestAClientThatDiesAsItStartsAServiceHoldsNobodyUp(t *testing.T) {
	inEachMode(t, func(t *testing.T, m mode) {
		bundle := m.bundleOf(t, map[string]string{"main.sh": repeating})
		for i := range load(16) {
			s := m.service(t)
			first := s.background(t, nil, bundle, "./main.sh", "first")
			time.Sleep(time.Duration(i) * time.Millisecond)
			if err := first.cmd.Process.Kill(); err != nil {
				t.Fatal(err)
			}
			began := time.Now()
			if r := s.run(t, nil, bundle, "./main.sh", "second"); r.Stdout != "second\n" {
				t.Errorf("%+v", r)
			}
			if took := time.Since(began); took > patience(5*time.Second) {
				t.Errorf("killed after %d ms, it holds the next one up for %v", i, took)
			}
			first.wait(t)
		}
	})
}
