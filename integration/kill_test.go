//go:build linux

package integration

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"os/exec"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

// background is a client that runs without --json, on pipes.
type background struct {
	cmd    *exec.Cmd
	stdin  io.WriteCloser
	stdout io.ReadCloser
	stderr bytes.Buffer
}

func (m mode) background(t *testing.T, flags []string, bundle string, words ...string) *background {
	t.Helper()
	args := append([]string{"exec"}, flags...)
	args = append(args, bundle)
	if len(words) > 0 {
		args = append(append(args, "--"), words...)
	}
	return m.prepared(t, m.command(args...))
}

// prepared starts a client's command.
func (m mode) prepared(t *testing.T, c *exec.Cmd) *background {
	t.Helper()
	b := &background{cmd: c}
	var err error
	if b.stdin, err = b.cmd.StdinPipe(); err != nil {
		t.Fatal(err)
	}
	if b.stdout, err = b.cmd.StdoutPipe(); err != nil {
		t.Fatal(err)
	}
	b.cmd.Stderr = &b.stderr
	if err := b.cmd.Start(); err != nil {
		t.Fatal(err)
	}
	return b
}

// expect reads exactly text from the skill.
func (b *background) expect(t *testing.T, text string) {
	t.Helper()
	got := make([]byte, len(text))
	n, err := io.ReadFull(b.stdout, got)
	if err != nil || string(got) != text {
		_ = b.cmd.Process.Kill()
		t.Fatalf("read %q, %v; want %q\nstderr: %s", got[:n], err, text, b.stderr.String())
	}
}

// wait returns the rest of stdout and the exit code.
func (b *background) wait(t *testing.T) (string, int) {
	t.Helper()
	late := time.AfterFunc(patience(time.Minute), func() {
		t.Error("the client had to be killed")
		_ = b.cmd.Process.Kill()
	})
	defer late.Stop()
	rest, err := io.ReadAll(b.stdout)
	if err != nil {
		t.Error(err)
	}
	var exit *exec.ExitError
	if err := b.cmd.Wait(); err != nil && !errors.As(err, &exit) {
		t.Error(err)
	}
	return string(rest), b.cmd.ProcessState.ExitCode()
}

// end kills the client and waits for everything that held its pipes.
func (b *background) end(t *testing.T) {
	t.Helper()
	_ = b.cmd.Process.Kill()
	b.wait(t)
}

// clinging is a skill that spawns grandchildren and a daemon, all of which hold stdout, and ignores SIGTERM.
const clinging = `#!/bin/sh
trap '' TERM
(setsid sh -c 'trap "" TERM; sleep 600 & sleep 600 & wait' &)
sleep 600 &
echo ready
sleep 0.1
`

// nothingLeft waits until traces are back to what they were.
func nothingLeft(t *testing.T, before map[string]bool) bool {
	t.Helper()
	deadline := time.Now().Add(patience(10 * time.Second))
	for {
		var left []string
		for trace := range traces(t) {
			if !before[trace] {
				left = append(left, trace)
			}
		}
		if len(left) == 0 {
			return true
		}
		if time.Now().After(deadline) {
			t.Errorf("left behind: %s", strings.Join(left, "; "))
			return false
		}
		time.Sleep(5 * time.Millisecond)
	}
}

// Uniform over the run's whole life, from before skillboxd is started to after the skill's end.
func TestNothingIsLeftAfterSIGKILLAtAnyMoment(t *testing.T) {
	moments := load(50)
	if testing.Short() {
		moments = min(moments, 8)
	}
	inEachMode(t, func(t *testing.T, m mode) {
		before := traces(t)
		bundle := m.bundleOf(t, map[string]string{"main.sh": clinging})
		began := time.Now()
		r := m.background(t, nil, bundle, "./main.sh")
		if out, code := r.wait(t); out != "ready\n" || code != 0 {
			t.Fatalf("the skill itself: %q, exit code %d, stderr %s", out, code, r.stderr.String())
		}
		life := time.Since(began)
		for _, victim := range []string{"skillbox", "skillboxd"} {
			for i := range moments {
				at := time.Duration((float64(i) + rand.Float64()) / float64(moments) * float64(life))
				killed := killAt(t, m, bundle, victim, at)
				if victim == "skillboxd" {
					m.sweep(t) // its group is the next one's to remove
				}
				if !nothingLeft(t, before) {
					t.Fatalf("%s killed after %v of %v (killed: %v)", victim, at, life, killed)
				}
			}
		}
	})
}

