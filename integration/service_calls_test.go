//go:build linux

package integration

import (
	"bytes"
	"crypto/rand"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"skillbox/helper"
)

func TestAServiceRunsTheBundleAndThePolicyAsTheyAreNow(t *testing.T) {
	inEachMode(t, func(t *testing.T, m mode) {
		s := m.service(t)
		bundle := m.bundleOf(t, map[string]string{"main.sh": "#!/bin/sh\necho one $SAYS; ls -F\n"})
		main := filepath.Join(bundle, "main.sh")
		policy := m.file(t, "policy.yaml", "version: 1\nenv: {set: {SAYS: a}}\n")
		flags := []string{"--policy", policy}
		digests := map[string]string{}
		// Each change comes when a box is ready that does not know of it.
		for _, change := range []struct {
			name, want string
			make       func() error
		}{
			{"none", "one a\nmain.sh*\n", func() error { return nil }},
			{"content of the same length and time", "two a\nmain.sh*\n", func() error {
				info, err := os.Stat(main)
				if err != nil {
					return err
				}
				m.write(t, main, "#!/bin/sh\necho two $SAYS; ls -F\n", 0o755)
				return os.Chtimes(main, info.ModTime(), info.ModTime())
			}},
			{"a new file", "two a\nmain.sh*\nnew\n", func() error { m.write(t, filepath.Join(bundle, "new"), "", 0o644); return nil }},
			{"an exec bit", "two a\nmain.sh*\nnew*\n", func() error { return os.Chmod(filepath.Join(bundle, "new"), 0o755) }},
			{"no exec bit", "two a\nmain.sh*\nnew\n", func() error { return os.Chmod(filepath.Join(bundle, "new"), 0o644) }},
			{"the policy", "two b\nmain.sh*\nnew\n", func() error { m.write(t, policy, "version: 1\nenv: {set: {SAYS: b}}\n", 0o644); return nil }},
			{"a script that others replace", "three b\nmain.sh*\nnew\n", func() error {
				m.write(t, filepath.Join(bundle, "other"), "#!/bin/sh\necho three $SAYS; ls -F\n", 0o755)
				return os.Rename(filepath.Join(bundle, "other"), main)
			}},
			{"another directory of that name", "four b\nmain.sh*\n", func() error {
				other := m.bundleOf(t, map[string]string{"main.sh": "#!/bin/sh\necho four $SAYS; ls -F\n"})
				if err := os.Rename(bundle, bundle+"-old"); err != nil {
					return err
				}
				return os.Rename(other, bundle)
			}},
		} {
			if err := change.make(); err != nil {
				t.Fatal(err)
			}
			call := func() *helper.Result {
				r, err := s.ask(flags, bundle, "./main.sh")
				if err != nil {
					t.Fatal(err)
				}
				if r.Stdout != change.want || r.ExitCode != 0 {
					t.Errorf("%s: %q, %d: %v; want %q", change.name, r.Stdout, r.ExitCode, r.Error, change.want)
				}
				return r
			}
			digests[call().Skill.Digest] = change.name
			s.warm(t, 1, call)
		}
		if len(digests) != 6 { // without the exec bit it is one that was before, and the policy is no part of it
			t.Errorf("digests: %v", digests)
		}
	})
}

// flavour is a kind of call, and what it comes to.
type flavour struct {
	bundle  string
	flags   []string
	words   []string // a nonce follows
	verdict string
	code    int
	right   func(r *helper.Result, nonce string) bool
}

func TestClientsAtOneTimeGetTheirOwnAnswers(t *testing.T) {
	const clients = 8
	calls := load(25)
	inEachMode(t, func(t *testing.T, m mode) {
		s := m.service(t)
		words := m.bundleOf(t, map[string]string{
			"say": "#!/bin/sh\necho $1\n", "fail": "#!/bin/sh\necho $1; exit 3\n", "wait": "#!/bin/sh\necho $1; sleep 60\n", "shout": "#!/bin/sh\nexec yes $1\n",
			"unshare": "#!/bin/sh\necho $1; unshare -U true; echo\n",
		})
		probe := m.probeBundle(t)
		m.write(t, filepath.Join(probe, "break"), "#!/bin/sh\necho $1; exec ./probe foreign-call\n", 0o755)
		quiet := m.file(t, "quiet.yaml", "version: 1\nresources: {output: 64Ki}\n")
		says := func(r *helper.Result, nonce string) bool { return r.Stdout == nonce+"\n" }
		flavours := []flavour{
			{words, nil, []string{"./say"}, helper.Exited, 0, says},
			{words, nil, []string{"./fail"}, helper.Exited, 3, says},
			// That is little time on a busy machine: it may not have come to say anything.
			{words, []string{"--timeout", "300ms"}, []string{"./wait"}, helper.TimedOut, 124, func(r *helper.Result, nonce string) bool { return strings.HasPrefix(nonce+"\n", r.Stdout) }},
			{words, []string{"--policy", quiet}, []string{"./shout"}, helper.OutputLimit, 153, func(r *helper.Result, nonce string) bool {
				return len(r.Stdout) == 64<<10 && strings.HasPrefix(strings.Repeat(nonce+"\n", 64<<10/len(nonce)), r.Stdout)
			}},
			{probe, nil, []string{"./break"}, helper.SyscallKilled, 159, says},
			{words, nil, []string{"./unshare"}, helper.Exited, 0, func(r *helper.Result, nonce string) bool {
				return r.Stdout == nonce+"\n\n" && slices.ContainsFunc(r.Denials, func(d helper.Denial) bool { return strings.HasPrefix(d.What, "unshare") && d.Count == 1 })
			}},
		}
		var all sync.WaitGroup
		var mu sync.Mutex
		ids, found := map[string]bool{}, 0
		for n := range clients {
			all.Go(func() {
				for i := range calls {
					f, nonce := flavours[(n+i)%len(flavours)], rand.Text()
					r, err := s.ask(f.flags, f.bundle, append(f.words, nonce)...)
					if err != nil {
						t.Errorf("%q: %v", f.words, err)
						continue
					}
					if r.Verdict != f.verdict || r.ExitCode != f.code || !f.right(r, nonce) || len(r.Denials) > 0 && f.words[0] != "./unshare" {
						t.Errorf("%q for %s: %s, %d, %v, %v, %d bytes: %.100q %.100q", f.words, nonce, r.Verdict, r.ExitCode, r.Error, r.Denials, len(r.Stdout), r.Stdout, r.Stderr)
					}
					mu.Lock()
					if ids[r.ID] {
						t.Errorf("%s is the id of two calls", r.ID)
					}
					ids[r.ID] = true
					if wasReady(r) {
						found++
					}
					mu.Unlock()
				}
			})
		}
		all.Wait()
		t.Logf("%d of %d calls found a box ready", found, clients*calls)
		s.keepsNothing(t)
	})
}

