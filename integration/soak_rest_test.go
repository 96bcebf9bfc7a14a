//go:build linux

package integration

import (
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"skillbox/helper"
)

// held is what a service holds while it rests.
type held struct {
	pid         int
	private     int64 // bytes of memory that are its own, RssAnon of proc_pid_status(5)
	descriptors int
	threads     int
}

func (h held) String() string {
	return fmt.Sprintf("process %d: %.1f MiB of its own, %d descriptors, %d threads", h.pid, float64(h.private)/(1<<20), h.descriptors, h.threads)
}

// mayGrow is what a service may have more at the end of the calm rounds than after the first of them: what a collector leaves.
const mayGrow = 6 << 20

// rest is between two rounds: nobody calls.
func (f *fleet) rest(t *testing.T, round int) {
	t.Helper()
	if len(f.wrong) > 0 {
		t.Errorf("%s: round %d: %d wrong answers", f.s.mode, round+1, len(f.wrong))
		return
	}
	if len(f.s.pids()) == 0 { // the last call was before it was killed
		if r, err := f.ask(); err != nil || !r {
			t.Errorf("%s: the service was not started anew: %v", f.s.mode, err)
			return
		}
	}
	if !soon(func() bool { return len(skillsAlive()) == 0 }) {
		t.Errorf("skills that run on: %q", skillsAlive())
	}
	f.s.keepsNothing(t)
	f.keepsFiles(t)
	h := f.holds(t)
	if last := len(f.held) - 1; last >= 0 && round > soakRounds-calmRounds && f.held[last].pid != h.pid {
		t.Errorf("%s: the service was %d and is %d, and nobody killed it:\n%s", f.s.mode, f.held[last].pid, h.pid, f.s.log(t))
	}
	f.held = append(f.held, h)
	f.strikeReady(t, h.pid)
}

// ask makes a plain call.
func (f *fleet) ask() (bool, error) {
	c := f.s.command([]string{"--json"}, f.kinds[0].bundle, "true")
	var out []byte
	err := f.w.host.Run(func() (err error) { out, err = c.Output(); return err })
	return strings.Contains(string(out), `"success":true`), err
}

// skillsAlive are command lines with a call's nonce.
func skillsAlive() (all []string) {
	names, _ := filepath.Glob("/proc/[0-9]*/cmdline")
	for _, name := range names {
		words, _ := os.ReadFile(name) // none when it ended meanwhile
		if nonces.Match(words) {
			all = append(all, string(words))
		}
	}
	return all
}

// keepsFiles checks the directories that a service writes to.
func (f *fleet) keepsFiles(t *testing.T) {
	t.Helper()
	for _, entry := range entries(t, f.s.dir()) {
		if entry != "lock" && entry != helper.ServiceLog && entry != helper.OldServiceLog && !strings.HasSuffix(entry, ".sock") {
			t.Errorf("%s: in the runtime directory: %s", f.s.mode, entry)
		}
	}
	for _, entry := range entries(t, f.s.at) {
		if entry != "skillbox" && entry != ".cache" {
			t.Errorf("%s: left of a call: %s", f.s.mode, entry)
		}
	}
	cache := filepath.Join(f.s.at, ".cache", "skillbox")
	if f.s.mode == asRoot {
		cache = "/var/cache/skillbox"
	}
	// As many bundles as are remembered, what those left who were killed as they wrote, and what others are writing, for root's is the
	// machine's.
	if all := entries(t, cache); len(all) > 256+len(f.deaths.all)+soakClients {
		t.Errorf("%s: %d files in %s", f.s.mode, len(all), cache)
	}
}

func entries(t *testing.T, dir string) (names []string) {
	t.Helper()
	all, err := os.ReadDir(dir)
	if err != nil && !os.IsNotExist(err) {
		t.Error(err)
	}
	for _, e := range all {
		names = append(names, e.Name())
	}
	return names
}

// holds measures the service.
func (f *fleet) holds(t *testing.T) held {
	t.Helper()
	h := held{pid: f.s.pid(t)}
	h.private = int64(number(t, statusOf(t, h.pid, "RssAnon")[0])) << 10
	h.threads = number(t, statusOf(t, h.pid, "Threads")[0])
	h.descriptors = len(entries(t, fmt.Sprintf("/proc/%d/fd", h.pid)))
	return h
}

// strikeReady kills a box that waits, which then must serve nobody.
func (f *fleet) strikeReady(t *testing.T, service int) {
	t.Helper()
	for _, child := range children(service) {
		comm, _ := os.ReadFile("/proc/" + child + "/comm")
		pid, err := strconv.Atoi(child)
		if err != nil || !strings.HasPrefix(string(comm), "skillbox-init") && !strings.HasPrefix(string(comm), "init") {
			continue
		}
		if err := unix.Kill(pid, unix.SIGKILL); err != nil {
			t.Errorf("kill a ready box: %v", err)
		}
		f.struck++
		return
	}
	t.Logf("%s: no box is ready that could be killed", f.s.mode)
}

// grows judges the calm rounds.
func (f *fleet) grows(t *testing.T) {
	t.Helper()
	if len(f.held) < soakRounds {
		return
	}
	first, last := f.held[soakRounds-calmRounds], f.held[soakRounds-1]
	if last.private > first.private+mayGrow {
		t.Errorf("%s: the service has grown from %d bytes to %d", f.s.mode, first.private, last.private)
	}
	if last.threads > first.threads+32 { // one for each box that is ready more, see keepsNothing
		t.Errorf("%s: the service has grown from %d threads to %d", f.s.mode, first.threads, last.threads)
	}
}
