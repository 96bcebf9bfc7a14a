//go:build linux

package integration

import (
	"crypto/rand"
	"fmt"
	"os"
	"os/exec"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"skillbox/helper"
)

func TestWhatASessionIsOverBy(t *testing.T) {
	inEachMode(t, func(t *testing.T, m mode) {
		s := m.service(t)
		bundle := m.probeBundle(t)
		policy := []string{"--policy", m.file(t, "policy.yaml", "version: 1\nresources: {output: 64Ki}\n")}
		var all sync.WaitGroup
		for _, c := range []struct {
			verdict string
			code    int
			why     string
			flags   []string
			words   []string
		}{
			{helper.TimedOut, 124, "longer than 300ms", []string{"--timeout", "300ms"}, []string{"sleep", "60"}},
			{helper.TimedOut, 124, "longer than 300ms", []string{"--timeout", "300ms"}, []string{"sh", "-c", "trap '' TERM; sleep 60; sleep 60"}},
			{helper.OutputLimit, 153, "more than 65536 bytes", nil, []string{"yes"}},
			{helper.OutOfMemory, 137, "memory", nil, []string{"/usr/bin/python3", "-c", "x = b'x' * (400 << 20)\nimport time; time.sleep(20)"}},
		} {
			one := s.session(t, bundle, policy...)
			all.Go(func() {
				r, err := one.ask(c.flags, c.words...)
				if err != nil || r.Verdict != c.verdict || r.ExitCode != c.code || !strings.Contains(fmt.Sprint(r.Error), c.why) {
					t.Errorf("%q: %v, %+v", c.words, err, r)
					return
				}
				one.isOver(t, c.why)
			})
		}
		// What a call left behind is held to the limits too.
		one := s.session(t, bundle, policy...)
		one.call(t, nil, "sh", "-c", "/usr/bin/python3 -c \"x = b'x' * (400 << 20); import time; time.sleep(60)\" >/dev/null 2>&1 </dev/null &")
		if !soon(func() bool { return len(s.status(t).Sessions) <= 4 && !s.lists(t, one.id) }) {
			t.Error("memory between calls has no limit")
		}
		one.isOver(t, "memory")
		all.Wait()
		if left := s.status(t); len(left.Sessions) != 0 || len(left.Running) != 0 {
			t.Errorf("%+v", left)
		}
	})
}

func (s *service) lists(t *testing.T, id string) bool {
	t.Helper()
	return slices.ContainsFunc(s.status(t).Sessions, func(one helper.SessionStatus) bool { return one.ID == id })
}

func TestASessionLivesNoLongerThanItMay(t *testing.T) {
	inEachMode(t, func(t *testing.T, m mode) {
		s := m.service(t)
		s.idle = "1s" // of the service: it stays for its sessions
		bundle := m.sharedBundle(t)
		idle, total, stays := s.session(t, bundle, "--idle", "1900ms"), s.session(t, bundle, "--total", "3s"), s.session(t, bundle)
		busy := s.session(t, bundle, "--total", "2s", "--idle", "1s")
		pid := s.pid(t)
		var all sync.WaitGroup
		all.Go(func() {
			if r, err := busy.ask(nil, "sleep", "60"); err != nil || r.Verdict != helper.TimedOut || r.ExitCode != 124 || !strings.Contains(r.Error.Message, "lasted for its 2s") {
				t.Errorf("%v, %+v", err, r)
			}
		})
		// A call that takes longer is no idleness.
		idle.says(t, "", "sleep", "2")
		idle.says(t, "", "true")
		all.Wait()
		if !soon(func() bool { return !s.lists(t, idle.id) && !s.lists(t, total.id) }) {
			t.Errorf("%+v", s.status(t).Sessions)
		}
		idle.isOver(t, "idle for 1.9s")
		total.isOver(t, "lasted for its 3s")
		time.Sleep(1500 * time.Millisecond)
		stays.says(t, "here\n", "echo", "here")
		if now := s.pid(t); now != pid {
			t.Errorf("the service was %d and is %d", pid, now)
		}
		if out, errs, code := tell(s.sessionCommand("stop", stays.id)); out+errs != "" || code != 0 {
			t.Errorf("%q %q %d", out, errs, code)
		}
		stays.isOver(t, "stopped")
		if !soon(func() bool { return len(s.pids()) == 0 }) {
			t.Error("the service stays without a session")
		}
		for _, flags := range [][]string{{"--idle", "25h"}, {"--total", "24h1ms"}, {"--total", "999ms"}, {"--idle", "-1s"}, {"--mode", "oneshot"}} {
			out, errs, code := tell(s.sessionCommand(append(append([]string{"start"}, flags...), bundle)...))
			if code != 125 || out != "" || !strings.Contains(errs, "sessio") {
				t.Errorf("%v: %q, %q, exit code %d", flags, out, errs, code)
			}
		}
	})
}