// keepsNothing checks that the service, once it has nothing to do, holds no more than what ready boxes take.
func (s *service) keepsNothing(t *testing.T) {
	t.Helper()
	pid := s.pid(t)
	ours, err := os.ReadFile("/proc/self/mountinfo")
	if err != nil {
		t.Fatal(err)
	}
	before := bytes.Count(ours, []byte("\n")) + 10 // its own
	count := func(path string) int {
		names, err := os.ReadDir(path)
		if err != nil {
			t.Fatal(err)
		}
		return len(names)
	}
	var held string
	if !soon(func() bool {
		text, err := os.ReadFile(fmt.Sprintf("/proc/%d/mountinfo", pid))
		if err != nil {
			t.Fatal(err)
		}
		files, threads, mounts := count(fmt.Sprintf("/proc/%d/fd", pid)), count(fmt.Sprintf("/proc/%d/task", pid)), bytes.Count(text, []byte("\n"))
		var boxes, zombies int
		for _, child := range children(pid) {
			switch stat, err := os.ReadFile("/proc/" + child + "/stat"); {
			case err == nil && bytes.Contains(stat, []byte(") Z ")):
				zombies++
			case err == nil:
				boxes++
			}
		}
		held = fmt.Sprintf("%d descriptors, %d mounts, %d threads, %d zombies beside %d ready boxes", files, mounts, threads, zombies, boxes)
		// A ready box takes 13 descriptors, 26 with a link, 24 mounts and a thread.
		return zombies == 0 && files <= 30+28*boxes && mounts <= before+30*boxes && threads < 50+2*boxes
	}) {
		t.Errorf("after all calls: %s; of mounts there were %d", held, before)
	}
	t.Logf("after all calls: %s", held)
}

// children are a process's, as /proc names them.
func children(pid int) (all []string) {
	threads, _ := filepath.Glob(fmt.Sprintf("/proc/%d/task/*/children", pid))
	for _, list := range threads {
		text, _ := os.ReadFile(list) // a thread that ended has none
		all = append(all, strings.Fields(string(text))...)
	}
	return all
}

func TestClientsThatComeAtOnceStartOneService(t *testing.T) {
	inEachMode(t, func(t *testing.T, m mode) {
		s := m.service(t)
		bundle := m.bundleOf(t, map[string]string{"main.sh": repeating})
		for range 3 {
			var all sync.WaitGroup
			for range 10 {
				nonce := rand.Text()
				all.Go(func() {
					if r, err := s.ask(nil, bundle, "./main.sh", nonce); err != nil || r.Stdout != nonce+"\n" {
						t.Errorf("%v, %+v", err, r)
					}
				})
			}
			all.Wait()
			if n := strings.Count(s.log(t), `"started"`); n != 1 {
				t.Fatalf("%d services were started", n)
			}
			s.pid(t)
		}
	})
}

func TestAServiceLeavesWhenNobodyAsks(t *testing.T) {
	inEachMode(t, func(t *testing.T, m mode) {
		s := m.service(t)
		s.idle = "1s"
		bundle := m.bundleOf(t, map[string]string{"main.sh": repeating})
		// A call that takes longer is no idleness.
		if r := s.run(t, nil, bundle, "sh", "-c", "sleep 3; echo slept"); r.Stdout != "slept\n" {
			t.Errorf("%+v", r)
		}
		for range 2 {
			s.run(t, nil, bundle, "./main.sh", "word")
			began := time.Now()
			if !soon(func() bool { return len(s.pids()) == 0 }) {
				t.Fatal("it does not leave")
			}
			if took := time.Since(began); took < 500*time.Millisecond {
				t.Errorf("it left after %v", took)
			}
			if _, err := os.Lstat(s.socket()); !os.IsNotExist(err) {
				t.Errorf("its socket: %v", err)
			}
		}
		if log := s.log(t); strings.Count(log, `"left","error":null`) != strings.Count(log, `"started"`) {
			t.Errorf("the log:\n%s", log)
		}
	})
}