// killAt starts a run and kills the victim after the given time. It returns when every holder of the run's stdout is gone.
func killAt(t *testing.T, m mode, bundle, victim string, at time.Duration) (killed bool) {
	t.Helper()
	began := time.Now()
	r := m.background(t, nil, bundle, "./main.sh")
	pid := r.cmd.Process.Pid
	if victim == "skillboxd" {
		pid = skillboxdOf(pid)
	}
	time.Sleep(at - time.Since(began))
	if pid != 0 {
		killed = unix.Kill(pid, unix.SIGKILL) == nil
	}
	out, code := r.wait(t)
	switch {
	case !strings.HasPrefix("ready\n", out):
		t.Errorf("%s killed after %v: stdout %q", victim, at, out)
	case victim == "skillboxd" && code != 125 && code != 0:
		t.Errorf("skillboxd killed after %v: the client exited with %d: %s", at, code, r.stderr.String())
	case victim == "skillboxd" && code == 125 && !strings.Contains(r.stderr.String(), "skillbox: "):
		t.Errorf("skillboxd killed after %v: the client said nothing of it: %q", at, r.stderr.String())
	}
	return killed
}

// echoing takes one line, after all are alive, and gives it back.
const echoing = `#!/bin/sh
(setsid sleep 600 &)
echo ready
read line
echo "$line $(cat /tmp/mine 2>/dev/null)"
echo "$line" > /tmp/mine
exit 7
`

func TestThreat181Concurrent200(t *testing.T) {
	boxes := load(200)
	if testing.Short() {
		boxes = min(boxes, 20)
	}
	inEachMode(t, func(t *testing.T, m mode) {
		boxes := boxes
		if m == singleID {
			boxes = min(boxes, 40) // what differs from rootless does not grow with the number
		}
		before := traces(t)
		bundle := m.bundleOf(t, map[string]string{"main.sh": echoing})
		began := time.Now()
		runs := make([]*background, boxes)
		// Waves of a few: a start takes CPU, and there is little of it.
		wave := make(chan struct{}, 8)
		var started sync.WaitGroup
		for i := range runs {
			started.Go(func() {
				wave <- struct{}{}
				defer func() { <-wave }()
				b := m.background(t, []string{"--timeout", "5m"}, bundle, "./main.sh")
				runs[i] = b
				got := make([]byte, len("ready\n"))
				if _, err := io.ReadFull(b.stdout, got); err != nil || string(got) != "ready\n" {
					t.Errorf("box %d: %q, %v", i, got, err)
				}
			})
		}
		started.Wait()
		if t.Failed() {
			for i, b := range runs {
				b.end(t)
				if said := b.stderr.String(); said != "" {
					t.Logf("box %d: %s", i, said)
				}
			}
			return
		}
		t.Logf("%d boxes alive after %v", boxes, time.Since(began).Round(time.Millisecond))
		doomed := rand.Perm(boxes)[:boxes/2]
		dead := map[int]bool{}
		for n, i := range doomed {
			pid := runs[i].cmd.Process.Pid
			if n%2 == 1 {
				pid = skillboxdOf(pid)
			}
			if err := unix.Kill(pid, syscall.SIGKILL); err != nil {
				t.Errorf("kill box %d: %v", i, err)
			}
			dead[i] = true
		}
		for i, b := range runs {
			if dead[i] {
				if out, _ := b.wait(t); out != "" {
					t.Errorf("killed box %d wrote %q", i, out)
				}
				continue
			}
			token := fmt.Sprintf("token-%d", i)
			if _, err := io.WriteString(b.stdin, token+"\n"); err != nil {
				t.Errorf("box %d: %v", i, err)
			}
		}
		for i, b := range runs {
			if dead[i] {
				continue
			}
			if out, code := b.wait(t); out != fmt.Sprintf("token-%d \n", i) || code != 7 {
				t.Errorf("box %d: %q, exit code %d, stderr %s", i, out, code, b.stderr.String())
			}
		}
		m.sweep(t)
		nothingLeft(t, before)
		if took := time.Since(began); took > patience(3*time.Minute) { // there is no hang; how long it takes is a benchmark's subject
			t.Errorf("it took %v", took)
		}
	})
}
