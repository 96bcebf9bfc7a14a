//go:build linux

package integration

import (
	"fmt"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"skillbox/helper"
)

// befall lets happen to a call what is to happen to it. stop ends that.
func (f *fleet) befall(k *kind, chance *rand.Rand, c *exec.Cmd, nonce string) (stop func()) {
	late := time.AfterFunc(patience(2*time.Minute), func() {
		f.fault("%s of %s hangs", k.name, nonce)
		_ = c.Process.Kill()
	})
	if k.meanwhile != nil {
		k.meanwhile(f, chance, c, nonce)
	} else if chance.IntN(25) == 0 { // at any moment of what a call usually takes
		time.Sleep(time.Duration(chance.IntN(60)) * time.Millisecond)
		_ = c.Process.Kill() // it may have ended
		f.mu.Lock()
		f.killed++
		f.mu.Unlock()
	}
	return func() { late.Stop() }
}

// cancel tells the client to end, which it may not have come to listen for.
func cancel(_ *fleet, chance *rand.Rand, client *exec.Cmd, _ string) {
	time.Sleep(time.Duration(20+chance.IntN(100)) * time.Millisecond)
	_ = client.Process.Signal(unix.SIGTERM)
}

// strike kills the call's skill, or its box's init.
func strike(f *fleet, chance *rand.Rand, client *exec.Cmd, nonce string) {
	victim := ""
	if !soon(func() bool {
		time.Sleep(time.Duration(30+chance.IntN(30)) * time.Millisecond) // it takes a while to look at all processes
		victim = skillOf(nonce, client.Process.Pid)
		return victim != "" || ended(client)
	}) || victim == "" {
		return // the answer will tell
	}
	if chance.IntN(2) == 0 {
		victim = initOf(victim)
	}
	pid, err := strconv.Atoi(victim)
	if err != nil {
		return
	}
	// The number is its own as long as this is held.
	p, err := os.FindProcess(pid)
	if err != nil || skillOf(nonce, client.Process.Pid) == "" {
		return
	}
	if p.Kill() == nil {
		f.mu.Lock()
		f.struck++
		f.mu.Unlock()
	}
	_ = p.Release() // of a handle
}

// skillOf finds the first process of a skill by a word of its command line; "" is none.
func skillOf(nonce string, client int) string {
	names, _ := filepath.Glob("/proc/[0-9]*/cmdline")
	for _, name := range names {
		words, _ := os.ReadFile(name) // none when it ended meanwhile
		pid := filepath.Base(filepath.Dir(name))
		if strings.Contains(string(words), nonce) && pid != strconv.Itoa(client) {
			return pid
		}
	}
	return ""
}

// initOf is the parent of a skill, "" when either is gone.
func initOf(pid string) string {
	status, _ := os.ReadFile("/proc/" + pid + "/status")
	_, parent, _ := strings.Cut(string(status), "\nPPid:\t")
	parent, _, _ = strings.Cut(parent, "\n")
	return parent
}

// ended says that a process of ours only waits to be waited for.
func ended(c *exec.Cmd) bool {
	stat, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", c.Process.Pid))
	return err != nil || strings.Contains(string(stat), ") Z ")
}

// deaths are the times in which a service was being killed.
type deaths struct {
	mu  sync.Mutex
	all []*death
}

type death struct{ from, to time.Time } // a zero to is that it is not gone

// during says that a call of that time may have met one.
func (d *deaths) during(from, to time.Time) bool {
	d.mu.Lock()
	defer d.mu.Unlock()
	for _, one := range d.all {
		if one.from.Before(to) && (one.to.IsZero() || one.to.After(from)) {
			return true
		}
	}
	return false
}

// killService ends the service that there is, mostly without warning.
func (f *fleet) killService(how int) {
	one := &death{from: time.Now()}
	f.deaths.mu.Lock()
	f.deaths.all = append(f.deaths.all, one)
	f.deaths.mu.Unlock()
	signal := unix.SIGKILL
	if how == 0 {
		signal = unix.SIGTERM
	}
	for _, pid := range f.s.pids() {
		_ = unix.Kill(pid, signal) // it may end just now
		if !soon(func() bool { return unix.Kill(pid, 0) != nil }) {
			f.fault("the service does not end of %v", signal)
		}
	}
	f.deaths.mu.Lock()
	one.to = time.Now()
	f.deaths.mu.Unlock()
}

// editing is a bundle and a policy that change while calls of them run.
type editing struct {
	bundle, policy string

	mu      sync.Mutex
	done    int // both say this
	at      int // one of them may say this
	digests map[string]string
}

func (e *editing) start(t *testing.T, f *fleet) {
	t.Helper()
	e.digests = map[string]string{}
	f.write(t, filepath.Join(e.bundle, "version"), "0\n")
	f.write(t, e.policy, "version: 1\nenv: {set: {SAYS: '0'}}\n")
}

// change is one change of each.
func (e *editing) change(f *fleet) {
	e.mu.Lock()
	e.at++
	n := e.at
	e.mu.Unlock()
	f.write(faults{f}, filepath.Join(e.bundle, "version"), fmt.Sprintf("%d\n", n))
	f.write(faults{f}, e.policy, fmt.Sprintf("version: 1\nenv: {set: {SAYS: '%d'}}\n", n))
	e.mu.Lock()
	e.done = n
	e.mu.Unlock()
}

// faults takes what would end a test elsewhere.
type faults struct{ f *fleet }

func (x faults) Fatal(a ...any) { x.f.fault("%s", fmt.Sprint(a...)) }

// atLeast is what a call that begins now finds, or later.
func (e *editing) atLeast() [2]int {
	e.mu.Lock()
	defer e.mu.Unlock()
	return [2]int{e.done, e.at}
}

// right says that a call ran what there was, of both, while it ran, and that the digest is that of what it ran.
func (e *editing) right(r *helper.Result, nonce string, before [2]int) bool {
	var word string
	var bundle, policy int
	if _, err := fmt.Sscan(r.Stdout, &word, &bundle, &policy); err != nil || word != nonce {
		return false
	}
	now := e.atLeast()
	if bundle < before[0] || policy < before[0] || bundle > now[1] || policy > now[1] {
		return false
	}
	if before[0] != now[1] {
		return true // it changed meanwhile
	}
	e.mu.Lock()
	defer e.mu.Unlock()
	version := strconv.Itoa(bundle)
	if old, known := e.digests[version]; known && old != r.Skill.Digest {
		return false
	}
	e.digests[version] = r.Skill.Digest
	return true
}