func TestASessionIsEndedByWhoeverMay(t *testing.T) {
	inEachMode(t, func(t *testing.T, m mode) {
		s := m.service(t)
		bundle := m.bundleOf(t, map[string]string{"main.sh": lasting})
		busy := func() (*session, *background, string) {
			one, nonce := s.session(t, bundle), rand.Text()
			b := m.prepared(t, one.command(nil, "./main.sh", nonce))
			b.expect(t, "ready\n")
			return one, b, nonce
		}
		ends := func(what string, one *session, b *background, nonce string, codes ...int) {
			t.Helper()
			if b != nil {
				if _, code := b.wait(t); !slices.Contains(codes, code) {
					t.Errorf("%s: exit code %d: %s", what, code, b.stderr.String())
				}
			}
			if !soon(func() bool { return !running(nonce) && !s.lists(t, one.id) }) {
				t.Errorf("%s: it lives on", what)
			}
		}
		one, b, nonce := busy()
		if errs, code := s.kill(one.id); code != 0 {
			t.Error(errs)
		}
		ends("kill the session", one, b, nonce, 130)
		one.isOver(t, "killed")

		one, b, nonce = busy()
		if errs, code := s.kill(s.status(t).Running[0].ID); code != 0 {
			t.Error(errs)
		}
		ends("kill the call", one, b, nonce, 130)
		one.isOver(t, "canceled")

		one, b, nonce = busy()
		if out, errs, code := tell(s.sessionCommand("stop", one.id)); code != 0 {
			t.Errorf("%q %q", out, errs)
		}
		ends("stop", one, b, nonce, 130)

		one, b, nonce = busy()
		if err := b.cmd.Process.Signal(os.Interrupt); err != nil {
			t.Error(err)
		}
		ends("cancel", one, b, nonce, 130)
		one.isOver(t, "canceled")

		one, b, nonce = busy()
		b.end(t)
		ends("the client's death", one, nil, nonce)

		// Between calls, with a process left behind.
		one, nonce = s.session(t, bundle), rand.Text()
		one.call(t, nil, "sh", "-c", "setsid sh -c 'while :; do sleep 1; done # "+nonce+"' >/dev/null 2>&1 </dev/null &")
		if !soon(func() bool { return running(nonce) }) { // it has no command line for a moment, as it is executed
			t.Error("the process is not found")
		}
		if errs, code := s.kill(one.id, "0000000000000000"); code != 125 || !strings.Contains(errs, "0000000000000000") || !running(nonce) {
			t.Errorf("%q, %d", errs, code)
		}
		if errs, code := s.kill(one.id); code != 0 {
			t.Error(errs)
		}
		ends("kill an idle one", one, nil, nonce)
		one.isOver(t, "killed")

		for _, id := range []string{"0000000000000000", "", "../../../../etc", "0000000000000000\n", "i000000000000000", strings.Repeat("0", 1000)} {
			for _, c := range []*exec.Cmd{s.sessionCommand("exec", id, "--", "true"), s.sessionCommand("stop", id)} {
				if out, errs, code := tell(c); code != 125 || out != "" || !strings.HasPrefix(errs, "skillbox: ") {
					t.Errorf("%q: %q, %q, %d", id, out, errs, code)
				}
			}
		}
	})
}

func TestAServicesDeathEndsItsSessions(t *testing.T) {
	inEachMode(t, func(t *testing.T, m mode) {
		before := traces(t)
		s := m.service(t)
		for _, how := range []unix.Signal{unix.SIGKILL, unix.SIGTERM} {
			one, nonce := s.session(t, m.sharedBundle(t)), rand.Text()
			one.call(t, nil, "sh", "-c", "setsid sh -c 'while :; do sleep 1; done # "+nonce+"' >/dev/null 2>&1 </dev/null &")
			pid := s.pid(t)
			if err := unix.Kill(pid, how); err != nil {
				t.Fatal(err)
			}
			if !soon(func() bool { return !slices.Contains(s.pids(), pid) && !running(nonce) }) {
				t.Errorf("%v: something lives on", how)
			}
			if _, errs, code := tell(one.command(nil, "true")); code != 125 || !strings.Contains(errs, "no service runs") {
				t.Errorf("%v: %q, %d", how, errs, code)
			}
			if len(s.pids()) != 0 {
				t.Error("a call of a session that is gone starts a service")
			}
			s.run(t, nil, m.sharedBundle(t), "true")
			if r, err := one.ask(nil, "true"); err != nil || r.ExitCode != 125 || !strings.Contains(r.Error.Message, "knows no session "+one.id) {
				t.Errorf("%v: %v, %+v", how, err, r)
			}
			if err := unix.Kill(s.pid(t), unix.SIGTERM); err != nil {
				t.Fatal(err)
			}
			if !soon(func() bool { return len(s.pids()) == 0 }) {
				t.Fatal("it stays")
			}
			if err := os.RemoveAll(s.dir()); err != nil { // lock and log are to stay
				t.Error(err)
			}
			if !nothingLeft(t, before) {
				t.Fatalf("after %v", how)
			}
		}
	})
}

func TestASessionsServiceIsReplaced(t *testing.T) {
	inEachMode(t, func(t *testing.T, m mode) {
		s := m.service(t)
		s.bin = m.dir(t)
		for _, name := range []string{"skillbox", "skillboxd", "skillbox-init"} {
			install(t, s.bin, name)
		}
		idle, busy := s.session(t, m.sharedBundle(t)), s.session(t, m.sharedBundle(t))
		b := m.prepared(t, busy.command(nil, "sh", "-c", "echo ready; read line; echo $line"))
		b.expect(t, "ready\n")
		old := s.pid(t)
		install(t, s.bin, "skillboxd")
		s.run(t, nil, m.sharedBundle(t), "true")
		if r, err := idle.ask(nil, "true"); err != nil || !strings.Contains(fmt.Sprint(r.Error), "knows no session") || !strings.Contains(r.Error.Hint, "replaced") {
			t.Errorf("%v, %+v", err, r)
		}
		// The call that is being served is, to its end.
		if _, err := b.stdin.Write([]byte("a line\n")); err != nil {
			t.Error(err)
		}
		if out, code := b.wait(t); out != "a line\n" || code != 0 {
			t.Errorf("%q, %d: %s", out, code, b.stderr.String())
		}
		if !soon(func() bool { return !slices.Contains(s.pids(), old) }) {
			t.Error("the old service stays")
		}
	})
}
